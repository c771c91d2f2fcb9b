//! `kubectl workspace console`. Entry points: [`console`], [`boot`].

use std::io::IsTerminal;

use anyhow::Context as _;
use http::Method;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::actions::{Action, post};
use crate::channel::Exit;
use crate::cli;
use crate::close::{Way, explain};
use crate::cluster::Cluster;
use crate::relay::{Framing, Outcome, Relay};
use crate::say;
use crate::target::Target;
use crate::terminal::{self, Raw};
use crate::upgrade::{Patience, Stream, open_when_ready};

const SUBRESOURCE: &str = "console";
const KUBEVIRT: &str = "/apis/subresources.kubevirt.io/v1";
const PLAIN: &str = "plain.kubevirt.io";
const V5: &str = "v5.channel.k8s.io";
const V4: &str = "v4.channel.k8s.io";

/// Runs a session and answers with the exit code.
pub async fn console(cluster: &Cluster, options: cli::Console) -> anyhow::Result<u8> {
    let cli::Console {
        workspace,
        timeout,
        takeover,
        stty,
    } = options;
    let target = cluster.target(workspace)?;
    let kind = kind(cluster, &target).await?;
    let line = Line {
        serial: kind == "vm",
        terminal: std::io::stdin().is_terminal(),
    };
    let patience = Patience::of(timeout);
    let opened = open(cluster, &target, line, takeover, patience).await?;
    say::note(&line.greeting(&target.name));
    session(opened, &target, line.stty(stty, terminal::size())).await
}

/// `start --console`: the machine waits, the console is opened, and then it runs.
pub async fn boot(cluster: &Cluster, options: cli::Start) -> anyhow::Result<u8> {
    let cli::Action {
        workspace, timeout, ..
    } = options.action;
    let target = cluster.target(workspace)?;
    if kind(cluster, &target).await? != "vm" {
        anyhow::bail!(
            "{} is no vm and says nothing at boot: start it, then `{}`",
            target.name,
            target.command(SUBRESOURCE)
        );
    }
    post(cluster, &target, Action::Start { paused: true }, false).await?;
    let line = Line {
        serial: true,
        terminal: std::io::stdin().is_terminal(),
    };
    let patience = Patience::of(Some(timeout));
    let opened = open(cluster, &target, line, false, patience).await?;
    unpause(cluster, &target).await?;
    say::note(&line.greeting(&target.name));
    session(opened, &target, String::new()).await
}

/// KubeVirt's own action, with the user's own rights: a workspace has no other word for it.
async fn unpause(cluster: &Cluster, target: &Target) -> anyhow::Result<()> {
    let Target { name, namespace } = target;
    let path = format!("{KUBEVIRT}/namespaces/{namespace}/virtualmachineinstances/{name}/unpause");
    let options = json!({});
    let asked = cluster.bytes(Method::PUT, &path, "*/*", Some(&options));
    asked.await.with_context(|| {
        format!(
            "the machine of {name} waits paused and cannot be let go; who has update on virtualmachineinstances/unpause can do it with `virtctl unpause vmi {name} -n {namespace}`"
        )
    })?;
    Ok(())
}

async fn kind(cluster: &Cluster, target: &Target) -> anyhow::Result<String> {
    let workspace = cluster.get(target).await?;
    let kind = workspace["spec"]["type"].as_str();
    Ok(kind.unwrap_or("container").to_owned())
}

/// Both ends of a console.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// The workspace has a serial line, else a shell.
    serial: bool,
    /// A terminal is here.
    terminal: bool,
}

impl Line {
    fn protocols(self) -> &'static [&'static str] {
        if self.serial { &[PLAIN] } else { &[V5, V4] }
    }

    /// Without a terminal here a shell gets none there, as with `kubectl exec -i`: its errors come
    /// apart, and the end of our input is the end of its.
    fn path(self, target: &Target, takeover: bool) -> String {
        let wishes = [
            (takeover, "takeover=true"),
            (!self.terminal && !self.serial, "tty=false"),
        ];
        let wishes: Vec<_> = wishes.iter().filter(|(wanted, _)| *wanted).collect();
        let mut path = format!("{}/{SUBRESOURCE}", target.path());
        for (index, (_, wish)) in wishes.iter().enumerate() {
            path.push(if index == 0 { '?' } else { '&' });
            path.push_str(wish);
        }
        path
    }

    /// Without a terminal there is nobody to type the escape.
    fn greeting(self, name: &str) -> String {
        if self.terminal {
            format!("Connected to {name}. The escape sequence is Ctrl-]")
        } else {
            format!("Connected to {name}.")
        }
    }

    /// What is typed for the user before all else. A shell is told its size by the protocol.
    fn stty(self, wanted: bool, size: Option<(u16, u16)>) -> String {
        match size {
            Some((columns, rows)) if wanted && self.serial => {
                format!("stty rows {rows} cols {columns}\r")
            }
            _ => String::new(),
        }
    }
}

fn framing(protocol: &str) -> Framing {
    match protocol {
        V5 => Framing::Channels { half_close: true },
        V4 => Framing::Channels { half_close: false },
        _ => Framing::Raw,
    }
}

async fn open(
    cluster: &Cluster,
    target: &Target,
    line: Line,
    takeover: bool,
    patience: Patience,
) -> anyhow::Result<(Stream, Framing)> {
    let path = line.path(target, takeover);
    let (stream, protocol) = open_when_ready(cluster, &path, line.protocols(), patience).await?;
    Ok((stream, framing(&protocol)))
}

async fn session(
    (stream, framing): (Stream, Framing),
    target: &Target,
    first: String,
) -> anyhow::Result<u8> {
    let closed = terminal::stdout_closed();
    let raw = Raw::enter()?;
    let sizes = match &raw {
        Some(_) => sizes()?,
        None => mpsc::channel(1).1,
    };
    let relay = Relay {
        input: typed_first(first, tokio::io::stdin()),
        output: tokio::io::stdout(),
        errors: tokio::io::stderr(),
        framing,
        interactive: raw.is_some(),
        sizes,
    };
    let outcome = tokio::select! {
        outcome = relay.run(stream) => outcome,
        Ok(()) = closed => Outcome::OutputClosed,
    };
    let was_raw = raw.is_some();
    drop(raw);
    if was_raw {
        // the guest's cursor stands somewhere in a line
        say::note("");
    }
    Ok(finish(&outcome, target))
}

fn typed_first<R: AsyncRead + Unpin>(first: String, rest: R) -> impl AsyncRead + Unpin {
    std::io::Cursor::new(first.into_bytes()).chain(rest)
}

/// Says why, and gives the exit code.
fn finish(outcome: &Outcome, target: &Target) -> u8 {
    let (sentence, code) = verdict(outcome, target);
    if let Some(sentence) = sentence {
        say::note(&sentence);
    }
    code
}

fn verdict(outcome: &Outcome, target: &Target) -> (Option<String>, u8) {
    match outcome {
        Outcome::Escaped | Outcome::OutputClosed => (None, 0),
        Outcome::Exited(Exit::Code(code)) => (None, *code),
        Outcome::Exited(Exit::Failed(why)) => (
            Some(format!(
                "The shell in {} was not run to its end: {why}",
                target.name
            )),
            1,
        ),
        Outcome::Ended(ending) => {
            let command = target.command(SUBRESOURCE);
            let way = Way {
                target,
                subresource: SUBRESOURCE,
                command: &command,
            };
            let explanation = explain(ending, way);
            (Some(explanation.sentence), u8::from(!explanation.clean))
        }
    }
}

/// The size of the terminal now and at every change. A shell that puts us into the foreground again may have changed
/// its modes.
fn sizes() -> std::io::Result<mpsc::Receiver<(u16, u16)>> {
    let (changed, sizes) = mpsc::channel(1);
    let mut windows = signal(SignalKind::window_change())?;
    // SIGCONT has one number on Linux and another one elsewhere
    let mut continued = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
    tokio::spawn(async move {
        loop {
            if let Some(size) = terminal::size()
                && changed.send(size).await.is_err()
            {
                return;
            }
            let more = tokio::select! {
                more = windows.recv() => more,
                more = continued.recv() => {
                    terminal::raw_again();
                    more
                }
            };
            if more.is_none() {
                return;
            }
        }
    });
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use crate::close::Ending;

    use super::*;

    fn target() -> Target {
        Target {
            name: "demo".into(),
            namespace: "t1".into(),
        }
    }

    #[test]
    fn a_machine_has_a_serial_line_and_the_rest_a_shell() {
        let line = |serial| Line {
            serial,
            terminal: true,
        };
        assert_eq!(line(true).protocols(), [PLAIN]);
        assert_eq!(line(false).protocols(), [V5, V4]);
        assert_eq!(framing(PLAIN), Framing::Raw);
        assert_eq!(framing(V4), Framing::Channels { half_close: false });
    }

    #[test]
    fn a_shell_in_a_pipe_asks_for_no_terminal() {
        for (takeover, serial, terminal, expected) in [
            (false, false, true, "/console"),
            (true, false, true, "/console?takeover=true"),
            (false, false, false, "/console?tty=false"),
            (true, false, false, "/console?takeover=true&tty=false"),
            (false, true, false, "/console"),
        ] {
            let path = Line { serial, terminal }.path(&target(), takeover);
            assert!(path.ends_with(&format!("/demo{expected}")), "{path}");
        }
    }

    #[test]
    fn s_18_a_size_is_typed_into_a_serial_line_only_when_that_is_wanted() {
        for (serial, wanted, size, expected) in [
            (true, true, Some((200, 50)), "stty rows 50 cols 200\r"),
            (true, false, Some((200, 50)), ""),
            (false, true, Some((200, 50)), ""),
            (true, true, None, ""),
        ] {
            let line = Line {
                serial,
                terminal: true,
            };
            assert_eq!(line.stty(wanted, size), expected);
        }
    }

    #[tokio::test]
    async fn what_is_typed_for_the_user_comes_first() {
        let mut typed = typed_first("stty\r".into(), &b"ls\r"[..]);
        let mut all = String::new();
        typed.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "stty\rls\r");
    }

    #[test]
    fn the_exit_code_says_how_it_ended() {
        let closed = |code| {
            let reason = String::new();
            Outcome::Ended(Ending::Closed { code, reason })
        };
        let cases = [
            (Outcome::Escaped, 0),
            (Outcome::OutputClosed, 0),
            (Outcome::Exited(Exit::Code(3)), 3),
            (Outcome::Exited(Exit::Failed("x".into())), 1),
            (closed(1000), 0),
            (closed(4003), 1),
            (Outcome::Ended(Ending::Cut("x".into())), 1),
        ];
        for (outcome, expected) in cases {
            assert_eq!(verdict(&outcome, &target()).1, expected, "{outcome:?}");
        }
    }

    #[test]
    fn the_way_back_names_the_namespace() {
        let drained = Outcome::Ended(Ending::Closed {
            code: 1001,
            reason: String::new(),
        });
        let sentence = verdict(&drained, &target()).0.unwrap();
        assert!(
            sentence.contains("kubectl workspace console demo -n t1"),
            "{sentence}"
        );
    }
}
