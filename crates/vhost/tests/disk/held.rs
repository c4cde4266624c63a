//! A medium of memory that does nothing before it is told to, and then the last request first.

use bywash_vhost::{Done, Failure, Full, Geometry, Medium, Operation, Owner, Piece, Request};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub const BYTES: usize = 1 << 20;

struct Waiting {
    token: u64,
    operation: Operation,
    offset: usize,
    pieces: Vec<Piece>,
    _memory: Owner,
}

// SAFETY: its memory is kept mapped by what goes along.
unsafe impl Send for Waiting {}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// What was done, in order, as the disk has asked for it.
    seen: Vec<Operation>,
    /// All that comes is done at once.
    flows: bool,
    fails: bool,
}

pub struct Held {
    control: Control,
    bytes: Vec<u8>,
    ready: Vec<Done>,
    depth: usize,
}

/// What tells it to go on.
#[derive(Clone)]
pub struct Control(Arc<(Mutex<State>, Condvar, OwnedFd)>);

impl Held {
    pub fn new(depth: usize) -> (Held, Control) {
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let control = Control(Arc::new((Mutex::default(), Condvar::new(), event)));
        (Held { control: control.clone(), bytes: vec![0; BYTES], ready: Vec::new(), depth }, control)
    }
}

impl Control {
    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.0.0.lock().unwrap());
        rustix::io::write(&self.0.2, &1u64.to_ne_bytes()).unwrap();
    }

    /// Does what has come and what will come, or waits again.
    pub fn flow(&self, flows: bool) {
        self.change(|state| state.flows = flows);
    }

    /// Fails everything from now on.
    pub fn fail(&self) {
        self.change(|state| state.fails = true);
    }

    /// Waits until so many requests wait.
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

impl Medium for Held {
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

    fn reap(&mut self, done: &mut dyn FnMut(Done)) {
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
                // SAFETY: the guest's memory is mapped, as `_memory` is there; both have as many bytes.
                unsafe {
                    match operation {
                        Operation::Read => piece.base().copy_from_nonoverlapping(here, piece.bytes()),
                        _ => here.copy_from_nonoverlapping(piece.base(), piece.bytes()),
                    }
                }
                offset += piece.bytes();
            }
            self.ready.push(Done { token, result: if state.fails { Err(Failure) } else { Ok(()) } });
        }
        !self.ready.is_empty()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.control.0.2.as_fd())
    }

    fn under_way(&self) -> usize {
        self.control.waiting() + self.ready.len()
    }
}
