//! Kubeconfigs of every kind.

use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::double::{Double, Script, Tls};
use crate::place::{Place, Ran, config, script};

const V1: &str = "client.authentication.k8s.io/v1";

#[tokio::test]
async fn tokens_and_impersonation_reach_the_server() {
    let place = Place::new().await;
    place
        .run(&[
            "list",
            "--as",
            "ann",
            "--as-group",
            "g",
            "--as-group",
            "h",
            "--as-uid",
            "7",
        ])
        .await
        .well();
    let headers = place.double.asked().pop().unwrap().headers;
    assert_eq!(headers["authorization"], "Bearer secret");
    assert_eq!(headers["impersonate-user"], "ann");
    assert_eq!(headers["impersonate-uid"], "7");
    let groups: Vec<_> = headers.get_all("impersonate-group").iter().collect();
    assert_eq!(groups, ["g", "h"]);

    place.run(&["list", "--token", "mine"]).await.well();
    assert_eq!(
        place.double.asked().pop().unwrap().headers["authorization"],
        "Bearer mine"
    );
    let mut command = place.command(&["list"]);
    command.env("KUBECTL_WORKSPACE_TOKEN", "from-environment");
    Ran::of(command).await.well();
    assert_eq!(
        place.double.asked().pop().unwrap().headers["authorization"],
        "Bearer from-environment"
    );

    place
        .double
        .change(|world| world.token = Some("other".into()));
    place
        .run(&["list"])
        .await
        .failed(1, &["Unauthorized", "log in again"]);
}

#[tokio::test]
async fn several_files_are_one_kubeconfig_and_contexts_are_chosen() {
    let place = Place::new().await;
    let server = json!({"server": format!("http://{}", place.double.address)});
    std::fs::write(
        place.path("second"),
        config("there", &server, &json!({"token": "second"})),
    )
    .unwrap();
    let list = format!(
        "{}:/nowhere:{}",
        place.path("config").display(),
        place.path("second").display()
    );
    for (args, token) in [
        (&["list"][..], "secret"),
        (&["list", "--context", "there"], "second"),
    ] {
        let mut command = place.command(args);
        command.env("KUBECONFIG", &list);
        Ran::of(command).await.well();
        let asked = place.double.asked().pop().unwrap();
        assert_eq!(asked.headers["authorization"], format!("Bearer {token}"));
    }
    place
        .run(&["list", "--context", "there"])
        .await
        .failed(1, &["context \"there\""]);
    place.run(&["list", "--kubeconfig", "second"]).await.well();
}

#[tokio::test]
async fn p_04_through_kubectl_proxy_a_kubeconfig_needs_no_user() {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    place.double.script(
        "demo/console",
        Script::Say(b"hi".to_vec(), 1000, "ended".into()),
    );
    let server = format!("http://{}", place.double.address);
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "p",
        "contexts": [{"name": "p", "context": {"cluster": "p", "namespace": "t1"}}],
        "clusters": [{"name": "p", "cluster": {"server": server}}]});
    std::fs::write(place.path("config"), text.to_string()).unwrap();
    assert_eq!(place.run(&["console", "demo"]).await.well().out, "hi");
    assert!(
        !place.double.asked()[0]
            .headers
            .contains_key("authorization")
    );
    let mut command = place.command(&["console", "demo", "-n", "t1", "--server", &server]);
    command.env_remove("KUBECONFIG");
    assert_eq!(Ran::of(command).await.well().out, "hi");
}

/// A plugin that counts its runs, prompts, and prints a token that is good for so many seconds.
fn plugin(place: &Place, lines: &str) {
    let text = format!(
        "#!/bin/sh\necho run >> {}\n{lines}\n",
        place.path("runs").display()
    );
    script(&place.path("plugin"), &text);
}

fn exec(mode: &str) -> serde_json::Value {
    json!({"exec": {"apiVersion": V1, "command": "./plugin", "interactiveMode": mode, "provideClusterInfo": true,
        "env": [{"name": "WHO", "value": "me"}]}})
}

fn answer(status: &str) -> String {
    format!(r#"echo '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{status}}}'"#)
}

#[tokio::test]
async fn a_credential_plugin_is_run_beside_its_kubeconfig_and_told_of_the_cluster() {
    let place = Place::new().await;
    let server = format!("http://{}", place.double.address);
    place.kubeconfig(&json!({"server": server}), &exec("IfAvailable"));
    let lines = format!(
        "case $KUBERNETES_EXEC_INFO in *'\"server\":\"{server}\"'*) ;; *) exit 9;; esac\n[ $WHO = me ] || exit 8\n{}",
        answer(r#"{"token":"plugged"}"#)
    );
    plugin(&place, &lines);
    place.run(&["list"]).await.well();
    assert_eq!(
        place.double.asked().pop().unwrap().headers["authorization"],
        "Bearer plugged"
    );

    plugin(&place, "echo 'log in at example.org' >&2; exit 3");
    place
        .run(&["list"])
        .await
        .failed(1, &["log in at example.org", "exit status: 3"]);
    place.kubeconfig(&json!({"server": server}), &exec("Always"));
    let mut command = tokio::process::Command::new("setsid");
    place.surround(&mut command);
    command.args(["--wait", crate::place::PLUGIN, "list"]);
    Ran::of(command)
        .await
        .failed(1, &["wants to prompt and there is no terminal"]);
}

#[tokio::test]
async fn a_plugin_prompts_at_the_terminal_and_never_reads_the_bytes_of_a_connection() {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    place
        .double
        .script("demo/console", Script::Hold(b"login: ".to_vec()));
    let server = format!("http://{}", place.double.address);
    place.kubeconfig(&json!({"server": server}), &exec("IfAvailable"));
    let lines = r#"printf 'Password: ' >&2; read word; [ "$word" = open ] || exit 4"#;
    plugin(
        &place,
        &format!("{lines}\n{}", answer(r#"{"token":"prompted"}"#)),
    );
    let mut person = crate::person::Person::runs(&place, &["console", "demo"]);
    person.sees("Password: ").await;
    person.types(b"open\r").await;
    person.sees("login: ").await;
    person.types(b"\x1d").await;
    assert_eq!(
        person.leaves(std::time::Duration::from_secs(1)).await,
        Some(0)
    );

    // as a ProxyCommand without a terminal: what is on standard input belongs to the connection
    plugin(
        &place,
        &format!("cat >&2\n{}", answer(r#"{"token":"quiet"}"#)),
    );
    place.double.script("demo/ssh", Script::Echo(Vec::new()));
    let mut command = tokio::process::Command::new("setsid");
    place.surround(&mut command);
    command
        .args(["--wait", crate::place::PLUGIN, "ssh", "--stdio", "demo"])
        .stdin(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, b"SSH-2.0-x\r\n")
        .await
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    // the echo gives back the tunnel's own data byte, and the first one belongs to the wire
    let mut echoed = [0; 11];
    tokio::io::AsyncReadExt::read_exact(&mut out, &mut echoed)
        .await
        .unwrap();
    assert_eq!(&echoed, b"SSH-2.0-x\r\n");
}

#[tokio::test]
async fn each_connection_of_a_long_forward_has_a_token_that_serves() {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    place.double.script(
        "portforward/80",
        Script::Say(b"\0x".to_vec(), 1000, "ended".into()),
    );
    let server = format!("http://{}", place.double.address);
    place.kubeconfig(&json!({"server": server}), &json!({"tokenFile": "token"}));
    std::fs::write(place.path("token"), "one").unwrap();
    let mut child = place
        .command(&["port-forward", "demo", ":80", "--address", "127.0.0.1"])
        .spawn()
        .unwrap();
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
    let line = lines.next_line().await.unwrap().unwrap();
    let address = line.split(' ').nth(2).unwrap().to_owned();
    for token in ["two", "three"] {
        std::fs::write(place.path("token"), token).unwrap();
        let mut connection = TcpStream::connect(&address).await.unwrap();
        tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut Vec::new())
            .await
            .unwrap();
        let asked = place.double.asked().pop().unwrap();
        assert_eq!(asked.headers["authorization"], format!("Bearer {token}"));
    }
}

#[tokio::test]
async fn a_token_that_is_refused_is_asked_for_once_more() {
    let place = Place::new().await;
    let server = format!("http://{}", place.double.address);
    place.kubeconfig(&json!({"server": server}), &exec("Never"));
    let count = format!("n=$(wc -l < {})", place.path("runs").display());
    let print = answer(r#"{"token":"t'$n'"}"#);
    plugin(&place, &format!("{count}\n{print}"));
    place.double.change(|world| world.token = Some("t2".into()));
    place.run(&["list"]).await.well();
    place
        .double
        .change(|world| world.token = Some("never".into()));
    place.run(&["list"]).await.failed(1, &["Unauthorized"]);
    let runs = std::fs::read_to_string(place.path("runs")).unwrap();
    assert_eq!(runs.lines().count(), 4, "twice for each command");
}

#[tokio::test]
async fn client_certificates_authorities_and_names_are_checked() {
    let place = Place::of(Double::with(Some(Tls::for_name("api.example"))).await);
    let authority = place.double.authority.as_ref().unwrap();
    let (certificate, key) = authority.client();
    for (name, text) in [
        ("ca.pem", &authority.certificate),
        ("client.pem", &certificate),
        ("client.key", &key),
    ] {
        std::fs::write(place.path(name), text).unwrap();
    }
    let server = format!("https://{}", place.double.address);
    let cluster = json!({"server": server, "certificate-authority": "ca.pem", "tls-server-name": "api.example"});
    let user = json!({"client-certificate": "client.pem", "client-key": "client.key"});
    place.kubeconfig(&cluster, &user);
    place.run(&["list"]).await.well();
    assert!(place.double.asked().pop().unwrap().certificate);

    place.kubeconfig(
        &json!({"server": server, "certificate-authority": "ca.pem"}),
        &json!({}),
    );
    place
        .run(&["list"])
        .await
        .failed(1, &["cannot reach the API server", "not valid for name"]);
    place
        .run(&["list", "--tls-server-name", "api.example"])
        .await
        .well();
    assert!(!place.double.asked().pop().unwrap().certificate);
    place
        .run(&["list", "--insecure-skip-tls-verify"])
        .await
        .well();

    // data of another authority, and the right one on the command line
    let other = Tls::for_name("x").authority.certificate;
    let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, other);
    let cluster = json!({"server": server, "certificate-authority-data": data, "tls-server-name": "api.example"});
    place.kubeconfig(&cluster, &user);
    place.run(&["list"]).await.failed(1, &["certificate"]);
    place
        .run(&["list", "--certificate-authority", "ca.pem"])
        .await
        .well();

    // a certificate that a plugin printed
    let pem = |text: &str| text.replace('\n', "\\\\n");
    let status = format!(
        r#"{{"clientCertificateData":"{}","clientKeyData":"{}"}}"#,
        pem(&certificate),
        pem(&key)
    );
    plugin(&place, &answer(&status).replace("echo '", "printf '"));
    let cluster = json!({"server": server, "certificate-authority": "ca.pem", "tls-server-name": "api.example"});
    place.kubeconfig(&cluster, &exec("Never"));
    place.run(&["list"]).await.well();
    assert!(place.double.asked().pop().unwrap().certificate);
}

#[tokio::test]
async fn a_request_has_a_time_and_a_stream_has_none() {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    place
        .double
        .script("demo/console", Script::Hold(b"login: ".to_vec()));
    let mut child = place
        .command(&["console", "demo", "--request-timeout", "300ms"])
        .spawn()
        .unwrap();
    place.double.streams(1).await;
    let ended = tokio::time::timeout(std::time::Duration::from_millis(900), child.wait()).await;
    assert!(ended.is_err(), "the stream outlives the time of a request");

    let hole = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", hole.local_addr().unwrap());
    let ran = place
        .run(&["list", "--server", &server, "--request-timeout", "300ms"])
        .await;
    ran.failed(1, &["did not answer within 300ms"]);
}
