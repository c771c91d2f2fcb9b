//! This program as it is called again by ssh: its path, kubeconfig, context and flags. Never a token: it would stand in
//! a file or in the list of processes; it goes on in the environment. Entry points: [`path`], [`words`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::quote::Word;
use crate::cli::ClusterFlags;

/// Why this program cannot be called again.
#[derive(Debug, thiserror::Error)]
pub(super) enum OwnError {
    /// The system does not say.
    #[error("cannot find this program's own file: {0}")]
    Program(std::io::Error),
    /// Names that ssh_config cannot hold.
    #[error("{0:?} is not UTF-8 and cannot be given to ssh")]
    Text(PathBuf),
    /// Relative paths need a directory.
    #[error("cannot find the current directory: {0}")]
    Directory(std::io::Error),
}

/// Where this program was found: a link that a package manager keeps is better than what it leads to today.
pub(super) fn path() -> Result<PathBuf, OwnError> {
    let current = std::env::current_exe().map_err(OwnError::Program)?;
    let called = std::env::args_os()
        .next()
        .map(PathBuf::from)
        .unwrap_or_default();
    let found = if called.components().count() > 1 {
        std::path::absolute(&called).ok()
    } else {
        crate::which::find(&called)
    };
    Ok(found
        .filter(|path| is_same(path, &current))
        .unwrap_or(current))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().ok();
    let is_plugin = one
        .file_name()
        .is_some_and(|name| name == "kubectl-workspace");
    is_plugin && whole(one).is_some() && whole(one) == whole(other)
}

/// What is the same for every call: `env KUBECONFIG=… PROGRAM` and its flags.
pub(super) fn words(
    program: &Path,
    flags: &ClusterFlags,
    context: Option<&str>,
    kubeconfig: Option<&str>,
) -> Result<(Vec<Word>, Vec<Word>), OwnError> {
    let mut call = vec![Word::from("/usr/bin/env")];
    if let (None, Some(list)) = (
        &flags.kubeconfig,
        kubeconfig.filter(|list| !list.is_empty()),
    ) {
        call.push(format!("KUBECONFIG={}", absolute_list(list)?).into());
    }
    call.push(text(program)?.into());
    Ok((call, flag_words(flags, context)?))
}

fn absolute_list(list: &str) -> Result<String, OwnError> {
    let files = std::env::split_paths(list).filter(|file| !file.as_os_str().is_empty());
    let files = files
        .map(|file| absolute(&file))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(files.join(":"))
}

fn flag_words(flags: &ClusterFlags, context: Option<&str>) -> Result<Vec<Word>, OwnError> {
    let ClusterFlags {
        kubeconfig,
        context: _,
        cluster,
        user,
        namespace: _,
        impersonate,
        impersonate_groups,
        impersonate_uid,
        token: _,
        server,
        certificate_authority,
        client_certificate,
        client_key,
        insecure_skip_tls_verify,
        tls_server_name,
        request_timeout,
    } = flags;
    let mut words = Vec::new();
    let mut add = |flag: &str, value: Option<&str>| {
        if let Some(value) = value {
            // one word, so that a value that begins with a dash stays a value
            words.push(Word::Text(format!("{flag}={value}")));
        }
    };
    let file = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    add("--kubeconfig", file(kubeconfig)?.as_deref());
    add("--context", context);
    add("--cluster", cluster.as_deref());
    add("--user", user.as_deref());
    add("--as", impersonate.as_deref());
    for group in impersonate_groups {
        add("--as-group", Some(group));
    }
    add("--as-uid", impersonate_uid.as_deref());
    add("--server", server.as_deref());
    add(
        "--certificate-authority",
        file(certificate_authority)?.as_deref(),
    );
    add("--client-certificate", file(client_certificate)?.as_deref());
    add("--client-key", file(client_key)?.as_deref());
    add("--tls-server-name", tls_server_name.as_deref());
    add(
        "--request-timeout",
        request_timeout.as_ref().map(time).as_deref(),
    );
    if *insecure_skip_tls_verify {
        words.push("--insecure-skip-tls-verify".into());
    }
    Ok(words)
}

fn time(time: &Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn absolute(path: &Path) -> Result<String, OwnError> {
    let path = std::path::absolute(path).map_err(OwnError::Directory)?;
    text(&path)
}

fn text(path: &Path) -> Result<String, OwnError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| OwnError::Text(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(
        flags: &ClusterFlags,
        context: Option<&str>,
        kubeconfig: Option<&str>,
    ) -> Vec<String> {
        let (call, flags) = words(
            Path::new("/bin/kubectl-workspace"),
            flags,
            context,
            kubeconfig,
        )
        .unwrap();
        let all = call.into_iter().chain(flags);
        all.map(|word| match word {
            Word::Text(text) => text,
            Word::Token(token) => panic!("{token}"),
        })
        .collect()
    }

    #[test]
    fn a_later_call_finds_the_same_cluster_and_never_sees_the_token_in_its_arguments() {
        let flags = ClusterFlags {
            kubeconfig: Some("/k/it's mine".into()),
            impersonate: Some("ann".into()),
            impersonate_groups: vec!["g".into(), "-h".into()],
            token: Some("SECRET".into()),
            request_timeout: Some(Duration::from_secs(90)),
            insecure_skip_tls_verify: true,
            ..ClusterFlags::default()
        };
        let expected = [
            "/usr/bin/env",
            "/bin/kubectl-workspace",
            "--kubeconfig=/k/it's mine",
            "--context=prod",
            "--as=ann",
            "--as-group=g",
            "--as-group=-h",
            "--request-timeout=90000ms",
            "--insecure-skip-tls-verify",
        ];
        assert_eq!(called(&flags, Some("prod"), Some("/ignored")), expected);
    }

    #[test]
    fn several_kubeconfigs_stay_several_and_become_absolute() {
        let flags = ClusterFlags::default();
        let here = std::env::current_dir().unwrap();
        let expected = format!("KUBECONFIG=/a:{}", here.join("b").display());
        assert_eq!(
            called(&flags, None, Some("/a::b")),
            ["/usr/bin/env", &expected, "/bin/kubectl-workspace"]
        );
        assert_eq!(called(&flags, None, Some("")).len(), 2);
    }
}
