//! Flows as values: what moves from where to where, what it would do, and starting it.

use crate::error::bywash_error::BYWASH_ERROR_OPTION;
use crate::error::{Failure, answer, c_text};
use crate::handles::{Table, consume, handles, put};
use crate::path::check_place;
use crate::running::{bywash_running, start};
use crate::text::{NULL_TEXT, bywash_text, hand_out};
use ::bywash_flow::{Error, Flow};
use std::ffi::{CStr, c_char, c_int};
use std::str::FromStr;

/// Data from here to there: it can be planned, explained and started, more than once. Used by one thread at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_flow {
    /// 0: none.
    pub id: u64,
}

handles! { bywash_flow }

static FLOWS: Table<Flow> = Table::new();

const NULL_FLOW: &CStr = c"the pointer for the new flow is null";
const NULL_WORD: &CStr = c"the text is null";

/// What the program says in words: an endpoint, a stage, a mover.
///
/// # Safety
/// `words` is null or leads to a text that ends with a zero.
unsafe fn read<V: FromStr<Err = Error>>(words: *const c_char) -> Result<V, Failure> {
    if words.is_null() {
        return Err(Failure::null(NULL_WORD));
    }
    // SAFETY: what the caller promises.
    let bytes = unsafe { CStr::from_ptr(words) };
    let Ok(text) = bytes.to_str() else {
        let text = format!("'{}' is not UTF-8: give text that is", bytes.to_string_lossy());
        return Err(Failure::new(BYWASH_ERROR_OPTION, text));
    };
    Ok(text.parse::<V>()?)
}

fn change(flow: bywash_flow, change: impl FnOnce(Flow) -> Flow) -> Result<(), Failure> {
    FLOWS.look(flow, |flow| *flow = change(flow.clone()))
}

/// A flow of its own, so that no lock is held while files are looked at.
fn copy_of(flow: bywash_flow) -> Result<Flow, Failure> {
    FLOWS.look(flow, |flow| flow.clone())
}

/// Makes a flow from `source` to `sink`, which are endpoints as the command `bywash flow` has them:
/// "file:/a/b,offset=1M", a path alone, "tcp:example.org:9000", "unix-listen:/run/x", "-". Nothing is opened yet.
/// Free it by bywash_flow_free(); what was started with it does not need it.
///
/// BYWASH_ERROR_OPTION: one of them is no endpoint; the message lists those that there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_new(
    source: *const c_char,
    sink: *const c_char,
    flow: *mut bywash_flow,
) -> c_int {
    answer(check_place(flow, NULL_FLOW).and_then(|()| {
        // SAFETY: the caller's texts, or null.
        let made = unsafe { Flow::new(read(source)?, read(sink)?) };
        // SAFETY: the caller's variable, which is not null.
        unsafe { put(flow, FLOWS.insert(made)?, NULL_FLOW) }
    }))
}

/// Frees a flow and zeroes the handle. Zero is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_free(flow: *mut bywash_flow) -> c_int {
    // SAFETY: the caller's variable, or null.
    answer(unsafe { consume(&FLOWS, flow) }.map(drop))
}

/// Puts a stage behind those that are there: "hash:sha256", "tee:ENDPOINT", "limit:SIZE", "rate:SIZE" (a second),
/// "compress:zstd", "decompress:", "exec:COMMAND".
///
/// BYWASH_ERROR_OPTION: it is no stage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_stage(flow: bywash_flow, stage: *const c_char) -> c_int {
    // SAFETY: the caller's text, or null.
    answer(unsafe { read(stage) }.and_then(|stage| change(flow, |flow| flow.stage(stage))))
}

/// Lets a flow move by this mover and no other: "splice", "copy-range", "buffer" and so on, as in its plan.
///
/// BYWASH_ERROR_OPTION: there is no such mover. That it cannot move this flow (BYWASH_ERROR_UNFIT) is seen when
/// the flow is planned or started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_via(flow: bywash_flow, mover: *const c_char) -> c_int {
    // SAFETY: the caller's text, or null.
    answer(unsafe { read(mover) }.and_then(|mover| change(flow, |flow| flow.via(mover))))
}

/// Sets whether pages may be sent as they are when they leave, and not as they were when they were read; 0 is no,
/// the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_by_reference(flow: bywash_flow, by_reference: c_int) -> c_int {
    answer(change(flow, |flow| flow.by_reference(by_reference != 0)))
}

/// Sets the bytes of a block, from 512 to 4 MiB (else BYWASH_ERROR_OPTION when the flow is planned or started).
/// Default: the planner's choice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_block(flow: bywash_flow, bytes: usize) -> c_int {
    answer(change(flow, |flow| flow.block(bytes)))
}

/// Sets whether what was moved is on the device when the flow has ended; 0 is no, the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_sync(flow: bywash_flow, sync: c_int) -> c_int {
    answer(change(flow, |flow| flow.sync(sync != 0)))
}

/// Sets whether a flow between two sockets goes from the source to the sink only, and not back too; 0 is no, the
/// default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_one_way(flow: bywash_flow, one_way: c_int) -> c_int {
    answer(change(flow, |flow| flow.one_way(one_way != 0)))
}

/// Sets whether datagrams are sent at the highest rate at which nothing is lost, which is found first; 0 is no, the
/// default. The sink must be numbered datagrams, and a receiver must be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_finds_rate(flow: bywash_flow, finds_rate: c_int) -> c_int {
    answer(change(flow, |flow| flow.finds_rate(finds_rate != 0)))
}

/// Tells what a flow would do, as JSON: a list with a plan for each of its parts, of which programs make more than
/// one. The same as `bywash flow --explain --json` prints. Nothing is made, connected or moved. Free the text.
///
/// BYWASH_ERROR_OPTION, BYWASH_ERROR_UNFIT, BYWASH_ERROR_IO: it cannot be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_plan(flow: bywash_flow, plan: *mut bywash_text) -> c_int {
    answer(check_place(plan, NULL_TEXT).and_then(|()| {
        let plans = copy_of(flow)?.plan()?;
        // Numbers and strings always have a JSON form.
        let json = serde_json::to_string_pretty(&plans).unwrap_or_default();
        // SAFETY: the caller's variable, which is not null.
        unsafe { hand_out(c_text(json), plan) }
    }))
}

/// As bywash_flow_plan(), for people to read: what would be done, the alternatives, and why not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_explain(flow: bywash_flow, text: *mut bywash_text) -> c_int {
    answer(check_place(text, NULL_TEXT).and_then(|()| {
        let plans = copy_of(flow)?.plan()?;
        // SAFETY: the caller's variable, which is not null.
        unsafe { hand_out(c_text(plans.iter().map(ToString::to_string).collect()), text) }
    }))
}

/// Starts a flow, in a thread of its own. What fails after that is what bywash_running_wait() answers. Let it go by
/// bywash_running_free().
///
/// BYWASH_ERROR_OPTION, BYWASH_ERROR_UNFIT, BYWASH_ERROR_IO: it cannot be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_start(flow: bywash_flow, running: *mut bywash_running) -> c_int {
    answer(check_place(running, c"the pointer for the started flow is null").and_then(|()| {
        // SAFETY: the caller's variable, which is not null.
        unsafe { start(&copy_of(flow)?, running) }
    }))
}
