//! The options with which ssh and scp reach a workspace: through this program, checked against the pinned keys and
//! nothing else. Entry point: [`Route::options`].

use std::path::Path;
use std::time::Duration;

use super::own::{self, OwnError};
use super::quote::{QuoteError, Word, known_hosts_command, proxy_command};
use crate::cli::ClusterFlags;
use crate::target::Target;

/// Why ssh cannot be told how to reach the workspace.
#[derive(Debug, thiserror::Error)]
pub(super) enum OptionsError {
    /// This program cannot be called again.
    #[error(transparent)]
    Own(#[from] OwnError),
    /// An argument cannot be written down.
    #[error(transparent)]
    Quote(#[from] QuoteError),
}

/// How the bytes travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through the Kubernetes API, by a tunnel that this program makes.
    Tunnel {
        /// How long to wait, where the user has said so.
        timeout: Option<Duration>,
        /// Whether the guest's new key is to be accepted.
        accept_new_host_key: bool,
    },
    /// To the guest's address, over a host of the user's.
    Jump {
        /// The address.
        address: String,
    },
}

/// A workspace as ssh is to reach it.
#[derive(Debug)]
pub(super) struct Route<'a> {
    /// The workspace.
    pub(super) target: &'a Target,
    /// The name of its keys.
    pub(super) alias: &'a str,
    /// How the bytes travel.
    pub(super) way: Way,
}

impl Route<'_> {
    /// `KEY` and `VALUE` of each option. Checking is never off, and the user's known_hosts is neither read nor written.
    pub(super) fn options(
        &self,
        program: &Path,
        flags: &ClusterFlags,
        context: Option<&str>,
        kubeconfig: Option<&str>,
    ) -> Result<Vec<(&'static str, String)>, OptionsError> {
        let (call, flag_words) = own::words(program, flags, context, kubeconfig)?;
        let command = |name: &str, options: Vec<Word>, last: Option<Word>| -> Vec<Word> {
            let mut words = call.clone();
            words.push(name.into());
            words.extend(options);
            words.extend(flag_words.iter().cloned());
            words.push(format!("--namespace={}", self.target.namespace).into());
            words.push(self.target.name.as_str().into());
            words.extend(last);
            words
        };
        let mut options = match &self.way {
            Way::Tunnel {
                timeout,
                accept_new_host_key,
            } => {
                let mut words = vec![Word::from("--stdio")];
                words.extend(
                    timeout.map(|timeout| Word::from(format!("--timeout={}s", timeout.as_secs()))),
                );
                if *accept_new_host_key {
                    words.push("--accept-new-host-key".into());
                }
                let words = command("ssh", words, Some(Word::Token("%p")));
                vec![
                    ("ProxyCommand", proxy_command(&words)?),
                    ("ProxyUseFdpass", "no".into()),
                ]
            }
            Way::Jump { address } => vec![("HostName", address.clone())],
        };
        let known_hosts = known_hosts_command(&command("known-hosts", Vec::new(), None))?;
        options.extend([
            ("HostKeyAlias", self.alias.to_owned()),
            ("KnownHostsCommand", known_hosts),
            ("UserKnownHostsFile", "/dev/null".into()),
            ("GlobalKnownHostsFile", "/dev/null".into()),
            ("StrictHostKeyChecking", "yes".into()),
            ("CheckHostIP", "no".into()),
            ("UpdateHostKeys", "no".into()),
            ("CanonicalizeHostname", "no".into()),
        ]);
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(way: Way) -> Vec<(&'static str, String)> {
        let target = Target {
            name: "rhel9.arm64".into(),
            namespace: "t1".into(),
        };
        let route = Route {
            target: &target,
            alias: "rhel9.arm64.t1.abc",
            way,
        };
        let program = Path::new("/opt/kube tools/kubectl-workspace");
        let flags = ClusterFlags::default();
        route
            .options(program, &flags, Some("100% prod"), None)
            .unwrap()
    }

    fn value(options: &[(&'static str, String)], key: &str) -> Option<String> {
        options
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, v)| v.clone())
    }

    #[test]
    fn the_tunnel_names_program_context_namespace_and_workspace() {
        let options = options(Way::Tunnel {
            timeout: Some(Duration::from_secs(60)),
            accept_new_host_key: false,
        });
        assert_eq!(
            value(&options, "ProxyCommand").unwrap(),
            "/usr/bin/env '/opt/kube tools/kubectl-workspace' ssh --stdio --timeout=60s '--context=100%% prod' --namespace=t1 rhel9.arm64 %p"
        );
        assert_eq!(
            value(&options, "KnownHostsCommand").unwrap(),
            "/usr/bin/env \"/opt/kube tools/kubectl-workspace\" known-hosts \"--context=100%% prod\" --namespace=t1 rhel9.arm64"
        );
    }

    #[test]
    fn p_12_checking_is_never_off_and_known_hosts_is_left_alone() {
        let tunnel = Way::Tunnel {
            timeout: None,
            accept_new_host_key: true,
        };
        let jump = Way::Jump {
            address: "10.0.0.9".into(),
        };
        for way in [tunnel, jump] {
            let options = options(way.clone());
            let expected = [
                ("StrictHostKeyChecking", "yes"),
                ("UserKnownHostsFile", "/dev/null"),
                ("GlobalKnownHostsFile", "/dev/null"),
                ("UpdateHostKeys", "no"),
                ("HostKeyAlias", "rhel9.arm64.t1.abc"),
            ];
            for (key, wanted) in expected {
                assert_eq!(value(&options, key).as_deref(), Some(wanted), "{way:?}");
            }
        }
    }

    #[test]
    fn over_a_jump_host_the_guests_address_is_dialled_and_the_pin_still_holds() {
        let options = options(Way::Jump {
            address: "fd00::9".into(),
        });
        assert_eq!(value(&options, "HostName").as_deref(), Some("fd00::9"));
        assert_eq!(value(&options, "ProxyCommand"), None);
        assert!(value(&options, "KnownHostsCommand").is_some());
    }
}
