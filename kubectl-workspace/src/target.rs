//! Which workspace is meant: `NAME`, `NAME/NAMESPACE`, or `NAME -n NAMESPACE`. Dots never split a name.
//! Entry points: [`Typed`], [`Login`].

use std::fmt;

/// A workspace in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// What was typed, before the kubeconfig says which namespace is the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    name: String,
    namespace: Option<String>,
}

/// Why an argument names no workspace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Empty, or more than one slash.
    #[error("{0:?} is not NAME or NAME/NAMESPACE")]
    Form(String),
    /// Not a name that the API has.
    #[error(
        "{0:?} is not a name: names have lower case letters, digits, - and ., and at most 63 characters"
    )]
    Name(String),
    /// Not a user.
    #[error("{0:?} is not the name of a user")]
    User(String),
    /// Two different namespaces.
    #[error("{argument:?} and --namespace {flag:?} name two namespaces: give one of them")]
    TwoNamespaces {
        /// In the argument.
        argument: String,
        /// In the flag.
        flag: String,
    },
}

impl std::str::FromStr for Typed {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (name, namespace) = match text.split('/').collect::<Vec<_>>().as_slice() {
            [name] => (checked(name)?, None),
            [name, namespace] => (checked(name)?, Some(checked(namespace)?)),
            _ => return Err(TargetError::Form(text.to_owned())),
        };
        Ok(Self { name, namespace })
    }
}

/// A name must not change the path of a request, so it is checked here before the server sees it.
fn checked(name: &str) -> Result<String, TargetError> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = [name.chars().next(), name.chars().last()];
    let closed = ends
        .iter()
        .all(|c| c.is_some_and(|c| c.is_ascii_alphanumeric()));
    if closed && name.len() <= 63 && name.chars().all(inner) && !name.contains("..") {
        return Ok(name.to_owned());
    }
    Err(TargetError::Name(name.to_owned()))
}

/// The namespace of commands without a workspace: `-n`, or the kubeconfig's.
pub fn namespace(flag: Option<&str>, default: &str) -> Result<String, TargetError> {
    flag.map_or_else(|| Ok(default.to_owned()), checked)
}

/// `[USER@]NAME[/NAMESPACE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Who logs in, when that is said.
    pub user: Option<String>,
    /// The workspace.
    pub workspace: Typed,
}

impl std::str::FromStr for Login {
    type Err = TargetError;

    /// Users may have an `@` of their own, workspaces cannot.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (user, workspace) = match text.rsplit_once('@') {
            Some((user, workspace)) => (Some(user_name(user)?), workspace),
            None => (None, text),
        };
        let workspace = workspace.parse()?;
        Ok(Self { user, workspace })
    }
}

/// A user becomes an argument of ssh and must not be read as an option.
pub fn user_name(user: &str) -> Result<String, TargetError> {
    if user.is_empty() || user.starts_with('-') || user.chars().any(char::is_control) {
        return Err(TargetError::User(user.to_owned()));
    }
    Ok(user.to_owned())
}

impl Typed {
    /// The workspace, with `flag` (`-n`) before `default` (the kubeconfig's).
    pub fn resolve(self, flag: Option<&str>, default: &str) -> Result<Target, TargetError> {
        let Self { name, namespace } = self;
        let namespace = match (namespace, flag) {
            (Some(argument), Some(flag)) if argument != flag => {
                return Err(TargetError::TwoNamespaces {
                    argument,
                    flag: flag.to_owned(),
                });
            }
            (Some(argument), _) => argument,
            (None, flag) => self::namespace(flag, default)?,
        };
        Ok(Target { name, namespace })
    }
}

/// Path of the API.
const API: &str = "/apis/kubeworkspaces.io/v1alpha1";

/// Path of all objects of a resource, in a namespace or everywhere.
pub fn collection(resource: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{API}/namespaces/{namespace}/{resource}"),
        None => format!("{API}/{resource}"),
    }
}

impl Target {
    /// Path of the workspace in the API.
    pub fn path(&self) -> String {
        let workspaces = collection("workspaces", Some(&self.namespace));
        format!("{workspaces}/{}", self.name)
    }

    /// `kubectl workspace COMMAND NAME -n NAMESPACE`, for messages.
    pub fn command(&self, command: &str) -> String {
        let Self { name, namespace } = self;
        format!("kubectl workspace {command} {name} -n {namespace}")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_stands_before_the_last_at_sign() {
        let cases = [
            ("demo", None, "demo/home"),
            ("ann@demo", Some("ann"), "demo/home"),
            (
                "ann@x.org@rhel9.arm64/t1",
                Some("ann@x.org"),
                "rhel9.arm64/t1",
            ),
        ];
        for (text, user, workspace) in cases {
            let login: Login = text.parse().unwrap();
            assert_eq!(login.user.as_deref(), user, "{text}");
            let target = login.workspace.resolve(None, "home").unwrap();
            assert_eq!(target.to_string(), workspace, "{text}");
        }
        for text in ["@demo", "-l@demo", "a\nb@demo", "ann@"] {
            assert!(text.parse::<Login>().is_err(), "{text:?}");
        }
    }

    fn target(text: &str, flag: Option<&str>) -> Result<String, TargetError> {
        let typed: Typed = text.parse()?;
        Ok(typed.resolve(flag, "home")?.to_string())
    }

    #[test]
    fn the_named_workspace_in_the_named_namespace() {
        let cases = [
            ("demo", None, "demo/home"),
            ("demo", Some("t1"), "demo/t1"),
            ("demo/t1", None, "demo/t1"),
            ("demo/t1", Some("t1"), "demo/t1"),
            ("rhel9.arm64", Some("t1"), "rhel9.arm64/t1"),
            ("rhel9.arm64", None, "rhel9.arm64/home"),
            ("rhel9.arm64/t1", None, "rhel9.arm64/t1"),
        ];
        for (text, flag, expected) in cases {
            assert_eq!(target(text, flag).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_is_no_name_never_becomes_a_path() {
        let long = "x".repeat(64);
        for text in [
            "", "/", "a/", "/a", "a/b/c", "../x", "a..b", "A", "a b", "a?x", "a%2f", "-a", "a-",
            &long,
        ] {
            assert!(target(text, None).is_err(), "{text:?}");
        }
        assert!(target("a", Some("../b")).is_err());
        assert!(matches!(
            target("a/b", Some("c")),
            Err(TargetError::TwoNamespaces { .. })
        ));
    }
}
