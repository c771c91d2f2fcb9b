//! Streams that disturb nobody: shells, tunnels, port forwards, proxied upgrades.
//!
//! Those of one user in one mode to one port of a workspace share one object on each replica, with a
//! count. It is written once one of them has lived for five seconds, so that a page that opens a
//! hundred short connections does not write a hundred objects. Nothing is claimed by it: it is there to
//! be seen, and to be deleted, which ends all of them.
//!
//! Entry point: [`Sessions::join`](super::Sessions::join).

mod group;

use std::{collections::BTreeMap, sync::Arc};

use apiserver_generic::Key;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(super) use self::group::Group;
use super::{
    counters::Meter,
    record::Wish,
    store::{Inner, Sessions},
};
use crate::streams::close::CloseReason;

/// The groups of this replica that have a stream, or an object that is still to be removed. There are
/// never more than there are streams.
#[derive(Default)]
pub(super) struct Groups {
    map: Mutex<BTreeMap<Key, Arc<Group>>>,
}

impl Groups {
    /// Forgets a group if it is empty: only then its task may end.
    fn retire(&self, group: &Group) -> bool {
        let mut map = self.map.lock();
        let empty = group.is_empty();
        if empty {
            map.remove(group.key());
        }
        empty
    }

    /// Adds a stream; the group, and whether it is new.
    fn join(&self, inner: &Inner, wish: &Wish, meter: Arc<dyn Meter>) -> (Joined, bool) {
        let key = wish.shared_key(&inner.me.to_string());
        let mut map = self.map.lock();
        let new = !map.contains_key(&key);
        let group = map
            .entry(key)
            .or_insert_with_key(|key| Arc::new(Group::new(wish, key)))
            .clone();
        let (member, told) = group.enter(meter);
        let joined = Joined {
            group,
            member,
            told,
        };
        (joined, new)
    }
}

impl Sessions {
    /// Shows a stream that disturbs nobody. It needs no leave, and lives on when the control plane does
    /// not answer.
    pub fn join(&self, wish: &Wish, meter: Arc<dyn Meter>) -> Joined {
        let (joined, new) = self.inner.groups.join(&self.inner, wish, meter);
        if new {
            let (group, inner) = (joined.group.clone(), self.inner.clone());
            self.inner.tasks.spawn(group::present(group, inner));
        }
        joined
    }
}

/// A stream that shares a session. It leaves when this is dropped.
pub struct Joined {
    group: Arc<Group>,
    member: u64,
    told: watch::Receiver<bool>,
}

impl Joined {
    /// Waits until the stream is told to end, and why.
    ///
    /// # Cancel safety
    /// What was told stays told.
    pub async fn told(&mut self) -> CloseReason {
        if self.told.wait_for(|told| *told).await.is_err() {
            std::future::pending::<()>().await;
        }
        CloseReason::EndedByAdmin
    }

    /// Leaves. If it was the last, the session is gone when this returns, unless the control plane does
    /// not answer in time.
    pub async fn release(self) {
        let group = self.group.clone();
        drop(self);
        group.settled().await;
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.group.leave(self.member);
    }
}
