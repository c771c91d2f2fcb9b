//! The checker: whether one device was ever held twice.

use serde_json::{Value, json};

use crate::doubles::{BASE, JANE, with_demo};

#[tokio::test]
async fn the_checker_tells_a_second_holder_from_a_successor() {
    let server = with_demo().await;
    let console = format!("{BASE}/virtualmachineinstances/demo/console");
    let verdict = format!("{BASE}/localvirt/checker");
    for _ in 0..3 {
        let (mut wire, _guest) = server.open(&console).await;
        wire.send(8, &[0x03, 0xe8]).await;
        // Whoever has the answer may open the next: nothing of this one is left.
        assert_eq!(wire.frame().await.unwrap().opcode, 8);
        assert_eq!(
            server.app.checker.report(None)["modes"]["console"]["live"],
            0
        );
    }
    let report: Value = serde_json::from_str(&server.get(&verdict).await.body).unwrap();
    assert_eq!(
        (&report["verdict"], &report["namespace"]),
        (&json!("pass"), &json!("ns"))
    );
    assert_eq!(report["modes"]["console"]["accepted"], 3);

    let _first = server.open(&console).await;
    let _second = server.open(&console).await;
    let report: Value = serde_json::from_str(&server.get(&verdict).await.body).unwrap();
    assert_eq!(report["verdict"], "fail");
    assert_eq!(report["recent"][0]["name"], "demo");
    let reviews = server.objects.reviews.lock().unwrap().clone();
    let asked = reviews.last().unwrap().resource_attributes.clone().unwrap();
    assert_eq!(
        (asked.resource.as_deref(), asked.name.as_deref()),
        (Some("localvirt"), Some("checker"))
    );
    let anew = server.send("DELETE", &verdict, "").await;
    assert_eq!(anew.code, 200);
    assert!(anew.body.contains("\"verdict\": \"pass\""), "{}", anew.body);
}

#[tokio::test]
async fn a_preserving_display_never_fails_the_checker() {
    let server = with_demo().await;
    let path = format!("{BASE}/virtualmachineinstances/demo/vnc?preserveSession=true");
    let (_first, _guest) = server.open(&path).await;
    assert_eq!(
        server.wire(true).await.upgrade(&path, &JANE).await.code,
        500
    );
    let report = server.app.checker.report(Some("ns"));
    assert_eq!(report["verdict"], "pass");
    assert_eq!(report["modes"]["vnc"]["attempts"], 2);
    assert_eq!(report["modes"]["vnc"]["accepted"], 1);
}
