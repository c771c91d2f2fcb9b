//! Finds out whether KVM really works.
//!
//! That `/dev/kvm` opens proves nothing: in some microVMs it creates a machine and then fails in emulation. So three
//! things are asked: the processor's flag, the device, and a machine that runs the firmware to its end.
//! Entry point: [`choose`].

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::qemu::{Accelerator, PROGRAM};
use super::spec::AcceleratorChoice;

/// The firmware needs a tenth of it under a KVM that works.
const PROBE_TIME: Duration = Duration::from_secs(3);
/// What SeaBIOS says when it has been through its whole start and there is no disk.
const FIRMWARE_DONE: &str = "No bootable device";

/// What to run the guest on, with the reason.
pub async fn choose(choice: AcceleratorChoice, dir: &Path) -> (Accelerator, &'static str) {
    if choice == AcceleratorChoice::Tcg {
        return (Accelerator::Tcg, "as the spec says");
    }
    let flags = tokio::fs::read_to_string("/proc/cpuinfo")
        .await
        .unwrap_or_default();
    if !has_virtualization(&flags) {
        return (Accelerator::Tcg, "the processor has neither vmx nor svm");
    }
    if let Err(e) = tokio::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .await
    {
        tracing::debug!(error = %e, "cannot open /dev/kvm");
        return (Accelerator::Tcg, "/dev/kvm cannot be opened");
    }
    if firmware_runs(dir).await {
        (Accelerator::Kvm, "a probe machine ran its firmware")
    } else {
        (
            Accelerator::Tcg,
            "a probe machine did not get through its firmware under KVM",
        )
    }
}

/// Whether a `flags` line names Intel's or AMD's virtualization.
fn has_virtualization(cpuinfo: &str) -> bool {
    let flags = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("flags"))
        .unwrap_or_default();
    flags
        .split_whitespace()
        .any(|flag| flag == "vmx" || flag == "svm")
}

/// Runs a machine without a disk under KVM and reads what its firmware writes to the debug port.
async fn firmware_runs(dir: &Path) -> bool {
    let log = dir.join("kvm-probe.log");
    let chardev = format!("file,id=debug,path={}", log.display());
    let machine = [
        "-accel",
        "kvm",
        "-machine",
        "q35",
        "-m",
        "64",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
    ];
    let spawned = Command::new(PROGRAM)
        .args(machine)
        .args([
            "-chardev",
            &chardev,
            "-device",
            "isa-debugcon,iobase=0x402,chardev=debug",
        ])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut child) = spawned else { return false };
    let done = async {
        loop {
            let text = tokio::fs::read(&log).await.unwrap_or_default();
            if String::from_utf8_lossy(&text).contains(FIRMWARE_DONE) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let runs = tokio::select! {
        runs = tokio::time::timeout(PROBE_TIME, done) => runs.unwrap_or(false),
        _ = child.wait() => false,
    };
    // the probe is over either way; what cannot be killed has ended
    let _ = child.kill().await;
    let _ = tokio::fs::remove_file(&log).await;
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_flag_counts() {
        let cases = [
            ("processor : 0\nflags\t\t: fpu vmx sse\n", true),
            ("flags : svm\n", true),
            ("flags : svm_lock vmxnet\n", false),
            ("model name : vmx\nflags : fpu\n", false),
            ("", false),
        ];
        for (cpuinfo, expected) in cases {
            assert_eq!(has_virtualization(cpuinfo), expected, "{cpuinfo:?}");
        }
    }
}
