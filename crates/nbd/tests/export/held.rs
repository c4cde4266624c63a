//! A device in memory whose completions come when a test wants them, the last one first.

use bywash_device::{
    Command, CommandError, Completion, Device, Geometry, Memory, MemoryOptions, Operation, QueueFull,
};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub const BYTES: u64 = 1 << 20;

#[derive(Default)]
struct State {
    /// Commands submitted, in order: operation, offset, whether its completion was reported.
    seen: Vec<(Operation, u64)>,
    held: usize,
    /// True to report completions as they come, false to hold them.
    flows: bool,
    /// Offset from which on reads and writes fail.
    fails_from: Option<u64>,
}

/// Handle by which a test controls the device.
#[derive(Clone)]
pub struct Control(Arc<(Mutex<State>, Condvar, OwnedFd)>);

pub struct HeldDevice {
    memory: Memory,
    control: Control,
    held: Vec<Completion>,
    depth: usize,
    transfer_max: u64,
}

impl HeldDevice {
    pub fn new(depth: usize, transfer_max: u64) -> (HeldDevice, Control) {
        HeldDevice::sized(BYTES, depth, transfer_max)
    }

    pub fn sized(bytes: u64, depth: usize, transfer_max: u64) -> (HeldDevice, Control) {
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let control = Control(Arc::new((Mutex::default(), Condvar::new(), event)));
        let memory = Memory::new(MemoryOptions::new(bytes)).unwrap();
        (HeldDevice { memory, control: control.clone(), held: Vec::new(), depth, transfer_max }, control)
    }
}

impl Control {
    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.0.0.lock().unwrap());
        rustix::io::write(&self.0.2, &1u64.to_ne_bytes()).unwrap();
    }

    /// Reports completions, those held and new ones, or holds new ones again.
    pub fn flow(&self, flows: bool) {
        self.change(|state| state.flows = flows);
    }

    /// Fails commands that end behind `offset`.
    pub fn fail_from(&self, offset: u64) {
        self.change(|state| state.fails_from = Some(offset));
    }

    /// Waits until `count` completions are held.
    pub fn wait_for(&self, count: usize) {
        let state = self.0.0.lock().unwrap();
        let limit = Duration::from_secs(20);
        let (state, timeout) = self.0.1.wait_timeout_while(state, limit, |state| state.held < count).unwrap();
        assert!(!timeout.timed_out(), "{} of {count} commands have come", state.held);
    }

    pub fn held(&self) -> usize {
        self.0.0.lock().unwrap().held
    }

    /// Returns true if the device was dropped.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub fn seen(&self) -> Vec<(Operation, u64)> {
        self.0.0.lock().unwrap().seen.clone()
    }
}

impl Device for HeldDevice {
    fn geometry(&self) -> Geometry {
        let transfer_max = self.transfer_max;
        Geometry { transfer_max, range_max: transfer_max, ..self.memory.geometry() }
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        if self.held.len() >= self.depth {
            return Err(QueueFull(command));
        }
        let (state, come, _) = &*self.control.0;
        let mut state = state.lock().unwrap();
        state.seen.push((command.operation(), command.offset()));
        let bytes: usize = command.segments().iter().map(|segment| segment.bytes()).sum();
        let end = command.offset() + bytes as u64;
        let result = match (state.fails_from, command.check(&self.geometry())) {
            (Some(offset), _) if end > offset => Err(CommandError::Io(5)),
            (_, Err(error)) => Err(error),
            _ => self.memory.carry_out(&command).unwrap(),
        };
        self.held.push(command.done(result));
        state.held = self.held.len();
        come.notify_all();
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let (state, _, event) = &*self.control.0;
        let _ = rustix::io::read(event, &mut [0; 8]);
        let mut state = state.lock().unwrap();
        if !state.flows {
            return 0;
        }
        let count = self.held.len();
        state.held = 0;
        self.held.drain(..).rev().for_each(done);
        count
    }

    fn arm(&mut self) -> bool {
        self.control.0.0.lock().unwrap().flows && !self.held.is_empty()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.control.0.2.as_fd())
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }

    fn description(&self) -> String {
        "memory that waits".into()
    }
}
