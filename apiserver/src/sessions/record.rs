//! Session objects in the workspace's namespace, made and read here only: `<workspace>.<mode>` for
//! exclusive streams, `<workspace>.<mode>.<hash>` for those that share an object. No mode contains a
//! dot or is a hash, so no two of them collide, whatever workspaces are called.

use std::time::Duration;

use apiserver_generic::{Key, Object, UserInfo};
use apiservice::v1alpha1::{
    API_VERSION, STREAM_FINALIZER, SessionMode, SessionSuccessor, View as _, WorkspaceSession,
    WorkspaceSessionSpec, WorkspaceSessionStatus,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::clock;

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
    /// To which port, for modes that have one.
    pub port: Option<u16>,
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
    /// The address of an exclusive session.
    pub fn key(&self) -> Key {
        key(&self.namespace, &self.workspace, self.mode)
    }

    /// The address of the session that this user's streams to this port share on this replica.
    pub fn shared_key(&self, replica: &str) -> Key {
        let port = self.port.map(|port| port.to_string()).unwrap_or_default();
        let parts = [
            &self.workspace_uid,
            &port,
            &self.user.name,
            &self.user.uid,
            replica,
        ];
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_le_bytes());
            hash.update(part.as_bytes());
        }
        let hash = hash.finalize();
        let hash: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let (workspace, mode) = (&self.workspace, self.mode.as_str());
        Key::namespaced(&self.namespace, format!("{workspace}.{mode}.{hash}"))
    }
}

/// The address of an exclusive session.
pub fn key(namespace: &str, workspace: &str, mode: SessionMode) -> Key {
    Key::namespaced(namespace, format!("{workspace}.{}", mode.as_str()))
}

/// The object that claims an exclusive stream; `uid` and `now` (RFC 3339) come from outside.
pub fn object(wish: &Wish, replica: &str, uid: &str, now: &str) -> Object {
    named(wish, &wish.key(), replica, uid, now)
}

/// The object of streams that share one.
pub(super) fn shared_object(
    wish: &Wish,
    key: &Key,
    replica: &str,
    uid: &str,
    since: &str,
) -> Object {
    named(wish, key, replica, uid, since)
}

fn named(wish: &Wish, key: &Key, replica: &str, uid: &str, now: &str) -> Object {
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
        "status": to_value(&WorkspaceSessionStatus {
            in_use: true,
            streams: 1,
            ..WorkspaceSessionStatus::default()
        }),
    }))
}

/// The holder's part of a session.
pub fn spec(wish: &Wish, replica: &str, now: &str) -> WorkspaceSessionSpec {
    WorkspaceSessionSpec {
        workspace: wish.workspace.clone(),
        workspace_uid: wish.workspace_uid.clone(),
        mode: wish.mode,
        port: wish.port.map(i32::from),
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
        offered: false,
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

/// The same session, offered to its successor, who has to come for it.
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
        spec["offered"] = json!(true);
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("successor");
        }
    })
}

/// The same session, taken by the caller it was offered to: nothing of the old stream is left in it.
/// Whoever waits for the caller in turn goes on waiting.
pub fn taken(object: &Object, wish: &Wish, replica: &str, now: &str) -> Object {
    let old = read(object).spec;
    let fresh = WorkspaceSessionSpec {
        successor: old.successor.filter(|_| old.claim == wish.claim),
        ..spec(wish, replica, now)
    };
    let object = with_spec(object, move |spec| *spec = to_value(&fresh));
    with_traffic(
        &object,
        &Passed {
            streams: 1,
            ..Passed::default()
        },
    )
}

/// What has passed through the streams of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Streams that are open.
    pub streams: usize,
    /// Bytes from clients.
    pub received: u64,
    /// Bytes to clients.
    pub sent: u64,
    /// How long nothing has passed; `None` if nothing ever has.
    pub idle: Option<Duration>,
}

/// The same session with what has passed.
pub fn with_traffic(object: &Object, passed: &Passed) -> Object {
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let status = WorkspaceSessionStatus {
        in_use: true,
        streams: count(passed.streams as u64),
        last_activity: passed.idle.map(clock::ago),
        received_bytes: count(passed.received),
        sent_bytes: count(passed.sent),
    };
    let mut object = object.clone();
    object
        .fields_mut()
        .insert("status".to_owned(), to_value(&status));
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
            port: None,
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
    fn x_04_a_session_names_the_user_and_no_credential() {
        let mut wish = wish("system:serviceaccount:t1:robot", "a1");
        let key = "authentication.kubernetes.io/credential-id";
        let extra = (key.to_owned(), vec!["JTI=secret".to_owned()]);
        wish.user.extra = [extra].into();
        let object = object(&wish, "r1", "u1", "2026-01-02T03:04:05Z");
        let text = object.into_value().to_string();
        assert!(text.contains("robot") && !text.contains("secret"), "{text}");
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
            (
                spec.user.as_str(),
                spec.client_address.as_str(),
                spec.offered
            ),
            ("joe", "192.0.2.7", false)
        );
    }

    #[test]
    fn a_take_over_starts_to_count_from_nothing() {
        let object = object(&wish("jane", "a1"), "r1", "u1", "2026-01-02T03:04:05Z");
        let passed = Passed {
            streams: 1,
            received: 3,
            sent: u64::MAX,
            idle: Some(Duration::ZERO),
        };
        let busy = with_traffic(&object, &passed);
        let status = read(&busy).status;
        assert_eq!((status.received_bytes, status.sent_bytes), (3, i64::MAX));
        assert!(status.last_activity.is_some());
        let fresh = read(&taken(&busy, &wish("joe", "a2"), "r2", "now")).status;
        assert_eq!((fresh.received_bytes, fresh.last_activity), (0, None));
    }

    #[test]
    fn who_shares_a_session_is_one_user_at_one_port_through_one_replica() {
        let mut forward = wish("jane", "a1");
        (forward.mode, forward.port) = (SessionMode::Portforward, Some(22));
        let key = forward.shared_key("r1");
        assert!(key.name.starts_with("demo.portforward.") && key.name.len() == 17 + 16);
        let mut again = forward.clone();
        (again.claim, again.client_address) = ("a2".into(), "192.0.2.8".into());
        assert_eq!(again.shared_key("r1"), key);
        let mut others = vec![forward.shared_key("r2")];
        for change in [
            |w: &mut Wish| w.port = Some(80),
            |w: &mut Wish| w.user.name = "joe".into(),
            |w: &mut Wish| w.user.uid = "1".into(),
            |w: &mut Wish| w.workspace_uid = "other".into(),
            |w: &mut Wish| w.mode = SessionMode::Ssh,
        ] {
            let mut other = forward.clone();
            change(&mut other);
            others.push(other.shared_key("r1"));
        }
        assert!(!others.contains(&key));
    }
}
