//! Failures of bywash itself. Each message names the object, the reason and the remedy; [`Failure::status`]
//! returns the exit status.

use std::io;
use std::path::{Path, PathBuf};

/// Exit status of a failure of bywash itself, or of a wrong command line.
pub const EXIT_OWN_FAILURE: i32 = 125;
/// Exit status of a program that was found but could not be started.
pub const EXIT_NOT_EXECUTABLE: i32 = 126;
/// Exit status of a program that was not found.
pub const EXIT_NOT_FOUND: i32 = 127;

/// A failure of bywash, not of the program that it runs.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The preloaded library is in none of its places.
    #[error(
        "the library {name} was not found; looked for{}\n\
         bywash: remedy: keep it beside the bywash program, or install both with `make install`",
        .tried.iter().map(|path| format!("\n  {}", path.display())).collect::<String>()
    )]
    LibraryMissing {
        /// File name of the library.
        name: &'static str,
        /// Paths where the library was looked for.
        tried: Vec<PathBuf>,
    },

    /// The library's path contains a space or a colon, at which the dynamic loader would split it.
    #[error(
        "the library's path '{}' has a space or a colon in it, where LD_PRELOAD ends a path; \
         move bywash and its library to a path without them", .0.display()
    )]
    LibraryPath(PathBuf),

    /// /proc/self/exe cannot be read.
    #[error("cannot find the folder of bywash ({0}), where its library lies; is /proc mounted?")]
    OwnPath(io::Error),

    /// A prefix of `--only` or `--except` that cannot be passed to the library.
    #[error("{flag} '{prefix}': {reason}")]
    Prefix {
        /// The flag, with its dashes.
        flag: &'static str,
        /// The prefix as given.
        prefix: String,
        /// Reason and remedy.
        reason: String,
    },

    /// The report's file cannot be opened or written.
    #[error("--report '{}': cannot write it: {source}; name a file that can be made or overwritten", .path.display())]
    Report {
        /// The report's file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },

    /// The shared memory of a session cannot be created.
    #[error("cannot create the memory for the counters: {0}; run without --stats and --report")]
    Session(io::Error),

    /// The shared memory of a recording cannot be created.
    #[error(
        "cannot create the memory for the recording: {0}; it takes up to 640 MiB of memory and address space"
    )]
    Recording(io::Error),

    /// The machine is too busy, or the program's times vary too much, to predict anything.
    #[error("no prediction: {0}; try again on an idle machine")]
    Busy(String),

    /// A program that is to be predicted failed.
    #[error("'{program}' failed ({status}){said}; it must succeed each time, which --before may help with")]
    Program {
        /// The program as given.
        program: String,
        /// Its exit status, in words.
        status: String,
        /// Last line that it printed to standard error, if any.
        said: String,
    },

    /// The program was not found.
    #[error("cannot run '{program}': {source}; give its path, or a name that is found in PATH")]
    NotFound {
        /// The program as given.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// The program was found, and the kernel refused to execute it.
    #[error("cannot run '{program}': {source}; is it a program of this machine with permission to execute?")]
    NotExecutable {
        /// The program as given.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// Starting the program or waiting for it failed for a reason other than the program itself.
    #[error("cannot {what}: {source}")]
    Supervise {
        /// The step that failed, as a verb with its object.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },

    /// A generated file cannot be written.
    #[error("cannot write '{}': {source}; name a directory that you may write to", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },

    /// A file that was named cannot be read.
    #[error("cannot read '{}': {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },

    /// A file can be read, but its contents are invalid.
    #[error("'{}': {reason}", .path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// Reason, with the position in the file.
        reason: String,
    },

    /// A program cannot be executed in the simulated machine, or no further.
    #[error("'{}' in the simulated machine: {reason}", .program.display())]
    Simulated {
        /// The program's file.
        program: PathBuf,
        /// Reason and remedy.
        reason: String,
    },

    /// The file to measure on cannot be created.
    #[error(
        "cannot measure on a file in '{}': {source}; name by --dir a folder that you may write to, with {needed} free",
        .folder.display()
    )]
    Scratch {
        /// The folder of the file.
        folder: PathBuf,
        /// Size of the file, as text.
        needed: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// The machine refuses an operation that was to be measured.
    #[error("cannot measure {what}: {source}")]
    Measure {
        /// The operation.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },

    /// No built-in description has this name; the text says so.
    #[error("{0}")]
    Preset(String),

    /// This command was built without the planner's page.
    #[error(
        "this bywash was built without the planner's page; build it with `make`, or `make page` and the feature 'page'"
    )]
    PageMissing,

    /// The port cannot be bound.
    #[error("cannot serve on 127.0.0.1:{port}: {source}; name another --port, or 0 for any that is free")]
    Port {
        /// The port as given.
        port: u16,
        /// The kernel's reason.
        source: io::Error,
    },

    /// The device server cannot start.
    #[error(transparent)]
    Server(#[from] bywash_server::Error),

    /// A thread of the device server ended unexpectedly.
    #[error("a part of the server has failed, with the message above; start the server again")]
    Broken,

    /// A volume cannot be exported to virtual machines or NBD clients.
    #[error("cannot export volume '{volume}' to {whom}: {what}")]
    Export {
        /// Name of the volume.
        volume: String,
        /// Users of the export, for the message.
        whom: &'static str,
        /// Reason, as text.
        what: String,
    },

    /// The metrics cannot be served.
    #[error("cannot publish metrics at {place}: {source}; name another --metrics")]
    Metrics {
        /// Socket or address of the metrics.
        place: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// No server accepts a connection of this command.
    #[error("{error}; is a server there? `bywash serve --socket {}` starts one", .socket.display())]
    NoServer {
        /// Path of the server's socket.
        socket: PathBuf,
        /// Reason that the client gives.
        error: bywash_client::Error,
    },

    /// A server refused or failed a request.
    #[error(transparent)]
    Client(#[from] bywash_client::Error),

    /// The store of volumes refused or failed an operation.
    #[error(transparent)]
    Volumes(#[from] bywash_volume::Error),

    /// No user or group of this name exists.
    #[error("there is no {what} '{name}'; give a name or a number")]
    NoSuch {
        /// `"user"` or `"group"`.
        what: &'static str,
        /// The name as given.
        name: String,
    },

    /// A path that was named cannot be made absolute.
    #[error("cannot tell the server a path: {0}")]
    Path(String),

    /// The command needs a running server, and `--policy` was given.
    #[error("{0} needs a running server; leave --policy out")]
    NeedsServer(&'static str),

    /// The command needs a store that no server has open, and no `--policy` was given.
    #[error("{0} changes the store, which no server may have open; stop the server, and give --policy FILE")]
    NeedsStore(&'static str),

    /// An NVMe controller cannot be listed, taken, verified or given back.
    #[error(transparent)]
    Nvme(#[from] bywash_nvme::Error),

    /// A commit log refused or failed an operation.
    #[error(transparent)]
    Log(#[from] bywash_keeper::Error),

    /// The keeper of a log did not start; the text is its own.
    #[error("the keeper of the log did not start: {0}")]
    Keeper(String),

    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl Failure {
    /// Returns the exit status of this failure, by the conventions of env(1) and nohup(1).
    pub fn status(&self) -> i32 {
        match self {
            Failure::NotFound { .. } => EXIT_NOT_FOUND,
            Failure::NotExecutable { .. } => EXIT_NOT_EXECUTABLE,
            _ => EXIT_OWN_FAILURE,
        }
    }

    /// Returns the failure to start `program`: [`Failure::NotFound`] for ENOENT, [`Failure::NotExecutable`]
    /// otherwise.
    pub fn start(program: &Path, source: io::Error) -> Failure {
        let program = program.display().to_string();
        if source.kind() == io::ErrorKind::NotFound {
            Failure::NotFound { program, source }
        } else {
            Failure::NotExecutable { program, source }
        }
    }
}
