//! Simulated mechanisms against results in closed form: commands that take turns, bursts with arbitration, the
//! traffic of copies, and the shares of the processors.

use bywash_model::machine::{Interconnect, Memory, Rotating, Topology};
use bywash_model::units::{Cycles, CyclesPerByte, Frequency, Rate, Share, Size, Time};
use bywash_model::work::{Costs, Request};
use bywash_model::{Architecture, Description, Machine, Workload, bound};
use bywash_sim::{Options, Report, Stop, simulate};

const KIB: f64 = 1024.0;

/// Returns 4 disks with 4 streams each, on an otherwise fast machine.
fn video(shape: Topology, request_bytes: f64) -> Description {
    let mut machine = Machine::carrera_2003();
    machine.processors.count = 4.0;
    machine.interconnect = Interconnect { shape, ..Interconnect::ideal(Rate(2e9)) };
    machine.interfaces.rate = Rate(1e9);
    (machine.interfaces.processor, machine.disks.processor) = (Frequency(1e10), Frequency(1e10));
    machine.disks.rate = Rate(40e6);
    (machine.disks.cache, machine.disks.command) = (Size(128.0 * KIB), Size(16.0 * KIB));
    machine.disks.rotating = Some(Rotating {
        seek: Time(2e-3),
        track: Time(0.0),
        tracks: 1.0,
        track_size: Size(0.0),
        turn: Time(0.0),
        order: Default::default(),
    });
    let mut description =
        Description::new(machine, Workload::new(Request::Video { file: Size(request_bytes) }));
    description.load.threads = 16.0;
    description
}

fn run(description: &Description, architecture: Architecture) -> Report {
    let options = Options::default().seed(5).stop(Stop::Requests(4000));
    simulate(description, architecture, &options, &mut |_| true).expect("the description can be simulated")
}

fn working(report: &Report, name: &str) -> f64 {
    report.resources.iter().find(|row| row.name == name).map_or(0.0, |row| row.working)
}

#[track_caller]
fn assert_near(found: f64, wanted: f64, tolerance: f64) {
    assert!((found / wanted - 1.0).abs() < tolerance, "{found}, wanted {wanted}");
}

/// Throughput of 4 disks that position their heads once in `bytes` bytes.
fn disks(bytes: f64) -> f64 {
    4.0 * bytes / (2e-3 + bytes / 40e6)
}

#[test]
fn commands_of_several_streams_take_turns_on_a_bus_only() {
    let (bus, switch) = (video(Topology::Bus, 64.0 * KIB), video(Topology::Switch, 64.0 * KIB));
    let rate = |description, architecture| run(description, architecture).throughput.mean;
    assert_near(rate(&bus, Architecture::Conventional), disks(16.0 * KIB), 0.01);
    assert_near(rate(&switch, Architecture::Conventional), disks(64.0 * KIB), 0.01);
    assert_near(rate(&bus, Architecture::Active), disks(64.0 * KIB), 0.01);
    // A controller that knows the files reads a segment of 32 KiB for requests of 8 KiB.
    let small = video(Topology::Bus, 8.0 * KIB);
    assert_near(rate(&small, Architecture::Conventional), disks(8.0 * KIB), 0.01);
    // Streams that find their data there leave the disk idle for a moment.
    assert_near(rate(&small, Architecture::Active), disks(32.0 * KIB), 0.02);
    // So does one with as many segments as streams.
    let mut segments = small;
    segments.machine.disks.segments = 4.0;
    assert_near(rate(&segments, Architecture::Conventional), disks(32.0 * KIB), 0.02);
}

#[test]
fn one_stream_for_each_disk_reads_at_the_disk_s_rate() {
    let mut description = video(Topology::Switch, 16.0 * KIB);
    description.load.threads = 4.0;
    // The controller reads on while the rest of a request takes its time.
    assert_near(run(&description, Architecture::Conventional).throughput.mean, 4.0 * 40e6, 0.01);
}

#[test]
fn a_bus_is_busy_for_the_bursts_of_its_bytes() {
    let mut description = video(Topology::Bus, 64.0 * KIB);
    description.machine.interconnect.packet = Size(256.0);
    description.machine.interconnect.overhead = Size(16.0);
    description.machine.interconnect.arbitration = Time(50e-9);
    let report = run(&description, Architecture::Active);
    let byte = (1.0 + 16.0 / 256.0) / 2e9 + 50e-9 / 256.0;
    assert_near(working(&report, "interconnect"), 2.0 * report.throughput.mean * byte, 0.01);
    assert_near(working(&report, "interfaces, out"), report.throughput.mean / 1e9 / 4.0, 0.01);
}

/// Masters of a saturated bus share it equally, and together have all of it.
#[test]
fn masters_take_turns_at_a_full_bus() {
    let mut description = video(Topology::Bus, 64.0 * KIB);
    description.machine.interconnect.rate = Rate(50e6);
    let report = run(&description, Architecture::Active);
    assert_near(report.throughput.mean, 25e6, 0.01);
    let ports = report.resources.iter().find(|row| row.name == "disk ports").unwrap();
    assert_near(ports.busiest, ports.working, 0.05);
}

fn memory(l2: f64, three_phase: bool) -> Memory {
    Memory {
        rate: Rate(1e9),
        banks: 8.0,
        latency: Time(50e-9),
        l1: Size(32.0 * KIB),
        l2: Size(l2),
        l2_latency: Time(0.0),
        write_buffer: Size(KIB),
        misses: 1.0,
        three_phase,
        file_cache: Size(0.0),
    }
}

/// Crossings of the memory bus per byte of a request.
fn crossings(report: &Report) -> f64 {
    working(report, "memory bus") * 1e9 / report.throughput.mean
}

#[test]
fn a_copy_crosses_the_bus_as_often_as_its_caches_say() {
    let mut description = video(Topology::Switch, 16.0 * KIB);
    let work = Request::Blocks { block: Size(16.0 * KIB), writes: Share(0.0), in_order: false };
    description.request = work;
    description.load.threads = 4.0;
    let mut of = |l2, three_phase| {
        description.machine.memory = Some(memory(l2, three_phase));
        crossings(&run(&description, Architecture::Conventional))
    };
    // Without caches: the disk's store, the copy's source, its target, and the target's write-back.
    assert_near(of(0.0, false), 4.0, 0.01);
    // With caches the program's buffer stays in one: the disk's store and the copy's source.
    assert_near(of(1024.0 * KIB, false), 2.0, 0.01);
    // A write to disk: the copy's target is modified in a cache. Its owner supplies it, or writes it back first.
    description.request = Request::Blocks { block: Size(16.0 * KIB), writes: Share(1.0), in_order: false };
    let mut of = |three_phase| {
        description.machine.memory = Some(memory(1024.0 * KIB, three_phase));
        crossings(&run(&description, Architecture::Conventional))
    };
    assert_near(of(false), 1.0, 0.01);
    assert_near(of(true), 2.0, 0.01);
}

#[test]
fn stalls_on_an_idle_memory_are_part_of_the_costs() {
    let mut description = video(Topology::Switch, 16.0 * KIB);
    description.request = Request::Blocks { block: Size(16.0 * KIB), writes: Share(0.0), in_order: false };
    description.load.threads = 1.0;
    description.machine.memory = Some(memory(1024.0 * KIB, false));
    description.costs.system = CyclesPerByte(4.55);
    let report = run(&description, Architecture::Conventional);
    let cycles = (0.15 + 1.5 + 4.55) * report.throughput.mean;
    assert_near(report.processors.taken(), cycles / 1.5e9 / 4.0, 0.01);
    // The copy's source stalls the processor for each line: its latency, and its bytes on the bus.
    let stall = (50e-9 / 64.0 + 1e-9) * report.throughput.mean / 4.0;
    assert_near(report.processors.stalled, stall, 0.01);
    let processors = &report.processors;
    let sum = processors.computing + processors.stalled + processors.spinning + processors.idle;
    assert!((sum - 1.0).abs() < 1e-9 && processors.spinning < 1e-6, "{processors:?}");
}

#[test]
fn a_spinning_thread_is_not_stalled_on_memory() {
    let mut description = video(Topology::Switch, 16.0 * KIB);
    description.load.threads = 4.0;
    description.load.spin = true;
    let processors = run(&description, Architecture::Active).processors;
    assert!(
        processors.spinning > 0.9 && processors.stalled == 0.0 && processors.idle < 1e-9,
        "{processors:?}"
    );
}

/// The processor that runs the file system spends `costs.access` once for each request to a disk, whatever its size, in the
/// model and in the simulator.
#[test]
fn a_request_to_a_disk_costs_its_access() {
    let mut description = video(Topology::Switch, 64.0 * KIB);
    // One slow processor and fast disks: the file system binds.
    description.machine.processors.count = 1.0;
    (description.machine.disks.rotating, description.machine.disks.rate) = (None, Rate(1e9));
    description.costs = Costs {
        server: CyclesPerByte(0.0),
        tcp: CyclesPerByte(0.0),
        file_system: CyclesPerByte(0.5),
        system: CyclesPerByte(0.0),
        access: Cycles(1e6),
        ..Costs::default()
    };
    let speed = description.machine.processors.speed.0;
    description.machine.disks.processor = Frequency(speed / 8.0);
    let each = 1e6 + 0.5 * 64.0 * KIB;
    // Under the active structure four disks have an eighth of the speed each.
    for (architecture, speed) in [
        (Architecture::Conventional, speed),
        (Architecture::UserLevel, speed),
        (Architecture::Active, speed / 2.0),
        (Architecture::Direct, speed / 2.0),
    ] {
        let bound = bound(&description.machine, &description.workload(), architecture).throughput;
        assert_near(bound, 64.0 * KIB * speed / each, 1e-3);
        assert_near(run(&description, architecture).throughput.mean, bound, 0.02);
    }
}
