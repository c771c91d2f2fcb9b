//! Consoles, in pipes and at terminals.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::double::{Refuse, Script};
use crate::person::Person;
use crate::place::{Place, Ran};

const SOON: Duration = Duration::from_secs(1);

async fn machine(script: Script) -> Place {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    place.double.script("demo/console", script);
    place
}

#[tokio::test]
async fn p_08_a_console_in_a_pipe_has_the_guests_bytes_only_and_ends_with_its_reader() {
    let place = machine(Script::Hold(b"\xff\x00login: ".to_vec())).await;
    // stdin from nowhere: the reading stays open until nobody reads
    let mut command = place.command(&["console", "demo"]);
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut bytes = [0; 9];
    tokio::io::AsyncReadExt::read_exact(&mut out, &mut bytes)
        .await
        .unwrap();
    assert_eq!(&bytes, b"\xff\x00login: ");
    drop(out);
    let ran = tokio::time::timeout(SOON, child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ran.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "Connected to demo.\n");
}

#[tokio::test]
async fn the_end_of_piped_input_ends_a_shell_with_its_status() {
    let place = Place::new().await;
    place.double.workspace("t1", "box", "container");
    place.double.script("box/console", Script::Shell(7));
    let ran = place.run_with_input(&["console", "box"], b"hello").await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(7), "hello"), "{ran:?}");
    assert!(
        place
            .double
            .asked()
            .pop()
            .unwrap()
            .target
            .ends_with("/console?tty=false")
    );
}

#[tokio::test]
async fn s_09_a_workspace_that_starts_is_waited_for() {
    let place = machine(Script::Say(b"boot".to_vec(), 1000, "ended".into())).await;
    for _ in 0..2 {
        let mut starting = Refuse::status(400, "demo is starting");
        starting.retry_after = Some(1);
        place.double.refuse("/console", starting);
    }
    let ran = place.run(&["console", "demo"]).await.well();
    assert_eq!(ran.out, "boot");
    assert_eq!(
        ran.err.matches("Waiting: demo is starting").count(),
        1,
        "{ran:?}"
    );

    let mut starting = Refuse::status(400, "demo is starting");
    starting.retry_after = Some(1);
    place.double.refuse("/console", starting);
    place
        .run(&["console", "demo", "--timeout", "0"])
        .await
        .failed(1, &["demo is starting"]);
}

#[tokio::test]
async fn who_holds_it_is_told_with_the_way_to_take_it_over() {
    let place = machine(Script::Say(
        Vec::new(),
        1000,
        "taken over by another user".into(),
    ))
    .await;
    let cause = |field: &str, message: &str| serde_json::json!({"reason": "SessionHeld", "field": field, "message": message});
    let body = serde_json::json!({"message": "held", "details": {"causes": [
        cause("spec.user", "ann"), cause("spec.since", "2026-01-01T00:00:00Z"), cause("spec.mode", "console")]}});
    place.double.refuse(
        "/console",
        Refuse {
            code: 409,
            retry_after: None,
            body: body.to_string(),
        },
    );
    let held = place.run(&["console", "demo"]).await;
    held.failed(
        1,
        &[
            "the console is held by ann since 2026-01-01T00:00:00Z",
            "--takeover",
        ],
    );
    let taken = place.run(&["console", "demo", "--takeover"]).await;
    taken.failed(
        1,
        &[
            "taken over by another user",
            "kubectl workspace console demo -n t1 --takeover",
        ],
    );
    assert!(
        place
            .double
            .asked()
            .pop()
            .unwrap()
            .target
            .ends_with("/console?takeover=true")
    );
}

#[tokio::test]
async fn after_a_drain_it_says_how_to_come_back() {
    let place = machine(Script::Say(Vec::new(), 1001, "draining".into())).await;
    let drained = place.run(&["console", "demo"]).await;
    drained.failed(
        1,
        &["shutting down", "kubectl workspace console demo -n t1"],
    );
}

#[tokio::test]
async fn p_07_the_escape_ends_it_and_the_terminal_is_as_it_was() {
    let place = machine(Script::Echo(b"login: ".to_vec())).await;
    let mut person = Person::runs(&place, &["console", "demo"]);
    person
        .sees("Connected to demo. The escape sequence is Ctrl-]")
        .await;
    person.sees("login: ").await;
    assert!(person.is_raw());
    // Ctrl-C is the guest's
    person.types(b"root\x03").await;
    person.sees("root").await;
    person.types(b"\x1d").await;
    assert_eq!(person.leaves(SOON).await, Some(0));
    place.double.streams(0).await;
    assert!(
        place.double.heard().ends_with(b"\x03"),
        "{:?}",
        place.double.heard()
    );
}

#[tokio::test]
async fn p_07_signals_end_it_and_the_terminal_is_as_it_was() {
    let place = machine(Script::Hold(b"login: ".to_vec())).await;
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::INT, 130),
        (Signal::QUIT, 131),
    ] {
        let mut person = Person::runs(&place, &["console", "demo"]);
        person.sees("login: ").await;
        kill_process(Pid::from_raw(person.plugin()).unwrap(), signal).unwrap();
        person
            .sees(&format!("Ended by signal {}", code - 128))
            .await;
        assert_eq!(person.leaves(SOON).await, Some(code));
    }
}

#[tokio::test]
async fn p_07_ctrl_c_ends_a_connection_attempt_to_nowhere() {
    let place = machine(Script::Hold(Vec::new())).await;
    // it accepts and never answers
    let hole = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", hole.local_addr().unwrap());
    let mut person = Person::runs(&place, &["console", "demo", "--server", &server]);
    let (_silent, _) = hole.accept().await.unwrap();
    person.types(b"\x03").await;
    assert_eq!(person.leaves(SOON).await, Some(130));
}

#[tokio::test]
async fn p_07_a_server_that_goes_away_ends_it_with_a_word() {
    let mut place = machine(Script::Hold(b"login: ".to_vec())).await;
    place.double.script(
        "demo/console",
        Script::Say(
            b"login: ".to_vec(),
            4003,
            "the workspace was stopped".into(),
        ),
    );
    let mut person = Person::runs(&place, &["console", "demo"]);
    person
        .sees("demo was stopped. Run `kubectl workspace start demo -n t1`")
        .await;
    assert_eq!(person.leaves(SOON).await, Some(1));
    place.double = crate::double::Double::start().await;
    place
        .run(&["console", "demo"])
        .await
        .failed(1, &["cannot reach the API server"]);
}

#[tokio::test]
async fn s_18_a_shell_is_told_the_size_and_a_serial_line_never() {
    let place = machine(Script::Hold(b"$ ".to_vec())).await;
    place.double.workspace("t1", "box", "container");
    place
        .double
        .script("box/console", Script::Echo(b"\x01$ ".to_vec()));
    let mut person = Person::runs(&place, &["console", "box"]);
    person.sees("$ ").await;
    person.resizes(200, 50);
    let told = async {
        while !String::from_utf8_lossy(&place.double.heard())
            .contains(r#"{"Width":200,"Height":50}"#)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, told).await.unwrap();
    person.types(b"\x1d").await;
    person.leaves(SOON).await;

    place.double.change(|world| world.heard.clear());
    let mut person = Person::runs(&place, &["console", "demo", "--stty"]);
    person.sees("$ ").await;
    person.resizes(90, 30);
    person.types(b"x\x1d").await;
    person.leaves(SOON).await;
    place.double.streams(0).await;
    assert_eq!(
        String::from_utf8_lossy(&place.double.heard()),
        "stty rows 24 cols 80\rx"
    );
}

#[tokio::test]
async fn s_09_start_console_attaches_before_the_first_instruction() {
    let place = machine(Script::Say(b"first byte".to_vec(), 1000, "ended".into())).await;
    let ran = place.run(&["start", "demo", "--console"]).await.well();
    assert_eq!(ran.out, "first byte");
    let asked: Vec<_> = place
        .double
        .asked()
        .into_iter()
        .map(|a| format!("{} {}", a.target.rsplit('/').next().unwrap(), a.body))
        .collect();
    assert_eq!(
        asked[1..],
        ["start {\"paused\":true}", "console null", "unpause {}"]
    );
    place.double.workspace("t1", "box", "container");
    place
        .run(&["start", "box", "--console"])
        .await
        .failed(1, &["box is no vm"]);
}

#[tokio::test]
async fn without_standard_streams_it_still_ends_in_order() {
    let place = machine(Script::Say(b"x".to_vec(), 1000, "ended".into())).await;
    for closed in [">&-", "2>&-", "<&- >&- 2>&-"] {
        let mut command = tokio::process::Command::new("sh");
        place.surround(&mut command);
        command.args([
            "-c",
            &format!("exec \"$0\" console demo {closed}"),
            crate::place::PLUGIN,
        ]);
        let ran = Ran::of(command).await;
        assert!(matches!(ran.code, Some(0 | 1)), "{closed}: {ran:?}");
        assert!(!ran.err.contains("panicked"), "{closed}: {ran:?}");
    }
}
