//! The one place where errors become a `metav1.Status`.
//!
//! An [`ApiError`] carries two messages: what the caller may read, and what only our log may say.
//! Reasons and codes follow `k8s.io/apimachinery/pkg/api/errors/errors.go`.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

/// Machine-readable reason of a failure, with the HTTP code that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 400: the request itself is wrong and will never succeed as it is.
    BadRequest,
    /// 401: who the caller is could not be established.
    Unauthorized,
    /// 403: the caller is known and may not do this.
    Forbidden,
    /// 404: the object or path does not exist.
    NotFound,
    /// 405: the resource does not support the verb.
    MethodNotAllowed,
    /// 406: none of the accepted media types can be produced.
    NotAcceptable,
    /// 409: an object of that name exists.
    AlreadyExists,
    /// 409: the object changed, or its state forbids the request.
    Conflict,
    /// 410: the resourceVersion asked for is no longer kept.
    Expired,
    /// 413: the body is larger than the limit.
    RequestEntityTooLarge,
    /// 415: the body's media type is not understood.
    UnsupportedMediaType,
    /// 422: the object was understood and is not valid.
    Invalid,
    /// 429: come back later.
    TooManyRequests,
    /// 431: the request's headers are larger than the limit.
    RequestHeaderFieldsTooLarge,
    /// 500: our fault.
    InternalError,
    /// 502: what we passed a request on to gave no answer that can be passed back.
    BadGateway,
    /// 503: something we need is away.
    ServiceUnavailable,
    /// 504: it took too long.
    Timeout,
}

impl Reason {
    /// The HTTP status code that kube-apiserver sends with this reason.
    pub fn code(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::AlreadyExists | Self::Conflict => StatusCode::CONFLICT,
            Self::Expired => StatusCode::GONE,
            Self::RequestEntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::RequestHeaderFieldsTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::InternalError => StatusCode::INTERNAL_SERVER_ERROR,
            Self::BadGateway => StatusCode::BAD_GATEWAY,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The word that goes into `status.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Expired => "Expired",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::RequestHeaderFieldsTooLarge => "RequestHeaderFieldsTooLarge",
            Self::InternalError => "InternalError",
            Self::BadGateway => "BadGateway",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
        }
    }
}

/// One entry of `status.details.causes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, `SessionHeld` and the like.
    pub reason: String,
    /// What is wrong, in words.
    pub message: String,
    /// Path of the field, as `spec.template.spec.containers[0].image`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What an object-related failure is about: `status.details`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// API group.
    pub group: String,
    /// Kind for `Invalid`, resource otherwise, as kube-apiserver does it.
    pub kind: String,
    /// UID, where it matters (preconditions).
    pub uid: String,
    /// Single problems.
    pub causes: Vec<Cause>,
    /// Also sent as `Retry-After`.
    pub retry_after_seconds: Option<u32>,
}

/// A failure on its way to the caller.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {message}", reason.as_str())]
pub struct ApiError {
    /// Reason and code.
    pub reason: Reason,
    /// What the caller reads.
    pub message: String,
    /// `status.details`, boxed to keep results small.
    pub details: Option<Box<Details>>,
    /// What only our log says (never sent).
    pub internal: Option<String>,
    /// `metadata.continue` of a 410 that can go on inconsistently.
    pub continue_token: Option<String>,
}

impl ApiError {
    /// An error without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            details: None,
            internal: None,
            continue_token: None,
        }
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 404 for a named object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            Reason::NotFound,
            format!("{} \"{name}\" not found", qualified(group, resource)),
        )
        .about(group, resource, name)
    }

    /// 409 for a name that is taken.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            Reason::AlreadyExists,
            format!("{} \"{name}\" already exists", qualified(group, resource)),
        )
        .about(group, resource, name)
    }

    /// 409 for an object whose state forbids the request.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        Self::new(
            Reason::Conflict,
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                qualified(group, resource)
            ),
        )
        .about(group, resource, name)
    }

    /// 422 with causes; `kind` is the Kind, as in `Workspace.kubeworkspaces.io "x" is invalid: …`.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let list: Vec<String> = causes
            .iter()
            .map(|c| format!("{}: {}", c.field, c.message))
            .collect();
        let text = match list.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(
            Reason::Invalid,
            format!("{} \"{name}\" is invalid: {text}", qualified(group, kind)),
        )
        .about(group, kind, name);
        error.details_mut().causes = causes;
        error
    }

    /// 500; the inside message goes to the log only.
    pub fn internal(inside: impl std::fmt::Display) -> Self {
        let mut error = Self::new(
            Reason::InternalError,
            "Internal error occurred: the request could not be completed; the server's log has the cause",
        );
        error.internal = Some(inside.to_string());
        error
    }

    /// Sets what the failure is about.
    #[must_use]
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details_mut();
        details.group = group.to_owned();
        details.kind = kind.to_owned();
        details.name = name.to_owned();
        self
    }

    /// Adds a cause.
    #[must_use]
    pub fn cause(mut self, reason: &str, message: impl Into<String>, field: &str) -> Self {
        self.details_mut().causes.push(Cause {
            reason: reason.to_owned(),
            message: message.into(),
            field: field.to_owned(),
        });
        self
    }

    /// Tells the caller when to come back.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details_mut().retry_after_seconds = Some(seconds);
        self
    }

    /// Adds what only the log says.
    #[must_use]
    pub fn because(mut self, inside: impl std::fmt::Display) -> Self {
        self.internal = Some(inside.to_string());
        self
    }

    /// The `metav1.Status` document.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.message, "reason": self.reason.as_str(),
            "code": self.reason.code().as_u16(),
        });
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_json();
        }
        status
    }

    fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_with(Box::default)
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut out = serde_json::Map::new();
        for (key, value) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !value.is_empty() {
                out.insert(key.to_owned(), json!(value));
            }
        }
        if !self.causes.is_empty() {
            out.insert("causes".to_owned(), json!(self.causes));
        }
        if let Some(seconds) = self.retry_after_seconds {
            out.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        Value::Object(out)
    }
}

/// `workspaces.kubeworkspaces.io`, or the bare word for the core group.
pub fn qualified(group: &str, word: &str) -> String {
    if group.is_empty() {
        word.to_owned()
    } else {
        format!("{word}.{group}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_lists_its_causes_as_kube_apiserver_does() {
        let cause = |f: &str| Cause {
            reason: "FieldValueRequired".into(),
            message: "Required value".into(),
            field: f.into(),
        };
        let one = ApiError::invalid("g.io", "Kind", "x", vec![cause("spec.a")]);
        assert_eq!(
            one.message,
            "Kind.g.io \"x\" is invalid: spec.a: Required value"
        );
        let two = ApiError::invalid("g.io", "Kind", "x", vec![cause("spec.a"), cause("spec.b")]);
        assert!(
            two.message
                .ends_with("[spec.a: Required value, spec.b: Required value]")
        );
        assert_eq!(two.to_status()["details"]["causes"][1]["field"], "spec.b");
        assert_eq!(two.to_status()["code"], 422);
    }

    #[test]
    fn the_inside_message_is_never_sent() {
        let error = ApiError::internal("password=hunter2");
        assert!(!error.to_status().to_string().contains("hunter2"));
    }
}
