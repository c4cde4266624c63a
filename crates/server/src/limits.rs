//! Limits of a user's clients, read from a file in TOML. Unless a line says otherwise, a limit holds for all
//! clients of the user together, on any number of connections.
//!
//! ```toml
//! # What everybody may have. All lines may be left out; these are the values that hold then.
//! [default]
//! clients = 256          # at a time
//! depth = 4096           # requests in flight, of one client; a power of two
//! arena = "1G"           # bytes of memory for data and rings
//! grants = 1024          # of one client
//! descriptors = 16       # grants by a descriptor
//! share = 1              # of each device, in proportion to other users'; 1 to 1000
//! # bandwidth = "2G"     # bytes a second of each device; no limit
//! # requests = 100000    # requests a second of each device; no limit
//! trusted = false        # may be granted hardware that it could misuse against other volumes of the hardware
//!
//! # What is different for one user, by name or number.
//! [user.backup]
//! share = 10
//! ```

use crate::schedule;
use bywash_quantity::ParseError;
use serde::{Deserialize, Deserializer};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Greatest number of clients of all users together.
pub const CLIENTS_MAX: usize = 1 << 14;

/// Greatest number of core threads of a server.
pub const CORES_MAX: usize = 64;

/// Limits of one user's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Greatest number of clients of the user at a time.
    pub clients: u32,
    /// Depth of one client's channel, in requests; a power of two.
    pub depth: u32,
    /// Greatest size of all channels of the user's clients together, arenas and rings, in bytes.
    pub arena: u64,
    /// Greatest number of grants of one client at a time.
    pub grants: u32,
    /// Greatest number of grants that the user's clients have opened by descriptors.
    pub descriptors: u32,
    /// True if the user may be granted hardware directly, whose admin commands could harm other volumes of the hardware.
    pub trusted: bool,
    /// Limits that the scheduler of each device enforces for the user.
    pub schedule: schedule::Limits,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients: 256,
            depth: 4096,
            arena: 1 << 30,
            grants: 1024,
            descriptors: 16,
            trusted: false,
            schedule: schedule::Limits::default(),
        }
    }
}

/// Limits of every user: those of `[user.NAME]` tables, and default ones for all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsFile {
    default: Limits,
    /// Limits of single users, by user number.
    users: HashMap<u32, Limits>,
}

/// Error for a file of limits that cannot be read or is malformed.
#[derive(Debug, thiserror::Error)]
#[error("{path} is no valid file of limits: {what}")]
pub struct LimitsError {
    path: PathBuf,
    what: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    default: Table,
    #[serde(default)]
    user: HashMap<String, Table>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Table {
    clients: Option<u32>,
    depth: Option<u32>,
    #[serde(default, deserialize_with = "size")]
    arena: Option<u64>,
    grants: Option<u32>,
    descriptors: Option<u32>,
    share: Option<u32>,
    #[serde(default, deserialize_with = "rate")]
    bandwidth: Option<u64>,
    requests: Option<u64>,
    trusted: Option<bool>,
}

/// Reads a number of bytes, given as a number or as text with a unit.
fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    quantity(from, bywash_quantity::size)
}

/// Reads a number of bytes per second, given as a number or as text with a unit.
fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    quantity(from, bywash_quantity::rate)
}

fn quantity<'de, D: Deserializer<'de>>(
    from: D,
    parse: fn(&str) -> Result<u64, ParseError>,
) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Quantity {
        Number(u64),
        Text(String),
    }
    match Quantity::deserialize(from)? {
        Quantity::Number(number) => Ok(Some(number)),
        Quantity::Text(text) => {
            let refused = |error| serde::de::Error::custom(format!("'{text}' is {error}"));
            parse(&text).map(Some).map_err(refused)
        }
    }
}

impl LimitsFile {
    /// Reads the limits from a file.
    ///
    /// # Errors
    /// [`LimitsError`] if the file cannot be read, is not TOML of this form, names an unknown user, names a
    /// user twice, or has a value out of its range.
    pub fn read(path: &Path) -> Result<LimitsFile, LimitsError> {
        let failed = |what: String| LimitsError { path: path.to_owned(), what };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        LimitsFile::parse(&text).map_err(failed)
    }

    fn parse(text: &str) -> Result<LimitsFile, String> {
        let text: Text = toml::from_str(text).map_err(|error| error.to_string())?;
        let default = text.default.over(Limits::default()).map_err(|what| format!("[default]: {what}"))?;
        let mut users = HashMap::new();
        for (user, table) in text.user {
            let number = number_of(&user)
                .ok_or_else(|| format!("[user.{user}]: there is no such user; give a name or a number"))?;
            let limits = table.over(default).map_err(|what| format!("[user.{user}]: {what}"))?;
            if users.insert(number, limits).is_some() {
                return Err(format!("[user.{user}]: user {number} is there twice"));
            }
        }
        Ok(LimitsFile { default, users })
    }

    /// Returns the limits of a user's clients.
    pub fn for_user(&self, uid: u32) -> &Limits {
        self.users.get(&uid).unwrap_or(&self.default)
    }
}

fn number_of(user: &str) -> Option<u32> {
    user.parse().ok().or_else(|| uzers::get_user_by_name(user).map(|user| user.uid()))
}

impl Table {
    fn over(self, base: Limits) -> Result<Limits, String> {
        let limits = Limits {
            clients: self.clients.unwrap_or(base.clients),
            depth: self.depth.unwrap_or(base.depth),
            arena: self.arena.unwrap_or(base.arena),
            grants: self.grants.unwrap_or(base.grants),
            descriptors: self.descriptors.unwrap_or(base.descriptors),
            trusted: self.trusted.unwrap_or(base.trusted),
            schedule: schedule::Limits {
                share: self.share.unwrap_or(base.schedule.share),
                bytes_per_second: self.bandwidth.or(base.schedule.bytes_per_second),
                requests_per_second: self.requests.or(base.schedule.requests_per_second),
            },
        };
        let depth_max = bywash_channel::DEPTH_MAX;
        if !limits.depth.is_power_of_two() || limits.depth > depth_max {
            return Err(format!("depth is {}, and must be a power of two up to {depth_max}", limits.depth));
        }
        if limits.grants == 0 || limits.grants > bywash_volume::GRANTS_MAX {
            let most = bywash_volume::GRANTS_MAX;
            return Err(format!("grants is {}, and must be 1 to {most}", limits.grants));
        }
        schedule::Schedule::new().join(limits.schedule).map_err(|error| error.to_string())?;
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_as_for_everybody() {
        let text = "[default]\narena = \"64M\"\nshare = 2\n[user.0]\nshare = 10\nbandwidth = 1000\n";
        let file = LimitsFile::parse(text).unwrap();
        let everybody = file.for_user(12345);
        assert_eq!((everybody.arena, everybody.schedule.share, everybody.depth), (64 << 20, 2, 4096));
        let root = file.for_user(0);
        assert_eq!((root.arena, root.schedule.share), (64 << 20, 10));
        assert_eq!(root.schedule.bytes_per_second, Some(1000));
        assert_eq!(LimitsFile::parse("").unwrap(), LimitsFile::default());
        assert!(!everybody.trusted && !LimitsFile::default().for_user(0).trusted);
        let text = "[default]\ntrusted = true\n[user.0]\ntrusted = false\n";
        let file = LimitsFile::parse(text).unwrap();
        assert!(file.for_user(1).trusted && !file.for_user(0).trusted);
        assert_eq!(LimitsFile::parse("[user.root]\nshare = 3").unwrap().for_user(0).schedule.share, 3);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, why) in [
            ("[default]\nshare = 0", "a share of 0"),
            ("[default]\ndepth = 100", "power of two"),
            ("[default]\ngrants = 0", "grants is 0"),
            ("[default]\narena = \"x\"", "'x' is not a size"),
            ("[default]\nbandwidth = 0", "of 0 a second"),
            ("[default]\nspeed = 1", "speed"),
            ("[user.nobody-by-that-name]\nshare = 1", "no such user"),
            ("[user.0]\nshare = 1\n[user.root]\nshare = 1", "twice"),
            ("rubbish", "line 1"),
        ] {
            let error = LimitsFile::parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
