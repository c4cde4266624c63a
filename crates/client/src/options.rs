//! How a client is made.

use crate::error::Error;
use bywash_channel::{DEPTH_MAX, Wait};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Requests under way at a time, if nobody says and the server allows as many.
const DEPTH: u32 = 256;
/// Bytes of an arena, likewise.
const ARENA_BYTES: usize = 16 << 20;
/// Most bytes of a client's name.
const NAME_BYTES_MAX: usize = 64;

/// Which way to a volume is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Mapped where the medium is memory that can be mapped, else through the channel. [`Path`] says what it came to.
    #[default]
    Automatic,
    /// Mapped, or not at all.
    Mapped,
    /// Through the channel, always.
    Channel,
}

/// Which way a volume's bytes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// Its memory is mapped here: no server is on the way.
    Mapped,
    /// Through the channel to the server.
    Channel {
        /// Why it is not mapped.
        why: String,
    },
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Mapped => formatter.write_str("mapped"),
            Path::Channel { why } => write!(formatter, "through the channel: {why}"),
        }
    }
}

impl Path {
    /// Whether it is mapped.
    pub fn is_mapped(&self) -> bool {
        *self == Path::Mapped
    }
}

/// What is done when the server is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reconnect {
    /// Every request that was under way ends with [`Error::Gone`], and so does what comes later.
    #[default]
    No,
    /// For so long it is tried to connect again; then the volumes are opened again, and what was not completed is
    /// submitted again.
    Within(Duration),
}

/// Asks a program whether a wait shall end.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<dyn Fn() -> bool + Send + Sync>);

impl Interrupt {
    pub(crate) fn ends_it(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Interrupt")
    }
}

/// How a client is made.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) name: String,
    pub(crate) limit: Duration,
    pub(crate) depth: Option<u32>,
    pub(crate) arena_bytes: Option<usize>,
    pub(crate) wait: Wait,
    pub(crate) reconnect: Reconnect,
    pub(crate) choice: Choice,
    pub(crate) trusted: bool,
    pub(crate) interrupt: Option<Interrupt>,
}

impl Default for Options {
    fn default() -> Options {
        let name = std::env::args_os().next().map(std::path::PathBuf::from);
        let name = name.as_deref().and_then(std::path::Path::file_name).map(|name| name.to_string_lossy());
        let mut name = name.unwrap_or_default().into_owned();
        let end = (0..=NAME_BYTES_MAX.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
        name.truncate(end.unwrap_or(0));
        Options {
            name,
            limit: Duration::from_secs(10),
            depth: None,
            arena_bytes: None,
            wait: Wait::default(),
            reconnect: Reconnect::default(),
            choice: Choice::default(),
            trusted: false,
            interrupt: None,
        }
    }
}

impl Options {
    /// As the program is called, 10 s of patience, a depth of 256 and an arena of 16 MiB or what the server allows.
    pub fn new() -> Options {
        Options::default()
    }

    /// What the server's reports call this client: 64 bytes at most.
    pub fn name(mut self, name: impl Into<String>) -> Options {
        self.name = name.into();
        self
    }

    /// How long the server may take to answer. Default 10 s.
    pub fn limit(mut self, limit: Duration) -> Options {
        self.limit = limit;
        self
    }

    /// Requests under way at a time: a power of two.
    pub fn depth(mut self, requests: u32) -> Options {
        self.depth = Some(requests);
        self
    }

    /// Bytes of the arena that goes with the channel.
    pub fn arena_bytes(mut self, bytes: usize) -> Options {
        self.arena_bytes = Some(bytes);
        self
    }

    /// How completions are waited for.
    pub fn wait(mut self, wait: Wait) -> Options {
        self.wait = wait;
        self
    }

    /// What is done when the server is gone.
    pub fn reconnect(mut self, reconnect: Reconnect) -> Options {
        self.reconnect = reconnect;
        self
    }

    /// Which way to volumes is wanted.
    pub fn choice(mut self, choice: Choice) -> Options {
        self.choice = choice;
        self
    }

    /// Asked some twenty times a second while a call of a volume waits, by the thread that waits, which has no lock of
    /// the connection's but that for connecting again; when it answers true the call ends with [`Error::Interrupted`].
    /// So a program that hears of signals between its own steps can end a wait.
    pub fn interrupted_by(mut self, ends_it: impl Fn() -> bool + Send + Sync + 'static) -> Options {
        self.interrupt = Some(Interrupt(Arc::new(ends_it)));
        self
    }

    /// Buffers of the arena can be borrowed where they are ([`crate::Buffer::map`]), so that nothing is copied.
    ///
    /// # Safety
    /// The server must keep to the protocol: it must not touch a buffer but while a request with it is under way.
    pub unsafe fn trusted(mut self) -> Options {
        self.trusted = true;
        self
    }

    /// Bytes of the arena of a channel to a server that allows so many.
    pub(crate) fn arena(&self, arena_bytes_max: u64) -> usize {
        let most = usize::try_from(arena_bytes_max).unwrap_or(usize::MAX);
        self.arena_bytes.unwrap_or_else(|| ARENA_BYTES.min(most))
    }

    /// How the channel is made to a server that allows so much.
    ///
    /// # Errors
    /// What it does not allow.
    pub(crate) fn channel(
        &self,
        depth_max: u32,
        arena_bytes_max: u64,
    ) -> Result<bywash_channel::Options, Error> {
        let most = depth_max.clamp(1, DEPTH_MAX);
        let depth = self.depth.unwrap_or_else(|| DEPTH.min(1 << most.ilog2()));
        let arena_bytes = self.arena(arena_bytes_max);
        let refused = |option, value: String, most| {
            let allowed = format!("{most} at most, for this server").into();
            Err(Error::Option { option, value: value.into(), allowed })
        };
        if depth > depth_max {
            return refused("the depth", depth.to_string(), u64::from(depth_max));
        }
        if arena_bytes as u64 > arena_bytes_max {
            return refused("the arena", arena_bytes.to_string(), arena_bytes_max);
        }
        let options = bywash_channel::Options::new().depth(depth).arena_bytes(arena_bytes).wait(self.wait);
        match self.trusted {
            // SAFETY: whoever called `trusted` of these options has promised the same.
            true => Ok(unsafe { options.trusted() }),
            false => Ok(options),
        }
    }

    /// # Errors
    /// What cannot be.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.name.len() <= NAME_BYTES_MAX {
            return Ok(());
        }
        let allowed = format!("{NAME_BYTES_MAX} bytes at most").into();
        Err(Error::Option { option: "the client's name", value: self.name.as_str().into(), allowed })
    }
}
