//! Registers of a controller (NVM Express Base Specification 2.0, section 3.1.3 "Controller Properties"). Pure.

use std::time::Duration;

/// Offset of Controller Capabilities (CAP), 64 bits.
pub const CAP: usize = 0x00;
/// Offset of Controller Configuration (CC), 32 bits.
pub const CC: usize = 0x14;
/// Offset of Controller Status (CSTS), 32 bits.
pub const CSTS: usize = 0x1c;
/// Offset of Admin Queue Attributes (AQA), 32 bits.
pub const AQA: usize = 0x24;
/// Offset of Admin Submission Queue Base Address (ASQ), 64 bits.
pub const ASQ: usize = 0x28;
/// Offset of Admin Completion Queue Base Address (ACQ), 64 bits.
pub const ACQ: usize = 0x30;
/// Offset of the first doorbell, the tail of the admin submission queue.
pub const DOORBELLS: usize = 0x1000;

/// Value of all registers of a function that was removed from its bus.
pub const REMOVED: u32 = u32::MAX;

/// Value of Controller Capabilities (CAP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Returns the greatest number of entries of an I/O queue (MQES is zero-based), 2 to 65,536.
    pub fn queue_entries_max(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// Returns the greatest time that the controller takes to become ready or to stop being ready (TO, in units of
    /// 500 ms; a controller that states 0 is given one unit).
    pub fn timeout(self) -> Duration {
        Duration::from_millis(500) * ((self.0 >> 24 & 0xff) as u32).max(1)
    }

    /// Returns the distance of two doorbells, in bytes (DSTRD).
    pub fn doorbell_stride(self) -> usize {
        4 << (self.0 >> 32 & 0xf)
    }

    /// Returns true if the controller supports the NVM command set (CSS bit 0).
    pub fn has_nvm_commands(self) -> bool {
        self.0 >> 37 & 1 == 1
    }

    /// Returns the size of the smallest page that the controller supports, in bytes (MPSMIN).
    pub fn page_min(self) -> u64 {
        1 << (12 + (self.0 >> 48 & 0xf))
    }

    /// Returns the offset of the tail doorbell of submission queue `queue`.
    pub fn submission_doorbell(self, queue: u16) -> usize {
        DOORBELLS + 2 * usize::from(queue) * self.doorbell_stride()
    }

    /// Returns the offset of the head doorbell of completion queue `queue`.
    pub fn completion_doorbell(self, queue: u16) -> usize {
        DOORBELLS + (2 * usize::from(queue) + 1) * self.doorbell_stride()
    }
}

/// Value of Controller Configuration (CC) of an enabled controller: NVM command set, pages of 4096 bytes, round robin
/// arbitration, submission queue entries of 2^6 and completion queue entries of 2^4 bytes.
pub const ENABLED: u32 = 4 << 20 | 6 << 16 | 1;
/// Bits of Controller Configuration that announce a normal shutdown (SHN = 01b).
pub const SHUTDOWN: u32 = 1 << 14;

/// Value of Controller Status (CSTS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// Returns true if the function was removed: its registers read all ones.
    pub fn is_removed(self) -> bool {
        self.0 == REMOVED
    }

    /// Returns true if the controller takes commands (RDY).
    pub fn is_ready(self) -> bool {
        self.0 & 1 == 1
    }

    /// Returns true if the controller had an error from which only a reset helps (CFS).
    pub fn is_fatal(self) -> bool {
        self.0 >> 1 & 1 == 1
    }

    /// Returns true if the controller has finished its shutdown (SHST = 10b).
    pub fn is_shut_down(self) -> bool {
        self.0 >> 2 & 3 == 2
    }
}

/// Returns the value of Admin Queue Attributes (AQA) for two queues of `entries` entries.
pub fn admin_queue_attributes(entries: u16) -> u32 {
    let last = u32::from(entries - 1);
    last << 16 | last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_capabilities_are_read() {
        // As QEMU reports them: 2048 entries, contiguous queues, 7.5 s, stride 4, NVM commands, pages of 4 KiB to 64 KiB.
        let capabilities = Capabilities(0x0040_0020_0f01_07ff);
        assert_eq!(capabilities.queue_entries_max(), 2048);
        assert_eq!(capabilities.timeout(), Duration::from_millis(7500));
        assert_eq!(capabilities.doorbell_stride(), 4);
        assert_eq!(capabilities.page_min(), 4096);
        assert!(capabilities.has_nvm_commands());
        assert_eq!(capabilities.submission_doorbell(0), 0x1000);
        assert_eq!(capabilities.completion_doorbell(3), 0x101c);
        let wide = Capabilities(2 << 32 | 1 << 48);
        assert_eq!(
            (wide.doorbell_stride(), wide.page_min(), wide.timeout()),
            (16, 8192, Duration::from_millis(500))
        );
        assert_eq!(wide.completion_doorbell(1), 0x1030);
        assert!(!wide.has_nvm_commands());
    }

    #[test]
    fn fields_of_status_are_read() {
        let bits = |value| {
            let status = Status(value);
            [status.is_ready(), status.is_fatal(), status.is_shut_down(), status.is_removed()]
        };
        assert_eq!(bits(0), [false; 4]);
        assert_eq!(bits(1), [true, false, false, false]);
        assert_eq!(bits(2), [false, true, false, false]);
        assert_eq!(bits(4), [false; 4]);
        assert_eq!(bits(9), [true, false, true, false]);
        assert!(Status(u32::MAX).is_removed());
    }

    #[test]
    fn golden_configuration() {
        assert_eq!(ENABLED, 0x0046_0001);
        assert_eq!(ENABLED | SHUTDOWN, 0x0046_4001);
        assert_eq!(admin_queue_attributes(32), 0x001f_001f);
    }
}
