//! What the server asks of the cluster. [`Cluster`] is a trait so that wire behaviour can be tested without one.

use async_trait::async_trait;
use k8s_openapi::api::{
    authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::Pod,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Value, json};

use super::{
    reply::{Failure, Kind},
    route::Named,
};
use crate::{
    api::{Instance, Machine, is_controlled_by, migration_resource, vm_resource, vmi_resource},
    dial::Target,
    guestless::Script,
    vmi::{names, reconcile},
};

/// Where a JSON patch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The machine.
    Machine,
    /// The machine's status.
    MachineStatus,
    /// The instance.
    Instance,
}

/// A review's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Yes or no.
    pub allowed: bool,
    /// Why not (may be empty).
    pub reason: String,
}

/// The cluster, as far as it matters here.
#[async_trait]
pub trait Cluster: Send + Sync + 'static {
    /// The machine.
    ///
    /// # Errors
    /// 404, or 500 if the cluster cannot be asked.
    async fn machine(&self, object: &Named) -> Result<Machine, Failure>;

    /// The instance.
    ///
    /// # Errors
    /// 404, or 500 if the cluster cannot be asked.
    async fn instance(&self, object: &Named) -> Result<Instance, Failure>;

    /// Where the instance's launcher is.
    ///
    /// # Errors
    /// 400 if there is none that runs, 500 if the cluster cannot be asked.
    async fn launcher(&self, vmi: &Instance) -> Result<Target, Failure>;

    /// Applies a JSON patch; one whose tests fail is a conflict.
    ///
    /// # Errors
    /// 404, 409, or 500.
    async fn patch(&self, object: &Named, place: Place, operations: Value) -> Result<(), Failure>;

    /// Asks for a migration of the instance.
    ///
    /// # Errors
    /// When the cluster refuses it.
    async fn migrate(&self, object: &Named, selector: &Value) -> Result<(), Failure>;

    /// Asks who may do what.
    ///
    /// # Errors
    /// When there was no answer.
    async fn review(&self, spec: SubjectAccessReviewSpec) -> Result<Verdict, Failure>;
}

/// The real one.
pub struct KubeCluster {
    client: Client,
}

impl KubeCluster {
    /// With this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn objects(&self, object: &Named, kind: Kind) -> Api<DynamicObject> {
        let resource = match kind {
            Kind::Machine => vm_resource(),
            Kind::Instance => vmi_resource(),
        };
        Api::namespaced_with(self.client.clone(), &object.namespace, &resource)
    }

    async fn get(&self, object: &Named, kind: Kind) -> Result<DynamicObject, Failure> {
        let found = self.objects(object, kind).get(&object.name).await;
        found.map_err(|e| failure(e, kind, &object.name))
    }
}

fn failure(error: kube::Error, kind: Kind, name: &str) -> Failure {
    let name = name.to_owned();
    match error {
        kube::Error::Api(status) if status.code == 404 => Failure::NotFound { kind, name },
        // A JSON patch whose `test` does not hold is 422.
        kube::Error::Api(status) if status.code == 409 || status.code == 422 => Failure::Conflict {
            kind,
            name,
            text: status.message.clone(),
        },
        other => Failure::internal(other),
    }
}

#[async_trait]
impl Cluster for KubeCluster {
    async fn machine(&self, object: &Named) -> Result<Machine, Failure> {
        let found = self.get(object, Kind::Machine).await?;
        Machine::read(&found).map_err(Failure::internal)
    }

    async fn instance(&self, object: &Named) -> Result<Instance, Failure> {
        let found = self.get(object, Kind::Instance).await?;
        Instance::read(&found).map_err(Failure::internal)
    }

    async fn launcher(&self, vmi: &Instance) -> Result<Target, Failure> {
        if let Some(script) = Script::of(vmi) {
            return Ok(reconcile::inside(vmi, script));
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), vmi.namespace());
        let name = names::current(vmi);
        let pod = pods.get_opt(&name).await.map_err(Failure::internal)?;
        pod.filter(|p| is_controlled_by(&p.metadata, vmi.uid()))
            .and_then(|p| reconcile::target(vmi, &p))
            .ok_or_else(|| {
                let node = vmi.node_name.as_deref().unwrap_or_default();
                Failure::BadRequest(format!("No virt-handler on node {node} found"))
            })
    }

    async fn patch(&self, object: &Named, place: Place, operations: Value) -> Result<(), Failure> {
        let kind = if place == Place::Instance {
            Kind::Instance
        } else {
            Kind::Machine
        };
        let api = self.objects(object, kind);
        let operations = serde_json::from_value(operations).map_err(Failure::internal)?;
        let patch: Patch<Value> = Patch::Json(operations);
        let params = PatchParams::default();
        let done = match place {
            Place::MachineStatus => api.patch_status(&object.name, &params, &patch).await,
            Place::Machine | Place::Instance => api.patch(&object.name, &params, &patch).await,
        };
        done.map(drop).map_err(|e| failure(e, kind, &object.name))
    }

    async fn migrate(&self, object: &Named, selector: &Value) -> Result<(), Failure> {
        let resource = migration_resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &object.namespace, &resource);
        let mut spec = json!({ "vmiName": object.name });
        if selector.is_object() {
            spec["addedNodeSelector"] = selector.clone();
        }
        let mut migration = DynamicObject::new("", &resource).data(json!({ "spec": spec }));
        migration.metadata.name = None;
        migration.metadata.generate_name = Some("kubevirt-migrate-vm-".to_owned());
        let created = api.create(&PostParams::default(), &migration).await;
        created.map(drop).map_err(Failure::internal)
    }

    async fn review(&self, spec: SubjectAccessReviewSpec) -> Result<Verdict, Failure> {
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let status = answer
            .map_err(Failure::internal)?
            .status
            .unwrap_or_default();
        Ok(Verdict {
            allowed: status.allowed && status.denied != Some(true),
            reason: status.reason.unwrap_or_default(),
        })
    }
}
