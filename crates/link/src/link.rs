//! The connection between two ends: who the peer is, whether it is alive, and what cannot go through shared
//! memory.
//!
//! It is a Unix socket, which is seen to end the moment that its other end is closed, and a pidfd, which says
//! so even where a child of the peer still holds the socket. Messages over it are few: a doorbell when an
//! event loop is to be woken, and what the protocol passes on with descriptors (its [`Mail`]).

use crate::error::Error;
use crate::fork::Maker;
use crate::hello::{Hello, Protocol};
use crate::patience::Peer;
use crate::socket::{self, Credentials};
use bywash_sync::{AtomicBool, AtomicU8, Ordering::Relaxed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Nobody is waited for longer than that to present itself.
const GREETING_LIMIT_MAX: Duration = Duration::from_secs(1 << 30);
/// Most doorbells that are heard at a time. A peer rings when it is asked to, once each time: who rings more often wants to
/// keep this end from doing anything else.
const DOORBELLS_MAX: usize = 128;
/// The one byte that says: something happened, look at the rings. No message of a protocol begins with it.
const DOORBELL: u8 = 1;

/// Nothing was sent to the peer since this end waited for it last.
const PEER_UNASKED: u8 = 0;
/// Something was, and it was awake each time.
const PEER_AWAKE: u8 = 1;
/// Something was, and it had to be woken.
const PEER_WOKEN: u8 = 2;

/// What may come through the socket beside doorbells.
#[derive(Clone, Copy, Debug)]
pub struct Mail {
    /// Whether bytes with so many descriptors are a message of the protocol.
    pub fits: fn(&[u8], usize) -> bool,
    /// Most messages that are held here until somebody takes them.
    pub ahead_max: usize,
    /// The socket holds those beyond; else a peer that sends more is accused.
    pub leaves_more: bool,
}

impl Mail {
    /// Nothing may.
    pub const NONE: Mail = Mail { fits: |_, _| false, ahead_max: 0, leaves_more: false };
}

/// A message that came through the socket.
#[derive(Debug)]
pub struct Packet {
    /// What it says.
    pub bytes: Vec<u8>,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// A connection to a peer that has presented itself.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    pidfd: Option<OwnedFd>,
    peer: Credentials,
    maker: Maker,
    mail: Mail,
    inbox: Mutex<VecDeque<Packet>>,
    /// This end has ended the connection.
    was_shut: AtomicBool,
    /// [`Peer`] as a number: see [`PEER_AWAKE`].
    peer_state: AtomicU8,
    /// Made when somebody first waits as a task.
    #[cfg(feature = "async")]
    readiness: std::sync::OnceLock<crate::readiness::Readiness>,
}

/// Locks; what a panic left behind is no worse than what a peer can do.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Presents this end to the peer and learns who that is, within `limit`. Also answers what the peer's hello says,
/// and the memory that came with it.
///
/// # Errors
/// [`Error::PeerDied`] if the peer leaves without having presented itself, [`Error::TimedOut`] if it does not do so in
/// time, [`Error::Misfit`] if the two cannot work together, and [`Error::Io`] if a call of the kernel fails.
pub fn greet(
    socket: OwnedFd,
    protocol: &Protocol,
    hello: Hello,
    memory: &[BorrowedFd<'_>],
    limit: Duration,
    mail: Mail,
) -> Result<(Link, Hello, Vec<OwnedFd>), Error> {
    let end = Instant::now() + limit.min(GREETING_LIMIT_MAX);
    let failed = |error: Errno| Error::io("present this end to the peer", error);
    rustix::net::sockopt::set_socket_passcred(&socket, true).map_err(failed)?;
    match socket::send(socket.as_fd(), &hello.to_bytes(protocol), memory) {
        Ok(()) => {}
        Err(Errno::PIPE | Errno::CONNRESET) => return Err(Error::PeerDied { pid: 0 }),
        Err(error) => return Err(failed(error)),
    }
    let received = loop {
        match socket::receive(socket.as_fd(), socket::BYTES_MAX) {
            Ok(Some(received)) => break received,
            Ok(None) | Err(Errno::CONNRESET) => return Err(Error::PeerDied { pid: 0 }),
            Err(Errno::AGAIN) => wait_for(&socket, end)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::io("learn who the peer is", error)),
        }
    };
    rustix::net::sockopt::set_socket_passcred(&socket, false).map_err(failed)?;
    let peer = received.credentials.ok_or_else(|| Error::Misfit("the peer has no credentials".into()))?;
    let hello = Hello::from_bytes(&received.bytes, protocol)
        .map_err(|what| Error::Misfit(format!("the peer {what}")))?;
    // Without one (an old kernel, a peer of another namespace) the socket alone must tell.
    let pidfd = Pid::from_raw(peer.pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let link = Link {
        socket,
        pidfd,
        peer,
        maker: Maker::this(),
        mail,
        inbox: Mutex::default(),
        was_shut: AtomicBool::new(false),
        peer_state: AtomicU8::new(PEER_UNASKED),
        #[cfg(feature = "async")]
        readiness: std::sync::OnceLock::new(),
    };
    Ok((link, hello, received.descriptors))
}

fn wait_for(socket: &OwnedFd, end: Instant) -> Result<(), Error> {
    let left = end.saturating_duration_since(Instant::now());
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timespec(left))) {
        Ok(0) => Err(Error::TimedOut),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Error::io("wait for the peer", error)),
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// A child that was forked off may still have the socket: only so does the peer hear of the end.
impl Drop for Link {
    fn drop(&mut self) {
        if self.is_here() {
            self.shut();
        }
    }
}

impl Link {
    /// Who the peer is.
    pub fn peer(&self) -> Credentials {
        self.peer
    }

    /// The socket, for an event loop.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether this process made the path.
    #[inline(always)]
    pub fn check_process(&self) -> Result<(), Error> {
        if self.maker.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    /// As [`Link::check_process`], for what is dropped.
    pub fn is_here(&self) -> bool {
        self.maker.is_here()
    }

    /// The peer did what it must not do.
    pub fn accuse(&self, what: impl Into<String>) -> Error {
        Error::Peer { pid: self.peer.pid, what: what.into() }
    }

    /// Ends the connection, though others may still hold this value.
    pub fn shut(&self) {
        self.was_shut.store(true, Relaxed);
        // An error says that it has ended already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Rings the doorbell. A socket that is full of them will wake the peer as well, and one that has ended
    /// has nobody to wake.
    pub fn ring_doorbell(&self) {
        let _ = socket::send(self.descriptor(), &[DOORBELL], &[]);
    }

    /// Passes something on; false: the socket is full, try again when the peer has read.
    ///
    /// # Errors
    /// What the kernel says, or that the connection has ended.
    pub fn pass(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<bool, Error> {
        loop {
            return match socket::send(self.descriptor(), bytes, descriptors) {
                Ok(()) => Ok(true),
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => Ok(false),
                Err(Errno::INTR) => continue,
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(self.ended()),
                Err(error) => Err(Error::io("pass memory on to the peer", error)),
            };
        }
    }

    /// Notes that the peer was awake when something was sent to it.
    #[inline]
    pub(crate) fn note_peer_awake(&self) {
        // Written once between two waits: two threads may share the line.
        if self.peer_state.load(Relaxed) == PEER_UNASKED {
            self.peer_state.store(PEER_AWAKE, Relaxed);
        }
    }

    /// Notes that the peer had to be woken for something that was sent to it.
    pub(crate) fn note_peer_woken(&self) {
        self.peer_state.store(PEER_WOKEN, Relaxed);
    }

    /// State of the peer when something was last sent to it, and forgets it.
    pub(crate) fn take_peer(&self) -> Peer {
        let state = self.peer_state.load(Relaxed);
        if state != PEER_UNASKED {
            self.peer_state.store(PEER_UNASKED, Relaxed);
        }
        match state {
            PEER_AWAKE => Peer::Awake,
            PEER_WOKEN => Peer::Woken,
            _ => Peer::Unasked,
        }
    }

    /// Reads what has come. False: the connection has ended.
    ///
    /// # Errors
    /// What the kernel says, or what the peer did wrong.
    pub fn drain(&self) -> Result<bool, Error> {
        self.hear(usize::MAX)
    }

    /// As [`Link::drain`], but some hundreds of messages at most, and however many doorbells there are: for a thread that
    /// serves this peer alone, and comes late.
    ///
    /// # Errors
    /// As [`Link::drain`].
    pub fn drain_some(&self) -> Result<bool, Error> {
        // More than a socket's queue has room for.
        for _ in 0..4 {
            if !self.hear(DOORBELLS_MAX)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// As [`Link::drain`], but no more than so many messages.
    fn hear(&self, most: usize) -> Result<bool, Error> {
        self.hear_and_count(most, &mut 0)
    }

    /// As [`Link::hear`]; adds the messages that came to `read`.
    fn hear_and_count(&self, most: usize, read: &mut usize) -> Result<bool, Error> {
        let going_on = self.read(&mut lock(&self.inbox), read, most);
        if *read > 0 {
            self.tell_tasks();
        }
        going_on
    }

    fn read(&self, inbox: &mut VecDeque<Packet>, read: &mut usize, most: usize) -> Result<bool, Error> {
        while *read < most {
            let room =
                if self.mail.leaves_more { self.mail.ahead_max.saturating_sub(inbox.len()) } else { most };
            let looks = match room.min(most - *read) {
                // More is read when these have been taken.
                0 => return Ok(true),
                1 => [Some(socket::receive(self.descriptor(), socket::BYTES_MAX)), None],
                _ => socket::receive_two(self.descriptor()),
            };
            for look in looks.into_iter().flatten() {
                match look {
                    Ok(Some(received)) => {
                        *read += 1;
                        self.sort(received, inbox, *read)?;
                    }
                    Ok(None) | Err(Errno::CONNRESET | Errno::NOTCONN) => return Ok(false),
                    Err(Errno::AGAIN) => return Ok(true),
                    Err(Errno::INTR) => {}
                    Err(Errno::MSGSIZE) => return Err(self.accuse("sent a message that is too long")),
                    Err(error) => return Err(Error::io("hear from the peer", error)),
                }
            }
        }
        Ok(true)
    }

    /// Puts what came as number `read` of a turn into the inbox, unless it is a doorbell.
    fn sort(
        &self,
        received: socket::Received,
        inbox: &mut VecDeque<Packet>,
        read: usize,
    ) -> Result<(), Error> {
        let (bytes, descriptors) = (received.bytes, received.descriptors);
        if bytes == [DOORBELL] && descriptors.is_empty() {
            return match read > DOORBELLS_MAX {
                true => Err(self.accuse("rings the doorbell all the time")),
                false => Ok(()),
            };
        }
        if !(self.mail.fits)(&bytes, descriptors.len()) || inbox.len() >= self.mail.ahead_max {
            return Err(self.accuse("sent a message that cannot be"));
        }
        inbox.push_back(Packet { bytes, descriptors });
        Ok(())
    }

    /// Whether there is mail that was read and not taken.
    pub fn has_mail(&self) -> bool {
        !lock(&self.inbox).is_empty()
    }

    /// The oldest mail that was read and not taken.
    pub fn take_mail(&self) -> Option<Packet> {
        lock(&self.inbox).pop_front()
    }

    /// Sleeps until something comes through the socket, and hears it, or through one of `others`, the peer dies, or
    /// `limit` is over. With `room`: also until the socket takes messages again.
    pub fn sleep<'a>(
        &'a self,
        limit: Duration,
        room: bool,
        others: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> Result<(), Error> {
        let flags = if room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut polled = vec![PollFd::new(&self.socket, flags)];
        polled.extend(self.pidfd.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        polled.extend(others.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)));
        match poll(&mut polled, Some(&timespec(limit))) {
            // The doorbell that rang, so that the next sleep is one.
            Ok(_) if polled[0].revents().contains(PollFlags::IN) => self.hear(1).map(drop),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::io("wait for the peer", error)),
        }
    }

    /// Whether there is nobody at the other end any more.
    pub fn is_over(&self) -> Result<bool, Error> {
        let mut read = 0;
        if !self.hear_and_count(usize::MAX, &mut read)? {
            return Ok(true);
        }
        // Who sent something since the last look was alive. Who died since is found at the next one: its socket shows its
        // end, or nothing more comes.
        if read > 0 {
            return Ok(false);
        }
        let Some(pidfd) = &self.pidfd else { return Ok(false) };
        let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0))
    }

    /// The error for a connection that has ended without a word of the peer's.
    pub fn ended(&self) -> Error {
        match self.was_shut.load(Relaxed) {
            true => Error::Closed,
            false => Error::PeerDied { pid: self.peer.pid },
        }
    }

    /// Something was read, which another task may wait for.
    fn tell_tasks(&self) {
        #[cfg(feature = "async")]
        if let Some(readiness) = self.readiness.get() {
            readiness.was_read();
        }
    }

    /// What the reactor knows of this connection.
    #[cfg(feature = "async")]
    pub(crate) fn readiness(&self) -> Result<&crate::readiness::Readiness, Error> {
        if let Some(readiness) = self.readiness.get() {
            return Ok(readiness);
        }
        let pidfd = self.pidfd.as_ref().map(AsFd::as_fd);
        let made = crate::readiness::Readiness::of(self.descriptor(), pidfd)?;
        Ok(self.readiness.get_or_init(|| made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::socket_pair;
    use std::thread;

    const PROTOCOL: Protocol =
        Protocol { magic: *b"bywash ?", version: 7, noun: "an end of a test", rings_max: [2, 2] };
    const HELLO: Hello = Hello { flags: 0, arena_bytes: 0, rings: [2, 2] };

    fn meet(socket: OwnedFd) -> Link {
        let mail = Mail { fits: |bytes, _| bytes == [7], ahead_max: 1, leaves_more: false };
        greet(socket, &PROTOCOL, HELLO, &[], Duration::from_secs(10), mail).unwrap().0
    }

    /// Else whoever rings faster than this end can hear would keep it for ever.
    #[test]
    fn who_rings_all_the_time_is_accused() {
        let (here, there) = socket_pair().unwrap();
        let other = thread::spawn(move || meet(there));
        let (link, other) = (meet(here), other.join().unwrap());
        for _ in 0..DOORBELLS_MAX {
            other.ring_doorbell();
        }
        assert!(link.drain().unwrap());
        for _ in 0..=DOORBELLS_MAX {
            other.ring_doorbell();
        }
        assert!(matches!(link.drain(), Err(Error::Peer { .. })));
    }

    /// An event loop that is told of changes only (EPOLLET) hears of a doorbell and of the end behind it once.
    #[test]
    fn an_end_behind_a_doorbell_is_seen_at_once() {
        let (here, there) = socket_pair().unwrap();
        let other = thread::spawn(move || meet(there));
        let (link, other) = (meet(here), other.join().unwrap());
        other.ring_doorbell();
        assert!(!link.is_over().unwrap());
        other.ring_doorbell();
        drop(other);
        assert!(link.is_over().unwrap());
    }

    /// Of some thousand times the kernel said once that the peer had left before it gave out what it had sent.
    #[test]
    fn what_was_sent_before_the_end_is_heard() {
        for round in 0..3000 {
            let (here, there) = socket_pair().unwrap();
            let other = thread::spawn(move || assert!(meet(there).pass(&[7], &[]).unwrap()));
            let link = meet(here);
            while link.drain().unwrap() {}
            assert!(link.has_mail(), "round {round}");
            other.join().unwrap();
        }
    }
}
