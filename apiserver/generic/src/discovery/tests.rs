use http::header;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::*;
use crate::test_rows::rows;

fn discovery() -> Discovery {
    let version = VersionInfo {
        version: "1.2.3".into(),
        ..VersionInfo::default()
    };
    Discovery::new(&rows(), &version)
}

async fn get(path: &str, accept: &str) -> (HeaderMap, Value) {
    let headers = [(header::ACCEPT, accept.parse().unwrap())]
        .into_iter()
        .collect();
    let response = discovery().answer(path, &headers).unwrap();
    let headers = response.headers().clone();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (headers, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn the_legacy_documents_name_everything() {
    let (_, list) = get("/apis", "application/json").await;
    let group = &list["groups"][0];
    assert_eq!(group["name"], "toys.example.com");
    assert_eq!(
        group["preferredVersion"]["groupVersion"],
        "toys.example.com/v1"
    );
    let (_, one) = get("/apis/toys.example.com/", "*/*").await;
    assert_eq!(
        (&one["kind"], &one["versions"]),
        (&json!("APIGroup"), &group["versions"])
    );
    let (_, resources) = get("/apis/toys.example.com/v1", "").await;
    let names: Vec<_> = resources["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| &r["name"])
        .collect();
    assert_eq!(
        names,
        [
            "robots",
            "robots/status",
            "robots/console",
            "robots/proxy",
            "robots/spin",
            "boxes"
        ]
    );
    assert_eq!(
        resources["resources"][0],
        json!({"name": "robots", "singularName": "robot", "namespaced": true, "kind": "Robot",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["rb"], "categories": ["all"]})
    );
    assert_eq!(resources["resources"][2]["verbs"], json!(["create", "get"]));
    assert_eq!(resources["resources"][4]["kind"], "RobotSpinOptions");
    assert_eq!(resources["resources"][5]["namespaced"], false);
}

#[tokio::test]
async fn the_aggregated_document_comes_with_its_exact_type() {
    for version in ["v2", "v2beta1"] {
        let accept =
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        let (headers, list) = get("/apis", &accept).await;
        assert_eq!(headers["content-type"], accept.as_str());
        assert_eq!(headers["cache-control"], "public");
        assert!(headers["vary"].to_str().unwrap().contains("Accept"));
        assert_eq!(list["apiVersion"], format!("apidiscovery.k8s.io/{version}"));
        let robots = &list["items"][0]["versions"][0]["resources"][0];
        assert_eq!(robots["scope"], "Namespaced");
        assert_eq!(robots["responseKind"]["kind"], "Robot");
        assert_eq!(robots["subresources"][1]["subresource"], "console");
        assert!(robots["subresources"][1]["responseKind"].is_object());
    }
}

#[tokio::test]
async fn version_and_root_are_there_and_other_paths_are_not() {
    let (_, version) = get("/version", "*/*").await;
    assert_eq!(
        (&version["major"], &version["gitVersion"]),
        (&json!("1"), &json!("v1.2.3"))
    );
    let (_, root) = get("/", "*/*").await;
    assert!(
        root["paths"]
            .as_array()
            .unwrap()
            .contains(&json!("/apis/toys.example.com/v1"))
    );
    for path in ["/api", "/apis/other.io", "/apis/toys.example.com/v2", "/x"] {
        assert!(
            discovery().answer(path, &HeaderMap::new()).is_none(),
            "{path}"
        );
    }
}

#[test]
fn what_cannot_be_produced_is_406() {
    let headers = [(
        header::ACCEPT,
        "application/vnd.kubernetes.protobuf".parse().unwrap(),
    )];
    let response = discovery()
        .answer("/apis", &headers.into_iter().collect())
        .unwrap();
    assert_eq!(response.status(), 406);
}
