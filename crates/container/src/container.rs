//! Containers: blocks of memory whose ownership moves between programs.
//!
//! Rust's move semantics keep the ownership: a [`Container`] that was shipped can no longer be used, and a
//! [`Received`] is returned to the program that shipped it when it is dropped. [`Path`](crate::Path) makes
//! both types.
//!
//! ```compile_fail
//! # use bywash_container::{Container, Path};
//! fn touch_after_shipping(path: &Path, mut container: Container) {
//!     let _ = path.ship(container);
//!     container[0] = 1; // moved
//! }
//! ```
//!
//! ```compile_fail
//! # use bywash_container::{Message, Path};
//! fn look_after_shipping_on(path: &Path, message: Message) {
//!     let inside = message.first().map().unwrap();
//!     let _ = path.ship_message(message);
//!     println!("{}", inside.len()); // borrowed
//! }
//! ```

use crate::lane::{Receiver, Shipper};
use crate::layout::{INLINE_BYTES, SHIPPED_WORDS};
use crate::path::Class;
use crate::pool::MemoryRange;
use bywash_link::{Arena, Block, Credentials, Error, HugePages, Mapping, MemoryFile, PAGE};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::{ptr, slice};

/// Greatest number of containers in a message.
pub const MESSAGE_PIECES_MAX: usize = 64;
const EMPTY_SEALED: &str = "a sealed container has at least one byte";
/// Reason in the [`Error::NotMapped`] for contents that are stored in the value itself.
const SMALL: &str = "they are so small that they are kept outside of shared memory";
/// Reason in the [`Error::NotMapped`] for a descriptor with which others could write.
pub(crate) const WRITABLE: &str = "the arena is not sealed against writing, and whoever had its descriptor could write; ship on a path without \
     trusted_to_write";
/// Reason in the [`Error::Unfit`] for a container that is shipped on a path that did not allocate it.
pub(crate) const OTHER_PATH: &str = "it was allocated on another path; allocate it on this one";

/// A container that this end owns and may fill: a slice of bytes.
///
/// Its initial contents are left from the last use of the block, or zeros.
#[derive(Debug)]
pub struct Container {
    length: usize,
    home: OwnStorage,
}

/// Storage of a container's bytes.
#[derive(Debug)]
enum OwnStorage {
    /// In the value itself: at most [`INLINE_BYTES`] bytes, which are shipped within a ring entry.
    Here(Inline),
    /// In a block of a path's arena. The drop of the container frees the block.
    Arena(Arc<Shipper>, Block, Span),
    /// In a memory file of its own, which is sealed when the container is shipped.
    File(MemoryFile, Mapping),
}

/// Address and size of a block in this end's mapping of its arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) base: *mut u8,
    pub(crate) capacity: usize,
}

// SAFETY: the span is owned by one container, which is the only access to these bytes in this process, like a
// boxed slice; so it may move to another thread.
unsafe impl Send for Span {}
// SAFETY: a shared container only reads its bytes, since writing takes `&mut Container`.
unsafe impl Sync for Span {}

/// Contents of a ring entry, without its head word.
pub(crate) type Inline = [u64; SHIPPED_WORDS - 1];

impl Container {
    /// Makes a zeroed container of at most [`INLINE_BYTES`] bytes, which is shipped within a ring entry.
    #[inline]
    pub(crate) fn inline_of(length: usize) -> Container {
        Container { length, home: OwnStorage::Here([0; SHIPPED_WORDS - 1]) }
    }

    #[inline]
    pub(crate) fn in_block(lane: Arc<Shipper>, block: Block, span: Span, length: usize) -> Container {
        Container { length, home: OwnStorage::Arena(lane, block, span) }
    }

    /// Allocates a container of `length` bytes in a memory file of its own, for a sealed path.
    pub(crate) fn sealed(length: usize) -> Result<Container, Error> {
        if length == 0 {
            return Err(Error::WrongPath(EMPTY_SEALED));
        }
        Container::in_file(MemoryFile::create("bywash-sealed", length, HugePages::No)?)
    }

    fn in_file(file: MemoryFile) -> Result<Container, Error> {
        let mut mapping = file.map(true)?;
        // A child that another thread forks would inherit the writable mapping, and so prevent the sealing.
        mapping.keep_from_children()?;
        Ok(Container { length: file.bytes(), home: OwnStorage::File(file, mapping) })
    }

    /// Shortens the container to `length` bytes; no effect if it is not longer. The capacity stays the same.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Returns the greatest number of bytes that this container can hold.
    pub fn capacity(&self) -> usize {
        match &self.home {
            OwnStorage::Here(_) => INLINE_BYTES,
            OwnStorage::Arena(_, _, span) => span.capacity,
            OwnStorage::File(file, _) => file.bytes(),
        }
    }

    /// Sets the number of bytes that will be shipped. Returns false, without a change, if `length` is more
    /// than [`Container::capacity`].
    pub fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.capacity();
        if fits {
            self.length = length;
        }
        fits
    }

    /// Returns descriptor, offset and length of the memory, for a process that maps it by itself. That process
    /// can read the whole arena, and write none of it. [`Pool`](crate::Pool) makes containers that stay with such
    /// a process.
    ///
    /// # Errors
    /// [`Error::NotMapped`] if the contents are not in shared memory, since they are small; if the memory is still
    /// to be sealed, which happens when the container is shipped; and if both ends agreed on
    /// [`Options::trusted_to_write`](crate::Options::trusted_to_write), so that whoever has the descriptor could
    /// write.
    pub fn memory(&self) -> Result<MemoryRange<'_>, Error> {
        match &self.home {
            OwnStorage::Here(_) => Err(Error::NotMapped(SMALL)),
            OwnStorage::Arena(lane, _, span) => lane.memory(span.base, self.length),
            OwnStorage::File(..) => Err(Error::NotMapped(
                "the container is sealed against writing only when it is shipped, and until then its descriptor is \
                 not given away",
            )),
        }
    }

    /// Returns the contents if they are stored in the container itself and can be shipped within a ring
    /// entry.
    #[inline]
    pub(crate) fn inline(&self) -> Option<&Inline> {
        match &self.home {
            OwnStorage::Here(words) => Some(words),
            _ => None,
        }
    }

    /// Returns the address of the container's bytes if they are in an arena.
    #[inline]
    pub(crate) fn base_in_arena(&self) -> Option<*const u8> {
        match &self.home {
            OwnStorage::Arena(_, _, span) => Some(span.base),
            _ => None,
        }
    }

    pub(crate) fn is_of(&self, lane: &Arc<Shipper>) -> bool {
        matches!(&self.home, OwnStorage::Arena(home, ..) if Arc::ptr_eq(home, lane))
    }

    /// Returns the block of a container in an arena. The block is not freed: its ownership moves to the
    /// caller.
    pub(crate) fn into_block(self) -> Option<Block> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is `ManuallyDrop`, so `home` is moved out exactly once and never dropped in place.
        match unsafe { ptr::read(&this.home) } {
            OwnStorage::Arena(_, block, _) => Some(block),
            OwnStorage::Here(_) | OwnStorage::File(..) => None,
        }
    }

    /// Seals the container's memory against writing by anybody, for ever. On failure the container is handed
    /// back with the error, unless its memory cannot be mapped again.
    pub(crate) fn freeze(self) -> Result<Received, Box<(Option<Container>, Error)>> {
        if !matches!(self.home, OwnStorage::File(..)) {
            return Err(Box::new((Some(self), Error::WrongPath(OTHER_PATH))));
        }
        if self.length == 0 {
            return Err(Box::new((Some(self), Error::WrongPath(EMPTY_SEALED))));
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is `ManuallyDrop`, so `home` is moved out exactly once, like in `into_block`.
        let OwnStorage::File(mut file, mapping) = (unsafe { ptr::read(&this.home) }) else {
            unreachable!("the other homes were sent back above")
        };
        // Populates pages that were never written, so that a receiver that reads them is not charged for
        // them.
        let taken = mapping.populate(0, this.length.next_multiple_of(PAGE));
        drop(mapping);
        match taken.and_then(|()| file.resize(this.length)).and_then(|()| file.seal()) {
            Ok(()) => {
                let length = file.bytes();
                Ok(Received {
                    place: Storage::Sealed { file: Arc::new(file) },
                    length,
                    origin: Credentials::own(),
                })
            }
            Err(error) => Err(Box::new((Container::in_file(file).ok(), error))),
        }
    }
}

impl Deref for Container {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let base = match &self.home {
            OwnStorage::Here(words) => words.as_ptr().cast(),
            OwnStorage::Arena(_, _, span) => span.base.cast_const(),
            OwnStorage::File(_, mapping) => mapping.base().cast_const(),
        };
        // SAFETY: at least `length` initialised bytes, and this value is the only access to them in this
        // process. The peer cannot write them, or, if both ends agreed on `Options::trusted_to_write`, writes
        // only while it owns them.
        unsafe { slice::from_raw_parts(base, self.length) }
    }
}

impl DerefMut for Container {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let base = match &mut self.home {
            OwnStorage::Here(words) => words.as_mut_ptr().cast(),
            OwnStorage::Arena(_, _, span) => span.base,
            OwnStorage::File(_, mapping) => mapping.base(),
        };
        // SAFETY: at least `length` initialised bytes that this value alone gives access to, like in `deref`;
        // the exclusive borrow and the writable mapping allow the write.
        unsafe { slice::from_raw_parts_mut(base, self.length) }
    }
}

impl Drop for Container {
    #[inline]
    fn drop(&mut self) {
        if let OwnStorage::Arena(lane, block, _) = &self.home {
            lane.free(*block);
        }
    }
}

/// A container that a peer shipped here. Dropping it returns it to the peer.
#[derive(Debug)]
pub struct Received {
    pub(crate) place: Storage,
    pub(crate) length: usize,
    pub(crate) origin: Credentials,
}

/// Storage of a received container's contents.
#[derive(Debug)]
pub(crate) enum Storage {
    /// In the value itself, as a copy.
    Inline(Inline),
    /// In an arena of a peer. Dropping returns `ticket` on `lane`.
    Arena { lane: Arc<Receiver>, arena: Arc<Arena>, offset: usize, ticket: u32 },
    /// In a sealed memory file.
    Sealed { file: Arc<MemoryFile> },
}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Storage::Arena { lane, ticket, .. } = self {
            lane.return_ticket(*ticket);
        }
    }
}

impl Received {
    /// Makes an empty container whose origin is this process.
    pub(crate) fn nothing() -> Received {
        Received { place: Storage::Inline([0; SHIPPED_WORDS - 1]), length: 0, origin: Credentials::own() }
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the container has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the credentials of the peer that shipped the container here, as the kernel reports them.
    pub fn origin(&self) -> Credentials {
        self.origin
    }

    /// Returns descriptor, offset and length of the memory, for a process that maps it by itself. The descriptor
    /// is the shipper's: on a checked path the shipper may write there at any time.
    ///
    /// # Errors
    /// [`Error::NotMapped`] if the contents are not in shared memory, since they are small; and if both ends
    /// agreed on [`Options::trusted_to_write`](crate::Options::trusted_to_write), so that whoever has the
    /// descriptor could write.
    pub fn memory(&self) -> Result<MemoryRange<'_>, Error> {
        let (file, offset) = match &self.place {
            Storage::Inline(_) => return Err(Error::NotMapped(SMALL)),
            Storage::Arena { arena, .. } if !arena.file.stays_backed() => {
                return Err(Error::NotMapped(WRITABLE));
            }
            Storage::Arena { arena, offset, .. } => (&arena.file, *offset),
            Storage::Sealed { file } => (&**file, 0),
        };
        Ok(MemoryRange { descriptor: file.descriptor(), offset, length: self.length })
    }

    /// Gives access to the contents without copying them. Dropping the result unmaps sealed memory.
    ///
    /// # Errors
    /// - [`Error::NotMapped`] on a checked path, where the peer could still change the borrowed bytes (copy
    ///   them instead); on a forward path, which maps nothing; and if sealed memory has holes, which reading
    ///   would populate at this program's expense (copy it instead).
    /// - [`Error::Io`] if sealed memory cannot be mapped or its pages cannot be looked up.
    #[inline]
    pub fn map(&self) -> Result<Mapped<'_>, Error> {
        match &self.place {
            Storage::Inline(_) => Ok(Mapped(Inside::Borrowed(self.inline_bytes()))),
            Storage::Sealed { file } if !file.is_fully_backed()? => Err(Error::NotMapped(
                "the shipper has not taken memory for all of it, and to look at it would take this program's; copy it \
                 out",
            )),
            Storage::Sealed { file } => Ok(Mapped(Inside::Mapped(file.map(false)?, self.length))),
            Storage::Arena { lane, .. } if lane.class() == Class::Trusted => {
                let base = self.base()?;
                // SAFETY: the range lies within the mapped arena, which `Receiving::check` tested when the
                // container was received. The caller of `Options::trusted` promised that the peer does not
                // write there until the ticket is returned.
                Ok(Mapped(Inside::Borrowed(unsafe { slice::from_raw_parts(base, self.length) })))
            }
            Storage::Arena { .. } => Err(Error::NotMapped(
                "the path is not a trusted one, so that the peer could change them meanwhile; copy them out",
            )),
        }
    }

    /// Like [`Received::map`], but gives write access. Works for contents that were copied within a ring
    /// entry; and for containers of the peer's own arena, if both ends of the path chose
    /// [`Options::trusted_to_write`](crate::Options::trusted_to_write).
    ///
    /// # Errors
    /// [`Error::NotMapped`] for every other container.
    pub fn map_mut(&mut self) -> Result<&mut [u8], Error> {
        let length = self.length;
        match &mut self.place {
            Storage::Inline(words) => {
                // SAFETY: at least `length` initialised bytes of the words that this value owns, borrowed
                // exclusively.
                Ok(unsafe { slice::from_raw_parts_mut(words.as_mut_ptr().cast(), length) })
            }
            Storage::Arena { lane, arena, .. } if lane.class() == Class::Trusted && arena.writable => {
                let base = self.base()?;
                // SAFETY: within the mapped arena, like in `map`, and mapped for writing. Both ends promised
                // by `Options::trusted_to_write` that only the owner of a container writes to it.
                Ok(unsafe { slice::from_raw_parts_mut(base, self.length) })
            }
            _ => Err(Error::NotMapped("the shipper has not agreed that they are written")),
        }
    }

    /// Copies the contents into `to`, from their beginning, and returns the number of bytes copied: the
    /// shorter of the two lengths. The copy is private, so nobody can change it after it was checked.
    ///
    /// # Errors
    /// [`Error::NotMapped`] for contents in an arena of a forward path; [`Error::Io`] if the kernel cannot
    /// read the memory.
    pub fn copy_to(&self, to: &mut [u8]) -> Result<usize, Error> {
        self.copy_from(0, to)
    }

    /// Like [`Received::copy_to`], but starts at byte `offset`: for reading large contents in parts.
    ///
    /// # Errors
    /// Same as [`Received::copy_to`].
    pub fn copy_from(&self, offset: usize, to: &mut [u8]) -> Result<usize, Error> {
        let bytes = to.len().min(self.length.saturating_sub(offset));
        if bytes == 0 {
            return Ok(0);
        }
        match &self.place {
            Storage::Inline(_) => to[..bytes].copy_from_slice(&self.inline_bytes()[offset..offset + bytes]),
            Storage::Sealed { file } => file.read_at(offset, &mut to[..bytes])?,
            // No test for holes here: a trusted peer populates the memory of everything that it ships.
            Storage::Arena { lane, .. } if lane.class() == Class::Trusted => {
                let base = self.base()?;
                lane.meeting.counters.copied_out_bytes.add(bytes as u64);
                // SAFETY: the source lies within the container, so within the mapped arena, which
                // `Receiving::check` tested; `to` is the caller's own memory. The peer does not write
                // meanwhile, which the caller of `Options::trusted` promised.
                unsafe { ptr::copy_nonoverlapping(base.cast_const().add(offset), to.as_mut_ptr(), bytes) };
            }
            Storage::Arena { lane, arena, offset: start, .. } => {
                arena.copy_out(start + offset, &mut to[..bytes])?;
                lane.meeting.counters.copied_out_bytes.add(bytes as u64);
            }
        }
        Ok(bytes)
    }

    /// Returns a private copy of the contents.
    ///
    /// # Errors
    /// Same as [`Received::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.length];
        self.copy_to(&mut bytes)?;
        Ok(bytes)
    }

    fn inline_bytes(&self) -> &[u8] {
        match &self.place {
            // SAFETY: at least `length` initialised bytes of the words that this value owns.
            Storage::Inline(words) => unsafe { slice::from_raw_parts(words.as_ptr().cast(), self.length) },
            _ => &[],
        }
    }

    #[inline]
    fn base(&self) -> Result<*mut u8, Error> {
        match &self.place {
            Storage::Arena { arena, offset, .. } => {
                arena.at(*offset).ok_or(Error::NotMapped("this is a forward path, which maps nothing"))
            }
            _ => Err(Error::NotMapped("they are not in an arena")),
        }
    }
}

/// Read access to the contents of a container, as long as this value lives.
#[derive(Debug)]
pub struct Mapped<'a>(Inside<'a>);

#[derive(Debug)]
enum Inside<'a> {
    Borrowed(&'a [u8]),
    Mapped(Mapping, usize),
}

impl Deref for Mapped<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inside::Borrowed(bytes) => bytes,
            // SAFETY: a live mapping of at least `length` bytes, sealed against writing by everybody.
            Inside::Mapped(mapping, length) => unsafe { slice::from_raw_parts(mapping.base(), *length) },
        }
    }
}

/// The containers that were shipped together: one or several, at most [`MESSAGE_PIECES_MAX`].
#[derive(Debug)]
pub struct Message {
    first: Received,
    rest: Vec<Received>,
}

impl Message {
    #[inline]
    pub(crate) fn new(first: Received) -> Message {
        Message { first, rest: Vec::new() }
    }

    /// Makes a message of all `pieces`; `None` if there are no pieces.
    pub(crate) fn from_pieces(pieces: Vec<Received>) -> Option<Message> {
        let mut pieces = pieces.into_iter();
        let first = pieces.next()?;
        Some(Message { first, rest: pieces.collect() })
    }

    /// Returns the total length of all containers, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.pieces().map(Received::len).sum()
    }

    /// Returns true if all containers together have no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the credentials of the peer that shipped the message here.
    pub fn origin(&self) -> Credentials {
        self.first.origin
    }

    /// Returns the first container, which for most messages is the only one.
    #[inline]
    pub fn first(&self) -> &Received {
        &self.first
    }

    /// Like [`Message::first`], but mutable.
    pub fn first_mut(&mut self) -> &mut Received {
        &mut self.first
    }

    /// Returns all containers, in the order in which they were shipped.
    pub fn pieces(&self) -> impl Iterator<Item = &Received> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// Splits the message into its containers, so that each can be dropped, kept or shipped on its own.
    pub fn into_pieces(self) -> impl Iterator<Item = Received> {
        std::iter::once(self.first).chain(self.rest)
    }

    /// Copies the contents of all containers into `to`, one after the other, as much as fits. Returns the
    /// number of bytes copied.
    ///
    /// # Errors
    /// Same as [`Received::copy_to`].
    pub fn copy_to(&self, to: &mut [u8]) -> Result<usize, Error> {
        let mut done = 0;
        for piece in self.pieces() {
            done += piece.copy_to(&mut to[done..])?;
        }
        Ok(done)
    }

    /// Returns a private copy of the contents of all containers, one after the other.
    ///
    /// # Errors
    /// Same as [`Received::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes)?;
        Ok(bytes)
    }
}
