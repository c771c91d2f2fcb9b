//! Waits for a program to do what it was started for.

use std::time::{Duration, Instant};

use super::error::NodeError;
use crate::proc::{ProcError, Record, tail};

const POLL: Duration = Duration::from_millis(20);
/// Lines of a log in an error.
const LINES: usize = 10;

/// Asks `probe` until it has something, the program has ended, or time is over.
///
/// # Errors
/// Those of `probe`; with the end of the log when the program has ended; or [`NodeError::Late`] with `late`.
pub(crate) fn wait_for<T>(
    program: &Record,
    late: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<Option<T>, NodeError>,
) -> Result<T, NodeError> {
    let deadline = Instant::now() + limit;
    loop {
        // Asked first: what it did before it ended does not count.
        let alive = program.is_alive();
        if !alive {
            let (name, log) = (program.name.clone(), program.log.clone());
            let tail = tail(&log, LINES);
            return Err(ProcError::Ended {
                name,
                status: "while it was waited for".to_owned(),
                log,
                tail,
            }
            .into());
        }
        if let Some(found) = probe()? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(NodeError::Late {
                what: late.to_owned(),
                limit,
                log: program.log.clone(),
            });
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::{CommandLine, Ledger};

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn success_the_programs_end_and_the_end_of_time_are_told_apart() {
        let temp = tempfile::tempdir().unwrap();
        let ledger = Ledger::in_dir(temp.path());
        let start = |name: &str, script: &str| {
            let sh = CommandLine::new(name, "/bin/sh").args(["-c", script]);
            ledger
                .start(&sh, &temp.path().join(format!("{name}.log")))
                .unwrap()
        };
        let never = || Ok(None::<()>);

        let steady = start("steady", "exec sleep 600");
        let mut left = 3;
        let third = wait_for(&steady, "x", LIMIT, || {
            left -= 1;
            Ok((left == 0).then_some("done"))
        });
        assert_eq!(third.unwrap(), "done");
        let late = wait_for(&steady, "nothing happens", Duration::ZERO, never)
            .unwrap_err()
            .to_string();
        assert!(
            late.starts_with("nothing happens after 0ns; look into"),
            "{late}"
        );

        let brief = start("brief", "echo because; exec sleep 0.5");
        let ended = wait_for(&brief, "x", LIMIT, never).unwrap_err().to_string();
        assert!(
            ended.contains("brief ended") && ended.contains("because"),
            "{ended}"
        );
        ledger.stop_all(Duration::from_secs(5)).unwrap();
    }
}
