//! Host keys of guests: pinned at the first contact, checked ever after, for both modes of ssh.
//!
//! A pin belongs to a root disk, not to an address or a name ([`Root`]): a guest whose root is made
//! anew has new keys, and nobody is warned of an attack; a guest with the same root and other keys is
//! refused until somebody who may change the workspace accepts them.
//!
//! Entry points: [`Hosts::pin`] before any stream, [`Hosts::prove`] before a tunnel, whose own
//! key exchange is its client's. A terminal proves the key in the connection that it goes on with
//! ([`super::guest::Guest::meet`]).
//!
//! Each exchange of ours is to the guest a client that leaves without logging in, of which OpenSSH
//! 9.8 and later tolerate one a second from an address (`PerSourcePenalties`), so a proof is shared by
//! all tunnels to a pod that open within [`SHARED`].

mod alarm;
mod judge;
mod pins;
mod root;
mod way;

pub use pins::Owner;
pub use root::{Root, identify, root};
pub use way::subject;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use apiserver_generic::{ApiError, Reason, Registry, coalesce::Coalescing};
use apiservice::v1alpha1::{HostKey, HostKeyAlgorithm, RootIdentity, SshStatus};
use async_trait::async_trait;
use futures::FutureExt as _;
use jiff::Timestamp;
use kube::Client;
use tokio::time::timeout;

use self::{alarm::Alarm, judge::Next, pins::Write};
use super::guest::{Shown, exchange, offers};
use crate::streams::relay::Connection;

/// How long a proof of a host key counts for other tunnels to the same pod.
pub const SHARED: Duration = Duration::from_secs(1);
/// How long the first look at all keys may take.
const LOOK_LIMIT: Duration = Duration::from_secs(40);
/// How often a pin is tried that others write too.
const TRIES: usize = 4;
/// How many proofs are kept.
const PROOFS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();

/// Opens connections to port 22 of one guest.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    /// A new connection.
    async fn dial(&self) -> Result<Box<dyn Connection>, ApiError>;
}

/// A guest, as far as its host keys are concerned.
#[derive(Clone)]
pub struct Subject {
    /// Whose pin it is.
    pub owner: Owner,
    /// UID of the pod that it runs in.
    pub pod_uid: String,
    /// The root disk that it runs on.
    pub root: RootIdentity,
    /// The way there.
    pub dial: Arc<dyn Dial>,
}

/// What to do about a key that is not the pinned one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnChange {
    /// Refuse it.
    Refuse,
    /// Pin the new ones; only for callers who may update the workspace.
    Accept,
}

type Pinning = (Owner, RootIdentity, String, OnChange);

/// Keeps the pins of all workspaces. Clones share their work.
#[derive(Clone)]
pub struct HostKeys {
    registry: Registry,
    alarm: Alarm,
    pinnings: Coalescing<Pinning, SshStatus>,
    proofs: Coalescing<(String, String), Shown>,
}

/// Checks host keys before streams.
#[async_trait]
pub trait Hosts: Send + Sync + 'static {
    /// The keys that this guest has to show, pinned now if this is the first contact.
    ///
    /// # Errors
    /// The guest could not be looked at, or the pin could not be written.
    async fn pin(&self, subject: &Subject, change: OnChange) -> Result<SshStatus, ApiError>;

    /// Lets the guest prove that it has a pinned key.
    ///
    /// # Errors
    /// 409 if it shows another one, or why it could not be asked.
    async fn prove(&self, subject: &Subject, pin: &SshStatus) -> Result<(), ApiError>;

    /// The refusal of a guest that did not prove its key in a connection of somebody else's: looks
    /// once more, to name what it shows.
    async fn refusal(&self, subject: &Subject, pin: &SshStatus) -> ApiError;
}

impl HostKeys {
    /// Over the registry of workspaces; Events are written with the client.
    pub fn new(registry: Registry, client: Client) -> Self {
        Self {
            registry,
            alarm: Alarm::new(client),
            pinnings: Coalescing::new(PROOFS),
            proofs: Coalescing::new(PROOFS),
        }
    }
}

#[async_trait]
impl Hosts for HostKeys {
    async fn pin(&self, subject: &Subject, change: OnChange) -> Result<SshStatus, ApiError> {
        let key = (
            subject.owner.clone(),
            subject.root.clone(),
            subject.pod_uid.clone(),
            change,
        );
        let (keys, subject) = (self.clone(), subject.clone());
        let pinning = move || {
            async move {
                let pin = keys.pin_now(&subject, change).await?;
                Ok((pin, Duration::ZERO))
            }
            .boxed()
        };
        self.pinnings.get(key, pinning).await
    }

    async fn prove(&self, subject: &Subject, pin: &SshStatus) -> Result<(), ApiError> {
        let key = (subject.pod_uid.clone(), fingerprints(pin));
        let shown = self
            .proofs
            .get(key, || proof(subject.clone(), pin.clone()).boxed());
        let shown = shown.await?;
        if judge::matches(pin, &shown) {
            return Ok(());
        }
        Err(self
            .refuse(&subject.owner, judge::change(pin, &shown))
            .await)
    }

    async fn refusal(&self, subject: &Subject, pin: &SshStatus) -> ApiError {
        match proof(subject.clone(), pin.clone()).await {
            Err(error) => error,
            Ok((shown, _)) if judge::matches(pin, &shown) => ApiError::new(
                Reason::ServiceUnavailable,
                "the guest showed one host key and then another; try again",
            )
            .retry_after(1),
            Ok((shown, _)) => {
                self.refuse(&subject.owner, judge::change(pin, &shown))
                    .await
            }
        }
    }
}

impl HostKeys {
    async fn refuse(&self, owner: &Owner, change: String) -> ApiError {
        let error = judge::refusal(&owner.name, &change);
        self.alarm.changed(owner, change).await;
        error
    }

    async fn pin_now(&self, subject: &Subject, change: OnChange) -> Result<SshStatus, ApiError> {
        for _ in 0..TRIES {
            let before = pins::read(&self.registry, &subject.owner).await?;
            let expected = match judge::next(before.as_ref(), &subject.root) {
                Next::Expect(pin) => Some(pin),
                Next::Pin => None,
            };
            if let Some(pin) = expected
                && (change == OnChange::Refuse || self.still_has(subject, pin).await?)
            {
                return Ok(pin.clone());
            }
            let now = look(subject).await?;
            let owner = &subject.owner;
            if pins::write(&self.registry, owner, before.as_ref(), &now).await? == Write::Outrun {
                continue;
            }
            if let Some(pin) = expected {
                let what = judge::accepted(pin, &now);
                self.alarm.accepted(owner, what).await;
            }
            return Ok(now);
        }
        Err(ApiError::new(
            Reason::ServiceUnavailable,
            "the host keys are being pinned by others; try again",
        )
        .retry_after(1))
    }

    async fn still_has(&self, subject: &Subject, pin: &SshStatus) -> Result<bool, ApiError> {
        let (shown, _) = proof(subject.clone(), pin.clone()).await?;
        Ok(judge::matches(pin, &shown))
    }
}

/// Asks for a pinned key. Only an answer that matches may be kept.
async fn proof(subject: Subject, pin: SshStatus) -> Result<(Shown, Duration), ApiError> {
    let io = subject.dial.dial().await?;
    let shown = exchange(io, &judge::wanted(&pin)).await;
    let shown = shown.map_err(|trouble| trouble.into_error(&subject.owner.name))?;
    let keep = match judge::matches(&pin, &shown) {
        true => SHARED,
        false => Duration::ZERO,
    };
    Ok((shown, keep))
}

/// Looks at all keys that the guest has, one connection for each: an exchange shows one.
async fn look(subject: &Subject) -> Result<SshStatus, ApiError> {
    let looking = timeout(LOOK_LIMIT, keys_of(subject)).await;
    let (host_keys, offered) = looking.unwrap_or_else(|_| {
        Err(ApiError::new(
            Reason::ServiceUnavailable,
            "the guest took too long to show its host keys; try again",
        )
        .retry_after(2))
    })?;
    if host_keys.is_empty() {
        return Err(judge::nothing_to_pin(&subject.owner.name, &offered));
    }
    Ok(SshStatus {
        root: subject.root.clone(),
        host_keys,
        pinned_at: Timestamp::now()
            .round(jiff::Unit::Second)
            .map_err(ApiError::internal)?
            .to_string(),
    })
}

async fn keys_of(subject: &Subject) -> Result<(Vec<HostKey>, Vec<String>), ApiError> {
    let mut found = Vec::new();
    let mut offered: Option<Vec<String>> = None;
    for algorithm in HostKeyAlgorithm::ALL {
        if offered
            .as_ref()
            .is_some_and(|names| !offers(names, algorithm))
        {
            continue;
        }
        let io = subject.dial.dial().await?;
        let shown = exchange(io, &[algorithm]).await;
        match shown.map_err(|trouble| trouble.into_error(&subject.owner.name))? {
            Shown::Key(key) => found.push(key),
            Shown::NoneOf(names) => offered = Some(names),
        }
    }
    Ok((found, offered.unwrap_or_default()))
}

fn fingerprints(pin: &SshStatus) -> String {
    let each = pin.host_keys.iter().map(|key| key.fingerprint.as_str());
    each.collect::<Vec<_>>().join(",")
}
