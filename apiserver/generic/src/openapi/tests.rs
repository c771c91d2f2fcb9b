use http::header;
use http_body_util::BodyExt as _;

use super::*;
use crate::test_rows::rows;

fn openapi() -> OpenApi {
    OpenApi::new(&rows(), "toys", &VersionInfo::default()).unwrap()
}

async fn get(url: &str) -> (http::response::Parts, Value) {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let response = openapi().answer(path, query, &HeaderMap::new()).unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts, serde_json::from_slice(&bytes).unwrap())
}

const V3: &str = "/openapi/v3/apis/toys.example.com/v1";

#[tokio::test]
async fn the_root_leads_to_a_document_that_may_be_kept_for_ever() {
    let (_, root) = get("/openapi/v3").await;
    assert_eq!(root["paths"].as_object().unwrap().len(), 1);
    let url = root["paths"]["apis/toys.example.com/v1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    assert!(url.starts_with(V3), "{url}");
    let (parts, document) = get(url).await;
    assert!(
        parts.headers["cache-control"]
            .to_str()
            .unwrap()
            .contains("immutable")
    );
    assert_eq!(document["openapi"], "3.0.0");
}

#[tokio::test]
async fn the_hash_of_another_build_is_answered_and_never_redirected() {
    let (parts, _) = get(&format!("{V3}?hash=0123&timeout=32s")).await;
    assert_eq!(parts.status, 200);
    assert_eq!(parts.headers["cache-control"], "no-cache, private");
    assert!(
        openapi()
            .answer("/openapi/v3/apis/other.io/v1", "", &HeaderMap::new())
            .is_none()
    );
    assert!(
        openapi()
            .answer("/openapi/v4", "", &HeaderMap::new())
            .is_none()
    );
}

/// What `kubectl explain` does: path, first operation with a kind, component with that kind.
#[tokio::test]
async fn explain_finds_a_resource() {
    let (_, document) = get(V3).await;
    let kind = &document["paths"]["/apis/toys.example.com/v1/namespaces/{namespace}/robots"]["get"]
        ["x-kubernetes-group-version-kind"];
    assert_eq!(kind["kind"], "Robot");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let of_kind = |schema: &&Value| {
        schema["x-kubernetes-group-version-kind"]
            .as_array()
            .is_some_and(|list| list.contains(kind))
    };
    let found: Vec<_> = schemas.values().filter(of_kind).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0]["properties"]["spec"]["description"],
        "What it should do."
    );
    let metadata = found[0]["properties"]["metadata"]["allOf"][0]["$ref"]
        .as_str()
        .unwrap();
    let name = metadata.strip_prefix("#/components/schemas/").unwrap();
    assert!(schemas[name]["properties"]["labels"].is_object());
}

#[tokio::test]
async fn every_patch_takes_field_validation() {
    let (_, v3) = get(V3).await;
    let (_, v2) = get("/openapi/v2").await;
    for document in [v3, v2] {
        let mut patches = 0;
        for item in document["paths"].as_object().unwrap().values() {
            let Some(patch) = item.get("patch") else {
                continue;
            };
            patches += 1;
            let parameters = patch["parameters"].as_array().unwrap();
            assert!(
                parameters
                    .iter()
                    .any(|p| p["name"] == "fieldValidation" && p["in"] == "query")
            );
            assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Robot");
        }
        assert_eq!(patches, 2, "the object and its status");
    }
}

#[tokio::test]
async fn version_2_is_strict_swagger_with_kinds_on_our_types_only() {
    let (_, document) = get("/openapi/v2").await;
    swagger::check(&document).unwrap();
    for (name, schema) in document["definitions"].as_object().unwrap() {
        let has_kind = schema.get("x-kubernetes-group-version-kind").is_some();
        assert_eq!(has_kind, name.starts_with("com.example.toys."), "{name}");
    }
    let boxes = &document["paths"]["/apis/toys.example.com/v1/boxes"];
    assert!(
        boxes["post"].is_null() && boxes["get"].is_object(),
        "{boxes}"
    );
}

#[tokio::test]
async fn every_path_parameter_is_declared() {
    for url in [V3, "/openapi/v2"] {
        let (_, document) = get(url).await;
        for (path, item) in document["paths"].as_object().unwrap() {
            let in_path = path.matches('{').count();
            let declared = item["parameters"].as_array().map_or(0, Vec::len);
            assert_eq!(in_path, declared, "{path}");
        }
    }
}

#[test]
fn only_json_is_produced() {
    let proto = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    for (accept, code) in [
        (proto.to_owned(), 406),
        (format!("{proto},application/json"), 200),
        ("*/*".into(), 200),
    ] {
        let headers = [(header::ACCEPT, accept.parse().unwrap())]
            .into_iter()
            .collect();
        assert_eq!(
            openapi()
                .answer("/openapi/v2", "", &headers)
                .unwrap()
                .status(),
            code,
            "{accept}"
        );
    }
}
