//! Steps of each kind of request under each I/O architecture.
//!
//! ```text
//!                      conventional                user-level                   active               direct
//!     disk to program  call, file system, disk,    doorbell, file system,       doorbell, disk       (disk to
//!                      move in, interrupt,         disk, move in, poll          with file system,    interface,
//!                      switch, copy                                             move in, poll        memory
//!     program to wire  copy, TCP, call, move out,  TCP, doorbell, move out,     doorbell, move out,  left out)
//!                      wire                        wire                         TCP there, wire
//! ```
//!
//! Each of the three mechanisms of a user-level server (initiation, transfer, notification) can be disabled.
//! Costs are those of an idle machine: the time that a processor stalls on an idle memory in a copy or a checksum
//! is part of its cycles per byte, and the additional time under contention for memory is simulated.
//!
//! A thread keeps its processor until it has to wait for a device. A thread without think time continues with
//! its next request on the same processor. An interrupt precedes all threads that wait for a processor, but
//! preempts none.

use super::buffers::{Buffer, Pass};
use super::hardware::{Device, Direction, DiskAccess, Hardware, Work, block_of};
use super::script::ScriptBuilder;
use crate::engine::{Op, Register, ServiceTime};
use bywash_model::work::{Mechanisms, Request, Workload};
use bywash_model::{Architecture, Machine};
use std::cell::Cell;

/// Builder of the scripts that serve the requests of a workload on a machine.
pub struct RequestScripts<'a> {
    hardware: &'a Hardware,
    machine: &'a Machine,
    work: &'a Workload,
    architecture: Architecture,
    mechanisms: Mechanisms,
    /// True if the thread has a processor at the current end of the script.
    has_processor: Cell<bool>,
}

/// Returns the operation that sets the size of a request, and of its blocks.
fn size(bytes: f64) -> Op {
    Op::Size { bytes: bytes.round().clamp(1.0, f64::from(u32::MAX)) as u32, block: block_of(bytes) }
}

impl<'a> RequestScripts<'a> {
    /// Returns the builder for `work` on `machine`, whose stations are `hardware`.
    pub fn new(
        hardware: &'a Hardware,
        machine: &'a Machine,
        work: &'a Workload,
        architecture: Architecture,
    ) -> RequestScripts<'a> {
        let mechanisms = work.mechanisms_of(architecture);
        RequestScripts { hardware, machine, work, architecture, mechanisms, has_processor: Cell::new(false) }
    }

    /// Returns true if each thread accesses the disk sequentially and therefore always uses the same disk and
    /// interface.
    pub fn is_in_order(&self) -> bool {
        self.work.disk_access().1
    }

    /// Returns true if devices transfer data to and from the program's own memory.
    pub(super) fn transfers(&self) -> bool {
        self.mechanisms.transfer
    }

    /// Adds the choice of the file in memory that the next steps use.
    pub(super) fn pick_file(&self, script: &mut ScriptBuilder) {
        script.add(self.hardware.regions.pick_file());
    }

    /// Returns the script of a thread, an endless loop of requests.
    pub fn thread(&self) -> Vec<Op> {
        let mut script = ScriptBuilder::default();
        if self.is_in_order() {
            // A stream's file lies at one place of its disk.
            script.ops.extend(self.hardware.disks.draw_track());
            // Streams begin at random moments. Otherwise disks with equal times would all finish together, and all
            // processors would use memory at the same time.
            let readers = self.work.load.threads / f64::from(self.hardware.counts[1]);
            let round = self.hardware.disks.access_seconds(self.work.request_bytes()) * readers.max(1.0);
            if round > 0.0 {
                script.add(Op::Delay(ServiceTime::Uniform(0.0, round)));
            }
        }
        self.begin_request(&mut script);
        let start = script.here();
        if !self.is_in_order() {
            script.add(Op::Pick { register: Register::Disk, count: self.hardware.counts[1] });
            script.add(Op::Pick { register: Register::Interface, count: self.hardware.counts[0] });
        }
        self.request(&mut script);
        script.add(size(self.work.request_bytes()));
        script.add(Op::EndRequest);
        if self.work.load.think.0 > 0.0 {
            self.release(&mut script);
            script.add(Op::Delay(ServiceTime::exponential(self.work.load.think.0)));
        }
        self.begin_request(&mut script);
        script.add(Op::Jump { to: start });
        script.ops
    }

    /// Adds the beginning of a request: at once, or when one arrives. A thread that waits for an arrival leaves
    /// its processor, also if it spins while it waits for I/O.
    fn begin_request(&self, script: &mut ScriptBuilder) {
        if self.work.load.is_open() {
            if self.has_processor.replace(false) {
                script.add(Op::Free(self.hardware.processors));
            }
            script.add(Op::AwaitArrival);
        } else {
            script.add(Op::BeginRequest);
        }
        self.acquire(script);
    }

    /// Gives the thread a processor, unless it has one.
    fn acquire(&self, script: &mut ScriptBuilder) {
        if !self.has_processor.replace(true) {
            script.add(Op::Seize(self.hardware.processors));
        }
    }

    /// Takes the processor from the thread, unless the thread spins.
    pub(super) fn release(&self, script: &mut ScriptBuilder) {
        if !self.work.load.spin && self.has_processor.replace(false) {
            script.add(Op::Free(self.hardware.processors));
        }
    }

    /// Returns the devices, after taking the processor from the thread, which waits for them without one.
    fn without_processor(&self, script: &mut ScriptBuilder) -> &Hardware {
        self.release(script);
        self.hardware
    }

    fn request(&self, script: &mut ScriptBuilder) {
        script.add(size(self.work.request_bytes()));
        script.add(self.hardware.regions.pick_file());
        match self.work.request {
            Request::Web { miss, .. } => self.web(script, miss.0),
            Request::Video { file } => self.disk_to_wire(script, file.0),
            Request::Streams { block, writes } => {
                self.either(
                    script,
                    writes.0,
                    |it, script| it.wire_to_disk(script, block.0),
                    |it, script| {
                        it.disk_to_wire(script, block.0);
                    },
                );
            }
            Request::Blocks { block, writes, .. } => {
                self.either(
                    script,
                    writes.0,
                    |it, script| {
                        it.host_cycles_per_byte(script, it.work.costs.server.0, Pass::default());
                        it.write(script, block.0, Buffer::Program, true);
                    },
                    |it, script| {
                        it.host_cycles_per_byte(script, it.work.costs.server.0, Pass::default());
                        it.read(script, block.0, Buffer::Program, true, it.is_in_order());
                    },
                );
            }
            Request::Database { page, pages, miss, log, compute } => {
                self.transaction(script, page.0, pages, miss.0, log.0, compute.0);
            }
            Request::Dynamic { page, compute, data } => {
                self.detect_completion(script);
                if data.0 > 0.0 {
                    script.add(size(data.0));
                    self.read(script, data.0, Buffer::Program, false, false);
                    script.add(size(page.0));
                }
                self.host_cycles(script, compute.0);
                self.generate(script);
                self.host_cycles_per_byte(script, self.work.costs.server.0, Pass::default());
                self.send(script, Buffer::Program, true);
            }
        }
    }

    /// Adds both alternatives: `first` is executed with probability `chance`, otherwise `second`.
    fn either(
        &self,
        script: &mut ScriptBuilder,
        chance: f64,
        first: impl Fn(&Self, &mut ScriptBuilder),
        second: impl Fn(&Self, &mut ScriptBuilder),
    ) {
        if chance >= 1.0 {
            return first(self, script);
        }
        if chance <= 0.0 {
            return second(self, script);
        }
        let before = self.has_processor.get();
        let to_first = script.jump(Op::JumpWithProbability { chance, to: 0 });
        second(self, script);
        let to_end = script.jump(Op::Jump { to: 0 });
        script.land(to_first);
        let after = self.has_processor.replace(before);
        first(self, script);
        if after {
            self.acquire(script)
        } else {
            self.release(script)
        }
        script.land(to_end);
    }

    fn web(&self, script: &mut ScriptBuilder, miss: f64) {
        self.detect_completion(script);
        self.host_cycles_per_byte(script, self.work.costs.server.0, Pass::default());
        self.either(
            script,
            miss,
            |it, script| {
                if it.architecture == Architecture::Direct {
                    return it.disk_to_interface(script);
                }
                it.read(script, it.work.request_bytes(), Buffer::File, false, false);
                it.send(script, Buffer::File, true);
            },
            |it, script| it.send(script, Buffer::File, true),
        );
    }

    fn disk_to_wire(&self, script: &mut ScriptBuilder, bytes: f64) {
        self.host_cycles_per_byte(script, self.work.costs.server.0, Pass::default());
        if self.architecture == Architecture::Direct {
            self.disk_to_interface(script);
        } else {
            self.read(script, bytes, Buffer::Program, false, true);
            self.send(script, Buffer::Program, true);
        }
        self.detect_completion(script);
    }

    fn wire_to_disk(&self, script: &mut ScriptBuilder, bytes: f64) {
        let costs = &self.work.costs;
        self.take_from_wire(script);
        if self.architecture == Architecture::Direct {
            self.hardware.move_direct(script, Device::Interface);
            self.detect_completion(script);
            self.submit(script);
            self.without_processor(script).device_work(script, Device::Disk, Work::file_system(costs));
            self.disk(script, bytes, true, true);
            self.host_cycles_per_byte(script, costs.server.0, Pass::default());
            return self.detect_completion(script);
        }
        self.receive_into_program(script);
        self.host_cycles_per_byte(script, costs.server.0, Pass::default());
        self.write(script, bytes, Buffer::Program, false);
    }

    /// Adds the steps until an interface has received the request's bytes from the network.
    pub(super) fn take_from_wire(&self, script: &mut ScriptBuilder) {
        let hardware = self.without_processor(script);
        hardware.receive(script);
        if self.architecture.is_active() {
            hardware.device_work(script, Device::Interface, Work::per_byte(self.work.tcp().0));
        }
    }

    /// Adds the steps that pass received bytes from the interface to the program.
    pub(super) fn receive_into_program(&self, script: &mut ScriptBuilder) {
        let costs = &self.work.costs;
        let buffer = if self.mechanisms.transfer { Buffer::Program } else { Buffer::Socket };
        self.without_processor(script).move_data(script, Device::Interface, Direction::IntoMemory, buffer);
        self.detect_completion(script);
        if !self.architecture.is_active() {
            self.host_cycles_per_byte(script, self.work.tcp().0, self.checksum(buffer));
        }
        if !self.mechanisms.transfer {
            self.copy(script, costs.system.0, buffer, Buffer::Program);
        }
    }

    fn transaction(
        &self,
        script: &mut ScriptBuilder,
        page: f64,
        pages: f64,
        miss: f64,
        log: f64,
        compute: f64,
    ) {
        let count = pages.round().max(1.0);
        for _ in 0..count as u32 {
            script.add(size(page));
            script.add(Op::Pick { register: Register::Disk, count: self.hardware.counts[1] });
            script.add(self.hardware.regions.pick_file());
            self.host_cycles(script, compute / count);
            self.host_cycles_per_byte(script, self.work.costs.server.0, Pass::default());
            self.either(
                script,
                miss,
                |it, script| {
                    it.read(script, page, Buffer::File, true, false);
                },
                |_, _| (),
            );
        }
        if log > 0.0 {
            // The log is on disk 0.
            script.add(Op::Pick { register: Register::Disk, count: 1 });
            script.add(size(log));
            self.generate(script);
            self.write(script, log, Buffer::Program, true);
        }
    }

    /// Adds a read from a disk into `target`. `charges` adds the system's cost per byte, which a request pays
    /// once.
    pub(super) fn read(
        &self,
        script: &mut ScriptBuilder,
        bytes: f64,
        target: Buffer,
        charges: bool,
        in_order: bool,
    ) {
        let costs = &self.work.costs;
        self.submit(script);
        if !self.architecture.is_active() {
            self.host_file_system(script);
        }
        self.disk(script, bytes, in_order, false);
        let hardware = self.without_processor(script);
        if self.architecture.is_active() {
            hardware.device_work(script, Device::Disk, Work::file_system(costs));
        }
        let buffer = if self.mechanisms.transfer { target } else { Buffer::Kernel };
        hardware.move_data(script, Device::Disk, Direction::IntoMemory, buffer);
        self.detect_completion(script);
        if !self.mechanisms.transfer {
            self.copy(script, if charges { costs.system.0 } else { 0.0 }, buffer, target);
        }
    }

    /// Adds a write from `source` to a disk. `charges` has the same meaning as for [`RequestScripts::read`].
    fn write(&self, script: &mut ScriptBuilder, bytes: f64, source: Buffer, charges: bool) {
        let mut buffer = source;
        if !self.mechanisms.transfer {
            buffer = Buffer::Kernel;
            self.copy(script, if charges { self.work.costs.system.0 } else { 0.0 }, source, buffer);
        }
        self.submit(script);
        self.to_disk(script, bytes, buffer, self.is_in_order());
    }

    /// Adds the transfer of data from `buffer` to the disk.
    pub(super) fn to_disk(&self, script: &mut ScriptBuilder, bytes: f64, buffer: Buffer, in_order: bool) {
        let costs = &self.work.costs;
        if self.architecture.is_active() {
            self.without_processor(script).device_work(script, Device::Disk, Work::file_system(costs));
        } else {
            self.host_file_system(script);
        }
        self.without_processor(script).move_data(script, Device::Disk, Direction::OutOfMemory, buffer);
        self.disk(script, bytes, in_order, true);
        self.detect_completion(script);
    }

    /// Adds the kernel's copy between its file cache and the program, if the architecture has this copy.
    pub(super) fn kernel_copy(&self, script: &mut ScriptBuilder, from: Buffer, to: Buffer) {
        if !self.mechanisms.transfer {
            self.copy(script, self.work.costs.system.0, from, to);
        }
    }

    /// Adds sending from `source` to the network. `charges` has the same meaning as for
    /// [`RequestScripts::read`].
    pub(super) fn send(&self, script: &mut ScriptBuilder, source: Buffer, charges: bool) {
        let costs = &self.work.costs;
        let mut buffer = source;
        if !self.mechanisms.transfer {
            buffer = Buffer::Socket;
            self.copy(script, if charges { costs.system.0 } else { 0.0 }, source, buffer);
        }
        if !self.architecture.is_active() {
            self.host_cycles_per_byte(script, self.work.tcp().0, self.checksum(buffer));
        }
        self.submit(script);
        let hardware = self.without_processor(script);
        hardware.move_data(script, Device::Interface, Direction::OutOfMemory, buffer);
        if self.architecture.is_active() {
            hardware.device_work(script, Device::Interface, Work::per_byte(self.work.tcp().0));
        }
        hardware.send(script);
    }

    /// Adds the transfer from a disk to an interface, without memory.
    fn disk_to_interface(&self, script: &mut ScriptBuilder) {
        let costs = &self.work.costs;
        self.submit(script);
        self.disk(script, self.work.request_bytes(), self.is_in_order(), false);
        let hardware = self.without_processor(script);
        hardware.device_work(script, Device::Disk, Work::file_system(costs));
        hardware.move_direct(script, Device::Disk);
        hardware.device_work(script, Device::Interface, Work::per_byte(self.work.tcp().0));
        hardware.send(script);
    }

    fn disk(&self, script: &mut ScriptBuilder, bytes: f64, in_order: bool, writes: bool) {
        let hardware = self.without_processor(script);
        let readers = if in_order { self.work.load.threads } else { 0.0 };
        let draws_track = !self.is_in_order();
        hardware.access_disk(script, DiskAccess { bytes, readers, writes, draws_track });
    }

    /// Adds the submission of I/O by the program.
    pub(super) fn submit(&self, script: &mut ScriptBuilder) {
        let costs = &self.work.costs;
        self.host_cycles(script, if self.mechanisms.initiation { costs.doorbell.0 } else { costs.call.0 });
    }

    /// Adds the detection of a completion by the program.
    fn detect_completion(&self, script: &mut ScriptBuilder) {
        let costs = &self.work.costs;
        if self.mechanisms.notification {
            return self.host_cycles(script, costs.poll.0);
        }
        if costs.interrupt.0 > 0.0 {
            let time = ServiceTime::fixed(costs.interrupt.0 * self.hardware.cycle);
            if self.work.load.spin {
                self.processor(script, time);
            } else {
                self.without_processor(script);
                script.add(Op::UseFirst { station: self.hardware.processors, time });
            }
        }
        self.host_cycles(script, costs.switch.0);
    }

    /// Adds a fixed number of processor cycles, independent of the request size.
    fn host_cycles(&self, script: &mut ScriptBuilder, cycles: f64) {
        if cycles > 0.0 {
            self.processor(script, ServiceTime::fixed(cycles * self.hardware.cycle));
        }
    }

    fn processor(&self, script: &mut ScriptBuilder, time: ServiceTime) {
        self.acquire(script);
        self.hardware.compute(script, time);
    }

    /// Adds the file system's work for a request to a disk on the host.
    fn host_file_system(&self, script: &mut ScriptBuilder) {
        self.host_cycles(script, self.work.costs.access.0);
        self.host_cycles_per_byte(script, self.work.costs.file_system.0, Pass::default());
    }

    /// Adds a copy within `cycles` cycles per byte.
    fn copy(&self, script: &mut ScriptBuilder, cycles: f64, from: Buffer, to: Buffer) {
        self.host_cycles_per_byte(script, cycles, Pass { reads: Some(from), writes: Some(to) });
    }

    /// Returns the pass of a checksum over `buffer`.
    fn checksum(&self, buffer: Buffer) -> Pass {
        let is_read = !self.machine.interfaces.checksums;
        Pass { reads: is_read.then_some(buffer), writes: None }
    }

    /// Adds the stores of a program that generates the request's data, whose cycles are part of its computing.
    fn generate(&self, script: &mut ScriptBuilder) {
        self.acquire(script);
        self.hardware.work_with_pass(script, 0.0, Pass { reads: None, writes: Some(Buffer::Program) });
    }

    /// Adds `cycles` processor cycles per byte of the request, in which the processor makes `pass`.
    fn host_cycles_per_byte(&self, script: &mut ScriptBuilder, cycles: f64, pass: Pass) {
        if cycles > 0.0 || pass != Pass::default() {
            self.acquire(script);
            self.hardware.work_with_pass(script, cycles, pass);
        }
    }
}
