//! A command line as a value: made by pure functions, compared in tests, run by [`super::Ledger`] or [`super::Group`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What to run: program, arguments, environment. The environment of this process is not inherited, except PATH and
/// HOME, so that a program behaves the same for everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(String, OsString)>,
}

impl CommandLine {
    /// Runs `program`, called `name` in logs, records and messages.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds `--name=value`.
    #[must_use]
    pub fn flag(self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        let mut arg = OsString::from(format!("--{name}="));
        arg.push(value);
        self.arg(arg)
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// The same command run by another one, such as `nsenter … --`: its words come first.
    #[must_use]
    pub fn inside(self, wrapper: &CommandLine) -> Self {
        let args = wrapper
            .args
            .iter()
            .cloned()
            .chain([self.program.into_os_string()])
            .chain(self.args)
            .collect();
        let env = wrapper.env.iter().cloned().chain(self.env).collect();
        Self {
            name: self.name,
            program: wrapper.program.clone(),
            args,
            env,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that is run.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its arguments as text, for messages and tests.
    pub fn words(&self) -> Vec<String> {
        self.args
            .iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect()
    }

    /// As the standard library wants it, without input.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).env_clear();
        command.envs(
            ["PATH", "HOME"]
                .into_iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        );
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapper_comes_first() {
        let enter = CommandLine::new("enter", "/usr/bin/nsenter")
            .args(["-t", "7", "--"])
            .env("A", "1");
        let etcd = CommandLine::new("etcd", "/bin/etcd")
            .flag("data-dir", "/d")
            .env("B", "2")
            .inside(&enter);
        assert_eq!(etcd.name(), "etcd");
        assert_eq!(etcd.program(), Path::new("/usr/bin/nsenter"));
        assert_eq!(
            etcd.words(),
            ["-t", "7", "--", "/bin/etcd", "--data-dir=/d"]
        );
        assert_eq!(
            etcd.env,
            [
                ("A".into(), OsString::from("1")),
                ("B".into(), OsString::from("2"))
            ]
        );
    }
}
