//! Requests and what the double answers.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{API, Asked, Refuse, World, stream};

pub type Answer = Response<Full<Bytes>>;

pub async fn answer(
    request: Request<Incoming>,
    world: Arc<Mutex<World>>,
    open: Arc<AtomicUsize>,
    certificate: bool,
) -> Answer {
    let (mut parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().unwrap().as_str().to_owned();
    let upgrade = parts.headers.contains_key(UPGRADE);
    let on_upgrade = parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
    let body = match upgrade {
        true => Bytes::new(),
        false => body.collect().await.unwrap().to_bytes(),
    };
    let asked = Asked {
        method: parts.method.to_string(),
        target: target.clone(),
        headers: parts.headers.clone(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        certificate,
    };
    let bearer = parts
        .headers
        .get(AUTHORIZATION)
        .and_then(|v| v.to_str().ok());
    let script = {
        let mut world = world.lock().unwrap();
        world.asked.push(asked);
        if let Some(token) = &world.token
            && bearer != Some(&format!("Bearer {token}"))
        {
            return refused(&Refuse::status(401, "Unauthorized"));
        }
        if let Some(at) = world
            .refusals
            .iter()
            .position(|(path, _)| target.contains(path))
        {
            return refused(&world.refusals.remove(at).1);
        }
        let path = parts
            .uri
            .path()
            .trim_start_matches(API)
            .trim_start_matches('/')
            .to_owned();
        if !upgrade {
            return plain(&mut world, &parts.method, &path, &parts.headers);
        }
        let found = world
            .scripts
            .iter()
            .find(|(end, _)| path.ends_with(end.as_str()));
        found.map(|(_, script)| script.clone())
    };
    match (script, on_upgrade) {
        (Some(script), Some(on_upgrade)) => {
            stream::accept(&parts.headers, on_upgrade, script, world, open)
        }
        _ => refused(&Refuse::status(404, "no such stream")),
    }
}

fn refused(refuse: &Refuse) -> Answer {
    let mut response = Response::builder().status(refuse.code);
    if let Some(seconds) = refuse.retry_after {
        response = response.header(RETRY_AFTER, seconds);
    }
    response
        .body(Full::new(refuse.body.clone().into()))
        .unwrap()
}

fn json(value: &Value) -> Answer {
    let response = Response::builder().header(CONTENT_TYPE, "application/json");
    response.body(Full::new(value.to_string().into())).unwrap()
}

/// Objects, lists, tables, actions, pictures.
fn plain(world: &mut World, method: &Method, path: &str, headers: &http::HeaderMap) -> Answer {
    if method == Method::PUT {
        return Response::new(Full::default());
    }
    if method == Method::POST {
        let name = path.rsplit('/').nth(1).unwrap_or_default();
        let message = format!("workspace {name}: done");
        return json(&json!({"kind": "Status", "status": "Success", "message": message}));
    }
    if method == Method::DELETE {
        return match world.objects.remove(path) {
            Some(_) => json(&json!({"kind": "Status", "status": "Success"})),
            None => refused(&Refuse::status(404, "not found")),
        };
    }
    if path.ends_with("/screenshot") {
        return Response::new(Full::new(world.screenshot.clone().into()));
    }
    if path.ends_with("/userdata") {
        return Response::new(Full::new("#cloud-config\n".into()));
    }
    if path.ends_with("/vnc") {
        return json(&json!({"kind": "WorkspaceSession", "status": {"inUse": false}}));
    }
    if let Some(object) = world.objects.get(path) {
        return json(object);
    }
    let accept = headers
        .get("accept")
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    if path.ends_with("workspaces")
        || path.ends_with("workspacesessions")
        || path.ends_with("namespaces")
    {
        return list(world, path, accept.contains("as=Table"));
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let mut response = refused(&Refuse::status(
        404,
        &format!("workspaces \"{name}\" not found"),
    ));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn list(world: &World, path: &str, table: bool) -> Answer {
    let prefix = format!("{}/", path.trim_start_matches('/'));
    let mut items: Vec<&Value> = world
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix))
        .map(|(_, object)| object)
        .collect();
    items.sort_by_key(|object| object["metadata"]["name"].to_string());
    if !table {
        return json(&json!({"kind": "List", "items": items}));
    }
    let rows: Vec<_> = items
        .iter()
        .map(|object| {
            let kind = object["spec"]["type"]
                .as_str()
                .or(object["spec"]["user"].as_str());
            json!({"cells": [object["metadata"]["name"], kind, object["status"]["phase"]],
                "object": {"metadata": object["metadata"]}})
        })
        .collect();
    let columns = json!([{"name": "Name"}, {"name": "Type"}, {"name": "Status"}]);
    json(&json!({"kind": "Table", "columnDefinitions": columns, "rows": rows}))
}
