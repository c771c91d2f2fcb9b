//! `workspaces/proxy` from a client's socket to a scripted guest's, and back: every byte of both is
//! written and read here.

mod hostile;
mod pages;
mod passing;
mod upgrades;

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::world::World;

const SOON: Duration = Duration::from_secs(20);
const PREFIX: &str = "/apis/kubeworkspaces.io/v1alpha1/namespaces/t1/workspaces/demo/proxy";

/// A server and a guest that listens.
struct Proxied {
    world: World,
    guests: TcpListener,
}

/// One side of an exchange.
struct Side(TcpStream);

impl Proxied {
    async fn new() -> Self {
        Self::of(World::new("vm").await).await
    }

    async fn of(world: World) -> Self {
        world.verbs.0.lock().extend(["update", "patch", "delete"]);
        let guests = world.pods.listen().await;
        Self { world, guests }
    }

    /// A client that has sent a request: `GET /x`, further header lines, and a body.
    async fn ask(&self, line: &str, rest: &str) -> Side {
        let (method, target) = line.split_once(' ').unwrap();
        let mut client = Side(self.world.connection().await);
        let request =
            format!("{method} {PREFIX}{target} HTTP/1.1\r\nhost: kw.example.org\r\n{rest}");
        client.send(&request).await;
        client
    }

    /// The next connection to the guest.
    async fn guest(&self) -> Side {
        let accepted = timeout(SOON, self.guests.accept()).await;
        Side(accepted.unwrap().unwrap().0)
    }

    /// A request without a body, at both ends: the client, the guest, and the head that it got.
    async fn exchange(&self, line: &str, headers: &str) -> (Side, Side, String) {
        let client = self.ask(line, &format!("{headers}\r\n")).await;
        let mut guest = self.guest().await;
        let head = guest.head().await;
        (client, guest, head)
    }

    /// What the client gets for a guest's answer.
    async fn answered(&self, line: &str, headers: &str, answer: &str) -> String {
        let headers = format!("connection: close\r\n{headers}");
        let (client, mut guest, _) = self.exchange(line, &headers).await;
        guest.send(answer).await;
        drop(guest);
        client.rest().await
    }

    /// What the client gets that nothing is dialled for.
    async fn refused(&self, line: &str, headers: &str) -> String {
        let rest = format!("connection: close\r\n{headers}\r\n");
        let answer = self.ask(line, &rest).await.rest().await;
        assert!(self.world.pods.dialled.lock().is_empty(), "{line}");
        answer
    }
}

impl Side {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// To the end of a head.
    async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(SOON, self.0.read_u8()).await.unwrap().unwrap());
        }
        String::from_utf8(head).unwrap()
    }

    async fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut got = vec![0; expected.len()];
        let read = timeout(SOON, self.0.read_exact(&mut got)).await;
        read.unwrap().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&got),
            String::from_utf8_lossy(expected)
        );
    }

    /// Everything that is still to come.
    async fn rest(mut self) -> String {
        let mut all = Vec::new();
        let read = timeout(SOON, self.0.read_to_end(&mut all)).await;
        // A reset is an end too.
        let _ = read.unwrap();
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Waits until the other end is gone.
    async fn left(mut self) {
        let gone = async { while matches!(self.0.read(&mut [0; 1024]).await, Ok(1..)) {} };
        timeout(SOON, gone).await.unwrap();
    }
}

/// The value of a header.
fn header<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let of = |line: &'a str| {
        let (field, value) = line.split_once(": ")?;
        field.eq_ignore_ascii_case(name).then_some(value)
    };
    head.split("\r\n").filter_map(of).collect()
}

fn code(answer: &str) -> u16 {
    answer[9..12].parse().unwrap()
}
