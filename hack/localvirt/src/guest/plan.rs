//! What to do with a cloud-config, in cloud-init's order, as a list of steps. Entry point: [`Plan::of`].

use super::cloud_config::{
    Chpasswd, CloudConfig, CommandLine, FileEntry, Lines, PasswordEntry, PasswordKind, User,
    UserEntry,
};

/// The default account's name, and its password when there is no NoCloud input at all.
pub const DEFAULT_USER: &str = "guest";

/// What to do, by the part of the boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// At every boot, before anything else.
    pub boot: Vec<CommandLine>,
    /// The host name, at every boot.
    pub hostname: Option<String>,
    /// On the first boot of an instance, before logins.
    pub first: Vec<Step>,
    /// On the first boot of an instance, after sshd is up.
    pub last: Vec<CommandLine>,
    /// Whether sshd takes passwords.
    pub ssh_passwords: bool,
    /// What is said on the console.
    pub complaints: Vec<String>,
}

/// One change of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make an account, or leave the one that is there.
    Account(Account),
    /// Set a password.
    Password(Password),
    /// Add keys.
    Keys {
        /// Whose.
        user: String,
        /// Which.
        keys: Vec<String>,
    },
    /// Write a file.
    File(FileEntry),
}

/// An account to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: String,
    /// Login shell.
    pub shell: String,
    /// Home directory.
    pub home: Option<String>,
    /// User id.
    pub uid: Option<u32>,
}

/// A password to set.
#[derive(Clone, PartialEq, Eq)]
pub struct Password {
    /// Whose.
    pub user: String,
    /// It, or its hash.
    pub value: String,
    /// Which of the two.
    pub hashed: bool,
}

/// Says whose and not what.
impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Password")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Plan {
    /// The plan for a document; `complaints` are those of its parser.
    pub fn of(config: CloudConfig, complaints: Vec<String>) -> Self {
        let default = config.user.clone().unwrap_or_else(|| DEFAULT_USER.into());
        let mut plan = Self {
            boot: config.bootcmd,
            hostname: config.hostname,
            last: config.runcmd,
            ssh_passwords: config.ssh_pwauth,
            complaints,
            first: Vec::new(),
        };
        let users = config
            .users
            .unwrap_or_else(|| vec![UserEntry::Name("default".into())]);
        let has_default = users
            .iter()
            .any(|u| matches!(u, UserEntry::Name(name) if name == "default"));
        for user in users {
            plan.user(user, &default);
        }
        plan.default_user(
            &default,
            has_default,
            config.password,
            config.ssh_authorized_keys,
        );
        plan.passwords(config.chpasswd);
        plan.first
            .extend(config.write_files.into_iter().map(Step::File));
        plan
    }

    /// The plan without any NoCloud input: an account that everybody knows, which sshd takes by key only.
    pub fn without_input() -> Self {
        let mut plan = Self::of(CloudConfig::default(), Vec::new());
        let password = Password {
            user: DEFAULT_USER.into(),
            value: DEFAULT_USER.into(),
            hashed: false,
        };
        plan.first.push(Step::Password(password));
        plan
    }

    fn user(&mut self, entry: UserEntry, default: &str) {
        let user = match entry {
            UserEntry::Name(name) if name == "default" => User {
                name: default.into(),
                ..User::default()
            },
            UserEntry::Name(name) => User {
                name,
                ..User::default()
            },
            UserEntry::Full(user) => *user,
        };
        if !is_login(&user.name) {
            return self
                .complaints
                .push(format!("{:?} is no login name, and is ignored", user.name));
        }
        let ignored: Vec<&str> = user
            .other
            .keys()
            .map(String::as_str)
            .filter(|k| *k != "gecos")
            .collect();
        if !ignored.is_empty() {
            self.complaints.push(format!(
                "user {}: this guest does not know {}",
                user.name,
                ignored.join(", ")
            ));
        }
        let User {
            name,
            passwd,
            plain_text_passwd,
            lock_passwd,
            ssh_authorized_keys,
            shell,
            homedir,
            uid,
            ..
        } = user;
        let shell = shell.unwrap_or_else(|| "/bin/sh".into());
        self.first.push(Step::Account(Account {
            name: name.clone(),
            shell,
            home: homedir,
            uid,
        }));
        if lock_passwd == Some(false) {
            let hashed = plain_text_passwd.is_none();
            if let Some(value) = plain_text_passwd.or(passwd) {
                self.first.push(Step::Password(Password {
                    user: name.clone(),
                    value,
                    hashed,
                }));
            }
        }
        self.keys(&name, ssh_authorized_keys);
    }

    fn default_user(
        &mut self,
        name: &str,
        exists: bool,
        password: Option<String>,
        keys: Vec<String>,
    ) {
        if !exists {
            if password.is_some() || !keys.is_empty() {
                self.complaints.push("password and ssh_authorized_keys are for the default user, whom users does not name".into());
            }
            return;
        }
        if let Some(value) = password {
            let hashed = is_hash(&value);
            self.first.push(Step::Password(Password {
                user: name.into(),
                value,
                hashed,
            }));
        }
        self.keys(name, keys);
    }

    fn keys(&mut self, user: &str, keys: Vec<String>) {
        if !keys.is_empty() {
            self.first.push(Step::Keys {
                user: user.into(),
                keys,
            });
        }
    }

    fn passwords(&mut self, chpasswd: Chpasswd) {
        let lines = match chpasswd.list {
            Lines::Text(text) => text.lines().map(str::to_owned).collect(),
            Lines::List(lines) => lines,
        };
        for line in lines.iter().filter(|line| !line.trim().is_empty()) {
            match line.split_once(':') {
                Some((user, value)) => {
                    let kind = if is_hash(value) {
                        PasswordKind::Hash
                    } else {
                        PasswordKind::Text
                    };
                    self.password(PasswordEntry {
                        name: user.into(),
                        password: Some(value.into()),
                        kind,
                    });
                }
                None => self
                    .complaints
                    .push("chpasswd.list has a line without a colon, which is ignored".into()),
            }
        }
        for entry in chpasswd.users {
            self.password(entry);
        }
    }

    fn password(&mut self, entry: PasswordEntry) {
        let PasswordEntry {
            name: user,
            password,
            kind,
        } = entry;
        let made_up =
            matches!(password.as_deref(), Some("R" | "RANDOM")) || kind == PasswordKind::Random;
        match password {
            _ if made_up => self
                .complaints
                .push(format!("{user}: this guest makes up no passwords")),
            None => self
                .complaints
                .push(format!("chpasswd: {user} has no password")),
            Some(value) => {
                self.first.push(Step::Password(Password {
                    user,
                    value,
                    hashed: kind == PasswordKind::Hash,
                }));
            }
        }
    }
}

/// cloud-init takes these for hashes in `list` and `password`.
fn is_hash(value: &str) -> bool {
    ["$1$", "$2a$", "$2y$", "$5$", "$6$", "$y$"]
        .iter()
        .any(|prefix| value.starts_with(prefix))
}

/// A name that is safe as an argument, in passwd(5) and as a directory.
fn is_login(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    first
        && name.len() <= 32
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::super::cloud_config::parse;
    use super::*;

    fn plan(yaml: &str) -> Plan {
        let parsed = parse(yaml);
        Plan::of(parsed.config, parsed.complaints)
    }

    fn account(name: &str) -> Step {
        Step::Account(Account {
            name: name.into(),
            shell: "/bin/sh".into(),
            home: None,
            uid: None,
        })
    }

    fn password(user: &str, value: &str, hashed: bool) -> Step {
        Step::Password(Password {
            user: user.into(),
            value: value.into(),
            hashed,
        })
    }

    #[test]
    fn accounts_passwords_and_keys_follow_cloud_inits_rules() {
        let keys = |user: &str| Step::Keys {
            user: user.into(),
            keys: vec!["k".into()],
        };
        let cases: &[(&str, Vec<Step>)] = &[
            ("{}", vec![account("guest")]),
            ("{users: []}", vec![]),
            (
                "{user: boss, password: x, ssh_authorized_keys: [k]}",
                vec![account("boss"), password("boss", "x", false), keys("boss")],
            ),
            (
                "{users: [default, ann]}",
                vec![account("guest"), account("ann")],
            ),
            (
                "{users: [{name: ann, passwd: $6$x, lock_passwd: false}]}",
                vec![account("ann"), password("ann", "$6$x", true)],
            ),
            (
                "{users: [{name: ann, plain_text_passwd: x}]}",
                vec![account("ann")],
            ),
            (
                "{users: [{name: ann, ssh_authorized_keys: [k]}]}",
                vec![account("ann"), keys("ann")],
            ),
            (
                "{users: [], chpasswd: {list: ['root:a:b', 'ann:$6$h']}}",
                vec![
                    password("root", "a:b", false),
                    password("ann", "$6$h", true),
                ],
            ),
            (
                "{users: [], chpasswd: {users: [{name: ann, password: x, type: text}]}}",
                vec![password("ann", "x", false)],
            ),
            (
                "{password: $6$h}",
                vec![account("guest"), password("guest", "$6$h", true)],
            ),
        ];
        for (yaml, expected) in cases {
            let plan = plan(yaml);
            assert_eq!(&plan.first, expected, "{yaml}");
            assert_eq!(plan.complaints, Vec::<String>::new(), "{yaml}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let cases = [
            (
                "{users: [{name: ann, sudo: ALL}]}",
                "user ann: this guest does not know sudo",
            ),
            ("{users: ['-x']}", "is no login name"),
            ("{users: ['a/../b']}", "is no login name"),
            ("{users: [], password: x}", "for the default user"),
            ("{chpasswd: {list: 'ann'}}", "without a colon"),
            ("{chpasswd: {list: 'ann:RANDOM'}}", "makes up no passwords"),
            ("{chpasswd: {users: [{name: ann}]}}", "has no password"),
        ];
        for (yaml, words) in cases {
            let complaints = plan(yaml).complaints;
            assert!(
                complaints.iter().any(|c| c.contains(words)),
                "{yaml}: {complaints:?}"
            );
        }
    }

    #[test]
    fn without_input_there_is_the_documented_account_and_no_password_over_ssh() {
        let plan = Plan::without_input();
        assert_eq!(
            plan.first,
            [account("guest"), password("guest", "guest", false)]
        );
        assert!(!plan.ssh_passwords);
    }

    #[test]
    fn debug_output_has_no_password() {
        assert!(!format!("{:?}", password("ann", "hunter2", false)).contains("hunter2"));
    }
}
