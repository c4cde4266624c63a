//! Waiting as a future, on any executor.
//!
//! A doorbell arrives through the socket, and one of several tasks may read it for all of them. So each task
//! begins to listen for reads before it requests a doorbell, and the task that reads notifies all listeners.

use crate::error::Error;
use crate::link::Link;
use crate::ring::WakeMethod;
use crate::spin_policy::LOOKS;
use crate::wait::Waiter;
use async_io::Async;
use event_listener::{Event, EventListener};
use futures_lite::future::{or, pending, poll_fn};
use std::future::Future;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::{io, thread};

/// A link's descriptors, registered with the reactor.
#[derive(Debug)]
pub(crate) struct Readiness {
    socket: Async<OwnedFd>,
    pidfd: Option<Async<OwnedFd>>,
    /// Event that a thread or task has read from the socket.
    read: Event,
}

fn watched(descriptor: BorrowedFd<'_>) -> io::Result<Async<OwnedFd>> {
    Async::new(descriptor.try_clone_to_owned()?)
}

fn failed(error: io::Error) -> Error {
    Error::io("wait for the peer", error)
}

impl Readiness {
    pub(crate) fn new(socket: BorrowedFd<'_>, pidfd: Option<BorrowedFd<'_>>) -> Result<Readiness, Error> {
        let pidfd = pidfd.map(watched).transpose().map_err(failed)?;
        Ok(Readiness { socket: watched(socket).map_err(failed)?, pidfd, read: Event::new() })
    }

    /// Notifies all listeners that the socket was read.
    pub(crate) fn was_read(&self) {
        self.read.notify(usize::MAX);
    }

    /// Waits until the socket is readable, was read since `listener` began to listen, or the peer dies; with
    /// `room`, until the socket has room for messages again instead of being readable.
    async fn changed(&self, listener: EventListener, room: bool) -> Result<(), Error> {
        let read = async {
            listener.await;
            Ok(())
        };
        let socket = async { if room { self.socket.writable().await } else { self.socket.readable().await } };
        let gone = async {
            match &self.pidfd {
                Some(pidfd) => pidfd.readable().await,
                None => pending().await,
            }
        };
        or(read, or(socket, gone)).await.map_err(failed)
    }
}

type Change<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// Returns a future for the next change on a link. Made before the bell is set, and awaited afterwards, it
/// misses nothing.
fn change(link: &Link, room: bool) -> Result<Change<'_>, Error> {
    let readiness = link.readiness()?;
    let listener = readiness.read.listen();
    Ok(Box::pin(readiness.changed(listener, room)))
}

impl Waiter<'_> {
    /// Like [`Waiter::wait`], as a future: it sleeps on the socket, whatever way of waiting was chosen, and
    /// has no timeout.
    ///
    /// # Errors
    /// Same as [`Waiter::wait`], without [`Error::TimedOut`].
    pub async fn wait_async<T>(
        &self,
        mut attempt: impl FnMut(u32) -> Result<Option<T>, Error> + Send,
    ) -> Result<T, Error> {
        self.link.check_process()?;
        if let Some(found) = attempt(LOOKS)? {
            self.waits.spins.add(1);
            return Ok(found);
        }
        loop {
            let mut changes = vec![change(self.link, self.waits_for_socket())?];
            // A connection that has ended is left out, since it would be readable for ever.
            for other in self.elsewhere.iter().filter(|other| !other.is_over()) {
                changes.push(change(other.link(), false)?);
            }
            self.set_bell(WakeMethod::Signal);
            self.elsewhere.iter().for_each(|other| other.set_bell());
            if let Some(found) = attempt(1)? {
                self.unset_bells();
                return Ok(found);
            }
            self.elsewhere.iter().for_each(|other| other.end_if_over());
            if self.link.is_over()? {
                // Entries that arrived before the end are still taken.
                return attempt(1)?.ok_or_else(|| self.link.ended());
            }
            self.waits.socket_sleeps.add(1);
            poll_fn(|context| {
                let ready = changes.iter_mut().find_map(|change| match change.as_mut().poll(context) {
                    Poll::Ready(changed) => Some(changed),
                    Poll::Pending => None,
                });
                ready.map_or(Poll::Pending, Poll::Ready)
            })
            .await?;
        }
    }
}

/// Runs `work`, which may take long, such as the handshake with a slow peer, on a thread of its own.
///
/// # Errors
/// [`Error::Io`] if the thread cannot be started, or the error of `work`.
pub async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let answer = Arc::new((Mutex::new(None), Event::new()));
    let take = |place: &Mutex<Option<_>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let theirs = answer.clone();
    let run = move || {
        let done = work();
        *theirs.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        theirs.1.notify(1);
    };
    let spawned = thread::Builder::new().name("bywash-greet".into()).spawn(run);
    spawned.map_err(|error| Error::io("start a thread", error))?;
    loop {
        let listener = answer.1.listen();
        if let Some(done) = take(&answer.0) {
            return done;
        }
        listener.await;
    }
}

/// Waits until a descriptor is readable.
///
/// # Errors
/// [`Error::Io`] if the descriptor cannot be duplicated or registered with the reactor.
pub async fn readable(descriptor: BorrowedFd<'_>) -> Result<(), Error> {
    let readable = async { watched(descriptor)?.readable().await };
    readable.await.map_err(failed)
}
