//! Flows that were started: how far they are, their end, and what became of them.
//!
//! Any thread may look at one, cancel it and wait for it, also while others do: all are told the same, as
//! often as they ask.

use crate::error::{Failure, answer, c_text};
use crate::handles::{Table, consume, handles, put, put_sized};
use crate::path::{check_place, limit};
use crate::text::{NULL_TEXT, bywash_text, hand_out};
use ::bywash_container::Error;
use ::bywash_flow::report::JsonReport;
use ::bywash_flow::{Flow, ProgressHandle, Report, Running};
use std::ffi::{CStr, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

/// A flow that was started. May be used by several threads at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_running {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_running }

/// Result of a flow. bywash_running_report() returns more.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct bywash_report {
    /// Bytes taken from the source, holes included.
    pub bytes: u64,
    /// Bytes of these that were holes and remained holes.
    pub holes: u64,
    /// Duration, in seconds.
    pub seconds: f64,
    /// Processor time, in seconds, of the flow's threads and of the programs that are its stages or
    /// endpoints.
    pub cpu_seconds: f64,
    /// 1 if the sink received all that the source sent, else 0.
    pub whole: u32,
    /// Number of parts that the flow consisted of: one, and one more for each program and for the opposite
    /// direction.
    pub pieces: u32,
}

/// Number of bytes in all, of a flow whose source has no known size.
pub const BYWASH_UNKNOWN: u64 = u64::MAX;

struct Started {
    running: Running,
    watch: ProgressHandle,
    /// The process that started it, which alone has its thread.
    process: u32,
}

/// Calls that are in flight keep what they wait for, whatever another thread does with the handle.
static RUNNING: Table<Arc<Started>> = Table::new();

impl Started {
    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

/// Lets it go on; where it has ended, its thread is gone when this returns.
fn let_go(started: Arc<Started>) {
    if !started.is_here() {
        // In a forked child there is no such thread.
        std::mem::forget(started);
    } else if let Some(last) = Arc::into_inner(started)
        && matches!(last.running.result(Some(Duration::ZERO)), Ok(Some(_)))
    {
        // What it has come to was there to be asked for.
        let _ = last.running.wait();
    }
}

fn summary(report: &Report) -> bywash_report {
    bywash_report {
        bytes: report.bytes,
        holes: report.pieces.iter().map(|piece| piece.holes).sum(),
        seconds: report.seconds,
        cpu_seconds: report.cpu_seconds,
        whole: u32::from(report.whole),
        pieces: u32::try_from(report.pieces.len()).unwrap_or(u32::MAX),
    }
}

/// One that stays as long as the answer.
fn started(handle: bywash_running) -> Result<Arc<Started>, Failure> {
    let started = RUNNING.look(handle, |started| started.clone())?;
    if started.is_here() { Ok(started) } else { Err(Error::Forked.into()) }
}

/// Starts a flow and tells C its handle.
///
/// # Safety
/// As [`put`], and not null.
pub(crate) unsafe fn start(flow: &Flow, place: *mut bywash_running) -> Result<(), Failure> {
    let running = flow.start()?;
    let watch = running.watch();
    let made = Started { running, watch, process: std::process::id() };
    let handle = RUNNING.offer(Arc::new(made)).map_err(|(failure, made)| {
        // Nobody would ever hear of it.
        made.watch.cancel();
        failure
    })?;
    // SAFETY: the caller keeps the contract in this function's Safety section.
    unsafe { put(place, handle, c"") }
}

/// Tells how many bytes a flow has taken from its source so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_running_moved(running: bywash_running, bytes: *mut u64) -> c_int {
    let known = started(running).map(|started| started.watch.moved());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(bytes, known, NULL_BYTES) }))
}

/// Tells how many bytes there are in all; BYWASH_UNKNOWN where nobody knows, and until the source is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_running_total(running: bywash_running, bytes: *mut u64) -> c_int {
    let known = started(running).map(|started| started.watch.total().unwrap_or(BYWASH_UNKNOWN));
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(bytes, known, NULL_BYTES) }))
}

const NULL_BYTES: &CStr = c"the pointer for the number of bytes is null";

/// Tells what there is to hear of a flow before its end, each notice on a line of its own, and each told
/// once: the fingerprint of a listener's certificate, say. The text is empty where there is nothing. Free it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_running_notices(running: bywash_running, notices: *mut bywash_text) -> c_int {
    answer(check_place(notices, NULL_TEXT).and_then(|()| {
        let lines = started(running)?.watch.take_notices().into_iter().map(|line| line + "\n");
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { hand_out(c_text(lines.collect()), notices) }
    }))
}

/// Ends a flow: it stops after the piece that it is moving, wherever it waits; bywash_running_wait() answers
/// BYWASH_ERROR_CANCELLED then. Where it has ended already this does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_running_cancel(running: bywash_running) -> c_int {
    answer(started(running).map(|started| started.watch.cancel()))
}

/// Tells a descriptor that is readable from the flow's end on, for an event loop. It stays the library's:
/// poll it, and do nothing else with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_running_fd(running: bywash_running, fd: *mut c_int) -> c_int {
    let known = started(running).map(|started| started.watch.as_fd().as_raw_fd());
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(known.and_then(|known| unsafe { put(fd, known, c"the pointer for the descriptor is null") }))
}

/// Waits until a flow has ended, for `timeout_ns` nanoseconds (negative: for ever; 0: not at all). When it
/// has, this answers whether it came to its end, and else why not; and in either case `report` gets how far
/// it came, if it is not null. `size` is sizeof(struct bywash_report) as the program knows it: it gets so
/// many bytes, and members that are newer than the library are 0. To ask again answers the same.
///
/// BYWASH_ERROR_TIMED_OUT: it goes on. BYWASH_ERROR_CANCELLED, BYWASH_ERROR_DATA, BYWASH_ERROR_LOST,
/// BYWASH_ERROR_PROGRAM, BYWASH_ERROR_IO: it did not come to its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_running_wait(
    running: bywash_running,
    timeout_ns: i64,
    report: *mut bywash_report,
    size: usize,
) -> c_int {
    answer(started(running).and_then(|started| {
        let limit = limit(timeout_ns);
        let Some(outcome) = started.running.result(limit)? else {
            let is_now = limit.is_some_and(|limit| limit.is_zero());
            return Err(if is_now { Failure::NOT_NOW } else { Error::TimedOut.into() });
        };
        let (found, verdict) = match outcome {
            Ok(report) => (report, Ok(())),
            Err(failed) => (&*failed.report, Err(Failure::from(&failed.error))),
        };
        if !report.is_null() {
            // SAFETY: valid by the header's rule for pointers, with `size` bytes of the caller.
            unsafe { put_sized(report, size, summary(found), c"") }?;
        }
        verdict
    }))
}

/// Tells all that is known of a flow that has ended, as JSON: its pieces and how each was moved, hashes, what
/// is kept of a file that is not whole, and as `error` why it did not come to its end, or null. The same as
/// `bywash flow --json` prints. Free the text.
///
/// BYWASH_ERROR_TIMED_OUT: it has not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_running_report(running: bywash_running, report: *mut bywash_text) -> c_int {
    answer(check_place(report, NULL_TEXT).and_then(|()| {
        let started = started(running)?;
        let outcome = started.running.result(Some(Duration::ZERO))?.ok_or(Failure::NOT_NOW)?;
        // Numbers and strings always have a JSON form.
        let json = serde_json::to_string_pretty(&JsonReport::new(outcome)).unwrap_or_default();
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { hand_out(c_text(json), report) }
    }))
}

/// Lets a started flow go and zeroes the handle. The flow goes on to its end, unless the program ends before;
/// to end it, bywash_running_cancel() and bywash_running_wait() first. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_running_free(running: *mut bywash_running) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&RUNNING, running) }.map(|started| started.map_or((), let_go)))
}
