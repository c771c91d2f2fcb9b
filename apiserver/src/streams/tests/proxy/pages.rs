//! Behind kube-apiserver: redirects and pages, which it does not let through as they are.

use super::*;

const FRONT: &str = "x-front: 1\r\n";

#[tokio::test]
async fn a_redirect_is_a_page_for_who_looks_and_an_error_for_others() {
    let proxied = Proxied::new().await;
    let redirect = "HTTP/1.1 302 Found\r\nlocation: /login?a=1&b=2\r\nset-cookie: sid=1\r\ncontent-length: 0\r\n\r\n";
    let looks = format!("{FRONT}accept: text/html,*/*\r\n");
    let got = proxied.answered("GET /", &looks, redirect).await;
    assert_eq!(code(&got), 200, "{got}");
    assert_eq!(header(&got, "content-type"), ["Text/HTML; charset=utf-8"]);
    let url = format!("{PREFIX}/login?a=1&amp;b=2");
    assert!(got.contains(&format!("content=\"0; url={url}\"")), "{got}");
    assert!(header(&got, "set-cookie")[0].contains("sid=1"), "{got}");
    assert!(header(&got, "location").is_empty(), "{got}");

    let got = proxied.answered("GET /", FRONT, redirect).await;
    assert_eq!(code(&got), 502, "{got}");
    let target = format!("{PREFIX}/login?a=1&b=2");
    assert_eq!(header(&got, "x-kubeworkspaces-location"), [&*target]);
    assert!(header(&got, "set-cookie")[0].contains("sid=1"), "{got}");

    let away = "HTTP/1.1 301 Moved\r\nlocation: https://example.org/\r\ncontent-length: 0\r\n\r\n";
    let got = proxied.answered("GET /", &looks, away).await;
    assert!(!got.contains("http-equiv"), "{got}");
    assert!(got.contains("href=\"https://example.org/\""), "{got}");

    let same = "HTTP/1.1 304 Same\r\nlocation: /login\r\netag: \"1\"\r\n\r\n";
    let got = proxied.answered("GET /", &looks, same).await;
    assert_eq!(code(&got), 304, "{got}");
    assert!(header(&got, "location").is_empty(), "{got}");

    let direct = proxied.answered("GET /a/", "", redirect).await;
    assert_eq!(code(&direct), 302);
    assert_eq!(header(&direct, "location"), [&*target]);
}

#[tokio::test]
async fn links_of_a_page_get_the_prefix_and_of_nothing_else() {
    let proxied = Proxied::new().await;
    let page = "<a href=\"/x\">x</a>";
    let of = |kind: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{page}",
            page.len()
        )
    };
    let got = proxied.answered("GET /", FRONT, &of("text/html")).await;
    assert_eq!(header(&got, "content-type"), ["Text/HTML"]);
    assert!(header(&got, "content-length").is_empty(), "{got}");
    let rewritten = format!("<a href=\"{PREFIX}/x\">x</a>");
    assert!(got.contains(&rewritten), "{got}");
    let got = proxied.answered("GET /", FRONT, &of("text/plain")).await;
    assert!(got.ends_with(page), "{got}");
    let got = proxied.answered("GET /", "", &of("text/html")).await;
    assert_eq!(header(&got, "content-type"), ["text/html"]);
    assert!(got.ends_with(page), "{got}");

    let (_client, _guest, head) = proxied
        .exchange("GET /", &format!("{FRONT}accept-encoding: gzip\r\n"))
        .await;
    assert_eq!(header(&head, "accept-encoding"), ["identity"]);
    assert!(header(&head, "x-forwarded-host").is_empty(), "{head}");
    let got = proxied.answered("HEAD /", FRONT, &of("text/html")).await;
    assert!(header(&got, "content-length").is_empty(), "{got}");
}

#[tokio::test]
async fn a_page_is_rewritten_while_it_streams() {
    let proxied = Proxied::new().await;
    let (mut client, mut guest, _) = proxied.exchange("GET /", FRONT).await;
    guest
        .send("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<p>one<a href=/")
        .await;
    client.head().await;
    client.expect("E\r\n").await;
    client.expect("<p>one<a href=").await;
    guest.send("x>").await;
    drop(guest);
    let rest = client.rest_of_body().await;
    assert!(rest.contains(&format!("{PREFIX}/x>")), "{rest}");
}

impl Side {
    /// To the last chunk.
    async fn rest_of_body(&mut self) -> String {
        let mut all = Vec::new();
        while !all.ends_with(b"\r\n0\r\n\r\n") {
            all.push(timeout(SOON, self.0.read_u8()).await.unwrap().unwrap());
        }
        String::from_utf8(all).unwrap()
    }
}
