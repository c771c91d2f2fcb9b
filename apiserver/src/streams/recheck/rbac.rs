//! Whom a change of RBAC touches. Pure: objects go in, subjects come out.
//!
//! After `k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/subject_locator.go`, backwards: from a role
//! to the bindings that grant it, and from a binding to its subjects. It only says who is to be asked
//! for again, so that a subject too many costs a review and a subject too few 30 s.

use std::collections::{BTreeMap, BTreeSet};

use super::right::Right;

/// A role: its namespace, none for a ClusterRole, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleKey {
    /// Namespace.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// Whom a binding names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A user; ServiceAccounts under their user name.
    User(String),
    /// A group.
    Group(String),
}

/// A RoleBinding or ClusterRoleBinding, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// What it grants.
    pub role: RoleKey,
    /// To whom.
    pub subjects: BTreeSet<Subject>,
}

/// Address of a binding; without a namespace a ClusterRoleBinding.
pub type BindingKey = (Option<String>, String);

/// Who must be asked for again: subjects by the namespace in which something changed for them; `None`
/// is every namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched(BTreeMap<Option<String>, BTreeSet<Subject>>);

impl Touched {
    /// Whether a right may depend on what changed.
    pub fn covers(&self, right: &Right) -> bool {
        let user = right.user();
        let named = |subject: &Subject| match subject {
            Subject::User(name) => *name == user.name,
            Subject::Group(name) => user.groups.contains(name),
        };
        let here = |namespace: &Option<String>| {
            namespace
                .as_deref()
                .is_none_or(|namespace| namespace == right.namespace())
        };
        self.0
            .iter()
            .any(|(namespace, subjects)| here(namespace) && subjects.iter().any(named))
    }

    /// Whether nobody is touched.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(BTreeSet::is_empty)
    }

    fn add(&mut self, namespace: &Option<String>, binding: &Binding) {
        let subjects = self.0.entry(namespace.clone()).or_default();
        subjects.extend(binding.subjects.iter().cloned());
    }
}

/// All bindings of the cluster.
#[derive(Debug, Default)]
pub struct Bindings {
    map: BTreeMap<BindingKey, Binding>,
}

impl Bindings {
    /// A binding is new, or has changed.
    pub fn put(&mut self, key: BindingKey, binding: Binding) -> Touched {
        let mut touched = Touched::default();
        let old = self.map.get(&key);
        if old == Some(&binding) {
            return touched;
        }
        if let Some(old) = old {
            touched.add(&key.0, old);
        }
        touched.add(&key.0, &binding);
        self.map.insert(key, binding);
        touched
    }

    /// A binding is gone.
    pub fn remove(&mut self, key: &BindingKey) -> Touched {
        let mut touched = Touched::default();
        if let Some(old) = self.map.remove(key) {
            touched.add(&key.0, &old);
        }
        touched
    }

    /// A role has changed, come or gone.
    pub fn role_changed(&self, role: &RoleKey) -> Touched {
        let mut touched = Touched::default();
        for ((namespace, _), binding) in &self.map {
            if binding.role == *role {
                touched.add(namespace, binding);
            }
        }
        touched
    }

    /// The addresses of all bindings, or of those with (without) a namespace.
    pub fn keys(&self, namespaced: bool) -> BTreeSet<BindingKey> {
        let keys = self.map.keys();
        keys.filter(|(namespace, _)| namespace.is_some() == namespaced)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use apiserver_generic::{Attributes, UserInfo};

    use super::*;

    fn right(name: &str, groups: &[&str], namespace: &str) -> Right {
        let user = UserInfo {
            name: name.into(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..UserInfo::default()
        };
        let attributes = Attributes {
            namespace: namespace.into(),
            ..Attributes::default()
        };
        Right::new(&user, vec![attributes])
    }

    fn binding(namespace: Option<&str>, role: &str, subjects: &[Subject]) -> Binding {
        Binding {
            role: RoleKey {
                namespace: namespace.map(str::to_owned),
                name: role.into(),
            },
            subjects: subjects.iter().cloned().collect(),
        }
    }

    fn key(namespace: Option<&str>, name: &str) -> BindingKey {
        (namespace.map(str::to_owned), name.to_owned())
    }

    #[test]
    fn a_binding_touches_those_it_names_in_its_namespace() {
        let mut bindings = Bindings::default();
        let jane = Subject::User("jane".into());
        let devs = Subject::Group("devs".into());
        let named = binding(None, "edit", &[jane.clone(), devs.clone()]);
        let touched = bindings.put(key(Some("t1"), "b"), named.clone());
        for (right, expected) in [
            (right("jane", &[], "t1"), true),
            (right("joe", &["x", "devs"], "t1"), true),
            (right("joe", &[], "t1"), false),
            (right("devs", &[], "t1"), false),
            (right("jane", &[], "t2"), false),
        ] {
            assert_eq!(touched.covers(&right), expected, "{right:?}");
        }
        let again = bindings.put(key(Some("t1"), "b"), named);
        assert!(again.is_empty(), "a re-list changes nothing");
        // Who is taken out of a binding is touched as much as who is left in it.
        let less = bindings.put(key(Some("t1"), "b"), binding(None, "edit", &[devs]));
        assert!(less.covers(&right("jane", &[], "t1")));
        let gone = bindings.remove(&key(Some("t1"), "b"));
        assert!(gone.covers(&right("x", &["devs"], "t1")));
        assert!(!gone.covers(&right("jane", &[], "t1")));
        assert!(bindings.remove(&key(Some("t1"), "b")).is_empty());
    }

    #[test]
    fn a_cluster_wide_binding_touches_its_subjects_everywhere() {
        let mut bindings = Bindings::default();
        let robot = Subject::User("system:serviceaccount:ci:robot".into());
        let touched = bindings.put(key(None, "b"), binding(None, "edit", &[robot]));
        assert!(touched.covers(&right("system:serviceaccount:ci:robot", &[], "any")));
    }

    #[test]
    fn a_role_touches_whom_it_is_bound_to_and_nobody_else() {
        let mut bindings = Bindings::default();
        let user = |name: &str| [Subject::User(name.into())];
        bindings.put(key(Some("t1"), "a"), binding(None, "edit", &user("jane")));
        bindings.put(key(None, "b"), binding(None, "edit", &user("joe")));
        bindings.put(
            key(Some("t1"), "c"),
            binding(Some("t1"), "edit", &user("jim")),
        );
        let cluster = bindings.role_changed(&RoleKey {
            namespace: None,
            name: "edit".into(),
        });
        assert!(cluster.covers(&right("jane", &[], "t1")));
        assert!(!cluster.covers(&right("jane", &[], "t2")));
        assert!(cluster.covers(&right("joe", &[], "t2")));
        assert!(!cluster.covers(&right("jim", &[], "t1")));
        let local = bindings.role_changed(&RoleKey {
            namespace: Some("t1".into()),
            name: "edit".into(),
        });
        assert!(local.covers(&right("jim", &[], "t1")));
        assert!(!local.covers(&right("jane", &[], "t1")));
    }
}
