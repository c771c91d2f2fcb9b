//! Actions, lists, sessions, user-data.

use serde_json::json;

use crate::double::Refuse;
use crate::place::Place;

#[tokio::test]
async fn an_action_is_posted_with_its_options() {
    let place = Place::new().await;
    let cases = [
        (
            &["start", "demo"][..],
            "/t1/workspaces/demo/start",
            json!({}),
        ),
        (
            &["start", "demo/t2", "--paused"],
            "/t2/workspaces/demo/start",
            json!({"paused": true}),
        ),
        (
            &["stop", "demo", "-n", "t3"],
            "/t3/workspaces/demo/stop",
            json!({}),
        ),
        (
            &["reboot", "demo", "--force"],
            "/t1/workspaces/demo/reboot",
            json!({"force": true}),
        ),
        (
            &["reset", "rhel9.arm64", "--dry-run"],
            "/t1/workspaces/rhel9.arm64/reset?dryRun=All",
            json!({}),
        ),
    ];
    for (args, path, options) in cases {
        let ran = place.run(args).await.well();
        assert!(ran.out.contains(": done"), "{ran:?}");
        let asked = place.double.asked().pop().unwrap();
        assert_eq!(asked.method, "POST");
        assert!(asked.target.ends_with(path), "{}", asked.target);
        assert_eq!(asked.body, options);
    }
}

#[tokio::test]
async fn waiting_tells_progress_and_ends_when_it_is_so() {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    let object = "namespaces/t1/workspaces/demo";
    place.double.edit(object, |demo| {
        demo["status"] = json!({"phase": "Starting", "conditions": [
            {"type": "Ready", "status": "False", "reason": "Importing", "message": "40 %"}]});
    });
    let starting = place.command(&["start", "demo", "--wait"]).spawn().unwrap();
    let seen = async {
        while place.double.asked().len() < 4 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), seen)
        .await
        .unwrap();
    place.double.edit(object, |demo| {
        demo["status"] =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    });
    let ran = crate::place::Ran::end(starting).await.well();
    assert_eq!(ran.out, "workspace/demo started\n");
    assert_eq!(ran.err, "Waiting for demo: Starting (Importing): 40 %\n");

    let late = place
        .run(&["stop", "demo", "--wait", "--timeout", "0"])
        .await;
    late.failed(1, &["Running", "kubectl describe workspace demo -n t1"]);
}

/// A vm that is ready, with an agent's condition.
fn running(agent: Option<(&str, &str)>) -> serde_json::Value {
    let mut conditions =
        vec![json!({"type": "Ready", "status": "True", "lastTransitionTime": "1"})];
    conditions.extend(agent.map(|(status, since)| {
        json!({"type": "AgentConnected", "status": status, "lastTransitionTime": since})
    }));
    json!({"phase": "Running", "conditions": conditions})
}

#[tokio::test]
async fn a_reboot_is_waited_for_by_the_guests_agent() {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    let object = "namespaces/t1/workspaces/demo";
    let agent = |status, since| {
        place.double.edit(object, |demo| {
            demo["status"] = running(Some((status, since)))
        })
    };
    agent("True", "1");
    let args = ["reboot", "demo", "--wait"];
    let rebooting = place.command(&args).spawn().unwrap();
    let asked = |more: usize| {
        let double = &place.double;
        let from = double.asked().len();
        async move {
            while double.asked().len() < from + more {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    };
    let most = std::time::Duration::from_secs(20);
    tokio::time::timeout(most, asked(4)).await.unwrap();
    agent("False", "2");
    tokio::time::timeout(most, asked(2)).await.unwrap();
    agent("True", "3");
    let ran = crate::place::Ran::end(rebooting).await.well();
    assert_eq!(ran.out, "workspace/demo rebooted\n");
    assert_eq!(
        ran.err,
        "Waiting for demo: the guest has not gone down yet\nWaiting for demo: the guest reboots; its agent is not back yet\n"
    );
}

#[tokio::test]
async fn a_reboot_that_nothing_tells_of_is_asked_for_and_said_to_be_unknown() {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    let object = "namespaces/t1/workspaces/demo";
    place
        .double
        .edit(object, |demo| demo["status"] = running(None));
    let ran = place.run(&["reboot", "demo", "--wait"]).await.well();
    assert!(ran.out.contains(": done"), "the server's words: {ran:?}");
    assert!(ran.err.contains("Not waited for") && ran.err.contains("qemu-guest-agent"));
    let posted = place.double.asked().into_iter().any(|a| a.method == "POST");
    assert!(posted);
}

#[tokio::test]
async fn a_refusal_is_told_in_the_servers_words() {
    let place = Place::new().await;
    place.double.refuse(
        "/stop",
        Refuse::status(403, "workspaces.kubeworkspaces.io \"demo\" is forbidden"),
    );
    place.run(&["stop", "demo"]).await.failed(
        1,
        &["error: workspaces.kubeworkspaces.io \"demo\" is forbidden"],
    );
    place
        .run(&["console", "nobody"])
        .await
        .failed(1, &["\"nobody\" not found"]);
}

#[tokio::test]
async fn workspaces_are_listed_as_kubectl_lists() {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    place.double.workspace("t1", "box", "container");
    let ran = place.run(&["list"]).await.well();
    assert_eq!(
        ran.out,
        "NAME   TYPE        STATUS\nbox    container   Running\ndemo   vm          Running\n"
    );
    let names = place.run(&["ls", "-o", "name"]).await.well();
    assert_eq!(names.out, "workspace/box\nworkspace/demo\n");
    let none = place.run(&["list", "-n", "t2"]).await.well();
    assert_eq!(
        (none.out.as_str(), none.err.as_str()),
        ("", "No workspaces found in t2 namespace.\n")
    );
    place.run(&["list", "-l", "a=b,c"]).await.well();
    assert!(
        place
            .double
            .asked()
            .pop()
            .unwrap()
            .target
            .ends_with("/workspaces?labelSelector=a%3Db%2Cc")
    );
}

fn session(place: &Place, name: &str) {
    let path = format!("namespaces/t1/workspacesessions/{name}");
    let object = json!({"metadata": {"name": name, "namespace": "t1", "uid": format!("uid-{name}")}, "spec": {"user": "ann"}});
    place.double.change(|world| {
        world.objects.insert(path, object);
    });
}

#[tokio::test]
async fn sessions_are_listed_and_ended() {
    let place = Place::new().await;
    for name in ["demo.console", "demo.portforward.ab12", "demo.x.vnc"] {
        session(&place, name);
    }
    let all = place.run(&["sessions"]).await.well();
    assert_eq!(all.out.lines().count(), 4, "{all:?}");
    let own = place.run(&["sessions", "demo"]).await.well();
    assert_eq!(own.out.lines().count(), 3, "{own:?}");

    let ended = place.run(&["sessions", "kill", "demo.x.vnc"]).await.well();
    assert_eq!(ended.out, "workspacesession/demo.x.vnc ended\n");
    let deletion = place
        .double
        .asked()
        .into_iter()
        .find(|asked| asked.method == "DELETE")
        .unwrap();
    assert_eq!(deletion.body["preconditions"]["uid"], "uid-demo.x.vnc");

    place
        .run(&["sessions", "kill", "--workspace", "demo"])
        .await
        .well();
    let none = place.run(&["sessions"]).await.well();
    assert_eq!(
        (none.out.as_str(), none.err.as_str()),
        ("", "No open sessions.\n")
    );
    place
        .run(&["sessions", "kill", "demo.console"])
        .await
        .failed(1, &["not found"]);
    place
        .run(&["sessions", "kill", "a/../b"])
        .await
        .failed(1, &["is not the name of a session"]);
}

#[tokio::test]
async fn user_data_is_printed_as_it_is() {
    let place = Place::new().await;
    assert_eq!(
        place.run(&["userdata", "demo"]).await.well().out,
        "#cloud-config\n"
    );
}

#[tokio::test]
async fn a_reader_that_ends_early_is_no_panic() {
    let place = Place::new().await;
    let mut command = place.command(&["completion", "bash"]);
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let ran = crate::place::Ran::end(child).await;
    assert!(matches!(ran.code, Some(0 | 141)), "{ran:?}");
    assert!(!ran.err.contains("panicked"), "{ran:?}");
}
