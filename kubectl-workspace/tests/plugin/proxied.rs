//! Through an HTTP proxy, by `proxy-url` and by the environment.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::double::{Double, Script, Tls};
use crate::place::{Place, Ran};

/// A proxy that knows CONNECT and leads everything to one place.
async fn proxy(to: std::net::SocketAddr) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                seen.lock().unwrap().push(String::from_utf8(head).unwrap());
                let mut server = TcpStream::connect(to).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (format!("http://{address}"), heads)
}

#[tokio::test]
async fn streams_pass_through_the_proxy_of_the_kubeconfig_or_the_environment() {
    let place = Place::of(Double::with(Some(Tls::for_name("api.example"))).await);
    place.double.workspace("t1", "demo", "vm");
    place.double.script(
        "demo/console",
        Script::Say(b"hi".to_vec(), 1000, "ended".into()),
    );
    let (url, heads) = proxy(place.double.address).await;
    std::fs::write(
        place.path("ca.pem"),
        &place.double.authority.as_ref().unwrap().certificate,
    )
    .unwrap();
    let cluster = json!({"server": "https://api.example:6443", "certificate-authority": "ca.pem"});
    let with = |url: &str| {
        let mut cluster = cluster.clone();
        cluster["proxy-url"] = json!(url);
        cluster
    };
    let named = url.replace("http://", "http://ann:pass%40word@");
    place.kubeconfig(&with(&named), &json!({"token": "t"}));
    assert_eq!(place.run(&["console", "demo"]).await.well().out, "hi");
    let first = heads.lock().unwrap().remove(0);
    assert!(first.starts_with("CONNECT api.example:6443 "), "{first}");
    assert!(
        first
            .to_lowercase()
            .contains("proxy-authorization: basic yw5uonbhc3nad29yza=="),
        "{first}"
    );

    place.kubeconfig(&cluster, &json!({"token": "t"}));
    heads.lock().unwrap().clear();
    let mut command = place.command(&["console", "demo"]);
    command.env("HTTPS_PROXY", &url);
    assert_eq!(Ran::of(command).await.well().out, "hi");
    assert!(!heads.lock().unwrap().is_empty());

    heads.lock().unwrap().clear();
    let mut command = place.command(&["console", "demo", "--request-timeout", "5s"]);
    command
        .env("HTTPS_PROXY", &url)
        .env("NO_PROXY", "api.example");
    Ran::of(command).await.failed(
        1,
        &["cannot reach the API server https://api.example:6443/"],
    );
    assert!(heads.lock().unwrap().is_empty());

    place.kubeconfig(&with("http://127.0.0.1:1"), &json!({}));
    place
        .run(&["list"])
        .await
        .failed(1, &["through the proxy 127.0.0.1"]);
}
