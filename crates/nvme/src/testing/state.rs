//! State of the controller in software: its registers, its queues, and the memory that it reaches.
//!
//! Written from the specification, and not from the driver: nothing here uses the driver's rings, data pointers or
//! commands. An overrun of a completion queue and a doorbell of a queue that does not exist are mistakes of the driver,
//! and panic.
#![expect(unsafe_code, reason = "a controller accesses memory by addresses")]

use super::options::{ModelCounts, ModelNamespace, ModelOptions};
use crate::completion::StatusField;
use crate::iova::IovaSpace;
use crate::registers::{ACQ, AQA, ASQ, CAP, CC, CSTS, DOORBELLS};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Memory that was mapped for DMA.
pub(super) struct Mapping {
    pub(super) address: u64,
    pub(super) base: *mut u8,
    pub(super) bytes: usize,
}

/// Blocks whose commands fail.
pub(super) struct Failing {
    pub(super) blocks: Range<u64>,
    pub(super) status: StatusField,
    pub(super) times: usize,
}

/// Submission queue.
pub(super) struct Submissions {
    pub(super) address: u64,
    pub(super) entries: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) completions: u16,
}

/// Completion queue.
pub(super) struct Completions {
    pub(super) address: u64,
    pub(super) entries: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) phase: bool,
    /// Interrupt of the completions, if they cause one.
    pub(super) vector: Option<u16>,
}

/// Command that was taken from a queue.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) queue: u16,
    pub(super) words: [u32; 16],
}

impl Taken {
    pub(super) fn opcode(&self) -> u8 {
        self.words[0] as u8
    }

    pub(super) fn identifier(&self) -> u16 {
        (self.words[0] >> 16) as u16
    }

    /// Returns two double words as one number.
    pub(super) fn long(&self, index: usize) -> u64 {
        u64::from(self.words[index]) | u64::from(self.words[index + 1]) << 32
    }
}

/// Controller in software.
pub(super) struct State {
    pub(super) options: ModelOptions,
    pub(super) now: Duration,
    pub(super) counts: ModelCounts,
    pub(super) space: IovaSpace,
    pub(super) mappings: Vec<Mapping>,
    pub(super) submissions: BTreeMap<u16, Submissions>,
    pub(super) completions: BTreeMap<u16, Completions>,
    /// I/O commands that were taken and not carried out.
    pub(super) pending: Vec<Taken>,
    /// I/O commands that are never completed.
    pub(super) swallowed: Vec<Taken>,
    pub(super) event_requests: VecDeque<u16>,
    pub(super) raised: VecDeque<u32>,
    /// True from the report of an event until the next log page is read.
    pub(super) is_masked: bool,
    /// Addresses of the shadow doorbells and of their event indices.
    pub(super) shadow: Option<(u64, u64)>,
    pub(super) contents: BTreeMap<u32, Vec<u8>>,
    pub(super) failing: Vec<Failing>,
    pub(super) failing_admin: Vec<(u8, StatusField)>,
    pub(super) ignored_admin: Vec<u8>,
    pub(super) swallows: usize,
    pub(super) doubled: usize,
    pub(super) is_held: bool,
    pub(super) ignores_aborts: bool,
    pub(super) is_fatal: bool,
    pub(super) never_ready: bool,
    pub(super) never_stops: bool,
    pub(super) is_removed: bool,
    pub(super) is_cut_off: bool,
    configuration: u32,
    admin: (u32, u64, u64),
    ready_at: Option<Duration>,
    is_shut_down: bool,
    random: u64,
    interrupts: Arc<[OwnedFd]>,
}

// SAFETY: the raw pointers are addresses of memory that the driver keeps mapped until it unmaps it here; on which thread
// they are used does not matter.
unsafe impl Send for State {}

impl State {
    pub(super) fn new(options: ModelOptions, interrupts: Arc<[OwnedFd]>) -> State {
        let empty = |namespace: &ModelNamespace| {
            (namespace.number, vec![0; (namespace.blocks << namespace.block_exponent.min(16)) as usize])
        };
        State {
            now: Duration::ZERO,
            counts: ModelCounts::default(),
            space: IovaSpace::new(std::iter::once(0..1 << 32), 1 << 32),
            mappings: Vec::new(),
            submissions: BTreeMap::new(),
            completions: BTreeMap::new(),
            pending: Vec::new(),
            swallowed: Vec::new(),
            event_requests: VecDeque::new(),
            raised: VecDeque::new(),
            is_masked: false,
            shadow: None,
            contents: options.namespaces.iter().map(empty).collect(),
            failing: Vec::new(),
            failing_admin: Vec::new(),
            ignored_admin: Vec::new(),
            swallows: 0,
            doubled: 0,
            is_held: false,
            ignores_aborts: false,
            is_fatal: false,
            never_ready: false,
            never_stops: false,
            is_removed: false,
            is_cut_off: false,
            configuration: 0,
            admin: (0, 0, 0),
            ready_at: None,
            is_shut_down: false,
            random: options.shuffle.unwrap_or(0).wrapping_mul(2) | 1,
            interrupts,
            options,
        }
    }

    fn is_ready(&self) -> bool {
        self.ready_at.is_some_and(|at| self.now >= at)
    }

    pub(super) fn read(&mut self, register: usize) -> u64 {
        if self.is_removed {
            return u64::MAX;
        }
        match register {
            // MQES, CQR, TO = 10 s, DSTRD, CSS = NVM command set.
            CAP => {
                let entries = u64::from(self.options.queue_entries_max - 1);
                entries | 1 << 16 | 20 << 24 | u64::from(self.options.doorbell_exponent) << 32 | 1 << 37
            }
            CC => self.configuration.into(),
            CSTS => {
                let shut_down = if self.is_shut_down { 2 << 2 } else { 0 };
                u64::from(self.is_ready()) | u64::from(self.is_fatal) << 1 | shut_down
            }
            _ => panic!("the driver reads the register {register:#x}"),
        }
    }

    pub(super) fn write(&mut self, register: usize, value: u64) {
        if self.is_removed {
            return;
        }
        match register {
            AQA => self.admin.0 = value as u32,
            ASQ => self.admin.1 = value,
            ACQ => self.admin.2 = value,
            CC => self.configure(value as u32),
            DOORBELLS.. => self.ring(register - DOORBELLS, value as u32),
            _ => panic!("the driver writes the register {register:#x}"),
        }
    }

    fn configure(&mut self, value: u32) {
        let (was_enabled, is_enabled) = (self.configuration & 1 == 1, value & 1 == 1);
        let announces = value >> 14 & 3 == 1 && self.configuration >> 14 & 3 == 0;
        self.configuration = value;
        if announces {
            self.counts.shutdowns += 1;
            self.is_shut_down = true;
        }
        if was_enabled && !is_enabled {
            self.counts.resets += 1;
            if !self.never_stops {
                self.stop();
            }
        }
        if !was_enabled && is_enabled && !self.never_ready {
            assert_eq!(value >> 16 & 0xff, 0x46, "entries of 64 and 16 bytes");
            assert_eq!(value >> 7 & 0xf, 0, "pages of 4096 bytes");
            self.ready_at = Some(self.now + self.options.ready_after);
            let (sizes, submissions, completions) = self.admin;
            let queue = (sizes & 0xfff) + 1;
            self.create_completions(0, completions, (sizes >> 16 & 0xfff) + 1, Some(0));
            self.create_submissions(0, submissions, queue, 0);
        }
    }

    /// Forgets all queues and commands.
    pub(super) fn stop(&mut self) {
        self.ready_at = None;
        (self.is_fatal, self.is_shut_down, self.shadow, self.is_masked) = (false, false, None, false);
        self.submissions.clear();
        self.completions.clear();
        self.pending.clear();
        self.swallowed.clear();
        self.event_requests.clear();
    }

    pub(super) fn create_completions(
        &mut self,
        number: u16,
        address: u64,
        entries: u32,
        vector: Option<u16>,
    ) {
        let queue = Completions { address, entries, head: 0, tail: 0, phase: true, vector };
        self.completions.insert(number, queue);
    }

    pub(super) fn create_submissions(&mut self, number: u16, address: u64, entries: u32, completions: u16) {
        self.submissions.insert(number, Submissions { address, entries, head: 0, tail: 0, completions });
    }

    fn ring(&mut self, offset: usize, value: u32) {
        self.counts.doorbells += 1;
        if !self.is_ready() && !self.is_removed {
            self.counts.doorbells_while_stopped += 1;
        }
        if !self.is_ready() || self.is_cut_off {
            return;
        }
        let doorbell = offset / (4 << self.options.doorbell_exponent);
        let number = (doorbell / 2) as u16;
        if doorbell.is_multiple_of(2) {
            let queue = self.submissions.get_mut(&number).expect("a submission queue that exists");
            assert!(value < queue.entries, "a tail within the queue");
            queue.tail = value;
        } else {
            let queue = self.completions.get_mut(&number).expect("a completion queue that exists");
            assert!(value < queue.entries, "a head within the queue");
            queue.head = value;
        }
        self.process();
    }

    /// Takes all commands that are in queues, and carries them out unless they are held.
    pub(super) fn process(&mut self) {
        if !self.is_ready() || self.is_fatal || self.is_cut_off {
            return;
        }
        let numbers: Vec<u16> = self.submissions.keys().copied().collect();
        for number in numbers {
            self.look_at_shadow(number);
            while let Some(taken) = self.take(number) {
                if number == 0 {
                    self.administer(taken);
                } else {
                    self.counts.taken += 1;
                    if self.swallows > 0 {
                        self.swallows -= 1;
                        self.swallowed.push(taken);
                    } else {
                        self.pending.push(taken);
                    }
                }
            }
        }
        if !self.is_held {
            self.carry_out(usize::MAX);
        }
    }

    /// Reads the tail of an I/O queue from its shadow doorbell, and asks to be told of the next change.
    fn look_at_shadow(&mut self, number: u16) {
        let Some((values, events)) = self.shadow.filter(|_| number > 0) else { return };
        let at = 2 * u64::from(number) * (4 << self.options.doorbell_exponent);
        let tail = self.read_words(values + at, 1).map(|words| words[0]);
        let Some(queue) = self.submissions.get_mut(&number) else { return };
        if let Some(tail) = tail {
            assert!(tail < queue.entries, "a shadow tail within the queue");
            queue.tail = tail;
            self.write_words(events + at, &[tail]);
        }
    }

    fn take(&mut self, number: u16) -> Option<Taken> {
        let queue = self.submissions.get(&number).filter(|queue| queue.head != queue.tail)?;
        let words =
            self.read_words(queue.address + 64 * u64::from(queue.head), 16).expect("a queue that is mapped");
        let queue = self.submissions.get_mut(&number)?;
        queue.head = (queue.head + 1) % queue.entries;
        Some(Taken { queue: number, words: words.try_into().expect("sixteen words") })
    }

    /// Carries out up to `count` commands that were taken.
    pub(super) fn carry_out(&mut self, count: usize) {
        for _ in 0..count {
            if self.pending.is_empty() {
                return;
            }
            let index = if self.options.shuffle.is_some() { self.chance() % self.pending.len() } else { 0 };
            let taken = self.pending.remove(index);
            let status = self.execute(&taken);
            self.complete(&taken, 0, status);
        }
    }

    fn chance(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) as usize
    }

    /// Writes the completion of a command.
    pub(super) fn complete(&mut self, taken: &Taken, value: u32, status: StatusField) {
        let times = if self.doubled > 0 && taken.queue > 0 { 2 } else { 1 };
        self.doubled = self.doubled.saturating_sub(usize::from(taken.queue > 0));
        self.counts.completed += u64::from(taken.queue > 0);
        for _ in 0..times {
            let Some(submissions) = self.submissions.get(&taken.queue) else { return };
            let (head, number) = (submissions.head, submissions.completions);
            if let Some((values, _)) = self.shadow.filter(|_| number > 0) {
                let at = (2 * u64::from(number) + 1) * (4 << self.options.doorbell_exponent);
                let read = self.read_words(values + at, 1).map(|words| words[0]);
                if let (Some(read), Some(queue)) = (read, self.completions.get_mut(&number)) {
                    queue.head = read;
                }
            }
            let Some(queue) = self.completions.get_mut(&number) else { return };
            let next = (queue.tail + 1) % queue.entries;
            assert_ne!(next, queue.head, "the completion queue {number} overruns");
            let (at, phase) = (queue.address + 16 * u64::from(queue.tail), u32::from(queue.phase));
            queue.tail = next;
            queue.phase ^= next == 0;
            let vector = queue.vector;
            let last = u32::from(taken.identifier()) | phase << 16 | u32::from(status.0) << 17;
            self.write_words(at, &[value, 0, head | u32::from(taken.queue) << 16]);
            self.write_words(at + 12, &[last]);
            if let Some(vector) = vector {
                // The counter of an eventfd never gets full by this.
                let _ = rustix::io::write(&self.interrupts[usize::from(vector)], &1u64.to_ne_bytes());
            }
        }
    }

    /// Reports events that were raised, as far as there are requests for them.
    pub(super) fn report_events(&mut self) {
        while !self.is_masked
            && !self.event_requests.is_empty()
            && let Some(event) = self.raised.pop_front()
        {
            let Some(identifier) = self.event_requests.pop_front() else { return };
            let mut words = [0; 16];
            words[0] = 0x0c | u32::from(identifier) << 16;
            self.is_masked = true;
            self.complete(&Taken { queue: 0, words }, event, StatusField(0));
        }
    }

    pub(super) fn resize(&mut self, number: u32, blocks: u64) {
        if let Some(namespace) =
            self.options.namespaces.iter_mut().find(|namespace| namespace.number == number)
        {
            namespace.blocks = blocks;
            self.contents.insert(number, vec![0; (blocks << namespace.block_exponent) as usize]);
        }
    }

    /// Returns the process's address of memory that the driver has mapped. Counts a fault if it has not.
    pub(super) fn reach(&mut self, address: u64, bytes: usize) -> Option<*mut u8> {
        let is_inside = |mapping: &&Mapping| {
            address >= mapping.address && address + bytes as u64 <= mapping.address + mapping.bytes as u64
        };
        let found = self.mappings.iter().find(is_inside).filter(|_| !self.is_cut_off);
        let base = found.map(|mapping| mapping.base.wrapping_add((address - mapping.address) as usize));
        if base.is_none() {
            self.counts.faults += 1;
        }
        base
    }

    /// Reads double words from memory.
    pub(super) fn read_words(&mut self, address: u64, count: usize) -> Option<Vec<u32>> {
        let base = self.reach(address, 4 * count)?.cast::<u32>();
        // SAFETY: the words lie in memory that the driver keeps mapped.
        Some((0..count).map(|index| unsafe { base.add(index).read_volatile() }).collect())
    }

    /// Writes double words to memory.
    pub(super) fn write_words(&mut self, address: u64, words: &[u32]) {
        let Some(base) = self.reach(address, 4 * words.len()) else { return };
        for (index, word) in words.iter().enumerate() {
            // SAFETY: the word lies in memory that the driver keeps mapped.
            unsafe { base.cast::<u32>().add(index).write_volatile(*word) };
        }
    }

    /// Copies from memory. Returns false if it is not mapped.
    pub(super) fn copy_from(&mut self, address: u64, to: &mut [u8]) -> bool {
        let Some(base) = self.reach(address, to.len()) else { return false };
        // SAFETY: the bytes lie in memory that the driver keeps mapped; `to` belongs to the controller.
        unsafe { std::ptr::copy_nonoverlapping(base.cast_const(), to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies to memory. Returns false if it is not mapped.
    pub(super) fn copy_to(&mut self, address: u64, from: &[u8]) -> bool {
        let Some(base) = self.reach(address, from.len()) else { return false };
        // SAFETY: the bytes lie in memory that the driver keeps mapped; `from` belongs to the controller.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), base, from.len()) };
        true
    }
}
