//! The parts of a simulation: stations, scripts and the jobs that exist at the beginning.
//!
//! One script serves any of several equal devices and any request size: a job carries [`Registers`], and
//! operations read the number of the device and of the bytes from them. A job that another job creates
//! inherits the creator's registers.

use super::arm::Arm;
use super::coherence::{Access, Caches, Region};
use super::controller::Controller;
use super::random::Random;
use super::time::Time;

/// Distribution of a duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceTime {
    /// A constant.
    Fixed(Time),
    /// Exponential distribution with this mean, in seconds.
    Exponential(f64),
    /// Uniform distribution between two durations, in seconds.
    Uniform(f64, f64),
    /// Lognormal distribution: median in seconds, and standard deviation of the logarithm.
    LogNormal(f64, f64),
    /// A fixed time, plus a number of picoseconds for each byte of the job's current block.
    Block(Time, f64),
    /// A fixed time, plus a number of picoseconds for each byte of the job's request.
    Bytes(Time, f64),
    /// Time that the station's controller and arm take to serve the next command of the job's request.
    Command {
        /// Greatest number of bytes of a command.
        bytes_max: u32,
        /// True if the command continues the job's stream.
        in_order: bool,
        /// True for a write.
        writes: bool,
    },
    /// A number of picoseconds for each byte of the job's request, less the time that memory, if idle, takes for
    /// the [`Op::Touch`]es since the last [`Op::BeginStall`].
    Rest(f64),
    /// A fixed time, plus a number of picoseconds for each byte that the job's last [`Op::Touch`] moved in this
    /// kind of movement.
    Moved(Movement, Time, f64),
    /// Time that the job's current record computes.
    Computed,
    /// Time that the job's current record pauses.
    Paused,
}

impl ServiceTime {
    /// Returns a constant, in seconds.
    pub fn fixed(seconds: f64) -> ServiceTime {
        ServiceTime::Fixed(Time::from_seconds(seconds))
    }

    /// Returns an exponential distribution with this mean, in seconds.
    pub fn exponential(mean: f64) -> ServiceTime {
        ServiceTime::Exponential(mean)
    }

    /// Returns a duration proportional to the current block, in seconds per byte.
    pub fn per_block_byte(seconds: f64) -> ServiceTime {
        ServiceTime::Block(Time(0), seconds * 1e12)
    }

    /// Returns a duration proportional to the request, in seconds per byte.
    pub fn per_byte(seconds: f64) -> ServiceTime {
        ServiceTime::fixed_and_per_byte(0.0, seconds)
    }

    /// Returns a fixed time and a duration proportional to the request, in seconds and seconds per byte.
    pub fn fixed_and_per_byte(fixed: f64, byte: f64) -> ServiceTime {
        ServiceTime::Bytes(Time::from_seconds(fixed), byte * 1e12)
    }

    /// Draws a duration for a job with `registers`. The caller computes the time of a command, because
    /// the station has the controller.
    #[inline]
    pub(super) fn draw(self, random: &mut Random, registers: &Registers) -> Time {
        let of = |fixed: Time, rate: f64, bytes: u32| fixed + Time::from_picoseconds(rate * f64::from(bytes));
        match self {
            ServiceTime::Fixed(time) => time,
            ServiceTime::Exponential(mean) => Time::from_seconds(mean * random.exponential()),
            ServiceTime::Uniform(from, to) => Time::from_seconds(from + (to - from) * random.unit_interval()),
            ServiceTime::LogNormal(median, deviation) => {
                Time::from_seconds(median * random.log_normal(deviation))
            }
            ServiceTime::Block(fixed, rate) => of(fixed, rate, registers.remaining.min(registers.block)),
            ServiceTime::Bytes(fixed, rate) => of(fixed, rate, registers.bytes),
            ServiceTime::Rest(rate) => of(Time(0), rate, registers.bytes) - registers.memory_time,
            ServiceTime::Command { .. } => Time(0),
            ServiceTime::Computed => registers.computed,
            ServiceTime::Paused => registers.paused,
            ServiceTime::Moved(movement, fixed, rate) => of(fixed, rate, registers.moved[movement as usize]),
        }
    }
}

/// Reference to a station: to a single one, to the first of a row of equal ones, or to the one in a row that
/// a register selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station(pub(super) u32);

/// Number of bits for a station's number. The bits above hold 0, or 1 + the register that selects within a
/// row.
const STATION_BITS: u32 = 24;

impl Station {
    /// Returns a reference to the station of this row whose offset is in `register` of the job.
    pub fn in_register(self, register: Register) -> Station {
        Station(self.0 | (register as u32 + 1) << STATION_BITS)
    }

    /// Returns the number of the station in the order of creation; for a row, the number of its first
    /// station.
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

/// Register of a job that holds the number of a device, as an index into [`Registers::picks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// Number of a disk.
    Disk,
    /// Number of a network interface.
    Interface,
    /// Number of a memory bank.
    Bank,
    /// Any other number, for example of a track on a disk.
    Other,
    /// Number of the processor that the job occupies or occupied last, of a numbered station.
    Processor,
    /// Number of the thread, which selects the thread's buffers in memory and its stream on a disk.
    Thread,
    /// Number of a file in memory.
    File,
}

/// Registers of a job: its devices and the sizes of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Registers {
    /// Numbers selected by [`Register`].
    pub picks: [u32; 7],
    /// Size of the request, in bytes.
    pub bytes: u32,
    /// Bytes of the request that are not moved yet.
    pub remaining: u32,
    /// Size of a block, in bytes.
    pub block: u32,
    /// Bytes that a controller has read ahead for the job.
    pub read_ahead: u32,
    /// Bytes of the request for which disk commands are complete, while others remain.
    pub commanded: u32,
    /// Position in the job's stream on a disk, in bytes.
    pub position: u64,
    /// Bytes that the last [`Op::Touch`] moved, indexed by [`Movement`].
    pub moved: [u32; 4],
    /// Address of the request's buffer in memory, for caches that know addresses.
    pub address: u64,
    /// Note that [`Op::Note`] leaves.
    pub note: u32,
    /// Time that idle memory takes for the waited accesses since the last [`Op::BeginStall`].
    pub memory_time: Time,
    /// Index of the job's next record in the net, and index behind the job's last record.
    pub records: (u32, u32),
    /// Computing of the current record.
    pub computed: Time,
    /// Pause of the current record.
    pub paused: Time,
}

/// Kind of movement over the memory bus that an access to cached data causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// Another cache writes modified data back before the access.
    WrittenBack,
    /// The access itself fetches or stores data.
    Fetched,
    /// Modified data that the access replaced in the cache is written back later.
    Replaced,
    /// The access finds data in the processor's own cache, so nothing passes the bus.
    Found,
}

/// Next request of a job in a replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Earliest time of the request.
    pub at: Time,
    /// Number of the operation at which the script continues.
    pub to: u32,
    /// Size of the request, in bytes.
    pub bytes: u32,
    /// Size of a block of the request, in bytes.
    pub block: u32,
    /// Number of the disk.
    pub disk: u32,
    /// Number of the network interface.
    pub interface: u32,
    /// Computing before the request; [`ServiceTime::Computed`] is as long.
    pub computed: Time,
    /// Pause of the request; [`ServiceTime::Paused`] is as long.
    pub paused: Time,
    /// Record that must have started before [`Op::AwaitRecord`] lets the job continue: 1 + its number in the
    /// order in which records were added to the net, or 0 for none.
    pub after: u32,
}

/// Reference to a script of a net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script(pub(super) u32);

/// Greatest number of arrivals that wait for a job to take them. A server with more requests waiting is
/// overloaded, or its bursts are longer than any answer to them is of use.
pub const ARRIVALS_MAX: usize = 1_000_000;

/// Operation of a script, which a job executes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Waits for a server of the station, occupies it for a time, and frees it.
    Use {
        /// Station of the server.
        station: Station,
        /// Service time.
        time: ServiceTime,
    },
    /// Like [`Op::Use`], but queues in front of all jobs that use a different operation, as an interrupt
    /// does.
    UseFirst {
        /// Station of the server.
        station: Station,
        /// Service time.
        time: ServiceTime,
    },
    /// Waits for a server of the station and keeps it until [`Op::Free`].
    Seize(Station),
    /// Frees a server taken by [`Op::Seize`].
    Free(Station),
    /// Counts a part of the time for which a seized server is kept as work. The operation itself takes no
    /// simulated time.
    Work {
        /// Station of the seized server.
        station: Station,
        /// Time that counts as work.
        time: ServiceTime,
    },
    /// Begins a stall: the job keeps a server of a station, but waits for memory.
    BeginStall,
    /// Ends a stall, whose duration counts for this station.
    EndStall(Station),
    /// Accesses the current block of a buffer in memory, and sets the bytes of each [`Movement`].
    Touch {
        /// Kind of the access.
        access: Access,
        /// Region with the buffer.
        region: Region,
        /// Register that selects the buffer.
        buffer: Register,
        /// True if the job waits for what the access moves.
        waits: bool,
    },
    /// Jumps to `to` if the last [`Op::Touch`] caused no movement of this kind.
    JumpUnlessMoved {
        /// Kind of the movement.
        movement: Movement,
        /// Target of the jump: number of an operation in the script.
        to: u32,
    },
    /// Counts a disk command as complete. Jumps to `to` if commands of the request remain.
    NextCommand {
        /// Greatest number of bytes of a command.
        bytes_max: u32,
        /// Target of the jump: number of an operation in the script.
        to: u32,
    },
    /// Waits for a time without using a station.
    Delay(ServiceTime),
    /// Jumps to `to` with this probability.
    JumpWithProbability {
        /// Probability of the jump, 0 to 1.
        chance: f64,
        /// Target of the jump: number of an operation in the script.
        to: u32,
    },
    /// Draws a number below `count` into a register.
    Pick {
        /// Register that receives the number.
        register: Register,
        /// Number of possible values, at least 1.
        count: u32,
    },
    /// Sets the sizes of the request and of its blocks. No byte of the request counts as moved.
    Size {
        /// Size of the request, in bytes.
        bytes: u32,
        /// Size of a block, in bytes.
        block: u32,
    },
    /// Counts a block as moved. Jumps to `to` if blocks remain; otherwise marks all bytes of the request as
    /// not moved.
    NextBlock {
        /// Target of the jump: number of an operation in the script.
        to: u32,
    },
    /// Jumps to `to` if the controller has read the whole request ahead, and takes the request's bytes from
    /// the read-ahead. Otherwise continues, and the controller reads `most` bytes, which include the request.
    ReadAhead {
        /// Bytes that the controller reads at a time.
        most: u32,
        /// Target of the jump: number of an operation in the script.
        to: u32,
    },
    /// Takes the job's next record, waits until its time, and jumps to its operation. Jumps to `to` if no
    /// record remains.
    Record {
        /// Target of the jump: number of an operation in the script.
        to: u32,
    },
    /// Marks the job's current record as started, which releases the jobs that wait for it.
    StartRecord,
    /// Waits until the record that the job's current record names has started.
    AwaitRecord,
    /// Jumps to `to`.
    Jump {
        /// Target of the jump: number of an operation in the script.
        to: u32,
    },
    /// Creates a job that runs independently.
    Send {
        /// Script of the new job.
        script: Script,
    },
    /// Creates a job that the next [`Op::Join`] waits for.
    Fork {
        /// Script of the new job.
        script: Script,
    },
    /// Waits until all forked jobs have ended.
    Join,
    /// Adds an arrival to the end of the net's queue of arrivals, or gives it to the job that has waited for
    /// one longest. The run stops if the queue is longer than [`ARRIVALS_MAX`].
    Arrive,
    /// Takes the first arrival of the queue, and waits for one if there is none. The request begins at the
    /// time of the arrival.
    AwaitArrival,
    /// Leaves the job's note for the caller of the run ([`Run::take_note`](super::Run::take_note)).
    Note,
    /// Marks the beginning of a request, from which the response time counts.
    BeginRequest,
    /// Marks the end of a request, which is then measured.
    EndRequest,
}

impl Op {
    /// Returns the target of a jump, if the operation has one.
    pub(crate) fn target(&mut self) -> Option<&mut u32> {
        match self {
            Op::JumpWithProbability { to, .. }
            | Op::Jump { to }
            | Op::NextBlock { to }
            | Op::ReadAhead { to, .. }
            | Op::JumpUnlessMoved { to, .. }
            | Op::NextCommand { to, .. }
            | Op::Record { to } => Some(to),
            _ => None,
        }
    }
}

/// Stations, scripts and first jobs of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Net {
    pub(super) stations: Vec<(String, u32)>,
    /// Arms and controllers, each with the number of its station.
    pub(super) disks: Vec<(u32, Arm, Controller)>,
    /// Stations whose servers are numbered.
    pub(super) numbered: Vec<u32>,
    /// Caches of the processors, if any operation touches memory.
    pub(super) caches: Option<Caches>,
    /// Operations of all scripts. Targets of jumps are indices in this list.
    pub(super) ops: Vec<Op>,
    /// Index of the first operation of each script, and index behind its last operation.
    pub(super) scripts: Vec<(u32, u32)>,
    pub(super) first: Vec<(Script, Registers)>,
    /// Records of all jobs. Their targets are indices in `ops`.
    pub(super) records: Vec<Record>,
}

impl Net {
    /// Returns an empty net.
    pub fn new() -> Net {
        Net::default()
    }

    /// Adds a station with `servers` equal servers and one queue, first come, first served.
    ///
    /// # Panics
    /// If `servers` is 0.
    pub fn station(&mut self, name: impl Into<String>, servers: u32) -> Station {
        assert!(servers > 0, "a station needs a server");
        self.stations.push((name.into(), servers));
        Station(self.stations.len() as u32 - 1)
    }

    /// Adds a row of `count` equal stations, named `name` and their number, and returns a reference to the
    /// first.
    ///
    /// # Panics
    /// Same as [`Net::station`].
    pub fn row(&mut self, name: &str, count: u32, servers: u32) -> Station {
        let first = Station(self.stations.len() as u32);
        (0..count).for_each(|number| {
            self.station(format!("{name} {number}"), servers);
        });
        first
    }

    /// Adds an arm and a controller to the station. [`ServiceTime::Command`] uses them, with the track in
    /// [`Register::Other`] and the stream in [`Register::Thread`].
    pub fn disk(&mut self, station: Station, arm: Arm, controller: Controller) {
        self.disks.push((station.0, arm, controller));
    }

    /// Numbers the servers of the station. A job that is given a server finds its number in
    /// [`Register::Processor`]. It is given the server that it had last, if that is free.
    pub fn numbered(&mut self, station: Station) {
        self.numbered.push(station.0);
    }

    /// Adds the caches that [`Op::Touch`] uses.
    pub fn caches(&mut self, caches: Caches) {
        self.caches = Some(caches);
    }

    /// Returns the station that follows `station` in its row at a distance of `number`.
    pub fn in_row(station: Station, number: u32) -> Station {
        Station(station.0 + number)
    }

    /// Adds a script. A job ends behind the last operation. Targets of jumps are numbers of operations in
    /// `ops`.
    ///
    /// # Panics
    /// If a jump leads beyond the end of the script.
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

    /// Adds a script whose jobs are submitted while the net runs ([`Run::submit`](super::Run::submit)).
    ///
    /// # Panics
    /// Same as [`Net::script`].
    pub fn entry(&mut self, ops: Vec<Op>) -> Script {
        // The event of the job's beginning ends the first operation.
        let mut ops = ops;
        for to in ops.iter_mut().filter_map(Op::target) {
            *to += 1;
        }
        ops.insert(0, Op::Delay(ServiceTime::Fixed(Time(0))));
        self.script(ops)
    }

    /// Adds a job of `script` that exists at the beginning, with `registers` and with `records` to replay.
    /// The `to` of a record is a number of an operation in the script.
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

    /// Adds a job of `script` that exists at the beginning, with `registers`.
    pub fn start_with(&mut self, script: Script, registers: Registers) {
        self.first.push((script, registers));
    }

    /// Adds `count` jobs of `script` that exist at the beginning, with empty registers.
    pub fn start(&mut self, script: Script, count: u32) {
        self.first.extend((0..count).map(|_| (script, Registers::default())));
    }
}
