//! A client that speaks HTTP/2 and asks for an upgrade all the same, frame by frame (RFC 9113): no library
//! sends that.

use std::time::Duration;

use anyhow::{Result, ensure};
use kubeworkspaces_tests::{direct, scene::Scene, stream::open};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// END_STREAM and END_HEADERS.
const WHOLE: u8 = 0x5;
/// What a refusal may take.
const SOON: Duration = Duration::from_secs(1);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()];
    [&head.concat()[..], payload].concat()
}

/// Literal header fields without indexing and without Huffman coding (RFC 7541 §6.2.2).
fn fields(list: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        // All of them are shorter than what one byte of length holds.
        let length = u8::try_from(text.len()).unwrap_or(0);
        assert!(length < 127, "{text}");
        [&[length], text.as_bytes()].concat()
    };
    let field = |(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
    list.iter().flat_map(field).collect()
}

/// The next frame of a stream, or one that ends the connection.
async fn answer(io: &mut (impl AsyncRead + Unpin), stream: u32) -> Result<(u8, Vec<u8>)> {
    loop {
        let mut head = [0; 9];
        io.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        io.read_exact(&mut payload).await?;
        let of = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        if of == stream || head[3] == GOAWAY {
            return Ok((head[3], payload));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s_07_an_upgrade_over_http2_is_refused_and_the_connection_lives() -> Result<()> {
    let scene = Scene::start(&[], &["w"]).await?;
    let jane = scene.editor("jane", &[]).await?;
    let (cert, key) = scene.deployment.plane().front_proxy_client();
    let authority = direct::authority(&scene.deployment).await?;
    let port = scene.deployment.server(0).port;
    let identity = Some((cert.as_path(), key.as_path()));
    let mut io = direct::connect_speaking(&[b"h2"], &authority, port, identity).await?;
    ensure!(io.get_ref().1.alpn_protocol() == Some(b"h2"), "no HTTP/2");
    io.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())
        .await?;

    let path = Scene::path("w", "console");
    let request = |more: &[(&'static str, &'static str)]| {
        let asked = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "workspaces"),
            (":path", &path),
            ("x-remote-user", "jane"),
        ];
        fields(&[&asked, more].concat())
    };
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    io.write_all(&frame(HEADERS, WHOLE, 1, &request(&upgrade)))
        .await?;
    let (kind, payload) = timeout(SOON, answer(&mut io, 1)).await??;
    ensure!(kind != GOAWAY, "the connection was given up: {payload:?}");
    // `:status: 400` is number 12 of the static table (RFC 7541 appendix A).
    let refused = kind == RST_STREAM || kind == HEADERS && payload.first() == Some(&0x8c);
    ensure!(refused, "frame {kind}: {payload:?}");

    // Without the connection's own headers (RFC 8441 is not spoken either) it is a question.
    io.write_all(&frame(HEADERS, WHOLE, 3, &request(&[])))
        .await?;
    let (kind, payload) = timeout(Duration::from_secs(20), answer(&mut io, 3)).await??;
    ensure!(
        kind == HEADERS && payload.first() == Some(&0x88),
        "frame {kind}: {payload:?}"
    );

    // And both are served beside each other through kube-apiserver: lists on one connection, by
    // HTTP/2, and consoles on others.
    let mut console = open(&jane, &path, &["binary"]).await?.stream()?;
    for _ in 0..20 {
        let list = http::Request::get(Scene::path("", "").trim_end_matches('/'));
        let list: serde_json::Value = jane.request(list.body(Vec::new())?).await?;
        ensure!(list["items"][0]["metadata"]["name"] == "w", "{list}");
        console.write("x").await?;
        console.expect("x", 20).await?;
    }
    console.close().await
}
