//! Costs that the operating system tells a machine: work, copies and requests to devices.

#![allow(clippy::unwrap_used)] // helpers of the tests

mod toolchain;

use std::collections::VecDeque;

use bywash_cpu::memory::Space;
use bywash_cpu::{Blocks, Exit, Hart};
use bywash_execute::machine::{
    Continuation, Device, Direction, Event, Location, Machine, Path, Request, Tag, ThreadId, Work,
};
use bywash_execute::{End, Execution, FileSystem, Functional, Latencies, Program, Progress, Time};

/// Machine that takes notes of what another one is told.
struct Recorder {
    inner: Functional,
    work: Vec<Work>,
    requests: Vec<(Time, Request)>,
    /// True if reads are done by a device's processor.
    defers: bool,
    deferred: VecDeque<ThreadId>,
}

impl Recorder {
    fn new(defers: bool) -> Recorder {
        let inner = Functional::new(1, Latencies::default());
        Recorder { inner, work: Vec::new(), requests: Vec::new(), defers, deferred: VecDeque::new() }
    }
}

impl Machine for Recorder {
    fn processors(&self) -> usize {
        self.inner.processors()
    }

    fn now(&self, processor: usize) -> Time {
        self.inner.now(processor)
    }

    fn time(&self) -> Time {
        self.inner.time()
    }

    fn next(&mut self, occupied: &[bool], alarm: Option<Time>) -> Event {
        if let Some(thread) = self.deferred.pop_front() {
            return Event::Resume { thread, processor: 0 };
        }
        self.inner.next(occupied, alarm)
    }

    fn run(&mut self, processor: usize, hart: &mut Hart, space: &mut Space, blocks: &mut Blocks) -> Exit {
        self.inner.run(processor, hart, space, blocks)
    }

    fn work(
        &mut self,
        processor: usize,
        thread: Option<ThreadId>,
        work: &[Work],
        space: &mut Space,
    ) -> Continuation {
        self.work.extend(work);
        self.inner.work(processor, thread, work, space);
        let is_read = work.first() == Some(&Work::Path(Path::Entry { call: 63 }));
        match thread.filter(|_| self.defers && is_read) {
            Some(thread) => {
                self.deferred.push_back(thread);
                Continuation::Deferred
            }
            None => Continuation::Immediate,
        }
    }

    fn submit(&mut self, processor: Option<usize>, tag: Tag, request: Request) {
        self.requests.push((self.inner.time(), request));
        self.inner.submit(processor, tag, request);
    }
}

#[test]
fn a_machine_is_told_what_calls_cost() {
    let test = "a_machine_is_told_what_calls_cost";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile(&compiler, "costs", folder.path());
    const LENGTH: u64 = 200_000;
    let mut files = FileSystem::new(1 << 20);
    files.add_file("/data/file", &[5; LENGTH as usize]).unwrap();
    let recorder = Recorder::new(false);
    let program = Program::new(["costs"]).files(files);
    let mut execution = Execution::new(&std::fs::read(&file).unwrap(), program, recorder).unwrap();
    assert_eq!(execution.run().unwrap(), Progress::Ended(End::Exited(0)));
    let Recorder { work, requests, .. } = execution.machine();

    let disk = |wanted: Direction| -> Vec<(u64, u64)> {
        let of_disk = requests.iter().filter_map(|(_, request)| match *request {
            Request::Disk { direction, offset, bytes, .. } if direction == wanted => Some((offset, bytes)),
            _ => None,
        });
        of_disk.collect()
    };
    // The file is read once: 49 pages, 32 of them ahead, at consecutive offsets.
    assert_eq!(disk(Direction::In), [(0, 32 * 4096), (32 * 4096, 17 * 4096)]);
    assert_eq!(disk(Direction::Out), [(1 << 20, 8192)]);
    assert!(requests.iter().all(|(_, request)| request.device() == Device::Disk));

    let count = |path: Path| work.iter().filter(|&&one| one == Work::Path(path)).count();
    assert_eq!(count(Path::CacheMiss), 2);
    assert_eq!(count(Path::Interrupt { device: Some(Device::Disk) }), 3);
    assert_eq!(count(Path::Block), 3, "two reads and the fsync");
    assert_eq!(count(Path::Resume), 3);
    // 13 reads with data and one at the end, twice.
    assert_eq!(count(Path::Entry { call: 63 }), 28);
    assert_eq!(count(Path::Lookup { names: 2 }), 3);
    let copied = |is_read: bool| -> u64 {
        let copies = work.iter().filter_map(|one| match *one {
            Work::Copy { from: Location::Page { .. }, to: Location::Program(_), bytes } if is_read => {
                Some(bytes)
            }
            Work::Copy { from: Location::Program(_), to: Location::Page { .. }, bytes } if !is_read => {
                Some(bytes)
            }
            _ => None,
        });
        copies.sum()
    };
    assert_eq!((copied(true), copied(false)), (2 * LENGTH, 8192));
}

#[test]
fn a_small_page_cache_reads_again() {
    let test = "a_small_page_cache_reads_again";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile(&compiler, "costs", folder.path());
    let time = |pages| {
        let mut files = FileSystem::new(2 << 20);
        files.add_file("/data/file", &[5; 1 << 20]).unwrap();
        toolchain::run(&file, Program::new(["costs"]).files(files).cache_pages(pages), 1).time
    };
    let disk = Latencies::default().disk.picoseconds();
    let (once, twice) = (time(1000), time(64));
    // 1 MiB is 8 requests.
    assert!(twice - once >= 8 * disk && twice - once < 9 * disk, "{once} and {twice} ps");
}

#[test]
fn a_machine_can_defer_a_call_to_a_device() {
    let test = "a_machine_can_defer_a_call_to_a_device";
    let Some(compiler) = toolchain::compiler() else { return toolchain::skip(test, "gcc-riscv64-linux-gnu") };
    let folder = tempfile::tempdir().unwrap();
    let file = toolchain::compile(&compiler, "costs", folder.path());
    let run = |defers| {
        let mut files = FileSystem::new(1 << 20);
        files.add_file("/data/file", &[5; 200_000]).unwrap();
        let program = Program::new(["costs"]).files(files);
        let bytes = std::fs::read(&file).unwrap();
        let mut execution = Execution::new(&bytes, program, Recorder::new(defers)).unwrap();
        assert_eq!(execution.run().unwrap(), Progress::Ended(End::Exited(0)));
        let switches = execution.machine().work.iter();
        let switches = switches.filter(|work| matches!(work, Work::Path(Path::Switch { .. }))).count();
        (execution.retired(), execution.calls().0, switches)
    };
    let (immediate, deferred) = (run(false), run(true));
    assert_eq!((immediate.0, immediate.1), (deferred.0, deferred.1), "the program sees no difference");
    // 28 reads, of which two wait for the disk in any case.
    assert_eq!(deferred.2, immediate.2 + 26);
}
