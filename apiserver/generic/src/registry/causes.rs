//! Field errors in the words of `k8s.io/apimachinery/pkg/util/validation/field/errors.go`.

use serde_json::Value;

use crate::Cause;

/// The value is not allowed; strings are shown quoted, the rest as JSON.
pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Cause {
    cause(
        "FieldValueInvalid",
        field,
        format!("Invalid value: {value}: {why}"),
    )
}

/// The value is missing.
pub fn required(field: impl Into<String>, why: &str) -> Cause {
    cause("FieldValueRequired", field, join("Required value", why))
}

/// The change is not allowed.
pub fn forbidden(field: impl Into<String>, why: &str) -> Cause {
    cause("FieldValueForbidden", field, join("Forbidden", why))
}

/// The value is too long.
pub fn too_long(field: impl Into<String>, most: usize) -> Cause {
    let message = format!("Too long: may not be more than {most} bytes");
    cause("FieldValueTooLong", field, message)
}

/// The value is none of those allowed.
pub fn unsupported(field: impl Into<String>, value: &str, allowed: &[&str]) -> Cause {
    let allowed: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
    let message = format!(
        "Unsupported value: {value:?}: supported values: {}",
        allowed.join(", ")
    );
    cause("FieldValueNotSupported", field, message)
}

fn join(what: &str, why: &str) -> String {
    if why.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {why}")
    }
}

fn cause(reason: &str, field: impl Into<String>, message: String) -> Cause {
    Cause {
        reason: reason.to_owned(),
        message,
        field: field.into(),
    }
}
