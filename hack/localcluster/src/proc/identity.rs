//! Which process is meant: pid, start time and boot. Source: proc(5), pidfd_open(2).

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process that cannot be confused with a later one of the same pid, nor with one of an earlier boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its pid in this pid namespace.
    pub pid: i32,
    /// When it started, in clock ticks since the boot.
    start: u64,
    /// Which boot.
    boot: String,
}

impl Identity {
    /// The process that has `pid` now, unless there is none or it is a zombie.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat,
            // ESRCH: it ended between open and read.
            Err(e)
                if e.kind() == io::ErrorKind::NotFound
                    || e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?
            .trim()
            .to_owned();
        Ok(live_start(&stat).map(|start| Self { pid, start, boot }))
    }

    /// Whether it still runs. A process table that cannot be read counts as running: nothing is then taken for gone.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).map_or(true, |now| now.as_ref() == Some(self))
    }

    /// Sends `signal`; one that has ended already is fine.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.open()? {
            None => Ok(()),
            Some(fd) => match pidfd_send_signal(&fd, signal) {
                Ok(()) | Err(Errno::SRCH) => Ok(()),
                Err(e) => Err(e.into()),
            },
        }
    }

    /// Waits until it has ended or `limit` is over; says whether it has ended.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let Some(fd) = self.open()? else {
            return Ok(true);
        };
        let limit = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(!self.is_alive()),
            Err(e) => Err(e.into()),
        }
    }

    /// A descriptor of exactly this process. The check comes after the open: from then on the pid cannot change hands.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok((Self::of(self.pid)?.as_ref() == Some(self)).then_some(fd)),
            Err(Errno::SRCH) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

/// The start time (field 22) in a line of `/proc/PID/stat`, unless the process is a zombie or dead. The second field
/// is the program's name in parentheses and may itself hold spaces and parentheses.
fn live_start(stat: &str) -> Option<u64> {
    let rest = stat.rsplit_once(')')?.1;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_start_time_is_read_behind_any_name() {
        let line = |name: &str, state: &str| {
            format!(
                "42 ({name}) {state} 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 9 9 184467"
            )
        };
        for (name, state, want) in [
            ("etcd", "S", Some(777)),
            ("a) S (b c", "R", Some(777)),
            ("etcd", "Z", None),
            ("etcd", "X", None),
        ] {
            assert_eq!(live_start(&line(name, state)), want, "{name} {state}");
        }
        assert_eq!(live_start("garbage"), None);
    }

    #[test]
    fn a_process_is_itself_until_it_ends_and_a_later_one_is_not_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id() as i32).unwrap().unwrap();
        assert!(identity.is_alive());
        assert!(!identity.wait(Duration::ZERO).unwrap());
        let other = Identity {
            start: identity.start + 1,
            ..identity.clone()
        };
        assert!(!other.is_alive());
        other.signal(Signal::KILL).unwrap();
        assert!(
            identity.is_alive(),
            "a signal to an earlier process of this pid must not arrive"
        );
        identity.signal(Signal::KILL).unwrap();
        assert!(identity.wait(Duration::from_secs(10)).unwrap());
        child.wait().unwrap();
        assert!(!identity.is_alive());
        assert!(identity.wait(Duration::ZERO).unwrap());
    }
}
