//! Taking an exclusive stream over: a successor is written into its session by compare-and-swap, and
//! whoever holds the session hands it over once its stream has ended.

use std::time::Duration;

use apiserver_generic::{ApiError, Revision, storage::Stored};
use apiservice::v1alpha1::{SessionSuccessor, WorkspaceSessionSpec};
use tokio::time::timeout;

use super::{
    claim::Claim,
    clock, collector,
    held::Held,
    record::{self, Wish},
    refusal,
    store::Sessions,
};

/// The watch wakes who waits for a session; this is for a watch that is being started over.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Whose streams a take-over may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The caller's own, by name and UID.
    Own,
    /// Anybody's: the caller may delete the session.
    Anybodys,
}

impl Reach {
    /// Whether this holder, and whoever waits for the stream already, may be put aside for `wish`.
    fn covers(self, spec: &WorkspaceSessionSpec, wish: &Wish) -> bool {
        let own = |name: &str, uid: &str| name == wish.user.name && uid == wish.user.uid;
        let waits = spec.successor.as_ref();
        self == Self::Anybodys
            || own(&spec.user, &spec.user_uid) && waits.is_none_or(|w| own(&w.user, &w.user_uid))
    }
}

/// What one look at the session led to.
enum Step {
    /// It is ours.
    Ours(Stored),
    /// Nothing can be done until it is not as it was at this revision.
    Wait(Revision),
    /// It changed under our hands: look again.
    Again,
}

impl Sessions {
    /// Takes an exclusive stream over from a holder that `reach` covers, and waits until its old
    /// stream has really ended. The caller has checked that this is allowed.
    ///
    /// # Errors
    /// 409 when somebody else holds it, or takes it over in turn; 503 when the old stream does not
    /// end.
    pub async fn take_over(&self, wish: &Wish, reach: Reach) -> Result<Held, ApiError> {
        self.ready()?;
        let pending = Held::pending(&self.inner, wish);
        let taking = async {
            let mut asked = false;
            loop {
                match self.step(wish, reach, &mut asked).await? {
                    Step::Ours(stored) => return Ok(stored),
                    Step::Again => tokio::task::yield_now().await,
                    Step::Wait(since) => {
                        let moved = self.inner.index.moved_on(pending.key(), since);
                        let _ = timeout(LOOK_AGAIN, moved).await;
                    }
                }
            }
        };
        let limit = self.inner.timing.takeover_limit;
        let stored = timeout(limit, taking)
            .await
            .unwrap_or_else(|_| Err(refusal::does_not_end()))?;
        self.hold(pending, &stored)
    }

    async fn step(&self, wish: &Wish, reach: Reach, asked: &mut bool) -> Result<Step, ApiError> {
        let Some(stored) = self.current(wish).await? else {
            let created = self.create(wish).await?;
            return Ok(created.map_or(Step::Again, Step::Ours));
        };
        match self.judge(&stored, wish) {
            Claim::HandedOver => self.confirm(&stored, wish).await,
            Claim::Contested(_, successor) if successor.claim == wish.claim => {
                Ok(Step::Wait(stored.revision))
            }
            Claim::Contested(..) | Claim::Held(_) | Claim::Offered(_) if *asked => {
                Err(refusal::replaced(&wish.workspace))
            }
            // Who holds it may have changed since the caller's rights were checked.
            Claim::Contested(spec, _) | Claim::Held(spec) | Claim::Offered(spec)
                if !reach.covers(&spec, wish) =>
            {
                Err(refusal::held(&wish.namespace, &spec, false))
            }
            // Whoever it was offered to has not come yet, and finds it gone.
            Claim::Offered(_) => self.confirm(&stored, wish).await,
            Claim::Contested(..) | Claim::Held(_) => {
                let object = record::with_successor(&stored.object, &self.successor(wish));
                *asked = self.update(&stored, &object).await?.is_some();
                Ok(Step::Again)
            }
            Claim::Abandoned(_) => {
                collector::bury(&self.inner, &stored).await;
                Ok(Step::Wait(stored.revision))
            }
            Claim::Ending(_) | Claim::Free => Ok(Step::Wait(stored.revision)),
        }
    }

    /// Comes for a session in which no stream is: only now it is held.
    async fn confirm(&self, stored: &Stored, wish: &Wish) -> Result<Step, ApiError> {
        let object = record::taken(&stored.object, wish, &self.me(), &clock::now());
        let updated = self.update(stored, &object).await?;
        Ok(updated.map_or(Step::Again, Step::Ours))
    }

    fn successor(&self, wish: &Wish) -> SessionSuccessor {
        SessionSuccessor {
            user: wish.user.name.clone(),
            user_uid: wish.user.uid.clone(),
            replica: self.me(),
            audit_id: wish.audit_id.clone(),
            claim: wish.claim.clone(),
            at: clock::now(),
        }
    }
}
