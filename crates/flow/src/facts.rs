//! What a plan is made from: what the two ends are, and what this machine can do.
//!
//! Plain data: `look` collects it, [`crate::plan`] reads it, tests make it up.

use serde::Serialize;

/// All that a plan is made from, but for what the user wishes.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Where the data comes from.
    pub source: End,
    /// Where it goes.
    pub sink: End,
    /// A stage that must see every byte, by its text; none: nobody looks at the data on its way.
    pub looked_at_by: Option<String>,
    /// Whether it ends after so many bytes.
    pub is_limited: bool,
    /// What this machine can do.
    pub machine: Machine,
}

/// One end.
#[derive(Clone, Debug, Serialize)]
pub struct End {
    /// As the user said it.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes that are there to read, where that is known.
    pub size: Option<u64>,
    /// The file system it is on.
    pub file_system: Option<FileSystem>,
    /// How much of the source is in the page cache, 0 to 1, where that is known.
    pub cached: Option<f64>,
    /// Whether the source has holes.
    pub has_holes: bool,
    /// Whether the sink is written at its end, whoever else writes there.
    pub appends: bool,
    /// Whether what is behind a socket is on this machine for certain.
    pub is_local: bool,
}

impl End {
    /// One of which nothing is known but what it is.
    pub fn of(name: String, kind: Kind) -> End {
        End {
            name,
            kind,
            size: None,
            file_system: None,
            cached: None,
            has_holes: false,
            appends: false,
            is_local: false,
        }
    }
}

/// What an end is, as far as movers care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// A pipe, with a name or without one.
    Pipe,
    /// A connected socket that carries a stream.
    Stream,
    /// A terminal or another device that carries a stream.
    Device,
    /// Bytes that are made: zeros, random ones.
    Made,
    /// Nowhere.
    Nowhere,
    /// A path of containers.
    Memory,
    /// A connected socket that carries a stream in frames, with an end mark.
    Framed,
    /// A stream over QUIC.
    Quic,
    /// UDP datagrams.
    Udp,
    /// Ethernet frames.
    Ethernet,
}

impl Kind {
    /// Whether it has positions and pages.
    pub fn is_storage(self) -> bool {
        matches!(self, Kind::File | Kind::Block)
    }

    /// Whether it is one descriptor that carries a stream.
    pub fn is_stream(self) -> bool {
        matches!(self, Kind::Pipe | Kind::Stream | Kind::Device)
    }

    /// Whether it carries datagrams.
    pub fn is_datagrams(self) -> bool {
        matches!(self, Kind::Udp | Kind::Ethernet)
    }
}

/// What a file system can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    /// Its name, as `ext4`.
    pub name: String,
    /// Its number: the same for two files of one file system.
    pub device: u64,
    /// Whether files can share blocks.
    pub reflinks: bool,
    /// Whether it takes RWF_DONTCACHE.
    pub dontcache: bool,
    /// What offsets, lengths and memory must be multiples of, for O_DIRECT; none where there is none.
    pub direct_alignment: Option<u32>,
}

/// What this machine can do.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Whether there is io_uring; or why not.
    pub io_uring: Result<(), String>,
    /// Whether programs may be attached to network devices; or why not.
    pub xdp: Result<(), String>,
    /// The largest pipe that may be made, in bytes.
    pub pipe_bytes_max: usize,
}
