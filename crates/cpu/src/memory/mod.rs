//! Memory as harts see it: [`Memory`], through which all fetches, loads, stores and atomic operations go, and
//! [`Space`], the flat memory that implements it.
//!
//! A model of caches wraps a memory: it implements [`Memory`], passes each access on, counts what the access
//! costs, and asks the hart to stop when another hart's turn has come. The compiler makes one interpreter for
//! each implementation, so that a memory without a model pays for none.

mod access;
mod pages;
mod regions;
mod reservations;
mod space;

pub use access::{Access, AccessKind, AtomicOperation, Cause, Counter, Entry, Fault, FenceKind, Width};
pub use regions::{ADDRESS_LIMIT, MapError, PAGE_BYTES, Permissions};
pub use reservations::{LINE_BYTES, Reservation};
pub use space::Space;

/// Memory that harts fetch instructions from, load from and store to.
pub trait Memory {
    /// True if the memory is told of instructions ([`Memory::enter`]) and can stop the hart
    /// ([`Memory::stop`]). A memory without a model of time says `false`, and its harts run faster.
    const IS_TIMED: bool;

    /// Reads two bytes of an instruction for its decoding; that the instruction is executed,
    /// [`Memory::enter`] says.
    ///
    /// Later stores to the page change [`Memory::code_version`].
    ///
    /// # Errors
    ///
    /// The address is not mapped, may not be executed, or its page cannot be allocated.
    fn fetch(&mut self, address: u64) -> Result<u16, Fault>;

    /// Loads a value, which need not be aligned, and returns it with zeros above it.
    ///
    /// # Errors
    ///
    /// An address is not mapped, may not be read, or its page cannot be allocated.
    fn load(&mut self, access: Access) -> Result<u64, Fault>;

    /// Stores the lower bytes of a value at an address that need not be aligned, and breaks the reservations
    /// there.
    ///
    /// # Errors
    ///
    /// An address is not mapped, may not be written, or its page cannot be allocated; nothing is stored then.
    fn store(&mut self, access: Access, value: u64) -> Result<(), Fault>;

    /// Replaces a value by what an atomic operation makes of it, and returns the former value with zeros
    /// above it.
    ///
    /// # Errors
    ///
    /// As [`Memory::load`] and [`Memory::store`], and [`Cause::Misaligned`] if the address is no multiple of
    /// the width.
    fn atomic(&mut self, access: Access, operation: AtomicOperation, operand: u64) -> Result<u64, Fault>;

    /// Loads a value and reserves its line (LR).
    ///
    /// # Errors
    ///
    /// As [`Memory::load`], and [`Cause::Misaligned`] if the address is no multiple of the width.
    fn load_reserved(&mut self, access: Access) -> Result<(u64, Reservation), Fault>;

    /// Stores a value if the reservation is for the address and unbroken (SC), ends the reservation, and
    /// returns whether it stored.
    ///
    /// # Errors
    ///
    /// As [`Memory::store`], and [`Cause::Misaligned`] if the address is no multiple of the width.
    fn store_conditional(
        &mut self,
        access: Access,
        reservation: Option<Reservation>,
        value: u64,
    ) -> Result<bool, Fault>;

    /// Ends a reservation whose hart has made another one.
    fn release(&mut self, reservation: Reservation);

    /// Returns a number that changes whenever decoded instructions may be outdated: code was stored to,
    /// unmapped, or protected.
    fn code_version(&self) -> u64;

    /// Tells a timed memory that a hart executes consecutive instructions. Their accesses follow.
    fn enter(&mut self, entry: Entry) {
        let _ = entry;
    }

    /// Asks whether a hart may count further iterations of a loop instead of executing them. The entry is the latest
    /// iteration, which was executed; the others would make the same accesses, all of them loads, and get the same values.
    /// A memory that returns true has taken note of all iterations' accesses; the one that keeps what is here has none of
    /// them counted.
    fn repeat(&mut self, entry: Entry, iterations: u64) -> bool {
        let _ = (entry, iterations);
        false
    }

    /// Tells of a fence at an instruction's position in the entry.
    fn fence(&mut self, kind: FenceKind, position: u32) {
        let _ = (kind, position);
    }

    /// Returns whether the hart shall stop after the present instruction; asked of a timed memory after each
    /// access and each entry.
    fn stop(&mut self) -> bool {
        false
    }

    /// Returns the value of a counter that programs can read; `retired` is the number of instructions that
    /// the hart has retired.
    fn counter(&mut self, counter: Counter, retired: u64) -> u64 {
        let _ = counter;
        retired
    }
}
