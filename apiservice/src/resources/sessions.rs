//! `workspacesessions`: the row and the strategy. Users list, watch and delete them, and may change
//! their labels and annotations; only the server makes them.

use apiserver_generic::{Cause, Object, Resource, Scope, Strategy, Verb, registry::forbidden};
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
        options: vec![],
        schema: schema::of::<v1alpha1::WorkspaceSession>(),
        columns: vec![
            cells::text("Workspace", "The workspace that the stream goes to."),
            cells::text("Mode", "What kind of stream it is."),
            cells::text(
                "Port",
                "The port in the workspace, for modes that have one.",
            ),
            cells::text("User", "Who holds it."),
            cells::text("Client", "Where the holder's request came from."),
            cells::text("Active", "How long ago bytes passed; known to a minute."),
            cells::text("Received", "Bytes from the client; known to a minute."),
            cells::text("Sent", "Bytes to the client; known to a minute."),
            cells::AGE,
            cells::wide("Streams", "How many streams share the session."),
            cells::wide("Groups", "How many groups the holder is in."),
            cells::wide("Replica", "The server replica that carries the stream."),
            cells::wide("Audit-ID", "Audit id of the request that opened it."),
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
    /// server writes both past this strategy; everybody else changes labels and annotations. What is
    /// in no metadata is kept as it was sent, so that `validate_update` can refuse it by name.
    fn prepare_for_update(&self, new: &mut Object, old: &Object, _: Option<&str>) {
        let finalizers = remaining_finalizers(new, old);
        let mut kept = old.metadata().cloned().unwrap_or_default();
        for key in ["labels", "annotations"] {
            match new.metadata().and_then(|m| m.get(key)) {
                Some(value) => kept.insert(key.to_owned(), value.clone()),
                None => kept.remove(key),
            };
        }
        kept.remove("finalizers");
        if !finalizers.is_empty() {
            kept.insert("finalizers".to_owned(), json!(finalizers));
        }
        *new.metadata_mut() = kept;
    }

    fn validate(&self, object: &Object) -> Vec<Cause> {
        validation::session(&self.row.schema, object)
    }

    fn validate_update(&self, new: &Object, old: &Object, _: Option<&str>) -> Vec<Cause> {
        let only = "the server writes it; of a session only labels and annotations can be changed";
        let changed = ["spec", "status"]
            .into_iter()
            .filter(|key| new.fields().get(*key) != old.fields().get(*key));
        let refused: Vec<Cause> = changed.map(|key| forbidden(key, only)).collect();
        if refused.is_empty() {
            return validation::session(&self.row.schema, new);
        }
        refused
    }

    fn cells(&self, object: &Object, now: i64) -> Vec<Value> {
        vec![
            cells::string(object, "/spec/workspace"),
            cells::string(object, "/spec/mode"),
            number(object, "/spec/port").map_or_else(|| json!(""), |port| json!(port.to_string())),
            cells::string(object, "/spec/user"),
            cells::string(object, "/spec/clientAddress"),
            active(object, now),
            size(object, "/status/receivedBytes"),
            size(object, "/status/sentBytes"),
            cells::since(object.str_at("/spec/since"), now),
            json!(number(object, "/status/streams").unwrap_or(0).to_string()),
            json!(number(object, "/spec/groupCount").unwrap_or(0).to_string()),
            cells::string(object, "/spec/replica"),
            cells::string(object, "/spec/auditID"),
        ]
    }
}

fn number(object: &Object, pointer: &str) -> Option<i64> {
    object.pointer(pointer)?.as_i64()
}

fn active(object: &Object, now: i64) -> Value {
    match object.str_at("/status/lastActivity") {
        Some(time) => cells::since(Some(time), now),
        None => json!("<none>"),
    }
}

/// Bytes as people read them, in binary units.
fn size(object: &Object, pointer: &str) -> Value {
    let bytes = number(object, pointer).unwrap_or(0);
    let units = ["Ki", "Mi", "Gi", "Ti", "Pi"];
    #[allow(clippy::cast_precision_loss)] // three digits are shown
    let mut value = bytes as f64;
    let mut shown = bytes.to_string();
    for unit in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        shown = format!("{value:.1}{unit}");
    }
    json!(shown)
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
        let new = prepared(&old, stolen);
        let kept = session(json!({"l": "1"}), stream, "jane");
        assert_eq!(new.metadata(), kept.metadata());
        let causes = SessionStrategy::new().validate_update(&new, &old, None);
        let fields: Vec<&str> = causes.iter().map(|c| c.field.as_str()).collect();
        assert_eq!(fields, ["spec", "status"]);
        assert!(causes[0].message.contains("only labels and annotations"));
        let labelled = prepared(&old, session(json!({"l": "1"}), json!([]), "jane"));
        assert_eq!(labelled, kept);
        let fine = SessionStrategy::new().validate_update(&labelled, &old, None);
        assert!(fine.is_empty(), "{fine:?}");
    }

    #[test]
    fn a_row_says_who_does_what_and_how_much() {
        let object = Object::from_value(json!({
            "metadata": {"name": "demo.portforward.0011223344556677"},
            "spec": {"workspace": "demo", "mode": "portforward", "port": 8080, "user": "jane",
                "clientAddress": "2001:db8::7", "since": "2026-01-01T00:00:00Z", "groupCount": 1000,
                "replica": "r1", "auditID": "a1"},
            "status": {"streams": 3, "receivedBytes": 999, "sentBytes": 1_610_612_736,
                "lastActivity": "2026-01-01T00:01:30Z"},
        }))
        .unwrap();
        let now = "2026-01-01T00:02:00Z".parse::<jiff::Timestamp>().unwrap();
        let cells = SessionStrategy::new().cells(&object, now.as_second());
        assert_eq!(
            json!(cells),
            json!([
                "demo",
                "portforward",
                "8080",
                "jane",
                "2001:db8::7",
                "30s",
                "999",
                "1.5Gi",
                "2m",
                "3",
                "1000",
                "r1",
                "a1"
            ])
        );
        let fresh = Object::from_value(json!({"spec": {"workspace": "demo"}})).unwrap();
        let cells = SessionStrategy::new().cells(&fresh, 0);
        assert_eq!(json!(cells[2..8]), json!(["", "", "", "<none>", "0", "0"]));
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
