//! The order in which a question is answered: members of trusted groups, paths that are open to
//! all, and then the review.
//!
//! Follows `k8s.io/apiserver/pkg/server/options/authorization.go`.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Authorizer, Decision};
use crate::{ApiError, UserInfo};

/// A path that everybody may read: exact, or a prefix when it ends in `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule(String);

impl PathRule {
    /// Takes `/healthz` or `/healthz/*`.
    ///
    /// # Errors
    /// When the path does not start with a slash or has a `*` elsewhere than at its end.
    pub fn parse(text: &str) -> Result<Self, String> {
        let stem = text.strip_suffix('*').unwrap_or(text);
        if !stem.starts_with('/') || stem.contains('*') {
            return Err(format!(
                "{text:?} is no path: it must begin with / and may have a * only at its end"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    fn covers(&self, path: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == self.0,
        }
    }
}

/// Trusted groups, open paths, then another authorizer.
pub struct Delegating {
    groups: Vec<String>,
    paths: Vec<PathRule>,
    next: Arc<dyn Authorizer>,
}

impl Delegating {
    /// `system:masters` may do everything, `paths` are open to all, `next` decides the rest.
    pub fn new(paths: Vec<PathRule>, next: Arc<dyn Authorizer>) -> Self {
        Self {
            groups: vec!["system:masters".to_owned()],
            paths,
            next,
        }
    }

    /// What can be said without asking anybody.
    fn at_once(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        let trusted = user.groups.iter().any(|g| self.groups.contains(g));
        let path = &attributes.path;
        trusted || (!path.is_empty() && self.paths.iter().any(|rule| rule.covers(path)))
    }
}

#[async_trait]
impl Authorizer for Delegating {
    async fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        if self.at_once(user, attributes) {
            return Ok(Decision::Allow);
        }
        self.next.decide(user, attributes).await
    }

    async fn recheck(
        &self,
        user: &UserInfo,
        attributes: &Attributes,
    ) -> Result<Decision, ApiError> {
        if self.at_once(user, attributes) {
            return Ok(Decision::Allow);
        }
        self.next.recheck(user, attributes).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Never;

    #[async_trait]
    impl Authorizer for Never {
        async fn decide(&self, _: &UserInfo, _: &Attributes) -> Result<Decision, ApiError> {
            Ok(Decision::Deny(String::new()))
        }
    }

    #[tokio::test]
    async fn masters_and_open_paths_are_allowed_at_once_and_nothing_else() {
        let rules = ["/healthz", "/readyz", "/open/*"].map(|p| PathRule::parse(p).unwrap());
        let authorizer = Delegating::new(rules.into(), Arc::new(Never));
        for (group, path, allowed) in [
            ("system:masters", "/metrics", true),
            ("system:masters", "", true),
            ("dev", "/healthz", true),
            ("dev", "/readyz", true),
            ("dev", "/open/a", true),
            ("dev", "/healthz/ping", false),
            ("dev", "/metrics", false),
            ("dev", "", false),
        ] {
            let user = UserInfo {
                groups: vec![group.into()],
                ..UserInfo::default()
            };
            let attributes = Attributes {
                path: path.into(),
                ..Attributes::default()
            };
            let decision = authorizer.decide(&user, &attributes).await.unwrap();
            assert_eq!(decision == Decision::Allow, allowed, "{group} {path}");
            let again = authorizer.recheck(&user, &attributes).await.unwrap();
            assert_eq!(again, decision);
        }
    }

    #[test]
    fn a_rule_is_a_path_with_a_star_at_most_at_its_end() {
        for (text, good) in [
            ("/a", true),
            ("/a/*", true),
            ("*", false),
            ("a", false),
            ("/*/b", false),
            ("", false),
        ] {
            assert_eq!(PathRule::parse(text).is_ok(), good, "{text}");
        }
    }
}
