//! `kubectl workspace ssh`, `ssh-config`, `known-hosts` and `cp`: OpenSSH does what it is good at, this program carries
//! the bytes and knows the keys. Entry points: [`ssh`], [`ssh_config`], [`print_known_hosts`], [`cp`].

mod alias;
mod config;
mod copy;
mod options;
mod own;
mod pins;
mod quote;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cli::{self, ClusterFlags, TOKEN_VARIABLE};
use crate::cluster::Cluster;
use crate::target::{Target, user_name};
use crate::upgrade::Patience;
use crate::{forward, say};
use options::{Route, Way};

pub use config::ssh_config;
pub use copy::cp;

/// The port of the tunnel; others are port forwards.
const SSH_PORT: u16 = 22;
/// ssh's own failures have it, and so have ours.
const FAILED: u8 = 255;

/// Becomes OpenSSH's ssh, or carries its bytes.
pub async fn ssh(flags: &ClusterFlags, options: cli::Ssh) -> anyhow::Result<u8> {
    let result = if options.stdio {
        stdio(flags, options).await
    } else {
        replace(flags, options).await.map(|never| match never {})
    };
    result.or_else(|error| {
        say::note(&format!("error: {error:#}"));
        Ok(FAILED)
    })
}

/// As a ProxyCommand.
async fn stdio(flags: &ClusterFlags, options: cli::Ssh) -> anyhow::Result<u8> {
    let port = match options.command.as_slice() {
        [] => SSH_PORT,
        [port] => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => bail!("{port:?} is no port"),
        },
        _ => bail!("--stdio takes a port and nothing else"),
    };
    let cluster = Cluster::connect(flags)?;
    let target = cluster.target(options.workspace.workspace)?;
    let (subresource, path) = if port == SSH_PORT {
        let accept = if options.accept_new_host_key {
            "&acceptNewHostKey=true"
        } else {
            ""
        };
        ("ssh", format!("{}/ssh?mode=tunnel{accept}", target.path()))
    } else {
        let path = format!("{}/portforward/{port}", target.path());
        ("portforward", path)
    };
    let tunnel = forward::Tunnel {
        target: &target,
        subresource,
        path: &path,
    };
    forward::stdio(&cluster, tunnel, Patience::of(options.timeout)).await
}

enum Never {}

/// Only comes back when it fails.
async fn replace(flags: &ClusterFlags, options: cli::Ssh) -> anyhow::Result<Never> {
    let reached = reach(flags, options.workspace.clone(), &options).await?;
    let mut args: Vec<OsString> = reached.args;
    args.extend(pass_on(&options)?);
    let user = options
        .login
        .as_deref()
        .map(user_name)
        .transpose()?
        .or(reached.user);
    if let Some(user) = user {
        args.extend(["-l".into(), user.into()]);
    }
    args.extend(["--".into(), reached.alias.into()]);
    args.extend(options.command.into_iter().map(OsString::from));
    become_program("ssh", args, flags)
}

/// A workspace that exists, and the arguments that lead to it.
struct Reached {
    alias: String,
    user: Option<String>,
    args: Vec<OsString>,
}

async fn reach(
    flags: &ClusterFlags,
    login: crate::target::Login,
    options: &cli::Ssh,
) -> anyhow::Result<Reached> {
    let cluster = Cluster::connect(flags)?;
    let target = cluster.target(login.workspace)?;
    let workspace = cluster.get(&target).await?;
    let way = match &options.jump {
        Some(_) => Way::Jump {
            address: jump_address(&workspace, &target, options)?,
        },
        None => Way::Tunnel {
            timeout: options.timeout,
            accept_new_host_key: options.accept_new_host_key,
        },
    };
    let alias = alias_of(&cluster, &target);
    let args = route_args(flags, &cluster, &target, &alias, way)?;
    let user = login
        .user
        .or_else(|| pins::user(&workspace).map(str::to_owned));
    Ok(Reached { alias, user, args })
}

fn jump_address(workspace: &Value, target: &Target, options: &cli::Ssh) -> anyhow::Result<String> {
    if options.accept_new_host_key {
        bail!("--accept-new-host-key goes through the API, not over -J");
    }
    let address = pins::address(workspace);
    let address =
        address.with_context(|| format!("{} has no address yet: is it running?", target.name))?;
    Ok(address.to_owned())
}

fn alias_of(cluster: &Cluster, target: &Target) -> String {
    let (server, authorities) = cluster.identity();
    alias::host_key_alias(target, &server, authorities)
}

fn route_args(
    flags: &ClusterFlags,
    cluster: &Cluster,
    target: &Target,
    alias: &str,
    way: Way,
) -> anyhow::Result<Vec<OsString>> {
    let route = Route { target, alias, way };
    let kubeconfig = std::env::var("KUBECONFIG").ok();
    let options = route.options(
        &own::path()?,
        flags,
        cluster.context(),
        kubeconfig.as_deref(),
    )?;
    let args = options
        .into_iter()
        .flat_map(|(key, value)| ["-o".into(), OsString::from(format!("{key}={value}"))]);
    Ok(args.collect())
}

/// The options that ssh has by the same letters.
fn pass_on(options: &cli::Ssh) -> anyhow::Result<Vec<OsString>> {
    let cli::Ssh {
        workspace: _,
        command: _,
        stdio: _,
        accept_new_host_key: _,
        timeout: _,
        login: _,
        shared,
        port,
        local,
        remote,
        dynamic,
        jump,
        agent,
        no_command,
        terminal,
        no_terminal,
    } = options;
    let mut args = shared_args(shared);
    let mut add = |flag: &str, values: &[String]| {
        for value in values {
            args.extend([flag.into(), OsString::from(value)]);
        }
    };
    add(
        "-p",
        &port.iter().map(ToString::to_string).collect::<Vec<_>>(),
    );
    add("-L", local);
    add("-R", remote);
    add("-D", dynamic);
    add("-J", jump.as_slice());
    let switches = [("-A", *agent), ("-N", *no_command), ("-T", *no_terminal)];
    args.extend(
        switches
            .iter()
            .filter(|(_, on)| *on)
            .map(|(flag, _)| OsString::from(flag)),
    );
    args.extend(std::iter::repeat_n(
        OsString::from("-t"),
        usize::from(*terminal),
    ));
    Ok(args)
}

fn shared_args(shared: &cli::Shared) -> Vec<OsString> {
    let cli::Shared {
        identity,
        option,
        verbose,
    } = shared;
    let mut args = Vec::new();
    for file in identity {
        args.extend(["-i".into(), file.into()]);
    }
    for option in option {
        args.extend(["-o".into(), OsString::from(option)]);
    }
    args.extend(std::iter::repeat_n(
        OsString::from("-v"),
        usize::from(*verbose),
    ));
    args
}

/// Signals, terminal and exit status are the program's from here on.
fn become_program(name: &str, args: Vec<OsString>, flags: &ClusterFlags) -> anyhow::Result<Never> {
    let program = crate::which::find(Path::new(name)).with_context(|| {
        format!("OpenSSH's {name} is not on PATH: install it (Debian: openssh-client)")
    })?;
    let mut command = std::process::Command::new(&program);
    command.args(args);
    if let Some(token) = &flags.token {
        command.env(TOKEN_VARIABLE, token);
    }
    Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
}

/// `known-hosts`: for KnownHostsCommand.
pub async fn print_known_hosts(
    flags: &ClusterFlags,
    options: cli::SshConfig,
) -> anyhow::Result<u8> {
    let cluster = Cluster::connect(flags)?;
    let target = cluster.target(options.workspace.workspace)?;
    let workspace = cluster.get(&target).await?;
    let lines = pins::known_hosts(&workspace, &alias_of(&cluster, &target));
    if lines.is_empty() {
        bail!(
            "{} has no pinned host key yet: the server pins it at the first connection (`{}`)",
            target.name,
            target.command("ssh")
        );
    }
    say::out(&lines.join("\n"))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn the_options_of_ssh_arrive_as_they_were_typed() {
        let line = "x ssh demo -p 2222 -i key -L 1:h:2 -L 3:h:4 -R 5:h:6 -D 7 -J bastion -A -N -tt -vv -o User=x -- ls -l";
        let cli = cli::Cli::try_parse_from(line.split(' ')).unwrap();
        let cli::Command::Ssh(options) = cli.command else {
            panic!("ssh")
        };
        let args = pass_on(&options).unwrap();
        let args: Vec<_> = args.iter().map(|a| a.to_str().unwrap()).collect();
        assert_eq!(
            args.join(" "),
            "-i key -o User=x -v -v -p 2222 -L 1:h:2 -L 3:h:4 -R 5:h:6 -D 7 -J bastion -A -N -t -t"
        );
        assert_eq!(options.command, ["ls", "-l"]);
    }
}
