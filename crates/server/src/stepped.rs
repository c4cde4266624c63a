//! A server without threads: the caller's thread carries out what the server's threads would do, one round
//! after the other.
//!
//! Fuzzers and tests use it, because the same input causes the same steps in the same order each time, and no
//! thread waits for a processor. It runs the code of the real server: the same rounds of the core and of the
//! control thread, the same tasks of helpers and of the administrator, without sleeping between them. A
//! client that blocks a helper blocks the caller.

use crate::bell::Bell;
use crate::control::{ControlThread, SharedState, status};
use crate::core::Core;
use crate::core::order::{CoreHandle, CoreOrder};
use crate::error::Error;
use crate::helpers::Helpers;
use crate::server::{Options, Ready, shared_state};
use bywash_link::SocketFile;
use bywash_protocol::report::Status;
use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Instant;

/// A server that its caller steps.
pub struct SteppedServer {
    house: Arc<SharedState>,
    control: ControlThread,
    core: Rc<RefCell<Core>>,
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
        let Ready { store, devices, listener, name } = Ready::new(&options, Vec::new())?;
        let bell = |error| Error::io("make a bell")(io::Error::from(error));
        let (orders, waiting, rung) = CoreHandle::new().map_err(bell)?;
        let helpers = Helpers::without_threads();
        let core = Core::new(orders.clone(), waiting, rung.clone(), options.timeouts, helpers.clone());
        let core = Rc::new(RefCell::new(core.map_err(bell)?.stepped()));
        CORES.with_borrow_mut(|cores| cores.push((rung, Rc::downgrade(&core))));
        let house = shared_state(options.limits, store, devices, orders, helpers.clone())?;
        let control =
            ControlThread::stepped(house.clone(), listener).map_err(Error::io("begin to listen"))?;
        Ok(SteppedServer { house, control, core, helpers, name: Some(name) })
    }

    /// Carries out one round of each thread's work: control, administrator, helpers, core.
    pub fn step(&mut self) {
        self.control.step();
        self.helpers.do_waiting();
        self.core.borrow_mut().round(false);
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
        status(&self.house).map_err(stopped)
    }
}

impl Drop for SteppedServer {
    fn drop(&mut self) {
        drop(self.name.take());
        // The step below carries the order out; no thread would.
        let _ = self.house.orders.send(CoreOrder::Stop);
        self.step();
        // The thread-local list may have been destroyed already when the thread ends.
        let _ = CORES.try_with(|cores| {
            cores.borrow_mut().retain(|(_, core)| !Weak::ptr_eq(core, &Rc::downgrade(&self.core)));
        });
    }
}

/// A stepped core, with the bell that its orders ring.
type KnownCore = (Arc<Bell>, Weak<RefCell<Core>>);

thread_local! {
    /// Cores that this thread steps.
    static CORES: RefCell<Vec<KnownCore>> = const { RefCell::new(Vec::new()) };
}

/// Returns the core that listens to this bell, if the caller's thread steps it.
pub(crate) fn core_of(bell: &Arc<Bell>) -> Option<Rc<RefCell<Core>>> {
    // The thread-local list may have been destroyed already when the thread ends; then no core is found.
    let found = CORES.try_with(|cores| {
        let cores = cores.borrow();
        let found = cores.iter().find(|(own, _)| Arc::ptr_eq(own, bell));
        found.and_then(|(_, core)| core.upgrade())
    });
    found.ok().flatten()
}

/// Steps the core until it has sent something or `until` has passed.
pub(crate) fn step_until_there<T>(
    core: &RefCell<Core>,
    receiver: &Receiver<T>,
    until: Option<Instant>,
) -> Result<T, RecvTimeoutError> {
    loop {
        match receiver.try_recv() {
            Ok(sent) => return Ok(sent),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => {}
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return Err(RecvTimeoutError::Timeout);
        }
        core.borrow_mut().round(false);
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
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let options = Options::new(&socket).device("fast=mem:4M,pages=4K".parse().unwrap());
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
        assert!(!socket.exists() && CORES.with_borrow(Vec::is_empty));
    }
}
