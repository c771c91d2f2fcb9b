//! `/version`, in the shape of `k8s.io/apimachinery/pkg/version.Info`.

use serde_json::{Value, json};

/// What the server says about its build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionInfo {
    /// `0.1.0`.
    pub version: String,
    /// Commit, when the build knows it.
    pub commit: String,
    /// Date, when the build knows it.
    pub date: String,
}

impl VersionInfo {
    pub(super) fn to_json(&self) -> Value {
        let mut numbers = self.version.trim_start_matches('v').split('.');
        let mut number = || numbers.next().unwrap_or_default().to_owned();
        json!({
            "major": number(), "minor": number(),
            "gitVersion": format!("v{}", self.version.trim_start_matches('v')),
            "gitCommit": self.commit, "gitTreeState": "", "buildDate": self.date,
            // Clients of kube-apiserver expect these two; Go has no part in this server.
            "goVersion": "", "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        })
    }
}
