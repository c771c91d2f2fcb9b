//! Promises of the cache's content; the feed's are tested over a backend in `tests/`.

use std::sync::Arc;

use serde_json::json;

use super::state::State;
use super::*;
use crate::{
    Object,
    storage::{Change, Page, Stored},
};

fn stored(name: &str, revision: u64) -> Stored {
    let object = json!({"metadata": {"name": name, "resourceVersion": revision.to_string()}});
    Stored {
        key: Key::namespaced("ns", name),
        object: Object::from_value(object).unwrap(),
        revision: Revision(revision),
    }
}

fn page(items: &[(&str, u64)], revision: u64) -> Page {
    Page {
        items: items.iter().map(|(n, r)| stored(n, *r)).collect(),
        revision: Revision(revision),
        more: false,
    }
}

fn state(limits: Limits) -> State {
    State::new(limits)
}

fn read(state: &State, from: u64) -> Result<Vec<String>, Lagged> {
    let mut cursor = state.cursor_from(Revision(from))?;
    Ok(told(&state.read(&mut cursor, 100)?))
}

fn told(events: &[Arc<Event>]) -> Vec<String> {
    events
        .iter()
        .map(|e| {
            let sign = if e.kind == EventKind::Put { '+' } else { '-' };
            format!("{sign}{}@{}", e.item.key.name, e.revision)
        })
        .collect()
}

#[test]
fn a_relist_tells_changes_in_revision_order_then_deletions() {
    let mut s = state(Limits::default());
    s.relist(page(&[("a", 1), ("b", 2), ("c", 3)], 5));
    s.relist(page(&[("d", 9), ("c", 8)], 10));
    assert_eq!(read(&s, 5).unwrap(), ["+c@8", "+d@9", "-a@10", "-b@10"]);
    assert_eq!(read(&s, 8).unwrap(), ["+d@9", "-a@10", "-b@10"]);
}

#[test]
fn breaking_off_within_the_deletions_of_a_relist_loses_none() {
    let mut s = state(Limits::default());
    s.relist(page(&[("a", 1), ("b", 2)], 5));
    s.relist(page(&[], 10));
    assert_eq!(read(&s, 10).unwrap(), ["-a@10", "-b@10"]);
    s.apply(Change::Progress(Revision(11)));
    assert!(read(&s, 11).unwrap().is_empty());
}

#[test]
fn history_before_the_first_list_is_expired() {
    let mut s = state(Limits::default());
    s.relist(page(&[("a", 1)], 5));
    assert_eq!(
        read(&s, 4),
        Err(Lagged {
            oldest: Revision(5)
        })
    );
    assert!(read(&s, 5).unwrap().is_empty());
}

#[test]
fn events_beyond_the_limit_are_forgotten_and_their_readers_told() {
    let mut s = state(Limits {
        events: 2,
        bytes: usize::MAX,
    });
    s.relist(page(&[], 1));
    let mut slow = s.cursor_now();
    for revision in 2..=4 {
        s.apply(Change::Put(stored("a", revision)));
    }
    assert!(s.read(&mut slow, 10).is_err());
    assert_eq!(read(&s, 2).unwrap(), ["+a@3", "+a@4"]);
    assert!(read(&s, 1).is_err());
}

#[test]
fn events_are_bounded_by_bytes_too() {
    let mut s = state(Limits {
        events: 100,
        bytes: 1,
    });
    s.relist(page(&[], 1));
    s.apply(Change::Put(stored("a", 2)));
    assert!(read(&s, 1).is_err());
    assert!(read(&s, 2).unwrap().is_empty());
}

#[test]
fn a_revision_that_goes_backwards_ends_every_reader() {
    let mut s = state(Limits::default());
    s.relist(page(&[("a", 90)], 100));
    let mut reader = s.cursor_now();
    s.relist(page(&[("a", 40)], 50));
    assert!(s.read(&mut reader, 10).is_err());
    assert_eq!(s.revision(), Revision(50));
}

#[test]
fn a_past_snapshot_undoes_later_events() {
    let mut s = state(Limits::default());
    s.relist(page(&[("a", 1), ("b", 2)], 5));
    s.apply(Change::Put(stored("c", 6)));
    s.apply(Change::Deleted(stored("a", 7)));
    s.apply(Change::Put(stored("b", 8)));
    let at = |revision| {
        let snapshot = s.snapshot_at(Revision(revision), Some("ns"))?;
        Some(
            snapshot
                .items
                .iter()
                .map(|i| format!("{}@{}", i.key.name, i.revision))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(at(5).unwrap(), ["a@1", "b@2"]);
    assert_eq!(at(6).unwrap(), ["a@1", "b@2", "c@6"]);
    assert_eq!(at(7).unwrap(), ["b@2", "c@6"]);
    assert_eq!(at(8).unwrap(), ["b@8", "c@6"]);
    assert_eq!(at(4), None);
    assert_eq!(at(9), None);
}

#[test]
fn known_changes_are_not_told_again() {
    let mut s = state(Limits::default());
    s.relist(page(&[("a", 4)], 5));
    s.apply(Change::Put(stored("a", 4)));
    s.apply(Change::Put(stored("a", 6)));
    s.apply(Change::Put(stored("a", 6)));
    assert_eq!(read(&s, 5).unwrap(), ["+a@6"]);
}

#[test]
fn a_departed_object_carries_the_revision_of_its_departure() {
    let mut s = state(Limits::default());
    s.relist(page(&[("a", 4)], 5));
    s.apply(Change::Put(stored("a", 6)));
    let mut cursor = s.cursor_from(Revision(5)).unwrap();
    let events = s.read(&mut cursor, 1).unwrap();
    let departed = events[0].departed().unwrap();
    assert_eq!(departed.object.resource_version(), Some("6"));
}
