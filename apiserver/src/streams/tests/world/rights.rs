//! What a server asks others about: rights, namespaces, host keys, Leases. All of it answers as the test
//! wants.

use std::{collections::BTreeSet, sync::Arc};

use apiserver_generic::{
    ApiError, Attributes, Authorizer, UserInfo,
    admission::{NamespacePhase, Namespaces},
    authz::Decision,
};
use apiservice::v1alpha1::SshStatus;
use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{
    sessions::{
        lease::Leases,
        replica::{Beat, ReplicaId},
    },
    streams::{
        ssh::hostkeys::{Hosts, OnChange, Subject},
        tests::sshd,
    },
};

/// Knows every guest: the scripted ones speak no SSH, and what checks host keys is tested on real ones.
pub(super) struct Acquainted;

#[async_trait]
impl Hosts for Acquainted {
    async fn pin(&self, subject: &Subject, _: OnChange) -> Result<SshStatus, ApiError> {
        Ok(SshStatus {
            root: subject.root.clone(),
            host_keys: vec![sshd::host_key()],
            pinned_at: String::new(),
        })
    }

    async fn prove(&self, _: &Subject, _: &SshStatus) -> Result<(), ApiError> {
        Ok(())
    }

    async fn refusal(&self, _: &Subject, _: &SshStatus) -> ApiError {
        ApiError::internal("nothing was refused")
    }
}

pub(super) struct AlwaysAlive;

#[async_trait]
impl Leases for AlwaysAlive {
    async fn renew(&self, _: &ReplicaId) -> Result<(), ApiError> {
        Ok(())
    }
    async fn list(&self) -> Result<Vec<Beat>, ApiError> {
        Ok(Vec::new())
    }
    async fn remove(&self, _: &str) -> Result<(), ApiError> {
        Ok(())
    }
}

/// The phase of every namespace; a watch that is behind knows none.
#[derive(Clone, Default)]
pub(in crate::streams::tests) struct Phase(
    pub(in crate::streams::tests) Arc<Mutex<Option<NamespacePhase>>>,
);

#[async_trait]
impl Namespaces for Phase {
    fn is_ready(&self) -> bool {
        true
    }
    fn cached(&self, _: &str) -> Option<NamespacePhase> {
        None
    }
    async fn live(&self, _: &str) -> Result<Option<NamespacePhase>, ApiError> {
        Ok(*self.0.lock())
    }
}

/// Allows these verbs on everything.
#[derive(Clone, Default)]
pub(in crate::streams::tests) struct Verbs(
    pub(in crate::streams::tests) Arc<Mutex<BTreeSet<&'static str>>>,
    /// If set, only on what has this name.
    pub(in crate::streams::tests) Arc<Mutex<Option<&'static str>>>,
);

#[async_trait]
impl Authorizer for Verbs {
    async fn decide(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let named = self.1.lock().is_none_or(|name| attributes.name == name);
        let allowed = named && self.0.lock().contains(attributes.verb.as_str());
        Ok(if allowed {
            Decision::Allow
        } else {
            Decision::Deny(String::new())
        })
    }
}
