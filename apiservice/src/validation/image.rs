//! A valid catalog entry.

use apiserver_generic::{Cause, Object};
use serde_json::Value;

use super::{by_schema, cause, name};

const VIDEO: [&str; 5] = ["virtio", "vga", "bochs", "cirrus", "ramfb"];
const SOUND: [&str; 2] = ["ac97", "ich9"];

/// Problems of an Image.
pub fn image(row: &Value, object: &Object) -> Vec<Cause> {
    if let Err(causes) = by_schema(row, object) {
        return causes;
    }
    let mut causes = Vec::from_iter(name(object));
    causes.extend(one_of(
        object,
        "/spec/videoDevice",
        "spec.videoDevice",
        &VIDEO,
    ));
    causes.extend(one_of(
        object,
        "/spec/soundDevice",
        "spec.soundDevice",
        &SOUND,
    ));
    causes
}

fn one_of(object: &Object, pointer: &str, field: &str, allowed: &[&str]) -> Option<Cause> {
    let value = object
        .str_at(pointer)
        .filter(|v| !v.is_empty() && !allowed.contains(v))?;
    let list: Vec<String> = allowed.iter().map(|a| format!("{a:?}")).collect();
    let text = format!(
        "Unsupported value: {value:?}: supported values: {}",
        list.join(", ")
    );
    Some(cause("FieldValueNotSupported", field, text))
}
