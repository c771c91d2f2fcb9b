//! Accounts as text: passwd(5), shadow(5) and group(5), edited as functions, since busybox-static has no `adduser`.
//!
//! Entry points: [`add`], [`set_hash`], [`Entry::find`].

use super::plan::Account;

/// First user and group id that is given out.
const FIRST_ID: u32 = 1000;

/// The three files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accounts {
    /// `/etc/passwd`.
    pub passwd: String,
    /// `/etc/shadow`.
    pub shadow: String,
    /// `/etc/group`.
    pub group: String,
}

/// What is needed of a line of passwd(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Home directory.
    pub home: String,
}

/// Why an account cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// A field would break its line.
    #[error("a home directory or shell has a colon or a new line in it")]
    Field,
    /// The id is somebody else's.
    #[error("user id {0} is taken")]
    TakenId(u32),
    /// Nobody of that name.
    #[error("there is no user {0}")]
    NoUser(String),
}

impl Entry {
    /// The line of `user`.
    pub fn find(passwd: &str, user: &str) -> Option<Self> {
        passwd.lines().find_map(|line| {
            Self::parse(line)
                .filter(|(name, _)| *name == user)
                .map(|(_, entry)| entry)
        })
    }

    /// name:password:uid:gid:gecos:home:shell
    fn parse(line: &str) -> Option<(&str, Self)> {
        match line.split(':').collect::<Vec<_>>().as_slice() {
            [name, _, uid, gid, _, home, _] => Some((
                name,
                Self {
                    uid: uid.parse().ok()?,
                    gid: gid.parse().ok()?,
                    home: (*home).to_owned(),
                },
            )),
            _ => None,
        }
    }
}

/// Adds an account with a locked password and a group of its own; `None` when it is there already.
pub fn add(
    before: &Accounts,
    account: &Account,
) -> Result<Option<(Accounts, Entry)>, AccountError> {
    if Entry::find(&before.passwd, &account.name).is_some() {
        return Ok(None);
    }
    let name = &account.name;
    let home = account
        .home
        .clone()
        .unwrap_or_else(|| format!("/home/{name}"));
    if [&home, &account.shell]
        .iter()
        .any(|field| field.contains([':', '\n']))
    {
        return Err(AccountError::Field);
    }
    let id = free_id(&before.passwd, account.uid)?;
    let after = Accounts {
        passwd: with_line(
            &before.passwd,
            &format!("{name}:x:{id}:{id}:{name}:{home}:{}", account.shell),
        ),
        shadow: with_line(&before.shadow, &format!("{name}:!:0:0:99999:7:::")),
        group: with_line(&before.group, &format!("{name}:x:{id}:")),
    };
    Ok(Some((
        after,
        Entry {
            uid: id,
            gid: id,
            home,
        },
    )))
}

fn free_id(passwd: &str, wanted: Option<u32>) -> Result<u32, AccountError> {
    let taken: Vec<u32> = passwd
        .lines()
        .filter_map(|line| Some(Entry::parse(line)?.1.uid))
        .collect();
    match wanted {
        Some(id) if taken.contains(&id) => Err(AccountError::TakenId(id)),
        Some(id) => Ok(id),
        None => Ok((FIRST_ID..)
            .find(|id| !taken.contains(id))
            .unwrap_or(FIRST_ID)),
    }
}

/// shadow(5) with the password hash of `user` replaced.
pub fn set_hash(shadow: &str, user: &str, hash: &str) -> Result<String, AccountError> {
    if hash.contains([':', '\n']) {
        return Err(AccountError::Field);
    }
    let mut found = false;
    let mut lines = String::with_capacity(shadow.len() + hash.len());
    for line in shadow.lines() {
        match line.split_once(':') {
            Some((name, rest)) if name == user => {
                found = true;
                let after = rest
                    .split_once(':')
                    .map_or("0:0:99999:7:::", |(_, after)| after);
                lines.push_str(&format!("{name}:{hash}:{after}\n"));
            }
            _ => lines.push_str(&format!("{line}\n")),
        }
    }
    if found {
        Ok(lines)
    } else {
        Err(AccountError::NoUser(user.to_owned()))
    }
}

fn with_line(text: &str, line: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{text}{end}{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts {
            passwd: "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n".into(),
            shadow: "root:!:0:0:99999:7:::\nann:!:0:0:99999:7:::\n".into(),
            group: "root:x:0:\nann:x:1000:".into(),
        }
    }

    fn account(name: &str) -> Account {
        Account {
            name: name.into(),
            shell: "/bin/sh".into(),
            home: None,
            uid: None,
        }
    }

    #[test]
    fn a_new_account_has_the_next_id_and_no_password() {
        let (after, entry) = add(&accounts(), &account("bob")).unwrap().unwrap();
        assert!(
            after
                .passwd
                .ends_with("\nbob:x:1001:1001:bob:/home/bob:/bin/sh\n")
        );
        assert!(after.shadow.ends_with("\nbob:!:0:0:99999:7:::\n"));
        assert!(after.group.ends_with("ann:x:1000:\nbob:x:1001:\n"));
        assert_eq!(Entry::find(&after.passwd, "bob"), Some(entry));
    }

    #[test]
    fn an_account_that_is_there_stays_as_it_is() {
        assert_eq!(add(&accounts(), &account("ann")).unwrap(), None);
    }

    #[test]
    fn what_would_break_the_files_is_refused() {
        let bad_home = Account {
            home: Some("/a:0:0".into()),
            ..account("bob")
        };
        assert_eq!(add(&accounts(), &bad_home), Err(AccountError::Field));
        let root_again = Account {
            uid: Some(0),
            ..account("bob")
        };
        assert_eq!(add(&accounts(), &root_again), Err(AccountError::TakenId(0)));
        assert_eq!(
            set_hash("ann:!:::\n", "ann", "x\nroot:"),
            Err(AccountError::Field)
        );
        assert_eq!(
            set_hash("ann:!:::\n", "bob", "x"),
            Err(AccountError::NoUser("bob".into()))
        );
    }

    #[test]
    fn a_hash_replaces_the_old_one_alone() {
        let after = set_hash(&accounts().shadow, "ann", "$6$x").unwrap();
        assert_eq!(after, "root:!:0:0:99999:7:::\nann:$6$x:0:0:99999:7:::\n");
    }
}
