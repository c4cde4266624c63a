//! Paths: connecting two programs, and allocating, shipping and receiving containers.

use crate::container::{Container, Inline, Message, Received, Storage};
use crate::lane::{Control, LaneEnd, Receiver, Shipper, is_sealed};
use crate::layout::{self, DEPTH_MAX, FLAG_SEALED, FLAG_WRITABLE, PROTOCOL, TICKETS_MAX};
use crate::pool::MemoryRange;
use crate::ship_error::ShipError;
use crate::stats::{Counters, Stats};
use bywash_link::{
    ARENA_BYTES_MAX, Acceptor, Arena, Credentials, Error, FLAG_FENCES, Hello, HugePages, Link, MemoryFile,
    SEALS_FIXED, Wait, Writers, handshake,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Treatment of received containers by an end, and the way in which the end ships.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Received contents are copied out before the program checks and uses them, since the peer may write its
    /// arena at any time. The default.
    #[default]
    Checked,
    /// Received contents are borrowed in place. See [`Options::trusted`] for the promise that this needs.
    Trusted,
    /// Each container is a memory file of its own, sealed against writing when it is shipped. The receiver
    /// may borrow the contents in place, keep them for ever and ship them on. Both ends must be of this
    /// class.
    Sealed,
    /// Received containers are never mapped: their length and origin can be read, and they can be shipped on.
    Forward,
}

/// Options of an end of a path.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) class: Class,
    writable: bool,
    arena_bytes: usize,
    huge_pages: HugePages,
    pub(crate) depth: u32,
    pub(crate) tickets: u32,
    wait: Wait,
    pub(crate) peer_arena_bytes_max: usize,
    pub(crate) handshake_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            class: Class::Checked,
            writable: false,
            arena_bytes: 16 << 20,
            huge_pages: HugePages::default(),
            depth: 256,
            tickets: 1024,
            wait: Wait::default(),
            peer_arena_bytes_max: 64 << 20,
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// Returns the defaults: a checked end with an arena of 16 MiB.
    pub fn new() -> Options {
        Options::default()
    }

    /// Makes the end a trusted one, which borrows received contents in place; see [`Class::Trusted`].
    ///
    /// # Safety
    /// The peer must keep to the protocol: it must not write to a container that it has shipped until the
    /// container has been returned. Every peer that uses this library, and does not bypass it, does so. For a
    /// peer that somebody else may have written or broken into, nobody can promise this.
    pub unsafe fn trusted(mut self) -> Options {
        self.class = Class::Trusted;
        self.writable = false;
        self
    }

    /// Like [`Options::trusted`], and also lets the peer write, in place, to containers that this end
    /// shipped. The peer may do so only if its end has this option too.
    ///
    /// # Safety
    /// The promise of [`Options::trusted`]; and the peer must not write to a container that it does not own.
    pub unsafe fn trusted_to_write(mut self) -> Options {
        self.class = Class::Trusted;
        self.writable = true;
        self
    }

    /// Makes the end a sealed one; see [`Class::Sealed`].
    pub fn sealed(mut self) -> Options {
        self.class = Class::Sealed;
        self.writable = false;
        self
    }

    /// Makes the end a forwarding one; see [`Class::Forward`].
    pub fn forward(mut self) -> Options {
        self.class = Class::Forward;
        self.writable = false;
        self
    }

    /// Sets the size of this end's arena, in bytes: room for all containers that are allocated or shipped and
    /// not yet freed. The size is rounded up to whole pages, from 2 MiB on to multiples of 2 MiB. With 0 the
    /// end has no arena and can ship only small contents and received containers. Default 16 MiB, at most
    /// [`ARENA_BYTES_MAX`].
    pub fn arena_bytes(mut self, bytes: usize) -> Options {
        self.arena_bytes = bytes;
        self
    }

    /// Chooses huge pages of 2 MiB for the arena. Default none, so that pages are allocated at their first
    /// use.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Options {
        self.huge_pages = huge_pages;
        self
    }

    /// Sets the greatest number of ring entries in flight: a power of two up to 4096. A message takes one
    /// entry, or one for every 7 containers. Default 256.
    pub fn depth(mut self, messages: u32) -> Options {
        self.depth = messages;
        self
    }

    /// Sets the greatest number of containers that the peer can own at a time: a power of two up to 65536.
    /// Default 1024.
    pub fn containers_shipped_max(mut self, containers: u32) -> Options {
        self.tickets = containers;
        self
    }

    /// Sets the way in which this end waits for the peer. Default [`Wait::Adaptive`].
    pub fn wait(mut self, wait: Wait) -> Options {
        self.wait = wait;
        self
    }

    /// Sets the greatest total size of the peer's arena and of those that it passes on, in bytes; on a sealed
    /// path, that of the containers of one message. Default 64 MiB. This much address space can be used in
    /// this process; and if a trusted peer breaks the protocol, this much memory too.
    pub fn peer_arena_bytes_max(mut self, bytes: usize) -> Options {
        self.peer_arena_bytes_max = bytes;
        self
    }

    /// Sets the timeout for the handshake with the peer. Default 10 s.
    pub fn handshake_timeout(mut self, limit: Duration) -> Options {
        self.handshake_timeout = limit;
        self
    }

    fn check(&self) -> Result<(), Error> {
        let power = |option, value: u32, most: u32| match value.is_power_of_two() && value <= most {
            true => Ok(()),
            false => {
                let allowed = format!("a power of two up to {most}");
                Err(Error::Option { option, value: value.to_string(), allowed })
            }
        };
        power("the depth", self.depth, DEPTH_MAX)?;
        power("the number of containers that can be out", self.tickets, TICKETS_MAX)?;
        match self.arena_bytes <= ARENA_BYTES_MAX {
            true => Ok(()),
            false => {
                let allowed = format!("{ARENA_BYTES_MAX} bytes at most");
                Err(Error::Option { option: "the arena", value: self.arena_bytes.to_string(), allowed })
            }
        }
    }
}

/// Accepts connections of peers at a name in the file system.
///
/// The permissions of the name decide who may connect, and [`Path::peer`] tells who did.
#[derive(Debug)]
pub struct Listener(pub(crate) Acceptor);

impl Listener {
    /// Creates the name. It stays until somebody removes it. A socket at this name on which no process
    /// listens any more, for instance since its program was killed, is replaced.
    ///
    /// # Errors
    /// [`Error::Io`]: with `AddrInUse` if something else has the name, or if another system call fails.
    pub fn bind(name: impl AsRef<std::path::Path>) -> Result<Listener, Error> {
        Acceptor::bind(name.as_ref()).map(Listener)
    }

    /// Waits for a peer and makes a path to it. Up to 256 connected peers do their handshakes at the same
    /// time: a silent one does not delay the others, and is disconnected after
    /// [`Options::handshake_timeout`].
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel accepts no connection. Also those of [`Path::over`], which concern this
    /// one peer: the listener can go on accepting others.
    pub fn accept(&self, options: &Options) -> Result<Path, Error> {
        Path::over(self.0.accept(None, options.handshake_timeout)?, options)
    }

    /// Like [`Listener::accept`], but waits for a peer's hello message no longer than `limit`.
    ///
    /// # Errors
    /// Same as [`Listener::accept`], and [`Error::TimedOut`].
    pub fn accept_within(&self, options: &Options, limit: Duration) -> Result<Path, Error> {
        Path::over(self.0.accept(Some(limit), options.handshake_timeout)?, options)
    }

    /// Like [`Listener::accept`], but does not wait for a peer: `None` if no hello message has arrived, or if
    /// another thread took the connection first.
    ///
    /// # Errors
    /// Same as [`Listener::accept`].
    pub fn try_accept(&self, options: &Options) -> Result<Option<Path>, Error> {
        self.0.try_accept(options.handshake_timeout)?.map(|socket| Path::over(socket, options)).transpose()
    }
}

/// The descriptor is readable when [`Listener::try_accept`] may return a path.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A container that can be shipped: allocated by this end, or received from a peer.
#[derive(Debug)]
pub enum Shipment {
    /// A container that this path allocated.
    Own(Container),
    /// A container that was received on this path or another one, whether it was mapped or not.
    Received(Received),
}

impl Shipment {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Shipment::Own(container) => container.len(),
            Shipment::Received(received) => received.len(),
        }
    }

    /// Returns true if the container has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns descriptor, offset and length of the memory, for a process that maps it by itself.
    ///
    /// # Errors
    /// Those of [`Container::memory`] and [`Received::memory`].
    pub fn memory(&self) -> Result<MemoryRange<'_>, Error> {
        match self {
            Shipment::Own(container) => container.memory(),
            Shipment::Received(received) => received.memory(),
        }
    }

    /// Returns the contents if they are stored in the value itself and can be shipped within a ring entry.
    #[inline]
    pub(crate) fn inline(&self) -> Option<&Inline> {
        match self {
            Shipment::Own(container) => container.inline(),
            Shipment::Received(Received { place: Storage::Inline(words), .. }) => Some(words),
            Shipment::Received(_) => None,
        }
    }

    /// Copies the contents into `to`, as much as fits, and returns the number of bytes copied.
    pub(crate) fn copy_to(&self, to: &mut [u8]) -> Result<usize, Error> {
        match self {
            Shipment::Own(container) => {
                let bytes = to.len().min(container.len());
                to[..bytes].copy_from_slice(&container[..bytes]);
                Ok(bytes)
            }
            Shipment::Received(received) => received.copy_to(to),
        }
    }
}

impl From<Container> for Shipment {
    fn from(container: Container) -> Shipment {
        Shipment::Own(container)
    }
}

impl From<Received> for Shipment {
    fn from(received: Received) -> Shipment {
        Shipment::Received(received)
    }
}

/// One end of a path. Both ends can ship and receive.
///
/// Several threads can use an end. Messages arrive in the order in which they were shipped. After an end is
/// dropped, the peer receives everything that was shipped before, and then [`Error::Closed`].
#[derive(Debug)]
pub struct Path {
    link: Arc<Link>,
    counters: Arc<Counters>,
    pub(crate) shipping: Arc<Shipper>,
    pub(crate) receiving: Arc<Receiver>,
}

impl Path {
    /// Connects to the listener at `name` and makes a path.
    ///
    /// # Errors
    /// [`Error::Io`] if the connection is refused or another system call fails. Also those of [`Path::over`].
    pub fn connect(name: impl AsRef<std::path::Path>, options: &Options) -> Result<Path, Error> {
        Path::over(bywash_link::connect(name.as_ref())?, options)
    }

    /// Makes a path over a connected socket: one of [`crate::socket_pair`], or an inherited one. Waits for
    /// the peer's handshake, at most [`Options::handshake_timeout`].
    ///
    /// # Errors
    /// - [`Error::Option`] if an option has an invalid value.
    /// - [`Error::TimedOut`] or [`Error::PeerDied`] if the peer sends no hello message in time or
    ///   disconnects.
    /// - [`Error::Incompatible`] if the two ends differ in protocol, version or sealing, or the peer's arena
    ///   is too large.
    /// - [`Error::Protocol`] if the peer's memory is not what its hello message says.
    /// - [`Error::Io`] if a system call fails.
    pub fn over(socket: OwnedFd, options: &Options) -> Result<Path, Error> {
        options.check()?;
        let fences = options.wait.prepare_fences();
        let (control, control_file) = Control::create(options.depth, options.tickets)?;
        let arena = options.make_arena()?;
        let mut memory = vec![control_file.descriptor()];
        memory.extend(arena.iter().map(|arena| arena.file.descriptor()));
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let hello = Hello {
            arena_bytes: arena.as_ref().map_or(0, |arena| arena.file.bytes() as u64),
            rings: [options.depth, options.tickets],
            flags: flag(options.class == Class::Sealed, FLAG_SEALED)
                | flag(options.writable, FLAG_WRITABLE)
                | flag(fences, FLAG_FENCES),
        };
        let mail =
            if options.class == Class::Sealed { layout::SEALED_MESSAGES } else { layout::ARENA_MESSAGES };
        let (link, theirs, memory) =
            handshake(socket, &PROTOCOL, hello, &memory, options.handshake_timeout, mail)?;
        let link = Arc::new(link);
        if is_sealed(&theirs) != (options.class == Class::Sealed) {
            return Err(Error::Incompatible(
                "one end is sealed and the other is not; make both of one class".into(),
            ));
        }
        let (their_control, their_arena) = options.adopt(&link, &theirs, memory)?;
        let counters = Arc::new(Counters::default());
        let fences = fences && theirs.has_fences();
        let end = LaneEnd { link: link.clone(), counters: counters.clone(), wait: options.wait, fences };
        let receiving = Receiver::new(&their_control, their_arena, options, &theirs, &end);
        Ok(Path {
            shipping: Arc::new(Shipper::new(&control, arena, options, &end, receiving.closing())),
            receiving: Arc::new(receiving),
            link,
            counters,
        })
    }

    /// Allocates a container of `bytes` bytes, and waits until the arena has room for it.
    ///
    /// # Errors
    /// - [`Error::TooLarge`] if the arena can never hold so many bytes in one block.
    /// - [`Error::WrongPath`] for an empty container on a sealed path.
    /// - [`Error::Closed`], [`Error::PeerDied`] or [`Error::Protocol`] if this end or the peer closed the
    ///   path, the peer died, or it broke the protocol. A container that is small enough for a ring entry is
    ///   allocated all the same.
    /// - [`Error::Forked`] in a forked child, and [`Error::Io`] if a system call fails.
    #[inline]
    pub fn alloc(&self, bytes: usize) -> Result<Container, Error> {
        if self.shipping.is_inline(bytes) {
            self.link.check_process()?;
            return Ok(Container::inline_of(bytes));
        }
        self.note_error(self.shipping.allocate_within(bytes, None))
    }

    /// Like [`Path::alloc`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Same as [`Path::alloc`], and [`Error::AllocTimedOut`], which tells who holds the arena's memory.
    pub fn alloc_within(&self, bytes: usize, limit: Duration) -> Result<Container, Error> {
        self.note_error(self.shipping.allocate_within(bytes, Some(limit)))
    }

    /// Like [`Path::alloc`], but does not wait: `None` if the arena has no room now. [`Path::stats`] tells
    /// who holds its memory.
    ///
    /// # Errors
    /// Same as [`Path::alloc`].
    pub fn try_alloc(&self, bytes: usize) -> Result<Option<Container>, Error> {
        self.note_error(self.shipping.allocate(bytes))
    }

    /// Ships one container, and waits until there is room. The peer owns the container then.
    ///
    /// # Errors
    /// The container is handed back with each error.
    /// - [`Error::WrongPath`] if this path cannot ship the container: it was allocated on another path, only
    ///   one of path and container is sealed, it is empty and the path is sealed, or containers of too many
    ///   other paths were shipped here.
    /// - [`Error::Closed`], [`Error::PeerDied`] or [`Error::Protocol`] if this end or the peer closed the
    ///   path, the peer died, or it broke the protocol.
    /// - [`Error::Forked`] in a forked child, and [`Error::Io`] if a system call fails or there is no memory.
    #[inline]
    pub fn ship(&self, shipment: impl Into<Shipment>) -> Result<(), ShipError<Box<Shipment>>> {
        let shipment = shipment.into();
        if let Some(contents) = shipment.inline()
            && self.shipping.is_inline(shipment.len())
            && self.check_peer().is_ok()
            && let Ok(true) = self.shipping.ship_inline(contents, shipment.len())
        {
            return Ok(());
        }
        self.ship_one(shipment)
    }

    #[inline(never)]
    fn ship_one(&self, shipment: Shipment) -> Result<(), ShipError<Box<Shipment>>> {
        let mut shipment = [Some(shipment)];
        let shipped = self.ship_places(&mut shipment, None);
        not_one_shipped(shipped, shipment)
    }

    /// Like [`Path::ship`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Same as [`Path::ship`], and [`Error::TimedOut`].
    pub fn ship_within(
        &self,
        shipment: impl Into<Shipment>,
        limit: Duration,
    ) -> Result<(), ShipError<Box<Shipment>>> {
        let mut shipment = [Some(shipment.into())];
        let shipped = self.ship_places(&mut shipment, Some(limit));
        not_one_shipped(shipped, shipment)
    }

    /// Like [`Path::ship`], but does not wait: returns the container if there is no room now.
    ///
    /// # Errors
    /// Same as [`Path::ship`].
    pub fn try_ship(
        &self,
        shipment: impl Into<Shipment>,
    ) -> Result<Option<Shipment>, ShipError<Box<Shipment>>> {
        let mut shipment = [Some(shipment.into())];
        let shipped = self.note_error(self.check_peer().and_then(|()| self.shipping.ship(&mut shipment)));
        if let Ok(false) = shipped {
            let [shipment] = shipment;
            return Ok(shipment);
        }
        not_one_shipped(shipped.map(drop), shipment).map(|()| None)
    }

    /// Ships several containers as one message, and waits until there is room.
    ///
    /// # Errors
    /// Same as [`Path::ship`]; [`Error::MessageSize`] if `shipment` is empty or has too many containers for a
    /// message; and [`Error::TooLarge`] if contents of a ring entry must be copied into the arena and the
    /// arena cannot hold them.
    pub fn ship_all(&self, shipment: Vec<Shipment>) -> Result<(), ShipError<Vec<Shipment>>> {
        self.ship_list(shipment, None)
    }

    /// Like [`Path::ship_all`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Same as [`Path::ship_all`], and [`Error::TimedOut`].
    pub fn ship_all_within(
        &self,
        shipment: Vec<Shipment>,
        limit: Duration,
    ) -> Result<(), ShipError<Vec<Shipment>>> {
        self.ship_list(shipment, Some(limit))
    }

    fn ship_places(&self, places: &mut [Option<Shipment>], limit: Option<Duration>) -> Result<(), Error> {
        self.note_error(self.check_peer().and_then(|()| self.shipping.ship_within(places, limit)))
    }

    fn ship_list(
        &self,
        shipment: Vec<Shipment>,
        limit: Option<Duration>,
    ) -> Result<(), ShipError<Vec<Shipment>>> {
        let mut places: Vec<Option<Shipment>> = shipment.into_iter().map(Some).collect();
        self.ship_places(&mut places, limit)
            .map_err(|error| ShipError { error, shipment: places.into_iter().flatten().collect() })
    }

    /// Ships a received message on, with all its containers, and waits until there is room.
    ///
    /// # Errors
    /// Same as [`Path::ship_all`].
    pub fn ship_message(&self, message: Message) -> Result<(), ShipError<Vec<Shipment>>> {
        self.ship_message_until(message, None)
    }

    /// Like [`Path::ship_message`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Same as [`Path::ship_message`], and [`Error::TimedOut`].
    pub fn ship_message_within(
        &self,
        message: Message,
        limit: Duration,
    ) -> Result<(), ShipError<Vec<Shipment>>> {
        self.ship_message_until(message, Some(limit))
    }

    fn ship_message_until(
        &self,
        message: Message,
        limit: Option<Duration>,
    ) -> Result<(), ShipError<Vec<Shipment>>> {
        if message.pieces().nth(1).is_some() {
            return self.ship_list(message.into_pieces().map(Shipment::Received).collect(), limit);
        }
        let mut shipment = [message.into_pieces().next().map(Shipment::Received)];
        self.ship_places(&mut shipment, limit)
            .map_err(|error| ShipError { error, shipment: shipment.into_iter().flatten().collect() })
    }

    /// Waits for the next message and receives it.
    ///
    /// # Errors
    /// - [`Error::Closed`] if this end or the peer closed the path and everything that was shipped has been
    ///   received.
    /// - [`Error::PeerDied`] if the peer died without closing its end.
    /// - [`Error::Protocol`] if the peer broke the protocol.
    /// - [`Error::Forked`] in a forked child, and [`Error::Io`] if a system call fails.
    #[inline]
    pub fn receive(&self) -> Result<Message, Error> {
        if let Some(message) = self.receiving.take_inline() {
            return Ok(message);
        }
        self.note_error(self.receiving.take_within(None))
    }

    /// Like [`Path::receive`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Same as [`Path::receive`], and [`Error::TimedOut`].
    pub fn receive_within(&self, limit: Duration) -> Result<Message, Error> {
        self.note_error(self.receiving.take_within(Some(limit)))
    }

    /// Like [`Path::receive`], but does not wait: `None` if no message has arrived.
    ///
    /// # Errors
    /// Same as [`Path::receive`].
    #[inline]
    pub fn try_receive(&self) -> Result<Option<Message>, Error> {
        self.note_error(self.receiving.receive(1))
    }

    /// Requests a doorbell, for an event loop. After `Ok(false)` the descriptor of [`AsFd`] becomes readable
    /// when the peer ships a message or is gone. `Ok(true)` means that a message has arrived already, or that
    /// the peer has closed its end. The next call reads from the socket what made the descriptor readable.
    ///
    /// A program that ships received containers on also watches the descriptors of those other paths, and
    /// calls this function of this path when one of them is readable: this returns the containers that were
    /// returned there.
    ///
    /// # Errors
    /// Same as [`Path::receive`].
    pub fn arm(&self) -> Result<bool, Error> {
        self.link.check_process()?;
        self.receiving.meeting.set_bell();
        self.receiving.arm_forwards();
        self.note_error(self.receiving.has_something())
    }

    /// Closes this end, even if other threads hold it too. The peer receives what was shipped before, and
    /// then [`Error::Closed`]. At this end messages that have arrived can still be received; everything else
    /// is [`Error::Closed`]. A thread that waits on the path is woken at once or within 100 ms. Dropping an
    /// end closes it too.
    pub fn close(&self) {
        if self.link.is_here() {
            self.shipping.close();
            self.shipping.end();
            self.link.shut();
        }
    }

    /// Returns the credentials of the peer, as the kernel reported them during the handshake.
    pub fn peer(&self) -> Credentials {
        self.link.peer()
    }

    /// Returns the counts of this end's operations, and the present use of its arena. The call takes time in
    /// proportion to the number of shipped containers and free blocks: microseconds, or milliseconds for many
    /// thousands.
    pub fn stats(&self) -> Stats {
        let arena = self.shipping.usage();
        Stats {
            arena_bytes: arena.bytes as u64,
            arena_held: arena.held as u64,
            arena_held_bytes: arena.held_bytes as u64,
            arena_shipped: arena.shipped as u64,
            arena_shipped_bytes: arena.shipped_bytes as u64,
            arena_largest_free: arena.largest_free as u64,
            ..self.counters.read()
        }
    }

    /// Returns an error in a forked child, and if the peer has closed its end.
    #[inline]
    pub(crate) fn check_peer(&self) -> Result<(), Error> {
        self.link.check_process()?;
        if self.receiving.is_closed() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Ends the lanes if `outcome` is an error that ends the path; see [`Path::receive`]. Returns `outcome`,
    /// but [`Error::Closed`] for a peer that died after it had closed its end.
    #[inline]
    pub(crate) fn note_error<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        match &outcome {
            Err(Error::PeerDied { .. }) if self.receiving.is_closed() => {
                self.shipping.end();
                // The peer closed its ring before it died.
                return Err(Error::Closed);
            }
            Err(Error::Closed | Error::PeerDied { .. }) => self.shipping.end(),
            Err(Error::Protocol { what, .. }) => {
                self.receiving.reject_peer(what);
                self.shipping.accuse(what);
            }
            _ => {}
        }
        outcome
    }
}

pub(crate) fn not_one_shipped(
    shipped: Result<(), Error>,
    [shipment]: [Option<Shipment>; 1],
) -> Result<(), ShipError<Box<Shipment>>> {
    match (shipped, shipment) {
        (Err(error), Some(shipment)) => Err(ShipError { error, shipment: Box::new(shipment) }),
        // The container is missing if it could be neither sealed nor mapped again; see `Container::freeze`.
        (Err(error), None) => {
            Err(ShipError { error, shipment: Box::new(Shipment::Received(Received::nothing())) })
        }
        (Ok(()), _) => Ok(()),
    }
}

impl AsFd for Path {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.close();
    }
}

impl Options {
    fn make_arena(&self) -> Result<Option<Arena>, Error> {
        if self.class == Class::Sealed || self.arena_bytes == 0 {
            return Ok(None);
        }
        let writers = if self.writable { Writers::Both } else { Writers::Owner };
        Arena::create(self.arena_bytes, self.huge_pages, writers).map(Some)
    }

    /// Maps the memory that the peer passed with its hello message, as the class of this end requires.
    fn adopt(
        &self,
        link: &Link,
        hello: &Hello,
        memory: Vec<OwnedFd>,
    ) -> Result<(Control, Option<Arena>), Error> {
        let expected = if hello.arena_bytes == 0 { 1 } else { 2 };
        if memory.len() != expected {
            return Err(
                link.accuse(format!("passed {} descriptors, and should have {expected}", memory.len()))
            );
        }
        if hello.arena_bytes > self.peer_arena_bytes_max as u64 {
            return Err(Error::Incompatible(format!(
                "the peer's arena is of {} bytes, and {} are allowed; allow more (peer_arena_bytes_max) or make it \
                 smaller (arena_bytes)",
                hello.arena_bytes, self.peer_arena_bytes_max
            )));
        }
        let mut memory = memory.into_iter();
        let mut next = || memory.next().ok_or_else(|| link.accuse("passed no memory"));
        let control = Control::adopt(next()?, hello, link)?;
        if hello.arena_bytes == 0 {
            return Ok((control, None));
        }
        let file = MemoryFile::from_peer(next()?, hello.arena_bytes as usize, SEALS_FIXED)
            .map_err(|what| link.accuse(what))?;
        let writable = self.writable && hello.flags & FLAG_WRITABLE != 0;
        let mapping = match self.class {
            Class::Forward | Class::Sealed => None,
            Class::Checked | Class::Trusted => Some(file.map(writable)?),
        };
        Ok((control, Some(Arena::adopt(file, mapping, writable))))
    }
}
