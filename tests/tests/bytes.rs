//! What passes through a stream: much of it, in any pieces, from the first byte on.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{SinkExt as _, StreamExt as _};
use kubeworkspaces_tests::{
    direct,
    scene::Scene,
    stream::{Stream, open, open_over},
};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::timeout,
};
use tokio_tungstenite::tungstenite::Message;

const PORT: &str = "portforward/8080";
const RAW: [&str; 1] = ["binary"];
const BLOCK: usize = 32 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// 64 MiB, a gibibyte with `KUBEWORKSPACES_LONG=1`.
fn volume() -> usize {
    match std::env::var_os("KUBEWORKSPACES_LONG") {
        Some(_) => 1 << 30,
        None => 64 << 20,
    }
}

/// Bytes in which a lost, doubled or moved block shows (splitmix64).
struct Noise(u64);

impl Noise {
    fn block(&mut self) -> Vec<u8> {
        let words = (0..BLOCK / 8).flat_map(|_| {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (z ^ (z >> 27)).to_le_bytes()
        });
        words.collect()
    }
}

async fn listener(scene: &Scene) -> Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    scene.machines.serve(8080, listener.local_addr()?);
    Ok(listener)
}

/// A guest that sends and receives so much at the same time; the sums of both.
async fn guest(listener: TcpListener, volume: usize) -> Result<(String, String)> {
    let (socket, _) = listener.accept().await?;
    let (mut reader, mut writer) = socket.into_split();
    let sending = tokio::spawn(async move {
        let (mut noise, mut sum) = (Noise(1), Sha256::new());
        for _ in 0..volume / BLOCK {
            let block = noise.block();
            sum.update(&block);
            writer.write_all(&block).await?;
        }
        anyhow::Ok((hex(sum), writer))
    });
    let (mut sum, mut left, mut buffer) = (Sha256::new(), volume, vec![0; BLOCK]);
    while left > 0 {
        let read = reader.read(&mut buffer).await?;
        ensure!(read > 0, "{left} bytes were lost");
        sum.update(&buffer[..read]);
        left = left.checked_sub(read).context("more than was sent")?;
    }
    let (sent, _writer) = sending.await??;
    let more = reader.read(&mut buffer).await.unwrap_or(0);
    ensure!(more == 0, "{more} bytes more than were sent");
    Ok((sent, hex(sum)))
}

fn hex(sum: Sha256) -> String {
    sum.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The same at the client.
async fn client(stream: Stream, volume: usize) -> Result<(String, String)> {
    let (mut writer, mut reader) = stream.split();
    let sending = tokio::spawn(async move {
        let (mut noise, mut sum) = (Noise(2), Sha256::new());
        for _ in 0..volume / BLOCK {
            let block = noise.block();
            sum.update(&block);
            writer.send(Message::binary(block)).await?;
        }
        anyhow::Ok((hex(sum), writer))
    });
    let (mut sum, mut left) = (Sha256::new(), volume);
    while left > 0 {
        let message = reader.next().await.context("the stream ended")??;
        if let Message::Binary(bytes) = message {
            sum.update(&bytes);
            left = left
                .checked_sub(bytes.len())
                .context("more than was sent")?;
        }
    }
    let (sent, mut writer) = sending.await??;
    writer.close().await?;
    Ok((sent, hex(sum)))
}

#[tokio::test(flavor = "multi_thread")]
async fn much_passes_both_ways_at_once_through_kube_apiserver_and_is_the_same() -> Result<()> {
    let (scene, volume) = (Scene::start(&[], &["w"]).await?, volume());
    let jane = scene.editor("jane", &[]).await?;
    let listener = listener(&scene).await?;
    let guest = tokio::spawn(guest(listener, volume));
    let stream = open(&jane, &Scene::path("w", PORT), &RAW).await?.stream()?;
    let begun = std::time::Instant::now();
    let (sent, received) = client(stream, volume).await?;
    println!("{} MiB each way in {:?}", volume >> 20, begun.elapsed());
    let (guest_sent, guest_received) = timeout(PATIENCE, guest).await???;
    ensure!(
        sent == guest_received,
        "to the guest: {sent} is not {guest_received}"
    );
    ensure!(
        received == guest_sent,
        "from the guest: {guest_sent} is not {received}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn early_bytes_of_either_side_arrive_and_frames_may_be_cut_anywhere() -> Result<()> {
    let scene = Scene::start(&[], &["w"]).await?;
    let jane = scene.editor("jane", &[]).await?;
    let listener = listener(&scene).await?;
    // A guest that speaks first, before anybody has answered the client.
    let guest = tokio::spawn(async move {
        let mut greeted = Vec::new();
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().await?;
            socket.write_all(b"220 ready\r\n").await?;
            greeted.push(socket);
        }
        anyhow::Ok(greeted)
    });
    let path = Scene::path("w", PORT);
    let mut through = open(&jane, &path, &RAW).await?.stream()?;
    through.expect("220 ready\r\n", 20).await?;

    // A client whose data comes in the same packet as its request: kube-apiserver drops that, the server
    // does not.
    let (cert, key) = scene.deployment.plane().front_proxy_client();
    let mut io = direct::connect(&scene.deployment, 0, Some((&cert, &key))).await?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: workspaces\r\nX-Remote-User: jane\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: binary\r\n\r\n"
    );
    let early = [request.as_bytes(), &masked(b"early")].concat();
    io.write_all(&early).await?;
    // And what follows comes byte by byte.
    for byte in masked(b"late") {
        io.write_all(&[byte]).await?;
        io.flush().await?;
    }
    let mut sockets = timeout(PATIENCE, guest).await???;
    let mut heard = vec![0; 9];
    let last = sockets.last_mut().context("no connection")?;
    timeout(PATIENCE, last.read_exact(&mut heard)).await??;
    ensure!(
        heard == b"earlylate",
        "{:?}",
        String::from_utf8_lossy(&heard)
    );
    through.close().await?;

    // The stream of another connection is not disturbed by one that was cut in the middle of a frame.
    let other = direct::connect(&scene.deployment, 0, Some((&cert, &key))).await?;
    let user = [("X-Remote-User", "jane")];
    let mut console = open_over(other, &Scene::path("w", "console"), &RAW, &user)
        .await?
        .stream()?;
    io.write_all(&masked(b"half a frame")[..9]).await?;
    io.flush().await?;
    drop(io);
    console.write("still here").await?;
    console.expect("still here", 20).await?;
    console.close().await
}

/// A short masked binary frame (RFC 6455 §5.2).
fn masked(data: &[u8]) -> Vec<u8> {
    let key = [7, 11, 13, 17];
    let length = 0x80 | u8::try_from(data.len()).unwrap_or(0);
    let masked = data.iter().zip(key.iter().cycle()).map(|(d, k)| d ^ k);
    [0x82, length]
        .into_iter()
        .chain(key)
        .chain(masked)
        .collect()
}
