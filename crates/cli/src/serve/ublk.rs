//! Volumes as disks of this machine, by the kernel's driver ublk.
//!
//! Every program can use such a disk that may open its file in `/dev`. Called by `exports`.

use super::export::{KERNEL, open};
use crate::cli::addresses::UblkDisk;
use crate::error::Failure;
use bywash_protocol::report;
use bywash_ublk::{Disk, Error, Event, Export, Options, Stats};
use std::path::Path;

/// A volume that is a disk of the kernel. The disk goes when this is dropped, unless it is in use.
pub struct KernelDisk {
    /// Name of the volume when it became a disk.
    pub volume: String,
    export: Export,
}

impl KernelDisk {
    /// Makes a volume of the server at `socket` a disk, or goes on with a disk that an earlier server has left.
    ///
    /// # Errors
    /// [`Failure::Export`] if the server or the volume cannot be opened, or the driver is missing or refuses.
    pub fn start(socket: &Path, volume: &str, disk: UblkDisk) -> Result<KernelDisk, Failure> {
        let medium = open(socket, volume, "ublk", KERNEL)?;
        let options = match disk {
            UblkDisk::Any => Options::new(),
            UblkDisk::Number(number) => Options::new().number(number),
        };
        let name = volume.to_owned();
        let report = move |event| match event {
            Event::TakenOver => {
                tracing::info!("volume '{name}': its disk goes on, which an earlier server had left")
            }
            Event::Left => tracing::warn!(
                "volume '{name}': its disk is in use and stays; programs that use it wait until a server is started with \
                 --ublk and the same disk"
            ),
            Event::Stopped => tracing::warn!("volume '{name}': its disk was stopped by another program"),
            Event::Failed(error) => {
                tracing::error!("volume '{name}': its disk is not served any more: {error}")
            }
            event => tracing::info!("volume '{name}': {event:?}"),
        };
        let export = Export::start(Disk::new(volume, medium), options, report);
        let export = export.map_err(|error| failed(volume, error.to_string()))?;
        Ok(KernelDisk { volume: volume.to_owned(), export })
    }

    /// Returns the path of the disk.
    pub fn path(&self) -> &Path {
        self.export.path()
    }

    /// Returns true if this is the disk, or `disk` is any.
    pub fn is_at(&self, disk: UblkDisk) -> bool {
        match disk {
            UblkDisk::Any => true,
            UblkDisk::Number(number) => self.export.number() == number,
        }
    }

    /// Stops the disk.
    ///
    /// # Errors
    /// [`Error::InUse`] if it is in use, as by a mounted file system; [`Error::Io`] if the driver refuses.
    pub fn remove(&self) -> Result<(), Error> {
        self.export.remove()
    }

    /// Returns the disk's counters.
    pub fn report(&self) -> report::Export {
        let Stats { requests, .. } = self.export.stats();
        report::Export {
            volume: self.volume.clone(),
            protocol: "ublk".to_owned(),
            address: self.path().display().to_string(),
            requests,
            ..Default::default()
        }
    }
}

fn failed(volume: &str, what: String) -> Failure {
    Failure::Export { volume: volume.to_owned(), whom: KERNEL, what }
}
