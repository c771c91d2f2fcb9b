//! Running this program again as root.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::{RootError, io_error};

/// Runs this program with `args`, through sudo unless this is root; says what for, because sudo may ask for a password.
pub fn elevate(what: &str, args: &[OsString]) -> Result<(), RootError> {
    let program = std::env::current_exe().map_err(io_error("/proc/self/exe"))?;
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("Through sudo: {what}.");
    }
    let status = command(&program, args, root).status().map_err(|source| {
        if root {
            io_error(&program)(source)
        } else {
            RootError::NoSudo(source)
        }
    })?;
    match (status.success(), root) {
        (true, _) => Ok(()),
        (false, true) => Err(RootError::Failed(status)),
        (false, false) => Err(RootError::FailedThroughSudo(status)),
    }
}

fn command(program: &Path, args: &[OsString], root: bool) -> Command {
    let mut command = if root {
        Command::new(program)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.arg("--").arg(program);
        sudo
    };
    command.args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sudo_runs_exactly_this_program() {
        let args = ["root-down".into(), "--state=/s".into()];
        let direct = command(Path::new("/p"), &args, true);
        assert_eq!(direct.get_program(), "/p");
        let sudo = command(Path::new("/p"), &args, false);
        assert_eq!(sudo.get_program(), "sudo");
        assert_eq!(
            sudo.get_args().collect::<Vec<_>>(),
            ["--", "/p", "root-down", "--state=/s"]
        );
    }
}
