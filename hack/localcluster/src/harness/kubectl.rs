//! Running kubectl.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A kubectl with the kubeconfig it uses.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    home: PathBuf,
}

/// Why a kubectl command failed.
#[derive(Debug, thiserror::Error)]
pub enum KubectlError {
    /// It could not be run.
    #[error("cannot run {program}: {source}", program = program.display())]
    Start {
        /// The file.
        program: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It failed.
    #[error("kubectl {args} failed ({status}):\n{stderr}{stdout}")]
    Failed {
        /// Its arguments.
        args: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// What it wrote.
        stdout: String,
        /// What it complained about.
        stderr: String,
    },
}

impl Kubectl {
    /// `program` with `kubeconfig`; discovery is cached under `cache`, never in the user's home.
    pub fn new(
        program: impl Into<PathBuf>,
        kubeconfig: impl Into<PathBuf>,
        cache: impl Into<PathBuf>,
    ) -> Self {
        let cache = cache.into();
        Self {
            program: program.into(),
            kubeconfig: kubeconfig.into(),
            home: cache.clone(),
            cache,
        }
    }

    /// The same kubectl with another home than its cache.
    #[must_use]
    pub fn with_home(&self, home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            ..self.clone()
        }
    }

    /// The same kubectl as somebody else.
    #[must_use]
    pub fn with_kubeconfig(&self, kubeconfig: &Path) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            ..self.clone()
        }
    }

    /// Another kubectl as the same user.
    #[must_use]
    pub fn with_program(&self, program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            ..self.clone()
        }
    }

    /// The command, to be given input or run as the test likes. It is killed when its child is dropped.
    pub fn command<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.program);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache)
            .env("HOME", &self.home)
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs it, and gives what it wrote if it succeeded.
    pub async fn run<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, KubectlError> {
        let mut command = self.command(args);
        let output = command
            .output()
            .await
            .map_err(|source| KubectlError::Start {
                program: self.program.clone(),
                source,
            })?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        if output.status.success() {
            return Ok(stdout);
        }
        let args: Vec<_> = command
            .as_std()
            .get_args()
            .map(OsStr::to_string_lossy)
            .collect();
        Err(KubectlError::Failed {
            args: args.join(" "),
            status: output.status,
            stdout,
            stderr,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_quotes_arguments_and_output() {
        let kubectl = Kubectl::new("/bin/sh", "/k", "/c");
        let ok = kubectl.run(["-c", "echo $KUBECONFIG"]).await.unwrap();
        assert_eq!(ok, "/k\n");
        let message = kubectl
            .run(["-c", "echo denied >&2; exit 4"])
            .await
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("exit status: 4") && message.contains("denied"),
            "{message}"
        );
        let none = Kubectl::new("/does/not/exist", "/k", "/c")
            .run(["get"])
            .await
            .unwrap_err();
        assert!(matches!(none, KubectlError::Start { .. }));
    }
}
