//! The client's end of a channel: it submits requests and reaps their completions.

use crate::buffer::{Buffer, BufferAllocator, Pool};
use crate::control::{IncomingRing, OutgoingRing, Rings};
use crate::holders::Holders;
use crate::layout::{
    ARGUMENTS, BufferRange, COMPLETION_WORDS, CompletionFields, DEPTH_MAX, FLAG_CLIENT, FLAG_SERVER,
    PROTOCOL, REQUEST_WORDS, RequestFields, control_words,
};
use crate::stats::{Counters, Stats};
use bywash_link::ring::{SlotSender, SlotTaker, View, slot_pair};
use bywash_link::{
    Arena, Credentials, Error, FLAG_FENCES, Hello, HugePages, MemoryFile, MessagePolicy, RingWaiter, Wait,
    Waiter, Writers, connect, handshake,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Options of the client's end of a channel.
#[derive(Clone, Debug)]
pub struct Options {
    depth: u32,
    arena_bytes: usize,
    huge_pages: HugePages,
    trusted: bool,
    wait: Wait,
    handshake_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            depth: 256,
            arena_bytes: 16 << 20,
            huge_pages: HugePages::default(),
            trusted: false,
            wait: Wait::default(),
            handshake_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// Returns the defaults: depth 256, an arena of 16 MiB, and a server that is not trusted.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the depth, the greatest number of requests in flight: a power of two up to [`DEPTH_MAX`]. Default
    /// 256.
    pub fn depth(mut self, requests: u32) -> Options {
        self.depth = requests;
        self
    }

    /// Sets the size of the arena that buffers are allocated from, in bytes. The size is rounded up to whole
    /// pages, from 2 MiB on to multiples of 2 MiB. With 0 requests have no buffers. Default 16 MiB.
    pub fn arena_bytes(mut self, bytes: usize) -> Options {
        self.arena_bytes = bytes;
        self
    }

    /// Chooses huge pages of 2 MiB for the arena. Default none, so that pages are allocated at their first
    /// use. [`HugePages::Reserved`] is refused: the server may write to the arena, so it could remove such
    /// pages and this end would fault.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Options {
        self.huge_pages = huge_pages;
        self
    }

    /// Lets buffers be borrowed in place ([`Buffer::map`]).
    ///
    /// # Safety
    /// The server must keep to the protocol: it must not access a buffer except while a request with this
    /// buffer is in flight. Every server that uses this library, and does not bypass it, does so.
    pub unsafe fn trusted(mut self) -> Options {
        self.trusted = true;
        self
    }

    /// Sets the way in which this end waits for the server. Default [`Wait::Adaptive`].
    pub fn wait(mut self, wait: Wait) -> Options {
        self.wait = wait;
        self
    }

    /// Sets the timeout for the handshake with the server. Default 10 s.
    pub fn handshake_timeout(mut self, limit: Duration) -> Options {
        self.handshake_timeout = limit;
        self
    }

    fn check(&self) -> Result<(), Error> {
        if !self.depth.is_power_of_two() || self.depth > DEPTH_MAX {
            let allowed = format!("a power of two up to {DEPTH_MAX}");
            return Err(Error::Option { option: "the depth", value: self.depth.to_string(), allowed });
        }
        if self.huge_pages == HugePages::Reserved {
            let allowed = "another: the server may write to the arena, and could take such pages away".into();
            return Err(Error::Option {
                option: "the kind of huge pages",
                value: "reserved".into(),
                allowed,
            });
        }
        Ok(())
    }
}

/// Number of a request in flight, chosen by the client: less than the depth of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u16);

impl Tag {
    /// Returns the number, as an index of a table.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A request to be submitted. The service defines the meaning of opcode, flags and arguments.
#[derive(Debug)]
pub struct Submission {
    /// Operation.
    pub opcode: u8,
    /// Flags of the operation.
    pub flags: u8,
    /// Arguments of the operation.
    pub arguments: [u64; ARGUMENTS],
    /// Buffer that the server may access until the completion, which returns it.
    pub buffer: Option<Buffer>,
    /// A number for the client's own use, which the server does not see. The completion returns it. By this
    /// number a thread that reaps knows which request was completed, even before [`Submitter::submit`] has
    /// returned the tag to another thread.
    pub user_data: u64,
}

impl Submission {
    /// Makes a submission without flags, arguments or a buffer.
    #[inline]
    pub fn new(opcode: u8) -> Submission {
        Submission { opcode, flags: 0, arguments: [0; ARGUMENTS], buffer: None, user_data: 0 }
    }

    /// Sets the flags.
    #[inline]
    pub fn flags(mut self, flags: u8) -> Submission {
        self.flags = flags;
        self
    }

    /// Sets the arguments.
    #[inline]
    pub fn arguments(mut self, arguments: [u64; ARGUMENTS]) -> Submission {
        self.arguments = arguments;
        self
    }

    /// Attaches a buffer of the same channel.
    #[inline]
    pub fn buffer(mut self, buffer: Buffer) -> Submission {
        self.buffer = Some(buffer);
        self
    }

    /// Sets the client's own number for the request, which the completion returns.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Submission {
        self.user_data = user_data;
        self
    }
}

/// A failed submission: its error, and the submission, which the caller owns again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SubmitError {
    /// Reason of the failure.
    #[source]
    pub error: Error,
    /// The submission, with its buffer unchanged.
    pub submission: Box<Submission>,
}

/// The record that a request has ended.
#[derive(Debug)]
pub struct Completion {
    /// Tag of the request.
    pub tag: Tag,
    /// Status of the request: 0 is success, the service defines other values.
    pub status: u16,
    /// Result of the request, as the service defines.
    pub value: u64,
    /// The buffer of the request, which the client owns again.
    pub buffer: Option<Buffer>,
    /// The client's own number, as given in the submission.
    pub user_data: u64,
}

/// A request that was never completed.
#[derive(Debug)]
pub struct Incomplete {
    /// The client's own number, as given in the submission.
    pub user_data: u64,
    /// Contents of the buffer, if the request had one: a copy, since the server may still write to the
    /// buffer.
    pub contents: Option<Vec<u8>>,
}

/// Client's record of a request in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    buffer: Option<Buffer>,
    user_data: u64,
}

/// State that the two halves of a client share. The connection ends when both halves are dropped.
#[derive(Debug)]
struct Connection {
    meeting: RingWaiter<Counters>,
    pool: Option<Arc<Pool>>,
    depth: u32,
}

/// The half of a client that submits requests.
///
/// Dropping it closes the ring of requests: the server takes those submitted before, and then learns that
/// there are no more. The other half can still reap.
#[derive(Debug)]
pub struct Submitter {
    connection: Arc<Connection>,
    requests: OutgoingRing<REQUEST_WORDS>,
    sent: SlotSender<InFlight>,
}

/// The half of a client that reaps completions.
#[derive(Debug)]
pub struct Reaper {
    connection: Arc<Connection>,
    completions: IncomingRing<COMPLETION_WORDS>,
    done: SlotTaker<InFlight>,
}

/// The client's end of a channel.
#[derive(Debug)]
pub struct Client {
    submitter: Submitter,
    reaper: Reaper,
}

impl Client {
    /// Connects to the server that listens at `name` and makes a channel.
    ///
    /// # Errors
    /// [`Error::Io`] if the connection is refused or another system call fails. Also those of
    /// [`Client::over`].
    pub fn connect(name: impl AsRef<Path>, options: &Options) -> Result<Client, Error> {
        Client::over(connect(name.as_ref())?, options)
    }

    /// Like [`Client::connect`], as a future for any executor. A helper thread does the work.
    ///
    /// # Errors
    /// Same as [`Client::connect`], and [`Error::Io`] if the helper thread cannot be started.
    #[cfg(feature = "async")]
    pub async fn connect_async(name: impl AsRef<Path>, options: &Options) -> Result<Client, Error> {
        let (name, options) = (name.as_ref().to_owned(), options.clone());
        bywash_link::spawn_blocking(move || Client::connect(name, &options)).await
    }

    /// Makes a channel over a connected socket: one of [`crate::socket_pair`], or an inherited one. Waits for
    /// the server's handshake, at most [`Options::handshake_timeout`].
    ///
    /// # Errors
    /// - [`Error::Option`] if an option has an invalid value.
    /// - [`Error::TimedOut`] or [`Error::PeerDied`] if the server sends no hello message in time or
    ///   disconnects.
    /// - [`Error::Incompatible`] if the two ends differ in protocol or version, both are clients, or the
    ///   server does not allow this depth or arena size.
    /// - [`Error::Protocol`] if the server broke the protocol.
    /// - [`Error::Io`] if a system call fails or there is no memory.
    pub fn over(socket: OwnedFd, options: &Options) -> Result<Client, Error> {
        options.check()?;
        let prepared = options.wait.prepare_fences();
        let (words, _) = control_words(options.depth);
        let (control, all) = MemoryFile::create_words(words, Writers::Both)?;
        let arena = match options.arena_bytes {
            0 => None,
            bytes => Some(Arena::create(bytes, options.huge_pages, Writers::Both)?),
        };
        let arena_bytes = arena.as_ref().map_or(0, |arena| arena.file.bytes() as u64);
        let mut memory = vec![control.descriptor()];
        memory.extend(arena.iter().map(|arena| arena.file.descriptor()));
        let flags = FLAG_CLIENT | if prepared { FLAG_FENCES } else { 0 };
        let hello = Hello { flags, arena_bytes, rings: [options.depth; 2] };
        let (link, theirs, passed) =
            handshake(socket, &PROTOCOL, hello, &memory, options.handshake_timeout, MessagePolicy::NONE)?;
        if theirs.flags & FLAG_SERVER == 0 {
            return Err(Error::Incompatible("both are clients; one must be the server".into()));
        }
        if !passed.is_empty() {
            return Err(link.accuse("passed memory, which only clients do"));
        }
        if options.depth > theirs.rings[0] || arena_bytes > theirs.arena_bytes {
            return Err(Error::Incompatible(format!(
                "the server allows a depth of {} and an arena of {} bytes, and {} and {arena_bytes} were asked for",
                theirs.rings[0], theirs.arena_bytes, options.depth
            )));
        }
        let rings = Rings::split(&all, options.depth);
        let fences = prepared && theirs.has_fences();
        let meeting = Rings::meeting(&rings.completions, &rings.requests, link, options.wait, fences);
        let (sent, done) = slot_pair(options.depth as usize);
        let holders = Holders {
            in_flight: sent.sizes_in_flight(),
            requests: View::new(rings.requests.clone(), options.depth as usize),
            completions: View::new(rings.completions.clone(), options.depth as usize),
            counters: meeting.counters.clone(),
        };
        let pool = arena.map(|arena| Arc::new(Pool::new(arena, options.trusted, holders)));
        let connection = Arc::new(Connection { meeting, pool, depth: options.depth });
        let requests = OutgoingRing::new(rings.requests, options.depth);
        let completions = IncomingRing::new(rings.completions, options.depth);
        Ok(Client {
            submitter: Submitter { connection: connection.clone(), requests, sent },
            reaper: Reaper { connection, completions, done },
        })
    }

    /// Splits the client into its two halves, for two threads.
    pub fn split(self) -> (Submitter, Reaper) {
        (self.submitter, self.reaper)
    }

    /// Allocates a buffer; see [`Submitter::alloc`].
    ///
    /// # Errors
    /// Same as [`Submitter::alloc`].
    #[inline]
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        self.submitter.alloc(bytes)
    }

    /// Returns an allocator of buffers for other threads; see [`BufferAllocator`].
    pub fn buffers(&self) -> BufferAllocator {
        self.submitter.buffers()
    }

    /// Submits a request; see [`Submitter::submit`].
    ///
    /// # Errors
    /// Same as [`Submitter::submit`].
    #[inline]
    pub fn submit(&mut self, submission: Submission) -> Result<Tag, SubmitError> {
        self.submitter.submit(submission)
    }

    /// Waits for the next completion; see [`Reaper::reap`].
    ///
    /// # Errors
    /// Same as [`Reaper::reap`].
    #[inline]
    pub fn reap(&mut self) -> Result<Completion, Error> {
        self.reaper.reap()
    }

    /// Waits for the next completion, with a timeout; see [`Reaper::reap_within`].
    ///
    /// # Errors
    /// Same as [`Reaper::reap_within`].
    pub fn reap_within(&mut self, limit: Duration) -> Result<Completion, Error> {
        self.reaper.reap_within(limit)
    }

    /// Takes the next completion without waiting; see [`Reaper::try_reap`].
    ///
    /// # Errors
    /// Same as [`Reaper::try_reap`].
    #[inline(always)]
    pub fn try_reap(&mut self) -> Result<Option<Completion>, Error> {
        self.reaper.try_reap()
    }

    /// Waits for the next completion as a future; see [`Reaper::reap_async`].
    ///
    /// # Errors
    /// Same as [`Reaper::reap_async`].
    #[cfg(feature = "async")]
    pub async fn reap_async(&mut self) -> Result<Completion, Error> {
        self.reaper.reap_async().await
    }

    /// Waits until several requests are completed; see [`Reaper::wait_for`].
    ///
    /// # Errors
    /// Same as [`Reaper::wait_for`].
    pub fn wait_for(&mut self, least: usize, limit: Duration) -> Result<(), Error> {
        self.reaper.wait_for(least, limit)
    }

    /// Ends the connection and returns the requests that were never completed; see
    /// [`Reaper::take_incomplete`].
    pub fn take_incomplete(&mut self) -> Vec<Incomplete> {
        self.reaper.take_incomplete()
    }

    /// Requests a doorbell, for an event loop; see [`Reaper::arm`].
    ///
    /// # Errors
    /// Same as [`Reaper::arm`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.reaper.arm()
    }

    /// Returns the number of requests in flight.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.reaper.in_flight()
    }

    /// Returns the depth: the greatest number of requests in flight.
    pub fn depth(&self) -> usize {
        self.submitter.depth()
    }

    /// Returns the credentials of the server, as the kernel reported them during the handshake.
    pub fn peer(&self) -> Credentials {
        self.submitter.peer()
    }

    /// Returns the counts of this end's operations.
    pub fn stats(&self) -> Stats {
        self.submitter.stats()
    }
}

impl Submitter {
    /// Allocates a buffer of `bytes` bytes, which can be attached to one request after another.
    ///
    /// # Errors
    /// - [`Error::TooLarge`] if the arena can never hold so many bytes in one block, or this client has no
    ///   arena.
    /// - [`Error::ArenaFull`] if the arena has no room now; the error tells who holds its memory.
    /// - [`Error::Forked`] in a forked child.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        Pool::take(self.connection.pool.as_ref(), bytes)
    }

    /// Returns an allocator of buffers for threads that have no half of the client.
    pub fn buffers(&self) -> BufferAllocator {
        BufferAllocator(self.connection.pool.clone())
    }

    /// Submits a request, without waiting. Pages of the buffer that nobody has touched are populated first,
    /// so that the server is not charged for them.
    ///
    /// # Errors
    /// The submission is handed back with each error.
    /// - [`Error::Full`] if as many requests are in flight as the channel is deep.
    /// - [`Error::WrongPath`] if the buffer belongs to another channel.
    /// - [`Error::Io`] if there is no memory for the buffer.
    /// - [`Error::Protocol`] if the server broke the protocol, and [`Error::Forked`] in a forked child.
    ///
    /// A server that has died is not noticed here, but by [`Reaper::reap`].
    #[inline]
    pub fn submit(&mut self, submission: Submission) -> Result<Tag, SubmitError> {
        let Connection { meeting, pool, depth } = &*self.connection;
        if let Err(error) = self.requests.check(meeting) {
            return Err(not_submitted(error, submission));
        }
        let extent = match &submission.buffer {
            None => BufferRange::default(),
            Some(buffer) if pool.as_ref().is_some_and(|pool| buffer.is_of(pool)) => buffer.extent(),
            Some(_) => {
                return Err(not_submitted(Error::WrongPath("its buffer is of another channel"), submission));
            }
        };
        if let Some(Err(error)) = submission.buffer.as_ref().map(Buffer::take_memory) {
            return Err(not_submitted(error, submission));
        }
        let Submission { opcode, flags, arguments, buffer, user_data } = submission;
        let size = buffer.as_ref().map_or(0, |buffer| buffer.capacity() as u64);
        let tag = match self.sent.put_sized(InFlight { buffer, user_data }, size) {
            Ok(tag) => tag as u16,
            Err(InFlight { buffer, .. }) => {
                let submission = Submission { opcode, flags, arguments, buffer, user_data };
                return Err(not_submitted(Error::Full { depth: *depth }, submission));
            }
        };
        let request = RequestFields { tag, flags, opcode, buffer: extent, arguments };
        if let Err(error) = self.requests.push(meeting, &request.to_entry()) {
            let buffer = self.sent.cancel(u32::from(tag)).and_then(|kept| kept.buffer);
            let submission = Submission { opcode, flags, arguments, buffer, user_data };
            return Err(not_submitted(error, submission));
        }
        meeting.counters.requests.add(1);
        Ok(Tag(tag))
    }

    /// Returns the depth: the greatest number of requests in flight.
    pub fn depth(&self) -> usize {
        self.connection.depth as usize
    }

    /// Returns the credentials of the server, as the kernel reported them during the handshake.
    pub fn peer(&self) -> Credentials {
        self.connection.meeting.link.peer()
    }

    /// Returns the counts of both halves' operations.
    pub fn stats(&self) -> Stats {
        self.connection.meeting.counters.read()
    }
}

#[cold]
fn not_submitted(error: Error, submission: Submission) -> SubmitError {
    SubmitError { error, submission: Box::new(submission) }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        self.requests.close(&self.connection.meeting);
    }
}

impl Reaper {
    /// Waits for the next completion.
    ///
    /// # Errors
    /// Completions that arrived before the end of the channel are returned first.
    /// - [`Error::Closed`] if this end or the server has closed the channel.
    /// - [`Error::PeerDied`] if the server died without closing its end.
    /// - [`Error::Protocol`] if the server broke the protocol.
    /// - [`Error::Forked`] in a forked child, and [`Error::Io`] if a system call fails.
    #[inline]
    pub fn reap(&mut self) -> Result<Completion, Error> {
        self.reap_until(None)
    }

    /// Like [`Reaper::reap`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// Same as [`Reaper::reap`], and [`Error::TimedOut`].
    pub fn reap_within(&mut self, limit: Duration) -> Result<Completion, Error> {
        self.reap_until(Some(limit))
    }

    /// Like [`Reaper::reap`], but does not wait: `None` if no completion has arrived.
    ///
    /// # Errors
    /// [`Error::Closed`] if the server has closed the channel; [`Error::Protocol`] if it broke the protocol;
    /// [`Error::Forked`] in a forked child. The death of the server is noticed only by the functions that
    /// wait, and by [`Reaper::arm`].
    #[inline(always)]
    pub fn try_reap(&mut self) -> Result<Option<Completion>, Error> {
        self.take(1)
    }

    #[inline]
    fn reap_until(&mut self, limit: Option<Duration>) -> Result<Completion, Error> {
        if let Some(completion) = self.take(self.connection.meeting.first_looks())? {
            return Ok(completion);
        }
        let connection = self.connection.clone();
        let outcome = connection.meeting.waiter().wait(limit, |looks| self.take(looks));
        self.completions.mind(outcome)
    }

    /// Waits until `least` completions can be reaped, or those of all requests in flight if they are fewer,
    /// but no longer than `limit`. A sleeping client is woken once for all of them. A client that waits for
    /// fewer completions than it has requests in flight keeps the server busy.
    ///
    /// # Errors
    /// Same as [`Reaper::reap_within`]. Completions that have arrived by then can be reaped.
    pub fn wait_for(&mut self, least: usize, limit: Duration) -> Result<(), Error> {
        let least = least.min(self.in_flight());
        let connection = self.connection.clone();
        let until = Some(self.completions.taken() + least as u64);
        let waiter = Waiter { until, ..connection.meeting.waiter() };
        let completions = &mut self.completions;
        let outcome = waiter.wait(Some(limit), |looks| completions.has(&connection.meeting, least, looks));
        self.completions.mind(outcome)
    }

    /// Like [`Reaper::reap`], as a future for any executor. Dropping the future loses no completion.
    ///
    /// # Errors
    /// Same as [`Reaper::reap`].
    #[cfg(feature = "async")]
    pub async fn reap_async(&mut self) -> Result<Completion, Error> {
        let connection = self.connection.clone();
        let outcome = connection.meeting.waiter().wait_async(|looks| self.take(looks)).await;
        self.completions.mind(outcome)
    }

    /// Takes the next completion if one arrives within `looks` looks at the ring.
    // Inlined, so that a completion is not moved, which is seven words.
    #[inline(always)]
    fn take(&mut self, looks: u32) -> Result<Option<Completion>, Error> {
        let meeting = &self.connection.meeting;
        let Some(entry) = self.completions.take(meeting, looks)? else { return Ok(None) };
        let CompletionFields { tag, status, value } = CompletionFields::from_entry(&entry);
        let Some(InFlight { buffer, user_data }) = self.done.take(u32::from(tag)) else {
            let what = format!("completed request {tag}, which is not in flight");
            return Err(self.completions.accuse(meeting, what));
        };
        meeting.counters.completions.add(1);
        Ok(Some(Completion { tag: Tag(tag), status, value, buffer, user_data }))
    }

    /// Ends the connection, if it has not ended yet, and returns the requests in flight that were not reaped,
    /// so that they can be submitted elsewhere. If the server completes one of them later, that counts as a
    /// violation of the protocol.
    pub fn take_incomplete(&mut self) -> Vec<Incomplete> {
        self.connection.meeting.link.shut();
        let kept = (0..self.connection.depth).filter_map(|tag| self.done.take(tag));
        let unanswered = kept.map(|InFlight { buffer, user_data }| {
            let contents = buffer.map(|buffer| {
                let mut bytes = vec![0; buffer.len()];
                buffer.read(0, &mut bytes);
                bytes
            });
            Incomplete { user_data, contents }
        });
        unanswered.collect()
    }

    /// Requests a doorbell, for an event loop. After `Ok(false)` the descriptor of [`AsFd`] becomes readable
    /// when the server completes a request or is gone. `Ok(true)` means that a completion has arrived
    /// already, or that the server has closed the channel. The next call reads from the socket what made the
    /// descriptor readable.
    ///
    /// # Errors
    /// Same as [`Reaper::reap`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.completions.arm(&self.connection.meeting)
    }

    /// Returns the number of requests in flight.
    #[inline]
    pub fn in_flight(&self) -> usize {
        let counters = &self.connection.meeting.counters;
        counters.requests.get().saturating_sub(counters.completions.get()) as usize
    }

    /// Returns the counts of both halves' operations.
    pub fn stats(&self) -> Stats {
        self.connection.meeting.counters.read()
    }
}

impl AsFd for Reaper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.meeting.link.descriptor()
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reaper.as_fd()
    }
}
