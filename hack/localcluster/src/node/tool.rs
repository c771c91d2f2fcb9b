//! Runs short programs of the machine (`ip`, `ctr`, `losetup`, …) and takes their output.

use super::error::{NodeError, io_error};
use crate::proc::CommandLine;

/// Runs a command to its end and returns its standard output.
///
/// # Errors
/// When it cannot be started, or with its standard error when it fails.
pub(crate) fn output(command: &CommandLine) -> Result<String, NodeError> {
    let program = command.program();
    let done = command
        .command()
        .output()
        .map_err(io_error("start", program))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(NodeError::Command {
        command: format!("{} {}", program.display(), command.words().join(" ")),
        status: done.status.to_string(),
        stderr: String::from_utf8_lossy(&done.stderr).trim().to_owned(),
    })
}

/// `ip` with these words.
pub(crate) fn ip(words: &str) -> CommandLine {
    CommandLine::new("ip", "ip").args(words.split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_returned_and_failures_say_what_the_program_said() {
        let sh = |script: &str| CommandLine::new("sh", "sh").args(["-c", script]);
        assert_eq!(output(&sh("echo yes")).unwrap(), "yes\n");
        let error = output(&sh("echo no >&2; exit 3")).unwrap_err().to_string();
        assert!(
            error.contains("exit status: 3") && error.ends_with("no"),
            "{error}"
        );
        let error = output(&CommandLine::new("x", "/does/not/exist"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("start /does/not/exist"), "{error}");
    }
}
