//! The sessions that one user has, for modes that many may have at once.

use apiserver_generic::UserInfo;
use apiservice::v1alpha1::{API_VERSION, SessionMode};
use serde_json::{Value, json};

use super::{Sessions, record};

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
        let items: Vec<Value> = all
            .into_iter()
            .filter(|stored| stored.key.namespace.as_deref() == Some(namespace))
            .filter(|stored| {
                let spec = record::read(&stored.object).spec;
                spec.workspace == workspace
                    && spec.mode == mode
                    && (spec.user.as_str(), spec.user_uid.as_str()) == (&*user.name, &*user.uid)
            })
            .map(|stored| stored.object.into_value())
            .collect();
        json!({
            "apiVersion": API_VERSION, "kind": "WorkspaceSessionList",
            "metadata": {"resourceVersion": self.inner.index.revision().0.to_string()},
            "items": items,
        })
    }
}
