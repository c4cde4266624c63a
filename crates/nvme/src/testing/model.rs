//! The controller in software as a PCI function, and the calls by which a test makes it misbehave.
#![expect(unsafe_code, reason = "a controller accesses memory by addresses")]

use super::options::{ModelCounts, ModelOptions};
use super::state::{Failing, Mapping, State};
use crate::completion::StatusField;
use crate::error::Error;
use crate::function::Function;
use crate::registers::DOORBELLS;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A controller in software, and the PCI function by which a driver reaches it; clones are the same controller.
#[derive(Clone)]
pub struct Model {
    state: Arc<Mutex<State>>,
    interrupts: Arc<[OwnedFd]>,
    has_interrupt: bool,
}

/// Number of interrupts of the controller in software.
const VECTORS: u16 = 8;

impl Model {
    /// Makes a controller that was just powered on.
    ///
    /// # Panics
    /// If the process has too many descriptors.
    pub fn new(options: ModelOptions) -> Model {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let interrupts: Arc<[OwnedFd]> =
            (0..VECTORS).map(|_| eventfd(0, flags).expect("a descriptor for interrupts")).collect();
        let has_interrupt = options.interrupts;
        let state = Arc::new(Mutex::new(State::new(options, interrupts.clone())));
        Model { state, interrupts, has_interrupt }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes commands from queues from now on, but carries none out until [`Model::release`].
    pub fn hold(&self) {
        self.state().is_held = true;
    }

    /// Carries out the commands that were held, and all later ones at once.
    pub fn release(&self) {
        let mut state = self.state();
        state.is_held = false;
        state.process();
    }

    /// Carries out `count` of the commands that are held.
    pub fn release_some(&self, count: usize) {
        self.state().carry_out(count);
    }

    /// Returns the number of I/O commands that were taken and not completed.
    pub fn in_flight(&self) -> usize {
        let state = self.state();
        state.pending.len() + state.swallowed.len()
    }

    /// Never completes the next `count` I/O commands, unless they are aborted.
    pub fn swallow(&self, count: usize) {
        self.state().swallows = count;
    }

    /// Makes Abort commands succeed and abort nothing.
    pub fn ignore_aborts(&self) {
        self.state().ignores_aborts = true;
    }

    /// Fails the next `times` commands with one of the blocks `blocks`, with status code type `kind` and status code
    /// `code`.
    pub fn fail(&self, blocks: Range<u64>, kind: u8, code: u8, times: usize) {
        self.state().failing.push(Failing { blocks, status: StatusField::new(kind, code), times });
    }

    /// Fails the next admin command with this opcode, with status code type `kind` and status code `code`.
    pub fn fail_admin(&self, opcode: u8, kind: u8, code: u8) {
        self.state().failing_admin.push((opcode, StatusField::new(kind, code)));
    }

    /// Never completes the admin commands with this opcode.
    pub fn ignore_admin(&self, opcode: u8) {
        self.state().ignored_admin.push(opcode);
    }

    /// Writes every completion twice, `count` times.
    pub fn double_completions(&self, count: usize) {
        self.state().doubled = count;
    }

    /// Reports a fatal error (CSTS.CFS) until the next reset.
    pub fn break_down(&self) {
        self.state().is_fatal = true;
    }

    /// Never becomes ready any more once it was disabled.
    pub fn never_get_ready(&self) {
        self.state().never_ready = true;
    }

    /// Stays ready when it is disabled, and goes on carrying out commands.
    pub fn never_stop(&self) {
        self.state().never_stops = true;
    }

    /// Removes the function: registers read all ones, and nothing is carried out any more.
    pub fn remove(&self) {
        self.state().is_removed = true;
    }

    /// Reports an event: double word 0 of a completed Asynchronous Event Request.
    pub fn raise(&self, event: u32) {
        let mut state = self.state();
        state.raised.push_back(event);
        state.report_events();
    }

    /// Changes the number of blocks of a namespace.
    pub fn resize(&self, namespace: u32, blocks: u64) {
        self.state().resize(namespace, blocks);
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.state().now += time;
    }

    /// Returns what the controller has seen so far.
    pub fn counts(&self) -> ModelCounts {
        self.state().counts
    }

    /// Returns true if the function was cut off from memory.
    pub fn is_cut_off(&self) -> bool {
        self.state().is_cut_off
    }

    /// Returns the number of bytes that are mapped for DMA.
    pub fn mapped_bytes(&self) -> usize {
        self.state().mappings.iter().map(|mapping| mapping.bytes).sum()
    }

    /// Returns the contents of a namespace.
    pub fn contents(&self, namespace: u32) -> Vec<u8> {
        self.state().contents.get(&namespace).cloned().unwrap_or_default()
    }
}

impl Function for Model {
    fn read32(&self, register: usize) -> u32 {
        self.state().read(register) as u32
    }

    fn read64(&self, register: usize) -> u64 {
        self.state().read(register)
    }

    fn write32(&self, register: usize, value: u32) {
        self.state().write(register, value.into());
    }

    fn write64(&self, register: usize, value: u64) {
        self.state().write(register, value);
    }

    fn register_bytes(&self) -> usize {
        DOORBELLS + 4096
    }

    unsafe fn map(&self, base: *mut u8, bytes: usize) -> Result<u64, Error> {
        let mut state = self.state();
        let address = state.space.take(bytes as u64).ok_or_else(|| {
            Error::io("map memory for DMA", std::io::Error::other("no range of addresses is left"))
        })?;
        state.mappings.push(Mapping { address, base, bytes });
        Ok(address)
    }

    fn unmap(&self, address: u64, bytes: usize) -> bool {
        let mut state = self.state();
        let Some(index) =
            state.mappings.iter().position(|known| (known.address, known.bytes) == (address, bytes))
        else {
            return false;
        };
        state.mappings.swap_remove(index);
        state.space.give_back(address, bytes as u64);
        true
    }

    fn now(&self) -> Duration {
        let mut state = self.state();
        state.now += Duration::from_micros(1);
        state.now
    }

    fn pause(&self) {
        self.advance(Duration::from_micros(50));
    }

    fn vectors(&self) -> u16 {
        if self.has_interrupt { VECTORS } else { 0 }
    }

    fn use_vectors(&self, count: u16) -> Result<(), Error> {
        assert!(count <= self.vectors(), "no more than there are");
        Ok(())
    }

    fn descriptor(&self, vector: u16) -> Option<BorrowedFd<'_>> {
        let interrupt = self.interrupts.get(usize::from(vector)).filter(|_| self.has_interrupt);
        interrupt.map(AsFd::as_fd)
    }

    fn arm(&self, vector: u16, _: Option<Duration>) -> bool {
        let Some(interrupt) = self.descriptor(vector) else { return false };
        // Fails if nothing was signalled. There is no alarm: a test lets time pass and polls.
        let _ = rustix::io::read(interrupt, &mut [0; 8]);
        true
    }

    fn silence(&self) -> Result<(), Error> {
        Ok(())
    }

    fn wake(&self, vector: u16) {
        // The counter of an eventfd never gets full by this.
        let _ = rustix::io::write(&self.interrupts[usize::from(vector)], &1u64.to_ne_bytes());
    }

    fn cut_off(&self) {
        let mut state = self.state();
        state.is_cut_off = true;
        state.stop();
    }

    fn description(&self) -> String {
        "a controller in software".into()
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a controller in software: {:?}", self.counts())
    }
}
