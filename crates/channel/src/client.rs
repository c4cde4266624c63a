//! The side that asks.

use crate::buffer::{Buffer, Buffers, Pool};
use crate::control::{Incoming, Outgoing, Rings};
use crate::holders::Holders;
use crate::layout::{
    ARGUMENTS, COMPLETION_WORDS, CompletionFields, DEPTH_MAX, Extent, FLAG_CLIENT, FLAG_SERVER, PROTOCOL,
    REQUEST_WORDS, RequestFields, control_words,
};
use crate::stats::{Counters, Stats};
use bywash_link::{
    Arena, Credentials, Error, FLAG_FENCES, File, Hello, HugePages, Mail, Meeting, Wait, Waiter, Writers,
    connect, greet,
};
use bywash_ring::{Done, Sent, View, slots};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How the client's end of a channel is made.
#[derive(Clone, Debug)]
pub struct Options {
    depth: u32,
    arena_bytes: usize,
    huge_pages: HugePages,
    trusted: bool,
    wait: Wait,
    greeting_limit: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            depth: 256,
            arena_bytes: 16 << 20,
            huge_pages: HugePages::default(),
            trusted: false,
            wait: Wait::default(),
            greeting_limit: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// A channel of depth 256 with an arena of 16 MiB, to a server that is not trusted.
    pub fn new() -> Options {
        Options::default()
    }

    /// Requests under way at a time: a power of two up to [`DEPTH_MAX`]. Default 256.
    pub fn depth(mut self, requests: u32) -> Options {
        self.depth = requests;
        self
    }

    /// Bytes of the arena that buffers are cut from. It is rounded up to pages, from 2 MiB on to 2 MiB. 0: requests
    /// have no buffers. Default 16 MiB.
    pub fn arena_bytes(mut self, bytes: usize) -> Options {
        self.arena_bytes = bytes;
        self
    }

    /// Pages of 2 MiB for the arena. None by default: its memory is taken as it is used. Reserved ones cannot be had: whoever may write to them can take them away, and
    /// the other end would fault.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Options {
        self.huge_pages = huge_pages;
        self
    }

    /// Buffers can be borrowed where they are ([`Buffer::map`]).
    ///
    /// # Safety
    /// The server must keep to the protocol: it must not touch a buffer but while a request with it is under way. That
    /// holds for every server that uses this library and does not reach around it.
    pub unsafe fn trusted(mut self) -> Options {
        self.trusted = true;
        self
    }

    /// How this end waits.
    pub fn wait(mut self, wait: Wait) -> Options {
        self.wait = wait;
        self
    }

    /// How long the server may take to present itself. Default 10 s.
    pub fn greeting_limit(mut self, limit: Duration) -> Options {
        self.greeting_limit = limit;
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

/// The client's name for a request that is under way: less than the depth of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u16);

impl Tag {
    /// For tables.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What is to be submitted. The service says what opcode, flags and arguments mean.
#[derive(Debug)]
pub struct Submission {
    /// What to do.
    pub opcode: u8,
    /// How.
    pub flags: u8,
    /// With what.
    pub arguments: [u64; ARGUMENTS],
    /// Memory that goes along, and comes back with the completion.
    pub buffer: Option<Buffer>,
    /// The client's own, which the server does not see: it comes back with the completion. Who reaps in another thread
    /// knows by it what was completed, even before [`Submitter::submit`] has answered the tag.
    pub user_data: u64,
}

impl Submission {
    /// Without flags, arguments or a buffer.
    #[inline]
    pub fn new(opcode: u8) -> Submission {
        Submission { opcode, flags: 0, arguments: [0; ARGUMENTS], buffer: None, user_data: 0 }
    }

    /// With flags.
    #[inline]
    pub fn flags(mut self, flags: u8) -> Submission {
        self.flags = flags;
        self
    }

    /// With arguments.
    #[inline]
    pub fn arguments(mut self, arguments: [u64; ARGUMENTS]) -> Submission {
        self.arguments = arguments;
        self
    }

    /// With a buffer of the same channel.
    #[inline]
    pub fn buffer(mut self, buffer: Buffer) -> Submission {
        self.buffer = Some(buffer);
        self
    }

    /// With something to know it by.
    #[inline]
    pub fn user_data(mut self, user_data: u64) -> Submission {
        self.user_data = user_data;
        self
    }
}

/// What was not submitted, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotSubmitted {
    /// Why.
    #[source]
    pub error: Error,
    /// What was given, unharmed.
    pub submission: Box<Submission>,
}

/// What became of a request.
#[derive(Debug)]
pub struct Completion {
    /// Which one.
    pub tag: Tag,
    /// How it went: 0 is success, the rest is the service's.
    pub status: u16,
    /// What the service says.
    pub value: u64,
    /// The memory that went along.
    pub buffer: Option<Buffer>,
    /// What the submission was to be known by.
    pub user_data: u64,
}

/// A request that was never completed.
#[derive(Debug)]
pub struct Unanswered {
    /// What the submission was to be known by.
    pub user_data: u64,
    /// What is in its memory, if it had some: a copy, since the server may still go there.
    pub contents: Option<Vec<u8>>,
}

/// What is kept of a request while it is under way.
#[derive(Debug)]
pub(crate) struct Kept {
    buffer: Option<Buffer>,
    user_data: u64,
}

/// What the two halves of a client share; the connection ends with the last of them.
#[derive(Debug)]
struct Connection {
    meeting: Meeting<Counters>,
    pool: Option<Arc<Pool>>,
    depth: u32,
}

/// The half of a client that submits.
///
/// When it is dropped the server takes what was submitted before, and hears then that there is no more; the other half
/// still reaps.
#[derive(Debug)]
pub struct Submitter {
    connection: Arc<Connection>,
    requests: Outgoing<REQUEST_WORDS>,
    sent: Sent<Kept>,
}

/// The half of a client that reaps completions.
#[derive(Debug)]
pub struct Reaper {
    connection: Arc<Connection>,
    completions: Incoming<COMPLETION_WORDS>,
    done: Done<Kept>,
}

/// The client's end of a channel.
#[derive(Debug)]
pub struct Client {
    submitter: Submitter,
    reaper: Reaper,
}

impl Client {
    /// Makes a channel to the server that listens at `name`.
    ///
    /// # Errors
    /// What the kernel says, or why the server does not fit.
    pub fn connect(name: impl AsRef<Path>, options: &Options) -> Result<Client, Error> {
        Client::over(connect(name.as_ref())?, options)
    }

    /// As [`Client::connect`], as a task of any executor.
    ///
    /// # Errors
    /// As [`Client::connect`].
    #[cfg(feature = "async")]
    pub async fn connect_async(name: impl AsRef<Path>, options: &Options) -> Result<Client, Error> {
        let (name, options) = (name.as_ref().to_owned(), options.clone());
        bywash_link::aside(move || Client::connect(name, &options)).await
    }

    /// Makes a channel over a connected socket of [`crate::socket_pair`], or one that was inherited.
    ///
    /// # Errors
    /// What the kernel says, or why the server does not fit.
    pub fn over(socket: OwnedFd, options: &Options) -> Result<Client, Error> {
        options.check()?;
        let prepared = options.wait.prepare_fences();
        let (words, _) = control_words(options.depth);
        let (control, all) = File::create_words(words, Writers::Both)?;
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
            greet(socket, &PROTOCOL, hello, &memory, options.greeting_limit, Mail::NONE)?;
        if theirs.flags & FLAG_SERVER == 0 {
            return Err(Error::Misfit("both are clients; one must be the server".into()));
        }
        if !passed.is_empty() {
            return Err(link.accuse("passed memory, which only clients do"));
        }
        if options.depth > theirs.rings[0] || arena_bytes > theirs.arena_bytes {
            return Err(Error::Misfit(format!(
                "the server allows a depth of {} and an arena of {} bytes, and {} and {arena_bytes} were asked for",
                theirs.rings[0], theirs.arena_bytes, options.depth
            )));
        }
        let rings = Rings::of(&all, options.depth);
        let fences = prepared && theirs.has_fences();
        let meeting = Rings::meeting(&rings.completions, &rings.requests, link, options.wait, fences);
        let (sent, done) = slots(options.depth as usize);
        let holders = Holders {
            under_way: sent.under_way(),
            requests: View::new(rings.requests.clone(), options.depth as usize),
            completions: View::new(rings.completions.clone(), options.depth as usize),
            counters: meeting.counters.clone(),
        };
        let pool = arena.map(|arena| Arc::new(Pool::new(arena, options.trusted, holders)));
        let connection = Arc::new(Connection { meeting, pool, depth: options.depth });
        let requests = Outgoing::new(rings.requests, options.depth);
        let completions = Incoming::new(rings.completions, options.depth);
        Ok(Client {
            submitter: Submitter { connection: connection.clone(), requests, sent },
            reaper: Reaper { connection, completions, done },
        })
    }

    /// The two halves, for two threads.
    pub fn split(self) -> (Submitter, Reaper) {
        (self.submitter, self.reaper)
    }

    /// See [`Submitter::alloc`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        self.submitter.alloc(bytes)
    }

    /// See [`Buffers`].
    pub fn buffers(&self) -> Buffers {
        self.submitter.buffers()
    }

    /// See [`Submitter::submit`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn submit(&mut self, submission: Submission) -> Result<Tag, NotSubmitted> {
        self.submitter.submit(submission)
    }

    /// See [`Reaper::reap`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn reap(&mut self) -> Result<Completion, Error> {
        self.reaper.reap()
    }

    /// See [`Reaper::reap_within`].
    ///
    /// # Errors
    /// As there.
    pub fn reap_within(&mut self, limit: Duration) -> Result<Completion, Error> {
        self.reaper.reap_within(limit)
    }

    /// See [`Reaper::try_reap`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn try_reap(&mut self) -> Result<Option<Completion>, Error> {
        self.reaper.try_reap()
    }

    /// See [`Reaper::reap_async`].
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "async")]
    pub async fn reap_async(&mut self) -> Result<Completion, Error> {
        self.reaper.reap_async().await
    }

    /// See [`Reaper::wait_for`].
    ///
    /// # Errors
    /// As there.
    pub fn wait_for(&mut self, least: usize, limit: Duration) -> Result<(), Error> {
        self.reaper.wait_for(least, limit)
    }

    /// See [`Reaper::take_unanswered`].
    pub fn take_unanswered(&mut self) -> Vec<Unanswered> {
        self.reaper.take_unanswered()
    }

    /// See [`Reaper::arm`].
    ///
    /// # Errors
    /// As there.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.reaper.arm()
    }

    /// Requests that are under way.
    #[inline]
    pub fn under_way(&self) -> usize {
        self.reaper.under_way()
    }

    /// Most requests that can be under way.
    pub fn depth(&self) -> usize {
        self.submitter.depth()
    }

    /// Who is at the other end, as the kernel says.
    pub fn peer(&self) -> Credentials {
        self.submitter.peer()
    }

    /// What this end has done so far.
    pub fn stats(&self) -> Stats {
        self.submitter.stats()
    }
}

impl Submitter {
    /// A buffer of `bytes`, to go along with requests, again and again.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::UsedUp`] when other buffers have the arena.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, Error> {
        Pool::take(self.connection.pool.as_ref(), bytes)
    }

    /// See [`Buffers`].
    pub fn buffers(&self) -> Buffers {
        Buffers(self.connection.pool.clone())
    }

    /// Submits a request; it never waits. The memory of its buffer is taken before, where nobody has touched it yet, so
    /// that the server takes none.
    ///
    /// # Errors
    /// Why not, with what was given: [`Error::Full`] when as many requests are under way as the channel is deep,
    /// [`Error::Io`] when there is not so much memory.
    #[inline]
    pub fn submit(&mut self, submission: Submission) -> Result<Tag, NotSubmitted> {
        let Connection { meeting, pool, depth } = &*self.connection;
        if let Err(error) = self.requests.check(meeting) {
            return Err(not_submitted(error, submission));
        }
        let extent = match &submission.buffer {
            None => Extent::default(),
            Some(buffer) if pool.as_ref().is_some_and(|pool| buffer.is_of(pool)) => buffer.extent(),
            Some(_) => {
                return Err(not_submitted(Error::Unfit("its buffer is of another channel"), submission));
            }
        };
        if let Some(Err(error)) = submission.buffer.as_ref().map(Buffer::take_memory) {
            return Err(not_submitted(error, submission));
        }
        let Submission { opcode, flags, arguments, buffer, user_data } = submission;
        let size = buffer.as_ref().map_or(0, |buffer| buffer.capacity() as u64);
        let tag = match self.sent.put_sized(Kept { buffer, user_data }, size) {
            Ok(tag) => tag as u16,
            Err(Kept { buffer, .. }) => {
                let submission = Submission { opcode, flags, arguments, buffer, user_data };
                return Err(not_submitted(Error::Full { depth: *depth }, submission));
            }
        };
        let request = RequestFields { tag, flags, opcode, buffer: extent, arguments };
        if let Err(error) = self.requests.push(meeting, &request.to_entry()) {
            let buffer = self.sent.take_back(u32::from(tag)).and_then(|kept| kept.buffer);
            let submission = Submission { opcode, flags, arguments, buffer, user_data };
            return Err(not_submitted(error, submission));
        }
        meeting.counters.requests.add(1);
        Ok(Tag(tag))
    }

    /// Most requests that can be under way.
    pub fn depth(&self) -> usize {
        self.connection.depth as usize
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

#[cold]
fn not_submitted(error: Error, submission: Submission) -> NotSubmitted {
    NotSubmitted { error, submission: Box::new(submission) }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        self.requests.close(&self.connection.meeting);
    }
}

impl Reaper {
    /// The next completion, waiting for it.
    ///
    /// # Errors
    /// What became of the server. What it had completed before comes first.
    #[inline]
    pub fn reap(&mut self) -> Result<Completion, Error> {
        self.reap_until(None)
    }

    /// As [`Reaper::reap`], but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`Reaper::reap`], and [`Error::TimedOut`].
    pub fn reap_within(&mut self, limit: Duration) -> Result<Completion, Error> {
        self.reap_until(Some(limit))
    }

    /// As [`Reaper::reap`], without waiting: `None` when there is nothing.
    ///
    /// # Errors
    /// As [`Reaper::reap`]; a server that died is found by those who wait.
    #[inline]
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

    /// Waits until so many completions can be reaped, or those of all that is under way if that is less, but no longer than
    /// `limit`: who sleeps is woken once for all of them. Who waits for fewer than are under way keeps the server busy.
    ///
    /// # Errors
    /// As [`Reaper::reap_within`]; what has come by then can be reaped.
    pub fn wait_for(&mut self, least: usize, limit: Duration) -> Result<(), Error> {
        let least = least.min(self.under_way());
        let connection = self.connection.clone();
        let until = Some(self.completions.taken() + least as u64);
        let waiter = Waiter { until, ..connection.meeting.waiter() };
        let completions = &mut self.completions;
        let outcome = waiter.wait(Some(limit), |looks| completions.has(&connection.meeting, least, looks));
        self.completions.mind(outcome)
    }

    /// As [`Reaper::reap`], as a task of any executor. To drop the future loses nothing.
    ///
    /// # Errors
    /// As [`Reaper::reap`].
    #[cfg(feature = "async")]
    pub async fn reap_async(&mut self) -> Result<Completion, Error> {
        let connection = self.connection.clone();
        let outcome = connection.meeting.waiter().wait_async(|looks| self.take(looks)).await;
        self.completions.mind(outcome)
    }

    /// The next completion, if it comes within so many looks.
    #[inline]
    fn take(&mut self, looks: u32) -> Result<Option<Completion>, Error> {
        let meeting = &self.connection.meeting;
        let Some(entry) = self.completions.take(meeting, looks)? else { return Ok(None) };
        let CompletionFields { tag, status, value } = CompletionFields::from_entry(&entry);
        let Some(Kept { buffer, user_data }) = self.done.take(u32::from(tag)) else {
            let what = format!("completed request {tag}, which is not under way");
            return Err(self.completions.accuse(meeting, what));
        };
        meeting.counters.completions.add(1);
        Ok(Some(Completion { tag: Tag(tag), status, value, buffer, user_data }))
    }

    /// Ends the connection, if it has not ended yet, and takes out what is under way and was not reaped, so that it can be
    /// submitted elsewhere. What the server completes later is found to be a lie.
    pub fn take_unanswered(&mut self) -> Vec<Unanswered> {
        self.connection.meeting.link.shut();
        let kept = (0..self.connection.depth).filter_map(|tag| self.done.take(tag));
        let unanswered = kept.map(|Kept { buffer, user_data }| {
            let contents = buffer.map(|buffer| {
                let mut bytes = vec![0; buffer.len()];
                buffer.read(0, &mut bytes);
                bytes
            });
            Unanswered { user_data, contents }
        });
        unanswered.collect()
    }

    /// For event loops: after `Ok(false)` the descriptor of [`AsFd`] becomes readable when the server completes
    /// something or is gone. `Ok(true)`: something is there already. What made it readable is taken away by the next
    /// call of this.
    ///
    /// # Errors
    /// As [`Reaper::reap`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.completions.arm(&self.connection.meeting)
    }

    /// Requests that are under way.
    #[inline]
    pub fn under_way(&self) -> usize {
        let counters = &self.connection.meeting.counters;
        counters.requests.get().saturating_sub(counters.completions.get()) as usize
    }

    /// What both halves have done so far.
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
