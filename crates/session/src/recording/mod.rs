//! The memory into which the processes of one recorded run write their calls, with start and end of each.
//!
//! `bywash plan record` makes a *recording*: a sparse memory file that the recorder (`libbywash_recorder.so`)
//! maps in every process of the run. Each thread claims chunks and adds its calls to them without a system
//! call; whoever made the recording reads it when the run has ended. A process that is killed leaves what it
//! had added. A full recording takes no further calls, and counts them.
//!
//! ```
//! use bywash_session::recording::{Function, Owner, Recording, Sample};
//!
//! let recording = Recording::create(16)?;
//! // In a thread of a recorded process (here the same one):
//! let here = Recording::open(&recording.path())?;
//! let chunk = here.claim_chunk(Owner { process: 1, pid: 7, thread: 7, parent: 1 }, 0).expect("there are sixteen");
//! chunk.push(Sample { function: Function::ReadAt as u32, start: 10, end: 25, length: 4096, ..Sample::default() });
//!
//! let all = recording.read();
//! assert_eq!((all.calls[0].function, all.calls[0].length), (Function::ReadAt, 4096));
//! # Ok::<(), bywash_session::Error>(())
//! ```
//!
//! - [`layout`]: what stands where in the memory, and its version
//! - [`memory`]: the mapping, claiming and adding
//! - [`reader`]: copies of everything that was recorded

pub mod layout;
pub mod memory;
pub mod reader;

pub use layout::{CHUNK_CALLS, Function};
pub use memory::{Chunk, Described, Owner, Recording, Sample, ticks};
pub use reader::{RecordedCall, RecordedFile, RecordedRun};

/// Variable of the environment with the path of the recording's memory.
pub const VARIABLE: &str = "BYWASH_RECORDING";
