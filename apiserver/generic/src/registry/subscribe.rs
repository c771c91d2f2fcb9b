//! Changes of a resource as triggers for a reconciler in the same process.

use std::{collections::VecDeque, sync::Arc};

use super::Registry;
use crate::cache::{Event, EventKind, Follow, Followed, Item};

/// Why to look at an object again.
#[derive(Clone, Debug)]
pub enum Trigger {
    /// All objects follow, each as a [`Trigger::Put`]: at the beginning, and whenever changes were
    /// missed. What was known before and does not follow is gone.
    Restarted,
    /// All objects have been named.
    Synced,
    /// The object is new, changed, or was there at a restart.
    Put(Arc<Item>),
    /// The object is gone; this was its last state.
    Deleted(Arc<Item>),
}

/// Triggers, as many as the subscriber takes: nothing is queued for it but one snapshot.
pub struct Subscription {
    registry: Registry,
    snapshot: VecDeque<Trigger>,
    follow: Option<Follow>,
}

impl Registry {
    /// Subscribes to all changes, beginning with all objects once the cache is filled.
    pub fn subscribe(&self) -> Subscription {
        Subscription {
            registry: self.clone(),
            snapshot: VecDeque::new(),
            follow: None,
        }
    }
}

impl Subscription {
    /// The next trigger; `None` when the server ends.
    ///
    /// # Cancel safety
    /// No trigger is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Trigger> {
        loop {
            if let Some(trigger) = self.snapshot.pop_front() {
                return Some(trigger);
            }
            let Some(follow) = &mut self.follow else {
                self.restart().await;
                continue;
            };
            match follow.next().await {
                Followed::Event(event) => return Some(trigger(&event)),
                Followed::Lagged(_) => self.follow = None,
                Followed::Stopped => return None,
            }
        }
    }

    async fn restart(&mut self) {
        self.registry.ready().await;
        let (snapshot, follow) = self.registry.cache.follow(None);
        self.snapshot.push_back(Trigger::Restarted);
        self.snapshot
            .extend(snapshot.items.into_iter().map(Trigger::Put));
        self.snapshot.push_back(Trigger::Synced);
        self.follow = Some(follow);
    }

    /// The triggers as a stream.
    pub fn into_stream(self) -> impl futures::Stream<Item = Trigger> + Send {
        futures::stream::unfold(self, |mut subscription| async move {
            let trigger = subscription.next().await?;
            Some((trigger, subscription))
        })
    }
}

fn trigger(event: &Event) -> Trigger {
    match event.kind {
        EventKind::Put => Trigger::Put(event.item.clone()),
        EventKind::Deleted => Trigger::Deleted(event.item.clone()),
    }
}
