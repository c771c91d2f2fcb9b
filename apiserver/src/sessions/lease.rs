//! The Leases of the replicas, in the cluster.

use apiserver_generic::ApiError;
use async_trait::async_trait;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::replica::{Beat, DEAD_AFTER, ReplicaId};

const LABEL: &str = "kubeworkspaces.io/replica";
const PREFIX: &str = "stream-replica-";

/// Where replicas prove that they live.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Moves our own.
    ///
    /// # Errors
    /// It could not be moved; others will soon take us for dead.
    async fn renew(&self, me: &ReplicaId) -> Result<(), ApiError>;

    /// All that there are.
    ///
    /// # Errors
    /// They could not be listed; nobody is judged.
    async fn list(&self) -> Result<Vec<Beat>, ApiError>;

    /// Removes one whose replica has no sessions any more.
    ///
    /// # Errors
    /// It stays, and is removed later.
    async fn remove(&self, replica: &str) -> Result<(), ApiError>;
}

/// Leases of `coordination.k8s.io` in the server's namespace.
pub struct ClusterLeases {
    api: Api<Lease>,
}

impl ClusterLeases {
    /// In this namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
        }
    }

    async fn create(&self, me: &ReplicaId) -> Result<(), kube::Error> {
        let seconds = i32::try_from(DEAD_AFTER.as_secs()).unwrap_or(i32::MAX);
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(name(&me.to_string())),
                labels: Some([(LABEL.to_owned(), "true".to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(me.to_string()),
                lease_duration_seconds: Some(seconds),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        };
        self.api.create(&PostParams::default(), &lease).await?;
        Ok(())
    }
}

#[async_trait]
impl Leases for ClusterLeases {
    async fn renew(&self, me: &ReplicaId) -> Result<(), ApiError> {
        let now = json!({"spec": {"renewTime": MicroTime(Timestamp::now())}});
        let patch = Patch::Merge(&now);
        let patched = self
            .api
            .patch(&name(&me.to_string()), &PatchParams::default(), &patch)
            .await;
        let result = match patched {
            Err(kube::Error::Api(status)) if status.code == 404 => self.create(me).await,
            other => other.map(|_| ()),
        };
        result.map_err(ApiError::internal)
    }

    async fn list(&self) -> Result<Vec<Beat>, ApiError> {
        let params = ListParams::default().labels(LABEL);
        let leases = self.api.list(&params).await.map_err(ApiError::internal)?;
        Ok(leases.items.into_iter().filter_map(beat).collect())
    }

    async fn remove(&self, replica: &str) -> Result<(), ApiError> {
        match self
            .api
            .delete(&name(replica), &DeleteParams::default())
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(|_| ()).map_err(ApiError::internal),
        }
    }
}

fn name(replica: &str) -> String {
    format!("{PREFIX}{replica}")
}

fn beat(lease: Lease) -> Option<Beat> {
    let replica = lease.metadata.name?.strip_prefix(PREFIX)?.to_owned();
    let mark = lease.metadata.resource_version?;
    Some(Beat { replica, mark })
}
