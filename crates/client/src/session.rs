//! One connection to a server's control socket: its messages, and the grants that were opened over it.
//!
//! The server replies in the order of the messages that it receives. A message whose reply did not arrive in
//! time leaves a reply behind that is *owed*. An owed reply is received and dropped before the reply to a
//! later message; a grant in it is given back.
//!
//! Invariant: nothing that the server says is trusted. Numbers are checked against their ranges, and files
//! against the size and the seals that they must have, before anything is mapped.
//!
//! Called by `client`, `volume` and `queue`.

use crate::direct::{Direct, DriverSettings, GrantedFunction};
use crate::error::Error;
use crate::mapped::{Mapped, RevocationPage, fence_behind_reads};
use crate::options::{Options, PathChoice, VolumePath};
use crate::volume::SharedMapping;
use bywash_link::{Counter, MemoryFile, Messages, PAGE, ProcessGeneration, connect_within};
use bywash_protocol::{
    Access, ControlReply, ControlRequest, GrantInfo, MESSAGE_BYTES_MAX, VERSION, revocations,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Greatest number of grants of a client that a server's page can have words for: 8 MiB.
const GRANTS_MAX: u32 = 1 << 20;
/// Greatest size of a volume's block, in bytes.
const BLOCK_MAX: u32 = 1 << 24;
/// Greatest number of owed replies; with so many, nothing more is sent.
const OWED_MAX: usize = 64;
/// Number of accesses to mapped memory, or of polls of the channel, between two checks that the server is
/// alive.
const LOOK_EVERY: u64 = 1024;
/// Greatest size of a report, in bytes.
const REPORT_BYTES_MAX: u64 = 64 << 20;

/// Locks a mutex and ignores poisoning: a panic of its holder leaves no state half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Way in which a volume was opened, kept so that it can be opened again.
#[derive(Debug)]
pub(crate) enum VolumeSource {
    /// By name, with these rights.
    Name(Arc<str>, Access),
    /// By a file descriptor of the program.
    Descriptor(OwnedFd),
}

impl VolumeSource {
    /// Returns the volume's name, for error messages.
    pub(crate) fn name(&self) -> Arc<str> {
        match self {
            VolumeSource::Name(name, _) => name.clone(),
            VolumeSource::Descriptor(_) => "the file that was passed".into(),
        }
    }
}

/// The right to send over the control socket, with the number of replies that are owed. One thread holds it
/// at a time.
#[derive(Debug, Default)]
struct SendRight {
    owed: usize,
}

/// A connection to a server's control socket.
#[derive(Debug)]
pub(crate) struct Session {
    messages: Messages,
    /// `None` while a thread holds the right to send.
    talk: Mutex<Option<SendRight>>,
    free: Condvar,
    /// Numbers of grants to give back to the server.
    dropped: Mutex<Vec<u64>>,
    is_over: AtomicBool,
    notices: RevocationPage,
    looks: Counter,
    limit: Duration,
    maker: ProcessGeneration,
    /// Number of times that the client had connected before it made this connection.
    pub(crate) generation: u64,
    /// The number by which the server's reports name the client.
    pub(crate) client: u64,
    pub(crate) depth_max: u32,
    pub(crate) arena_bytes_max: u64,
}

/// Sends `ask`, and returns its reply with the descriptors that were attached. Takes owed replies first and
/// adds the grants in them to `late`. The caller makes sure that no other thread sends meanwhile.
fn ask_over(
    messages: &Messages,
    talk: &mut SendRight,
    late: &mut Vec<u64>,
    ask: &ControlRequest,
    descriptors: &[BorrowedFd<'_>],
    end: Instant,
) -> Result<(ControlReply, Vec<OwnedFd>), bywash_link::Error> {
    let left = || end.saturating_duration_since(Instant::now());
    let misfit = |error: bywash_protocol::DecodeError| bywash_link::Error::Incompatible(error.to_string());
    if talk.owed >= OWED_MAX {
        return Err(bywash_link::Error::TimedOut);
    }
    let bytes =
        ask.to_bytes().map_err(|error| bywash_link::Error::io("ask", std::io::Error::other(error)))?;
    messages.send(&bytes, descriptors, left())?;
    talk.owed += 1;
    loop {
        let packet = messages.receive(left())?;
        talk.owed -= 1;
        let answer = ControlReply::from_bytes(&packet.bytes).map_err(misfit)?;
        match answer {
            _ if talk.owed == 0 => return Ok((answer, packet.descriptors)),
            ControlReply::Granted(granted) | ControlReply::GrantedDirect { grant: granted, .. } => {
                late.push(granted.grant);
            }
            _ => {}
        }
    }
}

impl Session {
    /// Connects to `socket` and performs the handshake: sends the client's name, receives the server's limits
    /// and maps its page of notices.
    ///
    /// # Errors
    /// [`Error::Option`] if the client's name is too long; [`Error::Io`] if a system call fails;
    /// [`Error::TimedOut`] after `end`; [`Error::Refused`] if the server does not admit the client;
    /// [`Error::Gone`] if it closes the connection; [`Error::ProtocolViolation`] if its reply violates the
    /// protocol.
    pub(crate) fn connect(
        socket: &std::path::Path,
        options: &Options,
        generation: u64,
        end: Instant,
    ) -> Result<Session, Error> {
        const WHAT: &str = "the greeting";
        options.check()?;
        let link = |error| Error::from_link(error, WHAT, options.timeout);
        let left = end.saturating_duration_since(Instant::now());
        let messages = Messages::over(connect_within(socket, left).map_err(link)?, MESSAGE_BYTES_MAX);
        let mut talk = SendRight::default();
        let hello = ControlRequest::Hello { version: VERSION, name: options.name.clone() };
        let (answer, mut files) =
            ask_over(&messages, &mut talk, &mut Vec::new(), &hello, &[], end).map_err(link)?;
        let ControlReply::Welcome { version, client, depth_max, arena_bytes_max, grants_max } = answer else {
            return Err(unexpected(&hello, answer, || "to be let in".into()));
        };
        if version != VERSION {
            return Err(Error::broken(format!("it speaks version {version}, and this is {VERSION}")));
        }
        if !(1..=GRANTS_MAX).contains(&grants_max) {
            return Err(Error::broken(format!("it says that {grants_max} grants can be open")));
        }
        let (Some(page), true) = (files.pop(), files.is_empty()) else {
            return Err(Error::broken("its welcome came with another number of descriptors than one"));
        };
        let notices = RevocationPage::adopt(page, grants_max).map_err(link)?.map_err(Error::broken)?;
        Ok(Session {
            messages,
            talk: Mutex::new(Some(talk)),
            free: Condvar::new(),
            dropped: Mutex::default(),
            is_over: AtomicBool::new(false),
            notices,
            looks: Counter::default(),
            limit: options.timeout,
            maker: ProcessGeneration::current(),
            generation,
            client,
            depth_max,
            arena_bytes_max,
        })
    }

    /// Sends `ask`, waits for the reply until `end`, and returns it with the descriptors that were attached.
    /// A refusal becomes an error, for which `what` describes the operation.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server refuses; [`Error::TimedOut`] if the reply does not arrive until
    /// `end`, or too many replies are owed; [`Error::Gone`] or [`Error::ProtocolViolation`] if the connection
    /// ends; [`Error::Forked`] in a forked child; [`Error::Io`] if a system call fails.
    pub(crate) fn ask(
        &self,
        ask: &ControlRequest,
        descriptors: &[BorrowedFd<'_>],
        end: Instant,
        what: impl Fn() -> String,
    ) -> Result<(ControlReply, Vec<OwnedFd>), Error> {
        const WHAT: &str = "a message over the server's socket";
        if !self.maker.is_here() {
            return Err(Error::Forked);
        }
        let Some(mut talk) = self.take_talk(end) else {
            return Err(Error::TimedOut { what: WHAT, limit: self.limit });
        };
        self.give_back(&mut talk);
        let mut late = Vec::new();
        let outcome = ask_over(&self.messages, &mut talk, &mut late, ask, descriptors, end);
        lock(&self.dropped).append(&mut late);
        *lock(&self.talk) = Some(talk);
        self.free.notify_one();
        match outcome {
            Ok((ControlReply::Refused(refused), _)) => {
                Err(Error::Refused { what: what(), refused: Box::new(refused) })
            }
            Ok(answer) => Ok(answer),
            Err(error) => {
                let error = Error::from_link(error, WHAT, self.limit);
                if error.is_end() {
                    self.is_over.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }

    /// Like [`Session::ask`], for an operation whose reply carries nothing.
    ///
    /// # Errors
    /// Same as [`Session::ask`].
    pub(crate) fn ask_done(
        &self,
        ask: &ControlRequest,
        end: Instant,
        what: impl Fn() -> String,
    ) -> Result<(), Error> {
        match self.ask(ask, &[], end, &what)? {
            (ControlReply::Done {}, _) => Ok(()),
            (other, _) => Err(unexpected(ask, other, what)),
        }
    }

    /// Like [`Session::ask`], for an operation whose reply is a report.
    ///
    /// # Errors
    /// Same as [`Session::ask`]; [`Error::ProtocolViolation`] if the report cannot be read.
    pub(crate) fn ask_report<T: serde::de::DeserializeOwned>(
        &self,
        ask: &ControlRequest,
        end: Instant,
        what: impl Fn() -> String,
    ) -> Result<T, Error> {
        match self.ask(ask, &[], end, &what)? {
            (ControlReply::Report {}, mut files) if files.len() == 1 => {
                let bytes = files.pop().map(|file| read_report(&file)).transpose()?.unwrap_or_default();
                let told = serde_json::from_slice(&bytes);
                told.map_err(|error| Error::broken(format!("its report cannot be read: {error}")))
            }
            (ControlReply::Report {}, files) => {
                Err(Error::broken(format!("its report came with {} descriptors", files.len())))
            }
            (other, _) => Err(unexpected(ask, other, what)),
        }
    }

    /// Takes the right to send, waiting for it until `end`.
    fn take_talk(&self, end: Instant) -> Option<SendRight> {
        let left = end.saturating_duration_since(Instant::now());
        let waited = self.free.wait_timeout_while(lock(&self.talk), left, |talk| talk.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }

    /// Gives the dropped grants back to the server, without waiting for the replies.
    fn give_back(&self, talk: &mut SendRight) {
        // Replies that have arrived already make room for more that are owed.
        while talk.owed > 0 {
            let Ok(Some(packet)) = self.messages.try_receive() else { break };
            talk.owed -= 1;
            if let Ok(ControlReply::Granted(granted) | ControlReply::GrantedDirect { grant: granted, .. }) =
                ControlReply::from_bytes(&packet.bytes)
            {
                lock(&self.dropped).push(granted.grant);
            }
        }
        while talk.owed < OWED_MAX {
            let Some(grant) = lock(&self.dropped).pop() else { return };
            let sent = ControlRequest::Close { grant }
                .to_bytes()
                .is_ok_and(|bytes| self.messages.send(&bytes, &[], Duration::ZERO).is_ok());
            match sent {
                true => talk.owed += 1,
                // The next message gives this grant back, or the end of the connection does.
                false => return lock(&self.dropped).push(grant),
            }
        }
    }

    /// Notes that a grant is no longer used, and gives it back if no other thread is sending. Never waits.
    fn drop_grant(&self, grant: u64) {
        if !self.maker.is_here() {
            return;
        }
        lock(&self.dropped).push(grant);
        let talk = lock(&self.talk).take();
        // A thread that holds the right to send gives the grant back with its next message.
        if let Some(mut talk) = talk {
            self.give_back(&mut talk);
            *lock(&self.talk) = Some(talk);
            self.free.notify_one();
        }
    }

    /// Returns true in the process that has connected, and false in its forked children.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        self.maker.is_here()
    }

    /// Returns the time within which the server must answer.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns true if a grant was not revoked.
    #[inline(always)]
    pub(crate) fn is_valid(&self, grant: u64) -> bool {
        self.notices.is_valid(grant)
    }

    /// Same as [`RevocationPage::fence_behind_writes`].
    #[inline(always)]
    pub(crate) fn fence_behind_writes(&self) {
        self.notices.fence_behind_writes();
    }

    /// Returns true if the server has closed the connection. Makes a system call.
    pub(crate) fn is_over(&self) -> bool {
        if self.is_over.load(Ordering::Relaxed) {
            return true;
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::from_borrowed_fd(self.messages.as_fd(), PollFlags::RDHUP)];
        let is_over = poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0);
        if is_over {
            self.is_over.store(true, Ordering::Relaxed);
        }
        is_over
    }

    /// Counts `times` accesses, and checks after each [`LOOK_EVERY`] of them that the server is alive.
    /// Returns [`Error::Gone`] if it is not.
    #[inline(always)]
    pub(crate) fn check_server(&self, times: u64) -> Result<(), Error> {
        self.looks.add(times);
        if self.looks.get() % LOOK_EVERY < times { self.check_server_now() } else { Ok(()) }
    }

    /// Returns [`Error::Gone`] if the server has closed the connection.
    #[cold]
    pub(crate) fn check_server_now(&self) -> Result<(), Error> {
        match self.is_over() {
            true => Err(Error::Gone { how: "it has closed its socket".into() }),
            false => Ok(()),
        }
    }

    /// Opens a volume, and maps its memory or drives its hardware if `choice` and the server allow it.
    ///
    /// # Errors
    /// Same as [`Session::ask`]; [`Error::NotMapped`] if `choice` is [`PathChoice::Mapped`] and the volume cannot
    /// be mapped; [`Error::ProtocolViolation`] if the grant violates the protocol.
    pub(crate) fn open(
        self: &Arc<Session>,
        origin: &VolumeSource,
        choice: PathChoice,
        driver: DriverSettings,
        end: Instant,
    ) -> Result<Grant, Error> {
        let mut granted = self.ask_for_grant(origin, end)?;
        let mut not_direct = None;
        if let VolumeSource::Name(volume, access) = origin
            && granted.can_be_direct
            && choice == PathChoice::Automatic
        {
            // The hardware is given to nobody while somebody has a grant of the volume.
            let close = ControlRequest::Close { grant: granted.grant };
            match self.ask_done(&close, end, || format!("cannot close {volume}")) {
                // It was revoked meanwhile.
                Err(Error::Refused { .. }) => {}
                closed => closed?,
            }
            match self.open_direct(volume, *access, driver, end)? {
                Ok(grant) => return Ok(grant),
                Err(why) => not_direct = Some(why),
            }
            granted = self.ask_for_grant(origin, end)?;
        }
        let mut grant = self.grant(origin.name(), &granted);
        let outcome = match (choice, not_direct.or_else(|| granted.unmappable_reason.clone())) {
            (PathChoice::Channel, _) => Err("it was opened that way".into()),
            (_, Some(why)) => Err(why),
            (_, None) => self.map(&granted, &grant.name, end)?,
        };
        match outcome {
            Ok(memory) => grant.memory = Some(memory),
            Err(why) if choice == PathChoice::Mapped => {
                return Err(Error::NotMapped { volume: grant.name.clone(), why });
            }
            Err(why) => grant.why = why,
        }
        Ok(grant)
    }

    /// Asks the server for a grant, and checks it.
    fn ask_for_grant(&self, origin: &VolumeSource, end: Instant) -> Result<GrantInfo, Error> {
        let name = origin.name();
        let what = || format!("cannot open {name}");
        let (ask, files): (_, &[BorrowedFd<'_>]) = match origin {
            VolumeSource::Name(volume, access) => {
                (ControlRequest::Open { volume: volume.to_string(), access: *access }, &[])
            }
            VolumeSource::Descriptor(file) => (ControlRequest::OpenDescriptor {}, &[file.as_fd()]),
        };
        let granted = match self.ask(&ask, files, end, what)? {
            (ControlReply::Granted(granted), _) => granted,
            (other, _) => return Err(unexpected(&ask, other, what)),
        };
        let wanted = match origin {
            VolumeSource::Name(_, access) => Some(*access),
            VolumeSource::Descriptor(_) => None,
        };
        self.check_granted(granted, &name, wanted)
    }

    /// Checks that a grant is possible, and has the rights that were asked for.
    fn check_granted(
        &self,
        granted: GrantInfo,
        name: &str,
        wanted: Option<Access>,
    ) -> Result<GrantInfo, Error> {
        let is_right = self.notices.has_place_for(granted.grant)
            && revocations::tag_of(granted.grant) > 0
            && granted.block.is_power_of_two()
            && granted.block <= BLOCK_MAX;
        if !is_right {
            return Err(Error::broken(format!("it granted what cannot be: {granted:?}")));
        }
        match wanted {
            Some(access) if granted.access != access => {
                let has = granted.access;
                Err(Error::broken(format!("it granted {has} of {name}, and {access} was asked for")))
            }
            _ => Ok(granted),
        }
    }

    /// Makes a grant whose memory is not mapped.
    fn grant(self: &Arc<Session>, name: Arc<str>, granted: &GrantInfo) -> Grant {
        Grant {
            session: self.clone(),
            number: granted.grant,
            bytes: granted.bytes,
            block: granted.block,
            access: granted.access,
            device: granted.device.as_str().into(),
            memory: None,
            direct: None,
            is_volatile: granted.is_volatile,
            why: String::new(),
            name,
        }
    }

    /// Opens a volume together with the hardware behind it. The inner error is the reason why this client cannot have it;
    /// the outer one is an error of [`Session::ask`], or [`Error::ProtocolViolation`].
    fn open_direct(
        self: &Arc<Session>,
        volume: &Arc<str>,
        access: Access,
        driver: DriverSettings,
        end: Instant,
    ) -> Result<Result<Grant, String>, Error> {
        let ask = ControlRequest::OpenDirect { volume: volume.to_string(), access };
        let what = || format!("cannot open {volume} directly");
        let (granted, function) = match self.ask(&ask, &[], end, what) {
            Ok((
                ControlReply::GrantedDirect { grant, address, namespace, offset, needs_trust },
                descriptors,
            )) => (grant, GrantedFunction { address, namespace, offset, needs_trust, descriptors }),
            Ok((other, _)) => return Err(unexpected(&ask, other, what)),
            Err(Error::Refused { refused, .. }) => return Ok(Err(refused.message)),
            Err(error) => return Err(error),
        };
        let granted = self.check_granted(granted, volume, Some(access))?;
        let mut grant = self.grant(volume.clone(), &granted);
        match Direct::open(function, granted.bytes, granted.block, driver) {
            Ok(direct) => {
                grant.direct = Some(Mutex::new(direct));
                Ok(Ok(grant))
            }
            // The grant is given back, so that the server can serve the volume over the channel.
            Err(error @ Error::Io { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Maps the memory of a grant. The inner error is the reason why it cannot be mapped; the outer one is an
    /// error of [`Session::ask`], or [`Error::ProtocolViolation`] if the chunks violate the protocol.
    fn map(&self, granted: &GrantInfo, name: &str, end: Instant) -> Result<Result<Mapped, String>, Error> {
        let GrantInfo { grant, bytes, access, .. } = *granted;
        let kernel = |error| format!("its memory cannot be mapped here: {error}");
        let mut memory = match Mapped::reserve(bytes, access.allows_read(), access.allows_write()) {
            Ok(memory) => memory,
            Err(error) => return Ok(Err(kernel(error))),
        };
        let mut from = 0;
        while (memory.filled() as u64) < bytes {
            let (chunk_bytes, files) = match self.chunks(grant, bytes, from, name, end) {
                Err(Error::Refused { refused, .. }) => return Ok(Err(refused.message)),
                chunks => chunks?,
            };
            if chunk_bytes.checked_mul(u64::from(from)) != Some(memory.filled() as u64) {
                return Err(Error::broken(format!(
                    "its chunks have {chunk_bytes} bytes now, and had others"
                )));
            }
            from += files.len() as u32;
            for file in files {
                let left = bytes - memory.filled() as u64;
                match memory.add(file, left.min(chunk_bytes) as usize) {
                    Err(error) => return Ok(Err(kernel(error))),
                    Ok(added) => added.map_err(Error::broken)?,
                }
            }
        }
        Ok(Ok(memory))
    }

    /// Asks for descriptors of the chunks of a grant from chunk `from` on. Returns the size of a chunk and at least one
    /// descriptor.
    fn chunks(
        &self,
        grant: u64,
        bytes: u64,
        from: u32,
        name: &str,
        end: Instant,
    ) -> Result<(u64, Vec<OwnedFd>), Error> {
        let ask = ControlRequest::Map { grant, from };
        let (answer, files) = self.ask(&ask, &[], end, || format!("cannot map {name}"))?;
        let ControlReply::Chunks { chunk_bytes, count } = answer else {
            return Err(unexpected(&ask, answer, || format!("cannot map {name}")));
        };
        let fits = chunk_bytes > 0
            && chunk_bytes.is_multiple_of(PAGE as u64)
            && bytes.div_ceil(chunk_bytes) == u64::from(count)
            && from < count
            && (1..=(count - from) as usize).contains(&files.len());
        if fits {
            return Ok((chunk_bytes, files));
        }
        let files = files.len();
        Err(Error::broken(format!(
            "it gave {files} chunks of {chunk_bytes} bytes from {from} on, of {count} for {bytes} bytes"
        )))
    }
}

/// Makes the error for a reply of another kind than `ask` has: its refusal, or a violation of the protocol.
#[cold]
pub(crate) fn unexpected(ask: &ControlRequest, answer: ControlReply, what: impl Fn() -> String) -> Error {
    match answer {
        ControlReply::Refused(refused) => Error::Refused { what: what(), refused: Box::new(refused) },
        other => Error::broken(format!("it answered {other:?} to {ask:?}")),
    }
}

/// Reads the file of a report.
fn read_report(file: &OwnedFd) -> Result<Vec<u8>, Error> {
    // A file without seals is no memory, and reading such a file could block for ever.
    if rustix::fs::fcntl_get_seals(file).is_err() {
        return Err(Error::broken("it passed a report in a descriptor that is no memory"));
    }
    let failed = |error| Error::io("read the server's report", error);
    let bytes = rustix::fs::fstat(file).map_err(failed)?.st_size as u64;
    if bytes > REPORT_BYTES_MAX {
        return Err(Error::broken(format!("it passed a report of {bytes} bytes")));
    }
    let (mut report, mut at) = (vec![0; bytes as usize], 0);
    while at < report.len() {
        match rustix::io::pread(file, &mut report[at..], at as u64).map_err(failed)? {
            0 => break,
            read => at += read,
        }
    }
    report.truncate(at);
    Ok(report)
}

/// Right that a request needs of its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    Read,
    Write,
}

/// Checks that a file is memory of at least `bytes` bytes that cannot shrink.
fn check_chunk(file: OwnedFd, bytes: u64) -> Result<OwnedFd, String> {
    let has = rustix::fs::fstat(&file).map_err(|error| error.to_string())?.st_size as u64;
    if has < bytes {
        return Err(format!("passed a chunk of {has} bytes, which should have {bytes}"));
    }
    MemoryFile::from_peer(file, has as usize, bywash_link::SEALS_FIXED).map(MemoryFile::into_descriptor)
}

/// A right to a volume, and the volume's memory if that is mapped. Dropping it gives the grant back to the
/// server.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) session: Arc<Session>,
    pub(crate) name: Arc<str>,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) block: u32,
    pub(crate) access: Access,
    pub(crate) device: Arc<str>,
    pub(crate) memory: Option<Mapped>,
    /// Hardware behind the volume, if this client has it to itself.
    pub(crate) direct: Option<Mutex<Direct>>,
    /// True if the medium is memory of the server, mapped here or not, whose contents are lost when the
    /// server ends.
    pub(crate) is_volatile: bool,
    /// Reason why the volume is neither mapped nor direct.
    why: String,
}

impl Drop for Grant {
    fn drop(&mut self) {
        // The memory is unmapped before the grant is given back: afterwards the server may give it to another
        // client.
        self.memory = None;
        // The hardware, too, which the server takes back then.
        self.direct = None;
        self.session.drop_grant(self.number);
    }
}

impl Grant {
    /// Returns the path that the volume's bytes take.
    pub(crate) fn path(&self) -> VolumePath {
        match (&self.memory, &self.direct) {
            (Some(_), _) => VolumePath::Mapped,
            (None, Some(direct)) => lock(direct).path(),
            (None, None) => VolumePath::Channel { why: self.why.clone() },
        }
    }

    /// Returns descriptors of the mapped memory and of the page that tells whether it is still the volume's.
    ///
    /// # Errors
    /// [`Error::ProtocolViolation`] if the chunks violate the protocol; [`Error::Io`] if a descriptor cannot be copied; and
    /// those of [`Session::ask`].
    pub(crate) fn share(&self, end: Instant) -> Result<SharedMapping, Error> {
        let (mut chunk_bytes, mut chunks) = (0, Vec::new());
        while chunk_bytes * (chunks.len() as u64) < self.bytes {
            let from = chunks.len() as u32;
            let (bytes, files) = self.session.chunks(self.number, self.bytes, from, &self.name, end)?;
            chunk_bytes = bytes;
            for (file, index) in files.into_iter().zip(u64::from(from)..) {
                let length = chunk_bytes.min(self.bytes.saturating_sub(index * chunk_bytes));
                chunks.push(check_chunk(file, length).map_err(Error::broken)?);
            }
        }
        let page = self.session.notices.file();
        let copy = page.descriptor().try_clone_to_owned();
        Ok(SharedMapping {
            chunks,
            chunk_bytes,
            page: copy.map_err(|error| Error::io("copy a descriptor", error))?,
            page_bytes: page.bytes() as u64,
            index: revocations::index_of(self.number),
            valid_up_to: revocations::tag_of(self.number) - 1,
        })
    }

    /// Checks that a range may be read or written: the right to it, its alignment and its bounds.
    ///
    /// # Errors
    /// [`Error::Denied`] without the right; [`Error::Misaligned`] if offset or length is no multiple of the
    /// block; [`Error::OutOfBounds`] if the range extends beyond the volume.
    #[inline(always)]
    pub(crate) fn check(
        &self,
        need: Right,
        what: &'static str,
        offset: u64,
        length: u64,
    ) -> Result<(), Error> {
        match self.allows(need, offset, length) {
            true => Ok(()),
            false => Err(self.refusal(need, what, offset, length)),
        }
    }

    /// Like [`Grant::check`], but without the reason.
    #[inline(always)]
    pub(crate) fn allows(&self, need: Right, offset: u64, length: u64) -> bool {
        self.has_right(need) && self.is_aligned(offset, length) && self.has(offset, length)
    }

    #[inline(always)]
    fn has_right(&self, need: Right) -> bool {
        match need {
            Right::Read => self.access.allows_read(),
            Right::Write => self.access.allows_write(),
        }
    }

    #[inline(always)]
    fn is_aligned(&self, offset: u64, length: u64) -> bool {
        (offset | length) & u64::from(self.block - 1) == 0
    }

    #[inline(always)]
    fn has(&self, offset: u64, length: u64) -> bool {
        offset <= self.bytes && length <= self.bytes - offset
    }

    /// Makes the error that tells why [`Grant::allows`] has returned false.
    #[cold]
    fn refusal(&self, need: Right, what: &'static str, offset: u64, length: u64) -> Error {
        let volume = self.name.clone();
        match (self.has_right(need), self.is_aligned(offset, length)) {
            (false, _) => Error::Denied { volume, access: self.access, what },
            (_, false) => Error::Misaligned { volume, offset, length, block: self.block },
            _ => Error::OutOfBounds { volume, offset, length, bytes: self.bytes },
        }
    }

    /// Returns false in a forked child, to which the mapped memory or the hardware of the grant does not belong.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        match (&self.memory, &self.direct) {
            (Some(memory), _) => memory.is_here(),
            (None, Some(_)) => self.session.is_here(),
            (None, None) => true,
        }
    }

    /// Checks after a read of mapped memory that the read counts.
    ///
    /// # Errors
    /// [`Error::Revoked`] if the grant was revoked; [`Error::Gone`] if the server is known to have ended,
    /// which one in [`LOOK_EVERY`] calls finds out.
    #[inline(always)]
    pub(crate) fn confirm_read(&self) -> Result<(), Error> {
        fence_behind_reads();
        self.confirm()
    }

    /// Checks after a write to mapped memory that the write counts.
    ///
    /// # Errors
    /// Same as [`Grant::confirm_read`].
    #[inline(always)]
    pub(crate) fn confirm_write(&self) -> Result<(), Error> {
        self.session.fence_behind_writes();
        self.confirm()
    }

    /// Checks after reads of and writes to mapped memory that all of them count.
    ///
    /// # Errors
    /// Same as [`Grant::confirm_read`].
    pub(crate) fn confirm_all(&self) -> Result<(), Error> {
        fence_behind_reads();
        self.confirm_write()
    }

    /// Checks that earlier accesses count, after the fence that the caller has made.
    #[inline(always)]
    fn confirm(&self) -> Result<(), Error> {
        self.check_revoked()?;
        self.session.check_server(1)
    }

    /// Checks that the grant is still valid.
    ///
    /// # Errors
    /// [`Error::Revoked`] if it is not.
    #[inline(always)]
    pub(crate) fn check_revoked(&self) -> Result<(), Error> {
        match self.session.notices.is_valid(self.number) {
            true => Ok(()),
            false => Err(self.revoked()),
        }
    }

    #[cold]
    fn revoked(&self) -> Error {
        Error::Revoked { volume: self.name.clone() }
    }
}
