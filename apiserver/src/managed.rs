//! The serving certificate in either mode, and the registration that goes with our own authority.

use std::sync::Arc;

use apiserver_generic::serving::{CertificateSource, CurrentCertificate, FileCertificate};
use certs::{Manager, plan::Policy, store::SecretStore};
use jiff::SignedDuration;
use kube::Client;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    options::{CertificateMode, WorkspacesOptions},
    registrar, serving_certificate,
};

/// The Secret that all replicas share.
const SECRET: &str = "workspaces-apiserver-certs";

/// Where the listener gets its certificate from.
pub struct Source(CurrentCertificate);

impl CertificateSource for Source {
    fn subscribe(&self) -> CurrentCertificate {
        self.0.clone()
    }
}

/// Starts what keeps the certificate, and the registration if it is wanted.
pub fn start(
    mode: CertificateMode,
    files: Option<Arc<FileCertificate>>,
    options: &WorkspacesOptions,
    client: &Client,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Source {
    if let (CertificateMode::Files, Some(files)) = (mode, files) {
        let current = files.subscribe();
        tasks.spawn(files.follow(stop.clone()));
        return Source(current);
    }
    let store = SecretStore::new(client.clone(), &options.namespace, SECRET);
    let manager = Manager::new(store, policy(options));
    let published = manager.subscribe();
    if options.register {
        tasks.spawn(registrar::run(
            client.clone(),
            options.service(),
            published.clone(),
            stop.clone(),
        ));
    }
    tasks.spawn(manager.run(stop.clone()));
    Source(serving_certificate::follow(published, tasks, stop.clone()))
}

fn policy(options: &WorkspacesOptions) -> Policy {
    const DAY: i64 = 24;
    Policy {
        names: options.dns_names(),
        authority_valid: SignedDuration::from_hours(3650 * DAY),
        serving_valid: SignedDuration::from_hours(365 * DAY),
        overlap: SignedDuration::from_hours(1),
    }
}
