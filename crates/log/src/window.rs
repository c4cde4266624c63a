//! Log in memory of a device server that is mapped into the programs: a write is a copy, a fence, and a look at the word
//! by which the server revokes the keeper's right to the memory.
//!
//! The keeper is the server's client. It passes the descriptors of the memory and of the page of such words to the
//! programs of its user, over its socket. The order of copy, fence and look is that of `bywash_protocol::revocations`: a
//! server that revokes the right either finds the copied bytes, or this process finds the word changed. The fence is a
//! full one, which works whether the process has registered for the server's fences or not.
//!
//! Such memory is empty when its server has ended, so a log in it is for benchmarks, and `--volatile` says so.

use crate::shared::Shared;
use crate::sys::{self, Errno};
use crate::write_method::{SOCKET_MAX, Window};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Acquire, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU64, fence};

/// Request for the descriptors, as the keeper's socket understands it.
pub const REQUEST: &[u8] = b"window\n";
/// Reply of a keeper that passes them: descriptors follow, with a byte each time.
pub const REPLY: &[u8] = b"ok window\n";
/// Greatest number of descriptors that the keeper passes at a time.
pub const DESCRIPTORS_MAX: usize = 64;

/// A window as one process has it mapped; nothing until [`MappedWindow::prepare`].
#[derive(Debug, Default)]
pub(crate) struct MappedWindow {
    memory: AtomicPtr<u8>,
    page: AtomicPtr<AtomicU64>,
}

impl MappedWindow {
    /// Maps the memory, which the keeper passes.
    ///
    /// # Errors
    /// The kernel's error number; EPROTO if the keeper does not pass what it should.
    pub(crate) fn prepare(&self, shared: &Shared, window: &Window) -> Result<(), Errno> {
        if !self.memory.load(Acquire).is_null() {
            return Ok(());
        }
        let mut path = [0; SOCKET_MAX];
        let path = shared.socket(&mut path).ok_or(libc::EPROTO)?;
        let socket = sys::connect(path)?;
        let mapped = receive(socket, window);
        sys::close(socket);
        let (memory, page) = mapped?;
        // Another thread may have done the same; its mapping is as good, and the other one stays unused.
        let _ = self.page.compare_exchange(core::ptr::null_mut(), page, SeqCst, Acquire);
        let _ = self.memory.compare_exchange(core::ptr::null_mut(), memory, SeqCst, Acquire);
        Ok(())
    }

    /// Copies bytes to an offset of the memory, and checks that they count.
    ///
    /// # Errors
    /// ESTALE if the right to the memory is revoked; EPIPE if the keeper has found the server gone; EINVAL behind its end; and those of [`MappedWindow::prepare`].
    pub(crate) fn write(&self, shared: &Shared, window: &Window, bytes: &[u8], at: u64) -> Result<(), Errno> {
        self.prepare(shared, window)?;
        let (memory, page) = (self.memory.load(Acquire), self.page.load(Acquire));
        if window.bytes.checked_sub(bytes.len() as u64).is_none_or(|last| at > last) {
            return Err(libc::EINVAL);
        }
        // SAFETY: the memory has `window.bytes` bytes, in files that cannot shrink, and is mapped for good; no reference
        // leads into it.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.add(at as usize), bytes.len()) };
        // SYNC: notices. The server makes the other fence, after its store of the word.
        fence(SeqCst);
        // SAFETY: the page has the word, as `Window::chunks` has compared, and is mapped for good.
        let word = unsafe { (*page.add(window.index as usize)).load(Acquire) };
        match word <= window.valid_up_to {
            // The memory of a server that has ended can still be written, and is nobody's.
            true if shared.has_failed() => Err(libc::EPIPE),
            true => Ok(()),
            false => Err(libc::ESTALE),
        }
    }
}

/// Asks the keeper at the other end of a socket for the descriptors, and maps them.
fn receive(socket: c_int, window: &Window) -> Result<(*mut u8, *mut AtomicU64), Errno> {
    let chunks = window.chunks().ok_or(libc::EPROTO)?;
    let bytes = usize::try_from(window.bytes).map_err(|_| libc::ENOMEM)?;
    sys::send(socket, REQUEST)?;
    let mut reply = [0; REPLY.len()];
    sys::receive_exactly(socket, &mut reply)?;
    if reply != REPLY {
        return Err(libc::EPROTO);
    }
    let (mut page, mut count, mut memory) = (core::ptr::null_mut(), 0, core::ptr::null_mut::<u8>());
    while count < 1 + chunks {
        let mut descriptors = [-1; DESCRIPTORS_MAX];
        let received = sys::receive_descriptors(socket, &mut descriptors)?;
        let mut failed = if received == 0 { Some(libc::EPROTO) } else { None };
        for fd in &descriptors[..received] {
            let mapped = if failed.is_some() || count > chunks {
                Err(failed.unwrap_or(libc::EPROTO))
            } else if count == 0 {
                page_at(*fd, window).and_then(|mapped| {
                    page = mapped;
                    memory = sys::map_nothing(bytes)?;
                    Ok(())
                })
            } else {
                chunk_at(*fd, memory, (count - 1) * window.chunk_bytes, window)
            };
            sys::close(*fd);
            failed = mapped.err();
            count += 1;
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok((memory, page))
}

/// Maps the page of words.
fn page_at(fd: c_int, window: &Window) -> Result<*mut AtomicU64, Errno> {
    if sys::status(fd)?.size < window.page_bytes {
        return Err(libc::EPROTO);
    }
    sys::map_readable(fd, window.page_bytes as usize).map(<*mut u8>::cast)
}

/// Maps one file of the memory at its offset.
fn chunk_at(fd: c_int, memory: *mut u8, at: u64, window: &Window) -> Result<(), Errno> {
    let length = window.chunk_bytes.min(window.bytes - at);
    if sys::status(fd)?.size < length {
        return Err(libc::EPROTO);
    }
    let length = (length as usize).next_multiple_of(4096);
    // SAFETY: the range lies in memory that `map_nothing` has reserved for it.
    unsafe { sys::map_shared_at(fd, memory.add(at as usize), length) }
}
