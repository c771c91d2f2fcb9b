//! Which pods a reboot of a container or scratch workspace replaces. Pure.

use apiserver_generic::ApiError;

use super::conflict;
use crate::streams::resolve::{Pods, Workspace, controlled_by, own_pods};

/// A pod by name and UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
}

/// The workspace's own pods that are not going already, whatever state they are in: a pod that
/// cannot start is what reboots are for.
///
/// # Errors
/// 409: there is none, or the name is somebody else's.
pub(super) fn to_replace(workspace: &Workspace, found: &Pods) -> Result<Vec<Pod>, ApiError> {
    let refuse = |why: &str| Err(conflict(&workspace.name, why));
    let Some(owner) = &found.owner else {
        return refuse("its workload is not made yet");
    };
    if !controlled_by(owner, "kubeworkspaces.io", "Workspace", &workspace.uid) {
        return refuse("the workload of its name does not belong to it; rename one of the two");
    }
    let pods: Vec<Pod> = own_pods(workspace, found)
        .into_iter()
        .filter(|pod| pod.deletion_timestamp().is_none())
        .map(|pod| Pod {
            name: pod.name().to_owned(),
            uid: pod.uid().unwrap_or_default().to_owned(),
        })
        .collect();
    if pods.is_empty() {
        return refuse("it has no pod at the moment; a new one is being made");
    }
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use apiserver_generic::Object;
    use serde_json::{Value, json};

    use super::*;

    fn object(uid: &str, owner: (&str, &str, &str), leaving: bool) -> Object {
        let mut value = json!({"metadata": {"name": format!("{uid}-name"), "uid": uid,
            "ownerReferences": [{"apiVersion": owner.0, "kind": owner.1, "name": "x",
                "uid": owner.2, "controller": true}]}});
        if leaving {
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Object::from_value(value).unwrap()
    }

    fn workspace(kind: &str) -> Workspace {
        let value: Value = json!({"metadata": {"name": "demo", "namespace": "t1", "uid": "ws"},
            "spec": {"type": kind}});
        Workspace::read(&Object::from_value(value).unwrap())
    }

    const OURS: (&str, &str, &str) = ("kubeworkspaces.io/v1alpha1", "Workspace", "ws");
    const THEIRS: (&str, &str, &str) = ("kubeworkspaces.io/v1alpha1", "Workspace", "other");

    #[test]
    fn own_pods_are_replaced_and_nobody_elses() {
        let set = |owner| Some(object("set", owner, false));
        let pod = |uid, of, leaving| object(uid, ("apps/v1", "StatefulSet", of), leaving);
        let found = |owner, pods| Pods {
            owner,
            replica_sets: Vec::new(),
            pods,
        };
        let ws = workspace("container");
        let all = vec![
            pod("a", "set", false),
            pod("b", "set", true),
            pod("c", "other", false),
        ];
        let pods = to_replace(&ws, &found(set(OURS), all.clone())).unwrap();
        let a = Pod {
            name: "a-name".into(),
            uid: "a".into(),
        };
        assert_eq!(pods, [a]);
        for (owner, pods) in [
            (None, all.clone()),
            (set(THEIRS), all),
            (set(OURS), vec![pod("b", "set", true)]),
            (set(OURS), vec![]),
        ] {
            let error = to_replace(&ws, &found(owner, pods)).unwrap_err();
            assert_eq!(error.reason.code(), 409);
        }
    }

    #[test]
    fn a_scratch_pod_is_found_through_its_replica_set() {
        let found = Pods {
            owner: Some(object("dep", OURS, false)),
            replica_sets: vec![
                object("ours", ("apps/v1", "Deployment", "dep"), false),
                object("theirs", ("apps/v1", "Deployment", "other"), false),
            ],
            pods: vec![
                object("a", ("apps/v1", "ReplicaSet", "ours"), false),
                object("b", ("apps/v1", "ReplicaSet", "theirs"), false),
            ],
        };
        let pods = to_replace(&workspace("scratch"), &found).unwrap();
        let uids: Vec<_> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        assert_eq!(uids, ["a"]);
    }
}
