//! The workspace and the sessions as they are stored.

use apiserver_generic::{
    Key, Object, Storage as _,
    storage::{At, ListQuery, StorageError, WriteContext},
};
use serde_json::Value;

use super::World;

impl World {
    pub(super) async fn put_workspace(&self, object: Value) {
        let object = Object::from_value(object).unwrap();
        let created = self
            .workspaces
            .create(&WriteContext::default(), &workspace_key(), &object)
            .await;
        created.unwrap();
    }

    /// Changes the workspace.
    pub(in crate::streams::tests) async fn edit_workspace(&self, edit: impl FnOnce(&mut Object)) {
        let mut stored = self.workspaces.get(&workspace_key()).await.unwrap();
        edit(&mut stored.object);
        let context = WriteContext::default();
        let updated =
            self.workspaces
                .update(&context, &stored.key, &stored.object, stored.revision);
        updated.await.unwrap();
    }

    /// Deletes the workspace, and its console's session as the garbage collector does.
    pub(in crate::streams::tests) async fn delete_workspace(&self) {
        self.drop_workspace().await;
        self.delete_session("console").await;
    }

    /// Deletes the workspace alone.
    pub(in crate::streams::tests) async fn drop_workspace(&self) {
        let context = WriteContext::default();
        let stored = self.workspaces.get(&workspace_key()).await.unwrap();
        let gone = self
            .workspaces
            .delete(&context, &stored.key, stored.revision);
        gone.await.unwrap();
    }

    /// Deletes a session, whose finalizer is ours.
    pub(in crate::streams::tests) async fn delete_session(&self, mode: &str) {
        self.mark_session(&format!("demo.{mode}")).await;
    }

    /// Deletes a session by its whole name.
    pub(in crate::streams::tests) async fn mark_session(&self, name: &str) {
        let context = WriteContext::default();
        let mut session = self.sessions.get(&session_key(name)).await.unwrap();
        session
            .object
            .set_meta("deletionTimestamp", "2026-01-02T03:04:05Z");
        let marked =
            self.sessions
                .update(&context, &session.key, &session.object, session.revision);
        marked.await.unwrap();
    }

    /// Whether the console's session object is there.
    pub(in crate::streams::tests) async fn has_session(&self) -> bool {
        self.has_session_of("console").await
    }

    /// Whether a mode's session object is there.
    pub(in crate::streams::tests) async fn has_session_of(&self, mode: &str) -> bool {
        let key = session_key(&format!("demo.{mode}"));
        !matches!(self.sessions.get(&key).await, Err(StorageError::NotFound))
    }

    /// The names of all sessions, held and shared.
    pub(in crate::streams::tests) async fn session_names(&self) -> Vec<String> {
        let all = ListQuery {
            namespace: None,
            at: At::Latest,
            limit: None,
            after: None,
        };
        let page = self.sessions.list(&all).await.unwrap();
        page.items.into_iter().map(|s| s.key.name).collect()
    }
}

fn workspace_key() -> Key {
    Key {
        namespace: Some("t1".into()),
        name: "demo".into(),
    }
}

fn session_key(name: &str) -> Key {
    Key {
        namespace: Some("t1".into()),
        name: name.into(),
    }
}
