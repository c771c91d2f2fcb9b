//! Upgrades: consoles, displays and ports.
//!
//! As in KubeVirt the far side is dialled first, and only then is it seen whether the request is an upgrade at all: a
//! plain GET of a console cuts the session that is open and is then told 400. [`raw`] relays consoles and displays,
//! [`port`] relays ports, [`frames`] and [`handshake`] are the WebSocket parts that the library leaves open.

pub mod dial_guest;
pub mod frames;
pub mod handshake;
pub mod port;
pub mod raw;

use std::future::Future;

use http::Request;
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::protocol::{Role, WebSocketConfig},
};
use tracing::debug;

use super::{
    handler::App,
    reply::{Failure, Kind, Reply},
    require,
    route::{Named, Port},
};
use crate::{
    api::{Instance, is_controlled_by},
    dial::Duplex,
    launcher::protocol,
};

/// What a client talks through.
pub type Client = WebSocketStream<TokioIo<Upgraded>>;

/// Buffers of KubeVirt's upgrader.
const BUFFER: usize = 10_240;
/// Largest message of a client. KubeVirt sets no limit; this one is far above what any client sends.
const MAX_MESSAGE: usize = 16 << 20;

/// The serial console.
///
/// # Errors
/// Before the upgrade: a Status. Afterwards the stream just ends.
pub async fn console(
    app: &App,
    object: &Named,
    request: Request<Incoming>,
) -> Result<Reply, Failure> {
    let vmi = app.cluster.instance(object).await?;
    require::console(&vmi)?;
    let upstream = open(app, &vmi, &protocol::Request::Console).await?;
    Ok(upgrade(app, request, move |client| {
        raw::relay(client, upstream)
    }))
}

/// The display.
///
/// # Errors
/// Before the upgrade: a Status. Afterwards the stream just ends.
pub async fn vnc(app: &App, object: &Named, request: Request<Incoming>) -> Result<Reply, Failure> {
    let vmi = app.cluster.instance(object).await?;
    require::vnc(&vmi)?;
    let preserve_session = preserves(request.uri().query().unwrap_or_default());
    let upstream = open(app, &vmi, &protocol::Request::Vnc { preserve_session }).await?;
    Ok(upgrade(app, request, move |client| {
        raw::relay(client, upstream)
    }))
}

/// A port of an instance.
///
/// # Errors
/// Before the upgrade: a Status. Afterwards the stream just ends.
pub async fn instance_port(
    app: &App,
    object: &Named,
    port: &Port,
    request: Request<Incoming>,
) -> Result<Reply, Failure> {
    let vmi = app.cluster.instance(object).await?;
    forward(app, &vmi, port, request).await
}

/// A port of a machine's own instance.
///
/// # Errors
/// As [`instance_port`], and when the machine has no instance or does not own it.
pub async fn machine_port(
    app: &App,
    object: &Named,
    port: &Port,
    request: Request<Incoming>,
) -> Result<Reply, Failure> {
    let vm = app.cluster.machine(object).await?;
    if !vm.status.created {
        let (kind, name) = (Kind::Machine, object.name.clone());
        return Err(Failure::Conflict {
            kind,
            name,
            text: "VMI is not started".into(),
        });
    }
    let vmi = app.cluster.instance(object).await?;
    if !is_controlled_by(&vmi.meta, vm.uid()) {
        return Err(Failure::Internal(format!(
            "VMI {} is not owned by the VM",
            object.name
        )));
    }
    forward(app, &vmi, port, request).await
}

async fn forward(
    app: &App,
    vmi: &Instance,
    port: &Port,
    request: Request<Incoming>,
) -> Result<Reply, Failure> {
    let address = require::port(vmi)?;
    let guest = dial_guest::dial(address, port).await;
    let guest = guest.map_err(|e| Failure::Internal(format!("dialing VM: {e}")))?;
    Ok(upgrade(app, request, move |client| {
        port::relay(client, guest, port::Timing::KUBEVIRT)
    }))
}

async fn open(
    app: &App,
    vmi: &Instance,
    request: &protocol::Request,
) -> Result<Box<dyn Duplex>, Failure> {
    let target = app.cluster.launcher(vmi).await?;
    let answer = app
        .launchers
        .ask(&target, request)
        .await
        .map_err(Failure::internal)?;
    match answer.reply {
        protocol::Reply::Stream => Ok(answer.stream),
        protocol::Reply::Refused { refusal, message } => Err(refused(refusal, &message)),
        _ => Err(Failure::Internal(
            "the launcher answered another question".into(),
        )),
    }
}

/// virt-api's words for what its virt-handler refuses before the upgrade.
fn refused(refusal: protocol::Refusal, message: &str) -> Failure {
    let (code, text) = match refusal {
        protocol::Refusal::ActiveVnc => (503, "Active VNC connection. Request denied."),
        _ => (400, message),
    };
    let text = format!(
        "Can't connect to websocket ({code}): websocket: bad handshake: application info: {text}"
    );
    Failure::Internal(text)
}

/// Go's `strconv.ParseBool`; what it cannot parse is false.
fn preserves(query: &str) -> bool {
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("preserveSession="));
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

/// Accepts the upgrade and runs the relay, or says what is wrong with the request. Either way the far side is dialled
/// already, and is dropped with the closure.
fn upgrade<F, R>(app: &App, request: Request<Incoming>, relay: F) -> Reply
where
    F: FnOnce(Client) -> R + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let reply = match handshake::accept(request.method(), request.headers()) {
        Ok(reply) => reply,
        Err(rejection) => return rejection.reply(),
    };
    let shutdown = app.shutdown.clone();
    app.tasks.spawn(async move {
        let stream = async {
            match hyper::upgrade::on(request).await {
                Ok(upgraded) => relay(websocket(upgraded).await).await,
                Err(error) => debug!(%error, "the client went away during the upgrade"),
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = stream => {}
        }
    });
    reply
}

async fn websocket(upgraded: Upgraded) -> Client {
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        // Every frame goes out at once.
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preserve_session_is_parsed_as_go_does() {
        let cases = [
            ("preserveSession=true", true),
            ("a=b&preserveSession=1", true),
            ("preserveSession=yes", false),
            ("", false),
        ];
        for (query, want) in cases {
            assert_eq!(preserves(query), want, "{query}");
        }
    }

    #[test]
    fn an_active_display_is_refused_with_virt_handlers_text() {
        let failure = refused(protocol::Refusal::ActiveVnc, "");
        assert_eq!(failure.code(), 500);
        let text = "Can't connect to websocket (503): websocket: bad handshake: application info: Active VNC connection. Request denied.";
        assert!(failure.to_string().ends_with(text));
    }
}
