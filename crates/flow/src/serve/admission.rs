//! Accepts connections while there is room for them, and refuses the others.
//!
//! Invariant: a refused peer learns of it at once, by a reset (at a Unix socket by an end of stream), and is
//! counted; a notice about refusals is queued at most every ten seconds. A descriptor in reserve makes
//! refusal possible when no other is left. Called by the threads that serve.

use crate::control::Control;
use crate::end::{Connected, ListeningSocket, reset};
use crate::error::Error;
use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Number of descriptors kept for everything but connections.
const OTHERS: u64 = 256;
/// Pause after the kernel has run out of memory or descriptors.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Shortest interval between notices about refused connections.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// Accepts connections at a listening socket.
pub(super) struct Admission<'a> {
    listener: &'a ListeningSocket,
    control: &'a Control,
    /// Descriptor that is closed in order to accept, and refuse, one more connection than descriptors allow.
    reserve: Option<OwnedFd>,
    refused: u64,
    told: Option<Instant>,
    /// Greatest number of descriptors of this process.
    descriptors: u64,
}

impl<'a> Admission<'a> {
    /// Raises the soft limit of descriptors to the hard one, and opens the descriptor in reserve.
    ///
    /// # Errors
    /// [`Error::Io`] if /dev/null cannot be opened.
    pub(super) fn open(listener: &'a ListeningSocket, control: &'a Control) -> Result<Admission<'a>, Error> {
        let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
        if current != maximum {
            // If the limit cannot be raised, the present one counts.
            let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        }
        let descriptors = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let reserve = Some(reserved().map_err(|error| Error::io("open /dev/null", error))?);
        Ok(Admission { listener, control, reserve, refused: 0, told: None, descriptors })
    }

    /// Returns the greatest number of connections at a time, if each needs `each` descriptors: the number
    /// that the user gave, else `usual`, but never more than descriptors allow.
    pub(super) fn room(&self, usual: u64, each: u64) -> u64 {
        let asked = self.listener.max().map_or(usual, u64::from);
        let possible = (self.descriptors.saturating_sub(OTHERS) / each).max(1);
        if self.listener.max().is_some() && asked > possible {
            self.control.notify(format!(
                "max={asked} is more than {} descriptors allow: {possible} connections at a time (ulimit -n)",
                self.descriptors
            ));
        }
        asked.min(possible)
    }

    /// Returns the next connection for which there is room. `live` returns the number of open connections.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the flow is cancelled; [`Error::Io`] if accept(2) or poll(2) fails.
    pub(super) fn next(&mut self, room: u64, mut live: impl FnMut() -> u64) -> Result<Connected, Error> {
        loop {
            self.control.check()?;
            match self.listener.try_accept() {
                Ok(Ok(connected)) if live() < room => return Ok(connected),
                Ok(Ok(connected)) => self.refuse(connected, &format!("{room} are served already (max=)")),
                // The peer closed the connection before it could be set up.
                Ok(Err(_)) => {}
                Err(Errno::AGAIN) => {
                    self.control.wait(self.listener.as_fd(), PollFlags::IN, None)?;
                }
                Err(Errno::MFILE | Errno::NFILE) => self.out_of_descriptors()?,
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    self.control.sleep_until(Instant::now() + RETRY_INTERVAL)?
                }
                Err(error) if is_of_the_peer(error) => {}
                Err(error) => return Err(Error::io("accept a connection", error)),
            }
        }
    }

    /// Returns the number of refused connections.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    fn refuse(&mut self, connected: Connected, why: &str) {
        reset(connected);
        self.refused += 1;
        if self.told.is_none_or(|told| told.elapsed() > NOTICE_INTERVAL) {
            self.told = Some(Instant::now());
            self.control.notify(format!("a connection was refused, {} so far: {why}", self.refused));
        }
    }

    /// Refuses one connection by means of the descriptor in reserve, so that its peer does not wait in vain.
    fn out_of_descriptors(&mut self) -> Result<(), Error> {
        self.reserve = None;
        match self.listener.try_accept() {
            Ok(Ok(connected)) => self.refuse(connected, "there are no more descriptors (ulimit -n)"),
            _ => self.control.sleep_until(Instant::now() + RETRY_INTERVAL)?,
        }
        self.reserve = reserved().ok();
        Ok(())
    }
}

fn reserved() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns true for errors of accept(2) that concern a connection which its peer has already closed.
fn is_of_the_peer(error: Errno) -> bool {
    matches!(
        error,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::NETDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::PERM
    )
}
