//! A server without threads: the caller's thread carries out what the server's threads would do, one round
//! after the other.
//!
//! Fuzzers and tests use it, because the same input causes the same steps in the same order each time, and no
//! thread waits for a processor. It runs the code of the real server: the same rounds of the core and of the
//! control thread, the same tasks of helpers and of the administrator, without sleeping between them. A
//! client that blocks a helper blocks the caller.

use crate::control::{ControlThread, SharedState, status};
use crate::core::clock::ClockStart;
use crate::core::cores::Cores;
use crate::core::order::CoreHandle;
use crate::core::{Core, stepped};
use crate::error::Error;
use crate::helpers::Helpers;
use crate::open_device::OpenDevice;
use crate::server::{Options, Ready, open_store, shared_state};
use bywash_link::SocketFile;
use bywash_protocol::report::Status;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// A server that its caller steps.
pub struct SteppedServer {
    shared: Arc<SharedState>,
    control: ControlThread,
    cores: Vec<Rc<RefCell<Core>>>,
    helpers: Helpers,
    /// Name of the socket in the file system, removed when this is dropped.
    name: Option<SocketFile>,
}

impl SteppedServer {
    /// Opens the devices and listens.
    ///
    /// # Errors
    /// Same as [`crate::Server::start`].
    pub fn start(options: Options) -> Result<SteppedServer, Error> {
        SteppedServer::with_devices(options, Vec::new())
    }

    /// Like [`SteppedServer::start`], but also serves devices that the caller has opened.
    ///
    /// # Errors
    /// Same as [`SteppedServer::start`].
    pub fn with_devices(options: Options, more: Vec<OpenDevice>) -> Result<SteppedServer, Error> {
        options.check_cores()?;
        let Ready { store, devices, listener, name } = Ready::new(&options, open_store(&options)?, more)?;
        let bell = |error| Error::io("make a bell")(io::Error::from(error));
        let (helpers, start) = (Helpers::without_threads(), ClockStart::now());
        let (mut handles, mut cores) = (Vec::new(), Vec::new());
        for number in 0..options.cores {
            let (handle, waiting, rung) = CoreHandle::new(number).map_err(bell)?;
            let (own_orders, helpers) = (handle.clone(), helpers.clone());
            let core = Core::new(own_orders, waiting, rung.clone(), options.timeouts, helpers, start);
            let core = Rc::new(RefCell::new(core.map_err(bell)?.stepped()));
            stepped::add(rung, &core);
            handles.push(handle);
            cores.push(core);
        }
        let shared = shared_state(options, store, devices, Cores::new(handles), helpers.clone())?;
        let control =
            ControlThread::stepped(shared.clone(), listener).map_err(Error::io("begin to listen"))?;
        Ok(SteppedServer { shared, control, cores, helpers, name: Some(name) })
    }

    /// Carries out one round of each thread's work: control, administrator, helpers, cores.
    pub fn step(&mut self) {
        self.control.step();
        self.helpers.do_waiting();
        self.step_cores();
    }

    /// Carries out one round of each core.
    // Not inlined, so that a profiler that counts instructions finds it.
    #[inline(never)]
    pub fn step_cores(&mut self) {
        for core in &self.cores {
            core.borrow_mut().round(false);
        }
    }

    /// Returns the number of connections, and of clients that have left but still have requests in flight.
    pub fn clients(&self) -> usize {
        self.control.clients()
    }

    /// Returns the server's current state and counters.
    ///
    /// # Errors
    /// [`Error::Io`] if the core has stopped.
    pub fn status(&self) -> Result<Status, Error> {
        let stopped = |stopped| Error::Io { what: "ask the core", source: io::Error::other(stopped) };
        status(&self.shared).map_err(stopped)
    }
}

impl Drop for SteppedServer {
    fn drop(&mut self) {
        drop(self.name.take());
        // The step below carries the order out; no thread would.
        self.shared.cores.stop();
        self.step();
        self.cores.iter().for_each(stepped::remove);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_link::{Messages, connect};
    use bywash_protocol::{Access, ControlReply, ControlRequest, MESSAGE_BYTES_MAX, VERSION};
    use std::time::Duration;

    const STEPS: usize = 100;

    fn ask(server: &mut SteppedServer, messages: &Messages, ask: &ControlRequest) -> ControlReply {
        messages.send(&ask.to_bytes().unwrap(), &[], Duration::ZERO).unwrap();
        for _ in 0..STEPS {
            server.step();
            if let Some(packet) = messages.try_receive().unwrap() {
                return ControlReply::from_bytes(&packet.bytes).unwrap();
            }
        }
        panic!("{ask:?}: no answer in {STEPS} steps");
    }

    #[test]
    fn all_is_done_in_the_callers_thread() {
        for cores in [1, 3] {
            all_is_done_on(cores);
        }
    }

    fn all_is_done_on(cores: usize) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let options = Options::new(&socket).cores(cores).device("fast=mem:4M,pages=4K".parse().unwrap());
        let mut server = SteppedServer::start(options).unwrap();
        let messages = Messages::over(connect(&socket).unwrap(), MESSAGE_BYTES_MAX);
        let hello = ControlRequest::Hello { version: VERSION, name: "one".into() };
        assert!(matches!(ask(&mut server, &messages, &hello), ControlReply::Welcome { .. }));
        let (volume, device) = ("a".to_owned(), "fast".into());
        let own = rustix::process::geteuid().as_raw();
        let create = ControlRequest::Create {
            volume: volume.clone(),
            device,
            bytes: 2 << 20,
            owner: own,
            group: 0,
            mode: 0o600,
            is_thin: false,
        };
        assert_eq!(ask(&mut server, &messages, &create), ControlReply::Done {});
        let open = ControlRequest::Open { volume: volume.clone(), access: Access::ReadWrite };
        assert!(matches!(ask(&mut server, &messages, &open), ControlReply::Granted(_)));
        // Revocation waits for the core, which the server steps meanwhile.
        assert_eq!(ask(&mut server, &messages, &ControlRequest::Revoke { volume }), ControlReply::Done {});
        assert_eq!(server.status().unwrap().clients.len(), 1);
        drop(messages);
        (0..STEPS).for_each(|_| server.step());
        assert_eq!((server.status().unwrap().clients.len(), server.clients()), (0, 0));
        drop(server);
        assert!(!socket.exists() && stepped::is_none());
    }
}
