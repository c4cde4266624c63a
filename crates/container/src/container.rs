//! Containers: blocks of memory that are handed on.
//!
//! Ownership is Rust's: a [`Container`] that was shipped is gone, and what was received goes back to its
//! owner when it is dropped.
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

use crate::lane::{Receiving, Shipping};
use crate::layout::{INLINE_BYTES, SHIPPED_WORDS};
use crate::path::Class;
use bywash_link::{Arena, Block, Credentials, Error, File, HugePages, Mapping, PAGE};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::{ptr, slice};

/// Most containers of a message.
pub const MESSAGE_PIECES_MAX: usize = 64;
const EMPTY_SEALED: &str = "a sealed container has at least one byte";
/// Why a container cannot be shipped.
pub(crate) const OTHER_PATH: &str = "it was allocated on another path; allocate it on this one";

/// A container that this end may fill: a slice of bytes.
///
/// What is in it at first is what was in it when it was used last, or zeros.
#[derive(Debug)]
pub struct Container {
    length: usize,
    home: Home,
}

/// Where the bytes are, and what they go back to.
#[derive(Debug)]
enum Home {
    /// Here: so few that they will travel in a ring's entry.
    Here(Inline),
    /// In the arena of a path.
    Arena(Arc<Shipping>, Block, Span),
    /// In memory of their own.
    File(File, Mapping),
}

/// Bytes in an arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) base: *mut u8,
    pub(crate) capacity: usize,
}

// SAFETY: a container is the only way to its bytes in this process, like a boxed slice.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

/// The contents of a ring's entry.
pub(crate) type Inline = [u64; SHIPPED_WORDS - 1];

impl Container {
    /// A container of at most [`INLINE_BYTES`].
    #[inline]
    pub(crate) fn here(length: usize) -> Container {
        Container { length, home: Home::Here([0; SHIPPED_WORDS - 1]) }
    }

    #[inline]
    pub(crate) fn of_block(lane: Arc<Shipping>, block: Block, span: Span, length: usize) -> Container {
        Container { length, home: Home::Arena(lane, block, span) }
    }

    /// A container with memory of its own, to be sealed.
    pub(crate) fn sealed(length: usize) -> Result<Container, Error> {
        if length == 0 {
            return Err(Error::Unfit(EMPTY_SEALED));
        }
        Container::of_file(File::create("bywash-sealed", length, HugePages::No)?)
    }

    fn of_file(file: File) -> Result<Container, Error> {
        let mut mapping = file.map(true)?;
        // A child that some other thread forks off would keep it writable, and so keep it from being sealed.
        mapping.keep_from_children()?;
        Ok(Container { length: file.bytes(), home: Home::File(file, mapping) })
    }

    /// Shortens what will be shipped.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Bytes that it could hold.
    pub fn capacity(&self) -> usize {
        match &self.home {
            Home::Here(_) => INLINE_BYTES,
            Home::Arena(_, _, span) => span.capacity,
            Home::File(file, _) => file.bytes(),
        }
    }

    /// Changes how much will be shipped, up to [`Container::capacity`]; false if that is less.
    pub fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.capacity();
        if fits {
            self.length = length;
        }
        fits
    }

    /// What travels in an entry, if it can.
    #[inline]
    pub(crate) fn inline(&self) -> Option<&Inline> {
        match &self.home {
            Home::Here(words) => Some(words),
            _ => None,
        }
    }

    /// Where its bytes are, if they are in an arena.
    #[inline]
    pub(crate) fn base_in_arena(&self) -> Option<*const u8> {
        match &self.home {
            Home::Arena(_, _, span) => Some(span.base),
            _ => None,
        }
    }

    pub(crate) fn is_of(&self, lane: &Arc<Shipping>) -> bool {
        matches!(&self.home, Home::Arena(home, ..) if Arc::ptr_eq(home, lane))
    }

    /// The block of a container in an arena, which is not given back.
    pub(crate) fn into_block(self) -> Option<Block> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so that its home is moved out of it once.
        match unsafe { ptr::read(&this.home) } {
            Home::Arena(_, block, _) => Some(block),
            Home::Here(_) | Home::File(..) => None,
        }
    }

    /// Takes the right to write away from everybody, for ever. If that fails the container comes back, unless
    /// its memory cannot be mapped again.
    pub(crate) fn freeze(self) -> Result<Received, Box<(Option<Container>, Error)>> {
        if !matches!(self.home, Home::File(..)) {
            return Err(Box::new((Some(self), Error::Unfit(OTHER_PATH))));
        }
        if self.length == 0 {
            return Err(Box::new((Some(self), Error::Unfit(EMPTY_SEALED))));
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: as in `into_block`.
        let Home::File(mut file, mapping) = (unsafe { ptr::read(&this.home) }) else {
            unreachable!("the other homes were sent back above")
        };
        // What was never written gets memory of this end's, so that whoever looks at it takes none.
        let taken = mapping.populate(0, this.length.next_multiple_of(PAGE));
        drop(mapping);
        match taken.and_then(|()| file.resize(this.length)).and_then(|()| file.freeze()) {
            Ok(()) => {
                let length = file.bytes();
                Ok(Received {
                    place: Place::Sealed { file: Arc::new(file) },
                    length,
                    origin: Credentials::own(),
                })
            }
            Err(error) => Err(Box::new((Container::of_file(file).ok(), error))),
        }
    }
}

impl Deref for Container {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let base = match &self.home {
            Home::Here(words) => words.as_ptr().cast(),
            Home::Arena(_, _, span) => span.base.cast_const(),
            Home::File(_, mapping) => mapping.base().cast_const(),
        };
        // SAFETY: at least `length` initialised bytes, which only this value leads to; the peer cannot write
        // them, or (by agreement) does so only while it has them.
        unsafe { slice::from_raw_parts(base, self.length) }
    }
}

impl DerefMut for Container {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let base = match &mut self.home {
            Home::Here(words) => words.as_mut_ptr().cast(),
            Home::Arena(_, _, span) => span.base,
            Home::File(_, mapping) => mapping.base(),
        };
        // SAFETY: as in `deref`, and mapped for writing.
        unsafe { slice::from_raw_parts_mut(base, self.length) }
    }
}

impl Drop for Container {
    #[inline]
    fn drop(&mut self) {
        if let Home::Arena(lane, block, _) = &self.home {
            lane.give(*block);
        }
    }
}

/// A container that came from a peer. It goes back there when it is dropped.
#[derive(Debug)]
pub struct Received {
    pub(crate) place: Place,
    pub(crate) length: usize,
    pub(crate) origin: Credentials,
}

/// Where the contents are.
#[derive(Debug)]
pub(crate) enum Place {
    /// Here.
    Inline(Inline),
    /// In a peer's arena.
    Arena { lane: Arc<Receiving>, arena: Arc<Arena>, offset: usize, ticket: u32 },
    /// In sealed memory.
    Sealed { file: Arc<File> },
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Place::Arena { lane, ticket, .. } = self {
            lane.give_back(*ticket);
        }
    }
}

impl Received {
    /// Nothing, from here.
    pub(crate) fn nothing() -> Received {
        Received { place: Place::Inline([0; SHIPPED_WORDS - 1]), length: 0, origin: Credentials::own() }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Who shipped it here, as the kernel says.
    pub fn origin(&self) -> Credentials {
        self.origin
    }

    /// Makes what is inside visible, without copying it. It is unmapped when the answer is dropped.
    ///
    /// # Errors
    /// [`Error::NotMapped`] where the peer could still change what is borrowed (checked paths: copy it out), where
    /// to look at sealed memory would take memory of this program's (copy it out), or on forward paths;
    /// [`Error::Io`] if sealed memory cannot be mapped.
    #[inline]
    pub fn map(&self) -> Result<Mapped<'_>, Error> {
        match &self.place {
            Place::Inline(_) => Ok(Mapped(Inside::Borrowed(self.inline_bytes()))),
            Place::Sealed { file } if !file.is_whole()? => Err(Error::NotMapped(
                "the shipper has not taken memory for all of it, and to look at it would take this program's; copy it \
                 out",
            )),
            Place::Sealed { file } => Ok(Mapped(Inside::Mapped(file.map(false)?, self.length))),
            Place::Arena { lane, .. } if lane.class() == Class::Trusted => {
                let base = self.base()?;
                // SAFETY: within the mapped arena, as was checked when it came. That the peer does not write
                // there until the ticket goes back is what `Options::trusted` asks the caller to promise.
                Ok(Mapped(Inside::Borrowed(unsafe { slice::from_raw_parts(base, self.length) })))
            }
            Place::Arena { .. } => Err(Error::NotMapped(
                "the path is not a trusted one, so that the peer could change them meanwhile; copy them out",
            )),
        }
    }

    /// As [`Received::map`], to be changed in place, where both ends agreed to that, or where it came as a copy.
    ///
    /// # Errors
    /// As [`Received::map`], and where they did not.
    pub fn map_mut(&mut self) -> Result<&mut [u8], Error> {
        let length = self.length;
        match &mut self.place {
            Place::Inline(words) => {
                // SAFETY: the bytes of initialised words, at least `length` of them, which are a copy of ours.
                Ok(unsafe { slice::from_raw_parts_mut(words.as_mut_ptr().cast(), length) })
            }
            Place::Arena { lane, arena, .. } if lane.class() == Class::Trusted && arena.writable => {
                let base = self.base()?;
                // SAFETY: as in `map`; both ends agreed that whoever has a container may write it.
                Ok(unsafe { slice::from_raw_parts_mut(base, self.length) })
            }
            _ => Err(Error::NotMapped("the shipper has not agreed that they are written")),
        }
    }

    /// Copies what is inside, from the beginning, as much as fits; answers how much. The copy is private:
    /// nobody can change it after it was checked.
    ///
    /// # Errors
    /// As [`Received::map`], but not for checked paths.
    pub fn copy_to(&self, to: &mut [u8]) -> Result<usize, Error> {
        self.copy_from(0, to)
    }

    /// As [`Received::copy_to`], from byte `offset` on: for what is larger than one wants to hold at a time.
    ///
    /// # Errors
    /// As [`Received::copy_to`].
    pub fn copy_from(&self, offset: usize, to: &mut [u8]) -> Result<usize, Error> {
        let bytes = to.len().min(self.length.saturating_sub(offset));
        if bytes == 0 {
            return Ok(0);
        }
        match &self.place {
            Place::Inline(_) => to[..bytes].copy_from_slice(&self.inline_bytes()[offset..offset + bytes]),
            Place::Sealed { file } => file.read_at(offset, &mut to[..bytes])?,
            // A peer that is trusted ships nothing that has no memory: what it writes need not be asked for.
            Place::Arena { lane, .. } if lane.class() == Class::Trusted => {
                let base = self.base()?;
                lane.meeting.counters.copied_out_bytes.add(bytes as u64);
                // SAFETY: within the container, so within the mapped arena, as was checked when it came, and `to` is
                // the caller's own. The peer does not write there meanwhile, as in `map`.
                unsafe { ptr::copy_nonoverlapping(base.cast_const().add(offset), to.as_mut_ptr(), bytes) };
            }
            Place::Arena { lane, arena, offset: start, .. } => {
                arena.copy_out(start + offset, &mut to[..bytes])?;
                lane.meeting.counters.copied_out_bytes.add(bytes as u64);
            }
        }
        Ok(bytes)
    }

    /// A private copy of what is inside.
    ///
    /// # Errors
    /// As [`Received::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.length];
        self.copy_to(&mut bytes)?;
        Ok(bytes)
    }

    fn inline_bytes(&self) -> &[u8] {
        match &self.place {
            // SAFETY: the bytes of initialised words, at least `length` of them.
            Place::Inline(words) => unsafe { slice::from_raw_parts(words.as_ptr().cast(), self.length) },
            _ => &[],
        }
    }

    #[inline]
    fn base(&self) -> Result<*mut u8, Error> {
        match &self.place {
            Place::Arena { arena, offset, .. } => {
                arena.at(*offset).ok_or(Error::NotMapped("this is a forward path, which maps nothing"))
            }
            _ => Err(Error::NotMapped("they are not in an arena")),
        }
    }
}

/// What is inside a container, until it is dropped.
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
            // SAFETY: a mapping of sealed memory of at least this length, which nobody can write.
            Inside::Mapped(mapping, length) => unsafe { slice::from_raw_parts(mapping.base(), *length) },
        }
    }
}

/// What was shipped together: one container, or several that belong together.
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

    /// None of none.
    pub(crate) fn of_pieces(pieces: Vec<Received>) -> Option<Message> {
        let mut pieces = pieces.into_iter();
        let first = pieces.next()?;
        Some(Message { first, rest: pieces.collect() })
    }

    /// Bytes of all containers together.
    #[inline]
    pub fn len(&self) -> usize {
        self.pieces().map(Received::len).sum()
    }

    /// Whether there is not a byte in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Who shipped it here.
    pub fn origin(&self) -> Credentials {
        self.first.origin
    }

    /// The first container, which most messages consist of.
    #[inline]
    pub fn first(&self) -> &Received {
        &self.first
    }

    /// As [`Message::first`].
    pub fn first_mut(&mut self) -> &mut Received {
        &mut self.first
    }

    /// All containers, in the order in which they were shipped.
    pub fn pieces(&self) -> impl Iterator<Item = &Received> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// All containers, to be dropped, kept or shipped on one by one.
    pub fn into_pieces(self) -> impl Iterator<Item = Received> {
        std::iter::once(self.first).chain(self.rest)
    }

    /// Copies what is inside, one container after the other, as much as fits; answers how much.
    ///
    /// # Errors
    /// As [`Received::copy_to`].
    pub fn copy_to(&self, to: &mut [u8]) -> Result<usize, Error> {
        let mut done = 0;
        for piece in self.pieces() {
            done += piece.copy_to(&mut to[done..])?;
        }
        Ok(done)
    }

    /// A private copy of what is inside.
    ///
    /// # Errors
    /// As [`Received::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes)?;
        Ok(bytes)
    }
}
