//! The sessions that one user has, for modes that many may have at once.

use apiserver_generic::UserInfo;
use apiservice::v1alpha1::{API_VERSION, SessionMode};
use serde_json::{Value, json};

use super::Sessions;

impl Sessions {
    /// A list of the user's own sessions of a mode and workspace, over all replicas, as of a moment ago.
    pub fn own(
        &self,
        namespace: &str,
        workspace: &str,
        mode: SessionMode,
        user: &UserInfo,
    ) -> Value {
        let all = self.inner.index.all();
        let own = all.iter().filter(|seen| {
            let spec = &seen.spec;
            seen.stored.key.namespace.as_deref() == Some(namespace)
                && (&*spec.workspace, spec.mode) == (workspace, mode)
                && (&*spec.user, &*spec.user_uid) == (&*user.name, &*user.uid)
        });
        let items: Vec<Value> = own
            .map(|seen| seen.stored.object.clone().into_value())
            .collect();
        json!({
            "apiVersion": API_VERSION, "kind": "WorkspaceSessionList",
            "metadata": {"resourceVersion": self.inner.index.revision().0.to_string()},
            "items": items,
        })
    }
}
