//! Storage of a log as one process writes it, in one of three ways ([`WriteMethod`]): a descriptor of a file or device
//! (`descriptor`), memory of a device server that is mapped (`window`), or a request to the keeper, which has the log open
//! (`relay`).

use crate::descriptor::Descriptor;
use crate::layout::{BATCH_HEADER, BATCH_MAX, BLOCK, BatchHeader, Block};
use crate::shared::Shared;
use crate::sys::{self, Errno};
use crate::window::MappedWindow;
use crate::write_method::WriteMethod;
use core::ffi::c_int;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, SeqCst};

/// Storage of a log in this process.
#[derive(Debug)]
pub struct LogFile {
    shared: Shared,
    descriptor: Descriptor,
    window: MappedWindow,
    /// Private memory from which batches are written; null until the first one.
    buffer: AtomicPtr<u8>,
}

/// Block at an address that O_DIRECT accepts.
#[repr(align(4096))]
struct Aligned(Block);

impl LogFile {
    /// The storage of the log whose memory was opened. It is opened at its first use.
    pub fn new(shared: Shared) -> LogFile {
        LogFile {
            shared,
            descriptor: Descriptor::new(shared),
            window: MappedWindow::default(),
            buffer: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Returns the descriptor, which the program must not use; negative if there is none.
    pub fn descriptor(&self) -> c_int {
        self.descriptor.number()
    }

    /// Forgets the descriptor if it is one of `first..=last`, which are about to be closed or replaced. Waits until no
    /// thread uses it.
    pub fn forget(&self, first: u32, last: u32) {
        self.descriptor.forget(first, last);
    }

    /// Opens or maps the storage and maps the buffer, so that a later write fails only if the storage does. Writers that
    /// cannot get either must not write: a failed write stops the log for all.
    ///
    /// # Errors
    /// The kernel's error number; EPROTO if the keeper does not pass what the memory of the log says.
    pub fn prepare(&self) -> Result<(), Errno> {
        self.buffer()?;
        match self.shared.write_method()? {
            WriteMethod::Descriptor => self.descriptor.with(|_| Ok(())),
            WriteMethod::Relay => Ok(()),
            WriteMethod::Window(window) => self.window.prepare(&self.shared, &window),
        }
    }

    /// Forgets the threads that used the descriptor in the parent of this forked child, which does not have them.
    pub fn reset_child(&self) {
        self.descriptor.reset_child();
    }

    /// Writes one block, durably.
    ///
    /// # Errors
    /// The kernel's error number, or the keeper's.
    pub fn write_block(&self, block: u64, bytes: &Block) -> Result<(), Errno> {
        self.write(block, &Aligned(*bytes).0)
    }

    /// Copies the batch in shared memory, completes it by its header, and writes it, durably. Returns its checksum. Callers
    /// hold the lock `write`, so that one thread at a time uses the buffer.
    ///
    /// # Errors
    /// The kernel's error number, or the keeper's.
    pub(crate) fn write_batch(
        &self,
        block: u64,
        header: &BatchHeader,
        from: *const u8,
    ) -> Result<u64, Errno> {
        let buffer = self.buffer()?;
        let length = (header.length as usize).clamp(BATCH_HEADER, BATCH_MAX);
        let whole = length.next_multiple_of(BLOCK);
        // SAFETY: both buffers have BATCH_MAX bytes; the private one is used by the owner of `write` only, and its memory
        // is this process's own, so that what is checked and written cannot change in between.
        let batch = unsafe {
            buffer.copy_from_nonoverlapping(from, length);
            buffer.add(length).write_bytes(0, whole - length);
            core::slice::from_raw_parts_mut(buffer, whole)
        };
        let checksum = header.encode(batch);
        self.write(block, batch)?;
        Ok(checksum)
    }

    /// Writes whole blocks, durably. The bytes are aligned as O_DIRECT demands.
    fn write(&self, block: u64, bytes: &[u8]) -> Result<(), Errno> {
        let at = block * BLOCK as u64;
        match self.shared.write_method()? {
            WriteMethod::Descriptor => self.descriptor.with(|fd| sys::write_all_at(fd, bytes, at)),
            WriteMethod::Relay => self.shared.relay().write(bytes, at),
            WriteMethod::Window(window) => self.window.write(&self.shared, &window, bytes, at),
        }
    }

    fn buffer(&self) -> Result<*mut u8, Errno> {
        let buffer = self.buffer.load(Acquire);
        if !buffer.is_null() {
            return Ok(buffer);
        }
        let buffer = sys::map_private(BATCH_MAX)?;
        self.buffer.store(buffer, SeqCst);
        Ok(buffer)
    }
}
