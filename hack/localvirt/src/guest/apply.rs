//! Does what a [`Plan`](super::plan::Plan) says, with the guest's own tools (busybox).
//!
//! A step that fails is said and does not keep the others from being done. Entry point: [`Guest`].

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::accounts::{self, AccountError, Accounts, Entry};
use super::cloud_config::{CommandLine, FileEntry, Word};
use super::plan::{Account, Password, Step};

/// The guest's file system; a folder in tests.
#[derive(Clone, Debug)]
pub struct Guest {
    /// `/`.
    pub root: PathBuf,
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A program.
    #[error("{program} failed ({status})")]
    Program {
        /// Which.
        program: String,
        /// How.
        status: String,
    },
    /// The account files.
    #[error("{0}")]
    Account(#[from] AccountError),
    /// A file's content or mode.
    #[error("{0}")]
    File(String),
}

impl Guest {
    /// Does one step.
    pub fn apply(&self, step: &Step) -> Result<(), StepError> {
        match step {
            Step::Account(account) => self.account(account),
            Step::Password(password) => self.password(password),
            Step::Keys { user, keys } => self.authorize(user, keys),
            Step::File(file) => self.write_file(file),
        }
    }

    /// Sets the host name now and for the next boots.
    pub fn hostname(&self, name: &str) -> Result<(), StepError> {
        fs::write(self.path("/etc/hostname"), format!("{name}\n"))?;
        run(Command::new("hostname").arg(name))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn account(&self, account: &Account) -> Result<(), StepError> {
        let before = self.accounts()?;
        let Some((after, entry)) = accounts::add(&before, account)? else {
            return Ok(());
        };
        for (file, content) in [
            ("/etc/passwd", &after.passwd),
            ("/etc/shadow", &after.shadow),
            ("/etc/group", &after.group),
        ] {
            fs::write(self.path(file), content)?;
        }
        let home = self.path(&entry.home);
        fs::create_dir_all(&home)?;
        Ok(chown(home, Some(entry.uid), Some(entry.gid))?)
    }

    fn accounts(&self) -> io::Result<Accounts> {
        let read = |file| fs::read_to_string(self.path(file));
        Ok(Accounts {
            passwd: read("/etc/passwd")?,
            shadow: read("/etc/shadow")?,
            group: read("/etc/group")?,
        })
    }

    fn password(&self, password: &Password) -> Result<(), StepError> {
        let hash = if password.hashed {
            password.value.clone()
        } else {
            hash(&password.value)?
        };
        let file = self.path("/etc/shadow");
        let after = accounts::set_hash(&fs::read_to_string(&file)?, &password.user, &hash)?;
        Ok(fs::write(file, after)?)
    }

    /// Adds keys that are not there yet, as sshd wants file and folder.
    fn authorize(&self, user: &str, keys: &[String]) -> Result<(), StepError> {
        let passwd = fs::read_to_string(self.path("/etc/passwd"))?;
        let entry =
            Entry::find(&passwd, user).ok_or_else(|| AccountError::NoUser(user.to_owned()))?;
        let folder = self.path(&entry.home).join(".ssh");
        let file = folder.join("authorized_keys");
        let before = fs::read_to_string(&file).unwrap_or_default();
        fs::create_dir_all(&folder)?;
        write_private(&file, &merged_keys(&before, keys))?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        for path in [&folder, &file] {
            chown(path, Some(entry.uid), Some(entry.gid))?;
        }
        Ok(())
    }

    fn write_file(&self, file: &FileEntry) -> Result<(), StepError> {
        let content = content(file)?;
        let mode = mode(file.permissions.as_ref())?;
        let path = self.path(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut open = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .append(file.append)
            .truncate(!file.append)
            .mode(0o600)
            .open(&path)?;
        open.write_all(&content)?;
        open.set_permissions(fs::Permissions::from_mode(mode))?;
        match &file.owner {
            Some(owner) => run(Command::new("chown").arg("--").arg(owner).arg(&path)),
            None => Ok(()),
        }
    }
}

/// Runs a command of bootcmd or runcmd, with its output on the console.
pub fn command(line: &CommandLine) -> Result<(), StepError> {
    match line {
        CommandLine::Shell(text) => run(Command::new("sh").args(["-c", text])),
        CommandLine::Words(words) => match words.split_first() {
            Some((program, rest)) => {
                run(Command::new(program.to_string()).args(rest.iter().map(Word::to_string)))
            }
            None => Ok(()),
        },
    }
}

fn merged_keys(before: &str, keys: &[String]) -> String {
    let mut lines: Vec<&str> = before.lines().collect();
    for key in keys.iter().map(|k| k.trim()) {
        if !key.is_empty() && !lines.contains(&key) {
            lines.push(key);
        }
    }
    lines.join("\n") + "\n"
}

fn write_private(file: &Path, content: &str) -> io::Result<()> {
    let mut open = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    open.write_all(content.as_bytes())
}

fn content(file: &FileEntry) -> Result<Vec<u8>, StepError> {
    match file.encoding.as_deref().unwrap_or("text/plain") {
        "text/plain" | "" => Ok(file.content.clone().into_bytes()),
        "b64" | "base64" => {
            let packed: String = file.content.split_whitespace().collect();
            STANDARD
                .decode(packed)
                .map_err(|_| StepError::File("the content is not base64".into()))
        }
        other => Err(StepError::File(format!(
            "this guest does not know the encoding {other}"
        ))),
    }
}

/// YAML reads an unquoted 0644 as the number 420 or 644, so only text is trusted.
fn mode(permissions: Option<&Word>) -> Result<u32, StepError> {
    let wrong = || StepError::File("permissions must be quoted octal digits".into());
    match permissions {
        None => Ok(0o644),
        Some(Word::Text(text)) => u32::from_str_radix(text.trim_start_matches("0o"), 8)
            .ok()
            .filter(|m| *m <= 0o7777)
            .ok_or_else(wrong),
        Some(Word::Other(_)) => Err(wrong()),
    }
}

/// A crypt(3) hash, by busybox. Through standard input: arguments are seen by everybody in the guest.
fn hash(password: &str) -> Result<String, StepError> {
    let mut mkpasswd = Command::new("mkpasswd");
    let mut child = mkpasswd
        .args(["-m", "sha512", "-P", "0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        writeln!(stdin, "{password}")?;
    }
    let output = child.wait_with_output()?;
    ended("mkpasswd", output.status)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn run(command: &mut Command) -> Result<(), StepError> {
    let status = command.stdin(Stdio::null()).status()?;
    ended(&command.get_program().to_string_lossy(), status)
}

fn ended(program: &str, status: std::process::ExitStatus) -> Result<(), StepError> {
    if status.success() {
        return Ok(());
    }
    Err(StepError::Program {
        program: program.to_owned(),
        status: status.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> (tempfile::TempDir, Guest) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        let (uid, gid) = (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        fs::write(dir.path().join("etc/shadow"), "ann:!:0:0:99999:7:::\n").unwrap();
        fs::write(dir.path().join("etc/group"), "").unwrap();
        fs::write(
            dir.path().join("etc/passwd"),
            format!("root:x:0:0:root:/root:/bin/sh\nann:x:{uid}:{gid}::/home/ann:/bin/sh\n"),
        )
        .unwrap();
        let guest = Guest {
            root: dir.path().into(),
        };
        (dir, guest)
    }

    fn file(path: &str, content: &str) -> FileEntry {
        FileEntry {
            path: path.into(),
            content: content.into(),
            ..FileEntry::default()
        }
    }

    #[test]
    fn keys_are_added_once_and_private() {
        let (dir, guest) = guest();
        let keys = |keys: &[&str]| Step::Keys {
            user: "ann".into(),
            keys: keys.iter().map(|k| (*k).into()).collect(),
        };
        guest.apply(&keys(&["a", "b"])).unwrap();
        guest.apply(&keys(&["b ", "", "c"])).unwrap();
        let path = dir.path().join("home/ann/.ssh/authorized_keys");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\nc\n");
        assert_eq!(
            fs::metadata(path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let nobody = Step::Keys {
            user: "bob".into(),
            keys: vec!["a".into()],
        };
        assert!(matches!(
            guest.apply(&nobody),
            Err(StepError::Account(AccountError::NoUser(_)))
        ));
    }

    #[test]
    fn files_have_the_content_and_mode_that_was_asked_for() {
        let (dir, guest) = guest();
        let path = dir.path().join("a/b");
        let private = FileEntry {
            permissions: Some(Word::Text("0600".into())),
            ..file("/a/b", "one")
        };
        guest.apply(&Step::File(private)).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let more = FileEntry {
            append: true,
            encoding: Some("b64".into()),
            ..file("/a/b", "IHR3\nbw==")
        };
        guest.apply(&Step::File(more)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one two");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o644
        );
        guest.apply(&Step::File(file("/a/b", "new"))).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_file_that_cannot_be_meant_is_refused() {
        let cases = [
            FileEntry {
                encoding: Some("gzip".into()),
                ..file("/a", "x")
            },
            FileEntry {
                encoding: Some("b64".into()),
                ..file("/a", "!")
            },
            FileEntry {
                permissions: Some(Word::Other(420.into())),
                ..file("/a", "x")
            },
            FileEntry {
                permissions: Some(Word::Text("rw".into())),
                ..file("/a", "x")
            },
        ];
        let (dir, guest) = guest();
        for case in cases {
            assert!(
                matches!(
                    guest.apply(&Step::File(case.clone())),
                    Err(StepError::File(_))
                ),
                "{case:?}"
            );
        }
        assert!(!dir.path().join("a").exists());
    }

    #[test]
    fn an_account_gets_a_home_of_its_own_and_a_hash() {
        let (dir, guest) = guest();
        let uid = rustix::process::getuid().as_raw() + 7;
        let bob = Account {
            name: "bob".into(),
            shell: "/bin/sh".into(),
            home: None,
            uid: Some(uid),
        };
        // only root can give a home away
        if rustix::process::getuid().is_root() {
            guest.apply(&Step::Account(bob)).unwrap();
            assert!(dir.path().join("home/bob").is_dir());
        }
        let hashed = Password {
            user: "ann".into(),
            value: "$6$x".into(),
            hashed: true,
        };
        guest.apply(&Step::Password(hashed)).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("etc/shadow"))
                .unwrap()
                .lines()
                .next(),
            Some("ann:$6$x:0:0:99999:7:::")
        );
    }

    #[test]
    fn commands_are_run_as_they_were_given() {
        let (dir, _) = guest();
        let out = dir.path().join("out");
        let words = [
            "sh",
            "-c",
            "printf '%s' \"$1\" > \"$0\"",
            out.to_str().unwrap(),
            "a b",
        ];
        command(&CommandLine::Words(
            words.map(|w| Word::Text(w.into())).to_vec(),
        ))
        .unwrap();
        assert_eq!(fs::read_to_string(out).unwrap(), "a b");
        assert!(matches!(
            command(&CommandLine::Shell("exit 3".into())),
            Err(StepError::Program { .. })
        ));
    }
}
