//! Upgrades: consoles, displays and ports.
//!
//! As in KubeVirt the far side is dialled first, and only then is it seen whether the request is an upgrade at all: a
//! plain GET of a console cuts the session that is open and is then told 400. [`raw`] relays consoles and displays,
//! [`port`] relays ports, [`upgrade`] runs either, [`frames`] and [`handshake`] are the WebSocket parts that the library
//! leaves open, [`strike`] is where faults on demand come in.

pub mod dial_guest;
pub mod frames;
pub mod handshake;
pub mod port;
pub mod raw;
pub mod strike;
pub mod upgrade;

use http::Request;
use hyper::body::Incoming;

use self::upgrade::{Opened, Relay, Upstream, upgrade};
use super::{
    handler::App,
    reply::{Failure, Kind, Reply},
    require,
    route::{Named, Port},
};
use crate::{
    api::{Instance, is_controlled_by},
    checker::{Device, Mode},
    faults::StreamKind,
    guestless::Script,
    launcher::protocol,
};

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
    let opened = open(app, &vmi, Mode::Console, false).await?;
    Ok(upgrade(app, request, opened))
}

/// The display.
///
/// # Errors
/// Before the upgrade: a Status. Afterwards the stream just ends.
pub async fn vnc(app: &App, object: &Named, request: Request<Incoming>) -> Result<Reply, Failure> {
    let vmi = app.cluster.instance(object).await?;
    require::vnc(&vmi)?;
    let preserve_session = preserves(request.uri().query().unwrap_or_default());
    let opened = open(app, &vmi, Mode::Vnc, preserve_session).await?;
    Ok(upgrade(app, request, opened))
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
    let kind = StreamKind::PortForward;
    let address = require::port(vmi)?;
    let plan = strike::before(vmi, kind).await?;
    let dialled = match Script::of(vmi) {
        Some(script) => dial_guest::inside(&app.guestless, vmi.uid(), script, port),
        None => dial_guest::dial(address, port).await,
    };
    let guest = dialled.map_err(|e| Failure::Internal(format!("dialing VM: {e}")))?;
    let opened = Opened {
        relay: Relay::Port(guest),
        kind,
        faults: app.faults.subscribe(vmi.uid(), plan),
        excuse: None,
    };
    Ok(upgrade(app, request, opened))
}

/// Dials the launcher for a device that has one holder.
async fn open(app: &App, vmi: &Instance, mode: Mode, preserve: bool) -> Result<Opened, Failure> {
    let (kind, asked) = match mode {
        Mode::Console => (StreamKind::Console, protocol::Request::Console),
        Mode::Vnc => {
            let preserve_session = preserve;
            (StreamKind::Vnc, protocol::Request::Vnc { preserve_session })
        }
    };
    let plan = strike::before(vmi, kind).await?;
    let target = app.cluster.launcher(vmi).await?;
    let attempt = app.checker.attempt(Device {
        namespace: vmi.namespace().to_owned(),
        name: vmi.name().to_owned(),
        uid: vmi.uid().to_owned(),
        mode,
    });
    let answer = app.launchers.ask(&target, &asked).await;
    let answer = answer.map_err(Failure::internal)?;
    match answer.reply {
        protocol::Reply::Stream => {
            let live = attempt.accepted(preserve);
            let excuse = Some(live.excuse());
            Ok(Opened {
                relay: Relay::Raw(Upstream::new((), answer.stream, live)),
                kind,
                faults: app.faults.subscribe(vmi.uid(), plan),
                excuse,
            })
        }
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
