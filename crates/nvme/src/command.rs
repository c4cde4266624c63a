//! Commands as a controller reads them from a submission queue (Base Specification 2.0, section 3.3.3.1 "Submission Queue
//! Entry"; NVM Command Set Specification, section 3.2). Pure.
//!
//! ```text
//!   double word   0         1     2-3        4-5        6-9            10-15
//!               ┌─────────┬─────┬──────────┬──────────┬──────────────┬──────────────────┐
//!               │ CDW0    │NSID │ reserved │ metadata │ data pointer │ of the command   │
//!               └─────────┴─────┴──────────┴──────────┴──────────────┴──────────────────┘
//!   CDW0: opcode (7:0), fused operation (9:8), PRP or SGL (15:14), command identifier (31:16)
//! ```

use crate::data::DataPointer;

/// Opcodes of the NVM command set.
pub mod io {
    /// Makes all completed writes durable (Flush).
    pub const FLUSH: u8 = 0x00;
    /// Writes blocks (Write).
    pub const WRITE: u8 = 0x01;
    /// Reads blocks (Read).
    pub const READ: u8 = 0x02;
    /// Compares blocks with memory (Compare).
    pub const COMPARE: u8 = 0x05;
    /// Sets blocks to zeros (Write Zeroes).
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Reads blocks inside the controller, and tells whether that is possible (Verify).
    pub const VERIFY: u8 = 0x0c;
    /// Says how blocks are used, here that they are not (Dataset Management with Deallocate).
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Opcodes of admin commands.
pub mod admin {
    /// Creates an I/O submission queue.
    pub const CREATE_SUBMISSION_QUEUE: u8 = 0x01;
    /// Reads a log page (Get Log Page).
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Creates an I/O completion queue.
    pub const CREATE_COMPLETION_QUEUE: u8 = 0x05;
    /// Reads a description of the controller or of a namespace (Identify).
    pub const IDENTIFY: u8 = 0x06;
    /// Requests the end of a command (Abort).
    pub const ABORT: u8 = 0x08;
    /// Sets a feature (Set Features).
    pub const SET_FEATURES: u8 = 0x09;
    /// Waits for an event (Asynchronous Event Request).
    pub const ASYNCHRONOUS_EVENT_REQUEST: u8 = 0x0c;
    /// Tells the controller where the shadow doorbells are (Doorbell Buffer Config).
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;
}

/// Feature that limits the number of I/O queues (Number of Queues).
const NUMBER_OF_QUEUES: u32 = 0x07;
/// Feature that selects the events to be reported (Asynchronous Event Configuration).
const ASYNCHRONOUS_EVENT_CONFIGURATION: u32 = 0x0b;
/// Bit of a command that concerns the medium and not a volatile cache (Force Unit Access): a write is durable before it
/// completes.
pub const FUA: u32 = 1 << 30;
/// Greatest number of blocks of a command, since NLB has 16 bits and is zero-based.
pub const BLOCKS_MAX: u64 = 1 << 16;

/// A command of 64 bytes, as eight words of 64 bits in the processor's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command(pub [u64; 8]);

impl Command {
    /// Makes a command without data and arguments.
    #[inline]
    pub fn new(opcode: u8, identifier: u16, namespace: u32) -> Command {
        let first = u64::from(opcode) | u64::from(identifier) << 16 | u64::from(namespace) << 32;
        Command([first, 0, 0, 0, 0, 0, 0, 0])
    }

    /// Sets the memory that the command moves data to or from.
    #[inline]
    pub fn data(mut self, pointer: DataPointer) -> Command {
        let DataPointer { words, is_sgl } = pointer;
        // PSDT = 01b: a scatter/gather list, and metadata (there is none) in one buffer.
        self.0[0] |= if is_sgl { 1 << 14 } else { 0 };
        [self.0[3], self.0[4]] = words;
        self
    }

    /// Sets command double words 10 and 11.
    #[inline]
    pub fn arguments(mut self, ten: u32, eleven: u32) -> Command {
        self.0[5] = u64::from(ten) | u64::from(eleven) << 32;
        self
    }

    /// Sets the blocks of a command: `count`, 1 to 65,536, from `first` on.
    #[inline]
    fn blocks(mut self, first: u64, count: u64, flags: u32) -> Command {
        debug_assert!((1..=BLOCKS_MAX).contains(&count));
        self.0[5] = first;
        self.0[6] = count.wrapping_sub(1) & 0xffff | u64::from(flags);
        self
    }

    /// Makes a read of `count` blocks, from `first` on.
    #[inline]
    pub fn read(identifier: u16, namespace: u32, first: u64, count: u64) -> Command {
        Command::new(io::READ, identifier, namespace).blocks(first, count, 0)
    }

    /// Makes a read of `count` blocks, from `first` on, which come from the medium and not from a volatile cache (FUA).
    pub fn read_uncached(identifier: u16, namespace: u32, first: u64, count: u64) -> Command {
        Command::new(io::READ, identifier, namespace).blocks(first, count, FUA)
    }

    /// Makes a command that checks whether `count` blocks, from `first` on, can be read from the medium, and moves no data.
    pub fn verify(identifier: u16, namespace: u32, first: u64, count: u64) -> Command {
        Command::new(io::VERIFY, identifier, namespace).blocks(first, count, FUA)
    }

    /// Makes a write of `count` blocks, from `first` on, which is durable when it completes if `is_durable`.
    #[inline]
    pub fn write(identifier: u16, namespace: u32, first: u64, count: u64, is_durable: bool) -> Command {
        let flags = if is_durable { FUA } else { 0 };
        Command::new(io::WRITE, identifier, namespace).blocks(first, count, flags)
    }

    /// Makes a comparison of `count` blocks with memory, from `first` on.
    pub fn compare(identifier: u16, namespace: u32, first: u64, count: u64) -> Command {
        Command::new(io::COMPARE, identifier, namespace).blocks(first, count, 0)
    }

    /// Makes a command that sets `count` blocks to zeros, from `first` on. The controller may not deallocate them.
    pub fn write_zeroes(identifier: u16, namespace: u32, first: u64, count: u64) -> Command {
        Command::new(io::WRITE_ZEROES, identifier, namespace).blocks(first, count, 0)
    }

    /// Makes a flush of a namespace.
    pub fn flush(identifier: u16, namespace: u32) -> Command {
        Command::new(io::FLUSH, identifier, namespace)
    }

    /// Makes a command that deallocates the one range that its data describes (see [`deallocated_range`]).
    pub fn deallocate(identifier: u16, namespace: u32) -> Command {
        // NR = 0: one range, since the number is zero-based. AD (bit 2): Deallocate.
        Command::new(io::DATASET_MANAGEMENT, identifier, namespace).arguments(0, 1 << 2)
    }

    /// Makes an Identify command for the data structure `structure` (CNS).
    pub fn identify(identifier: u16, namespace: u32, structure: u8) -> Command {
        Command::new(admin::IDENTIFY, identifier, namespace).arguments(structure.into(), 0)
    }

    /// Makes a command that requests `count` submission queues and as many completion queues.
    pub fn number_of_queues(identifier: u16, count: u16) -> Command {
        let count = u32::from(count - 1);
        Command::new(admin::SET_FEATURES, identifier, 0).arguments(NUMBER_OF_QUEUES, count << 16 | count)
    }

    /// Makes a command that selects events: critical warnings of health, and changes of namespaces.
    pub fn select_events(identifier: u16) -> Command {
        // Bits 4:0: spare, temperature, reliability, read-only, volatile memory. Bit 8: namespace attributes.
        Command::new(admin::SET_FEATURES, identifier, 0).arguments(ASYNCHRONOUS_EVENT_CONFIGURATION, 0x11f)
    }

    /// Makes a command that completes when an event occurs.
    pub fn event_request(identifier: u16) -> Command {
        Command::new(admin::ASYNCHRONOUS_EVENT_REQUEST, identifier, 0)
    }

    /// Makes a command that reads the first `bytes` bytes, a multiple of 4, of a log page. Reading it lets the
    /// controller report the page's events again.
    pub fn log_page(identifier: u16, page: u8, bytes: u32) -> Command {
        let words = bytes / 4 - 1;
        Command::new(admin::GET_LOG_PAGE, identifier, u32::MAX)
            .arguments((words & 0xffff) << 16 | u32::from(page), words >> 16)
    }

    /// Makes a command that creates completion queue `queue` of `entries` entries at `address`, with interrupts of the vector
    /// `vector`, if it has any.
    pub fn create_completion_queue(
        identifier: u16,
        queue: u16,
        entries: u16,
        address: u64,
        vector: Option<u16>,
    ) -> Command {
        let size = u32::from(entries - 1) << 16 | u32::from(queue);
        // PC (bit 0): contiguous. IEN (bit 1): interrupts enabled.
        let flags = vector.map_or(0b01, |vector| u32::from(vector) << 16 | 0b11);
        let data = DataPointer { words: [address, 0], is_sgl: false };
        Command::new(admin::CREATE_COMPLETION_QUEUE, identifier, 0).data(data).arguments(size, flags)
    }

    /// Makes a command that creates submission queue `queue` of `entries` entries at `address`, whose completions go
    /// to the completion queue of the same number.
    pub fn create_submission_queue(identifier: u16, queue: u16, entries: u16, address: u64) -> Command {
        let size = u32::from(entries - 1) << 16 | u32::from(queue);
        let data = DataPointer { words: [address, 0], is_sgl: false };
        Command::new(admin::CREATE_SUBMISSION_QUEUE, identifier, 0)
            .data(data)
            .arguments(size, u32::from(queue) << 16 | 1)
    }

    /// Makes a command that names the pages of the shadow doorbells and of their event indices.
    pub fn doorbell_buffers(identifier: u16, shadow: u64, events: u64) -> Command {
        let data = DataPointer { words: [shadow, events], is_sgl: false };
        Command::new(admin::DOORBELL_BUFFER_CONFIG, identifier, 0).data(data)
    }

    /// Makes a command that requests the end of command `aborted` of submission queue `queue`.
    pub fn abort(identifier: u16, queue: u16, aborted: u16) -> Command {
        Command::new(admin::ABORT, identifier, 0).arguments(u32::from(aborted) << 16 | u32::from(queue), 0)
    }
}

/// Returns the two words of the range that [`Command::deallocate`] names: `count` blocks from `first` on.
pub fn deallocated_range(first: u64, count: u32) -> [u64; 2] {
    [u64::from(count) << 32, first]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_read_and_write() {
        let data = DataPointer { words: [0x1000, 0x2000], is_sgl: false };
        let Command(words) = Command::read(0x1234, 1, 0x1_0000_0002, 8).data(data);
        assert_eq!(words, [0x0000_0001_1234_0002, 0, 0, 0x1000, 0x2000, 0x1_0000_0002, 7, 0]);
        let data = DataPointer { is_sgl: true, ..data };
        let Command(words) = Command::write(7, 3, 9, 65_536, true).data(data);
        assert_eq!(words, [0x0000_0003_0007_4001, 0, 0, 0x1000, 0x2000, 9, 0x4000_ffff, 0]);
    }

    #[test]
    fn golden_commands_without_data() {
        assert_eq!(Command::flush(5, 1).0, [0x0000_0001_0005_0000, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Command::deallocate(5, 1).0[5], 4 << 32);
        assert_eq!(deallocated_range(7, 3), [3 << 32, 7]);
        assert_eq!(Command::write_zeroes(5, 1, 4, 2).0, [0x0000_0001_0005_0008, 0, 0, 0, 0, 4, 1, 0]);
        assert_eq!(Command::compare(5, 1, 4, 2).0[0] & 0xff, 0x05);
        assert_eq!(
            Command::verify(5, 1, 4, 65_536).0,
            [0x0000_0001_0005_000c, 0, 0, 0, 0, 4, 0x4000_ffff, 0]
        );
    }

    #[test]
    fn golden_admin_commands() {
        assert_eq!(Command::identify(1, 2, 0).0, [0x0000_0002_0001_0006, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Command::number_of_queues(1, 4).0[5], 0x0003_0003 << 32 | 7);
        assert_eq!(
            Command::create_completion_queue(1, 2, 64, 0x3000, Some(0)).0[3..6],
            [0x3000, 0, 3 << 32 | 0x003f_0002]
        );
        assert_eq!(Command::create_submission_queue(1, 2, 64, 0x3000).0[5], 0x0002_0001 << 32 | 0x003f_0002);
        assert_eq!(Command::abort(1, 2, 0x77).0[5], 0x0077_0002);
        assert_eq!(Command::log_page(1, 2, 512).0[5], 0x007f_0002);
        assert_eq!(Command::select_events(1).0[5], 0x11f << 32 | 0x0b);
    }
}
