//! What a registry promises, over the storage double.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::{
    Object, Reason,
    cache::Freshness,
    filter::View,
    storage::{Key, MemoryStorage, Revision},
    test_widgets::Widgets,
};

struct Bench {
    registry: Registry,
    storage: MemoryStorage,
    writer: Writer,
    _stop: tokio_util::sync::DropGuard,
}

async fn bench() -> Bench {
    let storage = MemoryStorage::default();
    let stop = CancellationToken::new();
    let parts = Parts {
        cache: Settings {
            future_wait: Duration::from_millis(300),
            ..Settings::default()
        },
        ..Parts::new(Arc::new(Widgets::new()), Arc::new(storage.clone()))
    };
    let registry = Registry::start(parts, &TaskTracker::new(), &stop);
    registry.ready().await;
    Bench {
        registry,
        storage,
        writer: Writer {
            field_validation: FieldValidation::Warn,
            ..Writer::server("test")
        },
        _stop: stop.drop_guard(),
    }
}

fn object(value: Value) -> Object {
    Object::from_value(value).unwrap()
}

fn widget(name: &str, size: i64) -> Object {
    object(json!({"metadata": {"name": name}, "spec": {"size": size}}))
}

impl Bench {
    async fn create(&self, object: Object) -> Result<Object, crate::ApiError> {
        let written = self.registry.create(&self.writer, Some("ns"), object).await;
        written.map(|w| w.object)
    }

    async fn names(&self, options: ListOptions) -> Vec<String> {
        let listed = self.registry.list(&options).await.unwrap();
        listed.items.iter().map(|i| i.key.name.clone()).collect()
    }
}

fn key(name: &str) -> Key {
    Key::namespaced("ns", name)
}

#[tokio::test]
async fn create_gives_identity_and_drops_what_is_not_the_authors() {
    let b = bench().await;
    let mut wish = widget("a", 1);
    wish.set_meta("uid", "mine");
    wish.set_meta("creationTimestamp", "1999-01-01T00:00:00Z");
    wish.fields_mut()
        .insert("status".into(), json!({"phase": "Done"}));
    let made = b.create(wish).await.unwrap();
    assert_ne!(made.uid(), Some("mine"));
    assert!(
        made.str_at("/metadata/creationTimestamp")
            .unwrap()
            .starts_with("20")
    );
    assert_eq!((made.generation(), made.pointer("/status")), (1, None));
    assert_eq!(
        (made.str_at("/kind"), made.str_at("/apiVersion")),
        (Some("Widget"), Some("example.com/v1"))
    );
    assert_eq!(made.str_at("/spec/colour"), Some("red"));
    assert!(made.resource_version().is_some());
}

#[tokio::test]
async fn a_taken_name_is_409_and_a_bad_object_422() {
    let b = bench().await;
    b.create(widget("a", 1)).await.unwrap();
    assert_eq!(
        b.create(widget("a", 1)).await.unwrap_err().reason,
        Reason::AlreadyExists
    );
    let error = b.create(widget("B", 10)).await.unwrap_err();
    assert_eq!(error.details.unwrap().causes.len(), 2);
}

#[tokio::test]
async fn generated_names_are_new_each_time() {
    let b = bench().await;
    let wish = || object(json!({"metadata": {"generateName": "w-"}}));
    let (one, two) = (
        b.create(wish()).await.unwrap(),
        b.create(wish()).await.unwrap(),
    );
    assert!(one.name().starts_with("w-") && one.name().len() == 7);
    assert_ne!(one.name(), two.name());
}

#[tokio::test]
async fn dry_run_stores_nothing() {
    let b = bench().await;
    let writer = Writer {
        dry_run: true,
        ..b.writer.clone()
    };
    let made = b
        .registry
        .create(&writer, Some("ns"), widget("a", 1))
        .await
        .unwrap();
    assert!(made.object.uid().is_some() && made.object.resource_version().is_none());
    let missing = b.registry.get(&key("a"), Freshness::Latest).await;
    assert_eq!(missing.unwrap_err().reason, Reason::NotFound);
}

#[tokio::test]
async fn field_validation_decides_about_unknown_fields() {
    let b = bench().await;
    let wish = object(json!({"metadata": {"name": "a"}, "spec": {"size": 1, "foo": 2}}));
    let strict = Writer {
        field_validation: FieldValidation::Strict,
        ..b.writer.clone()
    };
    let error = b
        .registry
        .create(&strict, Some("ns"), wish.clone())
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.foo\""
    );
    let written = b
        .registry
        .create(&b.writer, Some("ns"), wish)
        .await
        .unwrap();
    assert_eq!(written.warnings, ["unknown field \"spec.foo\""]);
    assert_eq!(written.object.pointer("/spec/foo"), None);
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec_only() {
    let b = bench().await;
    b.create(widget("a", 1)).await.unwrap();
    let label = Patch::merge(json!({"metadata": {"labels": {"x": "y"}}}));
    let labelled = b
        .registry
        .patch(&b.writer, &key("a"), None, &label)
        .await
        .unwrap();
    assert_eq!(labelled.object.generation(), 1);
    let size = Patch::merge(json!({"spec": {"size": 2}, "status": {"phase": "x"}}));
    let sized = b
        .registry
        .patch(&b.writer, &key("a"), None, &size)
        .await
        .unwrap();
    assert_eq!(
        (sized.object.generation(), sized.object.pointer("/status")),
        (2, None)
    );
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let b = bench().await;
    b.create(widget("a", 1)).await.unwrap();
    let wish = object(
        json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"size": 5}, "status": {"phase": "Done"}}),
    );
    let done = b
        .registry
        .update_status(&b.writer, &key("a"), wish)
        .await
        .unwrap()
        .object;
    assert_eq!(done.str_at("/status/phase"), Some("Done"));
    assert_eq!(
        (
            done.pointer("/spec/size"),
            done.label("x"),
            done.generation()
        ),
        (Some(&json!(1)), None, 1)
    );
}

#[tokio::test]
async fn a_write_that_changes_nothing_keeps_the_version() {
    let b = bench().await;
    let made = b.create(widget("a", 1)).await.unwrap();
    let again = b
        .registry
        .update(&b.writer, &key("a"), None, widget("a", 1))
        .await
        .unwrap();
    assert_eq!(again.object, made);
    assert_eq!(b.storage.contexts().len(), 1);
}

#[tokio::test]
async fn stale_versions_and_other_uids_are_409() {
    let b = bench().await;
    let made = b.create(widget("a", 1)).await.unwrap();
    b.registry
        .update(&b.writer, &key("a"), None, widget("a", 2))
        .await
        .unwrap();
    let stale = b
        .registry
        .update(&b.writer, &key("a"), None, made)
        .await
        .unwrap_err();
    assert_eq!(stale.reason, Reason::Conflict);
    let mut other = widget("a", 3);
    other.set_meta("uid", "other");
    let error = b
        .registry
        .update(&b.writer, &key("a"), None, other)
        .await
        .unwrap_err();
    assert!(error.message.contains("UID in precondition: other"));
}

#[tokio::test]
async fn concurrent_changes_all_arrive() {
    let b = bench().await;
    b.create(widget("a", 0)).await.unwrap();
    let writers = (0..8).map(|_| {
        let (registry, writer) = (b.registry.clone(), b.writer.clone());
        tokio::spawn(async move {
            let add = |object: &mut Object| {
                let size = object
                    .pointer("/spec/size")
                    .and_then(Value::as_i64)
                    .unwrap();
                object.fields_mut()["spec"]["size"] = json!(size + 1);
                Ok(())
            };
            registry
                .update_with(&writer, &key("a"), None, add)
                .await
                .unwrap();
        })
    });
    futures::future::try_join_all(writers).await.unwrap();
    let object = b.registry.get(&key("a"), Freshness::Latest).await.unwrap();
    assert_eq!(object.pointer("/spec/size"), Some(&json!(8)));
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let b = bench().await;
    let wish = object(json!({"metadata": {"name": "a", "finalizers": ["example.com/x"]}}));
    b.create(wish).await.unwrap();
    let removed = b
        .registry
        .delete(&b.writer, &key("a"), &DeleteOptions::default())
        .await
        .unwrap();
    let Removed::Waiting(waiting) = removed else {
        panic!("{removed:?}")
    };
    assert!(waiting.deletion_timestamp().is_some());
    assert_eq!(waiting.generation(), 2);
    let taken = b.create(widget("a", 1)).await.unwrap_err();
    assert!(taken.message.starts_with("object is being deleted: "));
    let free = Patch::merge(json!({"metadata": {"finalizers": null}}));
    b.registry
        .patch(&b.writer, &key("a"), None, &free)
        .await
        .unwrap();
    let missing = b.registry.get(&key("a"), Freshness::Latest).await;
    assert_eq!(missing.unwrap_err().reason, Reason::NotFound);
}

#[tokio::test]
async fn deletion_preconditions_are_held() {
    let b = bench().await;
    b.create(widget("a", 1)).await.unwrap();
    let options = DeleteOptions {
        uid: Some("other".into()),
        ..DeleteOptions::default()
    };
    let error = b
        .registry
        .delete(&b.writer, &key("a"), &options)
        .await
        .unwrap_err();
    assert_eq!(error.reason, Reason::Conflict);
}

#[tokio::test]
async fn a_list_sees_every_write_before_it_with_and_without_fences() {
    let b = bench().await;
    for fences in [true, false] {
        b.storage.set_fences(fences);
        for i in 0..20 {
            let name = format!("w{fences}{i}");
            b.create(widget(&name, 1)).await.unwrap();
            assert!(b.names(ListOptions::default()).await.contains(&name));
        }
    }
}

#[tokio::test]
async fn pages_show_one_state() {
    let b = bench().await;
    for name in ["a", "b", "c", "d", "e"] {
        b.create(widget(name, 1)).await.unwrap();
    }
    let first = ListOptions {
        limit: Some(2),
        ..ListOptions::default()
    };
    let page = b.registry.list(&first).await.unwrap();
    assert_eq!((page.items.len(), page.remaining), (2, 3));
    b.create(widget("aa", 1)).await.unwrap();
    b.registry
        .delete(&b.writer, &key("e"), &DeleteOptions::default())
        .await
        .unwrap();
    let second = ListOptions {
        at: ListAt::Exact(page.revision),
        after: Some(page.items[1].key.clone()),
        ..ListOptions::default()
    };
    assert_eq!(b.names(second).await, ["c", "d", "e"]);
}

#[tokio::test]
async fn a_future_revision_is_504_with_its_cause() {
    let b = bench().await;
    let options = ListOptions {
        at: ListAt::NotOlderThan(Revision(1 << 40)),
        ..ListOptions::default()
    };
    let error = b.registry.list(&options).await.unwrap_err();
    assert_eq!(error.reason, Reason::Timeout);
    assert_eq!(
        error.details.unwrap().causes[0].reason,
        "ResourceVersionTooLarge"
    );
}

#[tokio::test]
async fn watches_tell_of_selector_transitions() {
    let b = bench().await;
    let selector = crate::filter::Selector {
        labels: crate::filter::LabelSelector::parse("team=a").unwrap(),
        ..Default::default()
    };
    let start = WatchStart::Now(Freshness::Latest);
    let options = WatchOptions {
        namespace: None,
        selector,
        start,
    };
    let mut watch = b.registry.watch(options).await.unwrap();
    b.create(object(
        json!({"metadata": {"name": "a", "labels": {"team": "a"}}}),
    ))
    .await
    .unwrap();
    for team in ["b", "a"] {
        let patch = Patch::merge(json!({"metadata": {"labels": {"team": team}}}));
        b.registry
            .patch(&b.writer, &key("a"), None, &patch)
            .await
            .unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        let next = tokio::time::timeout(Duration::from_secs(5), watch.next())
            .await
            .unwrap();
        let Watched::Change(view) = next else {
            panic!("{next:?}")
        };
        seen.push(match view {
            View::Added(item) => format!("added {}", item.object.label("team").unwrap()),
            View::Modified(_) => "modified".to_owned(),
            View::Deleted(item) => format!("deleted {}", item.object.label("team").unwrap()),
        });
    }
    assert_eq!(seen, ["added a", "deleted a", "added a"]);
}

#[tokio::test]
async fn a_subscriber_is_told_everything_once() {
    let b = bench().await;
    b.create(widget("a", 1)).await.unwrap();
    let mut subscription = b.registry.subscribe();
    b.registry.list(&ListOptions::default()).await.unwrap();
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(format!(
            "{:?}",
            std::mem::discriminant(&subscription.next().await.unwrap())
        ));
    }
    b.registry
        .delete(&b.writer, &key("a"), &DeleteOptions::default())
        .await
        .unwrap();
    loop {
        match subscription.next().await.unwrap() {
            Trigger::Deleted(item) => break assert_eq!(item.key, key("a")),
            Trigger::Put(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told.len(), 3);
}

#[tokio::test]
async fn the_audit_id_reaches_the_storage() {
    let b = bench().await;
    let writer = Writer {
        audit_id: Some("id-1".into()),
        ..b.writer.clone()
    };
    b.registry
        .create(&writer, Some("ns"), widget("a", 1))
        .await
        .unwrap();
    assert_eq!(b.storage.contexts()[0].audit_id.as_deref(), Some("id-1"));
}

/// In its envelope, in a list, it would be too deep for every reader.
#[tokio::test]
async fn an_object_that_is_nested_too_deeply_is_refused() {
    let b = bench().await;
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let sent = object(json!({"metadata": {"name": "a"}, "spec": {"free": deep(100)}}));
    assert_eq!(b.create(sent).await.unwrap_err().reason.code(), 400);
    b.create(widget("a", 1)).await.unwrap();
    let patch = Patch::merge(json!({"spec": {"free": deep(100)}}));
    let key = Key::namespaced("ns", "a");
    let patched = b.registry.patch(&b.writer, &key, None, &patch).await;
    assert_eq!(patched.unwrap_err().reason.code(), 422);
}
