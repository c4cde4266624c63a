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

/// Data flow from a source to a sink. A flow can be planned, explained and started, more than once. Used by one thread at a
/// time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_flow {
    /// Number of the handle; 0 is no handle.
    pub id: u64,
}

handles! { bywash_flow }

static FLOWS: Table<Flow> = Table::new();

const NULL_FLOW: &CStr = c"the pointer for the new flow is null";
const NULL_WORD: &CStr = c"the text is null";

/// Parses a text of the program: an endpoint, a stage or a mover.
///
/// # Safety
/// `words` is null or leads to a text that ends with a zero.
unsafe fn read<V: FromStr<Err = Error>>(words: *const c_char) -> Result<V, Failure> {
    if words.is_null() {
        return Err(Failure::null(NULL_WORD));
    }
    // SAFETY: the caller keeps the contract in this function's Safety section.
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

/// Creates a flow from `source` to `sink`, two endpoints in the syntax of the command `bywash flow`:
/// "file:/a/b,offset=1M", a path alone, "tcp:example.org:9000", "unix-listen:/run/x", "-". Nothing is opened yet. Free the
/// flow by bywash_flow_free(), at any time after it was last started.
///
/// BYWASH_ERROR_OPTION: one of the two is not an endpoint; the message lists all kinds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_new(
    source: *const c_char,
    sink: *const c_char,
    flow: *mut bywash_flow,
) -> c_int {
    answer(check_place(flow, NULL_FLOW).and_then(|()| {
        // SAFETY: the header's rule: each pointer is null or valid, here to a text that ends with a zero.
        let made = unsafe { Flow::new(read(source)?, read(sink)?) };
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { put(flow, FLOWS.insert(made)?, NULL_FLOW) }
    }))
}

/// Frees a flow and zeroes the handle. A zero handle is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_free(flow: *mut bywash_flow) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(unsafe { consume(&FLOWS, flow) }.map(drop))
}

/// Appends a stage: "hash:sha256", "tee:ENDPOINT", "limit:SIZE", "rate:SIZE" (a second), "compress:zstd", "decompress:",
/// "exec:COMMAND".
///
/// BYWASH_ERROR_OPTION: the text is not a stage.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_stage(flow: bywash_flow, stage: *const c_char) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
    answer(unsafe { read(stage) }.and_then(|stage| change(flow, |flow| flow.stage(stage))))
}

/// Forces the mover of a flow: "splice", "copy-range", "buffer" and so on, as named in its plan.
///
/// BYWASH_ERROR_OPTION: no mover has this name. A mover that cannot move this flow fails with BYWASH_ERROR_UNFIT when the
/// flow is planned or started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_via(flow: bywash_flow, mover: *const c_char) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a text that ends with a zero.
    answer(unsafe { read(mover) }.and_then(|mover| change(flow, |flow| flow.via(mover))))
}

/// Sets whether sockets may send pages by reference: the contents at the time of sending, not at the time of reading. 0 is
/// no, the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_by_reference(flow: bywash_flow, by_reference: c_int) -> c_int {
    answer(change(flow, |flow| flow.by_reference(by_reference != 0)))
}

/// Sets the block size, from 512 bytes to 4 MiB (else BYWASH_ERROR_OPTION when the flow is planned or started). Default: the
/// planner's choice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_block(flow: bywash_flow, bytes: usize) -> c_int {
    answer(change(flow, |flow| flow.block(bytes)))
}

/// Sets whether the flow ends with an fsync of the sink; 0 is no, the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_sync(flow: bywash_flow, sync: c_int) -> c_int {
    answer(change(flow, |flow| flow.sync(sync != 0)))
}

/// Sets whether a flow between two sockets moves data from the source to the sink only, instead of in both directions; 0 is
/// no, the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_one_way(flow: bywash_flow, one_way: c_int) -> c_int {
    answer(change(flow, |flow| flow.one_way(one_way != 0)))
}

/// Sets whether the flow first searches for the highest rate without loss and then sends datagrams at that rate; 0 is no, the
/// default. The sink must be sequenced datagrams, and a receiver must be running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_finds_rate(flow: bywash_flow, finds_rate: c_int) -> c_int {
    answer(change(flow, |flow| flow.finds_rate(finds_rate != 0)))
}

/// Returns the plan of a flow as JSON: a list with a plan for each part, the same that `bywash flow --explain --json` prints.
/// Nothing is created, connected or moved. Free the text with bywash_text_free().
///
/// BYWASH_ERROR_OPTION, BYWASH_ERROR_UNFIT, BYWASH_ERROR_IO: an option is invalid, the endpoints do not fit together, or an
/// endpoint cannot be opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_plan(flow: bywash_flow, plan: *mut bywash_text) -> c_int {
    answer(check_place(plan, NULL_TEXT).and_then(|()| {
        let plans = copy_of(flow)?.plan()?;
        // Numbers and strings always have a JSON form.
        let json = serde_json::to_string_pretty(&plans).unwrap_or_default();
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { hand_out(c_text(json), plan) }
    }))
}

/// Like bywash_flow_plan(), but as text for people: the chosen mover, the alternatives, and the reasons.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_explain(flow: bywash_flow, text: *mut bywash_text) -> c_int {
    answer(check_place(text, NULL_TEXT).and_then(|()| {
        let plans = copy_of(flow)?.plan()?;
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { hand_out(c_text(plans.iter().map(ToString::to_string).collect()), text) }
    }))
}

/// Starts a flow in a thread of its own. bywash_running_wait() returns later errors. Free the handle by
/// bywash_running_free().
///
/// BYWASH_ERROR_OPTION, BYWASH_ERROR_UNFIT, BYWASH_ERROR_IO: an option is invalid, the endpoints do not fit together, or an
/// endpoint cannot be opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_flow_start(flow: bywash_flow, running: *mut bywash_running) -> c_int {
    answer(check_place(running, c"the pointer for the started flow is null").and_then(|()| {
        // SAFETY: not null, so valid by the header's rule, and the variable is the caller's.
        unsafe { start(&copy_of(flow)?, running) }
    }))
}
