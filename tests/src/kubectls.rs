//! The kubectls on this machine.

use std::path::PathBuf;

use localcluster::harness::Kubectl;

use crate::deployment::Deployment;

/// The kubectls on this machine.
pub struct Kubectls(Vec<(String, Kubectl)>);

impl Kubectls {
    /// The one that is built, 1.34 built from its module, and the oldest on PATH.
    pub async fn of(deployment: &Deployment) -> anyhow::Result<Self> {
        let own = deployment.plane().kubectl_program();
        let mut found = vec![own.clone(), own.with_program(&old_kubectl()?)];
        match machine_kubectl() {
            Some(path) => found.push(own.with_program(&path)),
            None => println!("skipped: there is no kubectl in /usr/bin or /usr/local/bin"),
        }
        let mut all = Vec::new();
        for kubectl in found {
            let text = kubectl.run(["version", "--client", "-o", "json"]).await?;
            let version: serde_json::Value = serde_json::from_str(&text)?;
            let name = version["clientVersion"]["gitVersion"]
                .as_str()
                .unwrap_or("unknown")
                .to_owned();
            all.push((name.replace('+', "-").to_lowercase(), kubectl));
        }
        Ok(Self(all))
    }

    /// Versions and programs.
    pub fn all(self) -> Vec<(String, Kubectl)> {
        self.0
    }
}

fn old_kubectl() -> anyhow::Result<PathBuf> {
    use localcluster::assets::{Assets, Binary, Places};
    let assets = Assets::ensure(&[Binary::OldKubectl], &Places::from_env()?)?;
    Ok(assets.path(Binary::OldKubectl)?.to_owned())
}

fn machine_kubectl() -> Option<PathBuf> {
    ["/usr/bin/kubectl", "/usr/local/bin/kubectl"]
        .iter()
        .map(PathBuf::from)
        .find(|p| p.is_file())
}
