//! States before the upgrade.

use std::io::ErrorKind;

use serde_json::{Value, json};

use super::{Cell, Mode, State, guest};
use crate::streams::tests::world::{LAUNCHER, MACHINE, PODS, World};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A workspace that the mode leads to, with what it needs.
pub(super) async fn settle(world: &World, mode: Mode) {
    *world.cluster.screenshot.lock() = (200, "image/png", PNG.to_vec());
    if mode == Mode::Relayed {
        world.edit_machine(|vmi| {
            vmi["status"]["interfaces"] = json!([{"ipAddress": LAUNCHER}]);
        });
        *world.pods.refuse.lock() = Some(ErrorKind::NetworkUnreachable);
    }
}

/// Asks in this state.
pub(super) async fn check(mode: Mode, state: State, expected: Cell) {
    let kind = match (state, mode.kind()) {
        (State::OtherType, "vm") => "container",
        (_, kind) => kind,
    };
    let mut world = World::new(kind).await;
    if kind == mode.kind() {
        settle(&world, mode).await;
    }
    let holder = match state {
        State::Held if mode != Mode::Screenshot => {
            let opened = guest::open(&mut world, mode, mode.path(), "jane").await;
            Some(opened.unwrap())
        }
        _ => None,
    };
    prepare(&world, mode, state).await;
    let path = match (state, mode) {
        (State::NoDevice, Mode::Port | Mode::Relayed | Mode::PodPort) => "demo/portforward/6443",
        _ => mode.path(),
    };
    let what = format!("{mode:?} {state:?}");
    match mode {
        Mode::Screenshot => {
            let (code, body) = world.request("GET", path).await;
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            judge(&what, expected, (code, &body));
        }
        _ => match guest::open(&mut world, mode, path, "joe").await {
            Ok((client, guest)) => {
                if let Cell::Ends(code, words) = expected {
                    guest.without_a_shell(client, code, words).await;
                } else {
                    judge(&what, expected, (200, &Value::Null));
                }
            }
            Err((code, status)) => judge(&what, expected, (code, &status)),
        },
    }
    drop(holder);
    world.at_rest().await;
}

fn judge(what: &str, expected: Cell, (code, status): (u16, &Value)) {
    let Cell::Answer(wanted, retry, words) = expected else {
        assert!(matches!(expected, Cell::Opens), "{what} {expected:?}");
        assert_eq!(code, 200, "{what}: {status}");
        return;
    };
    assert_eq!(code, wanted, "{what}: {status}");
    let seconds = status["details"]["retryAfterSeconds"].as_u64();
    assert_eq!(seconds, retry, "{what}: {status}");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.contains(words), "{what}: {status}");
}

async fn prepare(world: &World, mode: Mode, state: State) {
    let machine = mode.kind() == "vm";
    match state {
        State::NotRunning => gone(world, mode),
        State::Starting if machine => phase(world, "Scheduling"),
        State::Starting => world.edit_pod(|pod| {
            pod["status"] = json!({"phase": "Pending", "containerStatuses": [
                {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        }),
        State::Stopping if machine => phase(world, "Succeeded"),
        State::Stopping => world.edit_pod(|pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }),
        State::Failed if machine => phase(world, "Failed"),
        State::Failed => world.edit_pod(|pod| pod["status"] = json!({"phase": "Failed"})),
        State::Stopped => world.annotate_stopped().await,
        State::Deleting => {
            let edit = world.edit_workspace(|w| {
                w.set_meta("deletionTimestamp", "2026-01-02T03:04:05Z");
            });
            edit.await;
        }
        State::Deleted => world.drop_workspace().await,
        State::Paused => world.edit_machine(|vmi| {
            vmi["status"]["conditions"] = json!([{"type": "Paused", "status": "True"}]);
        }),
        State::NoDevice => take_device(world, mode),
        State::UpstreamRefuses => refuse(world),
        State::Draining => world.draining.cancel(),
        State::MayNotCreate => drop(world.verbs.0.lock().remove("create")),
        _ => {}
    }
}

fn phase(world: &World, phase: &str) {
    world.edit_machine(|vmi| vmi["status"]["phase"] = json!(phase));
}

fn take_device(world: &World, mode: Mode) {
    let devices = match mode {
        Mode::Console => json!({"autoattachSerialConsole": false}),
        Mode::Vnc | Mode::Screenshot => json!({"autoattachGraphicsDevice": false}),
        Mode::Terminal | Mode::Tunnel => {
            *world.pods.refuse.lock() = Some(ErrorKind::ConnectionRefused);
            return;
        }
        _ => return,
    };
    world.edit_machine(|vmi| vmi["spec"] = json!({"domain": {"devices": devices}}));
}

fn refuse(world: &World) {
    let text = r#"{"kind":"Status","message":"no handler","code":500}"#;
    *world.cluster.refuse_all.lock() = Some((500, text.into()));
    *world.cluster.screenshot.lock() = (500, "application/json", text.into());
    *world.pods.refuse.lock() = Some(ErrorKind::ConnectionRefused);
}

/// The guest or the pod is gone.
pub(super) fn gone(world: &World, mode: Mode) {
    let mut objects = world.cluster.objects.lock();
    match mode.kind() {
        "vm" => drop(objects.remove(MACHINE)),
        _ => drop(objects.insert(PODS.to_owned(), json!({"items": []}))),
    }
}
