//! `mapped`: the source is mapped, and written from where it is mapped.
//!
//! The kernel reads the mapping, and says so if a page is not there any more (EFAULT): no signal comes when the source
//! gets shorter.

use super::{Job, Stop};
use crate::end::{Reading, Writing};
use crate::error::Error;
use crate::sys;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

pub(super) fn run(job: &mut Job<'_>, from: &mut Reading, to: &mut Writing) -> Result<(), Stop> {
    while let Some(most) = job.next(from, to)? {
        let window = Window::map(from, most)?;
        let mut written = 0;
        while written < most {
            job.control.check()?;
            to.wait_if_it_blocks(job.control)?;
            match to.write(&window.bytes()[written..]) {
                Ok(0) => return Err(to.failed(Errno::NOSPC).into()),
                Ok(bytes) => {
                    job.moved(from, to, bytes);
                    written += bytes;
                }
                Err(Errno::AGAIN) => to.wait(job.control)?,
                Err(Errno::INTR) => {}
                Err(Errno::FAULT) => return Err(from.shrank().into()),
                Err(error) => return Err(to.failed(error).into()),
            }
        }
    }
    Ok(())
}

/// Some pages of the source.
struct Window {
    base: *mut u8,
    bytes: usize,
    /// Of the first byte that is wanted.
    offset: usize,
}

impl Window {
    /// Maps `bytes` from the source's position on.
    fn map(from: &Reading, bytes: usize) -> Result<Window, Error> {
        let position = from.position.unwrap_or(0);
        let offset = (position % sys::page_bytes() as u64) as usize;
        let bytes = bytes + offset;
        // SAFETY: a new mapping at an address of the kernel's choice, unmapped by `drop` alone. That its bytes change
        // under others' hands is nothing to this program: only the kernel reads them.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                from,
                position - offset as u64,
            )
        };
        let base = base.map_err(|error| Error::io(format!("map {}", from.name), error))?;
        Ok(Window { base: base.cast(), bytes, offset })
    }

    /// What is wanted, for the kernel.
    fn bytes(&self) -> &[u8] {
        // SAFETY: within the mapping; it is handed to system calls alone, which copy with care.
        unsafe { std::slice::from_raw_parts(self.base.add(self.offset), self.bytes - self.offset) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
