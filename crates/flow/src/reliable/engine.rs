//! Thread that runs the QUIC library, so that a connection stays alive while the flow's own thread waits
//! elsewhere.
//!
//! A flow's thread may wait for a disk or a pipe for any time, but acknowledgements, retransmissions and
//! keep-alive packets must not be late. Therefore the library runs on a thread of its own, which also moves
//! encryption to another core, and the flow's thread awaits single operations here.
//!
//! Invariant: the flow's thread waits only in [`Control::wait`], on an eventfd that wakers write, so that it
//! stops as soon as the flow is cancelled. The library's thread ends when the engine is dropped, at most
//! [`RESET_TIME_MAX`] plus [`CLOSE_TIME_MAX`] later. Called by `handshake` and `stream`.

use crate::control::Control;
use crate::error::Error;
use quinn::{Connection, Endpoint, VarInt};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::sync::oneshot;

/// Greatest time for which a closed connection is kept, to repeat the close for a peer that did not receive
/// it.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// Greatest time that a peer has to react to a reset stream before an unfinished connection is closed. A
/// close right after the handshake may be encrypted with keys that the peer does not have yet, and nothing
/// repeats it; the reset of a stream is repeated until it is acknowledged.
const RESET_TIME_MAX: Duration = Duration::from_millis(200);

/// Close of a connection by this side.
pub(super) struct Close {
    pub(super) endpoint: Endpoint,
    pub(super) connection: Connection,
    pub(super) code: VarInt,
    /// True if the peer does not know yet that no more data follows.
    pub(super) early: bool,
}

/// Handle to the library's thread.
pub(super) struct Engine {
    handle: Handle,
    waker: Arc<ThreadWaker>,
    stop: Option<oneshot::Sender<Option<Close>>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    pub(super) fn start() -> Result<Engine, Error> {
        let failed = |error| Error::io("start what drives a reliable connection", error);
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(failed)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("make a descriptor that wakes a flow", error))?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("flow-quic".into())
            .spawn(move || drive(runtime, stopped))
            .map_err(failed)?;
        Ok(Engine { handle, waker: Arc::new(ThreadWaker { wake }), stop: Some(stop), thread: Some(thread) })
    }

    /// Waits until `future` is ready, or until the time `until` (result `None`). The future is dropped
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the flow is cancelled, [`Error::Io`] if poll(2) fails.
    pub(super) fn wait<F: Future>(
        &self,
        control: &Control,
        until: Option<Instant>,
        future: F,
    ) -> Result<Option<F::Output>, Error> {
        control.check()?;
        // The library spawns tasks and timers wherever it is polled, which needs the runtime's context.
        let _inside = self.inside();
        let waker = Waker::from(self.waker.clone());
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Ok(Some(output));
            }
            if !control.wait(self.waker.wake.as_fd(), PollFlags::IN, until)? {
                return Ok(None);
            }
            self.waker.reset();
        }
    }

    /// Enters the runtime's context, in which the library can spawn tasks and timers.
    pub(super) fn inside(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Starts `task` on the library's thread.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Closes the connection as `close` says, ends the library's thread and waits for that.
    pub(super) fn stop(&mut self, close: Option<Close>) {
        if let Some(stop) = self.stop.take() {
            // The send fails only if the thread has ended already.
            let _ = stop.send(close);
        }
        if let Some(thread) = self.thread.take() {
            // The join fails only after a panic, which the panic hook has reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop(None);
    }
}

fn drive(runtime: Runtime, stopped: oneshot::Receiver<Option<Close>>) {
    runtime.block_on(async {
        if let Ok(Some(close)) = stopped.await {
            let Close { endpoint, connection, code, early } = close;
            if early {
                let _ = tokio::time::timeout(RESET_TIME_MAX, connection.closed()).await;
            }
            connection.close(code, b"");
            let _ = tokio::time::timeout(CLOSE_TIME_MAX, endpoint.wait_idle()).await;
        }
    });
    // A thread that looks up a host name cannot be interrupted, so it is left to end by itself.
    runtime.shutdown_background();
}

/// Waker that wakes the flow's thread by an eventfd.
struct ThreadWaker {
    wake: OwnedFd,
}

impl ThreadWaker {
    /// Resets the eventfd. Called before each poll, so that every wake-up is followed by a poll.
    fn reset(&self) {
        // The read fails only if the counter is 0 already.
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The counter cannot overflow, since it is reset before each wait.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
