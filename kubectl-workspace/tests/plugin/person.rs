//! A person at a terminal: a pseudoterminal of the test's own, on which the plugin is the foreground.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::place::{PLUGIN, Place};

const PATIENCE: Duration = Duration::from_secs(20);

pub struct Person {
    keyboard: tokio::fs::File,
    screen: tokio::fs::File,
    pub child: Child,
    terminal: File,
    modes: String,
    pub seen: String,
}

impl Person {
    /// Types the command.
    pub fn runs(place: &Place, args: &[&str]) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let noctty = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap();
        let terminal = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(noctty)
            .open(name)
            .unwrap();
        resize(&master, 80, 24);
        let mut command = Command::new("setsid");
        place.surround(&mut command);
        let end = || Stdio::from(terminal.try_clone().unwrap());
        command.args(["--ctty", "--wait", PLUGIN]).args(args);
        let child = command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let modes = modes(&terminal);
        let master = File::from(master);
        Self {
            keyboard: tokio::fs::File::from_std(master.try_clone().unwrap()),
            screen: tokio::fs::File::from_std(master),
            child,
            terminal,
            modes,
            seen: String::new(),
        }
    }

    pub async fn types(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).await.unwrap();
        self.keyboard.flush().await.unwrap();
    }

    /// Waits until this stands on the screen.
    pub async fn sees(&mut self, text: &str) {
        let reading = async {
            let mut buffer = [0; 4096];
            while !self.seen.contains(text) {
                let read = self.screen.read(&mut buffer).await.unwrap();
                self.seen
                    .push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        };
        if tokio::time::timeout(PATIENCE, reading).await.is_err() {
            panic!("{text:?} is not on the screen: {:?}", self.seen);
        }
    }

    pub fn resizes(&self, columns: u16, rows: u16) {
        resize(&self.terminal, columns, rows);
    }

    /// Whether keys go to the program one by one.
    pub fn is_raw(&self) -> bool {
        modes(&self.terminal) != self.modes
    }

    /// The exit code, which must come within this time, with the terminal as it was.
    pub async fn leaves(&mut self, limit: Duration) -> Option<i32> {
        let status = tokio::time::timeout(limit, self.child.wait()).await;
        let status = status
            .unwrap_or_else(|_| panic!("it does not end: {:?}", self.seen))
            .unwrap();
        assert_eq!(
            modes(&self.terminal),
            self.modes,
            "the terminal is as it was"
        );
        status.code()
    }

    /// The process that runs the plugin: setsid's child, or setsid itself if it had no reason to fork.
    pub fn plugin(&self) -> i32 {
        let parent = self.child.id().unwrap();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let found = std::fs::read_to_string(children).unwrap_or_default();
        let first = found
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok());
        first.unwrap_or(i32::try_from(parent).unwrap())
    }
}

fn resize(fd: impl std::os::fd::AsFd, columns: u16, rows: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(fd, size).unwrap();
}

fn modes(terminal: &File) -> String {
    let fd: OwnedFd = terminal.try_clone().unwrap().into();
    format!("{:?}", tcgetattr(&fd).unwrap())
}
