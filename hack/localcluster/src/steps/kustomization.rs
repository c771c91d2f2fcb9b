//! Kustomizations under the build folder: the repository's manifests with the images of this build. A text each, so
//! that a person can apply or read the same (`kubectl kustomize`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

/// A kustomization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kustomization {
    /// What it starts from, relative to the top of the checkout.
    pub bases: Vec<&'static str>,
    /// Manifests beside it: file name and object.
    pub objects: Vec<(&'static str, Value)>,
    /// Images by name.
    pub images: Vec<Replacement>,
    /// JSON patches.
    pub patches: Vec<Value>,
}

/// An image under another name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    /// The repository in the manifests.
    pub from: String,
    /// The repository in the cluster.
    pub to: String,
    /// The tag.
    pub tag: String,
}

impl Kustomization {
    /// Writes it into `dir`, two levels below the top.
    pub(super) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let put = |name: &str, value: &Value| {
            let path: PathBuf = dir.join(name);
            fs::write(&path, format!("{value:#}\n"))
                .with_context(|| format!("cannot write {}", path.display()))
        };
        for (name, object) in &self.objects {
            put(name, object)?;
        }
        put("kustomization.yaml", &self.value())
    }

    /// JSON is YAML.
    fn value(&self) -> Value {
        let Self {
            bases,
            objects,
            images,
            patches,
        } = self;
        let bases = bases.iter().map(|base| format!("../../../{base}"));
        let objects = objects.iter().map(|(name, _)| (*name).to_owned());
        let image = |r: &Replacement| json!({"name": r.from, "newName": r.to, "newTag": r.tag});
        json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": bases.chain(objects).collect::<Vec<_>>(),
            "images": images.iter().map(image).collect::<Vec<_>>(),
            "patches": patches,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kustomization_leads_to_the_manifests_of_the_checkout() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("_build/deploy/server");
        let kustomization = Kustomization {
            bases: vec!["deploy/base"],
            objects: vec![("endpoints.yaml", json!({"kind": "EndpointSlice"}))],
            images: vec![Replacement {
                from: "a.test/x".into(),
                to: "b.test/x".into(),
                tag: "1".into(),
            }],
            patches: Vec::new(),
        };
        kustomization.write(&dir).unwrap();
        let text = fs::read(dir.join("kustomization.yaml")).unwrap();
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            value["resources"],
            json!(["../../../deploy/base", "endpoints.yaml"])
        );
        assert_eq!(
            value["images"],
            json!([{"name": "a.test/x", "newName": "b.test/x", "newTag": "1"}])
        );
        assert!(dir.join("endpoints.yaml").is_file());
    }
}
