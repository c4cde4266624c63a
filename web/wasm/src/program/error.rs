//! Reasons for refusing questions about a program.

use crate::reading;
use bywash_execute::clients::LoadError;
use bywash_execute::{ExecuteError, ImportError};
use bywash_sim::program::MachineError;

/// Greatest simulated time of an execution, in seconds.
pub const SECONDS_MAX: f64 = 1000.0;

/// Reason for refusing a question about a program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a valid question.
    #[error("this is not a question: {0}")]
    Question(serde_json::Error),
    /// The description is invalid, or a result has no JSON form.
    #[error("{0}")]
    Description(#[from] reading::Error),
    /// The description is no machine for programs.
    #[error("{0}")]
    Machine(#[from] MachineError),
    /// The files do not fit into the simulated file system.
    #[error("{0}")]
    Files(#[from] ImportError),
    /// The program cannot be executed.
    #[error("{0}")]
    Execute(#[from] ExecuteError),
    /// The program does not serve its clients.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The arguments or the paths are too many.
    #[error("more than {0} words in the arguments or paths: give fewer, or a smaller range in braces")]
    Words(usize),
    /// The clients have no paths.
    #[error("the clients have nothing to get: give a path, such as /index.html")]
    NoPaths,
    /// The passed bytes are fewer than the program and its files need.
    #[error("{given} bytes were passed, and the program with its files has {wanted}")]
    Bytes {
        /// Number of passed bytes.
        given: usize,
        /// Number of bytes that the question names.
        wanted: usize,
    },
    /// The simulated time is out of range.
    #[error("the simulated time must be more than 0 s, and at most {SECONDS_MAX} s")]
    Time,
    /// All threads wait, and nothing can wake them.
    #[error("all threads of the program wait for each other, or for clients: give it clients")]
    Idle,
    /// The session has no execution in the state that the question needs.
    #[error("no program {0}")]
    State(&'static str),
}
