//! Session objects: `<workspace>.<mode>` in the workspace's namespace, made and read here only.

use apiserver_generic::{Key, Object, UserInfo};
use apiservice::v1alpha1::{
    API_VERSION, STREAM_FINALIZER, SessionMode, SessionSuccessor, View as _, WorkspaceSession,
    WorkspaceSessionSpec,
};
use serde_json::{Value, json};

/// How many of a holder's groups an object names; the count is exact.
const GROUPS: usize = 32;

/// What a caller wants to hold.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Namespace of the workspace.
    pub namespace: String,
    /// Name of the workspace.
    pub workspace: String,
    /// UID of the workspace.
    pub workspace_uid: String,
    /// What kind of stream.
    pub mode: SessionMode,
    /// Who.
    pub user: UserInfo,
    /// From where.
    pub client_address: String,
    /// By which request.
    pub audit_id: String,
    /// Identity of the claim: fresh, and never from the caller.
    pub claim: String,
}

impl Wish {
    /// The address of an exclusive session. A mode contains no dot, so no two of them collide.
    pub fn key(&self) -> Key {
        key(&self.namespace, &self.workspace, self.mode)
    }
}

/// The address of an exclusive session.
pub fn key(namespace: &str, workspace: &str, mode: SessionMode) -> Key {
    Key {
        namespace: Some(namespace.to_owned()),
        name: format!("{workspace}.{}", mode.as_str()),
    }
}

/// The object that claims; `uid` and `now` (RFC 3339) come from outside.
pub fn object(wish: &Wish, replica: &str, uid: &str, now: &str) -> Object {
    let key = wish.key();
    let spec = spec(wish, replica, now);
    into_object(json!({
        "apiVersion": API_VERSION, "kind": "WorkspaceSession",
        "metadata": {
            "name": key.name, "namespace": wish.namespace, "uid": uid,
            "creationTimestamp": now, "generation": 1, "finalizers": [STREAM_FINALIZER],
            "ownerReferences": [{
                "apiVersion": API_VERSION, "kind": "Workspace",
                "name": wish.workspace, "uid": wish.workspace_uid,
            }],
        },
        "spec": to_value(&spec),
        "status": {"inUse": true},
    }))
}

/// The holder's part of a session.
pub fn spec(wish: &Wish, replica: &str, now: &str) -> WorkspaceSessionSpec {
    WorkspaceSessionSpec {
        workspace: wish.workspace.clone(),
        workspace_uid: wish.workspace_uid.clone(),
        mode: wish.mode,
        port: None,
        user: wish.user.name.clone(),
        user_uid: wish.user.uid.clone(),
        groups: wish.user.groups.iter().take(GROUPS).cloned().collect(),
        group_count: i64::try_from(wish.user.groups.len()).unwrap_or(i64::MAX),
        client_address: wish.client_address.clone(),
        since: now.to_owned(),
        replica: replica.to_owned(),
        audit_id: wish.audit_id.clone(),
        claim: wish.claim.clone(),
        successor: None,
    }
}

/// The answer of `GET …/console` when nobody holds it.
pub fn nobody(namespace: &str, workspace: &str, mode: SessionMode) -> Object {
    into_object(json!({
        "apiVersion": API_VERSION, "kind": "WorkspaceSession",
        "metadata": {"name": key(namespace, workspace, mode).name, "namespace": namespace},
        "spec": {"workspace": workspace, "mode": mode.as_str()},
        "status": {"inUse": false},
    }))
}

/// A typed view. One that cannot be read names no replica, and is collected like one of a dead replica.
pub fn read(object: &Object) -> WorkspaceSession {
    WorkspaceSession::read(object).unwrap_or_else(|error| {
        tracing::warn!(%error, "a session object does not have its shape");
        WorkspaceSession::default()
    })
}

/// The same session with somebody waiting for it.
pub fn with_successor(object: &Object, successor: &SessionSuccessor) -> Object {
    with_spec(object, |spec| spec["successor"] = to_value(successor))
}

/// The same session in the hands of its successor.
pub fn handed_over(object: &Object, successor: &SessionSuccessor) -> Object {
    with_spec(object, |spec| {
        spec["user"] = json!(successor.user);
        spec["userUID"] = json!(successor.user_uid);
        spec["replica"] = json!(successor.replica);
        spec["auditID"] = json!(successor.audit_id);
        spec["claim"] = json!(successor.claim);
        spec["since"] = json!(successor.at);
        spec["groups"] = json!([]);
        spec["groupCount"] = json!(0);
        spec["clientAddress"] = json!("");
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("successor");
        }
    })
}

/// The same session with the holder's details filled in after a take-over.
pub fn taken(object: &Object, wish: &Wish, replica: &str, now: &str) -> Object {
    let fresh = to_value(&spec(wish, replica, now));
    with_spec(object, move |spec| *spec = fresh)
}

/// The same session with what has passed; `active` is when bytes last passed (RFC 3339).
pub fn with_traffic(object: &Object, received: u64, sent: u64, active: &str) -> Object {
    let mut object = object.clone();
    let status = json!({
        "inUse": true, "lastActivity": active, "receivedBytes": received, "sentBytes": sent,
    });
    object.fields_mut().insert("status".to_owned(), status);
    object
}

fn with_spec(object: &Object, change: impl FnOnce(&mut Value)) -> Object {
    let mut object = object.clone();
    change(
        object
            .fields_mut()
            .entry("spec")
            .or_insert_with(|| json!({})),
    );
    object
}

fn to_value(data: &impl serde::Serialize) -> Value {
    // These types are plain data: there is no way for them to fail.
    serde_json::to_value(data).unwrap_or_default()
}

fn into_object(value: Value) -> Object {
    Object::from_value(value).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::sessions) fn wish(user: &str, claim: &str) -> Wish {
        Wish {
            namespace: "t1".into(),
            workspace: "demo".into(),
            workspace_uid: "ws-uid".into(),
            mode: SessionMode::Console,
            user: UserInfo {
                name: user.into(),
                ..UserInfo::default()
            },
            client_address: "192.0.2.7".into(),
            audit_id: format!("audit-{claim}"),
            claim: claim.into(),
        }
    }

    #[test]
    fn a_session_says_who_holds_what_and_goes_with_its_workspace() {
        let mut wish = wish("jane", "a1");
        wish.user.groups = (0..1000).map(|i| format!("g{i}")).collect();
        let object = object(&wish, "r1", "u1", "2026-01-02T03:04:05Z");
        assert_eq!(object.name(), "demo.console");
        assert_eq!(object.finalizers(), [STREAM_FINALIZER]);
        assert_eq!(
            object.str_at("/metadata/ownerReferences/0/uid"),
            Some("ws-uid")
        );
        let session = read(&object);
        assert_eq!(
            (session.spec.groups.len(), session.spec.group_count),
            (32, 1000)
        );
        assert!(session.status.in_use);
        assert!(
            !read(&nobody("t1", "demo", SessionMode::Console))
                .status
                .in_use
        );
    }

    #[test]
    fn a_hand_over_leaves_nothing_of_the_old_holder() {
        let mut old = wish("jane", "a1");
        old.user.groups = vec!["secret".into()];
        let object = object(&old, "r1", "u1", "2026-01-02T03:04:05Z");
        let successor = SessionSuccessor {
            user: "joe".into(),
            user_uid: String::new(),
            replica: "r2".into(),
            audit_id: "audit-a2".into(),
            claim: "a2".into(),
            at: "2026-01-02T04:00:00Z".into(),
        };
        let waiting = with_successor(&object, &successor);
        assert_eq!(read(&waiting).spec.successor, Some(successor.clone()));
        let handed = handed_over(&waiting, &successor);
        assert_eq!(handed.uid(), Some("u1"));
        let text = handed.clone().into_value().to_string();
        assert!(!text.contains("jane") && !text.contains("secret") && !text.contains("successor"));
        let spec = read(&taken(&handed, &wish("joe", "a2"), "r2", "now")).spec;
        assert_eq!(
            (spec.user.as_str(), spec.client_address.as_str()),
            ("joe", "192.0.2.7")
        );
    }
}
