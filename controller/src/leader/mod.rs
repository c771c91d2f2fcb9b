//! Leader election by a Lease: at most one replica works at any time.
//!
//! Entry point: [`spawn_when_leader`]. A leader that could not renew for [`Times::deadline`],
//! counted from the start of its last successful renewal on the monotonic clock, ends its work;
//! work that does not end is aborted before [`Times::duration`] has passed and another may begin.

mod lease;

use std::time::Instant;

use apiserver_generic::Object;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{GetParams, Patch, PatchParams, PostParams};
use kube::core::{Request, Resource};
use kube::{Client, Error};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use lease::Times;
use lease::{Seen, first, held, may_take, released};

/// Who takes part in which election.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub lease: String,
    /// Unique among all replicas and restarts, as pod name and a random part.
    pub identity: String,
    /// Times.
    pub times: Times,
}

/// Runs `work` whenever this replica leads, until the token ends it. The work is given a token
/// that is cancelled when the lead is lost; it is started again when the lead comes back.
pub fn spawn_when_leader<W, F>(
    client: Client,
    candidate: Candidate,
    stop: CancellationToken,
    work: W,
) -> JoinHandle<()>
where
    W: Fn(CancellationToken) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let election = Election { client, candidate };
    tokio::spawn(async move {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                lead = election.acquire() => election.lead(lead, &stop, &work).await,
            }
        }
    })
}

struct Election {
    client: Client,
    candidate: Candidate,
}

/// The Lease as we hold it, and when the request began that last renewed it.
struct Lead {
    lease: Object,
    renewed: Instant,
}

impl Election {
    /// Waits until the Lease is ours.
    async fn acquire(&self) -> Lead {
        let mut seen = None;
        loop {
            let began = Instant::now();
            let attempt = self.attempt(&mut seen);
            match tokio::time::timeout(self.candidate.times.deadline / 2, attempt).await {
                Ok(Ok(Some(lease))) => {
                    info!(lease = self.candidate.lease, "this replica leads");
                    return Lead {
                        lease,
                        renewed: began,
                    };
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => debug!(%error, "cannot reach the Lease"),
                Err(_) => debug!("reaching the Lease takes too long"),
            }
            tokio::time::sleep(self.candidate.times.retry).await;
        }
    }

    async fn attempt(&self, seen: &mut Option<Seen>) -> Result<Option<Object>, Error> {
        let me = &self.candidate.identity;
        let Some(lease) = self.get().await? else {
            return self.create().await;
        };
        let now = Instant::now();
        let look = Seen::look(seen.take(), &lease, now);
        let free = may_take(&lease, &look, me, now);
        *seen = Some(look);
        if !free {
            return Ok(None);
        }
        self.put(&held(&lease, me, &self.candidate.times, Timestamp::now()))
            .await
    }

    /// Works while the lead lasts.
    async fn lead<W, F>(&self, mut lead: Lead, stop: &CancellationToken, work: &W)
    where
        W: Fn(CancellationToken) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let token = stop.child_token();
        let mut working = tokio::spawn(work(token.clone()));
        let ended = tokio::select! {
            () = stop.cancelled() => false,
            () = self.keep(&mut lead) => {
                warn!("this replica could not renew its Lease and no longer leads");
                false
            }
            _ = &mut working => true,
        };
        token.cancel();
        if !ended {
            self.end(&mut working, &lead).await;
        }
        self.release(&lead).await;
        if ended && !stop.is_cancelled() {
            // Work that ends by itself is not restarted in a tight loop.
            tokio::time::sleep(self.candidate.times.retry).await;
        }
    }

    /// Renews until the deadline passes without success, or the Lease is somebody else's.
    async fn keep(&self, lead: &mut Lead) {
        let times = self.candidate.times;
        loop {
            tokio::time::sleep(times.retry).await;
            let (began, deadline) = (Instant::now(), lead.renewed + times.deadline);
            if began >= deadline {
                return;
            }
            // A request that hangs must leave time for another one.
            let limit = deadline.min(began + times.deadline / 2);
            match tokio::time::timeout_at(limit.into(), self.renew(&lead.lease)).await {
                Ok(Ok(Some(lease))) => {
                    *lead = Lead {
                        lease,
                        renewed: began,
                    };
                }
                Ok(Ok(None)) => return,
                Ok(Err(error)) => debug!(%error, "cannot renew the Lease"),
                Err(_) => debug!("renewing the Lease takes too long"),
            }
        }
    }

    /// `None` when the Lease is somebody else's.
    async fn renew(&self, lease: &Object) -> Result<Option<Object>, Error> {
        let (me, times) = (&self.candidate.identity, &self.candidate.times);
        if let Some(renewed) = self.put(&held(lease, me, times, Timestamp::now())).await? {
            return Ok(Some(renewed));
        }
        // Somebody touched it: it may still be ours, as after a label was added.
        match self.get().await? {
            Some(lease) if lease.str_at("/spec/holderIdentity") == Some(me.as_str()) => {
                self.put(&held(&lease, me, times, Timestamp::now())).await
            }
            _ => Ok(None),
        }
    }

    /// Lets the work end by itself while the Lease is still safely ours, then aborts it.
    async fn end(&self, working: &mut JoinHandle<()>, lead: &Lead) {
        let times = self.candidate.times;
        let last = lead.renewed + times.duration.saturating_sub(times.retry / 2);
        if tokio::time::timeout_at(last.into(), &mut *working)
            .await
            .is_err()
        {
            warn!("the work did not end in time and is aborted");
            working.abort();
            let _ = working.await;
        }
    }

    async fn release(&self, lead: &Lead) {
        let free = released(&lead.lease, Timestamp::now());
        let give_back = self.put(&free);
        match tokio::time::timeout(self.candidate.times.retry, give_back).await {
            Ok(Ok(Some(_))) => debug!("the Lease is free"),
            _ => debug!("the Lease could not be given back; it runs out by itself"),
        }
    }

    fn request(&self) -> Request {
        Request::new(Lease::url_path(&(), Some(&self.candidate.namespace)))
    }

    async fn get(&self) -> Result<Option<Object>, Error> {
        let name = &self.candidate.lease;
        let request = self.request().get(name, &GetParams::default());
        let request = request.map_err(Error::BuildRequest)?;
        match self.client.request(request).await {
            Err(Error::Api(status)) if status.code == 404 => Ok(None),
            other => other.map(Some),
        }
    }

    /// The first Lease is applied, so that rights to its one name are enough. Each candidate is a
    /// field manager of its own: of two at the same time one meets a conflict.
    async fn create(&self) -> Result<Option<Object>, Error> {
        let Candidate {
            namespace,
            lease,
            identity,
            times,
        } = &self.candidate;
        let body = first(lease, namespace, identity, times, Timestamp::now());
        let mut manager = identity.clone();
        manager.truncate(manager.floor_char_boundary(128));
        let params = PatchParams {
            field_manager: Some(manager),
            ..PatchParams::default()
        };
        let request = self.request().patch(lease, &params, &Patch::Apply(&body));
        let request = request.map_err(Error::BuildRequest)?;
        unless_conflict(self.client.request(request).await)
    }

    /// Replaces the Lease if it is still the one that was read.
    async fn put(&self, lease: &Object) -> Result<Option<Object>, Error> {
        let body = serde_json::to_vec(lease).map_err(Error::SerdeError)?;
        let params = PostParams::default();
        let request = self.request().replace(&self.candidate.lease, &params, body);
        let request = request.map_err(Error::BuildRequest)?;
        unless_conflict(self.client.request(request).await)
    }
}

fn unless_conflict(result: Result<Object, Error>) -> Result<Option<Object>, Error> {
    match result {
        Err(Error::Api(status)) if status.code == 409 => Ok(None),
        other => other.map(Some),
    }
}
