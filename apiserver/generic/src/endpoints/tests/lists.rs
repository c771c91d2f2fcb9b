//! Lists: chunks, selectors, and the forms in which they are asked for.

use super::*;

#[tokio::test]
async fn lists_have_kind_version_and_items_even_when_empty() {
    let b = bench().await;
    let (code, list) = b.get(ask("GET", ALL)).await;
    assert_eq!(
        (code, &list["kind"], &list["apiVersion"]),
        (200, &json!("WidgetList"), &json!("example.com/v1"))
    );
    assert_eq!(list["items"], json!([]));
    assert_ne!(
        list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default(),
        ""
    );
    b.create("a").await;
    let (_, list) = b.get(ask("GET", ALL)).await;
    assert_eq!(
        (&list["items"][0]["kind"], &list["items"][0]["apiVersion"]),
        (&json!("Widget"), &json!("example.com/v1"))
    );
}

#[tokio::test]
async fn chunks_show_one_state_and_count_down() {
    let b = bench().await;
    for name in ["a", "b", "c", "d", "e"] {
        b.create(name).await;
    }
    let (mut uri, mut names, mut counts, mut versions) =
        (format!("{ALL}?limit=2"), vec![], vec![], vec![]);
    loop {
        let (code, page) = b.get(ask("GET", &uri)).await;
        assert_eq!(code, 200, "{page}");
        names.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()),
        );
        counts.push(page["metadata"]["remainingItemCount"].clone());
        versions.push(page["metadata"]["resourceVersion"].clone());
        b.send(ask("DELETE", &named("b"))).await;
        b.get(ask("POST", BASE).json(widget("aa"))).await;
        match page["metadata"]["continue"].as_str() {
            Some(token) => uri = format!("{ALL}?limit=2&continue={token}"),
            None => break,
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert_eq!(counts, [json!(3), json!(1), Value::Null]);
    versions.dedup();
    assert_eq!(versions.len(), 1);
}

#[tokio::test]
async fn a_continue_token_is_bound_to_its_selectors_and_to_history() {
    let b = bench().await;
    for name in ["a", "b", "c"] {
        b.create(name).await;
    }
    let (_, page) = b
        .get(ask("GET", &format!("{ALL}?limit=1&labelSelector=team%3Da")))
        .await;
    assert_eq!(page["metadata"].get("remainingItemCount"), None);
    let token = page["metadata"]["continue"].as_str().unwrap();
    assert_eq!(
        b.get(ask("GET", &format!("{ALL}?limit=1&continue={token}")))
            .await
            .0,
        400
    );
    assert_eq!(
        b.get(ask("GET", &format!("{ALL}?continue=nonsense")))
            .await
            .0,
        400
    );
    // A replica that begins now knows nothing of the past, and the backend has forgotten it.
    b.create("d").await;
    b.storage.compact();
    let late = Bench {
        group: Group::new().resource(fresh_registry(&b).await),
        ..bench().await
    };
    let uri = format!("{ALL}?limit=1&labelSelector=team%3Da&continue={token}");
    let (code, status) = late.get(ask("GET", &uri)).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let token = status["metadata"]["continue"].as_str().unwrap();
    let uri = format!("{ALL}?labelSelector=team%3Da&continue={token}");
    let (code, rest) = late.get(ask("GET", &uri)).await;
    assert_eq!((code, rest["items"].as_array().unwrap().len()), (200, 3));
}

#[tokio::test]
async fn selectors_narrow_lists_and_unsupported_ones_are_named() {
    let b = bench().await;
    b.create("a").await;
    b.create("b").await;
    for (query, count) in [
        ("labelSelector=team%3Da", 2),
        ("labelSelector=team%21%3Da", 0),
        ("fieldSelector=metadata.name%3Da", 1),
        ("fieldSelector=metadata.namespace%3Dother", 0),
    ] {
        let (code, list) = b.get(ask("GET", &format!("{ALL}?{query}"))).await;
        assert_eq!(
            (code, list["items"].as_array().unwrap().len()),
            (200, count),
            "{query}"
        );
    }
    let (code, status) = b
        .get(ask("GET", &format!("{ALL}?fieldSelector=spec.x%3D1")))
        .await;
    assert_eq!(
        (code, &status["message"]),
        (400, &json!("field label not supported: spec.x"))
    );
}

#[tokio::test]
async fn tables_and_metadata_are_answered_as_asked() {
    let b = bench().await;
    b.create("a").await;
    let (_, table) = b.get(ask("GET", ALL).accept(TABLE)).await;
    assert_eq!(
        (&table["kind"], &table["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["rows"][0]["cells"], json!(["a", 1]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let (_, none) = b
        .get(ask("GET", &format!("{ALL}?includeObject=None")).accept(TABLE))
        .await;
    assert_eq!(none["rows"][0].get("object"), None);
    let beta = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
    let (_, one) = b.get(ask("GET", &named("a")).accept(beta)).await;
    assert_eq!(
        (&one["apiVersion"], one["rows"].as_array().unwrap().len()),
        (&json!("meta.k8s.io/v1beta1"), 1)
    );
    let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let (_, list) = b.get(ask("GET", ALL).accept(metadata)).await;
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0].get("spec"), None);
    assert_eq!(b.get(ask("GET", &named("a")).accept(metadata)).await.0, 406);
    assert_eq!(b.get(ask("GET", ALL).accept("text/html")).await.0, 406);
}

#[tokio::test]
async fn yaml_comes_back_as_yaml() {
    let b = bench().await;
    b.create("a").await;
    for uri in [named("a"), ALL.to_owned(), named("missing")] {
        let response = b.send(ask("GET", &uri).accept("application/yaml")).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/yaml");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(parse_yaml(&bytes).unwrap().value["kind"].is_string());
    }
}
