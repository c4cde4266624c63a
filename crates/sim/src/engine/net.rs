//! What a simulation consists of: stations, scripts and the jobs that are there at the beginning.

use super::random::Random;
use super::time::Time;

/// How long something takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Draw {
    /// Always the same.
    Fixed(Time),
    /// Without memory, with this mean in seconds.
    Exponential(f64),
    /// Anything between the two, in seconds, equally likely.
    Uniform(f64, f64),
    /// The exponential function of something normal: median in seconds, and the standard deviation of the logarithm.
    LogNormal(f64, f64),
}

impl Draw {
    /// So many seconds, always.
    pub fn fixed(seconds: f64) -> Draw {
        Draw::Fixed(Time::of_seconds(seconds))
    }

    /// With so many seconds as its mean.
    pub fn exponential(mean: f64) -> Draw {
        Draw::Exponential(mean)
    }

    pub(super) fn draw(self, random: &mut Random) -> Time {
        match self {
            Draw::Fixed(time) => time,
            Draw::Exponential(mean) => Time::of_seconds(mean * random.exponential()),
            Draw::Uniform(from, to) => Time::of_seconds(from + (to - from) * random.unit()),
            Draw::LogNormal(median, deviation) => {
                Time::of_seconds(median * (deviation * random.normal()).exp())
            }
        }
    }
}

/// Which station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station(pub(super) u32);

/// Which script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script(pub(super) u32);

/// What a job does next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Waits for a server of the station, has it for this time, and leaves it.
    Use {
        /// Where.
        station: Station,
        /// For how long.
        time: Draw,
    },
    /// As `Use`, in front of all that do not do this (an interrupt).
    UseFirst {
        /// Where.
        station: Station,
        /// For how long.
        time: Draw,
    },
    /// Waits for a server of the station and keeps it.
    Seize(Station),
    /// Leaves what it has seized.
    Free(Station),
    /// Waits, for nobody.
    Delay(Draw),
    /// Goes on at `to`, with this chance.
    Maybe {
        /// 0 to 1.
        chance: f64,
        /// Number of the operation.
        to: u32,
    },
    /// Goes on at `to`.
    Jump {
        /// Number of the operation.
        to: u32,
    },
    /// Makes a job that goes its own way.
    Send {
        /// What it does.
        script: Script,
    },
    /// Makes a job that it waits for at the next `Join`.
    Fork {
        /// What it does.
        script: Script,
    },
    /// Waits until all that it has forked have ended.
    Join,
    /// From here on it counts as a request.
    Begin,
    /// The request has been served.
    Finish,
}

/// Stations, scripts and first jobs.
#[derive(Clone, Debug, Default)]
pub struct Net {
    pub(super) stations: Vec<(String, u32)>,
    pub(super) ops: Vec<Op>,
    /// Where each script begins and ends in `ops`.
    pub(super) scripts: Vec<(u32, u32)>,
    pub(super) first: Vec<Script>,
}

impl Net {
    /// Nothing yet.
    pub fn new() -> Net {
        Net::default()
    }

    /// A station with so many equal servers and one queue, first come, first served.
    ///
    /// # Panics
    /// Without servers nobody would ever be served.
    pub fn station(&mut self, name: impl Into<String>, servers: u32) -> Station {
        assert!(servers > 0, "a station needs a server");
        self.stations.push((name.into(), servers));
        Station(self.stations.len() as u32 - 1)
    }

    /// A script; a job ends behind the last operation.
    ///
    /// # Panics
    /// If an operation goes on beyond the end.
    pub fn script(&mut self, ops: Vec<Op>) -> Script {
        let inside = |op: &Op| match op {
            Op::Maybe { to, .. } | Op::Jump { to } => *to as usize <= ops.len(),
            _ => true,
        };
        assert!(ops.iter().all(inside), "a jump beyond the end of a script");
        let from = self.ops.len() as u32;
        self.ops.extend(ops);
        self.scripts.push((from, self.ops.len() as u32));
        Script(self.scripts.len() as u32 - 1)
    }

    /// So many jobs of `script` are there at the beginning.
    pub fn start(&mut self, script: Script, count: u32) {
        self.first.extend((0..count).map(|_| script));
    }
}
