//! A namespaced object needs a namespace that exists and is not going away.
//!
//! Mirrors `k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle`: only creation matters;
//! what the watch does not know is waited for shortly, then asked for.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{Admission, Operation, Review};
use crate::{ApiError, Object, Reason, Resource};

/// How long a namespace that was just made may take to arrive at our watch.
const MISSING_WAIT: Duration = Duration::from_millis(50);

/// Whether a namespace takes new content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacePhase {
    /// Yes.
    Active,
    /// It is being deleted.
    Terminating,
}

/// What is known about namespaces.
#[async_trait]
pub trait Namespaces: Send + Sync + 'static {
    /// Whether the watch has its first list.
    fn is_ready(&self) -> bool;

    /// What the watch knows.
    fn cached(&self, name: &str) -> Option<NamespacePhase>;

    /// What the cluster says now; `None` if there is no such namespace.
    ///
    /// # Errors
    /// When the cluster could not be asked.
    async fn live(&self, name: &str) -> Result<Option<NamespacePhase>, ApiError>;
}

/// The admission step.
pub struct NamespaceLifecycle {
    namespaces: Arc<dyn Namespaces>,
}

impl NamespaceLifecycle {
    /// Over a source of namespaces.
    pub fn new(namespaces: Arc<dyn Namespaces>) -> Self {
        Self { namespaces }
    }

    async fn phase(&self, name: &str) -> Result<Option<NamespacePhase>, ApiError> {
        if let Some(phase) = self.namespaces.cached(name) {
            return Ok(Some(phase));
        }
        tokio::time::sleep(MISSING_WAIT).await;
        match self.namespaces.cached(name) {
            Some(phase) => Ok(Some(phase)),
            None => self.namespaces.live(name).await,
        }
    }
}

#[async_trait]
impl Admission for NamespaceLifecycle {
    async fn admit(&self, review: Review<'_>, _: &mut Object) -> Result<Vec<String>, ApiError> {
        let Some(namespace) = &review.key.namespace else {
            return Ok(Vec::new());
        };
        if review.operation != Operation::Create {
            return Ok(Vec::new());
        }
        if !self.namespaces.is_ready() {
            let why = "not yet ready to handle request";
            return Err(forbidden(review.resource, &review.key.name, why));
        }
        match self.phase(namespace).await? {
            Some(NamespacePhase::Active) => Ok(Vec::new()),
            Some(NamespacePhase::Terminating) => {
                Err(terminating(review.resource, &review.key.name, namespace))
            }
            None => Err(ApiError::not_found("", "namespaces", namespace)),
        }
    }
}

fn forbidden(row: &Resource, name: &str, why: &str) -> ApiError {
    let what = crate::status::qualified(row.group, row.plural);
    let text = format!("{what} \"{name}\" is forbidden: {why}");
    ApiError::new(Reason::Forbidden, text).about(row.group, row.plural, name)
}

/// 403 with the cause that the namespace controller's clients know.
pub(crate) fn terminating(row: &Resource, name: &str, namespace: &str) -> ApiError {
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let cause = format!("namespace {namespace} is being terminated");
    forbidden(row, name, &why).cause("NamespaceTerminating", cause, "metadata.namespace")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Strategy as _, registry::Writer, storage::Key, test_widgets::Widgets};

    /// Knows nothing at first hand; asked live, it answers by the name.
    struct Asked {
        ready: bool,
    }

    #[async_trait]
    impl Namespaces for Asked {
        fn is_ready(&self) -> bool {
            self.ready
        }

        fn cached(&self, name: &str) -> Option<NamespacePhase> {
            (name == "known").then_some(NamespacePhase::Active)
        }

        async fn live(&self, name: &str) -> Result<Option<NamespacePhase>, ApiError> {
            Ok(match name {
                "new" => Some(NamespacePhase::Active),
                "ending" => Some(NamespacePhase::Terminating),
                _ => None,
            })
        }
    }

    async fn admit(ready: bool, operation: Operation, namespace: &str) -> Result<(), ApiError> {
        let widgets = Widgets::new();
        let step = NamespaceLifecycle::new(Arc::new(Asked { ready }));
        let review = Review {
            operation,
            resource: widgets.resource(),
            subresource: None,
            key: &Key::namespaced(namespace, "a"),
            old: None,
            writer: &Writer::default(),
        };
        let admitted = step.admit(review, &mut Object::default()).await;
        admitted.map(|warnings| assert!(warnings.is_empty()))
    }

    #[tokio::test]
    async fn only_creation_needs_a_living_namespace() {
        for namespace in ["known", "new"] {
            assert_eq!(admit(true, Operation::Create, namespace).await, Ok(()));
        }
        let missing = admit(true, Operation::Create, "missing").await.unwrap_err();
        assert_eq!(missing.message, "namespaces \"missing\" not found");
        let ending = admit(true, Operation::Create, "ending").await.unwrap_err();
        assert_eq!(
            ending.message,
            "widgets.example.com \"a\" is forbidden: unable to create new content in namespace ending because it is being terminated"
        );
        assert_eq!(
            ending.details.unwrap().causes[0].reason,
            "NamespaceTerminating"
        );
        for operation in [Operation::Update, Operation::Delete] {
            assert_eq!(admit(true, operation, "ending").await, Ok(()));
        }
        let early = admit(false, Operation::Create, "known").await.unwrap_err();
        assert_eq!(early.reason, Reason::Forbidden);
    }
}
