//! The devices under test, and how a test uses one.

use bywash_device::{
    Command, CommandError, Completion, Device, EngineKind, File, MemoryOwner, PassedOptions, Segment, Spec,
};
use bywash_support::disks::LoopDevice;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Size of a device, in bytes; small, so that random commands overlap.
const BYTES: u64 = 1 << 20;
/// Greatest time that any wait may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Device under test, and the resources that it uses.
pub struct Subject {
    pub device: Box<dyn Device>,
    /// Offset of a border inside the device, in bytes; random commands are concentrated around it.
    pub seam: u64,
    /// Resources of the device, dropped after it.
    _made_of: Vec<Box<dyn Send>>,
}

/// Page-aligned memory of a test.
pub struct Area {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: memory that belongs to this value alone, and is accessed by copying only.
unsafe impl Send for Area {}
// SAFETY: accesses copy bytes; a test that writes during a command's read does so on purpose.
unsafe impl Sync for Area {}

impl Area {
    pub fn new(bytes: usize) -> Arc<Area> {
        let layout = Layout::from_size_align(bytes.max(1), 4096).unwrap();
        // SAFETY: the layout has at least one byte, as `alloc_zeroed` requires.
        Arc::new(Area { base: unsafe { alloc_zeroed(layout) }, layout })
    }

    pub fn holding(bytes: &[u8]) -> Arc<Area> {
        let area = Area::new(bytes.len());
        area.put(0, bytes);
        area
    }

    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns a part of the area. All commands of this suite own the area that they use.
    pub fn segment(&self, at: usize, bytes: usize) -> Segment {
        assert!(at + bytes <= self.layout.size());
        // SAFETY: within this area, which every command here owns.
        unsafe { Segment::new(self.base.add(at), bytes) }
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.layout.size());
        // SAFETY: the assertion above keeps the range within the area; `bytes` is another object.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) };
    }

    pub fn get(&self, at: usize, bytes: usize) -> Vec<u8> {
        assert!(at + bytes <= self.layout.size());
        let mut out = vec![0; bytes];
        // SAFETY: the assertion above keeps the range within the area; `out` is new.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at), out.as_mut_ptr(), bytes) };
        out
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with the same layout.
        unsafe { dealloc(self.base, self.layout) };
    }
}

impl Subject {
    fn open(spec: &str, made_of: Vec<Box<dyn Send>>) -> Subject {
        let device = spec.parse::<Spec>().and_then(|spec| spec.open()).unwrap();
        println!("{spec}: {}", device.description());
        Subject { device, seam: 0, _made_of: made_of }
    }

    pub fn bytes(&self) -> u64 {
        self.device.geometry().bytes
    }

    pub fn block(&self) -> usize {
        self.device.geometry().block as usize
    }

    /// Submits a command to a device that has room for it.
    pub fn submit(&mut self, command: Command<'_>, owner: &Arc<Area>) {
        let owner: MemoryOwner = owner.clone();
        self.device.submit(command.owner(owner)).expect("not so many are in flight");
    }

    /// Polls until no command is in flight, and returns all completions.
    pub fn finish(&mut self) -> Vec<Completion> {
        let (mut all, end) = (Vec::new(), Instant::now() + LIMIT);
        while self.device.in_flight() > 0 {
            self.device.reap(&mut |done| all.push(done));
            assert!(Instant::now() < end, "{} commands are stuck", self.device.in_flight());
        }
        all
    }

    /// Carries out one command and returns its result.
    pub fn run(&mut self, command: Command<'_>, owner: &Arc<Area>) -> Result<(), CommandError> {
        self.submit(command, owner);
        let done = self.finish();
        assert_eq!(done.len(), 1);
        done[0].result
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let area = Area::holding(bytes);
        assert_eq!(self.run(Command::write(1, offset, &[area.segment(0, bytes.len())]), &area), Ok(()));
    }

    pub fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        let area = Area::new(bytes);
        assert_eq!(self.run(Command::read(2, offset, &[area.segment(0, bytes)]), &area), Ok(()));
        area.get(0, bytes)
    }
}

/// Returns pseudo-random bytes that are determined by `number`.
pub fn pattern(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(|_| next()).take(bytes).collect()
}

pub fn memory() -> Option<Subject> {
    Some(Subject::open("m=mem:1M", vec![]))
}

pub fn memory_in_chunks() -> Option<Subject> {
    let subject = Subject::open("m=mem:4608K,chunk=2M", vec![]);
    assert_eq!(subject.device.chunks().map(|chunks| chunks.count()), Some(3));
    Some(Subject { seam: 2 << 20, ..subject })
}

pub fn memory_behind_a_pipe() -> Option<Subject> {
    Some(Subject::open("m=mem:1M,latency=20us,bandwidth=4G/s,depth=64", vec![]))
}

fn file(folder: &Path, options: &str) -> Option<Subject> {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let spec = format!("f=file:{}/device,size=1M{options}", folder.path().display());
    Some(Subject::open(&spec, vec![Box::new(folder)]))
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
    Some(Subject::open(&spec, vec![Box::new(made)]))
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
    Some(Subject { device: Box::new(device), seam: 0, _made_of: made_of })
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

#[cfg(feature = "testing")]
pub fn faulty_without_faults() -> Option<Subject> {
    use bywash_device::{Memory, MemoryOptions, testing::Faulty};
    let device = Memory::new(MemoryOptions::new(BYTES)).unwrap();
    Some(Subject { device: Box::new(Faulty::over(device, 1)), seam: 0, _made_of: vec![] })
}
