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

    /// A session is a claim: its spec says who holds it, its finalizer keeps the name taken. The
    /// server writes both past this strategy; everybody else changes labels and annotations.
    fn prepare_for_update(&self, new: &mut Object, old: &Object, _: Option<&str>) {
        let finalizers = remaining_finalizers(new, old);
        let mut kept = old.clone();
        for key in ["labels", "annotations"] {
            match new.metadata().and_then(|m| m.get(key)) {
                Some(value) => kept.metadata_mut().insert(key.to_owned(), value.clone()),
                None => kept.metadata_mut().remove(key),
            };
        }
        kept.metadata_mut().remove("finalizers");
        if !finalizers.is_empty() {
            let list = json!(finalizers);
            kept.metadata_mut().insert("finalizers".to_owned(), list);
        }
        *new = kept;
    }

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

/// The old finalizers but those that are taken away. The garbage collector takes away its own
/// (`foregroundDeletion`, `orphan`); nobody takes away the stream's, and nobody adds one.
fn remaining_finalizers(new: &Object, old: &Object) -> Vec<String> {
    let sent = new.finalizers();
    let stays = |name: &&str| *name == v1alpha1::STREAM_FINALIZER || sent.contains(name);
    let kept = old.finalizers().into_iter().filter(stays);
    kept.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(labels: Value, finalizers: Value, user: &str) -> Object {
        Object::from_value(json!({
            "metadata": {
                "name": "demo.console", "uid": "u1", "labels": labels, "finalizers": finalizers,
                "ownerReferences": [{"apiVersion": v1alpha1::API_VERSION, "kind": "Workspace",
                    "name": "demo", "uid": format!("of-{user}")}],
            },
            "spec": {"workspace": "demo", "mode": "console", "user": user, "claim": user},
            "status": {"inUse": user == "jane"},
        }))
        .unwrap()
    }

    fn prepared(old: &Object, mut new: Object) -> Object {
        SessionStrategy::new().prepare_for_update(&mut new, old, None);
        new
    }

    #[test]
    fn users_change_labels_and_nothing_that_holds_the_claim() {
        let stream = json!([v1alpha1::STREAM_FINALIZER]);
        let old = session(json!({}), stream.clone(), "jane");
        let stolen = session(json!({"l": "1"}), json!([]), "mallory");
        let kept = session(json!({"l": "1"}), stream, "jane");
        assert_eq!(prepared(&old, stolen), kept);
    }

    #[test]
    fn the_garbage_collector_takes_its_finalizer_away_and_nobody_adds_one() {
        let stream = v1alpha1::STREAM_FINALIZER;
        for (old, sent, left) in [
            (
                json!([stream, "foregroundDeletion"]),
                json!([stream]),
                vec![stream],
            ),
            (
                json!([stream, "foregroundDeletion"]),
                json!([]),
                vec![stream],
            ),
            (json!(["orphan"]), json!([]), vec![]),
            (
                json!([stream]),
                json!([stream, "example.com/mine"]),
                vec![stream],
            ),
        ] {
            let object = |finalizers: &Value| session(json!({}), finalizers.clone(), "jane");
            let new = prepared(&object(&old), object(&sent));
            assert_eq!(new.finalizers(), left, "{old} {sent}");
        }
    }
}
