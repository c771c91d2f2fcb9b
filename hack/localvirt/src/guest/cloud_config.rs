//! The part of `#cloud-config` that the tiny guest honours, with the shapes that cloud-init accepts.
//!
//! Source: cloud-init's `schema-cloud-config-v1.json`. Entry point: [`parse`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What the guest honours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudConfig {
    /// Accounts; `None` means the default one.
    pub users: Option<Vec<UserEntry>>,
    /// Name of the default account.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// Passwords by account.
    pub chpasswd: Chpasswd,
    /// Whether sshd takes passwords.
    pub ssh_pwauth: bool,
    /// Keys of the default account.
    pub ssh_authorized_keys: Vec<String>,
    /// Commands at every boot, early.
    pub bootcmd: Vec<CommandLine>,
    /// Commands once, at the end of the first boot.
    pub runcmd: Vec<CommandLine>,
    /// Files.
    pub write_files: Vec<FileEntry>,
    /// Host name.
    pub hostname: Option<String>,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum UserEntry {
    /// `default`, or the name of an account with nothing else said.
    Name(String),
    /// An account in full.
    Full(Box<User>),
}

/// An account in full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct User {
    /// Login name.
    pub name: String,
    /// A crypt(3) hash.
    #[serde(alias = "hashed_passwd")]
    pub passwd: Option<String>,
    /// A password.
    pub plain_text_passwd: Option<String>,
    /// No password login, even with a password; cloud-init's default.
    pub lock_passwd: Option<bool>,
    /// Keys.
    #[serde(default)]
    pub ssh_authorized_keys: Vec<String>,
    /// Login shell.
    pub shell: Option<String>,
    /// Home directory.
    pub homedir: Option<String>,
    /// User id.
    pub uid: Option<u32>,
    /// What else was said about it.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// Passwords by account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Chpasswd {
    /// The old form: `name:password` lines.
    #[serde(default)]
    pub list: Lines,
    /// The new form.
    #[serde(default)]
    pub users: Vec<PasswordEntry>,
}

/// One text of lines, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Lines {
    /// Lines in one text.
    Text(String),
    /// One each.
    List(Vec<String>),
}

impl Default for Lines {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// A password of the new form.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PasswordEntry {
    /// Login name.
    pub name: String,
    /// The password, or its hash.
    pub password: Option<String>,
    /// Which of the two.
    #[serde(default, rename = "type")]
    pub kind: PasswordKind,
}

/// What a password field holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum PasswordKind {
    /// A crypt(3) hash.
    #[default]
    #[serde(rename = "hash")]
    Hash,
    /// The password.
    #[serde(rename = "text")]
    Text,
    /// Nothing: cloud-init makes one up.
    #[serde(rename = "RANDOM")]
    Random,
}

/// A command for a shell, or a program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// For `sh -c`.
    Shell(String),
    /// Run as it is.
    Words(Vec<Word>),
}

/// YAML reads `sleep, 5` as a word and a number.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// A word.
    Text(String),
    /// A word that looks like something else.
    Other(Value),
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Other(value) => write!(f, "{value}"),
        }
    }
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct FileEntry {
    /// Where.
    pub path: String,
    /// What.
    #[serde(default)]
    pub content: String,
    /// How `content` is written.
    #[serde(default)]
    pub encoding: Option<String>,
    /// `USER:GROUP`.
    pub owner: Option<String>,
    /// Octal, as text; a number is what YAML made of it.
    pub permissions: Option<Word>,
    /// Add to the file.
    #[serde(default)]
    pub append: bool,
}

/// A document, with everything in it that is not honoured.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// What is honoured.
    pub config: CloudConfig,
    /// A sentence for each thing that is not.
    pub complaints: Vec<String>,
}

/// Keys that ask for nothing here.
const HARMLESS: [&str; 3] = ["preserve_hostname", "fqdn", "disable_root"];

/// Reads `#cloud-config`. A wrong module does not keep the others from being honoured, as in cloud-init.
pub fn parse(text: &str) -> Parsed {
    let document = match serde_saphyr::from_str::<Option<BTreeMap<String, Value>>>(text) {
        Ok(document) => document.unwrap_or_default(),
        Err(e) => {
            let complaints = vec![format!(
                "the #cloud-config is not a YAML mapping, and is ignored: {e}"
            )];
            return Parsed {
                complaints,
                ..Parsed::default()
            };
        }
    };
    let mut reader = Reader {
        document,
        complaints: Vec::new(),
    };
    let config = CloudConfig {
        users: reader.take("users"),
        user: reader.take::<Default_>("user").map(Default_::into_name),
        password: reader.take("password"),
        chpasswd: reader.take("chpasswd").unwrap_or_default(),
        ssh_pwauth: reader
            .take::<Value>("ssh_pwauth")
            .is_some_and(|v| truthy(&v)),
        ssh_authorized_keys: reader.take("ssh_authorized_keys").unwrap_or_default(),
        bootcmd: reader.take("bootcmd").unwrap_or_default(),
        runcmd: reader.take("runcmd").unwrap_or_default(),
        write_files: reader.take("write_files").unwrap_or_default(),
        hostname: reader.take("hostname"),
    };
    let complaints = reader.finish();
    Parsed { config, complaints }
}

/// `user:` is a name or an account whose name is meant.
#[derive(Deserialize)]
#[serde(untagged)]
enum Default_ {
    Name(String),
    Full { name: String },
}

impl Default_ {
    fn into_name(self) -> String {
        match self {
            Self::Name(name) | Self::Full { name } => name,
        }
    }
}

struct Reader {
    document: BTreeMap<String, Value>,
    complaints: Vec<String>,
}

impl Reader {
    fn take<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        let value = self.document.remove(key).filter(|v| !v.is_null())?;
        match serde_json::from_value(value) {
            Ok(value) => Some(value),
            Err(e) => {
                // the value may be a secret, serde's words for an untagged enum do not repeat it
                self.complaints.push(format!(
                    "{key} does not have the form that cloud-init knows, and is ignored ({})",
                    kind_of(&e)
                ));
                None
            }
        }
    }

    fn finish(self) -> Vec<String> {
        let ignored: Vec<String> = self
            .document
            .into_keys()
            .filter(|k| !HARMLESS.contains(&k.as_str()))
            .collect();
        let mut complaints = self.complaints;
        if !ignored.is_empty() {
            complaints.push(format!(
                "this guest has no module for: {}",
                ignored.join(", ")
            ));
        }
        complaints
    }
}

/// What is wrong, without the value.
fn kind_of(error: &serde_json::Error) -> &'static str {
    match error.to_string() {
        text if text.contains("missing field") => "a field is missing",
        text if text.contains("data did not match") => "an entry has another shape",
        _ => "another type is expected",
    }
}

/// YAML 1.1's words for true, which cloud-init still takes.
fn truthy(value: &Value) -> bool {
    match value {
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_i64() == Some(1),
        Value::String(s) => matches!(s.to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_that_cloud_init_takes_are_taken() {
        let text = "#cloud-config
users:
- default
- name: ann
  plain_text_passwd: secret
  lock_passwd: false
  ssh_authorized_keys: [ssh-ed25519 AAAA ann]
  sudo: ALL=(ALL) NOPASSWD:ALL
user: {name: boss}
chpasswd: {list: \"root:x\\nann:y\", expire: false}
ssh_pwauth: 'yes'
runcmd:
- echo hi
- [sleep, 5]
write_files:
- {path: /etc/motd, content: hello, permissions: '0600', owner: 'ann:ann'}
";
        let Parsed { config, complaints } = parse(text);
        assert_eq!(complaints, Vec::<String>::new());
        let users = config.users.unwrap();
        assert_eq!(users[0], UserEntry::Name("default".into()));
        assert!(
            matches!(&users[1], UserEntry::Full(u) if u.name == "ann" && u.other.contains_key("sudo"))
        );
        assert_eq!(config.user.as_deref(), Some("boss"));
        assert_eq!(config.chpasswd.list, Lines::Text("root:x\nann:y".into()));
        assert!(config.ssh_pwauth);
        let words = vec![Word::Text("sleep".into()), Word::Other(5.into())];
        assert_eq!(
            config.runcmd,
            [
                CommandLine::Shell("echo hi".into()),
                CommandLine::Words(words)
            ]
        );
        assert_eq!(
            config.write_files[0].permissions,
            Some(Word::Text("0600".into()))
        );
    }

    #[test]
    fn what_is_not_honoured_is_named_and_the_rest_is_honoured() {
        let parsed = parse(
            "#cloud-config\npackages: [vim]\nmounts: []\nfqdn: a.b\nhostname: h\nruncmd: 7\n",
        );
        assert_eq!(parsed.config.hostname.as_deref(), Some("h"));
        assert_eq!(parsed.complaints.len(), 2);
        assert!(
            parsed.complaints[0].starts_with("runcmd "),
            "{:?}",
            parsed.complaints
        );
        assert_eq!(
            parsed.complaints[1],
            "this guest has no module for: mounts, packages"
        );
    }

    #[test]
    fn a_broken_document_is_a_complaint_without_its_secrets() {
        for text in [
            "#cloud-config\n- a\n",
            "#cloud-config\na: [\n",
            "#cloud-config\npassword: [hunter2]\n",
        ] {
            let parsed = parse(text);
            assert_eq!(parsed.config, CloudConfig::default());
            assert_eq!(parsed.complaints.len(), 1, "{text}");
            assert!(
                !parsed.complaints[0].contains("hunter2"),
                "{:?}",
                parsed.complaints
            );
        }
    }

    #[test]
    fn an_empty_document_asks_for_nothing() {
        for text in [
            "#cloud-config\n",
            "#cloud-config\n{}\n",
            "#cloud-config\nusers:\n",
        ] {
            assert_eq!(parse(text), Parsed::default(), "{text}");
        }
    }
}
