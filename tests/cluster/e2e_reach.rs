//! Bytes, HTTP and an SSH terminal into a real guest, through kube-apiserver as an ordinary user.

use anyhow::{Context as _, Result, ensure};
use kubeworkspaces_tests::{
    desk::{Desk, PATIENCE, USER, greeted},
    stream::{End, open},
};
use ring::digest::{self, SHA256};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

/// Until the guest's SSH server answers.
async fn ssh_answers(desk: &Desk) -> Result<()> {
    let (_forward, address) = desk.forward(":22").await?;
    greeted(&address, b"SSH-2.0").await
}

/// Starts the guest's web server on its declared port.
async fn serve_web(desk: &Desk) -> Result<()> {
    let start = "guest-web 8080 </dev/null >/dev/null 2>&1 &";
    desk.well(&["ssh", "demo", "--", start]).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn http_and_websockets_pass_through_the_proxy_to_a_real_guest() -> Result<()> {
    let desk = Desk::new().await?;
    ssh_answers(&desk).await?;
    serve_web(&desk).await?;
    let client = desk.place.cluster.client_as(USER, &[])?;
    let path = |rest: &str| desk.place.path("demo", "proxy/") + rest;
    let ask = async |request: http::request::Builder, body: &str| {
        let request = request.body(body.as_bytes().to_vec())?;
        anyhow::Ok(client.request_text(request).await?)
    };

    let get = |rest| http::Request::get(path(rest)).header("x-mine", "kept");
    let asked = async {
        loop {
            // The server in the guest may not listen yet.
            match ask(get("request?q=1"), "").await {
                Ok(said) => return said,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
            }
        }
    };
    let said = tokio::time::timeout(PATIENCE, asked).await?;
    let said: serde_json::Value = serde_json::from_str(&said)?;
    assert_eq!(said["target"], "/request?q=1", "{said}");
    let headers = said["headers"].to_string().to_ascii_lowercase();
    ensure!(headers.contains("x-mine"), "{headers}");
    for secret in ["authorization", "x-remote-", "impersonate-"] {
        ensure!(!headers.contains(secret), "{secret} in {headers}");
    }
    let post = http::Request::post(path("echo"));
    assert_eq!(ask(post, "there and back").await?, "there and back");

    let mut socket = open(&client, &path("ws"), &[]).await?.stream()?;
    socket.write("across the guest's WebSocket").await?;
    socket.expect("across the guest's WebSocket", 30).await?;
    socket.close().await?;
    desk.place.no_sessions(30).await?;
    desk.place.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_in_a_real_guest_has_its_size_and_exit_status() -> Result<()> {
    let desk = Desk::new().await?;
    ssh_answers(&desk).await?;
    let mut keygen = Command::new("ssh-keygen");
    desk.surround(&mut keygen);
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", "key"]);
    ensure!(keygen.status().await?.success(), "ssh-keygen failed");
    let public = std::fs::read_to_string(desk.file("key.pub"))?;
    let allow = format!(
        "umask 77; mkdir -p .ssh; echo '{}' > .ssh/authorized_keys",
        public.trim()
    );
    desk.well(&["ssh", "demo", "--", &allow]).await?;

    let client = desk.place.cluster.client_as(USER, &[])?;
    let path = desk.place.path("demo", "ssh") + "?mode=terminal";
    let mut terminal = open(&client, &path, &[]).await?.stream()?;
    let key = std::fs::read_to_string(desk.file("key"))?;
    let hello = json!({"type": "ssh", "user": "guest", "privateKey": key, "cols": 90, "rows": 30});
    terminal.write_text(hello.to_string()).await?;
    terminal.write("stty size\n").await?;
    terminal.expect("30 90", 60).await?;
    let resize = json!({"type": "resize", "cols": 132, "rows": 43});
    terminal.write_text(resize.to_string()).await?;
    terminal
        .write(
            "while [ \"$(stty size)\" != '43 132' ]; do sleep 0.1; done; echo resi''zed; exit 7\n",
        )
        .await?;
    terminal.expect("resized", 60).await?;
    let end = terminal.end(30).await?;
    ensure!(matches!(end, End::Closed(1000, _)), "{end:?}");
    let said = String::from_utf8_lossy(&terminal.seen).into_owned();
    let last = said.lines().last().unwrap_or_default();
    let last: serde_json::Value = serde_json::from_str(last).context(said.clone())?;
    assert_eq!(last, json!({"type": "exit", "code": 7}));
    desk.place.no_sessions(30).await?;
    desk.place.end().await
}

/// How many bytes pass each way: a gibibyte at full size.
fn volume() -> usize {
    if std::env::var_os("KUBEWORKSPACES_LONG").is_some() {
        1 << 30
    } else {
        1 << 26
    }
}

/// A mebibyte that compresses badly, over and over.
fn pattern() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..1 << 17).flat_map(|_| next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn as_much_as_is_sent_through_a_port_comes_back_the_same() -> Result<()> {
    let desk = Desk::new().await?;
    ssh_answers(&desk).await?;
    desk.well(&[
        "ssh",
        "demo",
        "--",
        "guest-web 8080 </dev/null >/dev/null 2>&1 &",
    ])
    .await?;
    let (_forward, address) = desk.forward(":8080").await?;
    let (mut from, mut to) = loop {
        let connection = TcpStream::connect(&address).await?;
        let (from, mut to) = connection.into_split();
        to.write_all(b"GET /status?code=204 HTTP/1.1\r\nhost: guest\r\n\r\n")
            .await?;
        let mut from = BufReader::new(from);
        // The server in the guest may not listen yet.
        if head(&mut from).await.is_ok_and(|h| h.contains("204")) {
            break (from, to);
        }
    };
    let sent = tokio::spawn(async move {
        let (pattern, mut hash) = (pattern(), digest::Context::new(&SHA256));
        let head = format!(
            "POST /echo HTTP/1.1\r\nhost: guest\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            volume()
        );
        to.write_all(head.as_bytes()).await?;
        for _ in 0..volume() / pattern.len() {
            hash.update(&pattern);
            to.write_all(&pattern).await?;
        }
        anyhow::Ok((hash.finish(), to))
    });
    let answer = head(&mut from).await?;
    ensure!(answer.starts_with("http/1.1 200"), "{answer}");
    let (mut hash, mut count) = (digest::Context::new(&SHA256), 0);
    let mut body = Body::new(&answer)?;
    while let Some(part) = body.next(&mut from).await? {
        hash.update(&part);
        count += part.len();
    }
    let (sent, _to) = sent.await??;
    assert_eq!(count, volume());
    assert_eq!(hash.finish().as_ref(), sent.as_ref());
    desk.place.end().await
}

/// A head in small letters.
async fn head(from: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Result<String> {
    use tokio::io::AsyncBufReadExt as _;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(from.read_line(&mut head).await? > 0, "no head: {head:?}");
    }
    Ok(head.to_ascii_lowercase())
}

/// A body that is counted, or in chunks.
enum Body {
    Counted(usize),
    Chunks,
}

impl Body {
    fn new(head: &str) -> Result<Self> {
        let value = |name: &str| head.lines().find_map(|l| l.strip_prefix(name));
        match value("content-length: ") {
            Some(length) => Ok(Self::Counted(length.parse()?)),
            None => {
                let chunked = value("transfer-encoding: ");
                ensure!(chunked == Some("chunked"), "no body in {head}");
                Ok(Self::Chunks)
            }
        }
    }

    async fn next(
        &mut self,
        from: &mut (impl tokio::io::AsyncBufRead + Unpin),
    ) -> Result<Option<Vec<u8>>> {
        use tokio::io::AsyncBufReadExt as _;
        match self {
            Self::Counted(0) => Ok(None),
            Self::Counted(rest) => {
                let mut part = vec![0; (*rest).min(1 << 16)];
                let count = from.read(&mut part).await?;
                ensure!(count > 0, "cut with {rest} bytes missing");
                part.truncate(count);
                *rest -= count;
                Ok(Some(part))
            }
            Self::Chunks => {
                let mut line = String::new();
                from.read_line(&mut line).await?;
                let length = usize::from_str_radix(line.trim(), 16).context(line)?;
                let mut part = vec![0; length + 2];
                from.read_exact(&mut part).await?;
                part.truncate(length);
                Ok((length > 0).then_some(part))
            }
        }
    }
}
