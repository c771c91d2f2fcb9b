//! `kubectl workspace console`. Entry point: [`console`].

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::channel::Exit;
use crate::cli;
use crate::close::explain;
use crate::cluster::Cluster;
use crate::relay::{Framing, Outcome, Relay};
use crate::target::Target;
use crate::terminal::{self, Raw};
use crate::upgrade::{OpenError, Stream, open};

const PLAIN: &str = "plain.kubevirt.io";
const V5: &str = "v5.channel.k8s.io";
const V4: &str = "v4.channel.k8s.io";

/// Runs a session and answers with the exit code.
pub async fn console(cluster: &Cluster, options: cli::Console) -> anyhow::Result<u8> {
    let cli::Console {
        workspace,
        timeout,
        takeover,
    } = options;
    let target = cluster.target(workspace)?;
    let kind = cluster.get(&target).await?["spec"]["type"]
        .as_str()
        .unwrap_or("container")
        .to_owned();
    let terminal = std::io::stdin().is_terminal();
    let path = path(&target, takeover, terminal || kind == "vm");
    let (stream, protocol) =
        wait_and_open(cluster, &target, &path, protocols(&kind), timeout).await?;
    eprintln!("{}", greeting(&target.name, terminal));
    session(stream, framing(&protocol), &target).await
}

/// A vm has a serial line, everything else a shell.
fn protocols(kind: &str) -> &'static [&'static str] {
    if kind == "vm" { &[PLAIN] } else { &[V5, V4] }
}

fn framing(protocol: &str) -> Framing {
    match protocol {
        V5 => Framing::Channels { half_close: true },
        V4 => Framing::Channels { half_close: false },
        _ => Framing::Raw,
    }
}

/// Without a terminal there is nobody to type the escape.
fn greeting(name: &str, terminal: bool) -> String {
    if terminal {
        format!("Connected to {name}. The escape sequence is Ctrl-]")
    } else {
        format!("Connected to {name}.")
    }
}

/// Without a terminal here a shell gets none there, as with `kubectl exec -i`: its errors come
/// apart, and the end of our input is the end of its.
fn path(target: &Target, takeover: bool, terminal: bool) -> String {
    let wishes = [(takeover, "takeover=true"), (!terminal, "tty=false")];
    let wishes: Vec<_> = wishes.iter().filter(|(wanted, _)| *wanted).collect();
    let mut path = format!("{}/console", target.path());
    for (index, (_, wish)) in wishes.iter().enumerate() {
        path.push(if index == 0 { '?' } else { '&' });
        path.push_str(wish);
    }
    path
}

async fn wait_and_open(
    cluster: &Cluster,
    target: &Target,
    path: &str,
    protocols: &[&str],
    timeout: Duration,
) -> Result<(Stream, String), OpenError> {
    let start = Instant::now();
    let mut said = String::new();
    loop {
        match open(cluster, path, protocols).await {
            Err(OpenError::Starting {
                message,
                retry_after,
            }) if start.elapsed() + retry_after <= timeout => {
                if said != message {
                    eprintln!("Waiting for {}: {message}", target.name);
                    said = message;
                }
                tokio::time::sleep(retry_after).await;
            }
            done => return done,
        }
    }
}

async fn session(stream: Stream, framing: Framing, target: &Target) -> anyhow::Result<u8> {
    let mut signals = Signals::new()?;
    let closed = terminal::stdout_closed();
    let raw = Raw::enter()?;
    let sizes = match &raw {
        Some(_) => sizes()?,
        None => mpsc::channel(1).1,
    };
    let relay = Relay {
        input: tokio::io::stdin(),
        output: tokio::io::stdout(),
        errors: tokio::io::stderr(),
        framing,
        interactive: raw.is_some(),
        sizes,
    };
    let ended = tokio::select! {
        outcome = relay.run(stream) => Ok(outcome),
        Ok(()) = closed => Ok(Outcome::OutputClosed),
        signal = signals.next() => Err(signal),
    };
    let was_raw = raw.is_some();
    drop(raw);
    if was_raw {
        // the guest's cursor stands somewhere in a line
        eprintln!();
    }
    Ok(match ended {
        Ok(outcome) => finish(&outcome, target),
        Err(number) => {
            eprintln!("Ended by signal {number}.");
            128 + number
        }
    })
}

/// Says why, and gives the exit code.
fn finish(outcome: &Outcome, target: &Target) -> u8 {
    let (sentence, code) = verdict(outcome, target);
    if let Some(sentence) = sentence {
        eprintln!("{sentence}");
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
            let command = format!(
                "kubectl workspace console {} -n {}",
                target.name, target.namespace
            );
            let explanation = explain(ending, &target.name, &command);
            (Some(explanation.sentence), u8::from(!explanation.clean))
        }
    }
}

/// The size of the terminal now and at every change.
fn sizes() -> std::io::Result<mpsc::Receiver<(u16, u16)>> {
    let (changed, sizes) = mpsc::channel(1);
    let mut windows = signal(SignalKind::window_change())?;
    tokio::spawn(async move {
        loop {
            if let Some(size) = terminal::size()
                && changed.send(size).await.is_err()
            {
                return;
            }
            if windows.recv().await.is_none() {
                return;
            }
        }
    });
    Ok(sizes)
}

/// Signals that end the session in an orderly way; in a raw terminal Ctrl-C is none of them.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let listen = |kind| signal(kind);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The number of the first one.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hangup.recv() => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::close::Ending;

    use super::*;

    #[test]
    fn a_machine_has_a_serial_line_and_the_rest_a_shell() {
        assert_eq!(protocols("vm"), [PLAIN]);
        assert_eq!(protocols("container"), [V5, V4]);
        assert_eq!(protocols("scratch"), [V5, V4]);
        assert_eq!(framing(PLAIN), Framing::Raw);
        assert_eq!(framing(V4), Framing::Channels { half_close: false });
    }

    #[test]
    fn a_shell_in_a_pipe_asks_for_no_terminal() {
        let target = Target {
            name: "demo".into(),
            namespace: "t1".into(),
        };
        for (takeover, terminal, expected) in [
            (false, true, "/console"),
            (true, true, "/console?takeover=true"),
            (false, false, "/console?tty=false"),
            (true, false, "/console?takeover=true&tty=false"),
        ] {
            let path = path(&target, takeover, terminal);
            assert!(path.ends_with(&format!("/demo{expected}")), "{path}");
        }
    }

    #[test]
    fn the_exit_code_says_how_it_ended() {
        let target = Target {
            name: "demo".into(),
            namespace: "t1".into(),
        };
        let cases = [
            (Outcome::Escaped, 0),
            (Outcome::OutputClosed, 0),
            (Outcome::Exited(Exit::Code(3)), 3),
            (Outcome::Exited(Exit::Failed("x".into())), 1),
            (
                Outcome::Ended(Ending::Closed {
                    code: 1000,
                    reason: String::new(),
                }),
                0,
            ),
            (
                Outcome::Ended(Ending::Closed {
                    code: 4003,
                    reason: String::new(),
                }),
                1,
            ),
            (Outcome::Ended(Ending::Cut("x".into())), 1),
        ];
        for (outcome, expected) in cases {
            assert_eq!(verdict(&outcome, &target).1, expected, "{outcome:?}");
        }
    }

    #[test]
    fn the_way_back_names_the_namespace() {
        let target = Target {
            name: "demo".into(),
            namespace: "t1".into(),
        };
        let drained = Outcome::Ended(Ending::Closed {
            code: 1001,
            reason: String::new(),
        });
        assert!(
            verdict(&drained, &target)
                .0
                .unwrap()
                .contains("kubectl workspace console demo -n t1")
        );
    }
}
