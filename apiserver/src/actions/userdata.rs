//! `workspaces/userdata`: what cloud-init of a machine is given, byte for byte.
//!
//! It is in the machine's Secret, which is written once for each catalog entry and may be older than
//! the catalog. We cannot get Secrets: an empty patch that is not carried out shows one, and the
//! policy on our ServiceAccount lets that pass only for Secrets that a Workspace owns. While there
//! is no Secret yet, it is what would be written now.

use std::{sync::Arc, time::Duration};

use apiserver_generic::{
    ApiError, Body, Call, Connect, Key, Object, Reason, cache::Freshness, call::full,
};
use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use controller::{
    names::cloud_init_secret,
    plan::{self, Settings},
};
use http::{HeaderValue, Response, header};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Deps, conflict, unavailable};
use crate::streams::resolve::{Kind, Workspace, controlled_by};

/// The key in the Secret.
const KEY: &str = "userdata";
const PATIENCE: Duration = Duration::from_secs(10);

/// The handler.
pub(super) struct UserData {
    pub(super) deps: Arc<Deps>,
}

#[async_trait]
impl Connect for UserData {
    async fn connect(&self, call: Call) -> Result<Response<Body>, ApiError> {
        let key = Key::namespaced(&call.info.namespace, &call.info.name);
        let registry = &self.deps.workspaces;
        let object = registry.get(&key, Freshness::Latest).await?;
        let workspace = Workspace::read(&object);
        if workspace.kind != Kind::Vm {
            return Err(ApiError::bad_request(
                "only workspaces of type vm have user-data: cloud-init runs in machines",
            ));
        }
        let secret = self.secret(&workspace).await?;
        let text = match secret {
            Some(secret) => written(&workspace, &secret)?,
            None => self.rendered(&object, &workspace)?.into_bytes(),
        };
        Ok(answer(text))
    }
}

impl UserData {
    async fn secret(&self, workspace: &Workspace) -> Result<Option<Object>, ApiError> {
        let api: Api<Secret> = Api::namespaced(self.deps.client.clone(), &workspace.namespace);
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let name = cloud_init_secret(&workspace.name);
        let patch = Patch::Merge(json!({}));
        let looking = api.patch(&name, &params, &patch);
        let secret = match tokio::time::timeout(PATIENCE, looking).await {
            Ok(Ok(secret)) => secret,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Ok(None),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                return Err(foreign(&workspace.name).because(status.message));
            }
            Ok(Err(error)) => return Err(unavailable(error)),
            Err(_) => return Err(unavailable("no answer")),
        };
        let value = serde_json::to_value(secret).map_err(ApiError::internal)?;
        Ok(Object::from_value(value).ok())
    }

    /// What the controller would write now.
    fn rendered(&self, object: &Object, workspace: &Workspace) -> Result<String, ApiError> {
        let images = self.deps.images.cached_list(None);
        let images: Vec<Object> = images.iter().map(|item| item.object.clone()).collect();
        let reference = object
            .str_at("/spec/template/spec/containers/0/image")
            .unwrap_or_default();
        let (record, settings) = Settings::recorded(object, reference)
            .unwrap_or_else(|| plan::resolve(reference, &images));
        if !settings.cloud_init {
            return Err(none(&workspace.name));
        }
        plan::user_data(&record, &images)
            .map_err(|problem| conflict(&workspace.name, &problem.message))
    }
}

/// What is in the Secret, if it is the workspace's own.
fn written(workspace: &Workspace, secret: &Object) -> Result<Vec<u8>, ApiError> {
    if !controlled_by(secret, "kubeworkspaces.io", "Workspace", &workspace.uid) {
        return Err(foreign(&workspace.name));
    }
    let data = secret
        .pointer(&format!("/data/{KEY}"))
        .and_then(Value::as_str);
    let data = data.ok_or_else(|| none(&workspace.name))?;
    STANDARD.decode(data).map_err(ApiError::internal)
}

fn foreign(workspace: &str) -> ApiError {
    let why = "the Secret of its name does not belong to it; delete or rename it";
    conflict(workspace, why)
}

fn none(workspace: &str) -> ApiError {
    ApiError::new(
        Reason::NotFound,
        format!("workspace \"{workspace}\" has no user-data: its Image asks for no cloud-init"),
    )
    .about("kubeworkspaces.io", "workspaces", workspace)
}

/// As it is: it holds credentials, so that nobody is to keep it on the way.
fn answer(text: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(full(text));
    let headers = response.headers_mut();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, plain);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        let value = json!({"metadata": {"name": "demo", "namespace": "t1", "uid": "ws"},
            "spec": {"type": "vm"}});
        Workspace::read(&Object::from_value(value).unwrap())
    }

    fn secret(owner: &str, data: Value) -> Object {
        Object::from_value(
            json!({"metadata": {"name": "demo-cloudinit", "ownerReferences": [
            {"apiVersion": "kubeworkspaces.io/v1alpha1", "kind": "Workspace", "name": "demo",
             "uid": owner, "controller": true}]}, "data": data}),
        )
        .unwrap()
    }

    #[test]
    fn only_the_workspaces_own_secret_is_shown_and_byte_for_byte() {
        let text = "#cloud-config\npassword: ü\n";
        let data = json!({ KEY: STANDARD.encode(text) });
        let own = written(&workspace(), &secret("ws", data.clone()));
        assert_eq!(own.unwrap(), text.as_bytes());
        let theirs = written(&workspace(), &secret("other", data)).unwrap_err();
        assert_eq!(theirs.reason.code(), 409);
        let empty = written(&workspace(), &secret("ws", json!({}))).unwrap_err();
        assert_eq!(empty.reason.code(), 404);
    }

    #[test]
    fn nobody_keeps_it_on_the_way() {
        let response = answer(b"x".to_vec());
        assert_eq!(response.headers()["cache-control"], "no-store");
    }
}
