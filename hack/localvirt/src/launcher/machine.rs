//! The running machine, as the control endpoint sees it.
//!
//! It exists before QEMU does, so that a request during the start is answered in words. Entry point: [`Machine`].

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::protocol::{Action, Phase, Refusal, Status};
use super::qemu::{Accelerator, Sockets};
use super::qmp::{Qmp, QmpError};
use super::serial::Serial;
use super::session::Slot;

/// How long a guest may take to power off before a soft reboot is given up.
const SOFT_REBOOT_TIME: Duration = Duration::from_secs(120);

/// One machine.
#[derive(Debug)]
pub struct Machine {
    sockets: Sockets,
    has_serial: bool,
    has_display: bool,
    live: OnceLock<Live>,
    vnc: Slot,
    stopping: AtomicBool,
}

/// What exists once QEMU is up.
#[derive(Debug)]
pub struct Live {
    /// Its control channel.
    pub qmp: Qmp,
    /// Its serial line.
    pub serial: Option<Serial>,
    /// What it runs on.
    pub accelerator: Accelerator,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// QEMU is not up.
    #[error("the machine is not running")]
    NotRunning,
    /// The spec has no such device.
    #[error("the machine has no {0}")]
    NoDevice(&'static str),
    /// QEMU's side failed.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// The display's picture cannot be read.
    #[error("the picture that QEMU wrote cannot be read")]
    Picture(#[source] std::io::Error),
}

impl MachineError {
    /// What the protocol calls it.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::NotRunning | Self::Qmp(QmpError::Closed) => Refusal::NotRunning,
            Self::NoDevice(_) => Refusal::NoDevice,
            Self::Qmp(_) | Self::Picture(_) => Refusal::Failed,
        }
    }
}

impl Machine {
    /// A machine that is being prepared.
    pub fn new(sockets: Sockets, has_serial: bool, has_display: bool) -> Self {
        let (live, vnc, stopping) = (OnceLock::new(), Slot::default(), AtomicBool::new(false));
        Self {
            sockets,
            has_serial,
            has_display,
            live,
            vnc,
            stopping,
        }
    }

    /// QEMU is up. A second call changes nothing.
    pub fn set_live(&self, live: Live) {
        // there is one start in a launcher's life
        let _ = self.live.set(live);
    }

    /// Kubernetes wants the machine to end.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn live(&self) -> Result<&Live, MachineError> {
        self.live.get().ok_or(MachineError::NotRunning)
    }

    /// The serial line.
    pub fn serial(&self) -> Result<&Serial, MachineError> {
        if !self.has_serial {
            return Err(MachineError::NoDevice("serial console"));
        }
        self.live()?.serial.as_ref().ok_or(MachineError::NotRunning)
    }

    /// The place of the display's one session, and where to dial the display.
    pub fn display(&self) -> Result<(&Slot, &PathBuf), MachineError> {
        if !self.has_display {
            return Err(MachineError::NoDevice("display"));
        }
        self.live()?;
        Ok((&self.vnc, &self.sockets.vnc))
    }

    /// How it is.
    pub fn status(&self) -> Status {
        let live = self.live.get();
        let state = live.map(|l| l.qmp.state()).unwrap_or_default();
        let stopping = self.stopping.load(Ordering::Relaxed);
        Status {
            phase: phase(live.is_some(), stopping || state.powered_off, state.paused),
            accelerator: live.map_or("", |l| l.accelerator.name()).to_owned(),
            agent_connected: state.agent_connected,
            console_active: live
                .and_then(|l| l.serial.as_ref())
                .is_some_and(|s| s.slot().is_held()),
            vnc_active: self.vnc.is_held(),
        }
    }

    /// Does `action`. A soft reboot goes on after this has returned.
    pub async fn act(&self, action: Action) -> Result<(), MachineError> {
        let qmp = &self.live()?.qmp;
        let command = match action {
            Action::Pause => "stop",
            Action::Unpause => "cont",
            Action::Reset => "system_reset",
            Action::Powerdown => "system_powerdown",
            Action::SoftReboot => {
                qmp.execute("set-action", json!({ "shutdown": "pause" }))
                    .await?;
                tokio::spawn(boot_again(qmp.clone()));
                "system_powerdown"
            }
        };
        qmp.execute(command, json!({})).await?;
        Ok(())
    }

    /// Presses the power button for Kubernetes: a power-off then ends QEMU, and a paused guest is woken to hear it.
    pub async fn press_power_button(&self) -> Result<(), MachineError> {
        let qmp = &self.live()?.qmp;
        qmp.execute("set-action", json!({ "shutdown": "poweroff" }))
            .await?;
        if qmp.state().paused {
            qmp.execute("cont", json!({})).await?;
        }
        qmp.execute("system_powerdown", json!({})).await?;
        Ok(())
    }

    /// Pulls the plug.
    pub async fn quit(&self) -> Result<(), MachineError> {
        self.live()?.qmp.execute("quit", json!({})).await?;
        Ok(())
    }

    /// The display as PNG.
    pub async fn screendump(&self) -> Result<Vec<u8>, MachineError> {
        self.display()?;
        let file = self
            .sockets
            .vnc
            .with_file_name(format!("screen-{}.png", uuid::Uuid::new_v4()));
        let arguments = json!({ "filename": file.to_string_lossy(), "format": "png" });
        let written = self.live()?.qmp.execute("screendump", arguments).await;
        let picture = tokio::fs::read(&file).await;
        let _ = tokio::fs::remove_file(&file).await;
        written?;
        picture.map_err(MachineError::Picture)
    }
}

fn phase(live: bool, stopping: bool, paused: bool) -> Phase {
    match (live, stopping, paused) {
        (_, true, _) => Phase::ShuttingDown,
        (false, false, _) => Phase::Starting,
        (true, false, true) => Phase::Paused,
        (true, false, false) => Phase::Running,
    }
}

/// The second half of a soft reboot: the guest has powered off and QEMU waits, paused.
async fn boot_again(qmp: Qmp) {
    let off =
        tokio::time::timeout(SOFT_REBOOT_TIME, qmp.wait_until(|state| state.powered_off)).await;
    let commands: &[_] = match off {
        Ok(Ok(())) => &[
            ("system_reset", json!({})),
            ("set-action", json!({ "shutdown": "poweroff" })),
            ("cont", json!({})),
        ],
        Ok(Err(_)) => return,
        Err(_) => &[("set-action", json!({ "shutdown": "poweroff" }))],
    };
    for (command, arguments) in commands {
        if let Err(e) = qmp.execute(command, arguments.clone()).await {
            tracing::warn!(command, error = %e, "the soft reboot stopped half-way");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phase_is_the_latest_that_is_true() {
        let cases = [
            ((false, false, false), Phase::Starting),
            ((true, false, false), Phase::Running),
            ((true, false, true), Phase::Paused),
            ((true, true, true), Phase::ShuttingDown),
            ((false, true, false), Phase::ShuttingDown),
        ];
        for ((live, stopping, paused), expected) in cases {
            assert_eq!(phase(live, stopping, paused), expected);
        }
    }

    #[tokio::test]
    async fn before_qemu_is_up_requests_are_refused_in_words() {
        let machine = Machine::new(Sockets::in_dir("/nowhere".as_ref()), true, false);
        assert_eq!(machine.status().phase, Phase::Starting);
        assert_eq!(machine.serial().unwrap_err().refusal(), Refusal::NotRunning);
        assert_eq!(machine.display().unwrap_err().refusal(), Refusal::NoDevice);
        assert_eq!(
            machine.act(Action::Pause).await.unwrap_err().refusal(),
            Refusal::NotRunning
        );
    }
}
