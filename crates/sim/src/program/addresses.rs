//! Addresses of what the operating system copies: each location of a program, of the page cache and of buffers has
//! one, which the caches know it by.

use bywash_execute::machine::Location;
use std::collections::BTreeMap;

/// First address of the page cache; programs' addresses are below.
const PAGES: u64 = 1 << 44;
/// First address of the sockets' buffers.
const SOCKETS: u64 = 1 << 45;
/// First address of the pipes' buffers.
const PIPES: u64 = 1 << 46;
/// First address of the operating system's own memory.
const SYSTEM: u64 = 1 << 47;
/// Size of a page, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Number of buffers of sockets, and of pipes. More of them share these, as the buffers of ended connections are used
/// again.
const BUFFERS: u64 = 256;
/// Size of a pipe's buffer, in bytes.
const PIPE_BYTES: u64 = 64 << 10;

/// Addresses of the page cache's pages and of buffers.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Number of each page of a file, in the order of its first use.
    pages: BTreeMap<(u64, u64), u64>,
    /// Size of a socket's buffer, in bytes.
    socket_bytes: u64,
}

impl Addresses {
    /// Makes addresses for sockets with buffers of this size, in bytes.
    pub fn new(socket_bytes: u64) -> Addresses {
        Addresses { pages: BTreeMap::new(), socket_bytes: socket_bytes.max(PAGE_BYTES) }
    }

    /// Returns the address of a location.
    pub fn address(&mut self, location: Location) -> u64 {
        match location {
            Location::Program(address) => address & (PAGES - 1),
            Location::Page { file, offset } => {
                let next = self.pages.len() as u64;
                let number = *self.pages.entry((file, offset / PAGE_BYTES)).or_insert(next);
                PAGES + number % (1 << 32) * PAGE_BYTES + offset % PAGE_BYTES
            }
            Location::Socket { socket, offset } => {
                SOCKETS + socket % BUFFERS * self.socket_bytes + offset % self.socket_bytes
            }
            Location::Pipe { pipe, offset } => PIPES + pipe % BUFFERS * PIPE_BYTES + offset % PIPE_BYTES,
            Location::System => SYSTEM,
        }
    }

    /// Returns the number of bytes from a location on that are consecutive in memory.
    pub fn consecutive(&self, location: Location) -> u64 {
        match location {
            Location::Page { offset, .. } => PAGE_BYTES - offset % PAGE_BYTES,
            Location::Socket { offset, .. } => self.socket_bytes - offset % self.socket_bytes,
            Location::Pipe { offset, .. } => PIPE_BYTES - offset % PIPE_BYTES,
            Location::Program(_) | Location::System => u64::MAX,
        }
    }
}
