//! What a valid object is, beyond its schema. Pure: every function takes values and gives causes.

mod amounts;
mod image;
mod names;
mod pod;
mod ssh;
mod workspace;

pub use image::{image, image_update};
pub use names::dns_label;
pub use workspace::{workspace, workspace_update};

use apiserver_generic::{Cause, Object, schema};
use serde_json::Value;

/// Names are at most 63 characters long, so that children and labels can carry them; that they are
/// DNS subdomains is a rule of all objects, and the registry's.
pub const MAX_NAME: usize = 63;

/// Problems of a session object.
pub fn session(row: &Value, object: &Object) -> Vec<Cause> {
    schema::validate(row, &object.clone().into_value(), "")
}

/// Schema first; the rest would only repeat what it says.
fn by_schema(row: &Value, object: &Object) -> Result<(), Vec<Cause>> {
    let causes = schema::validate(row, &object.clone().into_value(), "");
    if causes.is_empty() {
        Ok(())
    } else {
        Err(causes)
    }
}

fn name(object: &Object) -> Option<Cause> {
    (object.name().len() > MAX_NAME).then(|| {
        cause(
            "FieldValueTooLong",
            "metadata.name",
            format!("Too long: may not be more than {MAX_NAME} bytes"),
        )
    })
}

fn invalid(field: &str, value: &str, why: &str) -> Cause {
    cause(
        "FieldValueInvalid",
        field,
        format!("Invalid value: {value:?}: {why}"),
    )
}

fn invalid_value(field: &str, value: &Value, why: &str) -> Cause {
    cause(
        "FieldValueInvalid",
        field,
        format!("Invalid value: {value}: {why}"),
    )
}

fn cause(reason: &str, field: &str, message: String) -> Cause {
    Cause {
        reason: reason.to_owned(),
        message,
        field: field.to_owned(),
    }
}
