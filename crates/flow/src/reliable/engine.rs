//! What keeps a connection alive while the flow's own thread is elsewhere: a thread that drives the library.
//!
//! A flow's thread may wait for a disk or a pipe for as long as it likes; acknowledgements, repairs and signs
//! of life cannot. So the library runs on a thread of its own (which also puts encryption on another core
//! than the flow's other end), and the flow's thread awaits single operations here.
//!
//! Invariant: the flow's thread waits in [`Control::wait`] only, on a descriptor that whoever wakes it
//! writes; so it ends as soon as the flow is cancelled. The thread ends with the engine, at the latest
//! [`SETTLING`] and [`FAREWELL`] after it was told. Called by `handshake` and `stream`.

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

/// How long a connection that this side closed is kept to repeat the closing for a peer that did not hear it.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long a peer that is left in the middle has to react to the end of the stream, before the connection is
/// closed. A closing right after the handshake may be sent under keys that the other side does not have, and
/// nothing repeats it; the end of a stream is repeated until it is heard.
const SETTLING: Duration = Duration::from_millis(200);

/// How a connection ends that this side closes.
pub(super) struct Farewell {
    pub(super) endpoint: Endpoint,
    pub(super) connection: Connection,
    pub(super) code: VarInt,
    /// The peer does not know yet that nothing more comes.
    pub(super) early: bool,
}

/// The thread, and how to wait for what it does.
pub(super) struct Engine {
    handle: Handle,
    waker: Arc<ThreadWaker>,
    stop: Option<oneshot::Sender<Option<Farewell>>>,
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

    /// Waits until `future` is done, or until it is time (`None`). A future that is given up is dropped.
    ///
    /// # Errors
    /// That the flow was cancelled, or what the kernel says.
    pub(super) fn wait<F: Future>(
        &self,
        control: &Control,
        until: Option<Instant>,
        future: F,
    ) -> Result<Option<F::Output>, Error> {
        control.check()?;
        // The library starts tasks and timers of its own wherever it is polled.
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
            self.waker.silence();
        }
    }

    /// Lets the library start what it needs.
    pub(super) fn inside(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Starts `task` beside the flow.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    /// Lets the peer know how the connection ends before the thread does, and waits for that.
    pub(super) fn stop(&mut self, farewell: Option<Farewell>) {
        if let Some(stop) = self.stop.take() {
            // The thread listens until it is told; where it is gone there is nobody to tell.
            let _ = stop.send(farewell);
        }
        if let Some(thread) = self.thread.take() {
            // It can only have failed by a panic, which has been reported.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop(None);
    }
}

fn drive(runtime: Runtime, stopped: oneshot::Receiver<Option<Farewell>>) {
    runtime.block_on(async {
        if let Ok(Some(farewell)) = stopped.await {
            let Farewell { endpoint, connection, code, early } = farewell;
            if early {
                let _ = tokio::time::timeout(SETTLING, connection.closed()).await;
            }
            connection.close(code, b"");
            let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
        }
    });
    // A look-up of a name cannot be interrupted; its thread is left to end by itself.
    runtime.shutdown_background();
}

/// Rung by whoever has something for the flow's thread.
struct ThreadWaker {
    wake: OwnedFd,
}

impl ThreadWaker {
    /// What rang before the next poll is seen by that poll.
    fn silence(&self) {
        // It holds 8 bytes or nothing.
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The counter cannot be full: it is set back before each wait.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
