//! Runs short programs of the machine (`ip`, `ctr`, `losetup`, …) and takes their output.

use std::path::{Path, PathBuf};

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

/// Where root's programs are; PATH lacks these after a plain `su`.
const SYSTEM: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The file of a program of the machine, if it has it.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(SYSTEM.map(PathBuf::from));
    dirs.map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A command of the machine; its bare name when the machine lacks it, so that the attempt to run it says so.
pub(crate) fn machine(name: &str) -> CommandLine {
    CommandLine::new(
        name,
        find(name).unwrap_or_else(|| Path::new(name).to_owned()),
    )
}

/// `ip` with these words.
pub(crate) fn ip(words: &str) -> CommandLine {
    machine("ip").args(words.split_ascii_whitespace())
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
        assert_eq!(find("does-not-exist"), None);
        assert!(find("sh").is_some_and(|sh| sh.is_absolute()));
        let error = output(&CommandLine::new("x", "/does/not/exist"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("start /does/not/exist"), "{error}");
    }
}
