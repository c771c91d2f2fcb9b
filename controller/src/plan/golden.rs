//! Plans as files: each folder of `controller/golden/` has `workspace.yaml`, maybe `image.yaml`,
//! and `plan.yaml`, which `UPDATE_GOLDEN=1 cargo test -p controller golden` writes anew.

use std::path::{Path, PathBuf};

use apiserver_generic::Object;
use serde_json::{Value, json};

use super::*;

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    cases
}

fn read(path: &Path) -> Option<Object> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(Object::from_value(serde_saphyr::from_str(&text).unwrap()).unwrap())
}

fn plan_of(case: &Path) -> Plan {
    let workspace = read(&case.join("workspace.yaml")).expect("a workspace");
    let workspace = Workspace::read(&workspace).expect("a stored workspace");
    let images: Vec<Object> = read(&case.join("image.yaml")).into_iter().collect();
    let (record, settings) = resolve(workspace.image(), &images);
    let user_data = settings
        .cloud_init
        .then(|| super::user_data(&record, &images));
    let without = case
        .file_name()
        .is_some_and(|name| name == "vm-without-kubevirt");
    let facts = Facts { kubevirt: !without };
    plan(&workspace, &settings, user_data, facts)
}

#[test]
fn plans_are_as_recorded() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let cases = cases();
    assert!(cases.len() > 5, "the cases are there");
    for case in cases {
        let plan = plan_of(&case);
        let children: Vec<&Value> = plan.children.iter().map(|child| &child.body).collect();
        let problems: Vec<String> = plan
            .problems
            .iter()
            .map(|p| format!("{:?} {}: {}", p.severity, p.cause.as_str(), p.message))
            .collect();
        let document = json!({"children": children, "problems": problems});
        let text = serde_saphyr::to_string(&document).unwrap();
        let file = case.join("plan.yaml");
        if update {
            std::fs::write(&file, &text).unwrap();
        }
        let recorded = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(text, recorded, "{}", file.display());
    }
}

#[test]
fn every_child_is_addressed_by_its_own_body() {
    for case in cases() {
        for child in plan_of(&case).children {
            assert_eq!(child.body["metadata"]["name"], child.name);
            assert_eq!(child.body["kind"], format!("{:?}", child.kind));
            assert_eq!(
                child.body["metadata"]["ownerReferences"][0]["controller"],
                true
            );
        }
    }
}
