//! Port forwards.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout};

use crate::double::{Refuse, Script};
use crate::place::{Place, Ran};

const PATIENCE: Duration = Duration::from_secs(20);

/// A program in the guest: what it does with each connection.
async fn guest<F>(serve: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(serve(connection));
        }
    });
    address
}

/// Answers when the question has ended, as `nc` does: only half-close makes that work.
async fn answers_at_the_end(mut connection: TcpStream) {
    let mut question = Vec::new();
    connection.read_to_end(&mut question).await.unwrap();
    question.reverse();
    let _ = connection.write_all(&question).await;
}

async fn place(half_close: bool) -> Place {
    let place = Place::new().await;
    place.double.workspace("t1", "demo", "vm");
    let address = guest(answers_at_the_end).await;
    place
        .double
        .script("portforward/8000", Script::Tunnel(address, half_close));
    place
}

struct Forwarding {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Forwarding {
    fn start(place: &Place, args: &[&str]) -> Self {
        let args = [&["port-forward", "demo"], args].concat();
        let mut child = place.command(&args).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        line.expect("a line comes").unwrap().expect("a line comes")
    }

    /// The local address of the next `Forwarding from ADDRESS -> PORT`.
    async fn address(&mut self) -> SocketAddr {
        let line = self.line().await;
        let address = line
            .strip_prefix("Forwarding from ")
            .and_then(|l| l.split(" -> ").next());
        address.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
    }

    async fn ends(self, signal: rustix::process::Signal) -> Ran {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap());
        rustix::process::kill_process(pid.unwrap(), signal).unwrap();
        Ran::end(self.child).await
    }
}

async fn ask(address: SocketAddr, question: &[u8]) -> Vec<u8> {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(question).await.unwrap();
    connection.shutdown().await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, connection.read_to_end(&mut answer))
        .await
        .unwrap()
        .unwrap();
    answer
}

#[tokio::test]
async fn ports_are_forwarded_with_kubectls_words_and_each_direction_ends_by_itself() {
    let place = place(true).await;
    let mut forwarding = Forwarding::start(&place, &[":8000", ":http", "--address", "127.0.0.1"]);
    let (one, two) = (forwarding.address().await, forwarding.address().await);
    assert_ne!(one.port(), two.port());
    assert_eq!(ask(one, b"olleh").await, b"hello");
    assert_eq!(
        forwarding.line().await,
        format!("Handling connection for {}", one.port())
    );
    assert_eq!(ask(two, b"dlrow").await, b"world");
    place.double.streams(0).await;
    let ran = forwarding.ends(rustix::process::Signal::INT).await.well();
    assert_eq!(ran.err, "");
}

#[tokio::test]
async fn localhost_is_both_loopbacks_on_one_port() {
    let place = place(true).await;
    let mut forwarding = Forwarding::start(&place, &[":8000"]);
    let first = forwarding.address().await;
    assert_eq!(first.ip().to_string(), "127.0.0.1");
    if TcpListener::bind("[::1]:0").await.is_ok() {
        let line = forwarding.line().await;
        assert_eq!(
            line,
            format!("Forwarding from [::1]:{} -> 8000", first.port())
        );
        let second = format!("[::1]:{}", first.port()).parse().unwrap();
        assert_eq!(ask(second, b"ba").await, b"ab");
    }
}

#[tokio::test]
async fn s_11_a_connection_that_fails_or_is_cut_leaves_the_others_alone() {
    let place = place(true).await;
    // a slow download that nobody waits for
    let endless = guest(|mut connection: TcpStream| async move {
        while connection.write_all(&[7; 4096]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    place
        .double
        .script("portforward/9000", Script::Tunnel(endless.await, true));
    let mut forwarding = Forwarding::start(&place, &[":8000", ":9000", "--address", "127.0.0.1"]);
    let (port, slow) = (forwarding.address().await, forwarding.address().await);
    for _ in 0..3 {
        let mut cut = Vec::new();
        for _ in 0..20 {
            let mut connection = TcpStream::connect(slow).await.unwrap();
            connection.read_exact(&mut [0; 1]).await.unwrap();
            cut.push(connection);
        }
        place.double.streams(20).await;
        drop(cut);
        place.double.streams(0).await;
        assert_eq!(ask(port, b"ba").await, b"ab");
    }
    place
        .double
        .refuse("portforward/8000", Refuse::status(503, "not now"));
    let mut refused = TcpStream::connect(port).await.unwrap();
    let ended = refused.read(&mut [0; 1]).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert_eq!(ask(port, b"ba").await, b"ab");
    let ran = forwarding.ends(rustix::process::Signal::TERM).await;
    ran.failed(143, &["port 8000: not now", "Ended by signal 15"]);
}

#[tokio::test]
async fn without_half_close_it_says_so_once() {
    let place = place(false).await;
    let mut forwarding = Forwarding::start(&place, &[":8000", "--address", "127.0.0.1"]);
    let address = forwarding.address().await;
    for _ in 0..2 {
        assert_eq!(ask(address, b"ba").await, b"");
    }
    place.double.streams(0).await;
    let ran = forwarding.ends(rustix::process::Signal::INT).await.well();
    assert_eq!(
        ran.err
            .matches("the end of one direction cannot be told")
            .count(),
        1,
        "{ran:?}"
    );
}

/// The server's words (`CloseReason::EndedBoth`).
const ENDED_BOTH: &str =
    "your data ended, and the connection with it: this way to the port has no half-close";

#[tokio::test]
async fn where_the_server_has_no_half_close_either_it_says_so_once() {
    let place = place(true).await;
    let script = Script::OneEnd(ENDED_BOTH.to_owned());
    place.double.script("portforward/8000", script);
    let mut forwarding = Forwarding::start(&place, &[":8000", "--address", "127.0.0.1"]);
    let address = forwarding.address().await;
    for _ in 0..2 {
        ask(address, b"ba").await;
    }
    place.double.streams(0).await;
    let ran = forwarding.ends(rustix::process::Signal::INT).await.well();
    let said = "what the guest has not answered by then is lost";
    assert_eq!(ran.err.matches(said).count(), 1, "{ran:?}");
    let args = ["port-forward", "--stdio", "demo", "8000"];
    let ran = place.run_with_input(&args, b"ba").await.well();
    assert_eq!(ran.err.matches(said).count(), 1, "{ran:?}");
    let script = Script::OneEnd(ENDED_BOTH.to_owned());
    place.double.script("demo/ssh", script);
    let args = ["ssh", "--stdio", "demo"];
    let ran = place.run_with_input(&args, b"ba").await.well();
    assert_eq!(ran.err, "", "ssh loses nothing by it");
}

#[tokio::test]
async fn a_guest_that_never_answers_is_not_asked_for_ever() {
    let place = place(true).await;
    let silent = |words: &str| Refuse {
        retry_after: Some(1),
        ..Refuse::status(503, words)
    };
    for _ in 0..3 {
        place.double.refuse("demo/ssh", silent("port 22 refused"));
    }
    let args = ["ssh", "--stdio", "--timeout", "2", "demo"];
    let ran = place.run(&args).await;
    ran.failed(
        255,
        &[
            "Waiting: port 22 refused",
            "asked for 1 s, which --timeout changes",
        ],
    );
}

#[tokio::test]
async fn what_cannot_be_forwarded_is_said_before_anything_listens() {
    let place = place(true).await;
    place
        .run(&["port-forward", "demo", "53:53/udp"])
        .await
        .failed(2, &["UDP"]);
    place
        .run(&["port-forward", "demo", "8080:web"])
        .await
        .failed(1, &["no port named \"web\"", "http (8000)"]);
    place
        .run(&["port-forward", "nobody", "80"])
        .await
        .failed(1, &["\"nobody\" not found"]);
    place
        .run(&["port-forward", "demo", "80", "--address", "example.org"])
        .await
        .failed(1, &["example.org"]);
    let taken = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let held = TcpListener::bind(taken).await.unwrap();
    let port = format!("{}:8000", taken.port());
    let ran = place
        .run(&["port-forward", "demo", &port, "--address", "127.0.0.1"])
        .await;
    ran.failed(1, &["cannot listen on", &taken.to_string()]);
    drop(held);
}

#[tokio::test]
async fn p_13_stdio_carries_bytes_and_ends_with_either_side() {
    let place = place(true).await;
    let args = ["port-forward", "--stdio", "-n", "t1", "demo", "8000"];
    let ran = place.run_with_input(&args, b"\x01\x00olleh").await.well();
    assert_eq!(
        (ran.bytes.as_slice(), ran.err.as_str()),
        (&b"hello\x00\x01"[..], "")
    );

    // the guest ends first
    let greeter = guest(|mut connection: TcpStream| async move {
        let _ = connection.write_all(b"bye").await;
    });
    place
        .double
        .script("portforward/8000", Script::Tunnel(greeter.await, false));
    let mut command = place.command(&args);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let held = child.stdin.take();
    let ran = Ran::end(child).await.well();
    assert_eq!(ran.out, "bye");
    drop(held);

    place.double.refuse(
        "portforward",
        Refuse::status(409, "demo is stopped: start it"),
    );
    let ran = place
        .run(&args)
        .await
        .failed(1, &["error: demo is stopped"]);
    assert_eq!(ran.err.lines().count(), 1);
}

#[tokio::test]
async fn p_13_nothing_is_left_after_the_client_was_killed() {
    let place = place(true).await;
    let silent = guest(|mut connection: TcpStream| async move {
        let _ = connection.read_to_end(&mut Vec::new()).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
    place
        .double
        .script("portforward/8000", Script::Tunnel(silent.await, true));
    let mut command = place.command(&["port-forward", "--stdio", "demo", "8000"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    place.double.streams(1).await;
    // all that a client that was killed leaves: closed pipes
    drop((child.stdin.take(), child.stdout.take()));
    let status = tokio::time::timeout(Duration::from_secs(2), child.wait()).await;
    status.expect("it ends within 2 s").unwrap();
    place.double.streams(0).await;
}
