//! Lets connections in as long as there is room for them, and turns the others away.
//!
//! Invariant: who is turned away hears it at once, by a reset (a Unix socket: by an end), is counted, and is
//! told of in a line at most every ten seconds; a descriptor is kept in reserve for that. Called by the
//! threads that serve.

use crate::control::Control;
use crate::end::{Connected, ListeningSocket, reset};
use crate::error::Error;
use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Descriptors that are left for everything but connections.
const OTHERS: u64 = 256;
/// Pause when the kernel has no memory or descriptors for anybody.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between lines about connections that were turned away.
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// Where connections come in.
pub(super) struct Admission<'a> {
    listener: &'a ListeningSocket,
    control: &'a Control,
    /// Closed to accept one connection more than there are descriptors for, and to refuse it.
    reserve: Option<OwnedFd>,
    refused: u64,
    told: Option<Instant>,
    /// Descriptors that this process may have.
    descriptors: u64,
}

impl<'a> Admission<'a> {
    /// Raises the limit of descriptors as far as this process may, and takes one in reserve.
    ///
    /// # Errors
    /// That not even that one can be had.
    pub(super) fn open(listener: &'a ListeningSocket, control: &'a Control) -> Result<Admission<'a>, Error> {
        let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
        if current != maximum {
            // Where it is refused there are fewer.
            let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        }
        let descriptors = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let reserve = Some(reserved().map_err(|error| Error::io("open /dev/null", error))?);
        Ok(Admission { listener, control, reserve, refused: 0, told: None, descriptors })
    }

    /// Most connections at a time, of `each` descriptors: as many as were asked for, else `usual`, but never
    /// more than there are descriptors for.
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

    /// The next connection for which there is room. `live` tells how many there are.
    ///
    /// # Errors
    /// That the flow was cancelled, or that nothing can be accepted here at all.
    pub(super) fn next(&mut self, room: u64, mut live: impl FnMut() -> u64) -> Result<Connected, Error> {
        loop {
            self.control.check()?;
            match self.listener.try_accept() {
                Ok(Ok(connected)) if live() < room => return Ok(connected),
                Ok(Ok(connected)) => self.turn_away(connected, &format!("{room} are served already (max=)")),
                // Its peer has gone.
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

    /// Connections that were turned away.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    fn turn_away(&mut self, connected: Connected, why: &str) {
        reset(connected);
        self.refused += 1;
        if self.told.is_none_or(|told| told.elapsed() > NOTICE_INTERVAL) {
            self.told = Some(Instant::now());
            self.control.notify(format!("a connection was refused, {} so far: {why}", self.refused));
        }
    }

    /// Refuses one connection by the descriptor in reserve, so that it need not wait for what will not come.
    fn out_of_descriptors(&mut self) -> Result<(), Error> {
        self.reserve = None;
        match self.listener.try_accept() {
            Ok(Ok(connected)) => self.turn_away(connected, "there are no more descriptors (ulimit -n)"),
            _ => self.control.sleep_until(Instant::now() + RETRY_INTERVAL)?,
        }
        self.reserve = reserved().ok();
        Ok(())
    }
}

fn reserved() -> Result<OwnedFd, Errno> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Errors of a connection that has gone before it was accepted (accept(2)).
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
