//! A scripted guest's SSH server. Real ones are met in `tests/tests/ssh.rs`.

use std::{net::TcpStream as Handle, sync::Arc, time::Duration};

use apiservice::v1alpha1::HostKey;
use russh::{
    Channel, ChannelId, Pty, Sig,
    keys::{
        PrivateKey,
        ssh_key::{LineEnding, private::Ed25519Keypair},
    },
    server::{self, Auth, ChannelOpenHandle, Msg, Session, VerifiedPublicKey},
};
use serde_json::json;
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_tungstenite::tungstenite::Message;

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

/// The key that the scripted guest shows.
pub(super) fn host_key() -> HostKey {
    HostKey::of_blob(&key(1).public_key().to_bytes().unwrap()).unwrap()
}

/// The first message of who logs in.
pub(super) fn hello(user: &str, seed: u8) -> Message {
    let key = key(seed).to_openssh(LineEnding::LF).unwrap();
    let text = json!({"type": "ssh", "user": user, "privateKey": key.as_str()});
    Message::text(text.to_string())
}

/// A guest that lets in `debian` with key 2 and does what it is told.
struct Guest;

impl server::Handler for Guest {
    type Error = russh::Error;

    async fn auth_publickey(
        &mut self,
        user: &str,
        shown: VerifiedPublicKey<'_>,
    ) -> Result<Auth, russh::Error> {
        let known = key(2);
        let same = shown.public_key.key_data() == known.public_key().key_data();
        Ok(if user == "debian" && same {
            Auth::Accept
        } else {
            Auth::reject()
        })
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        Ok(())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        term: &str,
        cols: u32,
        rows: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(channel)?;
        session.data(channel, format!("{term} {cols}x{rows};").into_bytes())
    }

    async fn shell_request(
        &mut self,
        channel: ChannelId,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(channel)
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        typed: &[u8],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        match typed {
            // Nothing more is read of a connection whose handler waits.
            typed if typed.starts_with(b"stall") => std::future::pending().await,
            b"flood" => return flood(session.handle(), channel),
            b"exit" => session.exit_status_request(channel, 7)?,
            b"kill" => session.exit_signal_request(channel, Sig::TERM, false, "", "")?,
            other => return session.data(channel, other.to_vec()),
        }
        session.close(channel)
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        cols: u32,
        rows: u32,
        _: u32,
        _: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.data(channel, format!("size {cols}x{rows};").into_bytes())
    }
}

/// Prints without an end.
fn flood(session: server::Handle, channel: ChannelId) -> Result<(), russh::Error> {
    tokio::spawn(async move {
        let block = vec![b'x'; 16 * 1024];
        while session.data(channel, block.clone()).await.is_ok() {}
    });
    Ok(())
}

/// Serves a connection; the second is a handle to cut it by.
pub(super) fn serve(io: TcpStream) -> (JoinHandle<()>, Handle) {
    let io = io.into_std().unwrap();
    let handle = io.try_clone().unwrap();
    let io = TcpStream::from_std(io).unwrap();
    let config = Arc::new(server::Config {
        keys: vec![key(1)],
        auth_rejection_time: Duration::ZERO,
        ..server::Config::default()
    });
    let session = tokio::spawn(async move {
        if let Ok(session) = server::run_stream(config, io, Guest).await {
            let _ = session.await;
        }
    });
    (session, handle)
}
