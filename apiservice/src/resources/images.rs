//! `images`: the row and the strategy.

use apiserver_generic::{
    Cause, Object, Resource, Scope, Strategy, Subresource, Verb,
    resource::{Column, Rest, Streaming},
};
use serde_json::{Value, json};

use super::{cells, isolate_status};
use crate::{schema, v1alpha1, validation};

/// Decides about catalog entries.
pub struct ImageStrategy {
    row: Resource,
}

impl ImageStrategy {
    /// The strategy with its row.
    #[allow(clippy::new_without_default)] // `default` is the trait's word for filling in defaults
    pub fn new() -> Self {
        Self { row: row() }
    }
}

fn row() -> Resource {
    Resource {
        group: v1alpha1::GROUP,
        version: v1alpha1::VERSION,
        kind: "Image",
        plural: "images",
        singular: "image",
        short_names: &[],
        categories: &[],
        scope: Scope::Cluster,
        verbs: &Verb::ALL,
        subresources: vec![Subresource {
            name: "status",
            verbs: &[Verb::Get, Verb::Patch, Verb::Update],
            kind: "Image",
            rest: Rest::None,
            streaming: Streaming::Never,
        }],
        options: vec![],
        schema: schema::of::<v1alpha1::Image>(),
        columns: vec![
            cells::text(
                "Image",
                "Reference of the container image or containerDisk.",
            ),
            cells::text("Category", "What kind of workspace it makes."),
            Column {
                name: "Port",
                kind: "integer",
                description: "The application's port.",
                priority: 0,
            },
            cells::AGE,
        ],
    }
}

impl Strategy for ImageStrategy {
    fn resource(&self) -> &Resource {
        &self.row
    }

    fn default(&self, _: &mut Object) {}

    fn prepare_for_create(&self, object: &mut Object) {
        object.fields_mut().remove("status");
    }

    fn prepare_for_update(&self, new: &mut Object, old: &Object, subresource: Option<&str>) {
        isolate_status(new, old, subresource);
    }

    fn validate(&self, object: &Object) -> Vec<Cause> {
        validation::image(&self.row.schema, object)
    }

    fn validate_update(&self, new: &Object, old: &Object, _: Option<&str>) -> Vec<Cause> {
        validation::image_update(&self.row.schema, new, old)
    }

    fn cells(&self, object: &Object, now: i64) -> Vec<Value> {
        let port = object
            .pointer("/spec/defaultPort")
            .cloned()
            .unwrap_or(json!(0));
        vec![
            cells::string(object, "/spec/image"),
            cells::string(object, "/spec/category"),
            port,
            cells::age(object, now),
        ]
    }
}
