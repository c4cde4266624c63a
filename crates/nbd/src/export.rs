//! Exports that are served to the clients of a listener, by a thread of their own.
//!
//! Called by programs that serve devices.

use crate::buffer::Pool;
use crate::connection::PROGRESS_TIMEOUT;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::event::Event;
use crate::order::{Order, OrderSender, orders};
use crate::service::{Limits, Service};
use crate::socket::Listener;
use crate::stats::{Counters, Stats};
use crate::tls::Tls;
use bywash_export::{Error, ExportThread, Signal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Greatest number of exports behind one listener.
pub const DISKS_MAX: usize = 256;
/// Greatest number of clients that [`Options::clients_max`] allows.
pub const CLIENTS_MAX: usize = 1024;
/// Least amount of memory for payloads, in bytes: enough for one request of the greatest length.
const MEMORY_MIN: usize = 64 << 20;

/// Options of a listener's exports.
#[derive(Clone, Debug)]
pub struct Options {
    clients_max: usize,
    memory_bytes_max: usize,
    progress_timeout: Duration,
    tls: Option<Tls>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clients_max: 64,
            memory_bytes_max: 256 << 20,
            progress_timeout: PROGRESS_TIMEOUT,
            tls: None,
        }
    }
}

impl Options {
    /// Returns the default options: 64 clients, 256 MiB for payloads, and 30 seconds to go on.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the greatest number of clients that are connected: 1 to [`CLIENTS_MAX`]. Others wait until one of
    /// them has disconnected.
    pub fn clients_max(mut self, clients: usize) -> Options {
        self.clients_max = clients;
        self
    }

    /// Sets the greatest amount of memory for the payloads of all clients' requests, in bytes: 64 MiB or more.
    /// Beyond it each client has one request of up to 1 MiB at a time.
    pub fn memory_bytes_max(mut self, bytes: usize) -> Options {
        self.memory_bytes_max = bytes;
        self
    }

    /// Sets the time in which a client has to finish the handshake, to go on with a message that it has begun,
    /// and to receive replies: one second or more. Clients without requests in flight may be silent forever.
    pub fn progress_timeout(mut self, timeout: Duration) -> Options {
        self.progress_timeout = timeout;
        self
    }

    /// Serves nothing to clients that do not use TLS, with a certificate of one of the authorities of `tls`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Options {
        self.tls = Some(tls);
        self
    }

    fn check(&self) -> Result<Limits, Error> {
        let refused = |option, value, allowed| Err(Error::Option { option, value, allowed });
        let Options { clients_max, memory_bytes_max, progress_timeout, .. } = *self;
        if clients_max == 0 || clients_max > CLIENTS_MAX {
            let allowed = format!("1 to {CLIENTS_MAX}");
            return refused("the number of clients", clients_max.to_string(), allowed);
        }
        if memory_bytes_max < MEMORY_MIN {
            let allowed = format!("{MEMORY_MIN} bytes or more");
            return refused("the memory for payloads", memory_bytes_max.to_string(), allowed);
        }
        if progress_timeout < Duration::from_secs(1) {
            return refused(
                "the time to go on",
                format!("{progress_timeout:?}"),
                "one second or more".into(),
            );
        }
        Ok(Limits { clients: clients_max, progress_timeout, tls: self.tls.clone() })
    }
}

/// Exports that are being served, until this value is dropped. Dropping it receives nothing more, waits until all
/// requests in flight have completed and their replies were sent, and disconnects the clients; it waits ten seconds
/// at most.
#[derive(Debug)]
pub struct Export {
    counters: Arc<Counters>,
    orders: OrderSender,
    /// Names of the exports, under a lock that whoever changes the exports holds.
    names: Mutex<Vec<String>>,
    /// Thread that is stopped and waited for when this export is dropped.
    _thread: ExportThread,
}

impl Export {
    /// Serves `disks` to the clients that connect to `listener`. Calls `report` for each event, on the thread
    /// that serves.
    ///
    /// Every client that can connect can use the disks: the mode of a Unix socket's name decides which users can, and
    /// [`check_loopback`](crate::check_loopback) finds TCP addresses that other machines can reach.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the geometry of a device allows no export; [`Error::Option`] if an option, or a
    /// disk's name or description, has an invalid value, or if there is no disk, too many, or two of one name;
    /// [`Error::Io`] if a system call fails.
    pub fn start(
        listener: impl Into<Listener>,
        disks: Vec<Disk>,
        options: Options,
        report: impl FnMut(Event) + Send + 'static,
    ) -> Result<Export, Error> {
        let listener = listener.into();
        let limits = options.check()?;
        check_disks(&disks)?;
        let closing = listener.prepare()?;
        let stop = Signal::new()?;
        let counters = Arc::new(Counters::default());
        let engine = Engine::new(disks, Pool::new(options.memory_bytes_max), counters.clone());
        let name = format!("nbd {}", engine.faces[0].name);
        let names = Mutex::new(engine.faces.iter().map(|face| face.name.clone()).collect());
        let (orders, their_orders) = orders()?;
        let service = Service::new(listener, closing, engine, limits, stop.clone(), their_orders, report);
        let thread = ExportThread::start(&name, &stop, move || service.run())?;
        Ok(Export { counters, orders, names, _thread: thread })
    }

    /// Adds a disk, which clients find from now on. Clients that are connected are not disturbed.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the geometry of the device allows no export; [`Error::Option`] if the disk's name or
    /// description has an invalid value, if there is an export of that name, or if there are [`DISKS_MAX`];
    /// [`Error::Ended`] if the thread has ended.
    pub fn add(&self, disk: Disk) -> Result<(), Error> {
        let mut names = self.names();
        let (name, count) = (disk.face.name.clone(), names.len() + 1);
        check_count(count)?;
        check_disk(&disk, names.iter())?;
        self.orders.carry_out(|reply| Order::Add { disk, reply })?;
        names.push(name);
        Ok(())
    }

    /// Withdraws the disk `name`: clients that use it are disconnected, and its requests in flight complete. Returns
    /// when its device is closed. Others are not disturbed.
    ///
    /// # Errors
    /// [`Error::Option`] if there is no export of that name; [`Error::Busy`] if requests in flight do not complete within
    /// ten seconds, although no client can use the disk any more; [`Error::Ended`] if the thread has ended.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let mut names = self.names();
        let Some(at) = names.iter().position(|other| other == name) else {
            let allowed = "the name of an export".to_owned();
            return Err(Error::Option {
                option: "the name of an export",
                value: format!("'{name}'"),
                allowed,
            });
        };
        names.remove(at);
        self.orders.carry_out(|reply| Order::Remove { name: name.to_owned(), reply })
    }

    /// Has the device of the disk `name` looked at again, whose size may have changed
    /// ([`Device::refresh`](bywash_device::Device::refresh)). Clients that connect from now on are told of it.
    pub fn refresh(&self, name: &str) {
        self.orders.send(Order::Refresh { name: name.to_owned() });
    }

    fn names(&self) -> MutexGuard<'_, Vec<String>> {
        // Whoever panicked has left no change half done: each change is one step.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counters of all exports together.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// Returns a handle that reads the counters from other threads, and even after the exports have ended.
    pub fn watch(&self) -> StatsHandle {
        StatsHandle(self.counters.clone())
    }
}

/// Handle that reads the counters of a listener's exports.
#[derive(Clone, Debug)]
pub struct StatsHandle(Arc<Counters>);

impl StatsHandle {
    /// Returns the counters of all exports together.
    pub fn stats(&self) -> Stats {
        self.0.read()
    }
}

/// Checks the disks of a listener, and that each has a name of its own.
fn check_disks(disks: &[Disk]) -> Result<(), Error> {
    check_count(disks.len())?;
    for (number, disk) in disks.iter().enumerate() {
        check_disk(disk, disks[..number].iter().map(|other| &other.face.name))?;
    }
    Ok(())
}

fn check_count(count: usize) -> Result<(), Error> {
    if count == 0 || count > DISKS_MAX {
        let allowed = format!("1 to {DISKS_MAX}");
        return Err(Error::Option { option: "the number of exports", value: count.to_string(), allowed });
    }
    Ok(())
}

/// Checks a disk, and that it has a name of its own.
fn check_disk<'a>(disk: &Disk, mut others: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    disk.check()?;
    let name = &disk.face.name;
    if others.any(|other| other == name) {
        let allowed = "a name that no other export has".to_owned();
        return Err(Error::Option { option: "the name of an export", value: format!("'{name}'"), allowed });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_device::{Memory, MemoryOptions};
    use std::os::unix::net::UnixListener;

    fn refusal(disks: Vec<Disk>, options: Options) -> String {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        Export::start(listener, disks, options, |_| {}).unwrap_err().to_string()
    }

    fn disk(name: &str) -> Disk {
        Disk::new(name, Memory::new(MemoryOptions::new(1 << 20)).unwrap())
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        let new = Options::new;
        for (disks, options, reason) in [
            (vec![], new(), "number of exports"),
            (vec![disk("a"), disk("a")], new(), "no other export"),
            (vec![disk("a\0")], new(), "zero bytes"),
            (vec![disk("a").description("x".repeat(257))], new(), "256 bytes"),
            (vec![disk("a")], new().clients_max(0), "1 to 1024"),
            (vec![disk("a")], new().memory_bytes_max(1), "or more"),
            (vec![disk("a")], new().progress_timeout(Duration::ZERO), "one second"),
        ] {
            let refusal = refusal(disks, options);
            assert!(refusal.contains(reason), "{refusal}");
        }
    }
}
