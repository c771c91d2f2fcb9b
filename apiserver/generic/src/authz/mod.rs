//! What a caller may do: a decision per request, and a value that proves it was taken.

use async_trait::async_trait;

use crate::{ApiError, UserInfo, selector::Selectors};

mod delegating;
mod review;

pub use delegating::{Delegating, PathRule};
pub use review::{ReviewConfig, SubjectAccessReviews};

/// What a request wants, in the words of RBAC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// `get`, `list`, `create`, …; for a non-resource request the lower-case method.
    pub verb: String,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource, else empty.
    pub subresource: String,
    /// Namespace, else empty.
    pub namespace: String,
    /// Object name, else empty.
    pub name: String,
    /// Path of a non-resource request; empty for a resource request.
    pub path: String,
    /// Selectors of list, watch and deletecollection.
    pub selectors: Selectors,
}

/// The proof that somebody was allowed to do something. Only [`authorize`] makes one.
#[derive(Clone, Debug)]
pub struct Authorized {
    user: UserInfo,
    attributes: Attributes,
}

impl Authorized {
    /// Who was allowed.
    pub fn user(&self) -> &UserInfo {
        &self.user
    }

    /// What was allowed.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}

/// An authorizer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow,
    /// No, with a reason for the message (may be empty).
    Deny(String),
}

/// Answers whether a user may do something.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// # Errors
    /// When no answer could be had (the review failed): the request ends with 500, never with 403.
    async fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError>;

    /// Decides without any cached answer: for streams that ask again whether they may go on.
    ///
    /// # Errors
    /// As [`decide`](Self::decide). A failure is no denial.
    async fn recheck(
        &self,
        user: &UserInfo,
        attributes: &Attributes,
    ) -> Result<Decision, ApiError> {
        self.decide(user, attributes).await
    }
}

/// Asks the authorizer and turns its yes into a value that handlers must be given.
///
/// # Errors
/// 403 with kube-apiserver's own sentence, or what the authorizer failed with.
pub async fn authorize(
    authorizer: &dyn Authorizer,
    user: &UserInfo,
    attributes: Attributes,
) -> Result<Authorized, ApiError> {
    match authorizer.decide(user, &attributes).await? {
        Decision::Allow => Ok(Authorized {
            user: user.clone(),
            attributes,
        }),
        Decision::Deny(reason) => Err(forbidden(user, &attributes, &reason)),
    }
}

/// Everything is allowed: for our own controller, which writes in process through the same
/// strategies as REST. Give it only to code that acts for the server itself.
#[derive(Clone, Copy, Debug)]
pub struct Loopback;

#[async_trait]
impl Authorizer for Loopback {
    async fn decide(&self, _: &UserInfo, _: &Attributes) -> Result<Decision, ApiError> {
        Ok(Decision::Allow)
    }
}

/// 403 in kube-apiserver's words (`endpoints/handlers/responsewriters/errors.go`).
pub fn forbidden(user: &UserInfo, a: &Attributes, reason: &str) -> ApiError {
    let reason = if reason.is_empty() {
        String::new()
    } else {
        format!(": {reason}")
    };
    if !a.path.is_empty() {
        let text = format!(
            "forbidden: User \"{}\" cannot {} path \"{}\"{reason}",
            user.name, a.verb, a.path
        );
        return ApiError::new(crate::Reason::Forbidden, text);
    }
    let resource = match a.subresource.as_str() {
        "" => a.resource.clone(),
        sub => format!("{}/{sub}", a.resource),
    };
    let place = match a.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        ns => format!("in the namespace \"{ns}\""),
    };
    let what = crate::status::qualified(&a.group, &a.resource);
    let subject = if a.name.is_empty() {
        what
    } else {
        format!("{what} \"{}\"", a.name)
    };
    let text = format!(
        "{subject} is forbidden: User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {place}{reason}",
        user.name, a.verb, a.group
    );
    ApiError::new(crate::Reason::Forbidden, text).about(&a.group, &a.resource, &a.name)
}
