//! The server's end of a channel: it takes requests and completes them.

use crate::buffer::RequestBuffer;
use crate::control::{IncomingRing, OutgoingRing, Rings};
use crate::layout::{
    COMPLETION_WORDS, CompletionFields, DEPTH_MAX, FLAG_CLIENT, FLAG_SERVER, GRANULE, PROTOCOL,
    REQUEST_WORDS, RequestFields, control_words,
};
use crate::request::{Request, RequestToken, RequestWords};
use crate::stats::{Counters, Stats};
use bywash_link::ring::Shared;
use bywash_link::{
    Acceptor, Arena, Credentials, Error, FLAG_FENCES, Hello, Link, MemoryFile, MessagePolicy, RingWaiter,
    Wait, handshake,
};
use bywash_sync::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// Options of the server's end of a channel: limits for its clients, and the way of waiting.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    depth_max: u32,
    arena_bytes_max: usize,
    wait: Wait,
    handshake_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            depth_max: 4096,
            arena_bytes_max: 64 << 20,
            wait: Wait::default(),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

impl ServerOptions {
    /// Returns the defaults: channels of depth up to 4096 and arenas of up to 64 MiB.
    pub fn new() -> ServerOptions {
        ServerOptions::default()
    }

    /// Sets the greatest depth that a client may ask for: a power of two up to [`DEPTH_MAX`]. Default 4096.
    pub fn depth_max(mut self, requests: u32) -> ServerOptions {
        self.depth_max = requests;
        self
    }

    /// Sets the greatest size of a client's arena, in bytes. Default 64 MiB. An arena uses as much address
    /// space in this process, but its pages are charged to the client: a request with a buffer that is not
    /// backed by pages is a violation of the protocol and ends the channel.
    pub fn arena_bytes_max(mut self, bytes: usize) -> ServerOptions {
        self.arena_bytes_max = bytes;
        self
    }

    /// Sets the way in which this end waits for the client. Default [`Wait::Adaptive`].
    pub fn wait(mut self, wait: Wait) -> ServerOptions {
        self.wait = wait;
        self
    }

    /// Sets the timeout for the handshake with a client. Default 10 s.
    pub fn handshake_timeout(mut self, limit: Duration) -> ServerOptions {
        self.handshake_timeout = limit;
        self
    }

    fn check(&self) -> Result<(), Error> {
        if self.depth_max.is_power_of_two() && self.depth_max <= DEPTH_MAX {
            return Ok(());
        }
        let allowed = format!("a power of two up to {DEPTH_MAX}");
        Err(Error::Option { option: "the largest depth", value: self.depth_max.to_string(), allowed })
    }
}

/// Accepts connections of clients at a name in the file system.
///
/// The permissions of the name decide who may connect, and [`Server::peer`] tells who did.
#[derive(Debug)]
pub struct Listener(Acceptor);

impl Listener {
    /// Creates the name. It stays until somebody removes it. A socket at this name on which no process
    /// listens any more, for instance since its program was killed, is replaced.
    ///
    /// # Errors
    /// [`Error::Io`]: with `AddrInUse` if something else has the name, or if another system call fails.
    pub fn bind(name: impl AsRef<Path>) -> Result<Listener, Error> {
        Acceptor::bind(name.as_ref()).map(Listener)
    }

    /// Waits for a client and makes a channel to it. Up to 256 connected clients do their handshakes at the
    /// same time: a silent one does not delay the others, and is disconnected after
    /// [`ServerOptions::handshake_timeout`].
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel accepts no connection. Also those of [`Server::over`], which concern this
    /// one client: the listener can go on accepting others.
    pub fn accept(&self, options: &ServerOptions) -> Result<Server, Error> {
        Server::over(self.0.accept(None, options.handshake_timeout)?, options)
    }

    /// Like [`Listener::accept`], but waits for a client's hello message no longer than `limit`.
    ///
    /// # Errors
    /// Same as [`Listener::accept`], and [`Error::TimedOut`].
    pub fn accept_within(&self, options: &ServerOptions, limit: Duration) -> Result<Server, Error> {
        Server::over(self.0.accept(Some(limit), options.handshake_timeout)?, options)
    }

    /// Waits until a client has sent its hello message, at most `limit`, and returns the socket.
    /// [`Server::over`] then makes the channel over it without waiting. Clients that send none within 10 s
    /// are disconnected.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if no client does so in time, or [`Error::Io`] if the kernel accepts no
    /// connection.
    pub fn accept_socket(&self, limit: Option<Duration>) -> Result<OwnedFd, Error> {
        self.0.accept(limit, ServerOptions::default().handshake_timeout)
    }

    /// Like [`Listener::accept`], as a future for any executor. A helper thread does the handshake and makes
    /// the channel.
    ///
    /// # Errors
    /// Same as [`Listener::accept`], and [`Error::Io`] if the helper thread cannot be started.
    #[cfg(feature = "async")]
    pub async fn accept_async(&self, options: &ServerOptions) -> Result<Server, Error> {
        let (socket, options) = (self.0.accept_async(options.handshake_timeout).await?, options.clone());
        bywash_link::spawn_blocking(move || Server::over(socket, &options)).await
    }
}

/// The descriptor is readable when [`Listener::accept`] may find a client.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// State that the two halves of a server share. The connection ends when both halves and all [`BufferAccess`]
/// are dropped.
#[derive(Debug)]
struct Connection {
    meeting: RingWaiter<Counters>,
    arena: Option<Arena>,
    /// For each tag, true while a request is in flight: taken and not completed.
    taken: Box<[AtomicBool]>,
    /// Number of this channel, unique in this process, by which a request of another channel is recognised.
    number: u64,
}

impl Connection {
    /// Returns the buffer of a request.
    ///
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    fn memory(&self, ticket: &RequestToken) -> RequestBuffer<'_> {
        assert!(ticket.channel == self.number, "the request came over another channel");
        let buffer = ticket.buffer;
        // The range lies within the arena, as `Requests::take` checked. A channel without an arena has only
        // empty buffers.
        let base = self.arena.as_ref().and_then(|arena| arena.at(buffer.offset as usize * GRANULE));
        RequestBuffer {
            base: base.unwrap_or_else(ptr::dangling_mut),
            length: buffer.length as usize,
            counters: &self.meeting.counters,
        }
    }
}

/// Access to the buffers of requests, for threads that have neither half of the server: worker threads that
/// handle requests while one thread takes and another completes them. Holding this value keeps the connection
/// open.
#[derive(Clone, Debug)]
pub struct BufferAccess(Arc<Connection>);

impl BufferAccess {
    /// Returns the buffer of a request: memory of the client.
    ///
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    pub fn buffer(&self, request: &impl AsRef<RequestToken>) -> RequestBuffer<'_> {
        self.0.memory(request.as_ref())
    }

    /// Returns the size of the client's arena, in bytes. Every request's buffer is a range of the arena.
    pub fn arena_bytes(&self) -> usize {
        self.0.arena.as_ref().map_or(0, |arena| arena.file.bytes())
    }

    /// Returns the longest range of the client's arena that is known to be backed by pages, since requests
    /// have used it; `None` if there is none. Touching any other range could charge this process for its
    /// pages.
    pub fn used(&self) -> Option<RequestBuffer<'_>> {
        let arena = self.0.arena.as_ref()?;
        let used = arena.longest_backed();
        let base = arena.at(used.start).filter(|_| !used.is_empty())?;
        Some(RequestBuffer { base, length: used.len(), counters: &self.0.meeting.counters })
    }

    /// Reads messages from the socket, for an event loop that does not do so itself
    /// ([`RequestReceiver::arm_unread`]). False: the connection has ended. A malicious client can make this
    /// call block for as long as it likes.
    ///
    /// # Errors
    /// [`Error::Io`] if the socket cannot be read, [`Error::Protocol`] if the client sent a message that the
    /// protocol does not allow.
    pub fn drain_socket(&self) -> Result<bool, Error> {
        self.0.meeting.link.drain_some()
    }

    /// Returns the size of the client's shared memory, in bytes: the arena and the rings.
    pub fn bytes(&self) -> usize {
        // The cast does not truncate: a channel has at most `DEPTH_MAX` entries.
        let (words, _) = control_words(self.0.taken.len() as u32);
        self.arena_bytes() + words * 8
    }

    /// Returns the counts of both halves' operations.
    pub fn stats(&self) -> Stats {
        self.0.meeting.counters.read()
    }
}

/// The half of a server that takes requests.
#[derive(Debug)]
pub struct RequestReceiver {
    connection: Arc<Connection>,
    requests: IncomingRing<REQUEST_WORDS>,
}

/// The half of a server that completes requests.
///
/// Dropping it closes the ring of completions: the client reaps those sent before, and then learns that there
/// are no more.
#[derive(Debug)]
pub struct Completer {
    connection: Arc<Connection>,
    completions: OutgoingRing<COMPLETION_WORDS>,
}

/// The server's end of a channel.
#[derive(Debug)]
pub struct Server {
    requests: RequestReceiver,
    completer: Completer,
}

impl Server {
    /// Makes a channel over a connected socket: one of [`crate::socket_pair`], or an inherited one. Waits for
    /// the client's handshake, at most [`ServerOptions::handshake_timeout`].
    ///
    /// # Errors
    /// - [`Error::Option`] if an option has an invalid value.
    /// - [`Error::TimedOut`] or [`Error::PeerDied`] if the client sends no hello message in time or
    ///   disconnects.
    /// - [`Error::Incompatible`] if the two ends differ in protocol or version, both are servers, or the
    ///   client asks for more depth or a larger arena than allowed.
    /// - [`Error::Protocol`] if the client's memory is not what its hello message says.
    /// - [`Error::Io`] if a system call fails.
    pub fn over(socket: OwnedFd, options: &ServerOptions) -> Result<Server, Error> {
        options.check()?;
        let prepared = options.wait.prepare_fences();
        let flags = FLAG_SERVER | if prepared { FLAG_FENCES } else { 0 };
        let arena_bytes = options.arena_bytes_max as u64;
        let hello = Hello { flags, arena_bytes, rings: [options.depth_max; 2] };
        let (link, theirs, memory) =
            handshake(socket, &PROTOCOL, hello, &[], options.handshake_timeout, MessagePolicy::NONE)?;
        let (control, arena) = options.adopt(&link, &theirs, memory)?;
        let depth = theirs.rings[0];
        let rings = Rings::split(&control, depth);
        let fences = prepared && theirs.has_fences();
        let meeting = Rings::meeting(&rings.requests, &rings.completions, link, options.wait, fences);
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let connection = Arc::new(Connection {
            meeting,
            arena,
            taken: (0..depth).map(|_| AtomicBool::new(false)).collect(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        });
        let requests = IncomingRing::new(rings.requests, depth);
        let completions = OutgoingRing::new(rings.completions, depth);
        Ok(Server {
            requests: RequestReceiver { connection: connection.clone(), requests },
            completer: Completer { connection, completions },
        })
    }

    /// Splits the server into its two halves, for two threads.
    pub fn split(self) -> (RequestReceiver, Completer) {
        (self.requests, self.completer)
    }

    /// Waits for the next request; see [`RequestReceiver::next`].
    ///
    /// # Errors
    /// Same as [`RequestReceiver::next`].
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator's end would not say why")]
    pub fn next(&mut self) -> Result<Request, Error> {
        self.requests.next()
    }

    /// Waits for the next request, with a timeout; see [`RequestReceiver::next_within`].
    ///
    /// # Errors
    /// Same as [`RequestReceiver::next_within`].
    pub fn next_within(&mut self, limit: Duration) -> Result<Request, Error> {
        self.requests.next_within(limit)
    }

    /// Takes the next request without waiting; see [`RequestReceiver::try_next`].
    ///
    /// # Errors
    /// Same as [`RequestReceiver::try_next`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Request>, Error> {
        self.requests.try_next()
    }

    /// Takes the next request without waiting; see [`RequestReceiver::try_next_into`].
    ///
    /// # Errors
    /// Same as [`RequestReceiver::try_next_into`].
    #[inline(always)]
    pub fn try_next_into(&mut self, words: &mut RequestWords) -> Result<Option<RequestToken>, Error> {
        self.requests.try_next_into(words)
    }

    /// Waits for the next request as a future; see [`RequestReceiver::next_async`].
    ///
    /// # Errors
    /// Same as [`RequestReceiver::next_async`].
    #[cfg(feature = "async")]
    pub async fn next_async(&mut self) -> Result<Request, Error> {
        self.requests.next_async().await
    }

    /// Requests a doorbell, for an event loop; see [`RequestReceiver::arm`].
    ///
    /// # Errors
    /// Same as [`RequestReceiver::arm`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.requests.arm()
    }

    /// Requests a doorbell, for an event loop that must not block; see [`RequestReceiver::arm_unread`].
    ///
    /// # Errors
    /// Same as [`RequestReceiver::arm_unread`].
    pub fn arm_unread(&mut self) -> Result<bool, Error> {
        self.requests.arm_unread()
    }

    /// Returns the buffer of a request: memory of the client.
    ///
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    pub fn memory(&self, request: &impl AsRef<RequestToken>) -> RequestBuffer<'_> {
        self.requests.memory(request)
    }

    /// Returns access to the buffers of requests, for other threads; see [`BufferAccess`].
    pub fn buffer_access(&self) -> BufferAccess {
        self.requests.buffer_access()
    }

    /// Completes a request; see [`Completer::complete`].
    ///
    /// # Errors
    /// Same as [`Completer::complete`].
    #[inline]
    pub fn complete(
        &mut self,
        request: impl Into<RequestToken>,
        status: u16,
        value: u64,
    ) -> Result<(), Error> {
        self.completer.complete(request, status, value)
    }

    /// Completes a request without waking the client; see [`Completer::complete_unrung`].
    ///
    /// # Errors
    /// Same as [`Completer::complete_unrung`].
    #[inline]
    pub fn complete_unrung(
        &mut self,
        request: impl Into<RequestToken>,
        status: u16,
        value: u64,
    ) -> Result<(), Error> {
        self.completer.complete_unrung(request, status, value)
    }

    /// Wakes the client; see [`Completer::ring`].
    #[inline]
    pub fn ring(&self) {
        self.completer.ring();
    }

    /// Returns the depth: the greatest number of requests that the client can have in flight.
    pub fn depth(&self) -> usize {
        self.requests.connection.taken.len()
    }

    /// Returns the credentials of the client, as the kernel reported them during the handshake.
    pub fn peer(&self) -> Credentials {
        self.requests.peer()
    }

    /// Returns the counts of this end's operations.
    pub fn stats(&self) -> Stats {
        self.requests.stats()
    }
}

impl RequestReceiver {
    /// Waits for the next request.
    ///
    /// # Errors
    /// Requests that were submitted before the end of the channel are returned first.
    /// - [`Error::Closed`] if the client has closed its ring and submits no more.
    /// - [`Error::PeerDied`] if the client died without doing so.
    /// - [`Error::Protocol`] if the client broke the protocol.
    /// - [`Error::Forked`] in a forked child, and [`Error::Io`] if a system call fails.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator's end would not say why")]
    pub fn next(&mut self) -> Result<Request, Error> {
        self.next_until(None)
    }

    /// Like [`RequestReceiver::next`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Same as [`RequestReceiver::next`], and [`Error::TimedOut`].
    pub fn next_within(&mut self, limit: Duration) -> Result<Request, Error> {
        self.next_until(Some(limit))
    }

    /// Like [`RequestReceiver::next`], but does not wait: `None` if no request has arrived.
    ///
    /// # Errors
    /// [`Error::Closed`] if the client submits no more; [`Error::Protocol`] if it broke the protocol;
    /// [`Error::Forked`] in a forked child. The death of the client is noticed only by the functions that
    /// wait, and by [`RequestReceiver::arm`].
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Request>, Error> {
        self.take(1)
    }

    #[inline]
    fn next_until(&mut self, limit: Option<Duration>) -> Result<Request, Error> {
        if let Some(request) = self.take(self.connection.meeting.first_looks())? {
            return Ok(request);
        }
        let connection = self.connection.clone();
        let outcome = connection.meeting.waiter().wait(limit, |looks| self.take(looks));
        self.requests.mind(outcome)
    }

    /// Like [`RequestReceiver::next`], as a future for any executor. Dropping the future loses no request.
    ///
    /// # Errors
    /// Same as [`RequestReceiver::next`].
    #[cfg(feature = "async")]
    pub async fn next_async(&mut self) -> Result<Request, Error> {
        let connection = self.connection.clone();
        let outcome = connection.meeting.waiter().wait_async(|looks| self.take(looks)).await;
        self.requests.mind(outcome)
    }

    /// Like [`RequestReceiver::try_next`], but copies the fields of the request into `words`, which costs less.
    ///
    /// # Errors
    /// Same as [`RequestReceiver::try_next`].
    #[inline(always)]
    pub fn try_next_into(&mut self, words: &mut RequestWords) -> Result<Option<RequestToken>, Error> {
        self.take_into(1, words)
    }

    #[inline]
    fn take(&mut self, looks: u32) -> Result<Option<Request>, Error> {
        let mut words = RequestWords::default();
        let Some(ticket) = self.take_into(looks, &mut words)? else { return Ok(None) };
        let RequestFields { flags, opcode, arguments, .. } = RequestFields::from_entry(&words.0);
        Ok(Some(Request { ticket, opcode, flags, arguments }))
    }

    /// Takes the next request if one arrives within `looks` looks at the ring, and checks its tag and its
    /// buffer.
    #[inline(always)]
    fn take_into(&mut self, looks: u32, words: &mut RequestWords) -> Result<Option<RequestToken>, Error> {
        let Connection { meeting, arena, taken, number } = &*self.connection;
        if !self.requests.take_into(meeting, looks, &mut words.0)? {
            return Ok(None);
        }
        let RequestFields { tag, buffer, .. } = RequestFields::from_entry(&words.0);
        // SYNC: taken (acquire): the completion of the tag's last request was sent before. Only this thread
        // sets the flag, so a load and a store suffice.
        match taken.get(usize::from(tag)) {
            Some(taken) if !taken.load(Ordering::Acquire) => taken.store(true, Ordering::Relaxed),
            _ => return Err(self.accuse_of_tag(tag)),
        }
        let (offset, length) = (buffer.offset as usize * GRANULE, buffer.length as usize);
        let is_right = match arena {
            // No overflow: both have 32 bits, and offsets are in granules.
            Some(arena) => offset + length <= arena.file.bytes() && arena.is_backed(offset, length),
            None => offset + length == 0,
        };
        if !is_right {
            return Err(self.accuse_of_buffer(offset, length));
        }
        meeting.counters.requests.add(1);
        Ok(Some(RequestToken { channel: *number, buffer, tag }))
    }

    #[cold]
    fn accuse_of_tag(&mut self, tag: u16) -> Error {
        let Connection { meeting, taken, .. } = &*self.connection;
        let what = match taken.get(usize::from(tag)) {
            Some(_) => format!("submitted request {tag} again, which is in flight"),
            None => format!("submitted request {tag} over a channel of depth {}", taken.len()),
        };
        self.requests.accuse(meeting, what)
    }

    #[cold]
    fn accuse_of_buffer(&mut self, offset: usize, length: usize) -> Error {
        let Connection { meeting, arena, .. } = &*self.connection;
        let bytes = arena.as_ref().map_or(0, |arena| arena.file.bytes());
        let what = match offset + length <= bytes {
            true => format!("sent a buffer of {length} bytes at {offset} without taking its memory first"),
            false => format!("sent a buffer of {length} bytes at {offset} of an arena of {bytes} bytes"),
        };
        self.requests.accuse(meeting, what)
    }

    /// Requests a doorbell, for an event loop. After `Ok(false)` the descriptor of [`AsFd`] becomes readable
    /// when the client submits a request or is gone. `Ok(true)` means that a request has arrived already, or
    /// that the client submits no more. The next call reads from the socket what made the descriptor
    /// readable.
    ///
    /// # Errors
    /// Same as [`RequestReceiver::next`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.requests.arm(&self.connection.meeting)
    }

    /// Like [`RequestReceiver::arm`], but does not read the socket, for event loops that must not block: a
    /// malicious client can keep a copy of this end of the socket and hold its lock, or send descriptors
    /// whose closing blocks. After `Ok(false)` each doorbell is an edge (`EPOLLET`); another thread must read
    /// them now and then ([`BufferAccess::drain_socket`]).
    ///
    /// # Errors
    /// [`Error::Protocol`] if the client broke the protocol, and [`Error::Forked`] in a forked child.
    pub fn arm_unread(&mut self) -> Result<bool, Error> {
        self.requests.arm_unread(&self.connection.meeting)
    }

    /// Returns the buffer of a request: memory of the client.
    ///
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    pub fn memory(&self, request: &impl AsRef<RequestToken>) -> RequestBuffer<'_> {
        self.connection.memory(request.as_ref())
    }

    /// Returns access to the buffers of requests, for other threads; see [`BufferAccess`].
    pub fn buffer_access(&self) -> BufferAccess {
        BufferAccess(self.connection.clone())
    }

    /// Returns the credentials of the client, as the kernel reported them during the handshake.
    pub fn peer(&self) -> Credentials {
        self.connection.meeting.link.peer()
    }

    /// Returns the counts of both halves' operations.
    pub fn stats(&self) -> Stats {
        self.connection.meeting.counters.read()
    }
}

impl Completer {
    /// Completes a request, without waiting: the client owns the buffer again and may reuse the tag. If the
    /// client is gone, the completion is lost without an error.
    ///
    /// # Errors
    /// - [`Error::Protocol`] if the client broke the protocol.
    /// - [`Error::WrongPath`] if the request came over another channel.
    /// - [`Error::Forked`] in a forked child.
    #[inline]
    pub fn complete(
        &mut self,
        request: impl Into<RequestToken>,
        status: u16,
        value: u64,
    ) -> Result<(), Error> {
        self.complete_unrung(request, status, value)?;
        self.ring();
        Ok(())
    }

    /// Like [`Completer::complete`], but leaves a client that sleeps asleep until [`Completer::ring`], which must follow soon:
    /// several completions then wake it once.
    ///
    /// # Errors
    /// Same as [`Completer::complete`].
    #[inline]
    pub fn complete_unrung(
        &mut self,
        request: impl Into<RequestToken>,
        status: u16,
        value: u64,
    ) -> Result<(), Error> {
        let Connection { meeting, taken, number, .. } = &*self.connection;
        self.completions.check(meeting)?;
        let RequestToken { channel, tag, .. } = request.into();
        if channel != *number {
            return Err(Error::WrongPath("the request came over another channel"));
        }
        // SYNC: taken (release). Cleared before the completion is sent, after which the client may use the
        // tag again.
        taken[usize::from(tag)].store(false, Ordering::Release);
        self.completions.push_unrung(meeting, &CompletionFields { tag, status, value }.to_entry())?;
        meeting.counters.completions.add(1);
        Ok(())
    }

    /// Wakes the client if it sleeps until one of the completions so far.
    #[inline]
    pub fn ring(&self) {
        self.completions.ring(&self.connection.meeting);
    }

    /// Returns the buffer of a request: memory of the client.
    ///
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    pub fn memory(&self, request: &impl AsRef<RequestToken>) -> RequestBuffer<'_> {
        self.connection.memory(request.as_ref())
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.completions.close(&self.connection.meeting);
    }
}

impl AsFd for RequestReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.meeting.link.descriptor()
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.requests.as_fd()
    }
}

impl ServerOptions {
    /// Checks and maps the memory that the client passed with its hello message.
    fn adopt(
        &self,
        link: &Link,
        hello: &Hello,
        memory: Vec<OwnedFd>,
    ) -> Result<(Shared, Option<Arena>), Error> {
        if hello.flags & FLAG_CLIENT == 0 {
            return Err(Error::Incompatible("both are servers; one must be the client".into()));
        }
        let expected = if hello.arena_bytes == 0 { 1 } else { 2 };
        if memory.len() != expected {
            return Err(
                link.accuse(format!("passed {} descriptors, and should have {expected}", memory.len()))
            );
        }
        let [depth, completions] = hello.rings;
        if depth != completions {
            return Err(link.accuse(format!("asks for rings of {depth} and {completions} entries")));
        }
        if depth > self.depth_max || hello.arena_bytes > self.arena_bytes_max as u64 {
            return Err(Error::Incompatible(format!(
                "a depth of {} and an arena of {} bytes are allowed (ServerOptions), and the client asks for {depth} \
                 and {}",
                self.depth_max, self.arena_bytes_max, hello.arena_bytes
            )));
        }
        let mut memory = memory.into_iter();
        let mut next = || memory.next().ok_or_else(|| link.accuse("passed no memory"));
        let (words, _) = control_words(depth);
        let control = MemoryFile::adopt_words(next()?, words)?.map_err(|what| link.accuse(what))?;
        if hello.arena_bytes == 0 {
            return Ok((control, None));
        }
        let arena = Arena::adopt_for_both(next()?, hello.arena_bytes as usize)?;
        Ok((control, Some(arena.map_err(|what| link.accuse(what))?)))
    }
}
