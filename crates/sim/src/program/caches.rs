//! Caches of the processors that execute programs: two levels of lines of 64 bytes, kept coherent with each other
//! and with the devices.
//!
//! ```text
//!     processor ──┬── first level, instructions ──┐
//!                 └── first level, data ──────────┴── second level ──┐
//!     processor ── ...                                 second level ──┼── memory bus ── memory
//!                                                      devices ───────┘
//! ```
//!
//! A line in a second-level cache is shared, exclusive or modified (MESI; write-allocate, write-back, least recently
//! used). First-level caches contain only lines of their second level. The data cache marks the lines that its
//! processor has modified, so that further stores to them need no look-up.
//!
//! A processor's accesses to its own caches ([`ProcessorCaches`]) need nobody else. What they do not find is a
//! [`Miss`], which the machine performs in the order of time ([`SharedCaches::perform`]), when it also learns what
//! has to cross the memory bus. Devices access the caches through [`Coherence`].
//!
//! Invariants: if a cache has a line exclusive or modified, no other cache has it. A first-level cache has only lines
//! that its second level has, and marks as modified only lines that are modified there.

use crate::engine::{Access, Coherence, Moves, Region, Register, Registers, Time};

/// Size of a line, in bytes.
pub const LINE_BYTES: u64 = 64;
/// Least number of ways of a set.
const WAYS_MIN: usize = 4;
/// Tag of an empty way.
const EMPTY: u64 = u64::MAX;

/// State of a line in a second-level cache. The invalid ones are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Other caches may have the line, too.
    Shared,
    /// No other cache has the line, and memory has the same bytes.
    Exclusive,
    /// No other cache has the line, and memory has older bytes.
    Modified,
}

/// Kind of a processor's access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fetch of instructions.
    Fetch,
    /// Load.
    Load,
    /// Store, for which the processor does not wait if its write buffer has room.
    Store,
    /// Atomic operation: a load and a store, for which the processor waits.
    Atomic,
}

impl Kind {
    /// Returns true if the access needs the line for itself.
    fn writes(self) -> bool {
        matches!(self, Kind::Store | Kind::Atomic)
    }
}

/// Access that a processor's own caches cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// Number of the line.
    pub line: u64,
    /// Kind of the access.
    pub kind: Kind,
}

/// Part of the memory system that serves an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// First-level cache.
    First,
    /// Second-level cache.
    Second,
    /// Other caches, or memory.
    Beyond,
}

/// Traffic of a miss on the memory bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// The caches have got the line meanwhile.
    None,
    /// Other caches drop their copies; no data moves.
    Upgrade,
    /// Bytes that move.
    Data(Moves),
}

/// One cache: sets of ways with tags, a set's most recently used way first.
///
/// A tag is a number of a line and, in its lowest bits, the line's state.
#[derive(Clone, Debug)]
struct Level {
    tags: Vec<u64>,
    ways: usize,
    /// Number of sets, less one.
    mask: u64,
}

impl Level {
    /// Makes an empty cache of `bytes` bytes, at least one set. The number of sets is a power of two, and there are at
    /// least [`WAYS_MIN`] ways.
    fn new(bytes: f64) -> Level {
        // A cache has at most 4 GiB.
        let lines = (bytes / LINE_BYTES as f64).clamp(WAYS_MIN as f64, (1u64 << 26) as f64) as usize;
        let sets = 1 << (lines / WAYS_MIN).ilog2();
        let ways = lines / sets;
        Level { tags: vec![EMPTY; sets * ways], ways, mask: sets as u64 - 1 }
    }

    /// Returns the index of the first way of a line's set.
    #[inline(always)]
    fn set(&self, line: u64) -> usize {
        (line & self.mask) as usize * self.ways
    }

    /// Returns the most recently used tag of a line's set.
    #[inline(always)]
    fn recent(&self, line: u64) -> u64 {
        self.tags[self.set(line)]
    }

    /// Returns the tag whose number is `line` in its bits from `shift` on, as the most recently used of its set.
    fn find(&mut self, line: u64, shift: u32) -> Option<&mut u64> {
        let set = self.set(line);
        let ways = &mut self.tags[set..set + self.ways];
        let way = ways.iter().position(|tag| *tag != EMPTY && tag >> shift == line)?;
        ways[..=way].rotate_right(1);
        Some(&mut ways[0])
    }

    /// Returns the tag whose number is `line`, without using it.
    fn peek(&mut self, line: u64, shift: u32) -> Option<&mut u64> {
        let set = self.set(line);
        self.tags[set..set + self.ways].iter_mut().find(|tag| **tag != EMPTY && **tag >> shift == line)
    }

    /// Adds a tag for a line as the most recently used of its set, and returns the one that it replaces.
    fn insert(&mut self, line: u64, tag: u64) -> Option<u64> {
        let set = self.set(line);
        let ways = &mut self.tags[set..set + self.ways];
        let way = ways.iter().position(|tag| *tag == EMPTY).unwrap_or(ways.len() - 1);
        let victim = std::mem::replace(&mut ways[way], tag);
        ways[..=way].rotate_right(1);
        Some(victim).filter(|victim| *victim != EMPTY)
    }

    /// Removes a line.
    fn remove(&mut self, line: u64, shift: u32) {
        if let Some(tag) = self.peek(line, shift) {
            *tag = EMPTY;
        }
    }
}

/// Number of a tag's bits below the line: none for instructions, one for "modified" in the data cache, two for the
/// state in the second level.
const CODE_SHIFT: u32 = 0;
const DATA_SHIFT: u32 = 1;
const SECOND_SHIFT: u32 = 2;

/// Caches of one processor.
#[derive(Clone, Debug)]
pub struct ProcessorCaches {
    code: Level,
    data: Level,
    second: Level,
    /// Number of accesses that the first level did not serve.
    pub first_misses: u64,
    /// Number of accesses that the second level did not serve.
    pub second_misses: u64,
}

impl ProcessorCaches {
    /// Makes empty caches: two of `first` bytes, and one of `second` bytes.
    fn new(first: f64, second: f64) -> ProcessorCaches {
        let [code, data, second] = [first, first, second].map(Level::new);
        ProcessorCaches { code, data, second, first_misses: 0, second_misses: 0 }
    }

    /// Returns true if a load finds its line in the data cache, as the most recently used of its set.
    #[inline(always)]
    pub fn loads_at_once(&self, line: u64) -> bool {
        self.data.recent(line) >> DATA_SHIFT == line
    }

    /// Returns true if a store finds its line modified in the data cache, as the most recently used of its set.
    #[inline(always)]
    pub fn stores_at_once(&self, line: u64) -> bool {
        self.data.recent(line) == line << DATA_SHIFT | 1
    }

    /// Returns true if a fetch finds its line in the instruction cache, as the most recently used of its set.
    #[inline(always)]
    pub fn fetches_at_once(&self, line: u64) -> bool {
        self.code.recent(line) == line
    }

    /// Accesses a line.
    pub fn access(&mut self, line: u64, kind: Kind) -> Found {
        let is_first = match kind {
            Kind::Fetch => self.code.find(line, CODE_SHIFT).is_some(),
            _ => self.data.find(line, DATA_SHIFT).is_some_and(|tag| !kind.writes() || *tag & 1 == 1),
        };
        if is_first {
            return Found::First;
        }
        let had_data = kind.writes() && self.data.peek(line, DATA_SHIFT).is_some();
        let Some(tag) = self.second.find(line, SECOND_SHIFT) else {
            self.first_misses += 1;
            self.second_misses += 1;
            return Found::Beyond;
        };
        if kind.writes() {
            if *tag & 3 == State::Shared as u64 {
                self.second_misses += 1;
                return Found::Beyond;
            }
            *tag = line << SECOND_SHIFT | State::Modified as u64;
        }
        self.fill(line, kind);
        // The first store to a line that the data cache has only marks it.
        if had_data {
            return Found::First;
        }
        self.first_misses += 1;
        Found::Second
    }

    /// Adds a line of the second level to the first.
    fn fill(&mut self, line: u64, kind: Kind) {
        let modified = u64::from(kind.writes());
        match kind {
            Kind::Fetch => drop(self.code.insert(line, line)),
            _ => match self.data.find(line, DATA_SHIFT) {
                Some(tag) => *tag |= modified,
                None => drop(self.data.insert(line, line << DATA_SHIFT | modified)),
            },
        }
    }

    /// Returns the state of a line.
    fn state(&mut self, line: u64) -> Option<State> {
        self.second.peek(line, SECOND_SHIFT).map(|tag| match *tag & 3 {
            0 => State::Shared,
            1 => State::Exclusive,
            _ => State::Modified,
        })
    }

    /// Sets the state of a line that the caches have. One that is not modified loses its mark in the data cache.
    fn set_state(&mut self, line: u64, state: State) {
        if let Some(tag) = self.second.peek(line, SECOND_SHIFT) {
            *tag = line << SECOND_SHIFT | state as u64;
        }
        if state != State::Modified
            && let Some(tag) = self.data.peek(line, DATA_SHIFT)
        {
            *tag = line << DATA_SHIFT;
        }
    }

    /// Adds a line, and returns true if it replaced a modified one.
    fn insert(&mut self, line: u64, kind: Kind, state: State) -> bool {
        let victim = self.second.insert(line, line << SECOND_SHIFT | state as u64);
        if let Some(victim) = victim {
            self.code.remove(victim >> SECOND_SHIFT, CODE_SHIFT);
            self.data.remove(victim >> SECOND_SHIFT, DATA_SHIFT);
        }
        self.fill(line, kind);
        victim.is_some_and(|victim| victim & 3 == State::Modified as u64)
    }

    /// Removes a line.
    fn remove(&mut self, line: u64) {
        self.second.remove(line, SECOND_SHIFT);
        self.code.remove(line, CODE_SHIFT);
        self.data.remove(line, DATA_SHIFT);
    }
}

/// Caches of all processors.
#[derive(Clone, Debug)]
pub struct SharedCaches {
    processors: Vec<ProcessorCaches>,
    /// True if memory supplies a modified line after its owner wrote it back; otherwise the owner supplies it.
    is_three_phase: bool,
}

impl SharedCaches {
    /// Makes empty caches for a number of processors, each with two first-level caches of `first` bytes and a
    /// second-level cache of `second` bytes.
    pub fn new(processors: usize, first: f64, second: f64, is_three_phase: bool) -> SharedCaches {
        SharedCaches { processors: vec![ProcessorCaches::new(first, second); processors], is_three_phase }
    }

    /// Returns the numbers of accesses that the first level, and that the second level did not serve.
    pub fn misses(&self) -> [u64; 2] {
        let sum = |of: fn(&ProcessorCaches) -> u64| self.processors.iter().map(of).sum();
        [sum(|one| one.first_misses), sum(|one| one.second_misses)]
    }

    /// Returns the caches of a processor.
    pub fn processor(&mut self, processor: usize) -> &mut ProcessorCaches {
        &mut self.processors[processor]
    }

    /// Performs a miss of a processor, and returns its traffic on the memory bus.
    pub fn perform(&mut self, processor: usize, miss: Miss) -> Traffic {
        let Miss { line, kind } = miss;
        let own = self.processors[processor].state(line);
        if own.is_some_and(|state| !kind.writes() || state != State::Shared) {
            if kind.writes() {
                self.processors[processor].set_state(line, State::Modified);
            }
            self.processors[processor].fill(line, kind);
            return Traffic::None;
        }
        let mut is_held = false;
        let mut was_modified = false;
        for (number, other) in self.processors.iter_mut().enumerate() {
            let Some(state) = other.state(line).filter(|_| number != processor) else { continue };
            is_held = true;
            was_modified |= state == State::Modified;
            if kind.writes() {
                other.remove(line);
            } else if state != State::Shared {
                other.set_state(line, State::Shared);
            }
        }
        let caches = &mut self.processors[processor];
        if own.is_some() {
            caches.set_state(line, State::Modified);
            caches.fill(line, kind);
            return Traffic::Upgrade;
        }
        let state = match (kind.writes(), is_held) {
            (true, _) => State::Modified,
            (false, true) => State::Shared,
            (false, false) => State::Exclusive,
        };
        let replaces = caches.insert(line, kind, state);
        let bytes = |is_so: bool| if is_so { LINE_BYTES as u32 } else { 0 };
        Traffic::Data(Moves {
            written_back: bytes(was_modified && self.is_three_phase),
            fetched: LINE_BYTES as u32,
            replaced: bytes(replaces),
        })
    }

    /// Writes back a line that a processor has modified, which keeps it, and returns true if there was one.
    pub fn clean(&mut self, line: u64) -> bool {
        let mut was_modified = false;
        for caches in &mut self.processors {
            if caches.state(line) == Some(State::Modified) {
                caches.set_state(line, State::Exclusive);
                was_modified = true;
            }
        }
        was_modified
    }

    /// Removes a line from all caches.
    pub fn remove(&mut self, line: u64) {
        self.processors.iter_mut().for_each(|caches| caches.remove(line));
    }
}

/// Returns the numbers of the lines that contain a range of bytes.
pub fn lines(address: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
    address / LINE_BYTES..=(address.saturating_add(bytes.max(1)) - 1) / LINE_BYTES
}

impl Coherence for SharedCaches {
    fn touch(&mut self, access: Access, _: Region, _: Register, registers: &Registers) -> Moves {
        let Registers { address, bytes, remaining, block, .. } = *registers;
        let size = remaining.min(block);
        let mut moves = Moves { fetched: size, ..Moves::default() };
        for line in lines(address + u64::from(bytes - remaining), size.into()) {
            match access {
                Access::DeviceWrite => self.remove(line),
                // Only devices' accesses are operations of jobs.
                _ => moves.written_back += if self.clean(line) { LINE_BYTES as u32 } else { 0 },
            }
        }
        if !self.is_three_phase {
            moves.written_back = 0;
        }
        moves
    }

    fn idle_time(&self, _: Moves) -> Time {
        // No job waits for what it touches: processors do, outside of the engine.
        Time(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::hardware::block_of;
    use std::collections::BTreeMap;

    /// Caches as lists of lines, the most recently used first: two sets of four lines in each first level, four in each
    /// second level.
    #[derive(Default)]
    struct Lists {
        /// Lines by processor, cache (0 for instructions, 1 for data) and set.
        first: BTreeMap<(usize, usize, u64), Vec<u64>>,
        /// Lines that a data cache knows to be modified.
        marked: BTreeMap<(usize, u64), bool>,
        /// Lines and their states, by processor and set.
        second: BTreeMap<(usize, u64), Vec<(u64, State)>>,
    }

    const WAYS: usize = 4;
    const FIRST_SETS: u64 = 2;
    const SECOND_SETS: u64 = 4;
    const PROCESSORS: usize = 3;

    impl Lists {
        fn state(&self, processor: usize, line: u64) -> Option<State> {
            let list = self.second.get(&(processor, line % SECOND_SETS))?;
            list.iter().find(|entry| entry.0 == line).map(|entry| entry.1)
        }

        fn set_state(&mut self, processor: usize, line: u64, state: State) {
            let list = self.second.entry((processor, line % SECOND_SETS)).or_default();
            list.iter_mut().filter(|entry| entry.0 == line).for_each(|entry| entry.1 = state);
            if state != State::Modified {
                self.marked.remove(&(processor, line));
            }
        }

        fn remove(&mut self, processor: usize, line: u64) {
            self.second.entry((processor, line % SECOND_SETS)).or_default().retain(|entry| entry.0 != line);
            for cache in 0..2 {
                self.first
                    .entry((processor, cache, line % FIRST_SETS))
                    .or_default()
                    .retain(|one| *one != line);
            }
            self.marked.remove(&(processor, line));
        }

        fn use_first(&mut self, processor: usize, line: u64, kind: Kind) {
            let cache = usize::from(kind != Kind::Fetch);
            let list = self.first.entry((processor, cache, line % FIRST_SETS)).or_default();
            list.retain(|one| *one != line);
            list.insert(0, line);
            if list.len() > WAYS {
                let victim = list.pop().unwrap();
                if cache == 1 {
                    self.marked.remove(&(processor, victim));
                }
            }
            if kind.writes() {
                self.marked.insert((processor, line), true);
            }
        }

        fn use_second(&mut self, processor: usize, line: u64) {
            let list = self.second.entry((processor, line % SECOND_SETS)).or_default();
            if let Some(at) = list.iter().position(|entry| entry.0 == line) {
                let entry = list.remove(at);
                list.insert(0, entry);
            }
        }

        fn access(&mut self, processor: usize, line: u64, kind: Kind) -> Found {
            let cache = usize::from(kind != Kind::Fetch);
            let list = self.first.entry((processor, cache, line % FIRST_SETS)).or_default();
            let is_there = list.contains(&line);
            if is_there {
                list.retain(|one| *one != line);
                list.insert(0, line);
            }
            if is_there && (!kind.writes() || self.marked.contains_key(&(processor, line))) {
                return Found::First;
            }
            self.use_second(processor, line);
            match self.state(processor, line) {
                None => Found::Beyond,
                Some(State::Shared) if kind.writes() => Found::Beyond,
                Some(_) => {
                    if kind.writes() {
                        self.set_state(processor, line, State::Modified);
                    }
                    self.use_first(processor, line, kind);
                    if is_there { Found::First } else { Found::Second }
                }
            }
        }

        fn perform(&mut self, processor: usize, line: u64, kind: Kind) -> Traffic {
            let own = self.state(processor, line);
            let others = (0..PROCESSORS).filter(|other| *other != processor);
            let holders: Vec<usize> = others.filter(|other| self.state(*other, line).is_some()).collect();
            let was_modified = holders.iter().any(|other| self.state(*other, line) == Some(State::Modified));
            let upgrades = own == Some(State::Shared) && kind.writes();
            if own.is_none() || upgrades {
                for other in &holders {
                    match kind.writes() {
                        true => self.remove(*other, line),
                        false => self.set_state(*other, line, State::Shared),
                    }
                }
            }
            let mut replaced = 0;
            if own.is_none() {
                let state = if holders.is_empty() { State::Exclusive } else { State::Shared };
                let list = self.second.entry((processor, line % SECOND_SETS)).or_default();
                list.insert(0, (line, state));
                if list.len() > WAYS {
                    let (victim, state) = *list.last().unwrap();
                    replaced = if state == State::Modified { 64 } else { 0 };
                    self.remove(processor, victim);
                }
            }
            if kind.writes() {
                self.set_state(processor, line, State::Modified);
            }
            self.use_first(processor, line, kind);
            match (own, upgrades) {
                (None, _) => {
                    let written_back = if was_modified { 64 } else { 0 };
                    Traffic::Data(Moves { written_back, fetched: 64, replaced })
                }
                (_, true) => Traffic::Upgrade,
                _ => Traffic::None,
            }
        }
    }

    #[test]
    fn random_accesses_find_what_lists_of_lines_find() {
        for seed in 0..20 {
            let mut random = crate::engine::Random::new(seed);
            let mut caches = SharedCaches::new(PROCESSORS, 8.0 * 64.0, 16.0 * 64.0, true);
            let mut lists = Lists::default();
            for step in 0..4000 {
                let (line, processor) = (random.below(40), random.below(PROCESSORS as u64) as usize);
                let kind = [Kind::Fetch, Kind::Load, Kind::Store, Kind::Atomic][random.below(4) as usize];
                let text = format!("seed {seed}, step {step}: {kind:?} of line {line} by {processor}");
                match random.below(8) {
                    0 => {
                        let was_modified =
                            (0..PROCESSORS).any(|one| lists.state(one, line) == Some(State::Modified));
                        for one in 0..PROCESSORS {
                            if lists.state(one, line) == Some(State::Modified) {
                                lists.set_state(one, line, State::Exclusive);
                            }
                        }
                        assert_eq!(caches.clean(line), was_modified, "{text}: a device reads");
                    }
                    1 => {
                        (0..PROCESSORS).for_each(|one| lists.remove(one, line));
                        caches.remove(line);
                    }
                    _ => {
                        let wanted = lists.access(processor, line, kind);
                        assert_eq!(caches.processor(processor).access(line, kind), wanted, "{text}");
                        if wanted == Found::Beyond {
                            let wanted = lists.perform(processor, line, kind);
                            let miss = Miss { line, kind };
                            assert_eq!(caches.perform(processor, miss), wanted, "{text}, performed");
                        }
                    }
                }
                let holders = (0..PROCESSORS).filter_map(|one| caches.processors[one].state(line));
                let holders: Vec<State> = holders.collect();
                assert!(holders.len() < 2 || holders.iter().all(|state| *state == State::Shared), "{text}");
            }
        }
    }

    #[test]
    fn what_is_found_at_once_is_in_the_first_level() {
        let mut caches = SharedCaches::new(1, 32768.0, 131_072.0, true);
        assert!(!caches.processor(0).loads_at_once(7));
        let miss = Miss { line: 7, kind: Kind::Load };
        assert_eq!(caches.processor(0).access(7, Kind::Load), Found::Beyond);
        caches.perform(0, miss);
        assert!(caches.processor(0).loads_at_once(7) && !caches.processor(0).stores_at_once(7));
        assert!(!caches.processor(0).fetches_at_once(7));
        assert_eq!(caches.processor(0).access(7, Kind::Store), Found::First);
        assert!(caches.processor(0).stores_at_once(7));
        assert_eq!(caches.processor(0).access(7, Kind::Fetch), Found::Second);
        assert!(caches.processor(0).fetches_at_once(7));
    }

    #[test]
    fn devices_take_lines_away_and_have_modified_ones_written_back() {
        let mut caches = SharedCaches::new(2, 32768.0, 131_072.0, true);
        for line in 16..32 {
            caches.perform(line as usize % 2, Miss { line, kind: Kind::Store });
        }
        let mut registers =
            Registers { bytes: 4096, remaining: 4096, block: block_of(4096.0), ..Registers::default() };
        let mut touch = |access, registers: &Registers| {
            let region = Region { first: 0, buffers: 1, sectors: 1 };
            caches.touch(access, region, Register::Thread, registers)
        };
        let moves = |written_back| Moves { written_back, fetched: 1024, replaced: 0 };
        assert_eq!(touch(Access::DeviceRead, &registers), moves(0));
        registers.remaining = 3072;
        assert_eq!(touch(Access::DeviceRead, &registers), moves(1024));
        assert_eq!(touch(Access::DeviceRead, &registers), moves(0));
        assert_eq!(touch(Access::DeviceWrite, &registers), moves(0));
        assert_eq!(caches.processor(0).access(16, Kind::Load), Found::Beyond);
    }

    #[test]
    fn sizes_make_sets_of_a_power_of_two_and_four_ways_at_least() {
        for (bytes, sets, ways) in [(32768.0, 128, 4), (49152.0, 128, 6), (1_310_720.0, 4096, 5), (0.0, 1, 4)]
        {
            let level = Level::new(bytes);
            assert_eq!((level.mask + 1, level.ways), (sets, ways));
        }
    }
}
