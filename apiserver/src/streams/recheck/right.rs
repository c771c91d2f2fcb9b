//! What streams share a re-check by: who, and what they may do.

use apiserver_generic::{Attributes, UserInfo};

/// The id of the very token that a request came with (`k8s.io/apiserver/pkg/authentication/serviceaccount`).
/// Every token has another, and no authorizer decides by it.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// A user, and what they must be allowed for their streams to go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Right {
    user: UserInfo,
    permissions: Vec<Attributes>,
}

impl Right {
    /// Of this user, whatever credential they came with.
    pub fn new(user: &UserInfo, permissions: Vec<Attributes>) -> Self {
        let mut user = user.clone();
        user.extra.remove(CREDENTIAL_ID);
        Self { user, permissions }
    }

    /// Who.
    pub fn user(&self) -> &UserInfo {
        &self.user
    }

    /// What; all of it is needed.
    pub fn permissions(&self) -> &[Attributes] {
        &self.permissions
    }

    /// In which namespace.
    pub fn namespace(&self) -> &str {
        let first = self.permissions.first();
        first.map(|a| a.namespace.as_str()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_one_user_share_and_scopes_do_not() {
        let user = |key: &str, value: &str| UserInfo {
            name: "jane".into(),
            extra: [(key.to_owned(), vec![value.to_owned()])].into(),
            ..UserInfo::default()
        };
        let right = |user: &UserInfo| Right::new(user, vec![Attributes::default()]);
        let (one, two) = (user(CREDENTIAL_ID, "JTI=1"), user(CREDENTIAL_ID, "JTI=2"));
        assert_eq!(right(&one), right(&two));
        assert!(right(&one).user().extra.is_empty());
        let (a, b) = (user("scopes", "a"), user("scopes", "b"));
        assert_ne!(right(&a), right(&b));
    }
}
