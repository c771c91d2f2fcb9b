//! Gets the objects that [`super`] decides over, with our own credentials.

use std::{collections::BTreeSet, future::Future, time::Duration};

use apiserver_generic::{ApiError, Object, Reason};
use controller::names::{WORKSPACE_NAME, child_name};
use kube::{
    Api, Client,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};

use super::{
    Found, Kind, Machine, Pods, Target, Unresolved, Workspace, container, controller, features,
    machine,
};

/// On a launcher pod: the UID of its instance. A hint for the search, never a proof.
const CREATED_BY: &str = "kubevirt.io/created-by";

/// How long one look may take: no request's deadline bounds a stream's set-up.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many objects a page has, and how many pages are looked at.
const PAGE: u32 = 500;
const PAGES: u32 = 10;

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
    pub async fn machine(&self, workspace: &Workspace) -> Result<Found, ApiError> {
        let (vm, vmi) = self.machine_parts(workspace).await?;
        let machine = machine(workspace, vm.as_ref(), vmi.as_ref())
            .map_err(|unresolved| unresolved.into_error(&workspace.name))?;
        Ok(Found {
            target: Target::Machine(machine),
            features: vmi.as_ref().map(features).unwrap_or_default(),
        })
    }

    /// The VirtualMachine and the instance that bear the workspace's name, whosever they are.
    ///
    /// # Errors
    /// The cluster did not answer.
    pub async fn machine_parts(
        &self,
        workspace: &Workspace,
    ) -> Result<(Option<Object>, Option<Object>), ApiError> {
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
        Ok((vm, vmi))
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

    /// The launcher pod of a machine, by its UID.
    ///
    /// # Errors
    /// It is not there, or the cluster did not answer.
    pub async fn launcher(
        &self,
        workspace: &Workspace,
        machine: &Machine,
    ) -> Result<Object, ApiError> {
        let pods = self.api("", "Pod", "pods", &workspace.namespace);
        let pods = labelled(&pods, &format!("{CREATED_BY}={}", machine.uid)).await?;
        // `status.activePods` has said on which node the pod of this UID is.
        let found = pods
            .into_iter()
            .find(|pod| pod.uid() == Some(&machine.pod_uid));
        found.ok_or_else(|| {
            Unresolved::Starting("its pod is not there yet, or not any more".into())
                .into_error(&workspace.name)
        })
    }

    /// The container of a container or scratch workspace.
    ///
    /// # Errors
    /// Why there is none to connect to, or that the cluster did not answer.
    pub async fn container(&self, workspace: &Workspace) -> Result<Found, ApiError> {
        let pods = self.pods(workspace).await?;
        let (container, features) =
            container(workspace, &pods).map_err(|u| u.into_error(&workspace.name))?;
        Ok(Found {
            target: Target::Container(container),
            features,
        })
    }

    /// The workload and the pods that bear the workspace's name, whosever they are.
    ///
    /// # Errors
    /// The cluster did not answer.
    pub async fn pods(&self, workspace: &Workspace) -> Result<Pods, ApiError> {
        let namespace = &workspace.namespace;
        let (kind, plural) = match workspace.kind {
            Kind::Scratch => ("Deployment", "deployments"),
            _ => ("StatefulSet", "statefulsets"),
        };
        let owners = self.api("apps", kind, plural, namespace);
        let owner = get(&owners, &child_name(&workspace.name)).await?;
        let pods = self.api("", "Pod", "pods", namespace);
        // A hint for the search, never a proof: anybody may put this label on a pod.
        let pods = labelled(&pods, &format!("{WORKSPACE_NAME}={}", workspace.name)).await?;
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

    fn api(&self, group: &str, kind: &str, plural: &str, namespace: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }
}

/// All that bear the labels, page by page: anybody may set them, so the right one may come late.
async fn labelled(api: &Api<DynamicObject>, selector: &str) -> Result<Vec<Object>, ApiError> {
    let mut params = ListParams::default().labels(selector).limit(PAGE);
    let mut found = Vec::new();
    for _ in 0..PAGES {
        let list = match in_time(api.list(&params)).await? {
            Ok(list) => list,
            Err(error) if is_missing(&error) => return Ok(found),
            Err(error) => return Err(unavailable(error)),
        };
        found.extend(list.items.into_iter().filter_map(object));
        params.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(found);
        }
    }
    let seen = PAGES * PAGE;
    tracing::warn!(
        selector,
        "more than {seen} objects bear these labels; the rest is not looked at"
    );
    Ok(found)
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
