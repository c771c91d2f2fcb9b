//! The last known state of the watched objects of one kind.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use apiserver_generic::Object;
use kube::core::DynamicObject;
use kube::runtime::watcher::Event;

use crate::key::Key;
use crate::names::WORKSPACE_NAME;

type Objects = BTreeMap<(String, String), Arc<Object>>;

/// Objects by namespace and name. It holds only what bears our label.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    objects: RwLock<Objects>,
}

impl Cache {
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    /// Objects of a namespace that pass.
    pub(crate) fn select(
        &self,
        namespace: &str,
        pass: impl Fn(&Object) -> bool,
    ) -> Vec<Arc<Object>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects
            .range((namespace.to_owned(), String::new())..)
            .take_while(|((in_namespace, _), _)| in_namespace == namespace)
            .filter(|(_, object)| pass(object))
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Replaces everything; returns the workspaces whose objects came, changed or went.
    pub(crate) fn replace(&self, new: Objects) -> Vec<Key> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *objects, new);
        let changed = objects
            .iter()
            .filter(|(at, object)| old.get(*at) != Some(object));
        let gone = old.iter().filter(|(at, _)| !objects.contains_key(*at));
        changed
            .chain(gone)
            .filter_map(|(_, object)| workspace_of(object))
            .collect()
    }

    fn put(&self, object: Object) -> Option<Key> {
        let key = workspace_of(&object);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.insert(address(&object), Arc::new(object));
        key
    }

    fn remove(&self, object: &Object) -> Option<Key> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects.remove(&address(object));
        workspace_of(object)
    }
}

/// Feeds watch events into a cache; a relist is collected first and then swapped in at once.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    listing: Objects,
}

impl Feed {
    /// Returns the workspaces to look at, and whether the cache is complete now.
    pub(crate) fn take(&mut self, cache: &Cache, event: Event<DynamicObject>) -> (Vec<Key>, bool) {
        match event {
            Event::Init => {
                self.listing.clear();
                (Vec::new(), false)
            }
            Event::InitApply(object) => {
                if let Some(object) = plain(object) {
                    self.listing.insert(address(&object), Arc::new(object));
                }
                (Vec::new(), false)
            }
            Event::InitDone => (cache.replace(std::mem::take(&mut self.listing)), true),
            Event::Apply(object) => {
                let key = plain(object).and_then(|object| cache.put(object));
                (key.into_iter().collect(), false)
            }
            Event::Delete(object) => {
                let key = plain(object).and_then(|object| cache.remove(&object));
                (key.into_iter().collect(), false)
            }
        }
    }
}

/// The object as JSON, without what nobody here reads.
fn plain(mut object: DynamicObject) -> Option<Object> {
    object.metadata.managed_fields = None;
    Object::from_value(serde_json::to_value(object).ok()?).ok()
}

fn address(object: &Object) -> (String, String) {
    let namespace = object.namespace().unwrap_or_default().to_owned();
    (namespace, object.name().to_owned())
}

fn workspace_of(object: &Object) -> Option<Key> {
    let name = object.label(WORKSPACE_NAME)?;
    Some(Key::new(object.namespace()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, workspace: &str, version: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "resourceVersion": version,
                         "labels": {WORKSPACE_NAME: workspace}},
            "status": {"phase": "Running"},
        }))
        .unwrap()
    }

    fn keys(taken: (Vec<Key>, bool)) -> Vec<String> {
        taken.0.into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn a_relist_names_what_came_changed_and_went_and_nothing_else() {
        let (cache, mut feed) = (Cache::default(), Feed::default());
        let mut list = |pods: Vec<DynamicObject>| {
            feed.take(&cache, Event::Init);
            for pod in pods {
                assert_eq!(keys(feed.take(&cache, Event::InitApply(pod))), [""; 0]);
            }
            let (mut keys, complete) = feed.take(&cache, Event::InitDone);
            assert!(complete);
            keys.sort();
            keys.into_iter().map(|key| key.name).collect::<Vec<_>>()
        };
        assert_eq!(
            list(vec![pod("a-0", "a", "1"), pod("b-0", "b", "1")]),
            ["a", "b"]
        );
        assert_eq!(
            list(vec![
                pod("a-0", "a", "1"),
                pod("b-0", "b", "2"),
                pod("c-0", "c", "1")
            ]),
            ["b", "c"]
        );
        assert_eq!(list(vec![pod("a-0", "a", "1")]), ["b", "c"]);
        assert!(cache.get("ns", "a-0").is_some() && cache.get("ns", "b-0").is_none());
    }

    #[test]
    fn changes_are_seen_and_name_their_workspace() {
        let (cache, mut feed) = (Cache::default(), Feed::default());
        assert_eq!(
            keys(feed.take(&cache, Event::Apply(pod("a-0", "a", "1")))),
            ["a"]
        );
        let seen = cache.get("ns", "a-0").unwrap();
        assert_eq!(seen.str_at("/status/phase"), Some("Running"));
        assert_eq!(seen.str_at("/kind"), Some("Pod"));
        assert_eq!(
            cache
                .select("ns", |p| p.label(WORKSPACE_NAME) == Some("a"))
                .len(),
            1
        );
        assert_eq!(cache.select("other", |_| true).len(), 0);
        assert_eq!(
            keys(feed.take(&cache, Event::Delete(pod("a-0", "a", "2")))),
            ["a"]
        );
        assert_eq!(cache.get("ns", "a-0"), None);
    }
}
