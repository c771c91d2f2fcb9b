//! The user's terminal: raw while a session lasts, and as it was on every way out.
//!
//! Ways out are: the guard's drop, a panic (its hook restores before the message is printed), and signals (the session
//! ends and drops the guard). Entry points: [`Raw::enter`], [`stdout_closed`].

use std::io::IsTerminal;
use std::sync::{Mutex, Once, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::oneshot;

/// What the terminal was before it was raw; `None` while it is not raw.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// A raw terminal, until it is dropped.
#[derive(Debug)]
pub struct Raw(());

impl Raw {
    /// Makes the terminal of standard input raw; `None` when standard input is none.
    pub fn enter() -> std::io::Result<Option<Self>> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        HOOK.call_once(restore_on_panic);
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let guard = Self(());
        // what was typed while connecting is typed ahead, and stays
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Some(guard))
    }
}

/// Raw once more, when it was before: after a stop the shell may have put its own modes in place.
pub fn raw_again() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = before.as_ref() {
        let mut raw = before.clone();
        raw.make_raw();
        // a terminal that is gone has no modes
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &raw);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back; does nothing the second time.
fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // a terminal that is gone needs no restoring
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
    }
}

fn restore_on_panic() {
    let next = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore();
        next(info);
    }));
}

/// Columns and rows of the terminal on standard output.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Answers when nobody reads standard output any more, as after `| grep -m1`: a silent guest would otherwise keep the
/// pipe waiting for ever. It never answers for files and terminals.
pub fn stdout_closed() -> oneshot::Receiver<()> {
    let (closed, answer) = oneshot::channel();
    std::thread::spawn(move || {
        let stdout = std::io::stdout();
        loop {
            // no events are asked for; errors and hang-ups are reported all the same
            let mut waiting = [PollFd::new(&stdout, PollFlags::empty())];
            match poll(&mut waiting, None) {
                Ok(_)
                    if waiting[0]
                        .revents()
                        .intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) =>
                {
                    break;
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
        // the session may be over already
        let _ = closed.send(());
    });
    answer
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    #[test]
    #[ignore = "runs on a terminal that the next test makes for it"]
    fn panics_in_a_raw_terminal() {
        let raw = Raw::enter().unwrap();
        assert!(raw.is_some(), "there is a terminal");
        // only the hook is left to restore it
        std::mem::forget(raw);
        panic!("forced");
    }

    #[test]
    fn p_07_a_panic_leaves_the_terminal_as_it_was() {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new())
            .unwrap()
            .into_string()
            .unwrap();
        let open = || {
            std::fs::File::options()
                .read(true)
                .write(true)
                .open(&name)
                .unwrap()
        };
        let terminal = open();
        let modes = || format!("{:?}", tcgetattr(&terminal).unwrap());
        let before = modes();
        let test = "terminal::tests::panics_in_a_raw_terminal";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", test])
            .stdin(Stdio::from(open()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(!child.status.success() && said.contains("forced"), "{said}");
        assert_eq!(modes(), before);
    }
}
