//! Words for people. Standard output and standard error may be closed, which is no reason to panic (`println!` would).
//! Entry points: [`out`], [`note`].

use std::io::{self, Write};

/// A line of what was asked for, on standard output.
///
/// # Errors
/// When nobody reads it.
pub fn out(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(line.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

/// Bytes of what was asked for, on standard output.
///
/// # Errors
/// When nobody reads it.
pub fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// A line about what happens, on standard error; without a reader there is nobody to tell.
pub fn note(line: &str) {
    let mut text = line.to_owned();
    text.push('\n');
    // one write: lines of several processes on one terminal stay whole
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Whether an error is that nobody reads standard output any more, as after `| head`.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_is_told_from_other_errors() {
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(
            &anyhow::Error::from(broken).context("writing")
        ));
        assert!(!is_broken_pipe(&anyhow::anyhow!("no")));
    }
}
