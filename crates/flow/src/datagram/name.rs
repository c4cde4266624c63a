//! Socket addresses of datagrams, in the kernel's form.
//!
//! Invariant: the first `length` bytes of `storage` are an address written by the kernel or by this module.
//! Called by the ports.

use crate::mac::Mac;
use std::mem::size_of;

/// Socket address of any family.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl Name {
    pub(crate) const fn empty() -> Name {
        // SAFETY: an address of zeros is a valid one, of no family.
        Name { storage: unsafe { std::mem::zeroed() }, length: 0 }
    }

    /// Creates the address of a device on a link.
    pub(crate) fn of_link(address: libc::sockaddr_ll) -> Name {
        Name::from_bytes(&address)
    }

    /// Returns the Ethernet address, if this is an address on a link.
    pub(crate) fn link(&self) -> Option<Mac> {
        if i32::from(self.storage.ss_family) != libc::AF_PACKET
            || (self.length as usize) < size_of::<libc::sockaddr_ll>()
        {
            return None;
        }
        // SAFETY: the storage is longer and aligned as strictly, and any bytes are a valid address.
        let address = unsafe { (&raw const self.storage).cast::<libc::sockaddr_ll>().read() };
        address.sll_addr.first_chunk().map(|bytes| Mac(*bytes))
    }

    fn from_bytes<T>(address: &T) -> Name {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        let mut name = Name::empty();
        // SAFETY: the storage is as long as `T` at least, as asserted, and any bytes are a valid storage.
        unsafe { (&raw mut name.storage).cast::<T>().write_unaligned(std::ptr::read(address)) };
        name.length = size_of::<T>() as libc::socklen_t;
        name
    }

    /// Returns the pointer and length for a system call that reads the address.
    pub(crate) fn as_parts(&self) -> (*const libc::sockaddr_storage, libc::socklen_t) {
        (&raw const self.storage, self.length)
    }

    /// Returns the pointer and capacity for a system call that writes an address.
    pub(crate) fn room(&mut self) -> (*mut libc::sockaddr_storage, libc::socklen_t) {
        (&raw mut self.storage, size_of::<libc::sockaddr_storage>() as libc::socklen_t)
    }

    /// Sets the length of an address that the kernel has written.
    pub(crate) fn set_length(&mut self, length: libc::socklen_t) {
        self.length = length.min(size_of::<libc::sockaddr_storage>() as libc::socklen_t);
    }
}
