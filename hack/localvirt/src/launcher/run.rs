//! A launcher's life: prepare the disks, start QEMU, serve localvirt, and end the guest gracefully.
//!
//! Entry point: [`run`].

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, UnixListener};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::accelerator;
use super::control;
use super::disks::{self, DiskError};
use super::forward;
use super::machine::{Live, Machine};
use super::qemu::{self, Accelerator, Sockets};
use super::qmp::{Qmp, QmpError};
use super::serial::{STALL, Serial};
use super::spec::{SPEC_FILE, Spec, SpecError};
use super::tls::{self, TlsError};

/// QEMU dials our sockets before it does anything slow.
const DIAL_TIME: Duration = Duration::from_secs(20);
/// A guest early in its boot hears no button, so it is pressed again.
const BUTTON_EVERY: Duration = Duration::from_secs(3);
/// After `quit`, or when `quit` is not heard.
const PLUG_TIME: Duration = Duration::from_secs(2);
/// Chunks of console output that wait for standard output.
const LOG_QUEUE: usize = 64;

/// Where a launcher finds and puts things.
#[derive(Clone, Debug)]
pub struct Places {
    /// The mounted Secret.
    pub config: PathBuf,
    /// Sockets and overlays.
    pub run: PathBuf,
}

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The guest powered off.
    PoweredOff,
    /// The grace period was over, and the plug was pulled.
    PlugPulled,
    /// QEMU died.
    QemuDied(Option<i32>),
}

/// Why a machine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file cannot be read.
    #[error("cannot read {path:?}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The spec is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A disk cannot be made.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A socket cannot be opened.
    #[error("cannot listen on {0}")]
    Listen(String, #[source] io::Error),
    /// QEMU is not there, or signals cannot be heard.
    #[error("cannot start {0}")]
    Spawn(&'static str, #[source] io::Error),
    /// QEMU ended, or never dialled.
    #[error("QEMU did not come up: {0}; its own words are above in the log")]
    Dial(&'static str),
    /// QEMU's control channel.
    #[error("QEMU's control channel")]
    Qmp(#[from] QmpError),
}

impl Outcome {
    /// The exit code: 0 after a power-off, 2 when QEMU died, 3 when the plug was pulled; 1 is a failed start.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::PoweredOff => 0,
            Self::QemuDied(_) => 2,
            Self::PlugPulled => 3,
        }
    }

    /// For the termination message.
    pub fn message(self) -> String {
        match self {
            Self::PoweredOff => "the guest powered off".into(),
            Self::PlugPulled => {
                "the guest did not power off within the grace period and was cut".into()
            }
            Self::QemuDied(Some(code)) => format!("QEMU ended with exit code {code}"),
            Self::QemuDied(None) => "QEMU was ended by a signal".into(),
        }
    }

    fn of(status: ExitStatus, plug_pulled: bool) -> Self {
        match (plug_pulled, status.success()) {
            (true, _) => Self::PlugPulled,
            (false, true) => Self::PoweredOff,
            (false, false) => Self::QemuDied(status.code()),
        }
    }
}

/// Runs the machine of the spec in `places` to its end.
pub async fn run(places: &Places) -> Result<Outcome, StartError> {
    let spec = read_spec(&places.config)?;
    let sockets = Sockets::in_dir(&places.run);
    let machine = Arc::new(Machine::new(
        sockets.clone(),
        spec.serial_console,
        spec.graphics,
    ));
    let listener = control_listener(spec.control_port).await?;
    tokio::spawn(control::serve(
        listener,
        tls::acceptor(&places.config)?,
        machine.clone(),
    ));
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|e| StartError::Spawn("the signal handler", e))?;
    let mut child = tokio::select! {
        started = start(&spec, &places.run, &sockets, &machine) => started?,
        // nothing runs yet that could be ended gracefully
        _ = terminate.recv() => return Ok(Outcome::PlugPulled),
    };
    let status = tokio::select! {
        status = child.wait() => status,
        _ = terminate.recv() => return end(&mut child, &machine, spec.grace_period_seconds).await,
    };
    Ok(Outcome::of(
        status.map_err(|e| StartError::Spawn(qemu::PROGRAM, e))?,
        false,
    ))
}

fn read_spec(config: &Path) -> Result<Spec, StartError> {
    let path = config.join(SPEC_FILE);
    let json = std::fs::read(&path).map_err(|source| StartError::Read { path, source })?;
    Ok(Spec::from_json(&json)?)
}

/// On both families where there are two, else on IPv4.
async fn control_listener(port: u16) -> Result<TcpListener, StartError> {
    match TcpListener::bind(("::", port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => {
            let v4 = TcpListener::bind(("0.0.0.0", port)).await;
            v4.map_err(|e| StartError::Listen(format!("control port {port}"), e))
        }
    }
}

/// From the spec to a QEMU that answers.
async fn start(
    spec: &Spec,
    dir: &Path,
    sockets: &Sockets,
    machine: &Machine,
) -> Result<Child, StartError> {
    let (accelerator, why) = accelerator::choose(spec.accelerator, dir).await;
    tracing::info!(accelerator = accelerator.name(), why, "accelerator");
    let prepared = disks::prepare(spec, dir).await?;
    let description = describe(spec, accelerator, prepared);
    let (serial, qmp) = (listen(&sockets.serial)?, listen(&sockets.qmp)?);
    let mut child = Command::new(qemu::PROGRAM)
        .args(qemu::arguments(&description, sockets))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| StartError::Spawn(qemu::PROGRAM, e))?;
    let up = async {
        let qmp = Qmp::start(accept(&qmp).await?).await?;
        let serial = match spec.serial_console {
            true => Some(Serial::start(
                accept(&serial).await?,
                STALL,
                console_log(spec.log_serial_console),
            )),
            false => None,
        };
        Ok::<_, StartError>(Live {
            qmp,
            serial,
            accelerator,
        })
    };
    let live = tokio::select! {
        live = tokio::time::timeout(DIAL_TIME, up) => live.map_err(|_| StartError::Dial("it did not dial its sockets"))??,
        _ = child.wait() => return Err(StartError::Dial("it ended")),
    };
    machine.set_live(live);
    if let Some(interface) = &spec.interface {
        forward::start(interface);
    }
    tracing::info!("the machine is up");
    Ok(child)
}

fn describe(spec: &Spec, accelerator: Accelerator, prepared: disks::Prepared) -> qemu::Machine {
    qemu::Machine {
        name: format!("{}/{}", spec.namespace, spec.name),
        memory_mib: spec.memory_mib,
        cpus: spec.cpus,
        accelerator,
        kernel: prepared.kernel,
        disks: prepared.disks,
        interface: spec.interface.clone(),
        serial_console: spec.serial_console,
        graphics: spec.graphics,
        devices: spec.devices.clone(),
        start_paused: spec.start_paused,
    }
}

/// A fresh socket: a container restarted in place finds its predecessor's.
fn listen(path: &Path) -> Result<UnixListener, StartError> {
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).map_err(|e| StartError::Listen(path.display().to_string(), e))
}

async fn accept(listener: &UnixListener) -> Result<tokio::net::UnixStream, StartError> {
    let accepted = listener
        .accept()
        .await
        .map_err(|e| StartError::Listen("QEMU's socket".into(), e))?;
    Ok(accepted.0)
}

/// Standard output, for `kubectl logs`, when the spec wants the console there.
fn console_log(wanted: bool) -> Option<mpsc::Sender<Bytes>> {
    let (log, mut logged) = mpsc::channel::<Bytes>(LOG_QUEUE);
    wanted.then(|| {
        tokio::spawn(async move {
            let mut out = tokio::io::stdout();
            while let Some(chunk) = logged.recv().await {
                if out.write_all(&chunk).await.is_err() || out.flush().await.is_err() {
                    return;
                }
            }
        });
        log
    })
}

/// The power button, again and again, and the plug when the grace period is over.
async fn end(
    child: &mut Child,
    machine: &Machine,
    grace_seconds: u32,
) -> Result<Outcome, StartError> {
    machine.set_stopping();
    tracing::info!(grace_seconds, "asked to end: pressing the power button");
    let grace = tokio::time::sleep(Duration::from_secs(grace_seconds.into()));
    tokio::pin!(grace);
    let mut again = tokio::time::interval(BUTTON_EVERY);
    let wait = |e| StartError::Spawn(qemu::PROGRAM, e);
    loop {
        tokio::select! {
            status = child.wait() => return Ok(Outcome::of(status.map_err(wait)?, false)),
            () = &mut grace => break,
            _ = again.tick() => {
                if let Err(e) = machine.press_power_button().await {
                    tracing::warn!(error = %e, "the power button does not work");
                }
            }
        }
    }
    tracing::warn!("the grace period is over: pulling the plug");
    // a QEMU that does not hear it is killed below
    let _ = tokio::time::timeout(PLUG_TIME, machine.quit()).await;
    if tokio::time::timeout(PLUG_TIME, child.wait()).await.is_err() {
        child.kill().await.map_err(wait)?;
    }
    Ok(Outcome::PlugPulled)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn an_outcome_says_who_ended_the_machine() {
        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        let cases = [
            (exit(0), false, Outcome::PoweredOff, 0),
            (exit(1), false, Outcome::QemuDied(Some(1)), 2),
            (ExitStatus::from_raw(9), false, Outcome::QemuDied(None), 2),
            (exit(0), true, Outcome::PlugPulled, 3),
        ];
        for (status, pulled, outcome, code) in cases {
            assert_eq!(Outcome::of(status, pulled), outcome);
            assert_eq!(outcome.exit_code(), code, "{}", outcome.message());
        }
    }

    #[tokio::test]
    async fn a_socket_left_behind_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qmp");
        drop(listen(&path).unwrap());
        assert!(path.exists());
        listen(&path).unwrap();
    }
}
