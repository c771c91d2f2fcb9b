//! `kubectl workspace ssh-config`: a stanza for `~/.ssh/config`. Entry point: [`ssh_config`].

use std::fmt::Write as _;

use anyhow::bail;

use super::options::{Route, Way};
use super::{alias, alias_of, own, pins};
use crate::cli::{self, ClusterFlags};
use crate::cluster::Cluster;
use crate::say;

/// Prints the stanza.
pub async fn ssh_config(flags: &ClusterFlags, options: cli::SshConfig) -> anyhow::Result<u8> {
    if flags.token.is_some() {
        bail!(
            "a token does not belong into a file: use a kubeconfig with the token in it, or with a credential plugin"
        );
    }
    let cluster = Cluster::connect(flags)?;
    let target = cluster.target(options.workspace.workspace)?;
    let workspace = cluster.get(&target).await?;
    let user = options.workspace.user;
    let user = user.or_else(|| pins::user(&workspace).map(str::to_owned));
    let alias = alias_of(&cluster, &target);
    let route = Route {
        target: &target,
        alias: &alias,
        way: Way::Tunnel {
            timeout: None,
            accept_new_host_key: false,
        },
    };
    let kubeconfig = std::env::var("KUBECONFIG").ok();
    let options = route.options(
        &own::path()?,
        flags,
        cluster.context(),
        kubeconfig.as_deref(),
    )?;
    let text = stanza(&alias::host_name(&target), user.as_deref(), &options);
    say::bytes(text.as_bytes())?;
    Ok(0)
}

fn stanza(host: &str, user: Option<&str>, options: &[(&str, String)]) -> String {
    let mut text = format!("Host {host}\n");
    if let Some(user) = user {
        // quoted as ssh reads it: an account may have a space in its name
        let user = user.replace('\\', r"\\").replace('"', "\\\"");
        let _ = writeln!(text, "  User \"{user}\"");
    }
    for (key, value) in options {
        let _ = writeln!(text, "  {key} {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stanza_is_for_one_host() {
        let options = [
            ("ProxyCommand", "x %p".to_owned()),
            ("HostKeyAlias", "a".to_owned()),
        ];
        assert_eq!(
            stanza("demo.t1.ws", Some("ann"), &options),
            "Host demo.t1.ws\n  User \"ann\"\n  ProxyCommand x %p\n  HostKeyAlias a\n"
        );
        assert!(!stanza("demo.t1.ws", None, &options).contains("User "));
    }
}
