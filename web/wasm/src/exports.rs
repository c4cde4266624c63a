//! Exports for passing texts: the page requests a buffer, writes its question into the buffer, requests the
//! answer, and reads it.
//!
//! The bytes of a program and its files are passed likewise, before the question that begins its execution.
//!
//! One buffer for the question and one for the answer suffice, because the module has one thread. The module
//! trusts no address: only the page uses the returned addresses, within the module's own memory. Only the
//! export names are unsafe.

#![allow(unsafe_code)]

use crate::program::Session;
use std::sync::Mutex;

#[link(wasm_import_module = "page")]
// SAFETY: the browser does not start the module unless the page supplies a function `watch`, and WebAssembly
// converts the argument and the result to these types.
unsafe extern "C" {
    /// Tells the page the share of a simulation that is done, 0 to 1. Returns 1 to continue or 0 to stop.
    safe fn watch(share: f64) -> u32;
}

static QUESTION: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static ANSWER: Mutex<String> = Mutex::new(String::new());
static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// Allocates the buffer for a question of `bytes` bytes and returns its address. The address is valid until
/// the next call; null if the buffer's lock is poisoned.
// SAFETY: no other symbol in this module has this name, so the export replaces no other function.
#[unsafe(no_mangle)]
extern "C" fn room_for_question(bytes: usize) -> *mut u8 {
    let Ok(mut question) = QUESTION.lock() else { return std::ptr::null_mut() };
    question.clear();
    question.resize(bytes, 0);
    question.as_mut_ptr()
}

/// Answers the question in the buffer and returns the length of the answer in bytes, or 0 if a lock is
/// poisoned.
// SAFETY: no other symbol in this module has this name, so the export replaces no other function.
#[unsafe(no_mangle)]
extern "C" fn answer_question() -> usize {
    let (Ok(question), Ok(mut answer)) = (QUESTION.lock(), ANSWER.lock()) else { return 0 };
    *answer = crate::reply(&String::from_utf8_lossy(&question), &mut |share| watch(share) != 0);
    answer.len()
}

/// Allocates the buffer for a program and its files, of `bytes` bytes, and returns its address. The address is valid
/// until the next question about a program; null if the lock is poisoned.
// SAFETY: no other symbol in this module has this name, so the export replaces no other function.
#[unsafe(no_mangle)]
extern "C" fn room_for_program(bytes: usize) -> *mut u8 {
    let Ok(mut session) = SESSION.lock() else { return std::ptr::null_mut() };
    session.get_or_insert_default().room(bytes).as_mut_ptr()
}

/// Answers the question about a program in the buffer and returns the length of the answer in bytes, or 0 if a lock
/// is poisoned.
// SAFETY: no other symbol in this module has this name, so the export replaces no other function.
#[unsafe(no_mangle)]
extern "C" fn answer_about_program() -> usize {
    let (Ok(question), Ok(mut answer), Ok(mut session)) = (QUESTION.lock(), ANSWER.lock(), SESSION.lock())
    else {
        return 0;
    };
    *answer = session.get_or_insert_default().reply(&String::from_utf8_lossy(&question));
    answer.len()
}

/// Returns the address of the answer, which is valid until the next question is answered.
// SAFETY: no other symbol in this module has this name, so the export replaces no other function.
#[unsafe(no_mangle)]
extern "C" fn answer_at() -> *const u8 {
    ANSWER.lock().map_or(std::ptr::null(), |answer| answer.as_ptr())
}
