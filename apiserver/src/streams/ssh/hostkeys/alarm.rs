//! Events about host keys, for those who look at a workspace afterwards.

use std::time::Duration;

use apiservice::v1alpha1::API_VERSION;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use tokio::time::timeout;

use super::pins::Owner;

/// How long writing an Event may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest note that kube-apiserver takes is 1,024 bytes.
const LONGEST: usize = 1_000;

/// Reports.
#[derive(Clone)]
pub(super) struct Alarm(Recorder);

impl Alarm {
    /// With our own client.
    pub(super) fn new(client: Client) -> Self {
        let reporter = Reporter {
            controller: "workspaces-apiserver".to_owned(),
            instance: None,
        };
        Self(Recorder::new(client, reporter))
    }

    /// A key that is not the pinned one.
    pub(super) async fn changed(&self, owner: &Owner, what: String) {
        let (kind, reason) = (EventType::Warning, "HostKeyChanged");
        self.report(owner, kind, reason, "Refuse", what).await;
    }

    /// A change that somebody accepted.
    pub(super) async fn accepted(&self, owner: &Owner, what: String) {
        let (kind, reason) = (EventType::Normal, "HostKeyAccepted");
        self.report(owner, kind, reason, "Pin", what).await;
    }

    /// An Event that cannot be written is in our log; the refusal stands without it.
    async fn report(
        &self,
        owner: &Owner,
        type_: EventType,
        reason: &str,
        action: &str,
        note: String,
    ) {
        tracing::warn!(
            namespace = owner.namespace,
            workspace = owner.name,
            reason,
            note,
            "host keys"
        );
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(LONGEST).collect()),
            action: action.to_owned(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some("Workspace".to_owned()),
            namespace: Some(owner.namespace.clone()),
            name: Some(owner.name.clone()),
            uid: Some(owner.uid.clone()),
            ..ObjectReference::default()
        };
        match timeout(PATIENCE, self.0.publish(&event, &about)).await {
            Ok(Ok(())) => {}
            failed => tracing::warn!(?failed, "an Event about host keys could not be written"),
        }
    }
}
