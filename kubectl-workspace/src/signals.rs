//! Signals that end a command in an orderly way: what it holds is dropped, the terminal is as it was.
//! Entry point: [`until_signal`].

use std::future::Future;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a command makes of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Ctrl-C interrupts the work: it is told, and is no success.
    Work,
    /// Ctrl-C is how it ends.
    UntilInterrupted,
    /// ssh ends its ProxyCommand by a hang-up; its terminal is not ours to write on.
    Quiet,
}

struct Signals {
    hangup: Signal,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The number of the first one.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.hangup.recv() => 1,
            _ = self.interrupt.recv() => 2,
            _ = self.quit.recv() => 3,
            _ = self.terminate.recv() => 15,
        }
    }
}

/// Runs `work` until it is done or a signal comes, and gives the exit code.
///
/// # Errors
/// Those of the work.
pub async fn until_signal(
    manners: Manners,
    work: impl Future<Output = anyhow::Result<u8>>,
) -> anyhow::Result<u8> {
    let mut signals = Signals::new()?;
    // the work is dropped before anything is said: the terminal is its own again
    let number = tokio::select! {
        done = work => return done,
        number = signals.next() => number,
    };
    Ok(verdict(manners, number))
}

fn verdict(manners: Manners, number: u8) -> u8 {
    match (manners, number) {
        (Manners::UntilInterrupted, 2) => 0,
        (Manners::Quiet, _) => 128 + number,
        _ => {
            crate::say::note(&format!("Ended by signal {number}."));
            128 + number
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_names_the_signal() {
        assert_eq!(verdict(Manners::UntilInterrupted, 2), 0);
        assert_eq!(verdict(Manners::UntilInterrupted, 15), 143);
        assert_eq!(verdict(Manners::Work, 2), 130);
        assert_eq!(verdict(Manners::Quiet, 1), 129);
    }
}
