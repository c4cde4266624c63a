//! Replay of a recorded trace on a described machine: estimates the duration of its calls there.
//!
//! Each process executes its calls in the recorded order, one at a time. The calls whose data is in memory
//! are determined in advance, in the order of the recording, with a model of the description's file cache
//! ([`FileCache`]). Files and sockets are spread over disks and interfaces. Writes go to memory. They reach a
//! disk when a process synchronises the file, or later, when the system needs memory; without a file cache
//! each write waits for its disk. A read that starts where the same process's last read of the file ended is
//! sequential, and the disk reads ahead for it.

use super::buffers::Buffer;
use super::file_cache::{Evicted, FileCache};
use super::hardware::{Hardware, at_least_one, block_of};
use super::request::RequestScripts;
use super::script::ScriptBuilder;
use super::simulate::{Error, Prepared, Report, report, within_limits};
use crate::engine::{Net, Op, Record, Register, Registers, Run, ServiceTime, Station, StopCondition, Time};
use crate::trace::{Call, CallKind, Trace};
use bywash_model::units::{Share, Size};
use bywash_model::work::{Request, Workload};
use bywash_model::{Architecture, Description};
use std::collections::{BTreeMap, HashMap};

/// Pace at which a replay issues the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// Each call at its recorded time, or as soon as the process's previous call has ended.
    #[default]
    Recorded,
    /// Each call as soon as the process's previous call has ended.
    Fastest,
    /// Each call after the computing that was recorded before it, on a processor. A wait ends when the call
    /// that ended it in the recording has begun ([`Trace::releases`]), or after the recorded time if nothing in
    /// the recording has ended it.
    Computed,
}

/// Greatest number of bytes that one replayed call moves. Larger calls are cut to this size.
const BYTES_MAX: u64 = 1 << 30;
const PROCESSES_MAX: usize = 100_000;

/// Replays `trace` on the machine of `description` under `architecture`. `watch` has the same meaning as for
/// [`simulate`](super::simulate()).
///
/// # Errors
/// [`Error::Nothing`] if the trace has no calls; [`Error::Untimed`] if `pace` is [`Pace::Computed`] and the trace
/// does not tell the end of each call and the computing before it; [`Error::TooManyThreads`] if it has more than 100,000
/// processes; otherwise same as [`within_limits`].
pub fn replay(
    description: &Description,
    architecture: Architecture,
    trace: &Trace,
    pace: Pace,
    seed: u64,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Report, Error> {
    if trace.calls.is_empty() {
        return Err(Error::Nothing);
    }
    if pace == Pace::Computed && !trace.is_timed() {
        return Err(Error::Untimed);
    }
    within_limits(description)?;
    let prepared = prepare(description, architecture, trace, pace)?;
    let requests = trace.calls.len() as u64;
    let outcome =
        Run::new(prepared.net(), seed).run_until(StopCondition::Requests { warm_up: 0, requests }, watch);
    Ok(report(&prepared, &outcome, architecture, seed))
}

/// Section of the script that a call executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    ReadMemory,
    ReadDisk,
    ReadAhead,
    WriteMemory,
    WriteDisk,
    /// Synchronisation of a file without modified pages.
    SyncNothing,
    Sync,
    Receive,
    Send,
    /// A system call that moves no data, or a wait, whose end is another matter.
    Call,
    /// Beginning of a process, which belongs to no call.
    Begin,
    /// Write of evicted pages by the system, which belongs to no call.
    WriteBack,
}

impl Section {
    /// Returns true if the section is a request of the trace.
    fn is_request(self) -> bool {
        !matches!(self, Section::Begin | Section::WriteBack)
    }
}

const ALL: [Section; 12] = [
    Section::ReadMemory,
    Section::ReadDisk,
    Section::ReadAhead,
    Section::WriteMemory,
    Section::WriteDisk,
    Section::SyncNothing,
    Section::Sync,
    Section::Receive,
    Section::Send,
    Section::Call,
    Section::Begin,
    Section::WriteBack,
];

fn prepare(
    description: &Description,
    architecture: Architecture,
    trace: &Trace,
    pace: Pace,
) -> Result<Prepared, Error> {
    let counts = [description.machine.interfaces.count, description.machine.disks.count].map(at_least_one);
    let plan = Plan::new(description, trace, pace, counts);
    if plan.processes.len() > PROCESSES_MAX {
        return Err(Error::TooManyThreads(plan.processes.len() as f64));
    }
    let mean = trace.calls.iter().map(|call| call.length).sum::<u64>() as f64 / trace.calls.len() as f64;
    let block = Size(mean.max(1.0));
    let mut work = Workload {
        request: Request::Blocks { block, writes: Share(0.0), in_order: false },
        ..description.workload()
    };
    work.load.threads = plan.processes.len() as f64;
    work.load.spin = false;
    let mut net = Net::new();
    let hardware = Hardware::new(&mut net, &description.machine, &work, architecture);
    let serving = RequestScripts::new(&hardware, &description.machine, &work, architecture);
    let (script, places) = script(&serving, hardware.processors, pace);
    let processors = at_least_one(description.machine.processors.count);
    let script = net.script(script);
    for (thread, records) in plan.processes.into_values().chain([plan.written_back]).enumerate() {
        let mut registers = Registers::default();
        registers.picks[Register::Thread as usize] = thread as u32;
        registers.picks[Register::Processor as usize] = thread as u32 % processors;
        let records =
            records.into_iter().map(|(does, record)| Record { to: places[does as usize], ..record });
        net.replay(script, registers, records);
    }
    Ok(Prepared::new(net, hardware.rows))
}

/// Returns the script of every process, and the number of the first operation of each section.
fn script(serving: &RequestScripts<'_>, processors: Station, pace: Pace) -> (Vec<Op>, Vec<u32>) {
    let mut script = ScriptBuilder::default();
    let no_more = script.jump(Op::Record { to: 0 });
    let mut places = Vec::new();
    for does in ALL {
        places.push(script.here());
        if pace == Pace::Computed && does != Section::WriteBack {
            script.add(Op::Use { station: processors, time: ServiceTime::Computed });
            script.add(Op::StartRecord);
            script.add(Op::AwaitRecord);
        }
        if does.is_request() {
            script.add(Op::BeginRequest);
        }
        if pace == Pace::Computed && matches!(does, Section::Call | Section::Receive | Section::Begin) {
            script.add(Op::Delay(ServiceTime::Paused));
        }
        serving.pick_file(&mut script);
        serving.call(&mut script, does);
        serving.release(&mut script);
        if does.is_request() {
            script.add(Op::EndRequest);
        }
        script.add(Op::Jump { to: 0 });
    }
    script.land(no_more);
    (script.ops, places)
}

impl RequestScripts<'_> {
    fn call(&self, script: &mut ScriptBuilder, does: Section) {
        match does {
            Section::ReadMemory => {
                self.submit(script);
                self.kernel_copy(script, Buffer::File, Buffer::Program);
            }
            Section::ReadDisk | Section::ReadAhead => {
                self.read(script, 0.0, Buffer::Program, true, does == Section::ReadAhead);
            }
            Section::WriteMemory => {
                self.submit(script);
                self.kernel_copy(script, Buffer::Program, Buffer::File);
            }
            Section::WriteDisk => {
                self.kernel_copy(script, Buffer::Program, Buffer::Kernel);
                self.submit(script);
                let buffer = if self.transfers() { Buffer::Program } else { Buffer::Kernel };
                self.to_disk(script, 0.0, buffer, false);
            }
            Section::Begin => {}
            Section::SyncNothing | Section::Call => self.submit(script),
            Section::Sync | Section::WriteBack => {
                self.submit(script);
                self.to_disk(script, 0.0, Buffer::File, false);
                if does == Section::Sync {
                    // The bytes were already counted by the calls that wrote them.
                    script.add(Op::Size { bytes: 0, block: 1 });
                }
            }
            Section::Receive => {
                self.take_from_wire(script);
                self.receive_into_program(script);
            }
            Section::Send => self.send(script, Buffer::Program, true),
        }
    }
}

/// Sections and records of each process, and those of the system's own writes.
struct Plan {
    processes: BTreeMap<u32, Vec<(Section, Record)>>,
    written_back: Vec<(Section, Record)>,
}

impl Plan {
    fn new(description: &Description, trace: &Trace, pace: Pace, counts: [u32; 2]) -> Plan {
        let size = description.machine.memory.map_or(0.0, |memory| memory.file_cache.0);
        let mut cache = FileCache::new(size);
        // End of the last read, by process and file.
        let mut ends: HashMap<(u32, u32), u64> = HashMap::new();
        let mut plan = Plan { processes: BTreeMap::new(), written_back: Vec::new() };
        let order = (pace == Pace::Computed).then(|| Order::new(trace));
        for (index, call) in trace.calls.iter().enumerate() {
            let at = if pace == Pace::Recorded { Time::from_seconds(call.at) } else { Time(0) };
            let waits = order.as_ref().map_or(Waits::default(), |order| order.waits(trace, index));
            let record = |file: u32, bytes: u64| Record {
                at,
                to: 0,
                bytes: bytes.min(BYTES_MAX) as u32,
                block: block_of(bytes.min(BYTES_MAX) as f64),
                disk: file % counts[1],
                interface: file % counts[0],
                computed: waits.computed,
                paused: waits.paused,
                after: waits.after,
            };
            let (does, bytes, evicted) = decide(call, &mut cache, &mut ends);
            for Evicted { file, bytes } in evicted {
                plan.written_back.push((Section::WriteBack, record(file, bytes)));
            }
            let records = plan.processes.entry(call.process).or_default();
            if let Some(begin) =
                order.as_ref().filter(|_| records.is_empty()).map(|order| order.begin(trace, index))
            {
                let Waits { computed, paused, after } = begin;
                records.push((Section::Begin, Record { computed, paused, after, ..record(call.file, 0) }));
            }
            records.push((does, record(call.file, bytes)));
        }
        plan
    }
}

/// Computing and waits of a record, for [`Pace::Computed`].
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    computed: Time,
    paused: Time,
    after: u32,
}

/// Order of the calls of different processes, for [`Pace::Computed`].
struct Order {
    releases: Vec<Option<usize>>,
    /// For each call, 1 + the number of its record in the net.
    numbers: Vec<u32>,
}

impl Order {
    fn new(trace: &Trace) -> Order {
        // The net has the records process by process, each with one more for its beginning.
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for call in &trace.calls {
            *counts.entry(call.process).or_insert(1) += 1;
        }
        let mut next: HashMap<u32, u32> = HashMap::new();
        let mut start = 0;
        for (process, count) in counts {
            next.insert(process, start + 1);
            start += count;
        }
        let numbers = trace.calls.iter().map(|call| {
            let next = next.entry(call.process).or_default();
            *next += 1;
            *next
        });
        Order { numbers: numbers.collect(), releases: trace.releases() }
    }

    fn waits(&self, trace: &Trace, index: usize) -> Waits {
        let call = &trace.calls[index];
        let Some(timing) = call.timing else { return Waits::default() };
        let after = self.releases[index].map_or(0, |release| self.numbers[release]);
        let is_wait = matches!(call.kind, CallKind::Wait | CallKind::Receive);
        let paused = if is_wait && after == 0 { timing.end - call.at } else { 0.0 };
        Waits { computed: Time::from_seconds(timing.computed), paused: Time::from_seconds(paused), after }
    }

    /// Returns what a process waits for whose first call has this index: the latest call of another process
    /// that had begun, and the time since then.
    fn begin(&self, trace: &Trace, index: usize) -> Waits {
        let first = &trace.calls[index];
        let began = first.at - first.timing.map_or(0.0, |timing| timing.computed);
        let before = trace.calls.partition_point(|call| call.at <= began);
        let creator = trace.calls[..before].iter().rposition(|call| call.process != first.process);
        let since = creator.map_or(began, |creator| began - trace.calls[creator].at);
        let after = creator.map_or(0, |creator| self.numbers[creator]);
        Waits { computed: Time(0), paused: Time::from_seconds(since.max(0.0)), after }
    }
}

/// Returns the section that a call executes, the number of its bytes, and the evicted pages that must be
/// written.
fn decide(
    call: &Call,
    cache: &mut FileCache,
    ends: &mut HashMap<(u32, u32), u64>,
) -> (Section, u64, Vec<Evicted>) {
    let Call { file, offset, length, .. } = *call;
    match call.kind {
        CallKind::Read => {
            let end = ends.insert((call.process, file), offset.saturating_add(length));
            let (is_there, evicted) = cache.read(file, offset, length);
            let does = match (is_there, end == Some(offset)) {
                (true, _) => Section::ReadMemory,
                (false, true) => Section::ReadAhead,
                (false, false) => Section::ReadDisk,
            };
            (does, length, evicted)
        }
        CallKind::Write if cache.is_disabled() => (Section::WriteDisk, length, Vec::new()),
        CallKind::Write => (Section::WriteMemory, length, cache.write(file, offset, length)),
        CallKind::Sync => match cache.sync(file) {
            0 => (Section::SyncNothing, 0, Vec::new()),
            dirty => (Section::Sync, dirty, Vec::new()),
        },
        CallKind::Receive => (Section::Receive, length, Vec::new()),
        CallKind::Send => (Section::Send, length, Vec::new()),
        CallKind::Wait | CallKind::Other => (Section::Call, 0, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_model::Machine;
    use bywash_model::machine::{Flash, Memory};
    use bywash_model::units;

    fn machine(file_cache: f64) -> Description {
        let mut machine = Machine::carrera_2003();
        machine.memory = Some(Memory {
            rate: units::Rate(1e9),
            banks: 4.0,
            latency: units::Time(60e-9),
            l1: Size(8192.0),
            l2: Size(131_072.0),
            l2_latency: units::Time(0.0),
            write_buffer: Size(0.0),
            misses: 16.0,
            three_phase: false,
            file_cache: Size(file_cache),
        });
        let (latency, write) = (units::Time(1e-4), units::Time(0.0));
        machine.disks.flash =
            Some(Flash { latency, spread: 0.0, channels: 4.0, write, queues: 1.0, depth: 64.0 });
        Description::new(machine, Workload::web(0.0))
    }

    fn call(at: f64, process: u32, kind: CallKind, offset: u64, length: u64) -> Call {
        Call { at, process, kind, file: 0, offset, length, timing: None }
    }

    fn of(calls: Vec<Call>) -> Trace {
        Trace { files: vec!["a".into()], calls }
    }

    fn run(description: &Description, trace: &Trace, pace: Pace) -> Report {
        replay(description, Architecture::Conventional, trace, pace, 1, &mut |_| true).unwrap()
    }

    #[test]
    fn every_call_is_done_and_a_second_read_is_faster() {
        let reads = |count: u64| {
            (0..count).map(|number| call(0.0, 7, CallKind::Read, number % 16 * 4096, 4096)).collect()
        };
        let cached = run(&machine(1e6), &of(reads(160)), Pace::Fastest);
        let never = run(&machine(0.0), &of(reads(160)), Pace::Fastest);
        assert!(cached.is_whole && cached.requests == 160 && never.requests == 160);
        assert!(cached.seconds < 0.5 * never.seconds, "{} {}", cached.seconds, never.seconds);
        assert!((cached.throughput.mean * cached.seconds - 160.0 * 4096.0).abs() < 1.0);
    }

    #[test]
    fn the_recorded_pace_is_kept_where_it_can_be() {
        let calls =
            |every: f64| (0..20).map(|at| call(f64::from(at) * every, 1, CallKind::Write, 0, 100)).collect();
        let slow = run(&machine(1e6), &of(calls(1.0)), Pace::Recorded);
        assert!(slow.seconds > 19.0 && slow.seconds < 19.1);
        assert!(run(&machine(1e6), &of(calls(1.0)), Pace::Fastest).seconds < 0.1);
    }

    #[test]
    fn computing_is_kept_and_waits_keep_their_order() {
        // Process 2 computes a second and writes to the pipe for which process 1 waits, which then computes two.
        let text = "\
time,process,call,file,offset,length,end,computed
0,1,other,start,0,0,0,0
0.5,1,wait,pipe:[1],0,0,3,0.5
1.5,2,other,pipe:[1],0,1,1.6,1
5,1,other,exit,0,0,5,2
6,1,wait,sleep,0,0,7,1
";
        let trace = Trace::read(text).unwrap();
        let taken = run(&machine(1e6), &trace, Pace::Computed).seconds;
        // Process 2 begins 0.5 s after the first call, and computes 1 s; then come 2 s, 1 s, and a sleep of 1 s.
        assert!((taken - 5.5).abs() < 0.01, "{taken}");
        // On a single processor, the half second of process 1 does not overlap with anything else.
        let mut slow = machine(1e6);
        slow.machine.processors.count = 1.0;
        let taken = run(&slow, &trace, Pace::Computed).seconds;
        assert!((5.49..6.02).contains(&taken), "{taken}");
        let untimed = of(vec![call(0.0, 1, CallKind::Read, 0, 1)]);
        let refused = replay(&slow, Architecture::Conventional, &untimed, Pace::Computed, 1, &mut |_| true);
        assert_eq!(refused, Err(Error::Untimed));
    }

    #[test]
    fn every_kind_of_call_is_served_by_every_structure() {
        let kinds = [
            CallKind::Write,
            CallKind::Sync,
            CallKind::Read,
            CallKind::Sync,
            CallKind::Receive,
            CallKind::Send,
            CallKind::Wait,
            CallKind::Other,
        ];
        let calls: Vec<Call> = (0..300u64)
            .map(|number| {
                let kind = kinds[number as usize % kinds.len()];
                call(0.0, number as u32 % 5, kind, number * 5000, 6000 + number)
            })
            .collect();
        for architecture in Architecture::ALL {
            for cache in [0.0, 50_000.0, 1e9] {
                let report =
                    replay(&machine(cache), architecture, &of(calls.clone()), Pace::Fastest, 1, &mut |_| {
                        true
                    });
                let report = report.unwrap();
                assert!(report.is_whole && report.requests == 300, "{architecture:?} {cache}: {report:?}");
            }
        }
    }

    #[test]
    fn synchronising_takes_what_was_written() {
        let calls = |kind| vec![call(0.0, 1, CallKind::Write, 0, 1 << 20), call(0.0, 1, kind, 0, 1)];
        let with = run(&machine(1e9), &of(calls(CallKind::Sync)), Pace::Fastest).seconds;
        let without = run(&machine(1e9), &of(calls(CallKind::Write)), Pace::Fastest).seconds;
        // A mebibyte takes 0.15 s at the disk's 6.7 MiB/s.
        assert!(with - without > 0.14, "{with} {without}");
        let nothing =
            replay(&machine(0.0), Architecture::Active, &of(vec![]), Pace::Fastest, 1, &mut |_| true);
        assert_eq!(nothing, Err(Error::Nothing));
    }
}
