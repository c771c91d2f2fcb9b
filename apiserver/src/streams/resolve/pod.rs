//! Workspace → StatefulSet, or Deployment and ReplicaSet, → pod → container.

use apiserver_generic::Object;

use super::{Features, Unresolved, Workspace, controlled_by, controller, workspace::Kind};

const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// A container to run a shell in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod.
    pub pod_uid: String,
    /// Name of the container.
    pub name: String,
}

/// What was found for a workspace; any of it may be somebody else's.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    /// The StatefulSet or Deployment.
    pub owner: Option<Object>,
    /// ReplicaSets of a Deployment.
    pub replica_sets: Vec<Object>,
    /// Pods.
    pub pods: Vec<Object>,
}

/// Resolves over what was found.
///
/// # Errors
/// What stands in the way of a stream.
pub fn container(workspace: &Workspace, found: &Pods) -> Result<(Container, Features), Unresolved> {
    workspace.wanted()?;
    let Some(owner) = &found.owner else {
        return Err(Unresolved::Starting("its workload is being created".into()));
    };
    if !controlled_by(owner, "kubeworkspaces.io", "Workspace", &workspace.uid) {
        return Err(Unresolved::Foreign(format!(
            "the workload \"{}\"",
            owner.name()
        )));
    }
    let ours = |pod: &&Object| belongs(workspace.kind, owner, &found.replica_sets, pod);
    let pods: Vec<&Object> = found.pods.iter().filter(ours).collect();
    let mut alive = pods.iter().filter(|pod| pod.deletion_timestamp().is_none());
    let Some(pod) = alive.clone().find(|pod| runs(pod)) else {
        return Err(alive.next_back().map_or_else(
            || Unresolved::Starting("its pod is being created".into()),
            |pod| Unresolved::Starting(words(pod)),
        ));
    };
    let name = main_container(pod)
        .ok_or_else(|| Unresolved::Starting("its pod has no running container".into()))?;
    let container = Container {
        pod: pod.name().to_owned(),
        pod_uid: pod.uid().unwrap_or_default().to_owned(),
        name: name.to_owned(),
    };
    let features = Features {
        host_network: pod.pointer("/spec/hostNetwork").is_some_and(|v| v == true),
        ..Features::default()
    };
    Ok((container, features))
}

/// The pods that really are the workspace's, whatever they do.
pub fn own_pods<'a>(workspace: &Workspace, found: &'a Pods) -> Vec<&'a Object> {
    let Some(owner) = found
        .owner
        .as_ref()
        .filter(|owner| controlled_by(owner, "kubeworkspaces.io", "Workspace", &workspace.uid))
    else {
        return Vec::new();
    };
    let ours = |pod: &&Object| belongs(workspace.kind, owner, &found.replica_sets, pod);
    found.pods.iter().filter(ours).collect()
}

fn belongs(kind: Kind, owner: &Object, sets: &[Object], pod: &Object) -> bool {
    let owner_uid = owner.uid().unwrap_or_default();
    match kind {
        Kind::Container => controlled_by(pod, "apps", "StatefulSet", owner_uid),
        Kind::Scratch => controller(pod, "apps", "ReplicaSet").is_some_and(|(_, uid)| {
            sets.iter().any(|set| {
                set.uid() == Some(uid) && controlled_by(set, "apps", "Deployment", owner_uid)
            })
        }),
        Kind::Vm => false,
    }
}

/// The main container runs; other containers of the pod may still be starting.
fn runs(pod: &Object) -> bool {
    let statuses = pod.pointer("/status/containerStatuses");
    let running = |name: &str| {
        statuses
            .and_then(|s| s.as_array())
            .into_iter()
            .flatten()
            .any(|s| s["name"] == name && s["state"]["running"].is_object())
    };
    main_container(pod).is_some_and(running)
}

/// The annotated container if there is one of that name, else the first.
fn main_container(pod: &Object) -> Option<&str> {
    let containers = pod.pointer("/spec/containers")?.as_array()?;
    let names = || containers.iter().filter_map(|c| c["name"].as_str());
    pod.annotation(DEFAULT_CONTAINER)
        .and_then(|wanted| names().find(|name| *name == wanted))
        .or_else(|| names().next())
}

fn words(pod: &Object) -> String {
    let waiting = pod
        .pointer("/status/containerStatuses")
        .and_then(|s| s.as_array())
        .into_iter()
        .flatten()
        .find_map(|s| s["state"]["waiting"]["reason"].as_str());
    let state = waiting.or(pod.str_at("/status/phase")).unwrap_or("Pending");
    format!("its pod is {state}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(kind: &str, uid: &str, owner: (&str, &str, &str)) -> Value {
        json!({"kind": kind, "metadata": {"name": format!("{uid}-name"), "uid": uid,
            "ownerReferences": [{"apiVersion": owner.0, "kind": owner.1, "name": "x", "uid": owner.2,
                "controller": true}]}})
    }

    fn pod(owner: (&str, &str, &str)) -> Value {
        let mut pod = object("Pod", "pod", owner);
        pod["spec"] = json!({"containers": [{"name": "main"}, {"name": "sidecar"}]});
        pod["status"] = json!({"phase": "Running", "containerStatuses": [
            {"name": "main", "state": {"running": {}}}, {"name": "sidecar", "state": {"running": {}}}]});
        pod
    }

    fn workspace(kind: Kind) -> Workspace {
        Workspace {
            namespace: "t1".into(),
            name: "demo".into(),
            uid: "ws".into(),
            kind,
            shell: None,
            ports: Vec::new(),
            stopped: false,
            deleting: false,
        }
    }

    const OURS: (&str, &str, &str) = ("kubeworkspaces.io/v1alpha1", "Workspace", "ws");

    fn resolve(
        kind: Kind,
        owner: Value,
        sets: &[Value],
        pods: &[Value],
    ) -> Result<Container, Unresolved> {
        let parse = |v: &Value| Object::from_value(v.clone()).unwrap();
        let found = Pods {
            owner: Some(parse(&owner)),
            replica_sets: sets.iter().map(parse).collect(),
            pods: pods.iter().map(parse).collect(),
        };
        container(&workspace(kind), &found).map(|(container, _)| container)
    }

    #[test]
    fn a_container_workspace_leads_to_its_pods_first_container() {
        let set = object("StatefulSet", "set", OURS);
        let pod = pod(("apps/v1", "StatefulSet", "set"));
        let found = resolve(
            Kind::Container,
            set.clone(),
            &[],
            std::slice::from_ref(&pod),
        )
        .unwrap();
        assert_eq!(
            (found.pod_uid.as_str(), found.name.as_str()),
            ("pod", "main")
        );
        let mut annotated = pod;
        annotated["metadata"]["annotations"] = json!({DEFAULT_CONTAINER: "sidecar"});
        assert_eq!(
            resolve(Kind::Container, set, &[], &[annotated])
                .unwrap()
                .name,
            "sidecar"
        );
    }

    #[test]
    fn a_scratch_workspace_leads_through_its_replica_set() {
        let deployment = object("Deployment", "dep", OURS);
        let ours = object("ReplicaSet", "rs", ("apps/v1", "Deployment", "dep"));
        let theirs = object("ReplicaSet", "rs", ("apps/v1", "Deployment", "other"));
        let pod = [pod(("apps/v1", "ReplicaSet", "rs"))];
        assert!(resolve(Kind::Scratch, deployment.clone(), &[ours], &pod).is_ok());
        let foreign = resolve(Kind::Scratch, deployment, &[theirs], &pod);
        assert!(
            matches!(foreign, Err(Unresolved::Starting(_))),
            "its pod does not count"
        );
    }

    #[test]
    fn a_workload_of_somebody_else_is_foreign() {
        let theirs = object(
            "StatefulSet",
            "set",
            ("kubeworkspaces.io/v1alpha1", "Workspace", "other"),
        );
        let pods = [pod(("apps/v1", "StatefulSet", "set"))];
        let result = resolve(Kind::Container, theirs, &[], &pods);
        assert!(matches!(result, Err(Unresolved::Foreign(_))));
    }

    #[test]
    fn a_pod_that_does_not_run_yet_says_what_it_does() {
        let set = object("StatefulSet", "set", OURS);
        let mut pulling = pod(("apps/v1", "StatefulSet", "set"));
        pulling["status"]["containerStatuses"] =
            json!([{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
        let Err(Unresolved::Starting(text)) =
            resolve(Kind::Container, set.clone(), &[], &[pulling])
        else {
            panic!("resolved");
        };
        assert!(text.contains("ImagePullBackOff"));
        let mut leaving = pod(("apps/v1", "StatefulSet", "set"));
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(resolve(Kind::Container, set, &[], &[leaving]).is_err());
    }
}
