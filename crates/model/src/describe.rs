//! Descriptions of a machine and its workload in TOML or JSON, which the model and the simulator share.
//!
//! ```toml
//! [machine]
//! processors = { count = 1, speed = "1.5 GHz" }
//! interconnect = { rate = "2 GiB/s" }
//! interfaces = { count = 4, rate = "116 MiB/s", processor = "300 MHz" }
//! disks = { count = 4, rate = "6.7 MiB/s", processor = "300 MHz" }
//!
//! [request.web]        # or video, streams, dynamic
//! file = "16 KiB"
//! miss = "10 %"
//!
//! [load]               # optional
//! threads = 256
//! think = "0 s"
//! arrivals = "2000 /s" # optional: an open load
//!
//! [costs]              # optional; `implied_costs` tells of those that a text leaves out
//! server = "0.15 cycles/B"
//! tcp = "3.8 cycles/B"
//! file-system = "1.5 cycles/B"
//! system = "4.55 cycles/B"
//! ```
//!
//! An unknown key, a unit that does not fit, or an impossible value is an error that names the line or the
//! key.

use crate::demand::{Architecture, Demand, MissingProcessor};
use crate::machine::{Machine, Memory, Rotating};
use crate::units::{Cycles, CyclesPerByte, Frequency, PerSecond, Rate, Share, Size, Time};
use crate::work::{Costs, Load, Mechanisms, Request, Workload};
use serde::{Deserialize, Serialize};

/// Description of a server: machine, workload and I/O architecture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// I/O architecture, unless several architectures are compared.
    #[serde(default)]
    pub architecture: Architecture,
    /// Machine of the server.
    pub machine: Machine,
    /// Kind and size of the requests.
    pub request: Request,
    /// Requests that come, and the threads that serve them.
    #[serde(default)]
    pub load: Load,
    /// Costs of the requests on the processors.
    #[serde(default)]
    pub costs: Costs,
    /// Parts of the I/O that a user-level server performs at user level.
    #[serde(default)]
    pub mechanisms: Mechanisms,
}

/// Error for a description that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text cannot be parsed. The message names the place.
    #[error("{0}")]
    Unreadable(String),
    /// A value parses, but is outside its range.
    #[error("{key} is {value}, and must be {must}")]
    OutOfRange {
        /// Key of the value.
        key: &'static str,
        /// The value.
        value: String,
        /// Range of the value, in words.
        must: &'static str,
    },
    /// The description has no such key. Holds the key and the list of all keys.
    #[error("there is no '{0}'; there are {1}")]
    NoSuchKey(String, String),
    /// The architecture needs processors that the devices do not have.
    #[error(transparent)]
    MissingProcessor(#[from] MissingProcessor),
}

/// Costs of the paper that a description without them is given, with their keys.
const PAPER_COSTS: [&str; 4] = ["server", "tcp", "file-system", "system"];

/// Returns the costs per byte that `text`, a description in TOML or JSON, leaves out, with the values that it
/// is given for them: those of the paper, of 2003. The list is empty for a text that is neither.
pub fn implied_costs(text: &str) -> Vec<(&'static str, CyclesPerByte)> {
    let Costs { server, tcp, file_system, system, .. } = Costs::default();
    let all = PAPER_COSTS.into_iter().zip([server, tcp, file_system, system]);
    all.filter(|(name, _)| has_cost(text, name) == Some(false)).collect()
}

/// Returns the cost of a system call without I/O (`trap`) that `text`, a description in TOML or JSON, is given, if it
/// leaves that out; it matters to programs that are executed only. `None` also for a text that is neither.
pub fn implied_trap(text: &str) -> Option<Cycles> {
    (has_cost(text, "trap") == Some(false)).then(|| Costs::default().trap)
}

/// Returns whether a description names a cost; `None` for a text that is neither TOML nor JSON.
fn has_cost(text: &str, name: &str) -> Option<bool> {
    let is_json = text.trim_start().starts_with('{');
    let written: Option<serde_json::Value> =
        if is_json { serde_json::from_str(text).ok() } else { toml::from_str(text).ok() };
    Some(written?.get("costs").and_then(|costs| costs.get(name)).is_some())
}

impl Description {
    /// Returns the description of `machine` and `work`, with the conventional architecture.
    pub fn new(machine: Machine, work: Workload) -> Description {
        let Workload { request, costs, load, mechanisms } = work;
        Description { architecture: Architecture::Conventional, machine, request, load, costs, mechanisms }
    }

    /// Parses a description from TOML.
    ///
    /// # Errors
    /// [`Error::Unreadable`] with the line if `text` is not TOML, has an unknown key, lacks a key or has a
    /// unit that does not fit; otherwise like [`Description::checked`].
    pub fn from_toml(text: &str) -> Result<Description, Error> {
        toml::from_str(text)
            .map_err(|error| Error::Unreadable(error.to_string()))
            .and_then(Description::checked)
    }

    /// Parses a description from JSON.
    ///
    /// # Errors
    /// [`Error::Unreadable`] with the line if `text` is not JSON, has an unknown key, lacks a key or has a
    /// unit that does not fit; otherwise like [`Description::checked`].
    pub fn from_json(text: &str) -> Result<Description, Error> {
        serde_json::from_str(text)
            .map_err(|error| Error::Unreadable(error.to_string()))
            .and_then(Description::checked)
    }

    /// Returns the description if all its values are in their ranges.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if a count, speed, rate or request size is not positive, if there are too many
    /// threads, or if a share exceeds 100 %.
    pub fn checked(self) -> Result<Description, Error> {
        checked(self)
    }

    /// Checks that the machine can have `architecture`.
    ///
    /// # Errors
    /// [`Error::MissingProcessor`] if devices would have to compute and have no processor.
    pub fn supports(&self, architecture: Architecture) -> Result<(), Error> {
        Ok(Demand::check(&self.machine, &self.workload(), architecture)?)
    }

    /// Returns the architectures that the machine can have, in the order of [`Architecture::ALL`].
    pub fn supported(&self) -> Vec<Architecture> {
        Architecture::ALL.into_iter().filter(|one| self.supports(*one).is_ok()).collect()
    }

    /// Returns the workload of the description.
    pub fn workload(&self) -> Workload {
        let Description { request, costs, load, mechanisms, .. } = *self;
        Workload { request, costs, load, mechanisms }
    }
}

/// A number of a description that can be varied.
#[derive(Clone, Copy)]
pub struct Key {
    /// Name of the number, as in TOML.
    pub name: &'static str,
    parse: fn(&str) -> Result<f64, String>,
    write: fn(f64) -> String,
    at: fn(&mut Description) -> Option<&mut f64>,
}

macro_rules! keys {
    ($($name:literal: $unit:ident, |$it:ident| $at:expr;)*) => {
        const KEYS: &[Key] = &[$(Key {
            name: $name,
            parse: |text| text.parse::<$unit>().map(|value| value.0).map_err(|error| error.to_string()),
            write: |value| $unit(value).to_string(),
            at: |$it| $at,
        }),*];
    };
}

keys! {
    "machine.processors.count": Count, |it| Some(&mut it.machine.processors.count);
    "machine.processors.speed": Frequency, |it| Some(&mut it.machine.processors.speed.0);
    "machine.interconnect.rate": Rate, |it| Some(&mut it.machine.interconnect.rate.0);
    "machine.memory.rate": Rate, |it| memory(it, |memory| &mut memory.rate.0);
    "machine.memory.banks": Count, |it| memory(it, |memory| &mut memory.banks);
    "machine.memory.latency": Time, |it| memory(it, |memory| &mut memory.latency.0);
    "machine.memory.l2": Size, |it| memory(it, |memory| &mut memory.l2.0);
    "machine.memory.misses": Count, |it| memory(it, |memory| &mut memory.misses);
    "machine.memory.write-buffer": Size, |it| memory(it, |memory| &mut memory.write_buffer.0);
    "machine.memory.file-cache": Size, |it| memory(it, |memory| &mut memory.file_cache.0);
    "machine.interconnect.latency": Time, |it| Some(&mut it.machine.interconnect.latency.0);
    "machine.interconnect.packet": Size, |it| Some(&mut it.machine.interconnect.packet.0);
    "machine.interconnect.overhead": Size, |it| Some(&mut it.machine.interconnect.overhead.0);
    "machine.interconnect.arbitration": Time, |it| Some(&mut it.machine.interconnect.arbitration.0);
    "machine.interconnect.host": Rate, |it| Some(&mut it.machine.interconnect.host.0);
    "machine.interconnect.pending": Count, |it| Some(&mut it.machine.interconnect.pending);
    "machine.interfaces.count": Count, |it| Some(&mut it.machine.interfaces.count);
    "machine.interfaces.rate": Rate, |it| Some(&mut it.machine.interfaces.rate.0);
    "machine.interfaces.processor": Frequency, |it| Some(&mut it.machine.interfaces.processor.0);
    "machine.disks.count": Count, |it| Some(&mut it.machine.disks.count);
    "machine.disks.rate": Rate, |it| Some(&mut it.machine.disks.rate.0);
    "machine.disks.processor": Frequency, |it| Some(&mut it.machine.disks.processor.0);
    "machine.disks.cache": Size, |it| Some(&mut it.machine.disks.cache.0);
    "machine.disks.segments": Count, |it| Some(&mut it.machine.disks.segments);
    "machine.disks.command": Size, |it| Some(&mut it.machine.disks.command.0);
    "machine.disks.rotating.seek": Time, |it| rotating(it, |rotating| &mut rotating.seek.0);
    "machine.disks.rotating.track": Time, |it| rotating(it, |rotating| &mut rotating.track.0);
    "machine.disks.rotating.tracks": Count, |it| rotating(it, |rotating| &mut rotating.tracks);
    "machine.disks.rotating.track-size": Size, |it| rotating(it, |rotating| &mut rotating.track_size.0);
    "machine.disks.rotating.turn": Time, |it| rotating(it, |rotating| &mut rotating.turn.0);
    "machine.disks.flash.latency": Time, |it| it.machine.disks.flash.as_mut().map(|flash| &mut flash.latency.0);
    "machine.disks.flash.channels": Count, |it| it.machine.disks.flash.as_mut().map(|flash| &mut flash.channels);
    "request.web.file": Size, |it| match &mut it.request {
        Request::Web { file, .. } => Some(&mut file.0),
        _ => None,
    };
    "request.web.miss": Share, |it| match &mut it.request {
        Request::Web { miss, .. } => Some(&mut miss.0),
        _ => None,
    };
    "request.video.file": Size, |it| match &mut it.request {
        Request::Video { file } => Some(&mut file.0),
        _ => None,
    };
    "request.streams.block": Size, |it| match &mut it.request {
        Request::Streams { block, .. } => Some(&mut block.0),
        _ => None,
    };
    "request.streams.writes": Share, |it| match &mut it.request {
        Request::Streams { writes, .. } => Some(&mut writes.0),
        _ => None,
    };
    "request.blocks.block": Size, |it| match &mut it.request {
        Request::Blocks { block, .. } => Some(&mut block.0),
        _ => None,
    };
    "request.blocks.writes": Share, |it| match &mut it.request {
        Request::Blocks { writes, .. } => Some(&mut writes.0),
        _ => None,
    };
    "request.database.page": Size, |it| match &mut it.request {
        Request::Database { page, .. } => Some(&mut page.0),
        _ => None,
    };
    "request.database.pages": Count, |it| match &mut it.request {
        Request::Database { pages, .. } => Some(pages),
        _ => None,
    };
    "request.database.miss": Share, |it| match &mut it.request {
        Request::Database { miss, .. } => Some(&mut miss.0),
        _ => None,
    };
    "request.database.log": Size, |it| match &mut it.request {
        Request::Database { log, .. } => Some(&mut log.0),
        _ => None,
    };
    "request.database.compute": Cycles, |it| match &mut it.request {
        Request::Database { compute, .. } => Some(&mut compute.0),
        _ => None,
    };
    "request.dynamic.page": Size, |it| match &mut it.request {
        Request::Dynamic { page, .. } => Some(&mut page.0),
        _ => None,
    };
    "request.dynamic.data": Size, |it| match &mut it.request {
        Request::Dynamic { data, .. } => Some(&mut data.0),
        _ => None,
    };
    "request.dynamic.compute": Cycles, |it| match &mut it.request {
        Request::Dynamic { compute, .. } => Some(&mut compute.0),
        _ => None,
    };
    "costs.server": CyclesPerByte, |it| Some(&mut it.costs.server.0);
    "costs.tcp": CyclesPerByte, |it| Some(&mut it.costs.tcp.0);
    "costs.tcp-large": CyclesPerByte, |it| Some(&mut it.costs.tcp_large.0);
    "costs.file-system": CyclesPerByte, |it| Some(&mut it.costs.file_system.0);
    "costs.access": Cycles, |it| Some(&mut it.costs.access.0);
    "costs.system": CyclesPerByte, |it| Some(&mut it.costs.system.0);
    "costs.call": Cycles, |it| Some(&mut it.costs.call.0);
    "costs.trap": Cycles, |it| Some(&mut it.costs.trap.0);
    "costs.interrupt": Cycles, |it| Some(&mut it.costs.interrupt.0);
    "costs.switch": Cycles, |it| Some(&mut it.costs.switch.0);
    "costs.doorbell": Cycles, |it| Some(&mut it.costs.doorbell.0);
    "costs.poll": Cycles, |it| Some(&mut it.costs.poll.0);
    "load.threads": Count, |it| Some(&mut it.load.threads);
    "load.think": Time, |it| Some(&mut it.load.think.0);
    "load.arrivals": PerSecond, |it| Some(&mut it.load.arrivals.0);
    "load.burst": Count, |it| Some(&mut it.load.burst);
}

fn memory(description: &mut Description, at: fn(&mut Memory) -> &mut f64) -> Option<&mut f64> {
    description.machine.memory.as_mut().map(at)
}

fn rotating(description: &mut Description, at: fn(&mut Rotating) -> &mut f64) -> Option<&mut f64> {
    description.machine.disks.rotating.as_mut().map(at)
}

/// A number without a unit, at least 0.
struct Count(f64);

impl std::str::FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Count, String> {
        let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number.map(Count).ok_or_else(|| format!("'{text}' is not a number of them"))
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

impl Key {
    /// Formats a value of this key, in base units, with a unit and at most six significant digits.
    pub fn text(self, value: f64) -> String {
        let written = (self.write)(value);
        let (number, unit) =
            written.split_once(' ').map_or((&*written, None), |(number, unit)| (number, Some(unit)));
        let number: f64 = number.parse().unwrap_or(value);
        let digits = (5.0 - number.abs().max(f64::MIN_POSITIVE).log10().floor()).clamp(0.0, 12.0) as i32;
        let rounded = (number * 10f64.powi(digits)).round() / 10f64.powi(digits);
        unit.map_or_else(|| rounded.to_string(), |unit| format!("{rounded} {unit}"))
    }

    /// Iterates over all keys.
    pub fn all() -> impl Iterator<Item = Key> {
        KEYS.iter().copied()
    }

    /// Returns the key `name`.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`] if no key has this name.
    pub fn by_name(name: &str) -> Result<Key, Error> {
        Key::all().find(|known| known.name == name).ok_or_else(|| no_such_key(name))
    }

    /// Parses a value of this key, with its unit, into base units.
    ///
    /// # Errors
    /// [`Error::Unreadable`] if `text` is not a quantity of the key's kind.
    pub fn value(self, text: &str) -> Result<f64, Error> {
        (self.parse)(text).map_err(|why| Error::Unreadable(format!("{}: {why}", self.name)))
    }

    /// Returns the number in `description`, in base units: bytes, seconds, cycles, shares of one.
    ///
    /// # Errors
    /// [`Error::NoSuchKey`] if the description lacks this number, because its requests are of another kind or
    /// it omits memory, rotating disks or flash.
    pub fn number_in(self, description: &mut Description) -> Result<&mut f64, Error> {
        (self.at)(description).ok_or_else(|| no_such_key(self.name))
    }
}

fn no_such_key(name: &str) -> Error {
    Error::NoSuchKey(name.into(), Key::all().map(|key| key.name).collect::<Vec<_>>().join(", "))
}

/// Greatest number of threads. Computations for the threads need time and memory per thread.
const THREADS_MAX: f64 = 1e7;
/// Greatest mean number of requests that arrive at a time.
const BURST_MAX: f64 = 1e5;

fn checked(description: Description) -> Result<Description, Error> {
    let Description { machine, request, load, .. } = &description;
    let positive = [
        ("machine.processors.count", machine.processors.count),
        ("machine.processors.speed", machine.processors.speed.0),
        ("machine.interconnect.rate", machine.interconnect.rate.0),
        ("machine.interfaces.count", machine.interfaces.count),
        ("machine.interfaces.rate", machine.interfaces.rate.0),
        ("machine.disks.count", machine.disks.count),
        ("machine.disks.rate", machine.disks.rate.0),
        ("load.threads", load.threads),
        ("the bytes of a request", description.workload().request_bytes()),
    ];
    if let Some((key, value)) = positive.into_iter().find(|(_, value)| *value <= 0.0 || !value.is_finite()) {
        return Err(Error::OutOfRange { key, value: value.to_string(), must: "more than 0" });
    }
    if load.threads > THREADS_MAX {
        let (key, value) = ("load.threads", load.threads.to_string());
        return Err(Error::OutOfRange { key, value, must: "at most 10000000" });
    }
    if !(1.0..=BURST_MAX).contains(&load.burst) {
        let (key, value) = ("load.burst", load.burst.to_string());
        return Err(Error::OutOfRange { key, value, must: "from 1 to 100000" });
    }
    if load.burst > 1.0 && !load.is_open() {
        let (key, value) = ("load.burst", load.burst.to_string());
        return Err(Error::OutOfRange { key, value, must: "1 unless load.arrivals is given" });
    }
    if load.is_open() && load.think.0 > 0.0 {
        let (key, value) = ("load.think", load.think.to_string());
        return Err(Error::OutOfRange { key, value, must: "0 s if load.arrivals is given" });
    }
    let share = match request {
        Request::Web { miss, .. } => Some(("request.web.miss", miss.0)),
        Request::Streams { writes, .. } => Some(("request.streams.writes", writes.0)),
        Request::Blocks { writes, .. } => Some(("request.blocks.writes", writes.0)),
        Request::Database { miss, .. } => Some(("request.database.miss", miss.0)),
        _ => None,
    };
    match share.filter(|(_, share)| !(0.0..=1.0).contains(share)) {
        Some((key, value)) => {
            Err(Error::OutOfRange { key, value: format!("{} %", value * 100.0), must: "at most 100 %" })
        }
        None => Ok(description),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[machine]
processors = { count = 1, speed = "1.5 GHz" }
interconnect = { rate = "2 GiB/s" }
interfaces = { count = 4, rate = "116 MiB/s", processor = "300 MHz" }
disks = { count = 4, rate = "6.7 MiB/s", processor = "300 MHz" }

[request.web]
file = "16 KiB"
miss = "10 %"
"#;

    #[test]
    fn the_paper_s_machine_is_read_and_written() {
        let description = Description::from_toml(TEXT).unwrap();
        assert_eq!(
            (description.machine, description.workload()),
            (Machine::carrera_2003(), Workload::web(0.1))
        );
        let again = serde_json::to_string(&description).unwrap();
        assert_eq!(Description::from_json(&again).unwrap(), description);
        assert_eq!(Description::from_toml(&toml::to_string(&description).unwrap()).unwrap(), description);
    }

    #[test]
    fn a_number_that_was_set_is_looked_at_again() {
        for (name, value, wanted) in [
            ("request.web.miss", 1.1, "request.web.miss is 110"),
            ("machine.disks.count", 0.0, "machine.disks.count is 0, and must be more than 0"),
        ] {
            let mut description = Description::new(Machine::carrera_2003(), Workload::web(0.1));
            assert_eq!(description.checked().unwrap(), description);
            *Key::by_name(name).unwrap().number_in(&mut description).unwrap() = value;
            let refused = description.checked().unwrap_err().to_string();
            assert!(refused.contains(wanted), "{refused}");
        }
    }

    #[test]
    fn costs_that_are_left_out_are_told() {
        let of = |text: &str| implied_costs(text).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(of(TEXT), PAPER_COSTS);
        assert_eq!(implied_costs(TEXT)[1].1, CyclesPerByte(3.8));
        let some = format!("{TEXT}\n[costs]\ntcp = \"1 cycles/B\"\ncall = \"9 cycles\"\n");
        assert_eq!(of(&some), ["server", "file-system", "system"]);
        let whole = Description::from_toml(TEXT).unwrap();
        let whole = serde_json::to_string(&whole).unwrap();
        assert_eq!((of(&whole), implied_trap(&whole)), (Vec::new(), None));
        assert_eq!((implied_trap(&some), implied_trap("[")), (Some(Cycles(322.0)), None));
    }

    #[test]
    fn devices_without_processors_leave_two_structures() {
        let text = TEXT.replace(", processor = \"300 MHz\"", "");
        let description = Description::from_toml(&text).unwrap();
        assert_eq!(description.supported(), [Architecture::Conventional, Architecture::UserLevel]);
        let refused = description.supports(Architecture::Active).unwrap_err().to_string();
        assert!(
            refused.contains("the interfaces have no processor, on which active servers run TCP"),
            "{refused}"
        );
        let only_disks = TEXT
            .replacen(", processor = \"300 MHz\"", "", 2)
            .replace("116 MiB/s\"", "116 MiB/s\", processor = \"1 GHz\"");
        let refused =
            Description::from_toml(&only_disks).unwrap().supports(Architecture::Direct).unwrap_err();
        assert!(refused.to_string().contains("machine.disks.processor"), "{refused}");
        let again = toml::to_string(&description).unwrap();
        assert!(!again.contains("300") && !again.contains("arrivals"), "{again}");
        assert_eq!(Description::from_toml(&again).unwrap(), description);
    }

    #[test]
    fn an_open_load_is_read_and_its_limits_are_told() {
        let with = |load: &str| Description::from_toml(&format!("{TEXT}\n[load]\n{load}\n"));
        let open = with("arrivals = \"2000 /s\"\nburst = 4").unwrap();
        assert!(open.load.is_open() && open.load.burst == 4.0);
        for (load, wanted) in [
            ("arrivals = \"2000\"", "write a number and one of /s"),
            ("arrivals = \"2000 /s\"\nburst = 0.5", "load.burst is 0.5, and must be from 1"),
            ("burst = 4", "load.burst is 4, and must be 1 unless load.arrivals"),
            ("arrivals = \"2000 /s\"\nthink = \"1 ms\"", "load.think is 1 ms, and must be 0 s"),
        ] {
            let refused = with(load).unwrap_err().to_string();
            assert!(refused.contains(wanted), "{load}: {refused}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (from, to, wanted) in [
            ("\"2 GiB/s\"", "\"2 GHz\"", &["line 4", "'2 GHz' is not a rate"][..]),
            ("\"16 KiB\"", "16384", &["line 9", "16 KiB"]),
            ("miss =", "mis =", &["line 10", "mis"]),
            ("[request.web]", "[request.wep]", &["line 8", "wep"]),
            ("count = 4, rate = \"6.7", "count = 0, rate = \"6.7", &["machine.disks.count is 0"]),
            (
                "[request.web]",
                "[load]\nthreads = 1e9\n[request.web]",
                &["load.threads is 1000000000", "at most"],
            ),
            ("\"10 %\"", "\"110 %\"", &["request.web.miss is 110", "at most 100 %"]),
            ("interconnect", "interconect", &["interconect"]),
        ] {
            let error = Description::from_toml(&TEXT.replace(from, to)).unwrap_err().to_string();
            assert!(wanted.iter().all(|part| error.contains(part)), "{to}: {error}");
        }
        let error = Description::from_json("{\n\"machine\": 1}").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn values_are_written_with_units_and_few_digits() {
        for (name, value, wanted) in [
            ("request.web.miss", 0.15000000000000002, "15 %"),
            ("machine.disks.rate", 6.9e9, "6.42613 GiB/s"),
            ("load.arrivals", 12000.0, "12000 /s"),
            ("machine.disks.count", 3.0, "3"),
            ("load.think", 0.0, "0 s"),
        ] {
            assert_eq!(Key::by_name(name).unwrap().text(value), wanted);
        }
    }

    #[test]
    fn every_key_can_be_varied_where_it_is() {
        let mut description = Description::from_toml(TEXT).unwrap();
        let miss = Key::by_name("request.web.miss").unwrap();
        *miss.number_in(&mut description).unwrap() = miss.value("20 %").unwrap();
        assert_eq!(description.workload(), Workload::web(0.2));
        assert!(miss.value("20").unwrap_err().to_string().contains("request.web.miss"));
        let compute = Key::by_name("request.dynamic.compute").unwrap();
        assert!(compute.number_in(&mut description).is_err(), "of another kind of request");
        assert!(Key::by_name("machine.wheels").err().unwrap().to_string().contains("machine.disks.count"));
    }
}
