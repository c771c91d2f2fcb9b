//! Who may do what, as RBAC says, and what the audit logs say about it.

use anyhow::{Context as _, Result};
use http::{Request, StatusCode};
use kube::Client;
use kubeworkspaces_tests::{
    deployment::Deployment,
    direct::direct,
    fixtures::{eventually, workspace},
};
use serde_json::{Value, json};

const CONSOLE: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces/w/console";
const WORKSPACES: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces";

/// A Role and its binding for one user.
async fn grant(deployment: &Deployment, user: &str, rules: Value) -> Result<()> {
    let metadata = json!({"name": user, "namespace": "default"});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    deployment.apply(&format!("{role}\n---\n{binding}")).await?;
    Ok(())
}

/// The answer's code and body.
async fn ask(client: &Client, path: &str, upgrade: bool) -> Result<(StatusCode, Value)> {
    let mut request = Request::get(path);
    if upgrade {
        request = request
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    }
    let response = client
        .send(request.body(kube::client::Body::empty())?)
        .await?;
    let code = response.status();
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await?
        .to_bytes();
    Ok((code, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_workspaces_and_opens_no_console() -> Result<()> {
    let deployment = Deployment::start().await?;
    deployment.apply(&workspace("w", "vm")).await?;
    let read = json!({"apiGroups": ["kubeworkspaces.io"], "resources": ["workspaces"], "verbs": ["get", "list", "watch"]});
    let console = |verbs: &[&str]| json!({"apiGroups": ["kubeworkspaces.io"], "resources": ["workspaces/console"], "verbs": verbs});
    grant(&deployment, "reader", json!([read])).await?;
    grant(&deployment, "looker", json!([read, console(&["get"])])).await?;
    grant(
        &deployment,
        "opener",
        json!([read, console(&["get", "create"])]),
    )
    .await?;

    let reader = deployment.plane().client_as("reader", &[])?;
    assert_eq!(ask(&reader, WORKSPACES, false).await?.0, StatusCode::OK);
    for upgrade in [false, true] {
        let (code, status) = ask(&reader, CONSOLE, upgrade).await?;
        assert_eq!(code, StatusCode::FORBIDDEN, "{status}");
        assert!(
            status["message"]
                .as_str()
                .unwrap_or_default()
                .contains("cannot get resource \"workspaces/console\"")
        );
    }

    let looker = deployment.plane().client_as("looker", &[])?;
    let (code, session) = ask(&looker, CONSOLE, false).await?;
    assert_eq!(
        (code, &session["status"]["inUse"]),
        (StatusCode::OK, &json!(false)),
        "{session}"
    );
    let (code, status) = ask(&looker, CONSOLE, true).await?;
    assert_eq!(code, StatusCode::FORBIDDEN, "{status}");
    assert!(
        status["message"]
            .as_str()
            .unwrap_or_default()
            .contains("cannot create resource \"workspaces/console\"")
    );

    // The opener passes authorization: there is no machine, which is said as such.
    let opener = deployment.plane().client_as("opener", &[])?;
    let (code, status) = ask(&opener, CONSOLE, true).await?;
    assert!(
        code.is_client_error() && code != StatusCode::FORBIDDEN,
        "{code} {status} {}",
        deployment.tail()
    );
    assert_eq!(status["kind"], "Status", "{status}");

    let nobody = deployment.plane().client_as("nobody", &[])?;
    assert_eq!(
        ask(&nobody, WORKSPACES, false).await?.0,
        StatusCode::FORBIDDEN
    );
    let missing = CONSOLE.replace("/w/", "/does-not-exist/");
    assert_eq!(
        ask(&nobody, &missing, true).await?.0,
        StatusCode::FORBIDDEN,
        "who may not look learns nothing"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn x01_forged_identity_headers_without_the_front_proxys_certificate_are_anonymous()
-> Result<()> {
    let deployment = Deployment::start().await?;
    let forged = |path: &str| {
        Request::get(path)
            .header("X-Remote-User", "admin")
            .header("X-Remote-Group", "system:masters")
            .header("X-Remote-Extra-Scopes", "all")
    };
    let (code, status) = direct(&deployment, None, forged(WORKSPACES)).await?;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("User \"system:anonymous\" cannot list resource \"workspaces\""),
        "{message}"
    );

    // The same headers with the front proxy's certificate are believed.
    let (cert, key) = deployment.plane().front_proxy_client();
    let (code, list) = direct(&deployment, Some((&cert, &key)), forged(WORKSPACES)).await?;
    assert_eq!(
        (code, &list["kind"]),
        (StatusCode::OK, &json!("WorkspaceList")),
        "{list}"
    );

    // A client certificate of the cluster's own CA is judged as that user, whatever the headers say.
    let (cert, key) = administrator(&deployment)?;
    let as_nobody = Request::get(WORKSPACES).header("X-Remote-User", "nobody");
    assert_eq!(
        direct(&deployment, Some((&cert, &key)), as_nobody).await?.0,
        StatusCode::OK
    );

    let bad_token = Request::get(WORKSPACES).header("Authorization", "Bearer nonsense");
    assert_eq!(
        direct(&deployment, None, bad_token).await?.0,
        StatusCode::UNAUTHORIZED
    );
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(
            direct(&deployment, None, Request::get(path)).await?.0,
            StatusCode::OK,
            "{path}"
        );
    }
    assert_eq!(
        direct(&deployment, None, Request::get("/metrics")).await?.0,
        StatusCode::FORBIDDEN
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_every_right_in_a_namespace_cannot_write_stored_objects() -> Result<()> {
    let deployment = Deployment::start().await?;
    deployment.apply(&workspace("w", "vm")).await?;
    grant(
        &deployment,
        "tenant",
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
    )
    .await?;
    let kubeconfig = deployment.plane().kubeconfig_as("tenant", &[])?;
    let tenant = deployment
        .plane()
        .kubectl_program()
        .with_kubeconfig(&kubeconfig);
    let stored = "storedworkspaces.storage.kubeworkspaces.io";
    assert!(
        tenant.run(["get", stored, "w"]).await?.contains('w'),
        "reading them is the tenant's right"
    );

    let evil = "apiVersion: storage.kubeworkspaces.io/v1\nkind: StoredWorkspace\nmetadata: {name: evil}\nobject: {}\n";
    let file = deployment.plane().dir().join("evil.yaml");
    std::fs::write(&file, evil)?;
    let file = file.to_string_lossy().into_owned();
    let patch = r#"{"object":{"spec":{"type":"container"}}}"#;
    let attempts: [&[&str]; 5] = [
        &["create", "-f", &file],
        &["apply", "--server-side", "-f", &file],
        &["patch", stored, "w", "--type=merge", "-p", patch],
        &["delete", stored, "w"],
        &["delete", stored, "--all"],
    ];
    for attempt in attempts {
        let error = tenant.run(attempt).await.unwrap_err().to_string();
        assert!(
            error.contains("written by the workspaces API server only"),
            "{attempt:?}: {error}"
        );
    }
    assert!(
        tenant
            .run(["get", "ws", "w", "-o", "jsonpath={.spec.type}"])
            .await?
            .contains("vm")
    );
    // Breaking the glass is possible, by name.
    let admins = [
        "--as=somebody",
        "--as-group=kubeworkspaces:storage-admins",
        "--as-group=system:masters",
    ];
    let broken = [
        &["annotate", stored, "w", "-n", "default", "glass=broken"][..],
        &admins,
    ]
    .concat();
    assert!(deployment.kubectl(&broken).await?.contains("annotated"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_audit_logs_name_the_same_user_with_the_same_id() -> Result<()> {
    let deployment = Deployment::start().await?;
    grant(&deployment, "jane", json!([{"apiGroups": ["kubeworkspaces.io"], "resources": ["workspaces"], "verbs": ["create", "get"]}])).await?;
    let kubeconfig = deployment.plane().kubeconfig_as("jane", &["devs"])?;
    let jane = deployment
        .plane()
        .kubectl_program()
        .with_kubeconfig(&kubeconfig);
    let file = deployment.plane().dir().join("audited.yaml");
    std::fs::write(&file, workspace("audited", "vm"))?;
    jane.run(["create", "-f", &file.to_string_lossy()]).await?;

    let created = |event: &Value| {
        event["verb"] == "create"
            && event["objectRef"]["resource"] == "workspaces"
            && event["stage"] == "ResponseComplete"
    };
    let ours = eventually("our audit event", || {
        events(&deployment.server(0).audit_log, created)
    })
    .await?;
    let theirs = eventually("kube-apiserver's audit event", || {
        events(deployment.plane().audit_log(), created)
    })
    .await?;
    assert_eq!(ours["auditID"], theirs["auditID"]);
    assert_eq!(ours["user"]["username"], "jane");
    assert_eq!(theirs["user"]["username"], "jane");
    assert_eq!(ours["level"], "Metadata");
    assert!(
        ours["user"]["groups"]
            .as_array()
            .context("groups")?
            .contains(&json!("devs"))
    );
    assert_eq!(
        ours["annotations"]["authorization.k8s.io/decision"],
        "allow"
    );

    // The stored write carries the same id.
    let id = ours["auditID"].clone();
    let stored = |event: &Value| {
        event["objectRef"]["resource"] == "storedworkspaces"
            && event["verb"] == "create"
            && event["auditID"] == id
    };
    eventually("the stored write", || {
        events(deployment.plane().audit_log(), stored)
    })
    .await?;
    Ok(())
}

/// The administrator's client certificate and key, which the kubeconfig embeds, as files.
fn administrator(deployment: &Deployment) -> Result<(std::path::PathBuf, std::path::PathBuf)> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let config: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(deployment.plane().kubeconfig())?)?;
    let user = &config["users"][0]["user"];
    let write = |key: &str, name: &str| -> Result<std::path::PathBuf> {
        let data = user[key]
            .as_str()
            .with_context(|| format!("the kubeconfig has no {key}"))?;
        let path = deployment.plane().dir().join(name);
        std::fs::write(&path, STANDARD.decode(data)?)?;
        Ok(path)
    };
    Ok((
        write("client-certificate-data", "admin.crt")?,
        write("client-key-data", "admin.key")?,
    ))
}

/// The first event of a log that is meant.
fn events(log: &std::path::Path, meant: impl Fn(&Value) -> bool) -> Option<Value> {
    let text = std::fs::read_to_string(log).ok()?;
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|event| meant(event))
}
