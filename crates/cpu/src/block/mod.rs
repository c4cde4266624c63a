//! Blocks: decoded instructions in the order in which they are executed, and the links between them.
//!
//! A block begins where a jump leads and contains the instructions that follow, also behind untaken branches
//! and behind jumps to known addresses, up to [`BLOCK_INSTRUCTIONS`]. Each point at which control can leave
//! it is an [`ExitPoint`] with the target and, once known, the target's block, so that loops run from block
//! to block without a search.
//!
//! An exit point that closes a loop of loads and computations whose iterations are all the same is marked
//! ([`ExitPoint::is_spin`]): the interpreter executes one iteration and counts the others.
//!
//! Invariant: every block was decoded at [`Blocks::version`] of its memory's code. [`Blocks::synchronise`]
//! removes all blocks when the memory has another version.

mod translate;

pub(crate) use translate::fetch;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::decode::Operation;
use crate::memory::{Fault, Memory};
use crate::register::Register;

/// Decoded blocks of one memory's code. Harts that run in the same memory share them.
///
/// ```
/// use bywash_cpu::{Blocks, Hart, Exit, memory::{Permissions, Space}};
///
/// let mut space = Space::new(1 << 20);
/// space.map(0x1_0000, 0x1000, Permissions::READ | Permissions::EXECUTE)?;
/// space.initialise(0x1_0000, &0x0000_0073_u32.to_le_bytes())?; // ecall
/// let mut hart = Hart::new(0x1_0000);
/// assert_eq!(hart.run(&mut space, &mut Blocks::new(), 10), Exit::EnvironmentCall);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Version of the code that was decoded.
    version: u64,
    /// True if blocks are kept and joined. Otherwise each instruction is decoded when it is executed.
    is_caching: bool,
    /// Blocks in the order of their decoding.
    list: Vec<Block>,
    /// Operations of all blocks.
    operations: Vec<MicroOperation>,
    /// Address of each instruction of all blocks; behind those of a block, the address that follows it.
    addresses: Vec<u64>,
    /// Points at which control leaves blocks.
    exits: Vec<ExitPoint>,
    /// Blocks by the address at which they begin.
    by_start: HashMap<u64, BlockIndex, BuildHasherDefault<AddressHasher>>,
    /// Addresses to which jumps led recently and their blocks, by the lowest bits of the address.
    recent: Vec<(u64, BlockIndex)>,
}

/// Index of a block in [`Blocks::list`].
pub(crate) type BlockIndex = u32;

/// Index of no block.
pub(crate) const NO_BLOCK: BlockIndex = u32::MAX;

/// Index of no exit point: the block ends with a jump to a register's address, a call or an illegal
/// instruction.
pub(crate) const NO_EXIT: u32 = u32::MAX;

/// Greatest number of instructions of a block.
pub const BLOCK_INSTRUCTIONS: u32 = 64;

/// Number of decoded instructions beyond which all blocks are removed and decoding begins anew: then they
/// occupy 40 MiB at most.
const INSTRUCTIONS_LIMIT: usize = 1 << 20;

/// Number of entries of the table of recent jumps.
const RECENT: usize = 4096;

/// Address in an entry of the table of recent jumps that is not in use; no instruction has an odd address.
const NO_ADDRESS: u64 = 1;

/// Operation of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MicroOperation {
    /// Immediate operand; exit point of a branch; third source of a fused multiply-add; result of a constant.
    pub immediate: i64,
    /// Operation.
    pub operation: Operation,
    /// Destination, [`Register::Sink`] for x0.
    pub rd: Register,
    /// First source.
    pub rs1: Register,
    /// Second source.
    pub rs2: Register,
    /// Rounding mode.
    pub rounding: u8,
    /// Number of the block's instructions before this one.
    pub number: u8,
}

/// Block of instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// Index of the first operation.
    pub first: u32,
    /// Index behind the last operation.
    pub end: u32,
    /// Number of instructions.
    pub instructions: u32,
    /// Index of the first instruction's address.
    pub addresses: u32,
    /// Exit point behind the last instruction.
    pub exit: u32,
}

/// Point at which control leaves a block for a known address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExitPoint {
    /// Address of the next instruction.
    pub target: u64,
    /// Its block, or [`NO_BLOCK`].
    pub block: BlockIndex,
    /// True if it leads back to the block's start, and to execute the block up to here once more changes nothing as long
    /// as memory does not change: a loop that waits for a value in memory.
    pub is_spin: bool,
}

impl Blocks {
    /// Makes a cache without blocks.
    pub fn new() -> Blocks {
        Blocks::with_caching(true)
    }

    /// Makes a cache that keeps nothing: each instruction is decoded when it is executed. This is the plain
    /// interpreter, with which tests compare the one with blocks.
    pub fn plain() -> Blocks {
        Blocks::with_caching(false)
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes all blocks.
    pub fn clear(&mut self) {
        self.remove_blocks();
        self.by_start.clear();
        self.recent.fill((NO_ADDRESS, NO_BLOCK));
    }

    /// Removes the blocks themselves; the tables that lead to them must have none.
    fn remove_blocks(&mut self) {
        self.list.clear();
        self.operations.clear();
        self.addresses.clear();
        self.exits.clear();
    }

    /// Makes a cache without blocks.
    fn with_caching(is_caching: bool) -> Blocks {
        Blocks {
            version: 0,
            is_caching,
            list: Vec::new(),
            operations: Vec::new(),
            addresses: Vec::new(),
            exits: Vec::new(),
            by_start: HashMap::default(),
            recent: vec![(NO_ADDRESS, NO_BLOCK); RECENT],
        }
    }

    /// Removes all blocks if the memory's code has changed, or if there are too many.
    #[inline(always)]
    pub(crate) fn synchronise(&mut self, version: u64) -> bool {
        let is_current = self.version == version;
        if !is_current {
            self.clear();
            self.version = version;
        }
        is_current
    }

    /// Returns the block that begins at an address.
    ///
    /// # Errors
    ///
    /// The first instruction cannot be fetched.
    #[inline]
    pub(crate) fn find<M: Memory>(&mut self, address: u64, memory: &mut M) -> Result<BlockIndex, Fault> {
        let (recent, block) = self.recent[(address >> 1) as usize % RECENT];
        if recent == address { Ok(block) } else { self.find_slowly(address, memory) }
    }

    /// Returns a block from the table of all blocks, or decodes it.
    #[inline(never)]
    fn find_slowly<M: Memory>(&mut self, address: u64, memory: &mut M) -> Result<BlockIndex, Fault> {
        if let Some(&block) = self.by_start.get(&address) {
            self.recent[(address >> 1) as usize % RECENT] = (address, block);
            return Ok(block);
        }
        if !self.is_caching {
            self.remove_blocks();
        } else if self.addresses.len() > INSTRUCTIONS_LIMIT {
            self.clear();
        }
        let limit = if self.is_caching { BLOCK_INSTRUCTIONS } else { 1 };
        let block = self.translate(address, limit, memory)?;
        if self.is_caching {
            self.by_start.insert(address, block);
            self.recent[(address >> 1) as usize % RECENT] = (address, block);
        }
        Ok(block)
    }

    /// Returns a block.
    #[inline(always)]
    pub(crate) fn block(&self, index: BlockIndex) -> Block {
        self.list[index as usize]
    }

    /// Returns the operations of a block.
    #[inline(always)]
    pub(crate) fn operations(&self, block: &Block) -> &[MicroOperation] {
        &self.operations[block.first as usize..block.end as usize]
    }

    /// Returns the address of a block's instruction, or the address behind the last.
    #[inline(always)]
    pub(crate) fn address(&self, block: &Block, number: u32) -> u64 {
        self.addresses[(block.addresses + number) as usize]
    }

    /// Returns an exit point.
    #[inline(always)]
    pub(crate) fn exit(&self, exit: u32) -> ExitPoint {
        self.exits[exit as usize]
    }

    /// Returns the block at an exit point's target, and links both if blocks are kept.
    ///
    /// # Errors
    ///
    /// The first instruction cannot be fetched.
    #[inline(never)]
    pub(crate) fn follow<M: Memory>(&mut self, exit: u32, memory: &mut M) -> Result<BlockIndex, Fault> {
        let target = self.exits[exit as usize].target;
        let block = self.find(target, memory)?;
        // Decoding may have removed all blocks, and the exit point with them.
        if let Some(point) =
            self.exits.get_mut(exit as usize).filter(|point| self.is_caching && point.target == target)
        {
            point.block = block;
        }
        Ok(block)
    }
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks::new()
    }
}

/// Hash of an address: it is multiplied by an odd number, and the upper half counts.
#[derive(Clone, Copy, Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
