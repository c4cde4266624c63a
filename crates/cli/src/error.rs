//! Why bywash itself could not do what it was asked. Each message names the thing, the reason and the
//! remedy; [`Failure::status`] is the exit status that goes with it.

use crate::cli::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, EXIT_OWN_FAILURE};
use std::io;
use std::path::{Path, PathBuf};

/// A failure of bywash, not of the program that it runs.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The preloaded library is in none of the places.
    #[error(
        "the library {name} was not found; looked for{}\n\
         bywash: remedy: keep it beside the bywash program, or install both with `make install`",
        .tried.iter().map(|path| format!("\n  {}", path.display())).collect::<String>()
    )]
    LibraryMissing {
        /// Its file name.
        name: &'static str,
        /// Where it was looked for.
        tried: Vec<PathBuf>,
    },

    /// The dynamic loader would cut the path in two.
    #[error(
        "the library's path '{}' has a space or a colon in it, where LD_PRELOAD ends a path; \
         move bywash and its library to a path without them", .0.display()
    )]
    LibraryPath(PathBuf),

    /// /proc/self/exe cannot be read.
    #[error("cannot tell where bywash itself lies ({0}), to find its library beside it; is /proc mounted?")]
    OwnPath(io::Error),

    /// A prefix that cannot be handed on.
    #[error("{flag} '{prefix}': {reason}")]
    Prefix {
        /// The flag it came with.
        flag: &'static str,
        /// As it was given.
        prefix: String,
        /// What is wrong and what to do.
        reason: String,
    },

    /// The report's file cannot be opened or written.
    #[error("--report '{}': cannot write it: {source}; name a file that can be made or overwritten", .path.display())]
    Report {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },

    /// No memory to count in.
    #[error("cannot make the memory to count in: {0}; run without --stats and --report")]
    Session(io::Error),

    /// The program is not there.
    #[error("cannot run '{program}': {source}; give its path, or a name that is found in PATH")]
    NotFound {
        /// As it was given.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// The program is there, and the kernel refused it.
    #[error("cannot run '{program}': {source}; is it a program of this machine with permission to execute?")]
    NotExecutable {
        /// As it was given.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// Starting or waiting failed for a reason that is not the program's.
    #[error("cannot {what}: {source}")]
    Supervise {
        /// The step.
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

    /// A file that is named cannot be read.
    #[error("cannot read '{}': {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },

    /// It can be read, and says what cannot be.
    #[error("'{}': {reason}", .path.display())]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },

    /// There is no file to measure on.
    #[error(
        "cannot measure on a file in '{}': {source}; name by --dir a folder that you may write to, with {needed} free",
        .folder.display()
    )]
    Scratch {
        /// The folder.
        folder: PathBuf,
        /// What is made there.
        needed: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// The machine does not do what is to be measured.
    #[error("cannot measure {what}: {source}")]
    Measure {
        /// What.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },

    /// None of that name comes along.
    #[error("{0}")]
    Preset(String),

    /// The planner's page is not in this command.
    #[error(
        "this bywash was built without the planner's page; build it with `make`, or `make page` and the feature 'page'"
    )]
    PageMissing,

    /// The port cannot be had.
    #[error("cannot serve on 127.0.0.1:{port}: {source}; name another --port, or 0 for any that is free")]
    Port {
        /// As it was given.
        port: u16,
        /// The kernel's reason.
        source: io::Error,
    },

    /// There is no server.
    #[error(transparent)]
    Server(#[from] bywash_server::Error),

    /// A thread of the server has ended that never should.
    #[error("something of the server has broken, and what it said is above; start it again")]
    Broken,

    /// A volume cannot be offered to virtual machines.
    #[error("cannot offer volume '{volume}' to virtual machines: {what}")]
    Export {
        /// Its name.
        volume: String,
        /// Why not.
        what: String,
    },

    /// Metrics cannot be told.
    #[error("cannot tell metrics at {place}: {source}; name another --metrics")]
    Metrics {
        /// As it was given.
        place: String,
        /// The kernel's reason.
        source: io::Error,
    },

    /// No server lets this command in.
    #[error("{error}; is a server there? `bywash serve --socket {}` starts one", .socket.display())]
    NoServer {
        /// Where it was looked for.
        socket: PathBuf,
        /// Why not.
        error: bywash_client::Error,
    },

    /// A server did not do what it was asked.
    #[error(transparent)]
    Client(#[from] bywash_client::Error),

    /// The store of volumes did not.
    #[error(transparent)]
    Volumes(#[from] bywash_volume::Error),

    /// There is no such user or group.
    #[error("there is no {what} '{name}'; give a name or a number")]
    NoSuch {
        /// User or group.
        what: &'static str,
        /// As it was given.
        name: String,
    },

    /// That takes a server.
    #[error("{0} takes a server that runs; leave --policy out")]
    NeedsServer(&'static str),

    /// A store is in use by a server, and the command needs one that is not.
    #[error("{0} takes the store, while no server has it; stop the server, and give --policy FILE")]
    NeedsStore(&'static str),

    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl Failure {
    /// The exit status that says so, as env(1) and nohup(1) have it.
    pub fn status(&self) -> i32 {
        match self {
            Failure::NotFound { .. } => EXIT_NOT_FOUND,
            Failure::NotExecutable { .. } => EXIT_NOT_EXECUTABLE,
            _ => EXIT_OWN_FAILURE,
        }
    }

    /// The failure to start `program`.
    pub fn start(program: &Path, source: io::Error) -> Failure {
        let program = program.display().to_string();
        if source.kind() == io::ErrorKind::NotFound {
            Failure::NotFound { program, source }
        } else {
            Failure::NotExecutable { program, source }
        }
    }
}
