//! A cluster that exists: which one hack/up was told of, and how our server leaves it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::server::{APISERVICE, NAME, NAMESPACE};
use crate::harness::Kubectl;
use crate::state::State;

/// What is remembered of it in the state directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// Its kubeconfig, as an absolute path.
    pub kubeconfig: PathBuf,
}

impl Existing {
    /// The one that hack/up was told of last, if its state directory has no cluster of its own.
    pub fn load(state: &State) -> anyhow::Result<Option<Self>> {
        let path = state.existing();
        match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .with_context(|| format!("cannot parse {}", path.display())),
        }
    }

    /// Remembers it.
    pub fn store(&self, state: &State) -> anyhow::Result<()> {
        let path = state.existing();
        fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Forgets it: the state directory gets a cluster of its own.
    pub fn forget(state: &State) -> anyhow::Result<()> {
        let path = state.existing();
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// kubectl on it, with the user's own home: kubeconfigs may name programs that look for logins there.
    pub fn kubectl(&self, state: &State) -> Kubectl {
        let kubectl = Kubectl::new(
            state.bin().join("kubectl"),
            &self.kubeconfig,
            state.kubectl_cache(),
        );
        match std::env::var_os("HOME") {
            Some(home) => kubectl.with_home(Path::new(&home)),
            None => kubectl,
        }
    }

    /// Takes the server out of it. Refused while there are workspaces: only the server ends what they started.
    pub async fn uninstall(&self, state: &State, top: &Path) -> anyhow::Result<()> {
        let kubectl = self.kubectl(state);
        let workspaces = ["get", "workspaces.kubeworkspaces.io", "-A", "-o", "name"];
        let left = kubectl.run(workspaces).await.context(
            "cannot ask which workspaces there are; if the server is broken for good, remove it by hand (docs/local-cluster.md)",
        )?;
        anyhow::ensure!(
            left.is_empty(),
            "{} workspaces are still there: `kubectl delete workspaces --all -A` ends them, then run this again",
            left.lines().count()
        );
        // In this order: a server that runs registers itself again, and a registered API that nobody serves keeps
        // namespaces from being deleted.
        let deployment = format!("deployment/{NAME}");
        let own = [
            "-n",
            NAMESPACE,
            "delete",
            "--ignore-not-found",
            "--wait",
            "--cascade=foreground",
        ];
        kubectl.run(own.into_iter().chain([&*deployment])).await?;
        kubectl
            .run(["delete", "--ignore-not-found", "apiservice", APISERVICE])
            .await?;
        let base = top.join("deploy/base");
        let all = ["delete", "--ignore-not-found", "--wait", "-k"].map(AsRef::as_ref);
        kubectl
            .run(all.into_iter().chain([base.as_os_str()]))
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_remembered_until_it_is_forgotten() {
        let temp = tempfile::tempdir().unwrap();
        let state = State::at(temp.path());
        assert_eq!(Existing::load(&state).unwrap(), None);
        let existing = Existing {
            kubeconfig: "/k".into(),
        };
        existing.store(&state).unwrap();
        assert_eq!(Existing::load(&state).unwrap(), Some(existing));
        Existing::forget(&state).unwrap();
        Existing::forget(&state).unwrap();
        assert_eq!(Existing::load(&state).unwrap(), None);
        fs::write(state.existing(), "{").unwrap();
        assert!(Existing::load(&state).is_err());
    }
}
