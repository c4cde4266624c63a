//! A device in memory that holds commands until it is told to go on, and then carries out the last one first.

use bywash_device::{
    Access, Command, CommandError, Completion, Device, Geometry, Operation, QueueFull, Segment,
};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub const BYTES: usize = 1 << 20;

struct Waiting {
    operation: Operation,
    offset: usize,
    segments: Vec<Segment>,
    /// Owner of the segments' memory, with the command's token.
    completion: Completion,
}

#[derive(Default)]
struct State {
    waiting: Vec<Waiting>,
    /// Operations carried out, in order.
    seen: Vec<Operation>,
    /// True to carry out requests as they come, false to hold them.
    flows: bool,
    fails: bool,
}

pub struct PausedDevice {
    control: Control,
    bytes: Vec<u8>,
    ready: Vec<Completion>,
    depth: usize,
}

/// Handle by which a test controls the device.
#[derive(Clone)]
pub struct Control(Arc<(Mutex<State>, Condvar, OwnedFd)>);

impl PausedDevice {
    pub fn new(depth: usize) -> (PausedDevice, Control) {
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let control = Control(Arc::new((Mutex::default(), Condvar::new(), event)));
        (PausedDevice { control: control.clone(), bytes: vec![0; BYTES], ready: Vec::new(), depth }, control)
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

impl Device for PausedDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            bytes: BYTES as u64,
            block: 512,
            optimal: 4096,
            transfer_max: 1 << 20,
            range_max: 1 << 20,
            segments_max: 8,
            access: Access::ReadWrite,
        }
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        let (state, come, _) = &*self.control.0;
        let mut state = state.lock().unwrap();
        if state.waiting.len() >= self.depth {
            return Err(QueueFull(command));
        }
        let (operation, offset) = (command.operation(), command.offset() as usize);
        let (segments, completion) = (command.segments().to_vec(), command.done(Ok(())));
        state.waiting.push(Waiting { operation, offset, segments, completion });
        come.notify_all();
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        self.arm();
        let count = self.ready.len();
        self.ready.drain(..).for_each(done);
        count
    }

    fn arm(&mut self) -> bool {
        let (state, _, event) = &*self.control.0;
        let _ = rustix::io::read(event, &mut [0; 8]);
        let mut state = state.lock().unwrap();
        while let Some(Waiting { operation, mut offset, segments, mut completion }) =
            state.flows.then(|| state.waiting.pop()).flatten()
        {
            state.seen.push(operation);
            for segment in segments {
                let here = self.bytes[offset..offset + segment.bytes()].as_mut_ptr();
                // SAFETY: the completion's owner keeps the segment mapped, and `here` is a slice of the device with
                // as many bytes.
                unsafe {
                    match operation {
                        Operation::Read => segment.base().copy_from_nonoverlapping(here, segment.bytes()),
                        _ => here.copy_from_nonoverlapping(segment.base(), segment.bytes()),
                    }
                }
                offset += segment.bytes();
            }
            if state.fails {
                completion.result = Err(CommandError::Io(rustix::io::Errno::IO.raw_os_error()));
            }
            self.ready.push(completion);
        }
        !self.ready.is_empty()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.control.0.2.as_fd())
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.control.waiting() + self.ready.len()
    }

    fn description(&self) -> String {
        "memory that holds its commands".to_owned()
    }
}
