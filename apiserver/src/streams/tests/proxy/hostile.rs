//! Guests that answer badly, or not at all.

use super::*;
use crate::streams::opening::StreamOptions;

#[tokio::test]
async fn an_answer_that_could_be_read_in_two_ways_is_no_answer() {
    let proxied = Proxied::new().await;
    let many = "x-a: b\r\n".repeat(1000);
    let long = format!("x-a: {}\r\n", "b".repeat(300_000));
    let chunked = "transfer-encoding: chunked\r\n";
    for (what, headers) in [
        ("both lengths", format!("content-length: 5\r\n{chunked}")),
        (
            "two lengths",
            "content-length: 5\r\ncontent-length: 6\r\n".into(),
        ),
        ("no number", "content-length: -5\r\n".into()),
        ("a folded line", "x-a: b\r\n c\r\n".into()),
        ("a bare CR", "x-a: b\rc\r\n".into()),
        ("a space before the colon", "content-length : 5\r\n".into()),
        ("NUL", "x-a: \0\r\n".into()),
        ("too many lines", many),
        ("too long a line", long),
        ("an upgrade", "connection: upgrade\r\nupgrade: x\r\n".into()),
    ] {
        let status = if what == "an upgrade" {
            "101 Switching"
        } else {
            "200 OK"
        };
        let answer = format!("HTTP/1.1 {status}\r\n{headers}\r\n0\r\n\r\n");
        let got = proxied.answered("GET /", "", &answer).await;
        assert_eq!(code(&got), 502, "{what}: {got}");
        assert!(got.contains("\"reason\":\"BadGateway\""), "{what}: {got}");
        assert!(!got.contains("x-a"), "{what}: {got}");
    }
    for answer in ["", "HTTP/1.1 200", "SSH-2.0-OpenSSH\r\n", "<html>\r\n\r\n"] {
        let got = proxied.answered("GET /", "", answer).await;
        assert_eq!(code(&got), 502, "{answer}: {got}");
    }
}

#[tokio::test]
async fn half_an_answer_does_not_look_like_a_whole_one() {
    let proxied = Proxied::new().await;
    for (answer, whole) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello", None),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
            Some("0\r\n\r\n"),
        ),
    ] {
        let got = proxied.answered("GET /", "", answer).await;
        let cut = match whole {
            None => header(&got, "content-length") == ["10"],
            Some(end) => !got.ends_with(end),
        };
        assert!(cut && got.contains("hello"), "{got}");
    }
}

#[tokio::test]
async fn what_a_client_says_about_its_length_is_not_repeated() {
    let proxied = Proxied::new().await;
    // Two lengths at once: what the chunks say counts (RFC 9112 §6.3), or nothing is passed on.
    let rest = "content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let mut client = proxied.ask("POST /", rest).await;
    let accepted = timeout(Duration::from_secs(2), proxied.guests.accept()).await;
    match accepted {
        Ok(accepted) => {
            let mut guest = Side(accepted.unwrap().0);
            let head = guest.head().await;
            assert!(header(&head, "content-length").is_empty(), "{head}");
            assert_eq!(header(&head, "transfer-encoding"), ["chunked"]);
            guest.expect("5\r\nhello\r\n0\r\n\r\n").await;
        }
        Err(_) => assert_eq!(code(&client.head().await), 400),
    }
}

#[tokio::test]
async fn a_guest_that_says_nothing_is_given_up() {
    let options = StreamOptions {
        proxy_answer: Duration::from_millis(300),
        ..StreamOptions::default()
    };
    let proxied = Proxied::of(World::with("vm", options).await).await;
    let (client, guest, _) = proxied.exchange("GET /", "connection: close\r\n").await;
    let answer = client.rest().await;
    assert_eq!(code(&answer), 504, "{answer}");
    assert!(answer.contains("--proxy-response-timeout"), "{answer}");
    guest.left().await;
    // One that takes what it is sent is not silent.
    let mut client = proxied
        .ask("PUT /", "content-length: 10\r\nconnection: close\r\n\r\n")
        .await;
    let mut guest = proxied.guest().await;
    guest.head().await;
    for _ in 0..10 {
        client.send("x").await;
        guest.expect("x").await;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    guest.send("HTTP/1.1 204 None\r\n\r\n").await;
    assert_eq!(code(&client.rest().await), 204);
}

#[tokio::test]
async fn nothing_listens() {
    let mut proxied = Proxied::new().await;
    *proxied.world.pods.refuse.lock() = Some(std::io::ErrorKind::ConnectionRefused);
    let answer = proxied.ask("GET /", "connection: close\r\n\r\n").await;
    let answer = answer.rest().await;
    assert_eq!(code(&answer), 503, "{answer}");
    assert_eq!(
        header(&answer, "retry-after").len(),
        0,
        "the test's own server"
    );
    assert!(answer.contains("nothing listens on that port"), "{answer}");
    proxied.world.at_rest().await;
}

#[tokio::test]
async fn nothing_is_left_of_what_has_ended() {
    let mut proxied = Proxied::new().await;
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\n\r\nok",
        "",
        "HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nok",
    ] {
        proxied.answered("GET /", "", answer).await;
    }
    let (client, _guest, _) = proxied.exchange("GET /", "").await;
    drop(client);
    proxied.world.at_rest().await;
}
