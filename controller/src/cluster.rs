//! Calls to the cluster, one function each. Decisions are made elsewhere.

use apiserver_generic::Object;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, Preconditions};
use kube::core::{DynamicObject, Request, Resource};
use kube::{Client, Error};
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::names::FIELD_MANAGER;

/// The address of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) kind: Kind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl At<'_> {
    fn request(self) -> Request {
        let path = DynamicObject::url_path(&self.kind.resource(), Some(self.namespace));
        Request::new(path)
    }
}

/// A failed call: what was tried, and what the cluster said.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {kind} {namespace}/{name}: {source}")]
pub(crate) struct CallError {
    verb: &'static str,
    kind: Kind,
    namespace: String,
    name: String,
    #[source]
    source: Error,
}

impl CallError {
    /// HTTP status of the answer, 0 if there was none.
    pub(crate) fn code(&self) -> u16 {
        match &self.source {
            Error::Api(status) => status.code,
            _ => 0,
        }
    }

    /// The object that the call was about.
    pub(crate) fn about(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }

    /// The cluster's own words, if it answered.
    pub(crate) fn answer(&self) -> &str {
        match &self.source {
            Error::Api(status) => &status.message,
            _ => "the cluster did not answer",
        }
    }

    /// Whether trying again may help without anybody changing anything.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.code(), 0 | 408 | 409 | 429 | 500..)
    }
}

/// The cluster that the children live in.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
}

impl Cluster {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// The object as it is, or nothing.
    ///
    /// A Secret is looked at by an empty patch that is not carried out: we have no right to get
    /// Secrets, and admission policies that guard writes see this one.
    pub(crate) async fn get(&self, at: At<'_>) -> Result<Option<Object>, CallError> {
        let request = match at.kind {
            Kind::Secret => {
                let params = PatchParams {
                    dry_run: true,
                    field_manager: Some(FIELD_MANAGER.to_owned()),
                    ..PatchParams::default()
                };
                at.request()
                    .patch(at.name, &params, &Patch::Merge(json!({})))
            }
            _ => at.request().get(at.name, &GetParams::default()),
        };
        match self.send("get", at, request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes an object by server-side apply. Without force, one that appeared meanwhile and says
    /// otherwise in any field is a conflict, and not taken over.
    pub(crate) async fn create(&self, at: At<'_>, body: &Value) -> Result<Object, CallError> {
        self.apply(at, body, false).await
    }

    /// Brings the object of this UID into the form of `body`.
    pub(crate) async fn update(
        &self,
        at: At<'_>,
        body: &Value,
        uid: &str,
    ) -> Result<Object, CallError> {
        let mut body = body.clone();
        body["metadata"]["uid"] = json!(uid);
        self.apply(at, &body, true).await
    }

    async fn apply(&self, at: At<'_>, body: &Value, force: bool) -> Result<Object, CallError> {
        let params = PatchParams {
            force,
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = at.request().patch(at.name, &params, &Patch::Apply(body));
        self.send("apply", at, request).await
    }

    /// Deletes the object of this UID; one that is gone is no error.
    pub(crate) async fn delete(&self, at: At<'_>, uid: &str) -> Result<(), CallError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let request = at.request().delete(at.name, &params);
        match self.send("delete", at, request).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks KubeVirt to start a halted machine so that it is paused. Being asked twice, or while the
    /// last instance is still going, is no error: the next look shows how far it is.
    pub(crate) async fn start_paused(&self, at: At<'_>) -> Result<(), CallError> {
        let At {
            namespace, name, ..
        } = at;
        let uri = format!(
            "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}/start"
        );
        let request = http::Request::put(uri)
            .header("Content-Type", "application/json")
            .body(json!({"paused": true}).to_string().into_bytes());
        let sent = match request {
            Ok(request) => self.client.request_text(request).await,
            Err(error) => Err(Error::HttpError(error)),
        };
        match sent {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if is_under_way(status.code, &status.message) => Ok(()),
            Err(source) => Err(CallError {
                verb: "start",
                kind: at.kind,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                source,
            }),
        }
    }

    async fn send(
        &self,
        verb: &'static str,
        at: At<'_>,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Object, CallError> {
        let sent = match request {
            Ok(request) => self.client.request(request).await,
            Err(error) => Err(Error::BuildRequest(error)),
        };
        sent.map_err(|source| CallError {
            verb,
            kind: at.kind,
            namespace: at.namespace.to_owned(),
            name: at.name.to_owned(),
            source,
        })
    }
}

/// KubeVirt's words for a start that has begun, or that waits for the last instance to be gone
/// (`pkg/virt-api/rest/lifecycle.go`).
fn is_under_way(code: u16, message: &str) -> bool {
    code == 409 || (code == 500 && message.contains("already underway"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_may_be_asked_for_again() {
        for (code, message, expected) in [
            (409, "VM is already running", true),
            (
                500,
                "unable to complete request: stop/start already underway",
                true,
            ),
            (500, "something else", false),
            (404, "not found", false),
            (503, "", false),
        ] {
            assert_eq!(is_under_way(code, message), expected, "{code} {message}");
        }
    }
}
