//! A device of `bywash_device` as a medium, which is asynchronous and keeps many requests in flight.

use bywash_device::{Access, Command, Device, QueueFull as DeviceFull, SEGMENTS_MAX, Segment, Spec};
use bywash_vhost::{Completion, Failure, Full, Geometry, Operation, Request, Storage};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

pub struct OnDevice(Box<dyn Device>);

impl OnDevice {
    /// Opens a device given as on the command line: `disk=file:PATH`.
    pub fn open(spec: &str) -> OnDevice {
        OnDevice(spec.parse::<Spec>().unwrap().open().unwrap())
    }
}

impl Storage for OnDevice {
    fn geometry(&self) -> Geometry {
        let bywash_device::Geometry { bytes, block, optimal, transfer_max, access } = self.0.geometry();
        Geometry {
            bytes,
            block,
            optimal,
            transfer_max,
            range_max: transfer_max,
            pieces_max: SEGMENTS_MAX,
            read_only: access == Access::Read,
        }
    }

    fn submit(&mut self, request: Request<'_>) -> Result<(), Full> {
        let Request { token, operation, offset, length, pieces, memory } = request;
        // SAFETY: `memory` keeps the pieces mapped and goes with the command, and no reference points into
        // guest memory.
        let span = |piece: &bywash_vhost::GuestSegment| unsafe { Segment::new(piece.base(), piece.bytes()) };
        let spans: Vec<Segment> = pieces.iter().map(span).collect();
        let command = match operation {
            Operation::Read => Command::read(token, offset, &spans),
            Operation::Write => Command::write(token, offset, &spans),
            Operation::WriteDurable => Command::write_durable(token, offset, &spans),
            Operation::Flush => Command::flush(token),
            Operation::Discard => Command::discard(token, offset, length),
            Operation::WriteZeroes => Command::write_zeroes(token, offset, length),
        };
        self.0.submit(command.owner(memory.clone())).map_err(|DeviceFull(_)| Full)
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        self.0.reap(&mut |command| {
            done(Completion { token: command.token, result: command.result.map_err(|_| Failure) });
        });
    }

    fn arm(&mut self) -> bool {
        self.0.arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
}

/// A medium that reports the completions of another medium late, and that can only be polled.
pub struct Late<M> {
    medium: M,
    by: Duration,
    done: VecDeque<(Instant, Completion)>,
}

impl<M: Storage> Late<M> {
    pub fn new(medium: M, by: Duration) -> Late<M> {
        Late { medium, by, done: VecDeque::new() }
    }
}

impl<M: Storage> Storage for Late<M> {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<(), Full> {
        self.medium.submit(request)
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        let due = Instant::now() + self.by;
        self.medium.reap(&mut |one| self.done.push_back((due, one)));
        while self.done.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            self.done.pop_front().into_iter().for_each(|(_, one)| done(one));
        }
    }

    fn arm(&mut self) -> bool {
        std::thread::sleep(Duration::from_micros(200));
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn in_flight(&self) -> usize {
        self.medium.in_flight() + self.done.len()
    }
}
