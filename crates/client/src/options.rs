//! Options of a client, and their check against the limits of its server.

use crate::error::Error;
use bywash_channel::{DEPTH_MAX, Wait};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Default depth, where the server allows as many requests in flight.
const DEPTH: u32 = 256;
/// Default size of the arena in bytes, where the server allows as many.
const ARENA_BYTES: usize = 16 << 20;
/// Greatest length of a client's name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Path to a volume that the program chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathChoice {
    /// Maps the volume where its medium is memory that can be mapped, drives the hardware behind it where the server
    /// grants that, and else uses the channel. [`VolumePath`] tells which.
    #[default]
    Automatic,
    /// Maps the volume; opening fails where that is impossible.
    Mapped,
    /// Uses the channel, even if the volume could be mapped or direct.
    Channel,
}

/// Path that the bytes of a volume take between program and medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumePath {
    /// The volume's memory is mapped into this process: the server takes no part in an access.
    Mapped,
    /// Requests go to hardware that the server has handed to this process alone.
    Direct {
        /// PCI address of the NVMe controller's function.
        function: String,
        /// True if this process could harm others by the hardware's admin commands, and has the hardware because the
        /// server trusts its user; false if the hardware refuses these commands.
        needs_trust: bool,
        /// Reason why data is copied once on its path to the hardware, or `None` if it is not.
        why_copied: Option<String>,
    },
    /// Requests go through the channel to the server.
    Channel {
        /// Reason why the volume is neither mapped nor direct.
        why: String,
    },
}

impl fmt::Display for VolumePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VolumePath::Mapped => formatter.write_str("mapped"),
            VolumePath::Direct { function, needs_trust, why_copied } => {
                let trusted = if *needs_trust { ", trusted" } else { "" };
                write!(formatter, "direct{trusted}: function {function}")?;
                why_copied.iter().try_for_each(|why| write!(formatter, ", and data is copied: {why}"))
            }
            VolumePath::Channel { why } => write!(formatter, "through the channel: {why}"),
        }
    }
}

impl VolumePath {
    /// Returns true if the volume is mapped.
    pub fn is_mapped(&self) -> bool {
        *self == VolumePath::Mapped
    }

    /// Returns true if requests go to hardware that this process has to itself.
    pub fn is_direct(&self) -> bool {
        matches!(self, VolumePath::Direct { .. })
    }
}

/// Reaction of a client or queue to the death of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconnect {
    /// Every request in flight ends with [`Error::Gone`], and so does every later one. A compare-and-write in
    /// flight ends with [`Error::OutcomeUnknown`].
    #[default]
    No,
    /// Tries to connect again for this time. Then opens the volumes again, and submits again every request
    /// that was not completed, except a compare-and-write, which ends with [`Error::OutcomeUnknown`].
    Within(Duration),
}

/// The program's function that ends a wait by returning true.
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

/// Options of a [`crate::Client`] or a [`crate::Queue`].
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) name: String,
    pub(crate) timeout: Duration,
    pub(crate) depth: Option<u32>,
    pub(crate) arena_bytes: Option<usize>,
    pub(crate) wait: Wait,
    pub(crate) reconnect: Reconnect,
    pub(crate) choice: PathChoice,
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
            timeout: Duration::from_secs(10),
            depth: None,
            arena_bytes: None,
            wait: Wait::default(),
            reconnect: Reconnect::default(),
            choice: PathChoice::default(),
            trusted: false,
            interrupt: None,
        }
    }
}

impl Options {
    /// Returns the default options: the program's name, a timeout of 10 s, and a depth of 256 and an arena of
    /// 16 MiB, or less if the server allows only less.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the name of this client in the server's reports: at most 64 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Options {
        self.name = name.into();
        self
    }

    /// Sets the timeout: the greatest time that the server may take to reply. Default 10 s.
    pub fn limit(mut self, limit: Duration) -> Options {
        self.timeout = limit;
        self
    }

    /// Sets the depth, the greatest number of requests in flight: a power of two.
    pub fn depth(mut self, requests: u32) -> Options {
        self.depth = Some(requests);
        self
    }

    /// Sets the size of the channel's arena, in bytes.
    pub fn arena_bytes(mut self, bytes: usize) -> Options {
        self.arena_bytes = Some(bytes);
        self
    }

    /// Sets whether to spin or to sleep while waiting for completions.
    pub fn wait(mut self, wait: Wait) -> Options {
        self.wait = wait;
        self
    }

    /// Sets the reaction to the death of the server.
    pub fn reconnect(mut self, reconnect: Reconnect) -> Options {
        self.reconnect = reconnect;
        self
    }

    /// Sets the path that opened volumes take.
    pub fn choice(mut self, choice: PathChoice) -> Options {
        self.choice = choice;
        self
    }

    /// Sets a function by which the program can end a wait. While a call of a volume waits, the waiting
    /// thread calls the function some twenty times a second, holding no lock of the connection except the one
    /// for connecting again. When the function returns true, the call ends with [`Error::Interrupted`]. A
    /// program that notices signals only between its own steps can so end a wait. A queue ignores this
    /// option.
    pub fn interrupted_by(mut self, ends_it: impl Fn() -> bool + Send + Sync + 'static) -> Options {
        self.interrupt = Some(Interrupt(Arc::new(ends_it)));
        self
    }

    /// Lets the program borrow buffers of the arena in place ([`crate::Buffer::map`]), so that nothing is
    /// copied.
    ///
    /// # Safety
    /// The server must keep to the protocol: it may touch a buffer only while a request with that buffer is
    /// in flight.
    pub unsafe fn trusted(mut self) -> Options {
        self.trusted = true;
        self
    }

    /// Returns the size of the arena, in bytes, for a server that allows `arena_bytes_max`.
    pub(crate) fn arena(&self, arena_bytes_max: u64) -> usize {
        let most = usize::try_from(arena_bytes_max).unwrap_or(usize::MAX);
        self.arena_bytes.unwrap_or_else(|| ARENA_BYTES.min(most))
    }

    /// Returns the options of the channel to a server with these limits.
    ///
    /// # Errors
    /// [`Error::Option`] if the depth or the arena exceeds the server's limit.
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
            // SAFETY: the caller of `trusted` guarantees that the server touches a buffer only while its
            // request is in flight.
            true => Ok(unsafe { options.trusted() }),
            false => Ok(options),
        }
    }

    /// Checks the client's name.
    ///
    /// # Errors
    /// [`Error::Option`] if the name is longer than 64 bytes.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.name.len() <= NAME_BYTES_MAX {
            return Ok(());
        }
        let allowed = format!("{NAME_BYTES_MAX} bytes at most").into();
        Err(Error::Option { option: "the client's name", value: self.name.as_str().into(), allowed })
    }
}
