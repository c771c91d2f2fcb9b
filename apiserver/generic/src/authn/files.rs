//! Trust from files, read again when they change.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;

use super::{CaBundle, Trust, TrustStore};
use crate::files::FileChanges;

/// The files that flags name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustFiles {
    /// CAs of client certificates.
    pub client_ca: Option<PathBuf>,
    /// CAs of front proxies.
    pub request_header_ca: Option<PathBuf>,
}

impl TrustFiles {
    /// Keeps `store` in step with the files until `stop`. A file that cannot be used leaves the last
    /// good bundle in place.
    pub async fn follow(self, store: Arc<TrustStore>, stop: CancellationToken) {
        let paths: Vec<&PathBuf> = [&self.client_ca, &self.request_header_ca]
            .into_iter()
            .flatten()
            .collect();
        if paths.is_empty() {
            return;
        }
        let mut changes = FileChanges::of(paths);
        loop {
            let client = self.client_ca.as_deref().and_then(read);
            let front = self.request_header_ca.as_deref().and_then(read);
            store.update(|trust| replace(trust, client, front));
            if stop.run_until_cancelled(changes.next()).await.is_none() {
                return;
            }
        }
    }
}

fn replace(trust: &mut Trust, client: Option<CaBundle>, front: Option<CaBundle>) {
    if let Some(bundle) = client {
        trust.client_ca = Some(Arc::new(bundle));
    }
    if let (Some(ca), Some(known)) = (front, &trust.request_header) {
        let mut changed = (**known).clone();
        changed.ca = ca;
        trust.request_header = Some(Arc::new(changed));
    }
}

fn read(path: &Path) -> Option<CaBundle> {
    let bundle = std::fs::read(path)
        .map_err(|e| e.to_string())
        .and_then(|pem| CaBundle::from_pem(&pem).map_err(|e| e.to_string()));
    bundle
        .inspect_err(|error| {
            tracing::warn!(file = %path.display(), error, "keeping the last CA bundle");
        })
        .ok()
}
