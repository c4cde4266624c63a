//! The PCI function of a controller, as its driver sees it: registers, memory for DMA, an interrupt and a clock.
//!
//! Two types implement [`Function`]: [`Vfio`](crate::Vfio) is a real one, and `testing::Model` a controller in
//! software. The driver is generic over the type, so that a doorbell is a single store to a mapped register.

use crate::error::Error;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// PCI function of an NVMe controller. Offsets of registers are those of the specification (section 3.1.3).
pub trait Function: Send + Sync + 'static {
    /// Reads a register of 32 bits. A function that was removed reads all ones.
    fn read32(&self, register: usize) -> u32;

    /// Reads a register of 64 bits.
    fn read64(&self, register: usize) -> u64;

    /// Writes a register of 32 bits.
    fn write32(&self, register: usize, value: u32);

    /// Writes a register of 64 bits.
    fn write64(&self, register: usize, value: u64);

    /// Returns the number of bytes of registers and doorbells that can be accessed.
    fn register_bytes(&self) -> usize;

    /// Lets the controller read and write `bytes` bytes of memory from `base` on, both multiples of a page, and
    /// returns the address by which the controller accesses them (I/O virtual address).
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses, for example because of its limit of locked memory (`RLIMIT_MEMLOCK`) or
    /// because no range of addresses is left.
    ///
    /// # Safety
    /// The memory stays mapped, and no Rust reference points into it, until [`Function::unmap`] has returned true for
    /// it or the function has been dropped.
    #[expect(unsafe_code, reason = "the controller accesses memory behind the compiler's back")]
    unsafe fn map(&self, base: *mut u8, bytes: usize) -> Result<u64, Error>;

    /// Ends the controller's access to memory that [`Function::map`] mapped at `address`. Returns false if the kernel
    /// refuses: the memory must not be freed then.
    fn unmap(&self, address: u64, bytes: usize) -> bool;

    /// Returns the time since some fixed moment.
    fn now(&self) -> Duration;

    /// Lets some time pass before the next look at a register: 50 us or so.
    fn pause(&self);

    /// Returns the number of interrupts that the function can tell apart; 0 if it has no usable one.
    fn vectors(&self) -> u16;

    /// Makes descriptors for the interrupts below `count`, which is at most [`Function::vectors`]. Before, there is the one of
    /// interrupt 0. Called once, while nothing is in flight.
    ///
    /// # Errors
    /// [`Error::Io`] if the process has too many descriptors, or the kernel refuses.
    fn use_vectors(&self, count: u16) -> Result<(), Error>;

    /// Returns the descriptor that becomes readable at an interrupt and at the time set by [`Function::arm`]. `None`
    /// if there is none for the interrupt `vector`.
    fn descriptor(&self, vector: u16) -> Option<BorrowedFd<'_>>;

    /// Makes the descriptor of `vector` unreadable until the next interrupt, or until the time `alarm`. Returns false if
    /// there is no such descriptor, or if the kernel refuses to pass interrupts on.
    fn arm(&self, vector: u16, alarm: Option<Duration>) -> bool;

    /// Ends interrupts until the next [`Function::arm`], so that they cost a user nothing who polls.
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel refuses.
    fn silence(&self) -> Result<(), Error>;

    /// Makes the descriptor of `vector` readable, as an interrupt would.
    fn wake(&self, vector: u16);

    /// Ends all access of the function to memory at once, whatever state its controller is in.
    fn cut_off(&self);

    /// Returns true if the function's owner has been told to release it, for example before it is removed.
    fn release_requested(&self) -> bool {
        false
    }

    /// Describes in words which function this is, and how it is reached.
    fn description(&self) -> String;
}
