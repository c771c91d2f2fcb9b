//! The shared types of `meta.v1`, as schemas that are valid in both versions of OpenAPI.
//!
//! `reference` makes a `$ref` to another of them. In version 2 they never carry a group, version
//! and kind: kube-apiserver's own definitions do, and a second one with the same breaks consumers.

use serde_json::{Map, Value, json};

use super::names::META;

/// Where definitions are referred to: `#/definitions/` or `#/components/schemas/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavor {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0.
    V3,
}

impl Flavor {
    /// `{"$ref": …}`.
    pub(super) fn reference(self, name: &str) -> Value {
        let place = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({ "$ref": format!("{place}{name}") })
    }

    /// A reference with a description beside it. Version 3.0 ignores what stands beside `$ref`, so
    /// it goes into an `allOf` there.
    fn described(self, name: &str, description: &str) -> Value {
        let reference = self.reference(&format!("{META}.{name}"));
        match self {
            Self::V2 => json!({"description": description, "$ref": reference["$ref"]}),
            Self::V3 => json!({"description": description, "allOf": [reference], "default": {}}),
        }
    }

    /// An object's `metadata`.
    pub(super) fn object_meta(self) -> Value {
        self.described("ObjectMeta", "Standard object's metadata.")
    }

    /// A list's `metadata`.
    pub(super) fn list_meta(self) -> Value {
        self.described("ListMeta", "Standard list metadata.")
    }
}

/// The definitions, by full name.
pub(super) fn definitions(flavor: Flavor) -> Map<String, Value> {
    let all = [
        ("ObjectMeta", object_meta(flavor)),
        ("OwnerReference", owner_reference()),
        ("ManagedFieldsEntry", managed_fields_entry(flavor)),
        (
            "FieldsV1",
            object("A set of fields, in a form of its own.", json!({})),
        ),
        (
            "Time",
            json!({"type": "string", "format": "date-time",
            "description": "A point in time, to the second, as RFC 3339 writes it."}),
        ),
        ("ListMeta", list_meta()),
        (
            "Patch",
            object(
                "A patch in one of the forms that the resource takes.",
                json!({}),
            ),
        ),
        ("DeleteOptions", delete_options(flavor)),
        (
            "Preconditions",
            object(
                "What must hold for an object before it is deleted.",
                json!({
                    "uid": string("UID that the object must have."),
                    "resourceVersion": string("resourceVersion that the object must have."),
                }),
            ),
        ),
        ("Status", status(flavor)),
        ("StatusDetails", status_details(flavor)),
        (
            "StatusCause",
            object(
                "One problem among those that made a request fail.",
                json!({
                    "reason": string("Machine-readable reason."),
                    "message": string("What is wrong, in words."),
                    "field": string("Path of the field, as spec.containers[0].image."),
                }),
            ),
        ),
    ];
    all.into_iter()
        .map(|(name, schema)| (format!("{META}.{name}"), schema))
        .collect()
}

fn string(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn integer(description: &str) -> Value {
    json!({"type": "integer", "format": "int64", "description": description})
}

fn boolean(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn strings(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string", "default": ""}, "description": description})
}

fn string_map(description: &str) -> Value {
    json!({
        "type": "object", "additionalProperties": {"type": "string", "default": ""},
        "description": description,
    })
}

fn object(description: &str, properties: Value) -> Value {
    let mut schema = json!({"type": "object", "description": description});
    if properties.as_object().is_some_and(|p| !p.is_empty()) {
        schema["properties"] = properties;
    }
    schema
}

fn list_of(flavor: Flavor, name: &str, description: &str) -> Value {
    let items = flavor.reference(&format!("{META}.{name}"));
    json!({"type": "array", "items": items, "description": description})
}

fn object_meta(flavor: Flavor) -> Value {
    let time = |description| flavor.described("Time", description);
    let mut owners = list_of(
        flavor,
        "OwnerReference",
        "Objects that this one depends on; when all are gone, it is collected.",
    );
    owners["x-kubernetes-list-type"] = json!("map");
    owners["x-kubernetes-list-map-keys"] = json!(["uid"]);
    owners["x-kubernetes-patch-strategy"] = json!("merge");
    owners["x-kubernetes-patch-merge-key"] = json!("uid");
    let mut finalizers = strings(
        "What must be done before the object is removed; each entry is taken off by who did its part.",
    );
    finalizers["x-kubernetes-list-type"] = json!("set");
    finalizers["x-kubernetes-patch-strategy"] = json!("merge");
    object(
        "Metadata that every stored object has.",
        json!({
            "name": string("Name, unique within a namespace and kind. It cannot be changed."),
            "generateName": string("Prefix from which the server makes a unique name, when no name is given."),
            "namespace": string("Namespace. It cannot be changed."),
            "selfLink": string("Deprecated: no longer set."),
            "uid": string("Unique id in time and space, set by the server."),
            "resourceVersion": string("Opaque version of the object, for optimistic locking and watches."),
            "generation": integer("Sequence number of the desired state, set by the server."),
            "creationTimestamp": time("When the object was created, set by the server."),
            "deletionTimestamp": time("When the object is going to be deleted, set by the server on a graceful deletion."),
            "deletionGracePeriodSeconds": integer("Seconds that the object has to end gracefully."),
            "labels": string_map("Keys and values by which objects are selected."),
            "annotations": string_map("Keys and values for tools; they select nothing."),
            "ownerReferences": owners,
            "finalizers": finalizers,
            "managedFields": list_of(flavor, "ManagedFieldsEntry", "Which manager set which fields; maintained by the server."),
        }),
    )
}

fn owner_reference() -> Value {
    let mut schema = object(
        "An object that owns this one, in the same namespace or cluster-wide.",
        json!({
            "apiVersion": string("API version of the owner."),
            "kind": string("Kind of the owner."),
            "name": string("Name of the owner."),
            "uid": string("UID of the owner."),
            "controller": boolean("Whether the owner is the controller of this object."),
            "blockOwnerDeletion": boolean("Whether a foreground deletion of the owner waits for this object."),
        }),
    );
    schema["required"] = json!(["apiVersion", "kind", "name", "uid"]);
    schema["x-kubernetes-map-type"] = json!("atomic");
    schema
}

fn managed_fields_entry(flavor: Flavor) -> Value {
    object(
        "The fields that one manager set.",
        json!({
            "manager": string("Name of the manager."),
            "operation": string("Apply or Update."),
            "apiVersion": string("Version in which the fields are written."),
            "time": flavor.described("Time", "When the entry last changed."),
            "fieldsType": string("FieldsV1."),
            "fieldsV1": flavor.described("FieldsV1", "The fields."),
            "subresource": string("Subresource over which they were set, if any."),
        }),
    )
}

fn list_meta() -> Value {
    object(
        "Metadata of a list.",
        json!({
            "selfLink": string("Deprecated: no longer set."),
            "resourceVersion": string("Version of the list, from which a watch can go on."),
            "continue": string("Token for the next part, when the list was cut by limit."),
            "remainingItemCount": integer("How many items are left, when that is known."),
        }),
    )
}

fn delete_options(flavor: Flavor) -> Value {
    object(
        "Options of a deletion.",
        json!({
            "apiVersion": string("API version of these options."),
            "kind": string("DeleteOptions."),
            "gracePeriodSeconds": integer("Seconds that the object has to end gracefully."),
            "preconditions": flavor.described("Preconditions", "What must hold, or the request fails with 409."),
            "orphanDependents": boolean("Deprecated: use propagationPolicy."),
            "propagationPolicy": string("What happens to dependents: Orphan, Background or Foreground."),
            "dryRun": strings("All: nothing is stored."),
        }),
    )
}

fn status(flavor: Flavor) -> Value {
    object(
        "The outcome of a request that has no other answer.",
        json!({
            "apiVersion": string("v1."),
            "kind": string("Status."),
            "metadata": flavor.list_meta(),
            "status": string("Success or Failure."),
            "message": string("What happened, in words."),
            "reason": string("Machine-readable reason of a failure."),
            "details": flavor.described("StatusDetails", "What the failure is about."),
            "code": {"type": "integer", "format": "int32", "description": "HTTP code."},
        }),
    )
}

fn status_details(flavor: Flavor) -> Value {
    object(
        "What a failure is about.",
        json!({
            "name": string("Name of the object."),
            "group": string("API group."),
            "kind": string("Kind or resource."),
            "uid": string("UID of the object."),
            "causes": list_of(flavor, "StatusCause", "Single problems."),
            "retryAfterSeconds": {"type": "integer", "format": "int32",
                "description": "When to come back."},
        }),
    )
}
