//! `workspaces/proxy` through a real kube-apiserver, and straight to our port, over an app on a port of a machine without
//! a guest: what kube-apiserver keeps of a request, an answer, a redirect, a page, a WebSocket.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use kubeworkspaces_tests::{
    deployment::Deployment,
    fixtures::workspace,
    machines::Machines,
    stream::{End, Opened, open},
    web_app::{App, PAGE, checksum, pattern},
};
use serde_json::{Value, json};

const PREFIX: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspaces/w/proxy";
const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml");

/// A deployment with one machine whose port 8080 is an app, and `jane`, who may edit.
struct Desk {
    deployment: Deployment,
    machines: Machines,
    app: App,
    jane: Client,
}

/// An answer as a whole.
struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("{} {}", self.code, self.text()))
    }

    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).map(|value| value.to_str());
        value.and_then(std::result::Result::ok).unwrap_or_default()
    }
}

impl Desk {
    async fn new() -> Result<Self> {
        let deployment = Deployment::start().await?;
        let machines = Machines::start(deployment.plane()).await?;
        let app = App::start().await?;
        machines.serve(8080, app.address());
        deployment.apply(&workspace("w", "vm")).await?;
        let running = machines.running("default", "w").await;
        running.with_context(|| deployment.tail())?;
        bind(&deployment, "jane", "edit").await?;
        let jane = deployment.plane().client_as("jane", &[])?;
        let desk = Self {
            deployment,
            machines,
            app,
            jane,
        };
        desk.allowed().await?;
        Ok(desk)
    }

    /// Waits until the roles that are aggregated by a controller have arrived.
    async fn allowed(&self) -> Result<()> {
        for _ in 0..200 {
            let answer = self.ask("DELETE", "/echo", &[], Vec::new()).await?;
            if answer.code != StatusCode::FORBIDDEN {
                ensure!(answer.code == StatusCode::OK, "{}", answer.text());
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("it stays forbidden")
    }

    /// Through kube-apiserver.
    async fn ask(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Answer> {
        ask(
            &self.jane,
            method,
            &format!("{PREFIX}{target}"),
            headers,
            body,
        )
        .await
    }

    async fn get(&self, target: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        self.ask("GET", target, headers, Vec::new()).await
    }

    /// Straight to our port, with this token.
    async fn straight(&self, target: &str, token: &str) -> Result<Answer> {
        let port = self.deployment.server(0).port;
        let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse()?);
        config.accept_invalid_certs = true;
        let client = Client::try_from(config)?;
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), BROWSER];
        ask(
            &client,
            "GET",
            &format!("{PREFIX}{target}"),
            &headers,
            Vec::new(),
        )
        .await
    }

    /// A token of a new ServiceAccount that may edit.
    async fn token(&self, name: &str) -> Result<String> {
        let deployment = &self.deployment;
        deployment
            .kubectl(&["create", "serviceaccount", name])
            .await?;
        let account = format!("--serviceaccount=default:{name}");
        let bind = [
            "create",
            "rolebinding",
            name,
            "--clusterrole=edit",
            &account,
        ];
        deployment.kubectl(&bind).await?;
        let token = deployment.kubectl(&["create", "token", name]).await?;
        Ok(token.trim().to_owned())
    }
}

async fn bind(deployment: &Deployment, user: &str, role: &str) -> Result<()> {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": user, "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    deployment.apply(&binding.to_string()).await?;
    Ok(())
}

async fn ask(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<Answer> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = client.send(request.body(Body::from(body))?).await?;
    let (head, body) = response.into_parts();
    Ok(Answer {
        code: head.status,
        headers: head.headers,
        body: body.collect().await?.to_bytes().to_vec(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn s_21_what_kube_apiserver_keeps_and_what_is_kept_without_it() -> Result<()> {
    let desk = Desk::new().await?;
    let token = desk.token("page").await?;
    for (asked, through, straight) in [
        ("", "/", "/"),
        ("/", "/", "/"),
        ("/echo/b/", "/echo/b/", "/echo/b/"),
        ("/echo/a%2Fb", "/echo/a/b", "/echo/a%2Fb"),
        ("/echo//x", "/echo//x", "/echo//x"),
        ("/echo/%C3%A4", "/echo/%C3%A4", "/echo/%C3%A4"),
        (
            "/echo?q=2&q=1%20x&a=~",
            "/echo?a=~&q=2&q=1+x",
            "/echo?q=2&q=1%20x&a=~",
        ),
        ("/echo?a=1;b=2&c", "/echo?c=", "/echo?a=1;b=2&c"),
    ] {
        let target = desk.get(asked, &[]).await?.json()?;
        assert_eq!(target["target"], through, "{asked}");
        let target = desk.straight(asked, &token).await?.json()?;
        assert_eq!(target["target"], straight, "{asked}");
    }
    let climbs = desk.straight("/a/%2e%2e/x", &token).await?;
    assert_eq!(climbs.code, StatusCode::BAD_REQUEST, "{}", climbs.text());

    let said = desk
        .get("/echo", &[("cookie", "token=secret")])
        .await?
        .json()?;
    let headers = said["headers"].as_object().context("no headers")?;
    let names: Vec<_> = headers.keys().map(String::as_str).collect();
    for name in &names {
        let secret = ["authorization", "cookie", "audit-id"].contains(name);
        ensure!(!secret && !name.starts_with("x-remote-"), "{said}");
    }
    assert_eq!(headers["x-forwarded-prefix"], PREFIX);
    assert_eq!(headers["host"], "localhost:8080");
    ensure!(!names.contains(&"x-forwarded-host"), "{said}");
    ensure!(!names.contains(&"x-forwarded-uri"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s_21_redirects_and_pages_lead_where_a_browser_can_follow() -> Result<()> {
    let desk = Desk::new().await?;
    let token = desk.token("page").await?;
    for (to, leads) in [
        ("/login", format!("{PREFIX}/login")),
        ("http://localhost:8080/x", format!("{PREFIX}/x")),
        ("https://example.org/", "https://example.org/".to_owned()),
    ] {
        let target = format!("/redirect?to={to}");
        let page = desk.get(&target, &[BROWSER]).await?;
        assert_eq!(page.code, StatusCode::OK, "{to}: {}", page.text());
        ensure!(
            page.text().contains(&format!("href=\"{leads}\"")),
            "{}",
            page.text()
        );
        let error = desk.get(&target, &[("accept", "*/*")]).await?;
        assert_eq!(error.code, StatusCode::BAD_GATEWAY, "{to}");
        assert_eq!(error.header("x-kubeworkspaces-location"), leads);
        assert_eq!(error.json()?["reason"], "BadGateway");
        let straight = desk.straight(&target, &token).await?;
        assert_eq!(straight.code, StatusCode::FOUND, "{to}");
        assert_eq!(straight.header("location"), leads);
    }
    let through = desk.get("/page", &[]).await?;
    assert_eq!(through.header("content-type"), "Text/HTML; charset=utf-8");
    let rewritten = PAGE.replace("href=\"/", &format!("href=\"{PREFIX}/"));
    assert_eq!(through.text(), rewritten);
    assert_eq!(desk.get("/text", &[]).await?.text(), PAGE);
    let straight = desk.straight("/page", &token).await?;
    assert_eq!(straight.text(), PAGE, "byte for byte");
    let policy = "sandbox allow-scripts allow-forms allow-popups";
    for answer in [through, straight] {
        assert_eq!(answer.header("content-security-policy"), policy);
    }

    let set = desk.get("/redirect?to=/", &[BROWSER]).await?;
    let cookie = set.header("set-cookie").to_owned();
    ensure!(
        cookie.ends_with(&format!("; HttpOnly; Path={PREFIX}/")),
        "{cookie}"
    );
    let own = cookie.split(';').next().unwrap_or_default();
    let back = desk.get("/echo", &[("cookie", own)]).await?.json()?;
    assert_eq!(back["headers"]["cookie"], "sid=1");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s_21_bodies_of_64_mib_pass_each_way_and_events_one_by_one() -> Result<()> {
    const LENGTH: usize = 64 << 20;
    let desk = Desk::new().await?;
    let sent = pattern(LENGTH);
    let sum = checksum([sent.as_slice()]);
    let got = desk.ask("PUT", "/echo", &[], sent).await?.json()?;
    assert_eq!(got["method"], "PUT");
    assert_eq!(
        (&got["length"], &got["checksum"]),
        (&json!(LENGTH), &json!(sum))
    );
    let got = desk.get(&format!("/bytes/{LENGTH}"), &[]).await?;
    assert_eq!(
        (got.body.len(), checksum([got.body.as_slice()])),
        (LENGTH, sum)
    );
    let head = desk.ask("HEAD", "/page", &[], Vec::new()).await?;
    assert_eq!((head.code, head.body.len()), (StatusCode::OK, 0));

    let request = Request::get(format!("{PREFIX}/events/3")).body(Body::empty())?;
    let mut events = desk.jane.send(request).await?;
    assert_eq!(events.headers()[header::CONTENT_TYPE], "text/event-stream");
    for n in 0..3 {
        desk.app.tick();
        let frame = tokio::time::timeout(Duration::from_secs(20), events.body_mut().frame());
        let frame = frame.await?.context("it ended")??;
        let data = frame.into_data().map_err(|_| anyhow::anyhow!("no data"))?;
        assert_eq!(data, format!("data: {n}\n\n").as_bytes());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn s_21_a_browser_opens_a_websocket_with_its_token_as_a_subprotocol() -> Result<()> {
    let desk = Desk::new().await?;
    let token = desk.token("page").await?;
    let item = format!(
        "base64url.bearer.authorization.k8s.io.{}",
        URL_SAFE_NO_PAD.encode(&token)
    );
    let page = desk.deployment.plane().client_anonymous()?;
    let path = format!("{PREFIX}/ws");
    for _ in 0..200 {
        let opened = open(&page, &path, &[&item, "chat"]).await?;
        let (mut socket, chosen) = match opened {
            Opened::Stream(socket, chosen) => (socket, chosen),
            Opened::Refused(StatusCode::FORBIDDEN, _) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            Opened::Refused(code, body) => bail!("{code}: {body}"),
        };
        assert_eq!(chosen.as_deref(), Some("chat"));
        let handshake = socket.expect("}}", 20).await?;
        ensure!(!handshake.contains(&token), "the app has the token");
        ensure!(!handshake.contains("base64url"), "{handshake}");
        ensure!(
            handshake.contains("\"sec-websocket-protocol\":\"chat\""),
            "{handshake}"
        );
        socket.write("hello").await?;
        socket.expect("hello", 20).await?;
        socket.close().await?;
        return Ok(());
    }
    bail!("it stays forbidden")
}

#[tokio::test(flavor = "multi_thread")]
async fn long_requests_are_seen_and_end_with_their_right_or_their_workspace() -> Result<()> {
    let desk = Desk::new().await?;
    let path = format!("{PREFIX}/ws");
    let mut socket = open(&desk.jane, &path, &[]).await?.stream()?;
    socket.expect("}}", 20).await?;
    let request = Request::get(format!("{PREFIX}/events/1000")).body(Body::empty())?;
    let events = desk.jane.send(request).await?;
    let shown = sessions(&desk, |list| !list.is_empty()).await?;
    assert_eq!(shown.len(), 1, "one object for both: {shown:?}");
    let (spec, status) = (&shown[0]["spec"], &shown[0]["status"]);
    assert_eq!(
        (
            &spec["mode"],
            &spec["port"],
            &spec["user"],
            &status["streams"]
        ),
        (&json!("proxy"), &json!(8080), &json!("jane"), &json!(2))
    );

    desk.deployment
        .kubectl(&["delete", "rolebinding", "jane"])
        .await?;
    assert_eq!(socket.end(30).await?, End::Cut);
    let rest = tokio::time::timeout(Duration::from_secs(30), events.into_body().collect());
    ensure!(rest.await?.is_err(), "it does not look whole");
    sessions(&desk, <[Value]>::is_empty).await?;

    bind(&desk.deployment, "jane", "edit").await?;
    desk.allowed().await?;
    let mut socket = open(&desk.jane, &path, &[]).await?.stream()?;
    socket.expect("}}", 20).await?;
    desk.machines.end_guest("default", "w").await?;
    assert_eq!(socket.end(20).await?, End::Cut);
    let audit = std::fs::read_to_string(&desk.deployment.server(0).audit_log)?;
    let ended = audit.lines().filter(|line| line.contains("/proxy/ws"));
    let ended = ended.filter(|line| line.contains("streams.kubeworkspaces.io/end"));
    ensure!(ended.count() >= 1, "no event tells how it ended");
    Ok(())
}

/// The sessions, once they are as wanted.
async fn sessions(desk: &Desk, wanted: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
    let path = "/apis/kubeworkspaces.io/v1alpha1/namespaces/default/workspacesessions";
    let admin = desk.deployment.client()?;
    for _ in 0..300 {
        let list = ask(&admin, "GET", path, &[], Vec::new()).await?.json()?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        if wanted(&items) {
            return Ok(items);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the sessions do not become what is wanted")
}
