//! `kubectl workspace cp`: OpenSSH's scp between here and one workspace. Entry point: [`cp`].

use std::ffi::OsString;

use anyhow::bail;

use super::options::Way;
use super::{FAILED, Never, alias_of, become_program, pins, route_args, shared_args};
use crate::cli::{self, ClusterFlags};
use crate::cluster::Cluster;
use crate::say;
use crate::target::{Login, TargetError};

/// Becomes scp.
pub async fn cp(flags: &ClusterFlags, options: cli::Cp) -> anyhow::Result<u8> {
    let never = replace(flags, options).await.map(|never| match never {});
    never.or_else(|error: anyhow::Error| {
        say::note(&format!("error: {error:#}"));
        Ok(FAILED)
    })
}

async fn replace(flags: &ClusterFlags, options: cli::Cp) -> anyhow::Result<Never> {
    let cli::Cp {
        files,
        recursive,
        preserve,
        quiet,
        old_protocol,
        shared,
    } = options;
    let files = files
        .iter()
        .map(|text| parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    let login = direction(&files)?;
    let cluster = Cluster::connect(flags)?;
    let target = cluster.target(login.workspace.clone())?;
    let workspace = cluster.get(&target).await?;
    let alias = alias_of(&cluster, &target);
    let way = Way::Tunnel {
        timeout: None,
        accept_new_host_key: false,
    };
    let mut args = route_args(flags, &cluster, &target, &alias, way)?;
    args.extend(shared_args(&shared));
    let switches = [
        ("-r", recursive),
        ("-p", preserve),
        ("-q", quiet),
        ("-O", old_protocol),
    ];
    args.extend(
        switches
            .iter()
            .filter(|(_, on)| *on)
            .map(|(flag, _)| OsString::from(flag)),
    );
    args.push("--".into());
    let user = login
        .user
        .clone()
        .or_else(|| pins::user(&workspace).map(str::to_owned));
    args.extend(
        files
            .iter()
            .map(|file| argument(file, user.as_deref(), &alias)),
    );
    become_program("scp", args, flags)
}

/// An argument of cp.
#[derive(Clone, Debug, PartialEq, Eq)]
enum File {
    Here(String),
    There { login: Login, path: String },
}

/// scp's rule: a colon before any slash makes it remote. Here a name may be followed by `/NAMESPACE`, so what stands
/// before the colon must be a workspace, and `./` or `/` makes it local.
fn parse(text: &str) -> Result<File, TargetError> {
    let here = text.starts_with(['.', '/']) || !text.contains(':');
    let (Some((workspace, path)), false) = (text.split_once(':'), here) else {
        return Ok(File::Here(text.to_owned()));
    };
    Ok(File::There {
        login: workspace.parse()?,
        path: path.to_owned(),
    })
}

/// The one workspace of the copy.
fn direction(files: &[File]) -> anyhow::Result<&Login> {
    let Some((last, first)) = files.split_last() else {
        bail!("give what to copy, and where to");
    };
    let logins = |files: &'_ [File]| -> Vec<Login> {
        let there = files.iter().filter_map(|file| match file {
            File::Here(_) => None,
            File::There { login, .. } => Some(login.clone()),
        });
        there.collect()
    };
    let sources = logins(first);
    match last {
        File::There { login, .. } if sources.is_empty() => Ok(login),
        File::There { .. } => {
            bail!(
                "a copy from workspace to workspace passes through here: copy to a local file first"
            )
        }
        File::Here(_) if sources.is_empty() => {
            bail!(
                "none of these is a workspace: write [USER@]NAME[/NAMESPACE]:PATH for the one that is"
            )
        }
        File::Here(_)
            if sources.len() < first.len() || sources.iter().any(|l| *l != sources[0]) =>
        {
            bail!("all sources must be of one workspace")
        }
        File::Here(_) => first
            .iter()
            .find_map(|file| match file {
                File::There { login, .. } => Some(login),
                File::Here(_) => None,
            })
            .ok_or_else(|| anyhow::anyhow!("none of these is a workspace")),
    }
}

/// As scp reads it: a local name with a colon needs a directory before it.
fn argument(file: &File, user: Option<&str>, alias: &str) -> OsString {
    match file {
        File::Here(path) => path.into(),
        File::There { path, .. } => match user {
            Some(user) => format!("{user}@{alias}:{path}").into(),
            None => format!("{alias}:{path}").into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> (Option<String>, String) {
        match parse(text).unwrap() {
            File::There { login, path } => {
                let target = login.workspace.resolve(None, "home").unwrap();
                (login.user, format!("{target} {path}"))
            }
            File::Here(path) => panic!("{path} is local"),
        }
    }

    #[test]
    fn p_01_a_colon_parts_workspace_and_path_and_dots_do_not() {
        assert_eq!(remote("demo:/tmp/x"), (None, "demo/home /tmp/x".into()));
        assert_eq!(
            remote("dev@rhel9.arm64:/tmp/"),
            (Some("dev".into()), "rhel9.arm64/home /tmp/".into())
        );
        assert_eq!(remote("demo/t1:a:b"), (None, "demo/t1 a:b".into()));
        assert_eq!(remote("demo:"), (None, "demo/home ".into()));
        for text in ["file", "./a:b", "/a:b", "../a:b", "dir/file"] {
            assert_eq!(parse(text), Ok(File::Here(text.into())), "{text}");
        }
        for text in ["-x:y", "A:b", ":x", "a/b/c:d"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_side_is_a_workspace() {
        let judged = |files: &[&str]| {
            let files: Vec<_> = files.iter().map(|f| parse(f).unwrap()).collect();
            direction(&files).map(|login| login.user.clone())
        };
        assert!(judged(&["a", "b", "demo:"]).is_ok());
        assert!(judged(&["demo:a", "demo:b", "dir"]).is_ok());
        assert_eq!(
            judged(&["ann@demo:a", "dir"]).unwrap().as_deref(),
            Some("ann")
        );
        for files in [
            &["a", "b"][..],
            &["demo:a", "demo:b"],
            &["demo:a", "x:b", "c"],
            &["a", "demo:b", "c"],
            &["demo:a", "ann@demo:b", "c"],
        ] {
            assert!(judged(files).is_err(), "{files:?}");
        }
    }

    #[test]
    fn scp_is_given_the_alias_and_the_user() {
        let there = parse("demo:/a b").unwrap();
        assert_eq!(
            argument(&there, Some("ann"), "demo.t1.x"),
            "ann@demo.t1.x:/a b"
        );
        assert_eq!(argument(&there, None, "demo.t1.x"), "demo.t1.x:/a b");
    }
}
