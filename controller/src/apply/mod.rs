//! Brings children into their planned form. Entry point: [`Applier::apply`].
//!
//! Server-side apply with one field manager. An object that does not carry our owner reference is
//! never changed and never deleted.

mod decide;
mod memory;
mod settle;

use std::time::{Duration, Instant};

use apiserver_generic::Object;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tracing::{debug, info};

use crate::cluster::{At, CallError, Cluster};
use crate::key::Key;
use crate::kinds::Kind;
use crate::names::Owner;
use crate::observe::{Failure, is_owned};
use crate::plan::{Child, Plan};
use crate::triggers::Caches;
use decide::{Applied, Step, step, version};
use memory::Memory;

/// Stands for "seen to be absent" in place of a body's digest.
const ABSENT: [u8; 32] = [0; 32];

/// Applies plans.
pub(crate) struct Applier {
    cluster: Cluster,
    /// Secrets are not watched: what was seen of one is trusted for this time.
    trust: Duration,
    memory: Memory,
}

/// What came of a plan.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What stood in the way of the first child that could not be applied.
    pub(crate) failure: Option<Failure>,
    /// What was made.
    pub(crate) created: Vec<(Kind, String)>,
    /// When to look again at the latest.
    pub(crate) again: Option<Duration>,
}

/// What became of a child.
enum Done {
    /// It is as it should be.
    Well,
    /// It is, and was made just now.
    Made,
    /// Somebody changed it, which is undone after this time.
    Again(Duration),
}

/// Why a child was not applied.
enum Trouble {
    /// Somebody has to act.
    Failure(Failure),
    /// It may pass.
    Call(CallError),
}

impl Applier {
    pub(crate) fn new(cluster: Cluster, trust: Duration) -> Self {
        Self {
            cluster,
            trust,
            memory: Memory::default(),
        }
    }

    /// Forgets a workspace that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.memory.forget(key);
    }

    /// Applies the children of the plan in turn up to the first that is refused, and deletes what
    /// is unwanted.
    ///
    /// # Errors
    /// A call that failed for a reason that may pass; the rest of the plan was not tried.
    pub(crate) async fn apply(
        &self,
        owner: &Owner,
        plan: &Plan,
        caches: &Caches,
    ) -> Result<Report, CallError> {
        let mut report = Report::default();
        for child in &plan.children {
            match self.child(owner, child, caches).await {
                Ok(Done::Made) => report.created.push((child.kind.into(), child.name.clone())),
                Ok(Done::Again(again)) => {
                    report.again = Some(report.again.map_or(again, |before| before.min(again)));
                }
                Ok(Done::Well) => {}
                Err(Trouble::Call(error)) => return Err(error),
                Err(Trouble::Failure(failure)) => {
                    report.failure = Some(failure);
                    break;
                }
            }
        }
        for (kind, name) in &plan.unwanted {
            self.remove(owner, (*kind).into(), name).await?;
        }
        Ok(report)
    }

    /// Asks KubeVirt to start the workspace's machine so that it is paused.
    ///
    /// # Errors
    /// KubeVirt refuses, or does not answer.
    pub(crate) async fn start_paused(&self, owner: &Owner) -> Result<(), CallError> {
        let at = at(owner, Kind::VirtualMachine, &owner.name);
        self.cluster.start_paused(at).await
    }

    async fn child(&self, owner: &Owner, child: &Child, caches: &Caches) -> Result<Done, Trouble> {
        let kind = Kind::from(child.kind);
        let at = at(owner, kind, &child.name);
        let (now, body) = (Instant::now(), digest(&child.body));
        let before = self.memory.recall(owner, kind, &child.name);
        if kind == Kind::Secret && self.is_fresh(before.as_ref(), body, now) {
            return Ok(Done::Well);
        }
        let live = self.live(at, caches).await?;
        let step = step(&owner.uid, child, body, live.as_ref(), before.as_ref(), now);
        let done = match step {
            Step::Create => Done::Made,
            _ => Done::Well,
        };
        let applied = match step {
            Step::Keep if kind != Kind::Secret => return Ok(Done::Well),
            Step::Keep => live,
            Step::Create => Some(
                self.cluster
                    .create(at, &child.body)
                    .await
                    .map_err(refused)?,
            ),
            Step::Update { uid } => {
                let settled = settle::over(child, live.as_ref());
                let updated = self.cluster.update(at, &settled, &uid).await;
                Some(updated.map_err(refused)?)
            }
            Step::UndoLater(rest) => {
                debug!(%kind, name = at.name, ?rest, "changed by somebody else; undone after the rest");
                return Ok(Done::Again(rest));
            }
            Step::Wait => return Ok(Done::Well),
            Step::Conflict { owner } => return Err(Trouble::Failure(conflict(at, &owner))),
        };
        let version = applied.as_ref().map(version).unwrap_or_default();
        let applied = Applied {
            body,
            version,
            at: now,
        };
        self.memory.remember(owner, kind, &child.name, applied);
        Ok(done)
    }

    /// From the cache, else from the cluster: foreign objects are not in the cache.
    async fn live(&self, at: At<'_>, caches: &Caches) -> Result<Option<Object>, Trouble> {
        if let Some(cached) = caches.get(at.kind, at.namespace, at.name) {
            return Ok(Some(Object::clone(&cached)));
        }
        self.cluster.get(at).await.map_err(|error| match at.kind {
            Kind::Secret if is_guarded(&error) => {
                let why = "it may not be touched, since no Workspace owns it";
                Trouble::Failure(conflict(at, why))
            }
            _ => refused(error),
        })
    }

    fn is_fresh(&self, applied: Option<&Applied>, body: [u8; 32], now: Instant) -> bool {
        applied.is_some_and(|applied| {
            applied.body == body && now.saturating_duration_since(applied.at) < self.trust
        })
    }

    async fn remove(&self, owner: &Owner, kind: Kind, name: &str) -> Result<(), CallError> {
        let now = Instant::now();
        let at = at(owner, kind, name);
        if self.is_fresh(self.memory.recall(owner, kind, name).as_ref(), ABSENT, now) {
            return Ok(());
        }
        let live = self.cluster.get(at).await?;
        if let Some(live) = live.filter(|live| is_owned(live, &owner.uid)) {
            self.cluster
                .delete(at, live.uid().unwrap_or_default())
                .await?;
            info!(%kind, namespace = at.namespace, name, "deleted: it is no longer wanted");
        }
        let absent = Applied {
            body: ABSENT,
            version: String::new(),
            at: now,
        };
        self.memory.remember(owner, kind, name, absent);
        Ok(())
    }
}

fn at<'a>(owner: &'a Owner, kind: Kind, name: &'a str) -> At<'a> {
    At {
        kind,
        namespace: &owner.namespace,
        name,
    }
}

fn conflict(at: At<'_>, owner: &str) -> Failure {
    Failure {
        reason: "NameConflict",
        message: format!(
            "the {} {} exists and is not this workspace's ({owner}); delete or rename it, or give \
             the workspace another name",
            at.kind, at.name
        ),
    }
}

/// Whether an admission policy keeps the object from us, as it does for Secrets of others.
fn is_guarded(error: &CallError) -> bool {
    error.code() == 403 && error.answer().contains("ValidatingAdmissionPolicy")
}

fn refused(error: CallError) -> Trouble {
    if error.is_transient() {
        return Trouble::Call(error);
    }
    let (reason, hint) = match error.code() {
        403 => (
            "Forbidden",
            "the controller's rights, a quota or a policy forbid it",
        ),
        404 => ("NotServed", "its namespace or its kind is not there"),
        _ => ("Rejected", "the cluster does not accept it"),
    };
    let message = format!("{}: {hint}: {}", error.about(), error.answer());
    Trouble::Failure(Failure { reason, message })
}

fn digest(body: &Value) -> [u8; 32] {
    Sha256::digest(body.to_string().as_bytes()).into()
}
