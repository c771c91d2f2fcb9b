//! Streams of machines through a real kube-apiserver; the machines are guestless ones of localvirt.

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kubeworkspaces_tests::{
    deployment::Deployment,
    fixtures::workspace,
    machines::{GREETING, Machines},
    stream::{End, Opened, Stream, open},
};
use serde_json::{Value, json};

const BASE: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces/w";
const DISPLAY: &str =
    "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/w/vnc";
const RFB: &str = "RFB 003.008\n";
const TUNNEL: &str = "v1.tunnel.kubeworkspaces.io";
/// Everything that upgrades.
const STREAMS: [&str; 4] = ["console", "vnc", "ssh?mode=tunnel", "portforward/8080"];

/// A deployment with one machine that runs.
async fn running() -> Result<(Deployment, Machines)> {
    let deployment = Deployment::start().await?;
    let machines = Machines::start(deployment.plane()).await?;
    deployment.apply(&workspace("w", "vm")).await?;
    machines
        .running("default", "w")
        .await
        .with_context(|| deployment.tail())?;
    Ok((deployment, machines))
}

/// Somebody with the role `edit`, as users have it.
async fn editor(deployment: &Deployment, user: &str) -> Result<Client> {
    bind(deployment, user, "edit").await?;
    deployment.plane().client_as(user, &[]).map_err(Into::into)
}

async fn bind(deployment: &Deployment, user: &str, role: &str) -> Result<()> {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": user, "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    deployment.apply(&binding.to_string()).await?;
    Ok(())
}

/// Opens once the roles that are aggregated by a controller have arrived.
async fn allowed(client: &Client, path: &str, protocols: &[&str]) -> Result<Opened> {
    for _ in 0..200 {
        match open(client, path, protocols).await? {
            Opened::Refused(StatusCode::FORBIDDEN, _) => {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            opened => return Ok(opened),
        }
    }
    bail!("{path} stays forbidden")
}

async fn get(client: &Client, path: &str) -> Result<(StatusCode, Vec<u8>)> {
    let request = Request::get(path).body(kube::client::Body::empty())?;
    let response = client.send(request).await?;
    let code = response.status();
    Ok((
        code,
        response.into_body().collect().await?.to_bytes().to_vec(),
    ))
}

fn refused(opened: Opened) -> Result<(StatusCode, String)> {
    match opened {
        Opened::Refused(code, status) => {
            let message = status["message"].as_str().unwrap_or_default();
            Ok((code, message.to_owned()))
        }
        Opened::Stream(..) => bail!("it was opened"),
    }
}

async fn greeted(mut stream: Stream) -> Result<Stream> {
    stream.expect(RFB, 20).await?;
    Ok(stream)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_display_has_one_viewer_and_screenshots_do_not_disturb_it() -> Result<()> {
    let (deployment, machines) = running().await?;
    let jane = editor(&deployment, "jane").await?;
    let vnc = format!("{BASE}/vnc");
    let mut viewer = greeted(allowed(&jane, &vnc, &["binary"]).await?.stream()?).await?;

    let (code, png) = get(&jane, &format!("{BASE}/screenshot")).await?;
    assert_eq!(code, StatusCode::OK);
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "{} bytes", png.len());

    let joe = editor(&deployment, "joe").await?;
    let (code, message) = refused(allowed(&joe, &vnc, &["binary"]).await?)?;
    assert_eq!(code, StatusCode::CONFLICT);
    assert!(message.contains("held by user \"jane\""), "{message}");
    // The same user comes back at once: KubeVirt may not have noticed the end yet.
    viewer.close().await?;
    let mut viewer = greeted(open(&jane, &vnc, &["binary"]).await?.stream()?).await?;
    viewer.close().await?;
    let report = machines.checker().report(None);
    assert_eq!(report["verdict"], "pass", "{report}");

    // A viewer past us is kept, and taken over only when that is asked for.
    let admin = deployment.client()?;
    let mut outside = open(&admin, DISPLAY, &["plain.kubevirt.io"])
        .await?
        .stream()?;
    outside.expect(RFB, 20).await?;
    let (code, message) = refused(open(&jane, &vnc, &["binary"]).await?)?;
    assert_eq!(code, StatusCode::CONFLICT, "{message}");
    assert!(message.contains("held outside kubeworkspaces"), "{message}");
    let takeover = format!("{vnc}?takeover=true");
    let _taken = greeted(open(&admin, &takeover, &["binary"]).await?.stream()?).await?;
    assert_eq!(outside.end(10).await?, End::Cut);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_is_reached_through_kubevirt_where_the_pod_network_is_not() -> Result<()> {
    let (deployment, _machines) = running().await?;
    let jane = editor(&deployment, "jane").await?;
    let path = format!("{BASE}/portforward/8080");
    let mut forward = allowed(&jane, &path, &[TUNNEL]).await?.stream()?;
    forward.write("\0echo me").await?;
    forward.expect("\0echo me", 20).await?;
    forward.write("\u{1}").await?;
    let End::Closed(code, reason) = forward.end(10).await? else {
        bail!("it was cut")
    };
    assert_eq!(code, 1000, "{reason}");
    assert!(reason.contains("no half-close"), "{reason}");
    let (code, message) = refused(open(&jane, &format!("{BASE}/portforward/9"), &[]).await?)?;
    assert_eq!(code, StatusCode::FORBIDDEN, "{message}");
    assert!(message.contains("declared are 8080"), "{message}");
    let (code, list) = get(&jane, &format!("{BASE}/portforward")).await?;
    let list: Value = serde_json::from_slice(&list)?;
    assert_eq!(
        (code, &list["kind"]),
        (StatusCode::OK, &json!("WorkspaceSessionList"))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s_10_streams_of_a_machine_that_goes_away_say_why() -> Result<()> {
    let (deployment, machines) = running().await?;
    let jane = editor(&deployment, "jane").await?;
    let open_all = || async {
        let mut streams = Vec::new();
        for name in ["console", "vnc", "portforward/8080"] {
            let path = format!("{BASE}/{name}");
            streams.push((name, allowed(&jane, &path, &["binary"]).await?.stream()?));
        }
        anyhow::Ok(streams)
    };
    for (expected, word) in [(4005, "moved"), (4006, "guest is gone")] {
        let streams = open_all().await?;
        match expected {
            4005 => machines.migrate("default", "w").await?,
            _ => machines.end_guest("default", "w").await?,
        }
        for (name, mut stream) in streams {
            match stream.end(20).await? {
                End::Closed(code, reason) => {
                    assert_eq!(code, expected, "{name}: {reason}");
                    assert!(reason.contains(word), "{name}: {reason}");
                }
                End::Cut => bail!("{name} was cut"),
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s_06_a_browser_passes_its_token_as_a_subprotocol() -> Result<()> {
    let (deployment, _machines) = running().await?;
    deployment
        .kubectl(&["create", "serviceaccount", "page"])
        .await?;
    let bind = [
        "create",
        "rolebinding",
        "page",
        "--clusterrole=edit",
        "--serviceaccount=default:page",
    ];
    deployment.kubectl(&bind).await?;
    let token = deployment.kubectl(&["create", "token", "page"]).await?;
    let item = format!(
        "base64url.bearer.authorization.k8s.io.{}",
        URL_SAFE_NO_PAD.encode(token.trim())
    );
    let page = deployment.plane().client_anonymous()?;
    let path = format!("{BASE}/console");
    let opened = allowed(&page, &path, &[&item, "plain.kubevirt.io"]).await?;
    let Opened::Stream(mut stream, chosen) = opened else {
        bail!("{opened:?}")
    };
    assert_eq!(chosen.as_deref(), Some("plain.kubevirt.io"));
    stream.expect(GREETING, 20).await?;
    stream.write("hello\r").await?;
    stream.expect("hello", 20).await?;
    let (_, session) = get(&deployment.client()?, &path).await?;
    let session = String::from_utf8(session)?;
    assert!(
        session.contains("system:serviceaccount:default:page"),
        "{session}"
    );
    for secret in [token.trim(), item.as_str()] {
        assert!(!session.contains(secret) && !deployment.tail().contains(secret));
    }
    stream.close().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn x_02_through_kube_apiserver_reading_opens_nothing_and_creating_alone_neither() -> Result<()>
{
    let (deployment, _machines) = running().await?;
    for (user, verbs) in [
        ("reader", json!(["get", "list", "watch"])),
        ("creator", json!(["create"])),
        ("both", json!(["get", "create"])),
    ] {
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": user}, "rules": rules});
        deployment.apply(&role.to_string()).await?;
        bind(&deployment, user, user).await?;
        let client = deployment.plane().client_as(user, &[])?;
        for name in STREAMS {
            let path = format!("{BASE}/{name}");
            let opened = match user {
                "both" => allowed(&client, &path, &["binary"]).await?,
                _ => open(&client, &path, &["binary"]).await?,
            };
            match opened {
                Opened::Stream(mut stream, _) => {
                    assert_eq!(user, "both", "{name} was opened");
                    stream.close().await?;
                }
                // Nobody proves to be the SSH server of a machine without a guest.
                Opened::Refused(StatusCode::SERVICE_UNAVAILABLE, _)
                    if user == "both" && name.starts_with("ssh") => {}
                Opened::Refused(code, status) => {
                    assert!(user != "both", "{name}: {status}");
                    assert_eq!(code, StatusCode::FORBIDDEN, "{user} {name}: {status}");
                }
            }
        }
    }
    let reader = deployment.plane().client_as("reader", &[])?;
    for name in STREAMS {
        let (code, _) = get(&reader, &format!("{BASE}/{name}")).await?;
        assert_eq!(code, StatusCode::OK, "{name}");
    }
    Ok(())
}
