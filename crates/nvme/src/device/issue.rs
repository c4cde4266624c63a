//! State of a slot in one word, so that one comparison finds what is usual. Pure. Called by the slots and the direct path.

/// Stage of a slot's command, its history, its pair of queues and the key of its transfer, in one word, so that one comparison
/// finds what is usual.
///
/// ```text
///   63    32 31         16 15        8 7   6   5         4          3         2          1          0
///   │ key   │ queue      │ repeats   │ 0     │ changes │ reserved │ aborted │ direct   │ issued   │ used   │
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Issue(u64);

impl Issue {
    /// The slot has a command.
    pub(super) const USED: u64 = 1;
    /// A command of the controller is in flight.
    pub(super) const ISSUED: u64 = 1 << 1;
    /// The command is direct: one command of the controller reads or writes contiguous memory.
    pub(super) const DIRECT: u64 = 1 << 2;
    /// The command of the controller in flight is being aborted.
    pub(super) const ABORTED: u64 = 1 << 3;
    /// The slot belongs to a transfer.
    pub(super) const RESERVED: u64 = 1 << 4;
    /// The command is direct and changes the device.
    pub(super) const CHANGES: u64 = 1 << 5;
    const REPEATS_SHIFT: u32 = 8;
    const QUEUE_SHIFT: u32 = 16;
    const QUEUE: u64 = 0xffff << Issue::QUEUE_SHIFT;
    const KEY_SHIFT: u32 = 32;
    /// State of a direct command in flight and in no trouble, without its pair of queues.
    pub(super) const IN_FLIGHT: u64 = Issue::USED | Issue::ISSUED | Issue::DIRECT;

    /// Returns the state of an unused slot, whose commands the pair of queues `queue` carries out.
    pub(super) fn unused(queue: u16) -> Issue {
        Issue(u64::from(queue) << Issue::QUEUE_SHIFT).with_key(Key::NONE)
    }

    /// Returns the pair of queues of a slot that has no command, and whose transfer has the key `key`.
    #[inline(always)]
    pub(super) fn queue_of_idle(self, key: Key) -> Option<usize> {
        let differs = self.0 ^ key.0;
        (differs & !Issue::QUEUE == 0).then_some((differs >> Issue::QUEUE_SHIFT) as usize)
    }

    /// Returns true if the slot's command is the direct read of a transfer, carried out by the pair of queues `queue`, in
    /// flight, and in no trouble.
    #[inline(always)]
    pub(super) fn is_reading_of(self, queue: u16) -> bool {
        self.0 as u32 == u32::from(queue) << Issue::QUEUE_SHIFT | (Issue::IN_FLIGHT | Issue::RESERVED) as u32
    }

    /// Returns true if the slot's command is a direct read, but not of a transfer, carried out by the pair of queues `queue`, in
    /// flight, and in no trouble.
    #[inline(always)]
    pub(super) fn is_read_of(self, queue: u16) -> bool {
        self.0 as u32 == u32::from(queue) << Issue::QUEUE_SHIFT | Issue::IN_FLIGHT as u32
    }

    /// Returns true if the slot's command is direct, carried out by the pair of queues `queue`, in flight, and in no trouble.
    #[inline]
    pub(super) fn is_direct_of(self, queue: u16) -> bool {
        let any = (Issue::RESERVED | Issue::CHANGES) as u32;
        self.0 as u32 & !any == u32::from(queue) << Issue::QUEUE_SHIFT | Issue::IN_FLIGHT as u32
    }

    #[inline(always)]
    pub(super) fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    #[inline(always)]
    pub(super) fn set(&mut self, bit: u64, is_set: bool) {
        self.0 = if is_set { self.0 | bit } else { self.0 & !bit };
    }

    /// Keeps the pair of queues, the transfer and its key alone.
    #[inline(always)]
    pub(super) fn reset(&mut self, bits: u64) {
        self.0 = self.0 & (!0 << Issue::QUEUE_SHIFT | Issue::RESERVED) | bits;
    }

    pub(super) fn with_key(self, key: Key) -> Issue {
        Issue(self.0 & !(!0 << Issue::KEY_SHIFT) | key.0 & !0 << Issue::KEY_SHIFT)
    }

    /// Notes that the direct read of a transfer, which had no command, is in flight.
    #[inline(always)]
    pub(super) fn begin_reading(&mut self) {
        self.0 |= Issue::IN_FLIGHT;
    }

    /// Notes that the direct read of a transfer is in flight no longer.
    #[inline(always)]
    pub(super) fn end_reading(&mut self) {
        self.0 &= !Issue::IN_FLIGHT;
    }

    /// Counts a repetition, and returns the number of repetitions, at most 255.
    pub(super) fn count_repeat(&mut self) -> u32 {
        let repeats = (self.0 >> Issue::REPEATS_SHIFT & 0xff) as u32 + 1;
        if repeats <= 0xff {
            self.0 += 1 << Issue::REPEATS_SHIFT;
        }
        repeats
    }

    /// Returns the index of the slot's pair of queues.
    #[inline(always)]
    pub(super) fn queue(self) -> usize {
        ((self.0 & Issue::QUEUE) >> Issue::QUEUE_SHIFT) as usize
    }
}

/// Number of the device and of a slot, which is the same for both while the slot's transfer can be submitted directly without another
/// look: it reads, nothing is in its way, and its region is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    /// Key of a device that submits no transfer without another look.
    pub(super) const CLOSED: Key = Key::new(0);
    /// Key of a slot whose transfer is not submitted without another look.
    pub(super) const NONE: Key = Key::new(1);

    /// Returns the key after `unregistered` regions were unregistered.
    #[inline]
    pub(super) fn open(unregistered: u32) -> Key {
        Key::new(unregistered << 1 | 2)
    }

    /// Makes a key with the bits of a slot that belongs to a transfer and has no command.
    const fn new(number: u32) -> Key {
        Key((number as u64) << Issue::KEY_SHIFT | Issue::RESERVED)
    }
}
