//! Gets the objects that [`super`] decides over, with our own credentials.

use std::{collections::BTreeSet, future::Future, time::Duration};

use apiserver_generic::{ApiError, Object, Reason};
use controller::names::{WORKSPACE_NAME, child_name};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};

use super::{Container, Kind, Machine, Pods, Workspace, container, controller, machine};

/// How long one look may take: no request's deadline bounds a stream's set-up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Finds machines and pods of workspaces.
#[derive(Clone)]
pub struct Fetch {
    client: Client,
}

impl Fetch {
    /// Over our own client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The machine of a vm workspace.
    ///
    /// # Errors
    /// Why there is none to connect to, or that the cluster did not answer.
    pub async fn machine(&self, workspace: &Workspace) -> Result<Machine, ApiError> {
        let machines = self.api(
            "kubevirt.io",
            "VirtualMachine",
            "virtualmachines",
            &workspace.namespace,
        );
        let vm = get(&machines, &workspace.name).await?;
        let vmi = match &vm {
            Some(vm) => self.instance(&workspace.namespace, vm.name()).await?,
            None => None,
        };
        machine(workspace, vm.as_ref(), vmi.as_ref()).map_err(|u| u.into_error(&workspace.name))
    }

    /// The machine's instance, if there is one of that name.
    ///
    /// # Errors
    /// The cluster did not answer.
    pub async fn instance(&self, namespace: &str, name: &str) -> Result<Option<Object>, ApiError> {
        let instances = self.api(
            "kubevirt.io",
            "VirtualMachineInstance",
            "virtualmachineinstances",
            namespace,
        );
        get(&instances, name).await
    }

    /// The container of a container or scratch workspace.
    ///
    /// # Errors
    /// Why there is none to connect to, or that the cluster did not answer.
    pub async fn container(&self, workspace: &Workspace) -> Result<Container, ApiError> {
        let found = self.pods(workspace).await?;
        container(workspace, &found).map_err(|u| u.into_error(&workspace.name))
    }

    async fn pods(&self, workspace: &Workspace) -> Result<Pods, ApiError> {
        let namespace = &workspace.namespace;
        let (kind, plural) = match workspace.kind {
            Kind::Scratch => ("Deployment", "deployments"),
            _ => ("StatefulSet", "statefulsets"),
        };
        let owners = self.api("apps", kind, plural, namespace);
        let owner = get(&owners, &child_name(&workspace.name)).await?;
        let pods = self.api("", "Pod", "pods", namespace);
        let pods = self.labelled(&pods, workspace).await?;
        let replica_sets = match workspace.kind {
            Kind::Scratch => self.replica_sets(namespace, &pods).await?,
            _ => Vec::new(),
        };
        Ok(Pods {
            owner,
            replica_sets,
            pods,
        })
    }

    /// The ReplicaSets that pods name as their controllers.
    async fn replica_sets(
        &self,
        namespace: &str,
        pods: &[Object],
    ) -> Result<Vec<Object>, ApiError> {
        let sets = self.api("apps", "ReplicaSet", "replicasets", namespace);
        let names: BTreeSet<&str> = pods
            .iter()
            .filter_map(|pod| controller(pod, "apps", "ReplicaSet"))
            .map(|(name, _)| name)
            .collect();
        let mut found = Vec::new();
        for name in names {
            found.extend(get(&sets, name).await?);
        }
        Ok(found)
    }

    async fn labelled(
        &self,
        api: &Api<DynamicObject>,
        workspace: &Workspace,
    ) -> Result<Vec<Object>, ApiError> {
        // A hint for the search, never a proof: anybody may put this label on a pod.
        let selector = format!("{WORKSPACE_NAME}={}", workspace.name);
        let params = ListParams::default().labels(&selector).limit(100);
        match in_time(api.list(&params)).await? {
            Ok(list) => Ok(list.items.into_iter().filter_map(object).collect()),
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            Err(error) => Err(unavailable(error)),
        }
    }

    fn api(&self, group: &str, kind: &str, plural: &str, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }
}

async fn get(api: &Api<DynamicObject>, name: &str) -> Result<Option<Object>, ApiError> {
    match in_time(api.get_opt(name)).await? {
        Ok(found) => Ok(found.and_then(object)),
        // `get_opt` knows a Status that says NotFound; a group that is not installed answers a bare 404.
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(unavailable(error)),
    }
}

fn object(found: DynamicObject) -> Option<Object> {
    let value = serde_json::to_value(found).ok()?;
    Object::from_value(value).ok()
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

async fn in_time<T>(looking: impl Future<Output = T>) -> Result<T, ApiError> {
    let looked = tokio::time::timeout(PATIENCE, looking).await;
    looked.map_err(|_| unavailable(format!("no answer within {} s", PATIENCE.as_secs())))
}

fn unavailable(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(
        Reason::ServiceUnavailable,
        "the workspace's machine or pod could not be looked up in the cluster; try again",
    )
    .retry_after(1)
    .because(error)
}
