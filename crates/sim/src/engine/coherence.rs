//! Caches of the processors, and the coherence between them and with the devices.
//!
//! The module follows regions of memory ([`Region`]) through caches with sets and ways. Its unit is a sector of
//! 1 KiB instead of a line: data of I/O is accessed in order and completely, so the lines of a sector have the
//! same state. A sector is in no cache, unmodified in any number of caches, or modified in one (invalid, shared
//! and modified; write-allocate, write-back, least recently used).
//!
//! ```text
//!     access                      sector in memory    modified in another cache    in the own cache
//!     a processor reads           fetch               write back, fetch            nothing
//!     a processor overwrites      fetch               write back, fetch            nothing
//!     a device reads              fetch               write back, fetch
//!     a device writes             fetch (a store)     fetch (a store)              all copies become invalid
//! ```
//!
//! A miss on a sector that another cache holds modified takes three phases, as in Table IV of Carrera et al.: the
//! request finds the owner, the owner writes the sector back to memory, and memory supplies it. Each of the last
//! two moves the sector over the memory bus once. With *intervention*, as in later machines, the owner supplies
//! the requester and memory at once, so the sector crosses the bus once. A modified sector that a miss replaces is written back later.
//!
//! A run calls the module at each [`Op::Touch`](super::net::Op). Cost: one look-up in a set of the own cache, and
//! in those of other caches if they hold the sector.

use super::net::{Register, Registers};
use super::time::Time;

/// Size of a sector, in bytes.
pub const SECTOR: u32 = 1024;
/// Ways of a set.
const WAYS: usize = 4;
/// Tag of an empty way.
const EMPTY: u32 = u32::MAX;

/// Access to a block of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A processor reads the block.
    Read,
    /// A processor overwrites the block.
    Write,
    /// A device reads the block.
    DeviceRead,
    /// A device overwrites the block.
    DeviceWrite,
}

/// Region of memory that consists of equal buffers, of which a register of the job selects one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Number of the first sector.
    pub first: u32,
    /// Number of buffers. A larger number in the register starts again at the first buffer.
    pub buffers: u32,
    /// Size of a buffer, in sectors. Data beyond it overwrites the buffer from its beginning.
    pub sectors: u32,
}

impl Region {
    /// Returns the number of the sector behind the region.
    pub fn end(&self) -> u32 {
        self.first + self.buffers * self.sectors
    }

    fn sector(&self, buffer: u32, number: u32) -> u32 {
        self.first + buffer % self.buffers * self.sectors + number % self.sectors
    }
}

/// Bytes that an access moves over the memory bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Bytes that another cache writes back before the access.
    pub written_back: u32,
    /// Bytes that the access itself fetches or stores.
    pub fetched: u32,
    /// Modified bytes that the access replaced, to be written back later.
    pub replaced: u32,
}

/// Caches of the processors, as the operations of jobs access them.
pub trait Coherence {
    /// Accesses the current block of a job with these registers, in the buffer of `region` that `buffer` selects.
    fn touch(&mut self, access: Access, region: Region, buffer: Register, registers: &Registers) -> Moves;

    /// Returns the time that a processor waits for an access if nothing else uses memory.
    fn idle_time(&self, moves: Moves) -> Time;
}

/// Caches of all processors.
#[derive(Clone, Debug, PartialEq)]
pub struct Caches {
    /// Number of sets of a cache; 0 for no caches.
    sets: u32,
    /// Sectors by processor, set and way. A set's most recently used way comes first.
    tags: Vec<[u32; WAYS]>,
    /// State of each sector of memory.
    states: Vec<SectorState>,
    /// Time that idle memory takes to fetch a byte, and to write one back, in picoseconds.
    idle: [f64; 2],
    /// True if memory supplies a modified sector after its owner wrote it back; otherwise the owner supplies it.
    is_three_phase: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SectorState {
    /// Number of caches that hold the sector.
    copies: u16,
    /// True if the one cache that holds the sector has modified it.
    is_modified: bool,
}

impl Caches {
    /// Returns empty caches of `bytes` bytes for each of `processors` processors, and a memory of `sectors`
    /// sectors.
    pub fn new(processors: u32, bytes: f64, sectors: u32) -> Caches {
        let sets = (bytes / f64::from(SECTOR) / WAYS as f64).floor().clamp(0.0, f64::from(1u32 << 20)) as u32;
        // The number of copies has 16 bits.
        let processors = processors.min(u32::from(u16::MAX));
        Caches {
            sets,
            tags: vec![[EMPTY; WAYS]; (sets * processors) as usize],
            states: vec![SectorState::default(); sectors as usize],
            idle: [0.0; 2],
            is_three_phase: true,
        }
    }

    /// Returns the caches with owners that supply modified sectors to the requester and to memory at once.
    pub fn with_intervention(self) -> Caches {
        Caches { is_three_phase: false, ..self }
    }

    /// Returns the caches with the seconds that idle memory takes to fetch a byte, and to write one back.
    pub fn with_idle_memory(self, fetched: f64, written_back: f64) -> Caches {
        Caches { idle: [fetched, written_back].map(|seconds| seconds * 1e12), ..self }
    }

    /// Accesses `bytes` bytes of a buffer, from the byte `from` on, by the processor `processor` or by a device.
    fn touch_bytes(
        &mut self,
        access: Access,
        region: Region,
        [buffer, processor]: [u32; 2],
        from: u32,
        bytes: u32,
    ) -> Moves {
        let mut sum = Moves::default();
        let is_three_phase = u32::from(self.is_three_phase);
        let mut moved = 0;
        while moved < bytes {
            let here = (bytes - moved).min(SECTOR);
            let sector = region.sector(buffer, (from + moved) / SECTOR);
            let Moves { written_back, fetched, replaced } = match access {
                Access::Read | Access::Write => self.by_processor(processor, sector, access == Access::Write),
                Access::DeviceRead => self.by_device(sector, false),
                Access::DeviceWrite => self.by_device(sector, true),
            };
            // Each part is 0 or 1 sector.
            sum.written_back += written_back * is_three_phase * here;
            sum.fetched += fetched * here;
            sum.replaced += replaced * SECTOR;
            moved += here;
        }
        sum
    }

    /// Accesses one sector by a processor. Returns numbers of sectors.
    fn by_processor(&mut self, processor: u32, sector: u32, writes: bool) -> Moves {
        if self.sets == 0 {
            // Without caches, what is written passes the bus twice: it is fetched, and written back later.
            return Moves { written_back: 0, fetched: 1, replaced: u32::from(writes) };
        }
        let set = self.set(processor, sector);
        let ways = &mut self.tags[set];
        let state = &mut self.states[sector as usize];
        if let Some(way) = ways.iter().position(|tag| *tag == sector) {
            ways[..=way].rotate_right(1);
            if writes {
                let others = state.copies > 1;
                *state = SectorState { copies: state.copies, is_modified: true };
                if others {
                    self.invalidate(sector, Some(processor));
                    self.states[sector as usize].copies = 1;
                }
            }
            return Moves::default();
        }
        let mut moves = Moves { fetched: 1, ..Moves::default() };
        moves.written_back = u32::from(std::mem::take(&mut state.is_modified));
        if writes && state.copies > 0 {
            self.invalidate(sector, None);
            self.states[sector as usize].copies = 0;
        }
        self.states[sector as usize].copies += 1;
        self.states[sector as usize].is_modified = writes;
        let ways = &mut self.tags[set];
        let way = ways.iter().position(|tag| *tag == EMPTY).unwrap_or(WAYS - 1);
        let victim = std::mem::replace(&mut ways[way], sector);
        ways[..=way].rotate_right(1);
        if victim != EMPTY {
            let state = &mut self.states[victim as usize];
            state.copies -= 1;
            moves.replaced = u32::from(std::mem::take(&mut state.is_modified));
        }
        moves
    }

    /// Accesses one sector by a device. Returns numbers of sectors.
    fn by_device(&mut self, sector: u32, writes: bool) -> Moves {
        let state = &mut self.states[sector as usize];
        let is_modified = std::mem::take(&mut state.is_modified);
        if !writes {
            return Moves { written_back: u32::from(is_modified), fetched: 1, replaced: 0 };
        }
        // A device overwrites complete lines, so nothing of the modified sector is needed any more.
        if std::mem::take(&mut state.copies) > 0 {
            self.invalidate(sector, None);
        }
        Moves { written_back: 0, fetched: 1, replaced: 0 }
    }

    fn set(&self, processor: u32, sector: u32) -> usize {
        let processors = self.tags.len() as u32 / self.sets;
        // Pages of four sectors lie anywhere in memory (Knuth's multiplicative hashing).
        let page = (sector / 4).wrapping_mul(2_654_435_769) >> 8;
        (processor % processors * self.sets + (page * 4 + sector % 4) % self.sets) as usize
    }

    /// Removes a sector from all caches, except from that of `keeps`.
    fn invalidate(&mut self, sector: u32, keeps: Option<u32>) {
        let processors = self.tags.len() as u32 / self.sets;
        for processor in (0..processors).filter(|one| keeps.is_none_or(|keeps| keeps % processors != *one)) {
            let set = self.set(processor, sector);
            for tag in self.tags[set].iter_mut().filter(|tag| **tag == sector) {
                *tag = EMPTY;
            }
        }
    }
}

impl Coherence for Caches {
    fn touch(&mut self, access: Access, region: Region, buffer: Register, registers: &Registers) -> Moves {
        let Registers { picks, bytes, remaining, block, .. } = *registers;
        let selected = [picks[buffer as usize], picks[Register::Processor as usize]];
        self.touch_bytes(access, region, selected, bytes - remaining, remaining.min(block))
    }

    fn idle_time(&self, moves: Moves) -> Time {
        let [fetched, written_back] = self.idle;
        let picoseconds = fetched * f64::from(moves.fetched) + written_back * f64::from(moves.written_back);
        Time::from_picoseconds(picoseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    const REGION: Region = Region { first: 0, buffers: 4, sectors: 16 };

    fn moves(written_back: u32, fetched: u32, replaced: u32) -> Moves {
        Moves { written_back, fetched, replaced }
    }

    #[test]
    fn a_miss_on_what_another_cache_modified_takes_three_phases() {
        let mut caches = Caches::new(2, 131_072.0, REGION.end());
        let mut touch = |access, processor| caches.touch_bytes(access, REGION, [0, processor], 0, 16384);
        assert_eq!(touch(Access::Write, 0), moves(0, 16384, 0));
        assert_eq!(touch(Access::Read, 0), moves(0, 0, 0));
        assert_eq!(touch(Access::Read, 1), moves(16384, 16384, 0));
        assert_eq!(touch(Access::Read, 0), moves(0, 0, 0), "the owner keeps an unmodified copy");
        assert_eq!(touch(Access::Write, 0), moves(0, 0, 0), "and the other copy becomes invalid");
        assert_eq!(touch(Access::DeviceRead, 0), moves(16384, 16384, 0));
        assert_eq!(touch(Access::DeviceRead, 0), moves(0, 16384, 0));
        assert_eq!(touch(Access::DeviceWrite, 0), moves(0, 16384, 0));
        assert_eq!(touch(Access::Read, 0), moves(0, 16384, 0), "a device invalidates");
    }

    /// A copy whose target exceeds the cache writes back as many bytes as it modifies.
    #[test]
    fn a_long_copy_writes_back_what_it_wrote() {
        let (source, target) = (
            Region { first: 0, buffers: 1, sectors: 4096 },
            Region { first: 4096, buffers: 1, sectors: 4096 },
        );
        let mut caches = Caches::new(1, 131_072.0, target.end());
        let (mut fetched, mut replaced) = (0, 0);
        for block in 0..4096 {
            for (access, region) in [(Access::Read, source), (Access::Write, target)] {
                let moves = caches.touch_bytes(access, region, [0, 0], block * SECTOR, SECTOR);
                (fetched, replaced) = (fetched + moves.fetched, replaced + moves.replaced);
            }
        }
        assert_eq!(fetched, 2 * 4096 * SECTOR);
        // About half of the cache, of 128 sectors, still holds modified sectors.
        assert!((4096 - 96..4096 - 32).contains(&(replaced / SECTOR)), "{replaced}");
    }

    #[test]
    fn without_a_cache_all_passes_the_bus() {
        let mut caches = Caches::new(4, 0.0, REGION.end());
        assert_eq!(caches.touch_bytes(Access::Read, REGION, [0, 0], 0, 2048), moves(0, 2048, 0));
        assert_eq!(caches.touch_bytes(Access::Write, REGION, [0, 0], 0, 2048), moves(0, 2048, 2048));
        assert_eq!(caches.touch_bytes(Access::DeviceRead, REGION, [0, 0], 0, 2048), moves(0, 2048, 0));
    }

    /// Compares random accesses with a model that stores the holders of each sector.
    #[test]
    fn random_accesses_are_those_of_a_simple_model() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (processors, sets) = (3, 4);
            let mut caches = Caches::new(processors, f64::from(sets * 4 * SECTOR), REGION.end());
            let mut modified: BTreeMap<u32, u32> = BTreeMap::new();
            let mut lists: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
            for _ in 0..5000 {
                let mut draw = |count: u64| random.below(count) as u32;
                let (kind, sector, own) = (draw(4), draw(64), draw(u64::from(processors)));
                let access =
                    [Access::Read, Access::Write, Access::DeviceRead, Access::DeviceWrite][kind as usize];
                let set = caches.set(0, sector) as u32;
                let holders: BTreeSet<u32> = (0..processors)
                    .filter(|one| lists.get(&(*one, set)).is_some_and(|list| list.contains(&sector)))
                    .collect();
                let is_own = holders.contains(&own) && kind < 2;
                let mut wanted = moves(0, 1, 0);
                if is_own {
                    wanted.fetched = 0;
                } else if access != Access::DeviceWrite && modified.contains_key(&sector) {
                    wanted.written_back = 1;
                }
                if !is_own {
                    modified.remove(&sector);
                }
                if access == Access::Write || access == Access::DeviceWrite {
                    for holder in holders.iter().filter(|one| **one != own || kind == 3) {
                        lists.get_mut(&(*holder, set)).unwrap().retain(|one| *one != sector);
                    }
                }
                if kind < 2 {
                    let list = lists.entry((own, set)).or_default();
                    list.retain(|one| *one != sector);
                    list.insert(0, sector);
                    if list.len() > 4 {
                        let victim = list.pop().unwrap();
                        wanted.replaced = u32::from(modified.remove(&victim).is_some());
                    }
                    if access == Access::Write {
                        modified.insert(sector, own);
                    }
                }
                let found =
                    caches.touch_bytes(access, REGION, [sector / 16, own], sector % 16 * SECTOR, SECTOR);
                let whole = |part: u32| part * SECTOR;
                let wanted = moves(whole(wanted.written_back), whole(wanted.fetched), whole(wanted.replaced));
                assert_eq!(found, wanted, "seed {seed}: {access:?} of sector {sector} by {own}");
            }
        }
    }
}
