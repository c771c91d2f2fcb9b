//! A valid catalog entry.

use apiserver_generic::{Cause, Object};
use serde_json::Value;

use super::{amounts, by_schema, cause, name};

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
    causes.extend(amounts::quantities(row, object));
    for field in [
        "spec.memoryLimit",
        "spec.memoryRequest",
        "spec.persistentRootDiskSize",
    ] {
        causes.extend(amounts::above_zero(object, field));
    }
    causes
}

/// Problems of a change to an Image, beyond those that it had.
pub fn image_update(row: &Value, new: &Object, old: &Object) -> Vec<Cause> {
    let mut causes = image(row, new);
    if !causes.is_empty() {
        let known = image(row, old);
        causes.retain(|cause| !known.contains(cause));
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{schema, v1alpha1};

    #[test]
    fn sizes_are_quantities_with_which_something_can_be_made() {
        let row = schema::of::<v1alpha1::Image>();
        let with = |field: &str, value: Value| {
            let mut object = json!({"apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Image",
                "metadata": {"name": "i"}, "spec": {"image": "example.test/i:1", "defaultPort": 22}});
            object["spec"][field] = value;
            Object::from_value(object).unwrap()
        };
        for field in ["memoryLimit", "memoryRequest", "persistentRootDiskSize"] {
            for bad in [json!("abc"), json!("-1"), json!(0), json!("")] {
                let causes = image(&row, &with(field, bad.clone()));
                assert_eq!(causes.len(), 1, "{field} {bad}: {causes:?}");
                assert_eq!(causes[0].field, format!("spec.{field}"));
            }
            assert_eq!(image(&row, &with(field, json!("10Gi"))), vec![]);
        }
        let field = "defaultSharedMemory";
        assert_eq!(image(&row, &with(field, json!("64Mi"))), vec![]);
        assert_eq!(image(&row, &with(field, json!("much"))).len(), 1);
        let old = with("memoryLimit", json!("abc"));
        let causes = image_update(&row, &with("memoryLimit", json!("abd")), &old);
        assert_eq!(causes.len(), 1);
        assert_eq!(image_update(&row, &old, &old), vec![]);
    }
}
