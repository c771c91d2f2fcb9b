//! Makes the disks of a spec: overlays over containerDisks, blank disks, and the NoCloud medium.
//!
//! What is made lies in the run directory and ends with the pod. Entry point: [`prepare`].

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::container_disk::{self, ContainerDiskError, Format, Kernel};
use super::nocloud;
use super::qemu::PreparedDisk;
use super::seed::{Seed, SeedError};
use super::spec::{Bus, Disk, DiskKind, DiskSource, Spec};

/// Disks that QEMU can open, and the kernel to boot with.
#[derive(Debug)]
pub struct Prepared {
    /// Disks in the guest's order.
    pub disks: Vec<PreparedDisk>,
    /// The boot disk's kernel.
    pub kernel: Option<Kernel>,
}

/// Why a disk cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The image is not usable.
    #[error("disk {name}: {source}")]
    Image {
        /// The disk.
        name: String,
        /// Why.
        #[source]
        source: ContainerDiskError,
    },
    /// qemu-img did not make it.
    #[error("disk {name}: qemu-img failed: {output}")]
    QemuImg {
        /// The disk.
        name: String,
        /// What it said.
        output: String,
    },
    /// The NoCloud input cannot be read.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The NoCloud medium cannot be written.
    #[error("cannot write the NoCloud medium")]
    NoCloud(#[source] std::io::Error),
}

/// Makes all disks of `spec` in `dir`.
pub async fn prepare(spec: &Spec, dir: &Path) -> Result<Prepared, DiskError> {
    let boot = boot_disk(&spec.disks);
    let mut disks = Vec::with_capacity(spec.disks.len() + 1);
    for (index, disk) in spec.disks.iter().enumerate() {
        let boot_index = disk.boot_order.or((boot == Some(index)).then_some(1));
        disks.push(PreparedDisk {
            boot_index,
            ..prepare_one(disk, dir).await?
        });
    }
    if let Some(input) = &spec.cloud_init {
        let file = dir.join("nocloud.iso");
        let input = Seed::read(input)?;
        tokio::fs::write(&file, nocloud::image(&input))
            .await
            .map_err(DiskError::NoCloud)?;
        disks.push(nocloud_disk(file));
    }
    let kernel = match boot.map(|index| &spec.disks[index]) {
        Some(Disk {
            name,
            source: DiskSource::ContainerDisk { root, .. },
            ..
        }) => container_disk::find_kernel(root).map_err(|source| DiskError::Image {
            name: name.clone(),
            source,
        })?,
        _ => None,
    };
    Ok(Prepared { disks, kernel })
}

/// The disk with the lowest boot order, else the first hard disk.
fn boot_disk(disks: &[Disk]) -> Option<usize> {
    let ordered = disks
        .iter()
        .enumerate()
        .filter_map(|(i, d)| Some((d.boot_order?, i)))
        .min();
    ordered
        .map(|(_, index)| index)
        .or_else(|| disks.iter().position(|d| d.kind == DiskKind::Disk))
}

async fn prepare_one(disk: &Disk, dir: &Path) -> Result<PreparedDisk, DiskError> {
    let image = |source| DiskError::Image {
        name: disk.name.clone(),
        source,
    };
    let made = dir.join(format!("{}.qcow2", disk.name));
    let (file, format) = match &disk.source {
        DiskSource::ContainerDisk { root, path } => {
            let base = container_disk::find_disk(root, path.as_deref()).map_err(image)?;
            let format = Format::of(&base).map_err(image)?;
            if disk.kind == DiskKind::Cdrom {
                (base, format)
            } else {
                let over = [
                    "-b".as_ref(),
                    base.as_os_str(),
                    "-F".as_ref(),
                    format.name().as_ref(),
                    made.as_os_str(),
                ];
                create(&disk.name, &over).await?;
                (made, Format::Qcow2)
            }
        }
        DiskSource::Empty { bytes } => {
            create(&disk.name, &[made.as_os_str(), bytes.to_string().as_ref()]).await?;
            (made, Format::Qcow2)
        }
        DiskSource::Raw { file } => (file.clone(), Format::Raw),
    };
    let Disk {
        kind,
        bus,
        read_only,
        serial,
        ..
    } = disk.clone();
    Ok(PreparedDisk {
        file,
        format,
        kind,
        bus,
        read_only,
        serial,
        boot_index: None,
    })
}

async fn create(name: &str, arguments: &[&std::ffi::OsStr]) -> Result<(), DiskError> {
    let failed = |output: String| DiskError::QemuImg {
        name: name.to_owned(),
        output,
    };
    let run = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2"])
        .args(arguments)
        .output()
        .await;
    let output = run.map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}

/// virtio, since small guest kernels have no AHCI.
fn nocloud_disk(file: PathBuf) -> PreparedDisk {
    let (format, kind, bus) = (Format::Raw, DiskKind::Disk, Bus::Virtio);
    PreparedDisk {
        file,
        format,
        kind,
        bus,
        read_only: true,
        serial: None,
        boot_index: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, kind: DiskKind, boot_order: Option<u32>) -> Disk {
        let source = DiskSource::Empty { bytes: 1 << 20 };
        Disk {
            name: name.into(),
            source,
            kind,
            bus: Bus::default(),
            read_only: false,
            serial: None,
            boot_order,
        }
    }

    #[test]
    fn the_boot_disk_is_the_first_in_order_or_the_first_hard_disk() {
        let (hd, cd) = (DiskKind::Disk, DiskKind::Cdrom);
        let cases = [
            (vec![], None),
            (vec![disk("c", cd, None)], None),
            (
                vec![
                    disk("c", cd, None),
                    disk("a", hd, None),
                    disk("b", hd, None),
                ],
                Some(1),
            ),
            (vec![disk("a", hd, None), disk("b", hd, Some(1))], Some(1)),
            (
                vec![disk("a", hd, Some(2)), disk("c", cd, Some(1))],
                Some(1),
            ),
        ];
        for (disks, expected) in cases {
            assert_eq!(boot_disk(&disks), expected, "{disks:?}");
        }
    }
}
