//! A shell in a container, over `pods/exec` (KEP-4006).

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::Address;
use crate::streams::{resolve::Container, wire::Stdio};

/// Runs the shell that the catalog names (`$0`), else bash, else sh. The name is an argument and
/// never part of the script.
const SCRIPT: &str = "export TERM=\"${TERM:-xterm-256color}\"; \
    [ \"$0\" != sh ] && command -v \"$0\" >/dev/null 2>&1 && exec \"$0\"; \
    command -v bash >/dev/null 2>&1 && exec bash; exec sh";

pub(super) fn shell(
    namespace: &str,
    container: &Container,
    shell: Option<&str>,
    stdio: Stdio,
) -> Address {
    let command = ["/bin/sh", "-c", SCRIPT, shell.unwrap_or("sh")];
    let command: String = command
        .iter()
        .map(|word| format!("&command={}", utf8_percent_encode(word, NON_ALPHANUMERIC)))
        .collect();
    let Container { pod, name, .. } = container;
    // A terminal has one output. Without one, only v5 can say that the input has ended.
    let (streams, subprotocols) = match stdio {
        Stdio::Terminal => ("tty=true", "v5.channel.k8s.io, v4.channel.k8s.io"),
        Stdio::Pipes => ("stderr=true", "v5.channel.k8s.io"),
    };
    Address {
        uri: format!(
            "/api/v1/namespaces/{namespace}/pods/{pod}/exec?container={name}&stdin=true&stdout=true&{streams}{command}"
        ),
        subprotocols,
        what: "shell in the container",
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn container() -> Container {
        Container {
            pod: "demo-0".into(),
            pod_uid: "u".into(),
            name: "main".into(),
        }
    }

    #[test]
    fn a_shell_with_odd_characters_stays_one_argument() {
        let uri = shell("t1", &container(), Some("/bin/a b&c"), Stdio::Terminal).uri;
        assert!(
            uri.starts_with("/api/v1/namespaces/t1/pods/demo-0/exec?container=main&stdin=true")
        );
        assert!(uri.ends_with("&command=%2Fbin%2Fa%20b%26c"));
        assert!(uri.parse::<http::Uri>().is_ok());
    }

    #[test]
    fn without_a_terminal_errors_are_apart_and_the_end_of_input_can_be_said() {
        let terminal = shell("t1", &container(), None, Stdio::Terminal);
        assert!(terminal.uri.contains("&tty=true") && !terminal.uri.contains("stderr"));
        let pipes = shell("t1", &container(), None, Stdio::Pipes);
        assert!(pipes.uri.contains("&stderr=true") && !pipes.uri.contains("tty"));
        assert_eq!(pipes.subprotocols, "v5.channel.k8s.io");
    }

    /// What the script runs, told by a shell that prints its own name.
    fn runs(wanted: &str, stdin: &str) -> String {
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, wanted])
            .env("PS1", "")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        use std::io::Write as _;
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stdin.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    #[test]
    fn the_script_prefers_the_named_shell_then_bash() {
        assert_eq!(runs("cat", "from cat"), "from cat");
        assert_eq!(runs("no-such-shell", "echo ${BASH_VERSION:+bash}"), "bash");
        assert_eq!(runs("$(touch /tmp/never); sh", "echo ok"), "ok");
    }
}
