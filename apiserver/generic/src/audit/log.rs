//! Where audit events are written.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, Write},
    path::Path,
};

use tokio::sync::{mpsc, oneshot};

use crate::Metrics;

/// Events that may wait to be written.
const QUEUE: usize = 10_000;

enum Message {
    Line(String),
    /// Everything before it is written, then the sender is told.
    Close(oneshot::Sender<()>),
}

/// The audit log. Clones write to the same one.
#[derive(Clone)]
pub struct AuditLog {
    queue: Option<mpsc::Sender<Message>>,
    metrics: Metrics,
}

impl AuditLog {
    /// No log: events are made by nobody and go nowhere.
    pub fn off(metrics: Metrics) -> Self {
        Self {
            queue: None,
            metrics,
        }
    }

    /// Appends to a file, or writes to standard output when the path is `-`.
    ///
    /// The file is never rotated by the server: it is opened for appending, so logrotate's
    /// `copytruncate` works.
    ///
    /// # Errors
    /// When the file cannot be opened for appending or the writing thread cannot be started.
    pub fn open(path: &Path, metrics: Metrics) -> io::Result<Self> {
        let out: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            Box::new(OpenOptions::new().create(true).append(true).open(path)?)
        };
        Self::writing_to(out, metrics)
    }

    /// Writes to `out` in a thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn writing_to(out: Box<dyn Write + Send>, metrics: Metrics) -> io::Result<Self> {
        let (queue, receiver) = mpsc::channel(QUEUE);
        let counts = metrics.clone();
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write_all(receiver, BufWriter::new(out), &counts))?;
        Ok(Self {
            queue: Some(queue),
            metrics,
        })
    }

    /// Takes one line. It never waits: when the queue is full, the line is lost and counted.
    pub(super) fn write(&self, line: String) {
        let Some(queue) = &self.queue else {
            return;
        };
        self.metrics.audit_events.inc();
        if queue.try_send(Message::Line(line)).is_err()
            && self.metrics.audit_lost.inc().is_multiple_of(1_000)
        {
            tracing::error!("the audit log cannot keep up; events are being lost");
        }
    }

    /// Returns when everything that was taken before is written.
    pub async fn close(&self) {
        let Some(queue) = &self.queue else {
            return;
        };
        let (done, written) = oneshot::channel();
        if queue.send(Message::Close(done)).await.is_ok() {
            // An error means that the thread is gone, and with it the queue.
            let _ = written.await;
        }
    }
}

fn write_all(mut queue: mpsc::Receiver<Message>, mut out: impl Write, metrics: &Metrics) {
    let mut failing = false;
    while let Some(message) = queue.blocking_recv() {
        let result = match message {
            Message::Line(line) => writeln!(out, "{line}").and_then(|()| {
                if queue.is_empty() {
                    out.flush()
                } else {
                    Ok(())
                }
            }),
            Message::Close(done) => {
                let result = out.flush();
                // Whoever asked may have given up waiting.
                let _ = done.send(());
                result
            }
        };
        if let Err(error) = &result {
            metrics.audit_lost.inc();
            if !failing {
                tracing::error!(%error, "cannot write the audit log");
            }
        }
        failing = result.is_err();
    }
}
