//! Answers and their shapes: an empty success, a `metav1.Status`, or bare text, each where KubeVirt sends it.

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use http_body_util::Full;
use serde::Serialize as _;
use serde_json::{Value, json};

/// Every body here is whole.
pub type Reply = Response<Full<Bytes>>;

/// Which object a failure is about. KubeVirt names the kind in the singular, with its own group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `virtualmachine.kubevirt.io`.
    Machine,
    /// `virtualmachineinstance.kubevirt.io`.
    Instance,
}

impl Kind {
    /// The word in messages and details.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "virtualmachine",
            Self::Instance => "virtualmachineinstance",
        }
    }
}

/// A failure on its way to the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// 404.
    #[error("{}.kubevirt.io {name:?} not found", kind.as_str())]
    NotFound {
        /// Of what.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// 409: its state forbids the request.
    #[error("Operation cannot be fulfilled on {}.kubevirt.io {name:?}: {text}", kind.as_str())]
    Conflict {
        /// Of what.
        kind: Kind,
        /// Its name.
        name: String,
        /// Why.
        text: String,
    },
    /// 403: nobody may.
    #[error("{}.kubevirt.io {name:?} is forbidden: {text}", kind.as_str())]
    Forbidden {
        /// Of what.
        kind: Kind,
        /// Its name.
        name: String,
        /// Why.
        text: String,
    },
    /// 400.
    #[error("{0}")]
    BadRequest(String),
    /// 500.
    #[error("Internal error occurred: {0}")]
    Internal(String),
}

impl Failure {
    /// 409 about an instance.
    pub fn instance_conflict(name: &str, text: &str) -> Self {
        Self::Conflict {
            kind: Kind::Instance,
            name: name.to_owned(),
            text: text.to_owned(),
        }
    }

    /// 409 about a machine.
    pub fn machine_conflict(name: &str, text: impl Into<String>) -> Self {
        Self::Conflict {
            kind: Kind::Machine,
            name: name.to_owned(),
            text: text.into(),
        }
    }

    /// 500 for whatever went wrong.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        Self::Internal(error.to_string())
    }

    /// The HTTP code.
    pub fn code(&self) -> StatusCode {
        match self {
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::Conflict { .. } => StatusCode::CONFLICT,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "NotFound",
            Self::Conflict { .. } => "Conflict",
            Self::Forbidden { .. } => "Forbidden",
            Self::BadRequest(_) => "BadRequest",
            Self::Internal(_) => "InternalError",
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::NotFound { kind, name }
            | Self::Conflict { kind, name, .. }
            | Self::Forbidden { kind, name, .. } => {
                Some(json!({ "name": name, "group": "kubevirt.io", "kind": kind.as_str() }))
            }
            Self::BadRequest(_) => None,
            Self::Internal(text) => Some(json!({ "causes": [{ "message": text }] })),
        }
    }

    /// The `metav1.Status`.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": self.to_string(), "reason": self.reason(),
            "code": self.code().as_u16(),
        });
        if let Some(details) = self.details() {
            status["details"] = details;
        }
        status
    }

    /// The Status as a response: how PUTs and streams fail.
    pub fn reply(&self) -> Reply {
        bytes(self.code(), "application/json", indented(&self.status()))
    }

    /// 500 with bare text, whatever the failure: how plain GETs (a screenshot) fail.
    pub fn plain_reply(&self) -> Reply {
        text(StatusCode::INTERNAL_SERVER_ERROR, &self.to_string())
    }
}

/// JSON as go-restful writes it: one space for each level.
pub fn indented(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    // A Value always serializes into memory.
    let _ = value.serialize(&mut serializer);
    out
}

/// No body.
pub fn empty(code: StatusCode) -> Reply {
    let mut reply = Response::new(Full::default());
    *reply.status_mut() = code;
    nosniff(reply)
}

/// Bare text.
pub fn text(code: StatusCode, text: &str) -> Reply {
    bytes(code, "text/plain; charset=utf-8", text.as_bytes().to_vec())
}

/// A JSON document.
pub fn json(value: &Value) -> Reply {
    bytes(StatusCode::OK, "application/json", indented(value))
}

/// Bytes of a type.
pub fn bytes(code: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = code;
    let media_type = HeaderValue::from_static(media_type);
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    nosniff(reply)
}

fn nosniff(mut reply: Reply) -> Reply {
    let nosniff = HeaderValue::from_static("nosniff");
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_details_are_kubevirts() {
        let missing = Failure::NotFound {
            kind: Kind::Instance,
            name: "nope".into(),
        }
        .status();
        assert_eq!(
            missing["message"],
            "virtualmachineinstance.kubevirt.io \"nope\" not found"
        );
        let details =
            json!({"name": "nope", "group": "kubevirt.io", "kind": "virtualmachineinstance"});
        assert_eq!(missing["details"], details);
        let conflict = Failure::instance_conflict("x", "VMI is paused").status();
        let text = "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"x\": VMI is paused";
        assert_eq!(conflict["message"], text);
        let bad = Failure::BadRequest("VMI is not running".into()).status();
        assert_eq!(
            (&bad["message"], &bad["details"]),
            (&json!("VMI is not running"), &Value::Null)
        );
        let internal = Failure::Internal("boom".into()).status();
        assert_eq!(internal["message"], "Internal error occurred: boom");
        assert_eq!(internal["details"]["causes"][0]["message"], "boom");
    }

    #[test]
    fn a_status_is_indented_by_one_space() {
        let text = String::from_utf8(indented(&json!({"a": {"b": 1}}))).unwrap();
        assert_eq!(text, "{\n \"a\": {\n  \"b\": 1\n }\n}");
    }

    #[test]
    fn plain_failures_are_500_whatever_they_are() {
        let reply = Failure::NotFound {
            kind: Kind::Instance,
            name: "nope".into(),
        }
        .plain_reply();
        assert_eq!(reply.status(), 500);
        assert!(
            reply.headers()[CONTENT_TYPE]
                .to_str()
                .unwrap()
                .starts_with("text/plain")
        );
    }
}
