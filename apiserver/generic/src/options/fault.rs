//! What is wrong with the flags, a sentence each.

use std::{fmt, path::Path};

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The flag, with its dashes.
    pub flag: &'static str,
    /// What is wrong and what to do.
    pub problem: String,
}

/// All problems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Faults {
    /// Adds a problem.
    pub fn add(&mut self, flag: &'static str, problem: impl Into<String>) {
        let problem = problem.into();
        self.0.push(Fault { flag, problem });
    }

    /// Adds a problem with a file.
    pub fn file(&mut self, flag: &'static str, path: &Path, problem: impl fmt::Display) {
        self.add(flag, format!("{}: {problem}", path.display()));
    }

    /// The value, if there was no problem.
    pub(super) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Fault { flag, problem }) in self.0.iter().enumerate() {
            let line_break = if n == 0 { "" } else { "\n" };
            write!(f, "{line_break}{flag}: {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// The contents of a file that a flag names, or a fault.
pub(super) fn read(faults: &mut Faults, flag: &'static str, path: &Path) -> Option<Vec<u8>> {
    match std::fs::read(path) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            faults.file(flag, path, format!("cannot be read: {error}"));
            None
        }
    }
}

/// Checks that a file that a flag names can be read.
pub(super) fn readable(faults: &mut Faults, flag: &'static str, path: Option<&Path>) {
    if let Some(path) = path {
        read(faults, flag, path);
    }
}
