//! The guestless machines that run here: who holds their console and display, and what is done to them.

use std::{collections::HashMap, io::Cursor, net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    io::{DuplexStream, copy_bidirectional, duplex, join, sink},
    net::TcpStream,
    sync::watch,
};
use tokio_util::sync::CancellationToken;

use super::{Script, held::Hold, picture, play};
use crate::{
    dial::{Answer, Duplex},
    launcher::{
        protocol::{Action, Phase, Refusal, Reply, Request, Status},
        session::{Session, Slot},
    },
};

/// Bytes under way in each direction of a stream.
const PIPE: usize = 16 << 10;

/// All guestless machines, by the UID of their instance. A clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Guestless {
    boards: Arc<Mutex<HashMap<String, Arc<Board>>>>,
    /// Ports that lead to a server of whoever runs this, by their numbers.
    servers: Arc<Mutex<HashMap<String, SocketAddr>>>,
}

/// One machine.
#[derive(Debug)]
pub(super) struct Board {
    console: Slot,
    display: Slot,
    /// Whether its processors would stand still.
    pub(super) paused: watch::Sender<bool>,
    /// Which picture is on the display.
    pub(super) picture: watch::Sender<u32>,
    /// Ends its streams: replaced by a migration, final at the machine's end.
    cut: Mutex<CancellationToken>,
}

impl Guestless {
    /// The machine runs from now on; one that does so already stays as it is.
    pub fn boot(&self, instance_uid: &str, paused: bool) {
        let mut boards = self.boards.lock();
        boards.entry(instance_uid.to_owned()).or_insert_with(|| {
            Arc::new(Board {
                console: Slot::default(),
                display: Slot::default(),
                paused: watch::Sender::new(paused),
                picture: watch::Sender::new(0),
                cut: Mutex::default(),
            })
        });
    }

    /// The machine is gone, and its streams are cut.
    pub fn shut(&self, instance_uid: &str) {
        if let Some(board) = self.boards.lock().remove(instance_uid) {
            board.cut.lock().cancel();
        }
    }

    /// The machine is on another node: the streams to the old one are cut.
    pub fn hand_over(&self, instance_uid: &str) {
        if let Some(board) = self.boards.lock().get(instance_uid) {
            std::mem::take(&mut *board.cut.lock()).cancel();
        }
    }

    /// Answers as the machine's launcher would; `None` without such a machine.
    pub async fn ask(
        &self,
        instance_uid: &str,
        script: Script,
        request: &Request,
    ) -> Option<Answer> {
        let board = self.boards.lock().get(instance_uid).cloned()?;
        Some(match request {
            Request::Console => {
                let session = board.console.take().await;
                stream(&board, session, |far, board| {
                    play::console(script, far, board)
                })
            }
            Request::Vnc { preserve_session } => {
                let taken = if *preserve_session {
                    board.display.take_free().ok()
                } else {
                    Some(board.display.take().await)
                };
                match taken {
                    Some(session) => stream(&board, session, |far, board| {
                        play::display(script, far, board)
                    }),
                    None => refused(Refusal::ActiveVnc, "Active VNC connection. Request denied."),
                }
            }
            Request::Status => said(Reply::Status(board.status())),
            Request::Screendump => image(picture::png(*board.picture.borrow())),
            Request::Act { action } => {
                board.act(*action);
                said(Reply::Done)
            }
        })
    }

    /// From now on a port of every machine leads to this server instead of being played.
    pub fn serve(&self, port: u16, server: SocketAddr) {
        self.servers.lock().insert(port.to_string(), server);
    }

    /// A connection to a port, which is played as the console is, unless it is served. `None` without such
    /// a machine.
    pub fn port(&self, instance_uid: &str, script: Script, number: &str) -> Option<DuplexStream> {
        let board = self.boards.lock().get(instance_uid).cloned()?;
        let (near, far) = duplex(PIPE);
        let cut = board.cut.lock().clone();
        let server = self.servers.lock().get(number).copied();
        tokio::spawn(async move {
            let playing = async {
                match server {
                    Some(server) => lead_to(server, far).await,
                    None => play::port(script, far, &board).await,
                }
            };
            tokio::select! {
                () = cut.cancelled() => {}
                () = playing => {}
            }
        });
        Some(near)
    }
}

impl Board {
    fn status(&self) -> Status {
        Status {
            phase: if *self.paused.borrow() {
                Phase::Paused
            } else {
                Phase::Running
            },
            accelerator: "none".to_owned(),
            agent_connected: false,
            console_active: self.console.is_held(),
            vnc_active: self.display.is_held(),
        }
    }

    fn act(&self, action: Action) {
        match action {
            Action::Pause => drop(self.paused.send_replace(true)),
            Action::Unpause => drop(self.paused.send_replace(false)),
            // A machine that starts again shows what it showed at first; its streams stay, as QEMU's do.
            Action::Reset | Action::SoftReboot => drop(self.picture.send_replace(0)),
            // Nothing asks for it: what ends a guestless machine is the end of its Pod.
            Action::Powerdown => {}
        }
    }
}

/// A server that does not answer is a port that closes at once.
async fn lead_to(server: SocketAddr, mut far: DuplexStream) {
    if let Ok(mut near) = TcpStream::connect(server).await {
        let _ = copy_bidirectional(&mut near, &mut far).await;
    }
}

fn stream<F, P>(board: &Arc<Board>, session: Session, play: P) -> Answer
where
    F: Future<Output = ()> + Send + 'static,
    P: FnOnce(DuplexStream, Arc<Board>) -> F,
{
    let (near, far) = duplex(PIPE);
    let (taken, cut) = (session.token(), board.cut.lock().clone());
    let hold = Hold::new(session);
    let near = hold.clone().with(near);
    let played = play(far, board.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = taken.cancelled() => {}
            () = cut.cancelled() => {}
            () = played => {}
        }
        hold.release();
    });
    Answer {
        reply: Reply::Stream,
        stream: Box::new(near),
    }
}

fn said(reply: Reply) -> Answer {
    let stream: Box<dyn Duplex> = Box::new(join(tokio::io::empty(), sink()));
    Answer { reply, stream }
}

fn refused(refusal: Refusal, message: &str) -> Answer {
    said(Reply::Refused {
        refusal,
        message: message.to_owned(),
    })
}

fn image(picture: Vec<u8>) -> Answer {
    Answer {
        reply: Reply::Image {
            length: picture.len() as u64,
        },
        stream: Box::new(join(Cursor::new(picture), sink())),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn ask(machines: &Guestless, request: Request) -> Answer {
        machines.ask("uid", Script::Echo, &request).await.unwrap()
    }

    fn running() -> Guestless {
        let machines = Guestless::default();
        machines.boot("uid", false);
        machines
    }

    async fn status(machines: &Guestless) -> Status {
        match ask(machines, Request::Status).await.reply {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    const PRESERVE: Request = Request::Vnc {
        preserve_session: true,
    };

    #[tokio::test]
    async fn the_last_console_wins_and_the_first_ends() {
        let machines = running();
        let mut first = ask(&machines, Request::Console).await.stream;
        let mut second = ask(&machines, Request::Console).await.stream;
        first.read_to_end(&mut Vec::new()).await.unwrap();
        second.write_all(b"hello").await.unwrap();
        let mut line = vec![0; play::GREETING.len() + 5];
        second.read_exact(&mut line).await.unwrap();
        assert!(line.ends_with(b"hello"));
    }

    #[tokio::test]
    async fn a_display_is_free_the_moment_its_stream_is_dropped() {
        let machines = running();
        for _ in 0..100 {
            let held = ask(&machines, PRESERVE).await;
            assert_eq!(held.reply, Reply::Stream);
            let refused = ask(&machines, PRESERVE).await.reply;
            assert!(
                matches!(
                    refused,
                    Reply::Refused {
                        refusal: Refusal::ActiveVnc,
                        ..
                    }
                ),
                "{refused:?}"
            );
            drop(held);
        }
    }

    #[tokio::test]
    async fn the_end_of_the_machine_and_a_migration_cut_its_streams() {
        let machines = running();
        let mut console = ask(&machines, Request::Console).await.stream;
        machines.hand_over("uid");
        console.read_to_end(&mut Vec::new()).await.unwrap();
        let mut again = ask(&machines, Request::Console).await.stream;
        let mut port = machines.port("uid", Script::Silent, "1").unwrap();
        machines.shut("uid");
        again.read_to_end(&mut Vec::new()).await.unwrap();
        port.read_to_end(&mut Vec::new()).await.unwrap();
        assert!(
            machines
                .ask("uid", Script::Echo, &Request::Status)
                .await
                .is_none()
        );
    }

    #[tokio::test]
    async fn a_paused_machine_says_so_and_says_nothing_else() {
        let machines = running();
        let act = |action| Request::Act { action };
        ask(&machines, act(Action::Pause)).await;
        assert_eq!(status(&machines).await.phase, Phase::Paused);
        let mut console = ask(&machines, Request::Console).await.stream;
        let mut byte = [0];
        let silence = tokio::time::timeout(
            std::time::Duration::from_millis(20),
            console.read(&mut byte),
        )
        .await;
        assert!(silence.is_err());
        assert!(status(&machines).await.console_active);
        ask(&machines, act(Action::Unpause)).await;
        console.read_exact(&mut byte).await.unwrap();
        assert_eq!(byte[0], play::GREETING[0]);
    }

    #[tokio::test]
    async fn a_picture_is_a_png_of_the_length_that_is_said() {
        let mut answer = ask(&running(), Request::Screendump).await;
        let mut png = Vec::new();
        answer.stream.read_to_end(&mut png).await.unwrap();
        assert_eq!(
            answer.reply,
            Reply::Image {
                length: png.len() as u64
            }
        );
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    }
}
