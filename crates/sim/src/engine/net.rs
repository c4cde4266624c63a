//! What a simulation consists of: stations, scripts and the jobs that are there at the beginning.
//!
//! One script serves any of several equal devices and any size: a job carries [`Registers`], of which an operation takes
//! which station it means and how many bytes. Jobs that a job makes have its registers.

use super::arm::Arm;
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
    /// So much, and so many picoseconds for each byte of the job's current block.
    Block(Time, f64),
    /// So much, and so many picoseconds for each byte of the job's request.
    Bytes(Time, f64),
    /// What the arm of this station takes to the job's position, and then as `Bytes`.
    Arm(Time, f64),
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

    /// So many seconds for each byte of the current block.
    pub fn of_block(seconds: f64) -> Draw {
        Draw::Block(Time(0), seconds * 1e12)
    }

    /// So many seconds for each byte of the request.
    pub fn of_bytes(seconds: f64) -> Draw {
        Draw::Bytes(Time(0), seconds * 1e12)
    }

    /// For a job with `registers`; an arm is the business of who has it.
    #[inline]
    pub(super) fn draw(self, random: &mut Random, registers: &Registers) -> Time {
        let of = |fixed: Time, rate: f64, bytes: u32| fixed + Time::of_picoseconds(rate * f64::from(bytes));
        match self {
            Draw::Fixed(time) => time,
            Draw::Exponential(mean) => Time::of_seconds(mean * random.exponential()),
            Draw::Uniform(from, to) => Time::of_seconds(from + (to - from) * random.unit()),
            Draw::LogNormal(median, deviation) => Time::of_seconds(median * random.log_normal(deviation)),
            Draw::Block(fixed, rate) => of(fixed, rate, registers.left.min(registers.block)),
            Draw::Bytes(fixed, rate) | Draw::Arm(fixed, rate) => of(fixed, rate, registers.bytes),
        }
    }
}

/// Which station; of a row of equal ones, the first, or the one whose number is in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station(pub(super) u32);

/// Bits of a station's number; what is above is 1 + the register that is added.
const STATION_BITS: u32 = 24;

impl Station {
    /// Of the row that begins here, the one whose number is in this register of the job.
    pub fn picked(self, register: Register) -> Station {
        Station(self.0 | (register as u32 + 1) << STATION_BITS)
    }

    /// Its number, in the order in which stations were made; of a row, that of the first.
    pub fn index(self) -> usize {
        (self.0 & ((1 << STATION_BITS) - 1)) as usize
    }

    pub(super) fn number(self, registers: &Registers) -> u32 {
        match self.0 >> STATION_BITS {
            0 => self.0,
            register => (self.0 & ((1 << STATION_BITS) - 1)) + registers.picks[register as usize - 1],
        }
    }
}

/// Which of the numbers that a job has picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Of a disk.
    Disk,
    /// Of a network interface.
    Interface,
    /// Of a bank of memory.
    Bank,
    /// Of a processor, of a place on a disk, of whatever else there is.
    Other,
}

/// What a job carries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Registers {
    /// The numbers of [`Register`].
    pub picks: [u32; 4],
    /// Bytes of its request.
    pub bytes: u32,
    /// Bytes of it that are not yet moved.
    pub left: u32,
    /// Bytes of a block.
    pub block: u32,
    /// Bytes that a controller has read ahead for it.
    pub ahead: u32,
    /// Of the net's records, the next one of the job, and the end of its own.
    pub records: (u32, u32),
}

/// What a job does next in a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Not before this moment.
    pub at: Time,
    /// Where the script goes on.
    pub to: u32,
    /// Bytes of the request.
    pub bytes: u32,
    /// Bytes of a block of it.
    pub block: u32,
    /// Which disk.
    pub disk: u32,
    /// Which interface.
    pub interface: u32,
}

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
    /// What it has seized works for this time of the time that it is kept; no time passes.
    Work {
        /// Where.
        station: Station,
        /// For how long.
        time: Draw,
    },
    /// Waits, for nobody.
    Delay(Draw),
    /// Goes on at `to`, with this chance.
    Maybe {
        /// 0 to 1.
        chance: f64,
        /// Number of the operation.
        to: u32,
    },
    /// Draws a number below `count`.
    Pick {
        /// Where it goes.
        register: Register,
        /// More than 0.
        count: u32,
    },
    /// The request has so many bytes, none of which is moved, in blocks of so many.
    Size {
        /// Of the request.
        bytes: u32,
        /// Of a block.
        block: u32,
    },
    /// A block has been moved: goes on at `to` if there are more; if not, all of them are to be moved again.
    More {
        /// Number of the operation.
        to: u32,
    },
    /// If a controller has the request's bytes read ahead they are taken from there, and it goes on at `to`; if not, so
    /// many are read, the request's among them.
    Ahead {
        /// What is read at a time.
        most: u32,
        /// Number of the operation.
        to: u32,
    },
    /// Takes its next record and goes on where that says when it is time; at `to` if there are no more.
    Record {
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

impl Op {
    /// Where it may go on besides the next one.
    pub(crate) fn target(&mut self) -> Option<&mut u32> {
        match self {
            Op::Maybe { to, .. }
            | Op::Jump { to }
            | Op::More { to }
            | Op::Ahead { to, .. }
            | Op::Record { to } => Some(to),
            _ => None,
        }
    }
}

/// Stations, scripts and first jobs.
#[derive(Clone, Debug, Default)]
pub struct Net {
    pub(super) stations: Vec<(String, u32)>,
    /// Of the stations that have one.
    pub(super) arms: Vec<(u32, Arm)>,
    /// Where an operation goes on is a number in here.
    pub(super) ops: Vec<Op>,
    /// Where each script begins and ends in `ops`.
    pub(super) scripts: Vec<(u32, u32)>,
    pub(super) first: Vec<(Script, Registers)>,
    /// Where a record goes on is a number in `ops` too.
    pub(super) records: Vec<Record>,
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

    /// A row of so many equal stations, named with their numbers; the first of them.
    ///
    /// # Panics
    /// As [`Net::station`].
    pub fn row(&mut self, name: &str, count: u32, servers: u32) -> Station {
        let first = Station(self.stations.len() as u32);
        (0..count).for_each(|number| {
            self.station(format!("{name} {number}"), servers);
        });
        first
    }

    /// The station has an arm, which [`Draw::Arm`] moves to the position in [`Register::Other`].
    pub fn arm(&mut self, station: Station, arm: Arm) {
        self.arms.push((station.0, arm));
    }

    /// The station that is so many behind `station` in a row.
    pub fn in_row(station: Station, number: u32) -> Station {
        Station(station.0 + number)
    }

    /// A script; a job ends behind the last operation.
    ///
    /// # Panics
    /// If an operation goes on beyond the end.
    pub fn script(&mut self, ops: Vec<Op>) -> Script {
        let from = self.ops.len() as u32;
        for mut op in ops {
            if let Some(to) = op.target() {
                *to += from;
            }
            self.ops.push(op);
        }
        let end = self.ops.len() as u32;
        let inside = |op: &Op| op.clone().target().is_none_or(|to| *to <= end);
        assert!(self.ops[from as usize..].iter().all(inside), "a jump beyond the end of a script");
        self.scripts.push((from, end));
        Script(self.scripts.len() as u32 - 1)
    }

    /// One job of `script` is there at the beginning, with these registers, and does these records, whose `to` are
    /// operations of the script.
    pub fn replay(
        &mut self,
        script: Script,
        mut registers: Registers,
        records: impl IntoIterator<Item = Record>,
    ) {
        let start = self.scripts[script.0 as usize].0;
        let from = self.records.len() as u32;
        self.records.extend(records.into_iter().map(|record| Record { to: record.to + start, ..record }));
        registers.records = (from, self.records.len() as u32);
        self.first.push((script, registers));
    }

    /// One job of `script` is there at the beginning, with these registers.
    pub fn start_with(&mut self, script: Script, registers: Registers) {
        self.first.push((script, registers));
    }

    /// So many jobs of `script` are there at the beginning.
    pub fn start(&mut self, script: Script, count: u32) {
        self.first.extend((0..count).map(|_| (script, Registers::default())));
    }
}
