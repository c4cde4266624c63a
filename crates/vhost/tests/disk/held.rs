//! A medium in memory that holds requests until it is told to go on, and then carries out the last one first.

use bywash_vhost::{
    Completion, Failure, Full, Geometry, GuestSegment, MappingOwner, Operation, Request, Storage,
};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub const BYTES: usize = 1 << 20;

struct Waiting {
    token: u64,
    operation: Operation,
    offset: usize,
    pieces: Vec<GuestSegment>,
    _memory: MappingOwner,
}

// SAFETY: the pieces are addresses, which `_memory` keeps mapped on whichever thread they are used.
unsafe impl Send for Waiting {}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// Operations carried out, in order.
    seen: Vec<Operation>,
    /// True to carry out requests as they come, false to hold them.
    flows: bool,
    fails: bool,
}

pub struct PausedMedium {
    control: Control,
    bytes: Vec<u8>,
    ready: Vec<Completion>,
    depth: usize,
}

/// Handle by which a test controls the medium.
#[derive(Clone)]
pub struct Control(Arc<(Mutex<State>, Condvar, OwnedFd)>);

impl PausedMedium {
    pub fn new(depth: usize) -> (PausedMedium, Control) {
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let control = Control(Arc::new((Mutex::default(), Condvar::new(), event)));
        (PausedMedium { control: control.clone(), bytes: vec![0; BYTES], ready: Vec::new(), depth }, control)
    }
}

impl Control {
    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.0.0.lock().unwrap());
        rustix::io::write(&self.0.2, &1u64.to_ne_bytes()).unwrap();
    }

    /// Carries out requests, held ones and new ones, or holds new ones again.
    pub fn flow(&self, flows: bool) {
        self.change(|state| state.flows = flows);
    }

    /// Fails every request from now on.
    pub fn fail(&self) {
        self.change(|state| state.fails = true);
    }

    /// Waits until `count` requests are held.
    pub fn wait_for(&self, count: usize) {
        let state = self.0.0.lock().unwrap();
        let limit = Duration::from_secs(20);
        let (state, timeout) =
            self.0.1.wait_timeout_while(state, limit, |state| state.waiting.len() < count).unwrap();
        assert!(!timeout.timed_out(), "{} of {count} requests have come", state.waiting.len());
    }

    pub fn waiting(&self) -> usize {
        self.0.0.lock().unwrap().waiting.len()
    }

    pub fn seen(&self) -> Vec<Operation> {
        self.0.0.lock().unwrap().seen.clone()
    }
}

impl Storage for PausedMedium {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: BYTES as u64,
            block: 512,
            optimal: 4096,
            transfer_max: 1 << 20,
            range_max: 1 << 20,
            pieces_max: 8,
            read_only: false,
        }
    }

    fn submit(&mut self, request: Request<'_>) -> Result<(), Full> {
        let (state, come, _) = &*self.control.0;
        let mut state = state.lock().unwrap();
        if state.waiting.len() >= self.depth {
            return Err(Full);
        }
        let Request { token, operation, offset, pieces, memory, .. } = request;
        let (offset, pieces) = (offset as usize, pieces.to_vec());
        state.waiting.push(Waiting { token, operation, offset, pieces, _memory: memory.clone() });
        come.notify_all();
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        self.arm();
        self.ready.drain(..).for_each(done);
    }

    fn arm(&mut self) -> bool {
        let (state, _, event) = &*self.control.0;
        let _ = rustix::io::read(event, &mut [0; 8]);
        let mut state = state.lock().unwrap();
        while let Some(Waiting { token, operation, mut offset, pieces, _memory }) =
            state.flows.then(|| state.waiting.pop()).flatten()
        {
            state.seen.push(operation);
            for piece in pieces {
                let here = self.bytes[offset..offset + piece.bytes()].as_mut_ptr();
                // SAFETY: `_memory` keeps the piece mapped, and `here` is a slice of the medium with as many
                // bytes.
                unsafe {
                    match operation {
                        Operation::Read => piece.base().copy_from_nonoverlapping(here, piece.bytes()),
                        _ => here.copy_from_nonoverlapping(piece.base(), piece.bytes()),
                    }
                }
                offset += piece.bytes();
            }
            self.ready.push(Completion { token, result: if state.fails { Err(Failure) } else { Ok(()) } });
        }
        !self.ready.is_empty()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.control.0.2.as_fd())
    }

    fn in_flight(&self) -> usize {
        self.control.waiting() + self.ready.len()
    }
}
