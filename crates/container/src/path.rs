//! Paths: how two programs come together, and the six operations.

use crate::container::{Container, Inline, Message, Place, Received};
use crate::lane::{Control, End, Receiving, Shipping, is_sealed};
use crate::layout::{self, DEPTH_MAX, FLAG_SEALED, FLAG_WRITABLE, PROTOCOL, TICKETS_MAX};
use crate::not_shipped::NotShipped;
use crate::stats::{Counters, Stats};
use bywash_link::{
    ARENA_BYTES_MAX, Acceptor, Arena, Credentials, Error, FLAG_FENCES, File, Hello, HugePages, Link,
    SEALS_FIXED, Wait, Writers, greet,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// What an end does with what it receives, and how it ships.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// What is received is copied out once before anybody believes it: the peer may write its arena at any
    /// time.
    #[default]
    Checked,
    /// What is received is looked at where it is. See [`Options::trusted`] for who may say so.
    Trusted,
    /// Each container is memory of its own that nobody can write any more once it was shipped. Whoever
    /// receives it may look at it where it is, keep it for ever and pass it on. Both ends must say so.
    Sealed,
    /// What is received is never mapped, only inspected by length and origin, and shipped on.
    Forward,
}

/// How an end of a path is made.
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
    pub(crate) greeting_limit: Duration,
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
            greeting_limit: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// A checked end with an arena of 16 MiB.
    pub fn new() -> Options {
        Options::default()
    }

    /// What is received is borrowed where it is, and not copied.
    ///
    /// # Safety
    /// The peer must keep to the protocol: it must not write to what it has shipped until it has come back.
    /// That holds for every peer that uses this library and does not reach around it; a peer that somebody
    /// else may have written or broken into is none that one can promise this of.
    pub unsafe fn trusted(mut self) -> Options {
        self.class = Class::Trusted;
        self.writable = false;
        self
    }

    /// As [`Options::trusted`], and the peer may write what it received from here, in place, if it says the
    /// same.
    ///
    /// # Safety
    /// As [`Options::trusted`]; also, the peer must not write to anything that it does not have.
    pub unsafe fn trusted_to_write(mut self) -> Options {
        self.class = Class::Trusted;
        self.writable = true;
        self
    }

    /// See [`Class::Sealed`].
    pub fn sealed(mut self) -> Options {
        self.class = Class::Sealed;
        self.writable = false;
        self
    }

    /// See [`Class::Forward`].
    pub fn forward(mut self) -> Options {
        self.class = Class::Forward;
        self.writable = false;
        self
    }

    /// Bytes of this end's arena: what it can have out and in the making at a time. It is rounded up to pages,
    /// from 2 MiB on to 2 MiB. 0: it ships only what it received. Default 16 MiB.
    pub fn arena_bytes(mut self, bytes: usize) -> Options {
        self.arena_bytes = bytes;
        self
    }

    /// Pages of 2 MiB for the arena. None by default: its memory is taken as it is used.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Options {
        self.huge_pages = huge_pages;
        self
    }

    /// Messages on their way at a time: a power of two up to 4096. Default 256.
    pub fn depth(mut self, messages: u32) -> Options {
        self.depth = messages;
        self
    }

    /// Containers that the peer can have at a time: a power of two up to 65536. Default 1024.
    pub fn containers_out_max(mut self, containers: u32) -> Options {
        self.tickets = containers;
        self
    }

    /// How this end waits.
    pub fn wait(mut self, wait: Wait) -> Options {
        self.wait = wait;
        self
    }

    /// Bytes that the peer's arena, and those that it passes on, may have together; of a sealed path, the containers of
    /// one message. Default 64 MiB: as much address space here, and where one trusts a peer that breaks the protocol as
    /// much memory.
    pub fn peer_arena_bytes_max(mut self, bytes: usize) -> Options {
        self.peer_arena_bytes_max = bytes;
        self
    }

    /// How long the peer may take to present itself. Default 10 s.
    pub fn greeting_limit(mut self, limit: Duration) -> Options {
        self.greeting_limit = limit;
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

/// Waits for peers at a name in the file system.
///
/// Who may connect is what the permissions of the name say, and [`Path::peer`] tells who did.
#[derive(Debug)]
pub struct Listener(pub(crate) Acceptor);

impl Listener {
    /// Makes the name. It stays until somebody removes it. A socket that nobody listens at any more, as a program leaves
    /// it that was killed, is replaced.
    ///
    /// # Errors
    /// [`Error::Io`] with `AddrInUse` if the name is taken by something else, or what else the kernel says.
    pub fn bind(name: impl AsRef<std::path::Path>) -> Result<Listener, Error> {
        Acceptor::bind(name.as_ref()).map(Listener)
    }

    /// Waits for a peer and makes a path to it. Peers that have connected present themselves side by side, 256 at most:
    /// one that is silent keeps no other one waiting, and is cut off after [`Options::greeting_limit`].
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel accepts nobody; or why a peer does not fit, after which one can go on accepting.
    pub fn accept(&self, options: &Options) -> Result<Path, Error> {
        Path::over(self.0.accept(None, options.greeting_limit)?, options)
    }

    /// As [`Listener::accept`], but waits no longer than `limit` in all.
    ///
    /// # Errors
    /// Those of [`Listener::accept`], and [`Error::TimedOut`].
    pub fn accept_within(&self, options: &Options, limit: Duration) -> Result<Path, Error> {
        Path::over(self.0.accept(Some(limit), options.greeting_limit)?, options)
    }

    /// As [`Listener::accept`], without waiting: `None` when no peer has presented itself, or another thread was faster.
    ///
    /// # Errors
    /// Those of [`Listener::accept`].
    pub fn try_accept(&self, options: &Options) -> Result<Option<Path>, Error> {
        self.0.try_accept(options.greeting_limit)?.map(|socket| Path::over(socket, options)).transpose()
    }
}

/// Readable when [`Listener::try_accept`] may find somebody.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What can be shipped: what was made here, or what came from elsewhere.
#[derive(Debug)]
pub enum Cargo {
    /// A container of this path.
    Own(Container),
    /// What was received, on this path or another, looked at or not.
    Received(Received),
}

impl Cargo {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Cargo::Own(container) => container.len(),
            Cargo::Received(received) => received.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What travels in an entry, if it can.
    #[inline]
    pub(crate) fn inline(&self) -> Option<&Inline> {
        match self {
            Cargo::Own(container) => container.inline(),
            Cargo::Received(Received { place: Place::Inline(words), .. }) => Some(words),
            Cargo::Received(_) => None,
        }
    }

    /// Copies as much as fits.
    pub(crate) fn copy_to(&self, to: &mut [u8]) -> Result<usize, Error> {
        match self {
            Cargo::Own(container) => {
                let bytes = to.len().min(container.len());
                to[..bytes].copy_from_slice(&container[..bytes]);
                Ok(bytes)
            }
            Cargo::Received(received) => received.copy_to(to),
        }
    }
}

impl From<Container> for Cargo {
    fn from(container: Container) -> Cargo {
        Cargo::Own(container)
    }
}

impl From<Received> for Cargo {
    fn from(received: Received) -> Cargo {
        Cargo::Received(received)
    }
}

/// One end of a path: both ends can ship and receive.
///
/// An end can be used by several threads; messages arrive in the order in which they were shipped. When it is
/// dropped the peer receives what was shipped before, and then [`Error::Closed`].
#[derive(Debug)]
pub struct Path {
    link: Arc<Link>,
    counters: Arc<Counters>,
    pub(crate) shipping: Arc<Shipping>,
    pub(crate) receiving: Arc<Receiving>,
}

impl Path {
    /// Makes a path to whoever listens at `name`.
    ///
    /// # Errors
    /// What the kernel says, or why the peer does not fit.
    pub fn connect(name: impl AsRef<std::path::Path>, options: &Options) -> Result<Path, Error> {
        Path::over(bywash_link::connect(name.as_ref())?, options)
    }

    /// Makes a path over a connected socket of [`crate::socket_pair`], or one that was inherited.
    ///
    /// # Errors
    /// What the kernel says, or why the peer does not fit.
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
        let mail = if options.class == Class::Sealed { layout::SEALED } else { layout::ARENAS };
        let (link, theirs, memory) = greet(socket, &PROTOCOL, hello, &memory, options.greeting_limit, mail)?;
        let link = Arc::new(link);
        if is_sealed(&theirs) != (options.class == Class::Sealed) {
            return Err(Error::Misfit(
                "one end is sealed and the other is not; make both of one class".into(),
            ));
        }
        let (their_control, their_arena) = options.adopt(&link, &theirs, memory)?;
        let counters = Arc::new(Counters::default());
        let fences = fences && theirs.has_fences();
        let end = End { link: link.clone(), counters: counters.clone(), wait: options.wait, fences };
        let receiving = Receiving::new(&their_control, their_arena, options, &theirs, &end);
        Ok(Path {
            shipping: Arc::new(Shipping::new(&control, arena, options, &end, receiving.closing())),
            receiving: Arc::new(receiving),
            link,
            counters,
        })
    }

    /// Allocates a container of `bytes`, waiting for room.
    ///
    /// # Errors
    /// [`Error::TooLarge`], or what became of the peer meanwhile.
    #[inline]
    pub fn alloc(&self, bytes: usize) -> Result<Container, Error> {
        if self.shipping.is_inline(bytes) {
            self.link.check_process()?;
            return Ok(Container::here(bytes));
        }
        self.mind(self.shipping.take_within(bytes, None))
    }

    /// As [`Path::alloc`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`Path::alloc`], and [`Error::AllocTimedOut`], which tells who holds the arena.
    pub fn alloc_within(&self, bytes: usize, limit: Duration) -> Result<Container, Error> {
        self.mind(self.shipping.take_within(bytes, Some(limit)))
    }

    /// As [`Path::alloc`], without waiting: `None` when the arena is used up; [`Path::stats`] tells by whom.
    ///
    /// # Errors
    /// As [`Path::alloc`].
    pub fn try_alloc(&self, bytes: usize) -> Result<Option<Container>, Error> {
        self.mind(self.shipping.take(bytes))
    }

    /// Ships one container away, waiting for room. It is the peer's then.
    ///
    /// # Errors
    /// Why not, with what was to be shipped.
    #[inline]
    pub fn ship(&self, cargo: impl Into<Cargo>) -> Result<(), NotShipped<Box<Cargo>>> {
        let cargo = cargo.into();
        if let Some(contents) = cargo.inline()
            && self.shipping.is_inline(cargo.len())
            && self.check_peer().is_ok()
            && let Ok(true) = self.shipping.ship_inline(contents, cargo.len())
        {
            return Ok(());
        }
        self.ship_one(cargo)
    }

    #[inline(never)]
    fn ship_one(&self, cargo: Cargo) -> Result<(), NotShipped<Box<Cargo>>> {
        let mut cargo = [Some(cargo)];
        let shipped = self.ship_places(&mut cargo, None);
        not_one_shipped(shipped, cargo)
    }

    /// As [`Path::ship`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`Path::ship`], and [`Error::TimedOut`].
    pub fn ship_within(
        &self,
        cargo: impl Into<Cargo>,
        limit: Duration,
    ) -> Result<(), NotShipped<Box<Cargo>>> {
        let mut cargo = [Some(cargo.into())];
        let shipped = self.ship_places(&mut cargo, Some(limit));
        not_one_shipped(shipped, cargo)
    }

    /// As [`Path::ship`], without waiting: what was given comes back when there is no room.
    ///
    /// # Errors
    /// As [`Path::ship`].
    pub fn try_ship(&self, cargo: impl Into<Cargo>) -> Result<Option<Cargo>, NotShipped<Box<Cargo>>> {
        let mut cargo = [Some(cargo.into())];
        let shipped = self.mind(self.check_peer().and_then(|()| self.shipping.ship(&mut cargo)));
        if let Ok(false) = shipped {
            let [cargo] = cargo;
            return Ok(cargo);
        }
        not_one_shipped(shipped.map(drop), cargo).map(|()| None)
    }

    /// Ships several containers as one message.
    ///
    /// # Errors
    /// Why not, with what was to be shipped.
    pub fn ship_all(&self, cargo: Vec<Cargo>) -> Result<(), NotShipped<Vec<Cargo>>> {
        self.ship_list(cargo, None)
    }

    /// As [`Path::ship_all`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`Path::ship_all`], and [`Error::TimedOut`].
    pub fn ship_all_within(&self, cargo: Vec<Cargo>, limit: Duration) -> Result<(), NotShipped<Vec<Cargo>>> {
        self.ship_list(cargo, Some(limit))
    }

    fn ship_places(&self, places: &mut [Option<Cargo>], limit: Option<Duration>) -> Result<(), Error> {
        self.mind(self.check_peer().and_then(|()| self.shipping.ship_within(places, limit)))
    }

    fn ship_list(&self, cargo: Vec<Cargo>, limit: Option<Duration>) -> Result<(), NotShipped<Vec<Cargo>>> {
        let mut places: Vec<Option<Cargo>> = cargo.into_iter().map(Some).collect();
        self.ship_places(&mut places, limit)
            .map_err(|error| NotShipped { error, cargo: places.into_iter().flatten().collect() })
    }

    /// Ships a message on as it came.
    ///
    /// # Errors
    /// Why not, with what was to be shipped.
    pub fn ship_message(&self, message: Message) -> Result<(), NotShipped<Vec<Cargo>>> {
        self.ship_message_until(message, None)
    }

    /// As [`Path::ship_message`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`Path::ship_message`], and [`Error::TimedOut`].
    pub fn ship_message_within(
        &self,
        message: Message,
        limit: Duration,
    ) -> Result<(), NotShipped<Vec<Cargo>>> {
        self.ship_message_until(message, Some(limit))
    }

    fn ship_message_until(
        &self,
        message: Message,
        limit: Option<Duration>,
    ) -> Result<(), NotShipped<Vec<Cargo>>> {
        if message.pieces().nth(1).is_some() {
            return self.ship_list(message.into_pieces().map(Cargo::Received).collect(), limit);
        }
        let mut cargo = [message.into_pieces().next().map(Cargo::Received)];
        self.ship_places(&mut cargo, limit)
            .map_err(|error| NotShipped { error, cargo: cargo.into_iter().flatten().collect() })
    }

    /// Receives the next message, waiting for it.
    ///
    /// # Errors
    /// What became of the peer.
    #[inline]
    pub fn receive(&self) -> Result<Message, Error> {
        if let Some(message) = self.receiving.take_inline() {
            return Ok(message);
        }
        self.mind(self.receiving.take_within(None))
    }

    /// As [`Path::receive`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`Path::receive`], and [`Error::TimedOut`].
    pub fn receive_within(&self, limit: Duration) -> Result<Message, Error> {
        self.mind(self.receiving.take_within(Some(limit)))
    }

    /// As [`Path::receive`], without waiting: `None` when there is nothing.
    ///
    /// # Errors
    /// As [`Path::receive`].
    #[inline]
    pub fn try_receive(&self) -> Result<Option<Message>, Error> {
        self.mind(self.receiving.take(1))
    }

    /// For event loops: after `Ok(false)` the descriptor of [`AsFd`] becomes readable when the peer ships
    /// something or is gone. `Ok(true)`: something is there already, if only that the peer has closed. What made
    /// it readable is taken away by the next call of this. Who ships on what comes here also watches the descriptors of those other paths, and
    /// calls this when one is readable: then what came back there goes on.
    ///
    /// # Errors
    /// As [`Path::receive`].
    pub fn arm(&self) -> Result<bool, Error> {
        self.link.check_process()?;
        self.receiving.meeting.set_bell();
        self.receiving.arm_relays();
        self.mind(self.receiving.has_something())
    }

    /// Closes this end, though others may hold it as well: the peer receives what was shipped before, and then
    /// [`Error::Closed`]; here what has come can still be received, and everything else is [`Error::Closed`]. Who
    /// waits hears of it at once or within 100 ms. To drop an end closes it too.
    pub fn close(&self) {
        if self.link.is_here() {
            self.shipping.close();
            self.shipping.end();
            self.link.shut();
        }
    }

    /// Who is at the other end, as the kernel says.
    pub fn peer(&self) -> Credentials {
        self.link.peer()
    }

    /// Counts of what this end has done so far, and the holders of its arena now. Takes time in proportion to the
    /// containers that are out and the blocks that are free: microseconds, and milliseconds for many thousands.
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

    /// Whether the peer still takes something.
    #[inline]
    pub(crate) fn check_peer(&self) -> Result<(), Error> {
        self.link.check_process()?;
        if self.receiving.is_closed() {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Remembers that the peer is gone, or that it cannot be believed any more.
    #[inline]
    pub(crate) fn mind<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        match &outcome {
            Err(Error::PeerDied { .. }) if self.receiving.is_closed() => {
                self.shipping.end();
                // Its last word was that it closes.
                return Err(Error::Closed);
            }
            Err(Error::Closed | Error::PeerDied { .. }) => self.shipping.end(),
            Err(Error::Peer { what, .. }) => {
                self.receiving.condemn(what);
                self.shipping.accuse(what);
            }
            _ => {}
        }
        outcome
    }
}

pub(crate) fn not_one_shipped(
    shipped: Result<(), Error>,
    [cargo]: [Option<Cargo>; 1],
) -> Result<(), NotShipped<Box<Cargo>>> {
    match (shipped, cargo) {
        (Err(error), Some(cargo)) => Err(NotShipped { error, cargo: Box::new(cargo) }),
        // Without its cargo there was a container that could not be sealed nor mapped again; see `freeze`.
        (Err(error), None) => {
            Err(NotShipped { error, cargo: Box::new(Cargo::Received(Received::nothing())) })
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

    /// Takes over the memory that came with the peer's hello.
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
            return Err(Error::Misfit(format!(
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
        let file = File::adopt(next()?, hello.arena_bytes as usize, SEALS_FIXED)
            .map_err(|what| link.accuse(what))?;
        let writable = self.writable && hello.flags & FLAG_WRITABLE != 0;
        let mapping = match self.class {
            Class::Forward | Class::Sealed => None,
            Class::Checked | Class::Trusted => Some(file.map(writable)?),
        };
        Ok((control, Some(Arena::adopt(file, mapping, writable))))
    }
}
