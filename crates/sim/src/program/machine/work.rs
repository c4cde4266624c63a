//! Work of the operating system as steps of a processor, and its requests as jobs of the engine.

use super::super::costs::Submission;
use super::super::devices::registers;
use super::{Pass, Step, TimedMachine};
use crate::engine::{Register, Registers, Script};
use bywash_execute::machine::{Direction, Location, Path, Request};

impl TimedMachine {
    /// Adds a step to a processor's work.
    pub(super) fn add(&mut self, processor: usize, step: Step) {
        if matches!(step, Step::Compute(0)) {
            return;
        }
        self.processors[processor].steps.push_back(step);
    }

    /// Adds a pass to a processor's work.
    fn add_pass(
        &mut self,
        processor: usize,
        reads: Option<Location>,
        writes: Option<Location>,
        bytes: u64,
        cycles: f64,
    ) {
        if bytes > 0 {
            self.add(processor, Step::Pass(Pass { reads, writes, bytes, cycles }));
        }
    }

    /// Adds the work of a path to a processor's.
    pub(super) fn add_path(&mut self, processor: usize, path: Path) {
        if let Path::Entry { call } = path {
            self.processors[processor].call = call;
            self.processors[processor].measured.calls += 1;
        }
        match path {
            Path::Send { bytes } => {
                let Some(cycles) = self.costs.tcp else { return };
                let read = self.processors[processor].sent_from.filter(|_| self.costs.checksums);
                self.add_pass(processor, read, None, bytes, cycles);
            }
            Path::Receive { bytes } => {
                let Some(cycles) = self.costs.tcp else { return };
                let read = self.latest.map(|request| memory_of(&request)).filter(|_| self.costs.checksums);
                self.add_pass(processor, read, None, bytes, cycles);
            }
            Path::Interrupt { device } => {
                // Nobody waits for the end of a transmission.
                let is_sent =
                    matches!(self.latest, Some(Request::Interface { direction: Direction::Out, .. }));
                if device.is_none() || !is_sent {
                    self.add(processor, Step::Compute(self.costs.interrupt));
                    self.processors[processor].measured.interrupts += 1;
                }
            }
            Path::Switch { to } => {
                self.change_thread(processor, Some(to.0));
                self.add(processor, Step::Compute(self.costs.path(path)));
            }
            _ => self.add(processor, Step::Compute(self.costs.path(path))),
        }
    }

    /// Adds a copy to a processor's work.
    pub(super) fn add_copy(&mut self, processor: usize, from: Location, to: Location, bytes: u64) {
        use Location::{Page, Pipe, Program, Socket, System};

        if matches!(to, Socket { .. }) {
            let is_copied =
                matches!(from, Program(_) if !self.costs.transfers) || matches!(from, Pipe { .. });
            self.processors[processor].sent_from = Some(if is_copied { to } else { from });
        }
        match (from, to) {
            // Small structures: part of the call's instructions.
            (System, _) | (_, System) => {}
            // What a file's pages hold is sent from there.
            (Page { .. }, Socket { .. }) => {}
            (Program(_), Page { .. } | Socket { .. }) if self.costs.transfers => {
                self.add(processor, Step::Device { at: from, bytes, is_written: false });
            }
            (Page { .. } | Socket { .. }, Program(_)) if self.costs.transfers => {
                self.add(processor, Step::Device { at: to, bytes, is_written: true });
            }
            (Program(_) | Page { .. } | Socket { .. } | Pipe { .. }, _) => {
                self.processors[processor].measured.copied += bytes;
                self.add_pass(processor, Some(from), Some(to), bytes, self.costs.copy);
            }
        }
    }

    /// Returns the script and the registers of a request.
    pub(super) fn prepare(
        &mut self,
        processor: Option<usize>,
        note: u32,
        request: &Request,
    ) -> (Script, Registers) {
        let scripts = self.devices.scripts;
        let sends_file = self.costs.is_direct
            && processor.is_some_and(|processor| self.processors[processor].call == Submission::SENDFILE);
        match *request {
            Request::Disk { direction, file, position, bytes, memory, .. } => {
                let address = self.addresses.address(memory);
                // All pages of the request have their numbers one after the other, if they are new.
                let mut at = memory;
                for _ in 1..bytes.div_ceil(4096) {
                    at = at.behind(4096);
                    self.addresses.address(at);
                }
                let mut registers = registers(bytes, address, note);
                registers.picks[Register::Disk as usize] = (file % u64::from(self.devices.disks)) as u32;
                registers.picks[Register::Thread as usize] = file as u32;
                registers.picks[Register::Other as usize] =
                    (mix(file) % u64::from(self.devices.tracks)) as u32;
                registers.position = position;
                let script = match direction {
                    Direction::Out => scripts.write,
                    Direction::In if sends_file => scripts.read_direct,
                    Direction::In => scripts.read,
                };
                (script, registers)
            }
            Request::Interface { direction, bytes, memory } => {
                let interface = self.interface_of(memory);
                let sent_from = processor.and_then(|processor| self.processors[processor].sent_from);
                let from = match sent_from {
                    Some(from) if direction == Direction::Out && bytes > 0 => from,
                    _ => memory,
                };
                // A frame has at least 64 bytes.
                let mut registers = registers(bytes.max(64), self.addresses.address(from), note);
                registers.picks[Register::Interface as usize] = interface;
                if let Location::Page { file, .. } = from {
                    registers.picks[Register::Disk as usize] = (file % u64::from(self.devices.disks)) as u32;
                }
                let script = match direction {
                    Direction::In => scripts.receive,
                    Direction::Out if sends_file && bytes > 0 => scripts.send_direct,
                    Direction::Out => scripts.send,
                };
                (script, registers)
            }
        }
    }
}

/// Returns a number that depends on all bits of another one.
fn mix(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

/// Returns the location in memory of a request's data.
fn memory_of(request: &Request) -> Location {
    match *request {
        Request::Disk { memory, .. } | Request::Interface { memory, .. } => memory,
    }
}
