//! How texts come in and out: the page asks for room, writes its question there, asks for the answer, reads it.
//!
//! There is one room for the question and one for the answer, as there is one thread. No address is believed here: the
//! page alone uses them, on memory that is this module's own. The names are what is unsafe about an export.

#![allow(unsafe_code)]

use std::sync::Mutex;

#[link(wasm_import_module = "page")]
// SAFETY: the page gives a function of this kind when it starts the module, or the module does not start.
unsafe extern "C" {
    /// Hears which share of a simulation is done; answers whether to go on, as 1 or 0.
    safe fn watch(share: f64) -> u32;
}

static QUESTION: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static ANSWER: Mutex<String> = Mutex::new(String::new());

/// Where the page is to write its question, which is so long.
// SAFETY: nothing else here is called so.
#[unsafe(no_mangle)]
extern "C" fn room_for_question(bytes: usize) -> *mut u8 {
    let Ok(mut question) = QUESTION.lock() else { return std::ptr::null_mut() };
    question.clear();
    question.resize(bytes, 0);
    question.as_mut_ptr()
}

/// Answers the question; says how long the answer is.
// SAFETY: nothing else here is called so.
#[unsafe(no_mangle)]
extern "C" fn answer_question() -> usize {
    let (Ok(question), Ok(mut answer)) = (QUESTION.lock(), ANSWER.lock()) else { return 0 };
    *answer = crate::answer(&String::from_utf8_lossy(&question), &mut |share| watch(share) != 0);
    answer.len()
}

/// Where the answer is, until the next question is answered.
// SAFETY: nothing else here is called so.
#[unsafe(no_mangle)]
extern "C" fn answer_at() -> *const u8 {
    ANSWER.lock().map_or(std::ptr::null(), |answer| answer.as_ptr())
}
