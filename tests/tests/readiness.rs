//! When a server says that it is ready: a valid certificate, a stored schema that keeps what it
//! writes; and that it comes back.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use apiservice::resources;
use certs::issue::Authority;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kubeworkspaces_tests::{deployment::Deployment, direct, manifests};
use serde_json::{Value, json};

/// Writes a pair that is valid from five minutes before `from`, for so long.
fn write_pair(dir: &Path, from: Timestamp, valid: SignedDuration) -> Result<()> {
    let ca = Authority::generate("test", Timestamp::now(), SignedDuration::from_hours(1))?;
    let names = ["localhost".to_owned()];
    let pair = Authority::load(&ca)?.issue_serving(&names, from, valid)?;
    // The key first: a pair that does not work is left aside until both are there.
    std::fs::write(dir.join("tls.key"), pair.key)?;
    std::fs::write(dir.join("tls.crt"), pair.certificate)?;
    Ok(())
}

/// `/readyz` of a server, asked until it says these words under this code.
async fn says(deployment: &Deployment, server: usize, code: u16, words: &str) -> Result<String> {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let said = direct::unverified(deployment, server, Request::get("/readyz?verbose")).await;
        match said {
            Ok((is, text)) if is == code && text.contains(words) => return Ok(text),
            said if std::time::Instant::now() > end => {
                bail!(
                    "never {code} {words:?}; at last: {said:?}\n{}",
                    deployment.tail()
                )
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_not_ready_and_a_new_one_is() -> Result<()> {
    let mut deployment = Deployment::start().await?;
    let dir = tempfile::tempdir()?;
    let now = Timestamp::now();
    let short = SignedDuration::from_secs(8);
    write_pair(dir.path(), now, short)?;
    let file = |name: &str| dir.path().join(name).display().to_string();
    let flags = [
        "--certificates=files".to_owned(),
        "--register=false".to_owned(),
        format!("--tls-cert-file={}", file("tls.crt")),
        format!("--tls-private-key-file={}", file("tls.key")),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = deployment.add_server(&flags)?;
    says(&deployment, server, 200, "[+]serving-certificate ok").await?;
    says(
        &deployment,
        server,
        500,
        "[-]serving-certificate failed: the serving certificate expired at",
    )
    .await?;

    let future = now + SignedDuration::from_hours(24);
    write_pair(dir.path(), future, SignedDuration::from_hours(1))?;
    says(
        &deployment,
        server,
        500,
        "the serving certificate is not valid before",
    )
    .await?;

    write_pair(dir.path(), Timestamp::now(), SignedDuration::from_hours(1))?;
    says(&deployment, server, 200, "[+]serving-certificate ok").await?;
    Ok(())
}

/// The definitions as an older release had them: without fences.
fn older(mut definition: Value) -> Value {
    let fields = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties");
    if let Some(Value::Object(fields)) = fields {
        fields.remove("fence");
    }
    definition
}

async fn apply(deployment: &Deployment, definitions: &[Value]) -> Result<()> {
    for definition in definitions {
        deployment.apply(&definition.to_string()).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_beside_older_stored_kinds_says_so_until_they_are_as_new_as_it_is() -> Result<()> {
    let mut deployment = Deployment::start().await?;
    let definitions = manifests::custom_resource_definitions();
    assert_eq!(definitions.len(), resources::all().len());
    let old: Vec<Value> = definitions.iter().cloned().map(older).collect();
    apply(&deployment, &old).await?;

    let server = deployment.add_server(&["--controller=false"])?;
    let said = says(
        &deployment,
        server,
        500,
        "stored schema older than this server",
    )
    .await?;
    let line = said.lines().find(|line| line.contains("stored-schema"));
    let line = line.context("the check is named")?;
    assert!(line.contains("storedimages"), "{line}");
    assert!(
        !line.contains("system:serviceaccount"),
        "it is for everybody: {line}"
    );
    // The server that was ready before stays so: manifests may be applied before their server.
    says(&deployment, 0, 200, "[+]stored-schema ok").await?;

    apply(&deployment, &definitions).await?;
    says(&deployment, server, 200, "[+]stored-schema ok").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_its_stored_kinds_or_beside_newer_ones_says_which() -> Result<()> {
    let mut deployment = Deployment::start().await?;
    let definitions = manifests::custom_resource_definitions();
    let images = definitions
        .iter()
        .find(|d| d["spec"]["names"]["plural"] == "storedimages")
        .context("no definition of images")?;
    let name = images["metadata"]["name"].as_str().unwrap_or_default();
    deployment.kubectl(&["delete", "crd", name]).await?;
    let server = deployment.add_server(&["--controller=false"])?;
    says(
        &deployment,
        server,
        500,
        "storedimages of storage.kubeworkspaces.io/v1 is not served",
    )
    .await?;

    // One that asks for more than this server writes.
    let mut newer = images.clone();
    newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["required"] = json!(["sealed"]);
    newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["sealed"] =
        json!({"type": "string"});
    apply(&deployment, &[newer]).await?;
    says(
        &deployment,
        server,
        500,
        "stored schema newer than this server",
    )
    .await?;
    apply(&deployment, std::slice::from_ref(images)).await?;
    says(&deployment, server, 200, "[+]stored-schema ok").await?;
    Ok(())
}
