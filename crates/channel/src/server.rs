//! The side that answers.

use crate::buffer::Memory;
use crate::control::{Incoming, Outgoing, Rings};
use crate::layout::{
    ARGUMENTS, COMPLETION_WORDS, CompletionFields, DEPTH_MAX, Extent, FLAG_CLIENT, FLAG_SERVER, GRANULE,
    PROTOCOL, REQUEST_WORDS, RequestFields, control_words,
};
use crate::stats::{Counters, Stats};
use bywash_link::{
    Acceptor, Arena, Credentials, Error, FLAG_FENCES, File, Hello, Link, Mail, Meeting, Wait, greet,
};
use bywash_ring::Shared;
use bywash_sync::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// What a server allows, and how it waits.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    depth_max: u32,
    arena_bytes_max: usize,
    wait: Wait,
    greeting_limit: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            depth_max: 4096,
            arena_bytes_max: 64 << 20,
            wait: Wait::default(),
            greeting_limit: Duration::from_secs(10),
        }
    }
}

impl ServerOptions {
    /// Channels of depth 4096 and arenas of 64 MiB are allowed.
    pub fn new() -> ServerOptions {
        ServerOptions::default()
    }

    /// Most requests that a client may have under way: a power of two up to [`DEPTH_MAX`].
    pub fn depth_max(mut self, requests: u32) -> ServerOptions {
        self.depth_max = requests;
        self
    }

    /// Most bytes of a client's arena. Default 64 MiB. They take up address space here; their memory is the client's, at
    /// whose expense it was taken: a request with memory that was not taken ends the channel.
    pub fn arena_bytes_max(mut self, bytes: usize) -> ServerOptions {
        self.arena_bytes_max = bytes;
        self
    }

    /// How this end waits.
    pub fn wait(mut self, wait: Wait) -> ServerOptions {
        self.wait = wait;
        self
    }

    /// How long a client may take to present itself. Default 10 s.
    pub fn greeting_limit(mut self, limit: Duration) -> ServerOptions {
        self.greeting_limit = limit;
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

/// Waits for clients at a name in the file system.
///
/// Who may connect is what the permissions of the name say, and [`Server::peer`] tells who did.
#[derive(Debug)]
pub struct Listener(Acceptor);

impl Listener {
    /// Makes the name. It stays until somebody removes it. A socket that nobody listens at any more, as a program leaves
    /// it that was killed, is replaced.
    ///
    /// # Errors
    /// [`Error::Io`] with `AddrInUse` if the name is taken by something else, or what else the kernel says.
    pub fn bind(name: impl AsRef<Path>) -> Result<Listener, Error> {
        Acceptor::bind(name.as_ref()).map(Listener)
    }

    /// Waits for a client and makes a channel to it. Clients that have connected present themselves side by side, 64 at
    /// most: one that is silent keeps no other one waiting, and is cut off after [`ServerOptions::greeting_limit`].
    ///
    /// # Errors
    /// [`Error::Io`] if the kernel accepts nobody; or why a client does not fit, after which one can go on accepting.
    pub fn accept(&self, options: &ServerOptions) -> Result<Server, Error> {
        Server::over(self.0.accept(None, options.greeting_limit)?, options)
    }

    /// As [`Listener::accept`], but waits no longer than `limit` in all.
    ///
    /// # Errors
    /// Those of [`Listener::accept`], and [`Error::TimedOut`].
    pub fn accept_within(&self, options: &ServerOptions, limit: Duration) -> Result<Server, Error> {
        Server::over(self.0.accept(Some(limit), options.greeting_limit)?, options)
    }

    /// Waits for a client that presents itself, at most `limit` in all, and answers the connection to it: for
    /// [`Server::over`], which does not wait then.
    ///
    /// # Errors
    /// [`Error::TimedOut`], or [`Error::Io`] if the kernel accepts nobody.
    pub fn accept_socket(&self, limit: Option<Duration>) -> Result<OwnedFd, Error> {
        self.0.accept(limit, ServerOptions::default().greeting_limit)
    }

    /// As [`Listener::accept`], as a task of any executor. The channel is made in a thread aside.
    ///
    /// # Errors
    /// Those of [`Listener::accept`].
    #[cfg(feature = "async")]
    pub async fn accept_async(&self, options: &ServerOptions) -> Result<Server, Error> {
        let (socket, options) = (self.0.accept_async(options.greeting_limit).await?, options.clone());
        bywash_link::aside(move || Server::over(socket, &options)).await
    }
}

/// Readable when [`Listener::accept`] may find somebody.
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A request that was taken. It stays under way until it is given to [`Completer::complete`]: the client waits for it.
#[derive(Debug)]
#[must_use = "the client waits until the request is completed"]
pub struct Request {
    ticket: Ticket,
    opcode: u8,
    flags: u8,
    arguments: [u64; ARGUMENTS],
}

impl Request {
    /// What to do, as the service defines.
    #[inline]
    pub fn opcode(&self) -> u8 {
        self.opcode
    }

    /// How.
    #[inline]
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// With what. They were checked by nobody.
    #[inline]
    pub fn arguments(&self) -> &[u64; ARGUMENTS] {
        &self.arguments
    }

    /// Bytes of the buffer that came along.
    #[inline]
    pub fn len(&self) -> usize {
        self.ticket.buffer.length as usize
    }

    /// Whether no memory came along.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is kept of a request when its fields were read: enough to find its memory, and to complete it. Who has many
/// requests under way keeps a third of the bytes.
#[derive(Debug)]
#[must_use = "the client waits until the request is completed"]
pub struct Ticket {
    channel: u64,
    buffer: Extent,
    tag: u16,
}

impl From<Request> for Ticket {
    #[inline]
    fn from(request: Request) -> Ticket {
        request.ticket
    }
}

impl AsRef<Ticket> for Request {
    #[inline]
    fn as_ref(&self) -> &Ticket {
        &self.ticket
    }
}

impl AsRef<Ticket> for Ticket {
    #[inline]
    fn as_ref(&self) -> &Ticket {
        self
    }
}

/// What the two halves of a server share; the connection ends with the last of them.
#[derive(Debug)]
struct Connection {
    meeting: Meeting<Counters>,
    arena: Option<Arena>,
    /// By tag: whether the request was taken and not completed.
    taken: Box<[AtomicBool]>,
    /// Of all channels of this process, so that nothing is answered over a channel that it did not come over.
    number: u64,
}

impl Connection {
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    fn memory(&self, ticket: &Ticket) -> Memory<'_> {
        assert!(ticket.channel == self.number, "the request came over another channel");
        let buffer = ticket.buffer;
        // Within the arena, as was checked when the request was taken; none has no bytes.
        let base = self.arena.as_ref().and_then(|arena| arena.at(buffer.offset as usize * GRANULE));
        Memory {
            base: base.unwrap_or_else(ptr::dangling_mut),
            length: buffer.length as usize,
            counters: &self.meeting.counters,
        }
    }
}

/// The memory that comes with requests, for threads that have neither half of the server: those that a program hands
/// requests to while one takes and one completes. The connection lasts as long as this.
#[derive(Clone, Debug)]
pub struct Memories(Arc<Connection>);

impl Memories {
    /// The client's memory that came with a request.
    ///
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    pub fn of(&self, request: &impl AsRef<Ticket>) -> Memory<'_> {
        self.0.memory(request.as_ref())
    }

    /// Bytes of the client's arena, of which every request's memory is a part.
    pub fn arena_bytes(&self) -> usize {
        self.0.arena.as_ref().map_or(0, |arena| arena.file.bytes())
    }

    /// The longest part of the client's arena of which all memory has come with requests; none if that is none. No other
    /// part can be touched without taking memory at this process's expense.
    pub fn used(&self) -> Option<Memory<'_>> {
        let arena = self.0.arena.as_ref()?;
        let used = arena.longest_backed();
        let base = arena.at(used.start).filter(|_| !used.is_empty())?;
        Some(Memory { base, length: used.len(), counters: &self.0.meeting.counters })
    }

    /// Reads what has come through the socket, for an event loop that does not ([`Requests::arm_unread`]). False: the
    /// connection has ended. It may block for as long as the client likes.
    ///
    /// # Errors
    /// [`Error::Io`] if the socket cannot be read, [`Error::Peer`] if the client sent something that no client may.
    pub fn hear(&self) -> Result<bool, Error> {
        self.0.meeting.link.drain_some()
    }

    /// Bytes that the client's memory takes up: the arena and the rings.
    pub fn bytes(&self) -> usize {
        // A channel has no more entries than fit an `u32`.
        let (words, _) = control_words(self.0.taken.len() as u32);
        self.arena_bytes() + words * 8
    }

    /// What both halves have done so far.
    pub fn stats(&self) -> Stats {
        self.0.meeting.counters.read()
    }
}

/// The half of a server that takes requests.
#[derive(Debug)]
pub struct Requests {
    connection: Arc<Connection>,
    requests: Incoming<REQUEST_WORDS>,
}

/// The half of a server that completes them.
///
/// When it is dropped the client reaps what was completed before, and hears then that there is no more.
#[derive(Debug)]
pub struct Completer {
    connection: Arc<Connection>,
    completions: Outgoing<COMPLETION_WORDS>,
}

/// The server's end of a channel.
#[derive(Debug)]
pub struct Server {
    requests: Requests,
    completer: Completer,
}

impl Server {
    /// Makes a channel over a connected socket of [`crate::socket_pair`], or one that was inherited.
    ///
    /// # Errors
    /// What the kernel says, or why the client does not fit.
    pub fn over(socket: OwnedFd, options: &ServerOptions) -> Result<Server, Error> {
        options.check()?;
        let prepared = options.wait.prepare_fences();
        let flags = FLAG_SERVER | if prepared { FLAG_FENCES } else { 0 };
        let arena_bytes = options.arena_bytes_max as u64;
        let hello = Hello { flags, arena_bytes, rings: [options.depth_max; 2] };
        let (link, theirs, memory) =
            greet(socket, &PROTOCOL, hello, &[], options.greeting_limit, Mail::NONE)?;
        let (control, arena) = options.adopt(&link, &theirs, memory)?;
        let depth = theirs.rings[0];
        let rings = Rings::of(&control, depth);
        let fences = prepared && theirs.has_fences();
        let meeting = Rings::meeting(&rings.requests, &rings.completions, link, options.wait, fences);
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let connection = Arc::new(Connection {
            meeting,
            arena,
            taken: (0..depth).map(|_| AtomicBool::new(false)).collect(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        });
        let requests = Incoming::new(rings.requests, depth);
        let completions = Outgoing::new(rings.completions, depth);
        Ok(Server {
            requests: Requests { connection: connection.clone(), requests },
            completer: Completer { connection, completions },
        })
    }

    /// The two halves, for two threads.
    pub fn split(self) -> (Requests, Completer) {
        (self.requests, self.completer)
    }

    /// See [`Requests::next`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator's end would not say why")]
    pub fn next(&mut self) -> Result<Request, Error> {
        self.requests.next()
    }

    /// See [`Requests::next_within`].
    ///
    /// # Errors
    /// As there.
    pub fn next_within(&mut self, limit: Duration) -> Result<Request, Error> {
        self.requests.next_within(limit)
    }

    /// See [`Requests::try_next`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Request>, Error> {
        self.requests.try_next()
    }

    /// See [`Requests::next_async`].
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "async")]
    pub async fn next_async(&mut self) -> Result<Request, Error> {
        self.requests.next_async().await
    }

    /// See [`Requests::arm`].
    ///
    /// # Errors
    /// As there.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.requests.arm()
    }

    /// See [`Requests::arm_unread`].
    ///
    /// # Errors
    /// As there.
    pub fn arm_unread(&mut self) -> Result<bool, Error> {
        self.requests.arm_unread()
    }

    /// The client's memory that came with a request.
    ///
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    pub fn memory(&self, request: &impl AsRef<Ticket>) -> Memory<'_> {
        self.requests.memory(request)
    }

    /// See [`Memories`].
    pub fn memories(&self) -> Memories {
        self.requests.memories()
    }

    /// See [`Completer::complete`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn complete(&mut self, request: impl Into<Ticket>, status: u16, value: u64) -> Result<(), Error> {
        self.completer.complete(request, status, value)
    }

    /// Most requests that the client can have under way.
    pub fn depth(&self) -> usize {
        self.requests.connection.taken.len()
    }

    /// Who is at the other end, as the kernel says.
    pub fn peer(&self) -> Credentials {
        self.requests.peer()
    }

    /// What this end has done so far.
    pub fn stats(&self) -> Stats {
        self.requests.stats()
    }
}

impl Requests {
    /// The next request, waiting for it.
    ///
    /// # Errors
    /// What became of the client: [`Error::Closed`] when it submits no more. What it had submitted before comes first.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator's end would not say why")]
    pub fn next(&mut self) -> Result<Request, Error> {
        self.next_until(None)
    }

    /// As [`Requests::next`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`Requests::next`], and [`Error::TimedOut`].
    pub fn next_within(&mut self, limit: Duration) -> Result<Request, Error> {
        self.next_until(Some(limit))
    }

    /// As [`Requests::next`], without waiting: `None` when there is nothing.
    ///
    /// # Errors
    /// As [`Requests::next`]; a client that died is found by those who wait.
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

    /// As [`Requests::next`], as a task of any executor. To drop the future loses nothing.
    ///
    /// # Errors
    /// As [`Requests::next`].
    #[cfg(feature = "async")]
    pub async fn next_async(&mut self) -> Result<Request, Error> {
        let connection = self.connection.clone();
        let outcome = connection.meeting.waiter().wait_async(|looks| self.take(looks)).await;
        self.requests.mind(outcome)
    }

    /// The next request, if it comes within so many looks.
    #[inline]
    fn take(&mut self, looks: u32) -> Result<Option<Request>, Error> {
        let Connection { meeting, arena, taken, number } = &*self.connection;
        let Some(entry) = self.requests.take(meeting, looks)? else { return Ok(None) };
        let RequestFields { tag, flags, opcode, buffer, arguments } = RequestFields::from_entry(&entry);
        // SYNC: taken (acquire): its completion was sent before. Nobody else sets it, so that it need not be swapped.
        match taken.get(usize::from(tag)).map(|taken| (taken, taken.load(Ordering::Acquire))) {
            Some((taken, false)) => taken.store(true, Ordering::Relaxed),
            Some((_, true)) => {
                let what = format!("submitted request {tag} again, which is under way");
                return Err(self.requests.accuse(meeting, what));
            }
            None => {
                let what = format!("submitted request {tag} over a channel of depth {}", taken.len());
                return Err(self.requests.accuse(meeting, what));
            }
        }
        let (offset, length) = (buffer.offset as usize * GRANULE, buffer.length as usize);
        let bytes = arena.as_ref().map_or(0, |arena| arena.file.bytes());
        if offset > bytes || length > bytes - offset {
            let what = format!("sent a buffer of {length} bytes at {offset} of an arena of {bytes} bytes");
            return Err(self.requests.accuse(meeting, what));
        }
        if arena.as_ref().is_some_and(|arena| !arena.is_backed(offset, length)) {
            let what = format!("sent a buffer of {length} bytes at {offset} without taking its memory first");
            return Err(self.requests.accuse(meeting, what));
        }
        meeting.counters.requests.add(1);
        Ok(Some(Request { ticket: Ticket { channel: *number, buffer, tag }, opcode, flags, arguments }))
    }

    /// For event loops: after `Ok(false)` the descriptor of [`AsFd`] becomes readable when the client submits something
    /// or is gone. `Ok(true)`: something is there already. What made it readable is taken away by the next call of
    /// this.
    ///
    /// # Errors
    /// As [`Requests::next`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.requests.arm(&self.connection.meeting)
    }

    /// As [`Requests::arm`], for event loops that must not block: the socket is not read. A client can keep a copy of this
    /// end of the socket and hold its lock, or send descriptors that block when they are closed. After `Ok(false)` each
    /// doorbell is an edge (`EPOLLET`); somebody else reads them now and then ([`Memories::hear`]).
    ///
    /// # Errors
    /// As [`Requests::next`].
    pub fn arm_unread(&mut self) -> Result<bool, Error> {
        self.requests.arm_unread(&self.connection.meeting)
    }

    /// The client's memory that came with a request.
    ///
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    pub fn memory(&self, request: &impl AsRef<Ticket>) -> Memory<'_> {
        self.connection.memory(request.as_ref())
    }

    /// See [`Memories`].
    pub fn memories(&self) -> Memories {
        Memories(self.connection.clone())
    }

    /// Who is at the other end, as the kernel says.
    pub fn peer(&self) -> Credentials {
        self.connection.meeting.link.peer()
    }

    /// What both halves have done so far.
    pub fn stats(&self) -> Stats {
        self.connection.meeting.counters.read()
    }
}

impl Completer {
    /// Completes a request: it is not under way any more, and its memory is the client's again. It never waits. A
    /// client that is gone does not hear of it.
    ///
    /// # Errors
    /// [`Error::Peer`] if the client broke the protocol; [`Error::Unfit`] if the request came over another channel.
    #[inline]
    pub fn complete(&mut self, request: impl Into<Ticket>, status: u16, value: u64) -> Result<(), Error> {
        let Connection { meeting, taken, number, .. } = &*self.connection;
        self.completions.check(meeting)?;
        let Ticket { channel, tag, .. } = request.into();
        if channel != *number {
            return Err(Error::Unfit("the request came over another channel"));
        }
        // SYNC: taken (release). Before the client can know, and use the tag again.
        taken[usize::from(tag)].store(false, Ordering::Release);
        self.completions.push(meeting, &CompletionFields { tag, status, value }.to_entry())?;
        meeting.counters.completions.add(1);
        Ok(())
    }

    /// The client's memory that came with a request.
    ///
    /// # Panics
    /// If the request came over another channel.
    #[inline]
    pub fn memory(&self, request: &impl AsRef<Ticket>) -> Memory<'_> {
        self.connection.memory(request.as_ref())
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.completions.close(&self.connection.meeting);
    }
}

impl AsFd for Requests {
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
    /// Takes over the memory that came with the client's hello.
    fn adopt(
        &self,
        link: &Link,
        hello: &Hello,
        memory: Vec<OwnedFd>,
    ) -> Result<(Shared, Option<Arena>), Error> {
        if hello.flags & FLAG_CLIENT == 0 {
            return Err(Error::Misfit("both are servers; one must be the client".into()));
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
            return Err(Error::Misfit(format!(
                "a depth of {} and an arena of {} bytes are allowed (ServerOptions), and the client asks for {depth} \
                 and {}",
                self.depth_max, self.arena_bytes_max, hello.arena_bytes
            )));
        }
        let mut memory = memory.into_iter();
        let mut next = || memory.next().ok_or_else(|| link.accuse("passed no memory"));
        let (words, _) = control_words(depth);
        let control = File::adopt_words(next()?, words)?.map_err(|what| link.accuse(what))?;
        if hello.arena_bytes == 0 {
            return Ok((control, None));
        }
        let arena = Arena::adopt_for_both(next()?, hello.arena_bytes as usize)?;
        Ok((control, Some(arena.map_err(|what| link.accuse(what))?)))
    }
}
