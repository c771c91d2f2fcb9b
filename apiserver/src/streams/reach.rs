//! From a claim to an upstream that is the right one, and back when nobody wants it any more.
//!
//! A dial goes on when its caller has gone: an upstream that was told of a stream is told of its end
//! before the stream's name is given up, or it could find two at once.

use std::{pin::pin, sync::Arc, time::Duration};

use apiserver_generic::{ApiError, Reason};
use kube::Client;
use tokio::{sync::oneshot, time::timeout};
use tokio_util::task::TaskTracker;

use super::{
    dial::tcp::Network,
    mode::{Dialling, Mode},
    permit::Permit,
    relay::{Pace, Upstream},
    resolve::{Found, Workspace},
    target::Finder,
};
use crate::sessions::{Held, Predecessor, record::Wish};

/// How long a dial that nobody wants may take to be told goodbye. Less than a replica has between
/// losing its claims and others acting on that.
const GIVING_UP: Duration = Duration::from_secs(2);

/// What a dial needs of the server.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) client: Client,
    pub(super) network: Arc<dyn Network>,
    pub(super) finder: Finder,
    pub(super) tasks: TaskTracker,
    pub(super) pace: Pace,
}

/// What is dialled, and what was taken for it.
pub(super) struct Line {
    pub(super) mode: Arc<dyn Mode>,
    pub(super) workspace: Workspace,
    pub(super) found: Found,
    pub(super) wish: Wish,
    pub(super) held: Option<Held>,
    /// Counted against the limits for as long as anything of this lives.
    pub(super) permit: Permit,
    pub(super) takeover: bool,
}

/// A line whose upstream is connected. Dropped, it is ended in order.
pub(super) struct Reached {
    parts: Option<(Line, Upstream)>,
    means: Means,
}

impl Reached {
    /// It is wanted.
    pub(super) fn take(mut self) -> Option<(Line, Upstream)> {
        self.parts.take()
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        if let Some((line, upstream)) = self.parts.take() {
            let pace = self.means.pace;
            self.means.tasks.spawn(async move {
                upstream.end(pace).await;
                line.release().await;
            });
        }
    }
}

impl Line {
    async fn release(self) {
        self.mode.abandon();
        if let Some(held) = self.held {
            held.release().await;
        }
    }

    /// Dials, looks again, and gives everything back when that fails.
    ///
    /// # Errors
    /// Why there is no upstream.
    ///
    /// # Cancel safety
    /// A dial under way is not dropped with this, but ended in order.
    pub(super) async fn reach(self, means: Means) -> Result<Reached, ApiError> {
        let (answer, asked) = oneshot::channel();
        let tasks = means.tasks.clone();
        tasks.spawn(async move {
            // Nobody may be there to take it: then it is dropped, which ends it.
            let _ = answer.send(self.connect(means).await);
        });
        let gone = |_| ApiError::internal("the task of a dial ended without an answer");
        asked.await.map_err(gone)?
    }

    async fn connect(mut self, means: Means) -> Result<Reached, ApiError> {
        let mut held = self.held.take();
        let before = held.as_ref().map(Held::predecessor);
        let dialled = self.dial(&means, before, held.as_mut()).await;
        self.held = held;
        match dialled {
            Ok(upstream) => Ok(Reached {
                parts: Some((self, upstream)),
                means,
            }),
            Err(error) => {
                self.release().await;
                Err(error)
            }
        }
    }

    /// Losing the claim ends the attempt.
    async fn dial(
        &self,
        means: &Means,
        before: Option<Predecessor>,
        held: Option<&mut Held>,
    ) -> Result<Upstream, ApiError> {
        let mut dialling = pin!(self.dial_and_confirm(means, before));
        let Some(held) = held else {
            return dialling.await;
        };
        tokio::select! {
            biased;
            dialled = &mut dialling => dialled,
            reason = held.told() => {
                let giving_up = async {
                    if let Ok(upstream) = dialling.await {
                        upstream.end(means.pace).await;
                    }
                };
                let _ = timeout(GIVING_UP, giving_up).await;
                let what = self.mode.label();
                Err(ApiError::new(
                    Reason::Conflict,
                    format!("the claim on the {what} was lost while it was dialled: {}", reason.text()),
                )
                .retry_after(1))
            }
        }
    }

    async fn dial_and_confirm(
        &self,
        means: &Means,
        before: Option<Predecessor>,
    ) -> Result<Upstream, ApiError> {
        let dialling = Dialling {
            client: &means.client,
            finder: &means.finder,
            network: &means.network,
            workspace: &self.workspace,
            found: &self.found,
            takeover: self.takeover,
            before,
        };
        // Who takes over has waited: the dial goes by a name, which may be somebody else's by now.
        if self.takeover {
            let same = means.finder.confirm(&self.workspace, &self.found.target);
            same.await?;
        }
        let upstream = self.mode.dial(&dialling).await?;
        let confirmed = means.finder.confirm(&self.workspace, &self.found.target);
        if let Err(error) = confirmed.await {
            upstream.end(means.pace).await;
            return Err(error);
        }
        Ok(upstream)
    }
}
