//! Pairs of operations on a file that docs/formats/log.md lists, each with the reason why replay is right, and the operations
//! of the model that perform them. A row of the table without one here fails a test, as does one that the model leaves out.

use super::history::{Event, Kind, Target};
use super::unseen::Method;

/// Operations of the model, of which each performs a pair.
#[derive(Clone, Copy, Debug)]
pub enum Walk {
    /// Operations of a kind on a file, between syncs of several processes.
    Operations(Target, Kind),
    /// Versions of a file.
    Versions(Target),
    /// Versions of the file that is changed unseen, by a method.
    Unseen(Method),
}

impl Walk {
    /// Returns true if a history has at least one complete operation of the walk.
    pub fn is_in(self, events: &[Event]) -> bool {
        events.iter().filter(|event| event.is_end).any(|event| match self {
            Walk::Operations(target, kind) => (event.target, event.kind) == (target, kind),
            Walk::Versions(target) => (event.target, event.kind) == (target, Kind::Version),
            Walk::Unseen(method) => {
                event.target == Target::Unseen && Method::of_version(event.offset) == Some(method)
            }
        })
    }
}

/// Rows of the table: the first operation, the one behind it, and their walks.
pub const PAIRS: [(&str, &str, &[Walk]); 17] = [
    (
        "commit",
        "commit",
        &[Walk::Operations(Target::Steady, Kind::Sync), Walk::Operations(Target::Appended, Kind::Sync)],
    ),
    ("commit", "write without a commit", &[Walk::Operations(Target::Steady, Kind::Write)]),
    // By a descriptor with O_DIRECT, and by syncfs(2).
    ("commit", "sync", &[Walk::Operations(Target::Words, Kind::Sync)]),
    ("sync", "commit", &[Walk::Operations(Target::Words, Kind::Sync)]),
    (
        "commit",
        "truncation, punching, collapsing and the like",
        &[
            Walk::Operations(Target::Words, Kind::Truncate),
            Walk::Operations(Target::Words, Kind::Punch),
            Walk::Unseen(Method::Collapse),
            Walk::Unseen(Method::Insert),
        ],
    ),
    ("truncation", "commit", &[Walk::Operations(Target::Words, Kind::Truncate)]),
    (
        "growing write",
        "commit",
        &[Walk::Operations(Target::Words, Kind::Write), Walk::Operations(Target::Appended, Kind::Append)],
    ),
    ("commit", "rename, link", &[Walk::Versions(Target::Linked)]),
    ("commit", "unlink of the last name", &[Walk::Versions(Target::Reused)]),
    ("unlink", "new file with the same inode number", &[Walk::Versions(Target::Reused)]),
    ("commit of a file", "rename of another over it", &[Walk::Versions(Target::Replaced)]),
    (
        "commit",
        "write through a mapping, by io_uring, or by a program that has the descriptor but not the library",
        &[Walk::Unseen(Method::Mapping), Walk::Unseen(Method::Ring), Walk::Unseen(Method::Descriptor)],
    ),
    (
        "commit",
        "write with O_SYNC, O_DSYNC, RWF_SYNC or RWF_DSYNC",
        &[
            Walk::Unseen(Method::Synchronous),
            Walk::Unseen(Method::Flag),
            Walk::Operations(Target::MoreWords, Kind::SyncedWrite),
        ],
    ),
    // The first of them come before the first sync.
    (
        "durable write by the kernel",
        "the file joins the log",
        &[Walk::Operations(Target::MoreWords, Kind::SyncedWrite)],
    ),
    ("commit", "write with O_DIRECT and O_SYNC or O_DSYNC", &[Walk::Unseen(Method::Direct)]),
    (
        "commit",
        "sendfile, splice, copy_file_range to a descriptor with O_SYNC or O_DSYNC",
        &[Walk::Unseen(Method::Send)],
    ),
    (
        "any",
        "write to a file that has the attribute S (chattr(1)) or whose mount is synchronous",
        &[Walk::Unseen(Method::Attribute)],
    ),
];
