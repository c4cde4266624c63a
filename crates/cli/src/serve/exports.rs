//! The exports of a server: those of its command line, and those that are added and removed while it runs.
//!
//! An export is a client of the server like any other, in this process. Exports end with the process: what the next
//! one exports is on its command line.
//!
//! Invariant: the lock of the list is not held while anything waits for the server, whose control thread takes it to
//! report. Changes come one after the other, under a lock of their own.

use super::export::Exported;
use super::nbd::{self, NbdExport};
use super::ublk::KernelDisk;
use crate::cli::addresses::{
    ExportArg, NbdAddress, UblkArg, UblkDisk, nbd_address, ublk_disk, vhost_user_address,
};
use crate::cli::serve::ServerArgs;
use crate::error::Failure;
use crate::socket::SocketArg;
use bywash_protocol::{ExportProtocol, Refusal, RefusalKind, report};
use bywash_server::Exporter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Greatest number of sockets and addresses at which volumes are exported.
const EXPORTS_MAX: usize = 256;

/// Exports of a server.
pub struct Exports {
    /// Path of the server's socket, at which each export opens its volumes.
    socket: PathBuf,
    /// Held by whoever changes the list, from before anything is opened until all is closed. False once no export
    /// may be added any more.
    accepts: Mutex<bool>,
    list: Mutex<List>,
}

/// The exports that there are.
#[derive(Default)]
struct List {
    machines: Vec<Arc<Exported>>,
    nbd: Vec<Arc<NbdExport>>,
    disks: Vec<Arc<KernelDisk>>,
}

impl List {
    fn count(&self) -> usize {
        self.machines.len() + self.nbd.len() + self.disks.len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked has left no change half done: each change of the list is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Exports {
    /// Exports volumes of the server at `socket` as the command line says.
    ///
    /// # Errors
    /// [`Failure::Export`] if the server or a volume cannot be opened, or a socket cannot be made.
    pub fn start(socket: &Path, arguments: &ServerArgs) -> Result<Exports, Failure> {
        let machines =
            arguments.exports.iter().map(|argument| Exported::start(socket, argument).map(Arc::new));
        let machines = machines.collect::<Result<_, _>>()?;
        let nbd = nbd::start(socket, &arguments.nbd)?.into_iter().map(Arc::new).collect();
        let disk =
            |argument: &UblkArg| KernelDisk::start(socket, &argument.volume, argument.disk).map(Arc::new);
        let disks = arguments.ublk.iter().map(disk).collect::<Result<_, _>>()?;
        let list = Mutex::new(List { machines, nbd, disks });
        Ok(Exports { socket: socket.to_owned(), accepts: Mutex::new(true), list })
    }

    /// Returns the names of volumes that NBD clients can use, with the URIs by which they find them.
    pub fn uris(&self) -> Vec<(String, String)> {
        lock(&self.list).nbd.iter().flat_map(|export| export.uris()).collect()
    }

    /// Returns the names of volumes that are disks of this machine, with the disks' paths.
    pub fn disks(&self) -> Vec<(String, PathBuf)> {
        let disks = &lock(&self.list).disks;
        disks.iter().map(|disk| (disk.volume.clone(), disk.path().to_owned())).collect()
    }

    /// Ends all exports, and lets none be added any more.
    pub fn stop(&self) {
        let mut accepts = lock(&self.accepts);
        *accepts = false;
        // Exports are dropped behind the lock of the list, since they wait for requests in flight.
        let list = std::mem::take(&mut *lock(&self.list));
        drop(list);
    }

    fn export_to_machines(&self, argument: &ExportArg) -> Result<(), Refusal> {
        let is_same = |export: &&Arc<Exported>| export.socket.is_same(&argument.at.socket);
        if let Some(other) = lock(&self.list).machines.iter().find(is_same) {
            return Err(taken(&other.volume, &argument.at.socket.shown()));
        }
        let export = Exported::start(&self.socket, argument).map_err(failed)?;
        lock(&self.list).machines.push(Arc::new(export));
        Ok(())
    }

    fn export_to_nbd(&self, volume: &str, address: &NbdAddress) -> Result<(), Refusal> {
        let there =
            lock(&self.list).nbd.iter().find(|export| export.address.is_same_socket(address)).cloned();
        let Some(there) = there else {
            let export = NbdExport::start(&self.socket, address, &[volume]).map_err(failed)?;
            lock(&self.list).nbd.push(Arc::new(export));
            return Ok(());
        };
        if there.has(volume) {
            return Err(taken(volume, &address.shown()));
        }
        there.add(&self.socket, volume, address).map_err(failed)
    }

    fn export_to_kernel(&self, volume: &str, disk: UblkDisk) -> Result<(), Refusal> {
        let is_same = |other: &&Arc<KernelDisk>| disk != UblkDisk::Any && other.is_at(disk);
        if let Some(other) = lock(&self.list).disks.iter().find(is_same) {
            return Err(taken(&other.volume, &disk.to_string()));
        }
        let disk = KernelDisk::start(&self.socket, volume, disk).map_err(failed)?;
        lock(&self.list).disks.push(Arc::new(disk));
        Ok(())
    }

    /// Stops the disks that a volume is: one, or all. Returns their number.
    ///
    /// # Errors
    /// [`RefusalKind::Limit`] if one is in use, which stays.
    fn unexport_from_kernel(&self, volume: &str, at: UblkDisk) -> Result<usize, Refusal> {
        let is_meant = |disk: &&Arc<KernelDisk>| disk.volume == volume && disk.is_at(at);
        let meant: Vec<_> = lock(&self.list).disks.iter().filter(is_meant).cloned().collect();
        for disk in &meant {
            disk.remove().map_err(|error| match error {
                bywash_ublk::Error::InUse(_) => Refusal::new(RefusalKind::Limit, error),
                error => Refusal::new(RefusalKind::Failed, error),
            })?;
            lock(&self.list).disks.retain(|other| !Arc::ptr_eq(other, disk));
        }
        Ok(meant.len())
    }

    /// Ends the exports of a volume to virtual machines: at one socket, or all. Returns their number.
    fn unexport_from_machines(&self, volume: &str, at: Option<&SocketArg>) -> usize {
        let mut list = lock(&self.list);
        let is_meant = |export: &mut Arc<Exported>| {
            export.volume == volume && at.is_none_or(|at| export.socket.is_same(at))
        };
        let ended: Vec<_> = list.machines.extract_if(.., is_meant).collect();
        drop(list);
        ended.len()
    }

    /// Ends the exports of a volume to NBD clients: at one address, or all. Returns their number.
    fn unexport_from_nbd(&self, volume: &str, at: Option<&NbdAddress>) -> Result<usize, Refusal> {
        let is_meant = |export: &Arc<NbdExport>| {
            export.has(volume) && at.is_none_or(|at| export.address.is_same_socket(at))
        };
        let meant: Vec<_> = lock(&self.list).nbd.iter().filter(|export| is_meant(export)).cloned().collect();
        for export in &meant {
            if export.is_only(volume) {
                lock(&self.list).nbd.retain(|other| !Arc::ptr_eq(other, export));
            } else {
                export.remove(volume).map_err(failed)?;
            }
        }
        Ok(meant.len())
    }
}

impl Exporter for Exports {
    fn export(&self, volume: &str, protocol: ExportProtocol, address: &str) -> Result<(), Refusal> {
        let accepts = lock(&self.accepts);
        if !*accepts {
            return Err(Refusal::new(RefusalKind::Failed, "the server stops"));
        }
        if lock(&self.list).count() >= EXPORTS_MAX {
            let message = format!("volumes are exported at {EXPORTS_MAX} addresses, the greatest number");
            return Err(Refusal::new(RefusalKind::Limit, message));
        }
        match protocol {
            ExportProtocol::VhostUser => {
                let at = vhost_user_address(address).map_err(|reason| unfit(&reason))?;
                self.export_to_machines(&ExportArg { volume: volume.to_owned(), at })
            }
            ExportProtocol::Nbd => {
                self.export_to_nbd(volume, &nbd_address(address).map_err(|reason| unfit(&reason))?)
            }
            ExportProtocol::Ublk => {
                self.export_to_kernel(volume, ublk_disk(address).map_err(|reason| unfit(&reason))?)
            }
        }
    }

    fn unexport(&self, volume: &str, only: Option<(ExportProtocol, &str)>) -> Result<(), Refusal> {
        let _changes = lock(&self.accepts);
        let ended = match only {
            // First what can be refused.
            None => {
                self.unexport_from_kernel(volume, UblkDisk::Any)?
                    + self.unexport_from_machines(volume, None)
                    + self.unexport_from_nbd(volume, None)?
            }
            Some((ExportProtocol::VhostUser, address)) => {
                let at = vhost_user_address(address).map_err(|reason| unfit(&reason))?;
                self.unexport_from_machines(volume, Some(&at.socket))
            }
            Some((ExportProtocol::Nbd, address)) => {
                let address = nbd_address(address).map_err(|reason| unfit(&reason))?;
                self.unexport_from_nbd(volume, Some(&address))?
            }
            Some((ExportProtocol::Ublk, address)) => {
                self.unexport_from_kernel(volume, ublk_disk(address).map_err(|reason| unfit(&reason))?)?
            }
        };
        if ended > 0 {
            return Ok(());
        }
        let at = only.map_or_else(String::new, |(_, address)| format!(" at {address}"));
        let message = format!("volume '{volume}' is not exported{at}; `bywash serve status` lists exports");
        Err(Refusal::new(RefusalKind::Missing, message))
    }

    fn resized(&self, volume: &str) {
        let list = lock(&self.list);
        list.machines.iter().filter(|export| export.volume == volume).for_each(|export| export.refresh());
        list.nbd.iter().for_each(|export| export.refresh(volume));
    }

    fn report(&self) -> Vec<report::Export> {
        let list = lock(&self.list);
        let machines = list.machines.iter().map(|export| export.report());
        let nbd = list.nbd.iter().map(|export| export.report());
        machines.chain(nbd).chain(list.disks.iter().map(|disk| disk.report())).collect()
    }
}

fn taken(volume: &str, at: &str) -> Refusal {
    Refusal::new(RefusalKind::Exists, format!("volume '{volume}' is exported at {at} already"))
}

fn unfit(reason: &str) -> Refusal {
    Refusal::new(RefusalKind::Unfit, reason)
}

fn failed(failure: Failure) -> Refusal {
    Refusal::new(RefusalKind::Failed, failure)
}
