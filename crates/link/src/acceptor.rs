//! Accepting connections of several peers whose handshakes run at the same time.
//!
//! A peer that connects and sends nothing must not keep others out. So a connection stays pending until its
//! hello message has arrived; only then is it returned to the caller, whose handshake does not have to wait.
//! The number of pending connections is bounded: if there are too many, the user with most of them loses the
//! oldest one.

use crate::connect::Listener;
use crate::error::Error;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Greatest number of pending connections: more than a program makes in one burst, and fewer than the
/// descriptors that a process may have.
pub const PENDING_MAX: usize = 256;

/// Listener at a name, with pending connections. Several threads can accept.
#[derive(Debug)]
pub struct Acceptor {
    listener: Listener,
    /// Instance that watches the listener and the pending connections; readable when one of them is.
    epoll: OwnedFd,
    pending: Mutex<Vec<Pending>>,
}

/// Connection whose hello message has not arrived.
#[derive(Debug)]
struct Pending {
    socket: OwnedFd,
    user: u32,
    since: Instant,
}

impl Acceptor {
    /// Listens at a name, like [`Listener::bind`].
    ///
    /// # Errors
    /// Same as [`Listener::bind`], and [`Error::Io`] if the epoll instance cannot be made.
    pub fn bind(name: &Path) -> Result<Acceptor, Error> {
        let failed = |error: Errno| Error::io("watch for peers", error);
        let listener = Listener::bind(name)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(failed)?;
        Ok(Acceptor { listener, epoll, pending: Mutex::default() })
    }

    /// Waits for a connection whose hello message has arrived, at most `limit` in all. Connections without
    /// one are closed after `handshake_timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if no connection is ready in time, or [`Error::Io`] if a system call fails.
    pub fn accept(&self, limit: Option<Duration>, handshake_timeout: Duration) -> Result<OwnedFd, Error> {
        // A timeout beyond the range of the clock means none.
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            if let Some(socket) = self.try_accept(handshake_timeout)? {
                return Ok(socket);
            }
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Err(Error::TimedOut);
            }
            let first_to_go = self.first_to_go(handshake_timeout);
            let wake = end.into_iter().chain(first_to_go).min();
            let timeout = wake.map(|wake| {
                let left = wake.saturating_duration_since(now);
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
            });
            match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Error::io("wait for a peer", error)),
            }
        }
    }

    /// Like [`Acceptor::accept`], but does not wait: `None` if no hello message has arrived.
    ///
    /// # Errors
    /// [`Error::Io`] if a system call fails.
    pub fn try_accept(&self, handshake_timeout: Duration) -> Result<Option<OwnedFd>, Error> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        // Ready connections are taken first, so that new ones do not displace them.
        if let Some(socket) = self.take_ready(&mut pending)? {
            return Ok(Some(socket));
        }
        let now = Instant::now();
        self.cut_off(&mut pending, |peer| now.duration_since(peer.since) >= handshake_timeout);
        for _ in 0..PENDING_MAX {
            let Some(socket) = self.listener.try_accept()? else { break };
            self.admit(&mut pending, socket)?;
        }
        self.take_ready(&mut pending)
    }

    /// Like [`Acceptor::accept`], as a future without a timeout.
    ///
    /// # Errors
    /// [`Error::Io`] if a system call fails.
    #[cfg(feature = "async")]
    pub async fn accept_async(&self, handshake_timeout: Duration) -> Result<OwnedFd, Error> {
        loop {
            if let Some(socket) = self.try_accept(handshake_timeout)? {
                return Ok(socket);
            }
            crate::readiness::readable(self.as_fd()).await?;
        }
    }

    /// Returns the time at which the oldest pending connection must be closed.
    fn first_to_go(&self, handshake_timeout: Duration) -> Option<Instant> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.first().and_then(|oldest| oldest.since.checked_add(handshake_timeout))
    }

    fn admit(&self, pending: &mut Vec<Pending>, socket: OwnedFd) -> Result<(), Error> {
        let failed = |error: Errno| Error::io("watch a peer", error);
        let user = rustix::net::sockopt::socket_peercred(&socket).map_err(failed)?.uid.as_raw();
        if pending.len() >= PENDING_MAX {
            let victim = to_drop(pending);
            self.forget(&pending.remove(victim));
        }
        epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(1), epoll::EventFlags::IN)
            .map_err(failed)?;
        pending.push(Pending { socket, user, since: Instant::now() });
        Ok(())
    }

    /// Takes the first connection whose hello message has arrived, and closes those whose peer has left.
    fn take_ready(&self, pending: &mut Vec<Pending>) -> Result<Option<OwnedFd>, Error> {
        if pending.is_empty() {
            return Ok(None);
        }
        let mut polled: Vec<PollFd<'_>> =
            pending.iter().map(|peer| PollFd::new(&peer.socket, PollFlags::IN)).collect();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut polled, Some(&now)) {
            Ok(0) | Err(Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(Error::io("wait for a peer", error)),
        }
        let speaks: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        drop(polled);
        let mut speaks = speaks.into_iter();
        let mut ready = None;
        let mut at = 0;
        while at < pending.len() {
            let state = if speaks.next() == Some(true) {
                pending_state(&pending[at].socket)
            } else {
                PendingState::Nothing
            };
            match state {
                PendingState::Hello if ready.is_none() => {
                    let peer = pending.remove(at);
                    self.forget(&peer);
                    ready = Some(peer.socket);
                }
                PendingState::Goodbye => self.forget(&pending.remove(at)),
                PendingState::Hello | PendingState::Nothing => at += 1,
            }
        }
        Ok(ready)
    }

    fn cut_off(&self, pending: &mut Vec<Pending>, goes: impl Fn(&Pending) -> bool) {
        pending.retain(|peer| {
            let goes = goes(peer);
            if goes {
                self.forget(peer);
            }
            !goes
        });
    }

    /// Removes a connection from the epoll instance. Closing the socket is not enough, since a forked child
    /// may have it too.
    fn forget(&self, peer: &Pending) {
        // The error is ignored: it means that the socket is not watched.
        let _ = epoll::delete(&self.epoll, &peer.socket);
    }
}

/// The descriptor is readable when a peer connects, sends its hello message or leaves: then
/// [`Acceptor::try_accept`] may return a connection.
impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// State of a pending connection.
enum PendingState {
    Nothing,
    Hello,
    Goodbye,
}

fn pending_state(socket: &OwnedFd) -> PendingState {
    let mut byte = [0u8];
    match recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((0, _)) => PendingState::Goodbye,
        Ok(_) => PendingState::Hello,
        Err(Errno::AGAIN | Errno::INTR) => PendingState::Nothing,
        Err(_) => PendingState::Goodbye,
    }
}

/// Returns the index of the oldest connection of the user that has most of them.
fn to_drop(pending: &[Pending]) -> usize {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for peer in pending {
        *counts.entry(peer.user).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    pending.iter().position(|peer| counts[&peer.user] == most).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{connect, socket_pair};

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn silent_peers_keep_nobody_out() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("socket");
        let acceptor = Acceptor::bind(&name).unwrap();
        let silent: Vec<OwnedFd> = (0..PENDING_MAX + 20)
            .map(|_| {
                let socket = connect(&name).unwrap();
                assert!(acceptor.try_accept(LONG).unwrap().is_none());
                socket
            })
            .collect();
        let begun = Instant::now();
        assert!(matches!(acceptor.accept(Some(LONG / 100), LONG), Err(Error::TimedOut)));
        let good = connect(&name).unwrap();
        rustix::net::send(&good, b"hello", rustix::net::SendFlags::empty()).unwrap();
        let socket = acceptor.accept(Some(LONG), LONG).unwrap();
        assert!(begun.elapsed() < LONG / 2);
        let mut bytes = [0; 9];
        assert_eq!(recv(&socket, &mut bytes, RecvFlags::empty()).unwrap().0, 5);
        // Only the oldest connections were closed.
        for (number, socket) in silent.iter().enumerate() {
            let heard = recv(socket, &mut bytes, RecvFlags::DONTWAIT).map(|heard| heard.0);
            let expected = if number < 21 { Ok(0) } else { Err(Errno::AGAIN) };
            assert_eq!(heard, expected, "{number}");
        }
        // A connection whose handshake takes too long is closed too.
        assert!(matches!(acceptor.accept(Some(LONG / 100), Duration::ZERO), Err(Error::TimedOut)));
        assert!(silent.iter().all(|socket| recv(socket, &mut bytes, RecvFlags::DONTWAIT).unwrap().0 == 0));
    }

    #[test]
    fn who_leaves_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("socket");
        let acceptor = Acceptor::bind(&name).unwrap();
        drop(connect(&name).unwrap());
        assert!(acceptor.try_accept(LONG).unwrap().is_none());
        assert!(acceptor.pending.lock().unwrap().is_empty());
    }

    #[test]
    fn who_has_most_loses_the_oldest() {
        let pending = |user| Pending { socket: socket_pair().unwrap().0, user, since: Instant::now() };
        assert_eq!(to_drop(&[1, 2, 3, 2].map(pending)), 1);
        assert_eq!(to_drop(&[4, 5].map(pending)), 0);
    }
}
