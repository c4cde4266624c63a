//! Properties of the controller in software, and what it has seen.

use std::time::Duration;

/// A namespace of the controller in software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelNamespace {
    /// Number of the namespace, from 1 on.
    pub number: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Size of a block, as a power of two.
    pub block_exponent: u8,
    /// Bytes of metadata of a block.
    pub metadata: u16,
}

impl ModelNamespace {
    /// Describes a namespace without metadata.
    pub fn new(number: u32, blocks: u64, block_exponent: u8) -> ModelNamespace {
        ModelNamespace { number, blocks, block_exponent, metadata: 0 }
    }
}

/// Properties of the controller in software.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelOptions {
    /// Namespaces, which contain zeros.
    pub namespaces: Vec<ModelNamespace>,
    /// Greatest number of entries of an I/O queue, 2 to 65,536.
    pub queue_entries_max: u32,
    /// Number of pairs of I/O queues that are granted.
    pub queues_max: u16,
    /// Limit of a command's data, as the exponent of a number of pages (MDTS); 0 for none.
    pub transfer_exponent: u8,
    /// Distance of two doorbells, as the exponent of a number of 4 bytes (DSTRD).
    pub doorbell_exponent: u8,
    /// True if the controller has Compare.
    pub compare: bool,
    /// True if the controller has Dataset Management.
    pub deallocate: bool,
    /// True if the controller has Write Zeroes.
    pub write_zeroes: bool,
    /// True if the controller has Verify.
    pub verify: bool,
    /// Limit of the blocks of Verify, as the exponent of a number of pages (VSL); 0 for none.
    pub verify_exponent: u8,
    /// True if the controller has scatter/gather lists.
    pub scatter_gather: bool,
    /// True if the controller has shadow doorbells.
    pub doorbell_buffers: bool,
    /// True if the function has an interrupt.
    pub interrupts: bool,
    /// Opcodes of the admin commands that the controller carries out although they concern other controllers; it refuses
    /// those that are not listed.
    pub privileged: Vec<u8>,
    /// Seed for the order in which commands in flight complete; `None` for the order of their submission.
    pub shuffle: Option<u64>,
    /// Time from enabling the controller until it is ready.
    pub ready_after: Duration,
}

impl ModelOptions {
    /// Describes a controller with one namespace and everything optional.
    pub fn new(namespace: ModelNamespace) -> ModelOptions {
        ModelOptions {
            namespaces: vec![namespace],
            queue_entries_max: 2048,
            queues_max: 64,
            transfer_exponent: 7,
            doorbell_exponent: 0,
            compare: true,
            deallocate: true,
            write_zeroes: true,
            verify: true,
            verify_exponent: 0,
            scatter_gather: true,
            doorbell_buffers: false,
            interrupts: true,
            privileged: Vec::new(),
            shuffle: None,
            ready_after: Duration::from_millis(100),
        }
    }
}

/// Numbers of what the controller in software has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// I/O commands that were taken from queues.
    pub taken: u64,
    /// I/O commands that were completed.
    pub completed: u64,
    /// Accesses to memory that was not mapped, which were rejected.
    pub faults: u64,
    /// Writes of doorbell registers.
    pub doorbells: u64,
    /// Writes of doorbell registers while the controller was not ready.
    pub doorbells_while_stopped: u64,
    /// Abort commands.
    pub aborts: u64,
    /// Number of times that an enabled controller was disabled.
    pub resets: u64,
    /// Number of times that a shutdown was announced.
    pub shutdowns: u64,
    /// Privileged admin commands with valid fields, which would have had an effect.
    pub changes: u64,
    /// Blocks that Verify has found readable.
    pub verified: u64,
    /// Data bytes that were moved from and to memory.
    pub bytes: u64,
}
