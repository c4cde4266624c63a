//! The devices under test.

use bywash_device::testing::conformance::Subject;
use bywash_device::{Device, EngineKind, File, PassedOptions, Spec};
use bywash_support::disks::LoopDevice;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Size of a device, in bytes; small, so that random commands overlap.
const BYTES: u64 = 1 << 20;

fn open(spec: &str, made_of: Vec<Box<dyn Send>>) -> Subject {
    let device = spec.parse::<Spec>().and_then(|spec| spec.open()).unwrap();
    println!("{spec}: {}", device.description());
    Subject::new(device, made_of)
}

pub fn memory() -> Option<Subject> {
    Some(open("m=mem:1M", vec![]))
}

pub fn memory_in_chunks() -> Option<Subject> {
    let subject = open("m=mem:4608K,chunk=2M", vec![]);
    assert_eq!(subject.device.chunks().map(|chunks| chunks.count()), Some(3));
    Some(Subject { seam: 2 << 20, ..subject })
}

pub fn memory_behind_a_pipe() -> Option<Subject> {
    Some(open("m=mem:1M,latency=20us,bandwidth=4G/s,depth=64", vec![]))
}

fn file(folder: &Path, options: &str) -> Option<Subject> {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let spec = format!("f=file:{}/device,size=1M{options}", folder.path().display());
    Some(open(&spec, vec![Box::new(folder)]))
}

/// Returns true if io_uring is available; otherwise prints why the test is left out.
fn has_ring() -> bool {
    match io_uring::IoUring::new(2) {
        Ok(_) => true,
        Err(error) => {
            println!("left out: there is no io_uring here: {error}");
            false
        }
    }
}

fn tmpfs() -> Option<&'static Path> {
    let folder = Path::new("/dev/shm");
    let is_there = folder.is_dir();
    if !is_there {
        println!("left out: there is no /dev/shm here");
    }
    is_there.then_some(folder)
}

pub fn file_by_ring() -> Option<Subject> {
    if has_ring() { file(&std::env::temp_dir(), ",engine=io_uring,depth=64") } else { None }
}

pub fn file_by_threads() -> Option<Subject> {
    file(&std::env::temp_dir(), ",engine=threads,threads=3,depth=64")
}

pub fn file_by_ring_on_tmpfs() -> Option<Subject> {
    if has_ring() { file(tmpfs()?, ",engine=io_uring,depth=64") } else { None }
}

pub fn file_by_threads_on_tmpfs() -> Option<Subject> {
    file(tmpfs()?, ",engine=threads,threads=3,depth=64,sparse")
}

pub fn cached_file() -> Option<Subject> {
    file(&std::env::temp_dir(), ",cached,depth=64")
}

/// Makes a loop device; prints why the test is left out if that fails.
pub fn loop_device() -> Option<LoopDevice> {
    LoopDevice::new(BYTES).inspect_err(|why| println!("left out: {why}")).ok()
}

fn block(options: &str) -> Option<Subject> {
    let made = loop_device()?;
    let spec = format!("b=block:{},depth=64{options}", made.path().display());
    Some(open(&spec, vec![Box::new(made)]))
}

pub fn block_by_ring() -> Option<Subject> {
    if has_ring() { block(",engine=io_uring") } else { None }
}

pub fn block_by_threads() -> Option<Subject> {
    block(",engine=threads,threads=3")
}

/// Makes a device of a passed file, with few bounce pieces, so that commands wait for one another.
fn passed(file: impl Into<OwnedFd>, using: EngineKind, made_of: Vec<Box<dyn Send>>) -> Option<Subject> {
    let options = PassedOptions {
        depth: 64,
        bounce_buffers: 2,
        engine: Some(using),
        threads: 3,
        ..PassedOptions::default()
    };
    let device = File::passed(file.into(), &options).unwrap();
    println!("what was passed: {}", device.description());
    assert_eq!(device.geometry().bytes, BYTES);
    Some(Subject::new(Box::new(device), made_of))
}

fn file_of_somebody() -> std::fs::File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(BYTES).unwrap();
    file
}

pub fn passed_file_by_ring() -> Option<Subject> {
    if has_ring() { passed(file_of_somebody(), EngineKind::Ring, vec![]) } else { None }
}

pub fn passed_file_by_threads() -> Option<Subject> {
    passed(file_of_somebody(), EngineKind::Threads, vec![])
}

pub fn passed_memory() -> Option<Subject> {
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, BYTES).unwrap();
    passed(file, EngineKind::Threads, vec![])
}

pub fn passed_block() -> Option<Subject> {
    let made = loop_device()?;
    let file = std::fs::File::options().read(true).write(true).open(made.path()).unwrap();
    let using = if has_ring() { EngineKind::Ring } else { EngineKind::Threads };
    passed(file, using, vec![Box::new(made)])
}

/// Makes two queues of a device and tests the second one, while the first one is idle.
fn second_queue(subject: Subject) -> Option<Subject> {
    let Subject { device, seam, mut made_of } = subject;
    let mut queues = bywash_device::queues(device, 2).unwrap();
    assert_eq!(queues.len(), 2);
    let device = queues.pop().unwrap();
    println!("second queue: {}", device.description());
    made_of.insert(0, Box::new(queues));
    Some(Subject { device, seam, made_of })
}

pub fn second_queue_of_memory() -> Option<Subject> {
    second_queue(memory_in_chunks()?)
}

pub fn second_queue_of_a_file_by_ring() -> Option<Subject> {
    if has_ring() { second_queue(file(&std::env::temp_dir(), ",engine=io_uring,depth=128")?) } else { None }
}

pub fn second_queue_of_a_file_by_threads() -> Option<Subject> {
    second_queue(file(tmpfs()?, ",engine=threads,threads=3,depth=128")?)
}

pub fn second_queue_of_a_block_device() -> Option<Subject> {
    let made = loop_device()?;
    let spec = format!("b=block:{},depth=128", made.path().display());
    second_queue(open(&spec, vec![Box::new(made)]))
}

pub fn shared_queue_of_memory_behind_a_pipe() -> Option<Subject> {
    second_queue(open("m=mem:1M,latency=20us,bandwidth=4G/s,depth=128", vec![]))
}

pub fn shared_queue_of_a_passed_file() -> Option<Subject> {
    let options = PassedOptions { depth: 128, ..PassedOptions::default() };
    let device = File::passed(file_of_somebody().into(), &options).unwrap();
    second_queue(Subject::new(Box::new(device), vec![]))
}

pub fn faulty_without_faults() -> Option<Subject> {
    use bywash_device::{Memory, MemoryOptions, testing::Faulty};
    let device = Memory::new(MemoryOptions::new(BYTES)).unwrap();
    Some(Subject::new(Box::new(Faulty::over(device, 1)), vec![]))
}
