//! Structural OpenAPI v3 schemas of our kinds, made from their Rust types.
//!
//! Entry point: [`of`]. The types' doc comments become descriptions, so `kubectl explain` reads what
//! a reader of the code reads. PodSpec comes from `schema/podspec.json`, kube-apiserver's own.

mod podspec;
mod structural;

pub use podspec::pod_spec;
pub use structural::{of, of_options};

use schemars::{Schema, SchemaGenerator};
use serde_json::json;

/// A field of type PodSpec.
pub fn pod_spec_schema(_: &mut SchemaGenerator) -> Schema {
    wrap(pod_spec())
}

/// The metadata of a PodTemplateSpec: ObjectMeta, of which labels and annotations have an effect.
pub fn pod_template_metadata(_: &mut SchemaGenerator) -> Schema {
    let mut meta = apiserver_generic::schema::object_meta();
    let fields = &mut meta["properties"];
    fields["labels"]["description"] = json!(
        "Labels of the pod, or of the machine and its pod. They come before labels of the workspace; labels by which the pod is found cannot be replaced."
    );
    fields["annotations"]["description"] = json!(
        "Annotations of the pod, or of the machine and its pod. They come before annotations of the workspace."
    );
    wrap(meta)
}

/// A field that keeps whatever it is given.
pub fn any_object(_: &mut SchemaGenerator) -> Schema {
    wrap(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
}

/// A resource quantity: `2Gi`, `500m`, or a bare number.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    wrap(json!({"x-kubernetes-int-or-string": true, "format": "quantity"}))
}

/// A resource quantity that is always text.
pub fn quantity_text(_: &mut SchemaGenerator) -> Schema {
    wrap(json!({"type": "string", "format": "quantity"}))
}

fn wrap(value: serde_json::Value) -> Schema {
    Schema::try_from(value).unwrap_or_default()
}
