//! Random writes against what watchers saw, over a backend that breaks off and forgets.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::json;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::{
    Object,
    storage::{At, ListQuery, MemoryStorage, WriteContext},
};

/// A small generator, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

async fn write_something(storage: &MemoryStorage, random: &mut Random) {
    let key = Key::namespaced("ns", format!("w{}", random.below(12)));
    let object = json!({"metadata": {"name": key.name}, "spec": {"n": random.below(1000)}});
    let object = Object::from_value(object).unwrap();
    let context = WriteContext::default();
    match (storage.get(&key).await, random.below(3)) {
        (Err(_), _) => {
            storage.create(&context, &key, &object).await.unwrap();
        }
        (Ok(old), 0) => storage.delete(&context, &key, old.revision).await.unwrap(),
        (Ok(old), _) => {
            let updated = storage.update(&context, &key, &object, old.revision);
            updated.await.unwrap();
        }
    }
}

/// What a client knows from its watches alone.
#[derive(Default)]
struct Client {
    objects: BTreeMap<Key, Revision>,
    resume: Option<Revision>,
    restarts: usize,
}

impl Client {
    /// Resumes where it was, or starts over when that is no longer possible.
    fn connect(&mut self, cache: &Cache) -> Follow {
        if let Some(follow) = self.resume.and_then(|from| cache.resume(from).ok()) {
            return follow;
        }
        let (snapshot, follow) = cache.follow(None);
        let items = snapshot.items.iter();
        self.objects = items.map(|i| (i.key.clone(), i.revision)).collect();
        self.resume = Some(snapshot.revision);
        self.restarts += 1;
        follow
    }

    fn take(&mut self, event: &Event) {
        let key = event.item.key.clone();
        let resume = self.resume.replace(event.revision).unwrap_or_default();
        assert!(event.revision >= resume, "events are in revision order");
        match event.kind {
            EventKind::Put => {
                let known = self.objects.insert(key, event.revision);
                assert!(
                    known.is_none_or(|known| known < event.revision),
                    "no event twice"
                );
            }
            EventKind::Deleted => {
                self.objects.remove(&key);
            }
        }
    }

    /// Reads until the cache has no more, and then for `patience` events at most.
    async fn read(&mut self, cache: &Cache, events: u64) {
        let mut follow = self.connect(cache);
        for _ in 0..events {
            if follow.bookmark().is_some() {
                return;
            }
            match follow.next().await {
                Followed::Event(event) => self.take(&event),
                Followed::Lagged(_) => {
                    self.resume = None;
                    follow = self.connect(cache);
                }
                Followed::Stopped => panic!("the cache stopped"),
            }
        }
    }
}

async fn run(seed: u64) {
    let mut random = Random(seed);
    let (storage, stop) = (MemoryStorage::default(), CancellationToken::new());
    let settings = Settings {
        limits: Limits {
            events: 40,
            ..Limits::default()
        },
        fence_wait: Duration::from_secs(10),
        ..Settings::default()
    };
    let cache = Cache::start(
        Arc::new(storage.clone()),
        settings,
        &TaskTracker::new(),
        &stop,
    );
    cache.ready().await;
    let mut clients = [Client::default(), Client::default(), Client::default()];
    for _ in 0..60 {
        for _ in 0..random.below(20) {
            write_something(&storage, &mut random).await;
        }
        match random.below(6) {
            0 => storage.break_watches(),
            1 => {
                storage.break_watches();
                storage.compact();
            }
            _ => cache.fresh(Freshness::Latest).await.unwrap(),
        }
        for client in &mut clients {
            let events = random.below(30);
            client.read(&cache, events).await;
        }
    }
    cache.fresh(Freshness::Latest).await.unwrap();
    let all = ListQuery {
        namespace: None,
        at: At::Latest,
        limit: None,
        after: None,
    };
    let truth = storage.list(&all).await.unwrap().items;
    let truth: BTreeMap<Key, Revision> = truth.into_iter().map(|s| (s.key, s.revision)).collect();
    for client in &mut clients {
        client.read(&cache, u64::MAX).await;
        assert_eq!(client.objects, truth, "seed {seed}");
        assert!(client.restarts < 60, "resuming works at all");
    }
    stop.cancel();
}

#[tokio::test]
async fn watchers_converge_across_disconnects_and_compactions() {
    for seed in 1..=12 {
        run(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed)).await;
    }
}
