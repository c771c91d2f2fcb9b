//! Watches RBAC and says whom its changes touch.
//!
//! Of roles only the metadata is fetched: that one has changed is all that matters. Without the right to
//! watch them, which `deploy/base/rbac.yaml` grants, permissions are still asked for every 30 s.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    marker::PhantomData,
    sync::Arc,
};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject as Named,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _, watcher,
        watcher::{Config, Error, Event},
    },
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Rechecks,
    rbac::{Binding, BindingKey, Bindings, RoleKey, Subject, Touched},
};

/// Watches until `stop`.
pub fn start(client: &Client, rechecks: &Rechecks, tasks: &TaskTracker, stop: &CancellationToken) {
    let bindings: Arc<Mutex<Bindings>> = Arc::default();
    let watching = Watching {
        client,
        rechecks,
        tasks,
        stop,
    };
    watching.follow(Roles::<Role>::new(&bindings));
    watching.follow(Roles::<ClusterRole>::new(&bindings));
    watching.follow(Grants::<RoleBinding>::new(&bindings));
    watching.follow(Grants::<ClusterRoleBinding>::new(&bindings));
}

struct Watching<'a> {
    client: &'a Client,
    rechecks: &'a Rechecks,
    tasks: &'a TaskTracker,
    stop: &'a CancellationToken,
}

impl Watching<'_> {
    fn follow<L: Ledger>(&self, ledger: L) {
        let api: Api<L::Object> = Api::all(self.client.clone());
        let events = watcher(api, Config::default()).default_backoff();
        let following = follow(events, ledger, self.rechecks.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(stop.run_until_cancelled_owned(following));
    }
}

/// What is remembered of one kind of object.
trait Ledger: Send + 'static {
    type Object: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static;
    type Key: Ord + Clone + Send;

    fn key(object: &Self::Object) -> Self::Key;
    fn keys(&self) -> BTreeSet<Self::Key>;
    fn put(&mut self, object: Self::Object) -> Touched;
    fn remove(&mut self, key: &Self::Key) -> Touched;
}

async fn follow<L: Ledger>(
    events: impl Stream<Item = Result<Event<L::Object>, Error>> + Send,
    mut ledger: L,
    rechecks: Rechecks,
) {
    let mut events = std::pin::pin!(events);
    // While everything is listed: what was known and has not been named.
    let mut missing = BTreeSet::new();
    while let Some(event) = events.next().await {
        let all = match event {
            Ok(Event::Init) => {
                missing = ledger.keys();
                Vec::new()
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                missing.remove(&L::key(&object));
                vec![ledger.put(object)]
            }
            Ok(Event::InitDone) => {
                let gone = std::mem::take(&mut missing);
                gone.iter().map(|key| ledger.remove(key)).collect()
            }
            Ok(Event::Delete(object)) => vec![ledger.remove(&L::key(&object))],
            Err(error) => {
                tracing::warn!(%error, "the watch of RBAC failed; permissions are asked for by time only until it works again");
                Vec::new()
            }
        };
        for touched in all.iter().filter(|touched| !touched.is_empty()) {
            rechecks.touched(touched);
        }
    }
}

/// Roles or ClusterRoles: their versions.
struct Roles<R> {
    versions: BTreeMap<RoleKey, Option<String>>,
    bindings: Arc<Mutex<Bindings>>,
    kind: PhantomData<fn() -> R>,
}

impl<R> Roles<R> {
    fn new(bindings: &Arc<Mutex<Bindings>>) -> Self {
        Self {
            versions: BTreeMap::new(),
            bindings: bindings.clone(),
            kind: PhantomData,
        }
    }
}

impl<R> Ledger for Roles<R>
where
    R: Resource<DynamicType = ()> + 'static,
    PartialObjectMeta<R>: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send,
{
    type Object = PartialObjectMeta<R>;
    type Key = RoleKey;

    fn key(object: &Self::Object) -> RoleKey {
        RoleKey {
            namespace: object.namespace(),
            name: object.name_any(),
        }
    }

    fn keys(&self) -> BTreeSet<RoleKey> {
        self.versions.keys().cloned().collect()
    }

    fn put(&mut self, object: Self::Object) -> Touched {
        let (key, version) = (Self::key(&object), object.resource_version());
        if self.versions.get(&key) == Some(&version) {
            return Touched::default();
        }
        self.versions.insert(key.clone(), version);
        self.bindings.lock().role_changed(&key)
    }

    fn remove(&mut self, key: &RoleKey) -> Touched {
        self.versions.remove(key);
        self.bindings.lock().role_changed(key)
    }
}

/// RoleBindings or ClusterRoleBindings.
struct Grants<B> {
    bindings: Arc<Mutex<Bindings>>,
    kind: PhantomData<fn() -> B>,
}

impl<B> Grants<B> {
    fn new(bindings: &Arc<Mutex<Bindings>>) -> Self {
        Self {
            bindings: bindings.clone(),
            kind: PhantomData,
        }
    }
}

/// What both kinds of binding have.
trait Grant {
    const NAMESPACED: bool;
    fn take(self) -> (RoleRef, Vec<Named>);
}

impl Grant for RoleBinding {
    const NAMESPACED: bool = true;
    fn take(self) -> (RoleRef, Vec<Named>) {
        (self.role_ref, self.subjects.unwrap_or_default())
    }
}

impl Grant for ClusterRoleBinding {
    const NAMESPACED: bool = false;
    fn take(self) -> (RoleRef, Vec<Named>) {
        (self.role_ref, self.subjects.unwrap_or_default())
    }
}

impl<B> Ledger for Grants<B>
where
    B: Grant + Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    type Object = B;
    type Key = BindingKey;

    fn key(object: &B) -> BindingKey {
        (object.namespace(), object.name_any())
    }

    fn keys(&self) -> BTreeSet<BindingKey> {
        self.bindings.lock().keys(B::NAMESPACED)
    }

    fn put(&mut self, object: B) -> Touched {
        let key = Self::key(&object);
        let (role, subjects) = object.take();
        let binding = binding(key.0.as_deref(), role, subjects);
        self.bindings.lock().put(key, binding)
    }

    fn remove(&mut self, key: &BindingKey) -> Touched {
        self.bindings.lock().remove(key)
    }
}

fn binding(namespace: Option<&str>, role: RoleRef, subjects: Vec<Named>) -> Binding {
    let own = (role.kind == "Role").then_some(namespace).flatten();
    let subjects = subjects.into_iter();
    Binding {
        role: RoleKey {
            namespace: own.map(str::to_owned),
            name: role.name,
        },
        subjects: subjects
            .filter_map(|named| subject(namespace, named))
            .collect(),
    }
}

fn subject(namespace: Option<&str>, named: Named) -> Option<Subject> {
    match named.kind.as_str() {
        "User" => Some(Subject::User(named.name)),
        "Group" => Some(Subject::Group(named.name)),
        "ServiceAccount" => {
            let namespace = named.namespace.as_deref().or(namespace)?;
            let name = named.name;
            Some(Subject::User(format!(
                "system:serviceaccount:{namespace}:{name}"
            )))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(kind: &str, name: &str, namespace: Option<&str>) -> Named {
        Named {
            kind: kind.into(),
            name: name.into(),
            namespace: namespace.map(str::to_owned),
            ..Named::default()
        }
    }

    #[test]
    fn subjects_are_named_as_authorizers_see_them() {
        for (named, expected) in [
            (
                named("User", "jane", None),
                Some(Subject::User("jane".into())),
            ),
            (
                named("Group", "devs", None),
                Some(Subject::Group("devs".into())),
            ),
            (
                named("ServiceAccount", "robot", Some("ci")),
                Some(Subject::User("system:serviceaccount:ci:robot".into())),
            ),
            (
                named("ServiceAccount", "robot", None),
                Some(Subject::User("system:serviceaccount:t1:robot".into())),
            ),
            (named("Robot", "r", None), None),
        ] {
            assert_eq!(subject(Some("t1"), named), expected);
        }
    }

    #[test]
    fn a_role_binding_may_grant_a_role_or_a_cluster_role() {
        let grants = |kind: &str| {
            let role = RoleRef {
                kind: kind.into(),
                name: "edit".into(),
                ..RoleRef::default()
            };
            binding(Some("t1"), role, Vec::new()).role.namespace
        };
        assert_eq!(grants("Role").as_deref(), Some("t1"));
        assert_eq!(grants("ClusterRole"), None);
    }

    #[test]
    fn a_role_that_has_not_changed_touches_nobody() {
        let bindings: Arc<Mutex<Bindings>> = Arc::default();
        let role_ref = RoleRef {
            kind: "ClusterRole".into(),
            name: "edit".into(),
            ..RoleRef::default()
        };
        let jane = binding(None, role_ref, vec![named("User", "jane", None)]);
        bindings.lock().put((None, "b".into()), jane);
        let mut roles = Roles::<ClusterRole>::new(&bindings);
        let role = |version: &str| {
            let mut role = PartialObjectMeta::<ClusterRole>::default();
            role.metadata.name = Some("edit".into());
            role.metadata.resource_version = Some(version.into());
            role
        };
        assert!(!roles.put(role("1")).is_empty());
        assert!(roles.put(role("1")).is_empty());
        assert!(!roles.put(role("2")).is_empty());
        assert!(
            !roles
                .remove(&Roles::<ClusterRole>::key(&role("2")))
                .is_empty()
        );
        assert!(roles.keys().is_empty());
    }
}
