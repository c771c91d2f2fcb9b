//! Which CAs are trusted at this moment, for what.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{CaBundle, RequestHeader};

/// What is trusted. Either part may be unknown: then certificates say nothing by it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trust {
    /// Signs users' client certificates.
    pub client_ca: Option<Arc<CaBundle>>,
    /// Front proxies.
    pub request_header: Option<Arc<RequestHeader>>,
}

/// A combination that would let every holder of a client certificate speak for anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the client CA and the request-header CA are the same and no front-proxy name is required, so \
     every holder of a client certificate could act as anybody; set --requestheader-allowed-names \
     on kube-apiserver (or, with --requestheader-client-ca-file, here), or use a CA of its own"
)]
pub struct Hazard;

impl Trust {
    /// Whether this may be trusted at all.
    ///
    /// # Errors
    /// With the [`Hazard`] if it may not.
    pub fn check(&self) -> Result<(), Hazard> {
        let (Some(client), Some(front)) = (&self.client_ca, &self.request_header) else {
            return Ok(());
        };
        if front.allowed_names.is_empty() && front.ca.overlaps(client) {
            return Err(Hazard);
        }
        Ok(())
    }
}

/// The trust of the moment, which its sources replace part by part.
#[derive(Debug, Default)]
pub struct TrustStore {
    wanted: parking_lot::Mutex<Trust>,
    current: ArcSwap<Trust>,
}

impl TrustStore {
    /// A store that begins with what the flags give.
    pub fn new(trust: Trust) -> Self {
        let store = Self::default();
        store.update(|slot| *slot = trust);
        store
    }

    /// What is trusted now.
    pub fn current(&self) -> Arc<Trust> {
        self.current.load_full()
    }

    /// Changes what is trusted. A dangerous combination is refused as far as front proxies go: they
    /// are not believed until it is resolved.
    pub fn update(&self, change: impl FnOnce(&mut Trust)) {
        let mut wanted = self.wanted.lock();
        let before = wanted.clone();
        change(&mut wanted);
        if *wanted == before {
            return;
        }
        let mut effective = wanted.clone();
        if let Err(hazard) = wanted.check() {
            tracing::error!("front proxies are not believed: {hazard}");
            effective.request_header = None;
        }
        tracing::info!(
            client_cas = effective.client_ca.as_ref().map_or(0, |b| b.len()),
            request_header_cas = effective.request_header.as_ref().map_or(0, |r| r.ca.len()),
            allowed_names = ?effective.request_header.as_ref().map(|r| &r.allowed_names),
            "trust changed"
        );
        self.current.store(Arc::new(effective));
    }

    /// Whether front proxies can be recognized at this moment, in Unix seconds: what readiness asks.
    ///
    /// # Errors
    /// With what is missing.
    pub fn ready(&self, now: i64) -> Result<(), String> {
        if let Some(front) = &self.current().request_header {
            return front.ca.check(now).map_err(|why| {
                format!("the request-header CA {why}: kube-apiserver is not believed")
            });
        }
        match self.wanted.lock().check() {
            Err(hazard) => Err(hazard.to_string()),
            Ok(()) => Err(
                "the request-header CA is not known yet: kube-apiserver publishes it in \
                           ConfigMap kube-system/extension-apiserver-authentication"
                    .to_owned(),
            ),
        }
    }
}
