//! `workspacesessions`: the row and the strategy. Users list, watch and delete them, and may change
//! their labels and annotations; only the server makes them.

use apiserver_generic::{Cause, Object, Resource, Scope, Strategy, Verb};
use serde_json::{Value, json};

use super::cells;
use crate::{schema, v1alpha1, validation};

/// Decides about sessions.
pub struct SessionStrategy {
    row: Resource,
}

impl SessionStrategy {
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
        kind: "WorkspaceSession",
        plural: "workspacesessions",
        singular: "workspacesession",
        short_names: &["wss"],
        categories: &[],
        scope: Scope::Namespaced,
        verbs: &[
            Verb::Delete,
            Verb::DeleteCollection,
            Verb::Get,
            Verb::List,
            Verb::Patch,
            Verb::Watch,
        ],
        subresources: vec![],
        schema: schema::of::<v1alpha1::WorkspaceSession>(),
        columns: vec![
            cells::text("Workspace", "The workspace that the stream goes to."),
            cells::text("Mode", "What kind of stream it is."),
            cells::text("User", "Who holds it."),
            cells::text("Client", "Where the holder's request came from."),
            cells::AGE,
            cells::wide("Replica", "The server replica that carries the stream."),
        ],
    }
}

impl Strategy for SessionStrategy {
    fn resource(&self) -> &Resource {
        &self.row
    }

    fn default(&self, _: &mut Object) {}

    fn prepare_for_create(&self, _: &mut Object) {}

    fn prepare_for_update(&self, _: &mut Object, _: &Object, _: Option<&str>) {}

    fn validate(&self, object: &Object) -> Vec<Cause> {
        validation::session(&self.row.schema, object)
    }

    fn validate_update(&self, new: &Object, _: &Object, _: Option<&str>) -> Vec<Cause> {
        validation::session(&self.row.schema, new)
    }

    fn cells(&self, object: &Object, now: i64) -> Vec<Value> {
        vec![
            cells::string(object, "/spec/workspace"),
            cells::string(object, "/spec/mode"),
            cells::string(object, "/spec/user"),
            cells::string(object, "/spec/clientAddress"),
            cells::since(object.str_at("/spec/since"), now),
            json!(object.str_at("/spec/replica").unwrap_or_default()),
        ]
    }
}
