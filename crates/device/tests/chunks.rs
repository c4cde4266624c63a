//! Chunks as other processes see them: mapped for reading or writing, and replaced.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::{Command, Device, Memory, MemoryOptions, ReplacedContents, Segment, SpareChunk, Spec};
use rustix::fs::{Mode, OFlags, fstat, ftruncate, open};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const CHUNK: usize = 2 << 20;

/// A chunk as another process maps it.
struct Mapped {
    base: *const AtomicU8,
    bytes: usize,
}

impl Mapped {
    fn map(file: BorrowedFd<'_>, rights: ProtFlags) -> Result<Mapped, Errno> {
        let bytes = fstat(file).unwrap().st_size as usize;
        // SAFETY: a new mapping at an address of the kernel's choice, of a memfd whose size is sealed.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, rights, MapFlags::SHARED, file, 0)? };
        Ok(Mapped { base: base.cast(), bytes })
    }

    fn at(&self, number: usize) -> &AtomicU8 {
        assert!(number < self.bytes);
        // SAFETY: the byte is within the mapping, and all accesses to the mapping are through atomics.
        unsafe { &*self.base.wrapping_add(number) }
    }

    fn get(&self, number: usize) -> u8 {
        self.at(number).load(Ordering::SeqCst)
    }

    fn put(&self, number: usize, byte: u8) {
        self.at(number).store(byte, Ordering::SeqCst);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: references into the mapping borrow `self`, so none is left.
        unsafe { munmap(self.base.cast_mut().cast(), self.bytes) }.unwrap();
    }
}

fn both() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

fn device(bytes: u64) -> Memory {
    let chunk = Some(CHUNK as u64);
    Memory::new(MemoryOptions { chunk, ..MemoryOptions::new(bytes) }).unwrap()
}

fn run(device: &mut Memory, write: bool, offset: usize, bytes: Vec<u8>) -> Vec<u8> {
    let memory: Arc<Vec<AtomicU8>> = Arc::new(bytes.into_iter().map(AtomicU8::new).collect());
    // SAFETY: atomics, which may be written at any time; the command owns them.
    let segment = [unsafe { Segment::new(memory.as_ptr().cast_mut().cast(), memory.len()) }];
    let command = if write {
        Command::write(1, offset as u64, &segment)
    } else {
        Command::read(1, offset as u64, &segment)
    };
    device.submit(command.owner(memory.clone())).unwrap();
    device.reap(&mut |done| assert_eq!(done.result, Ok(())));
    memory.iter().map(|byte| byte.load(Ordering::SeqCst)).collect()
}

fn write(device: &mut Memory, offset: usize, bytes: Vec<u8>) {
    run(device, true, offset, bytes);
}

fn read(device: &mut Memory, offset: usize, bytes: usize) -> Vec<u8> {
    run(device, false, offset, vec![0xee; bytes])
}

#[test]
fn a_chunk_is_the_devices_own_memory() {
    let mut device = device(2 * CHUNK as u64 + 1024);
    let maps: Vec<_> = {
        let chunks = device.chunks().unwrap();
        (0..chunks.count())
            .map(|number| Mapped::map(chunks.open_read_write(number).unwrap().as_fd(), both()).unwrap())
            .collect()
    };
    assert_eq!(maps.iter().map(|map| map.bytes).collect::<Vec<_>>(), [CHUNK, CHUNK, 1024]);
    // Two commands, each of which crosses the border between two chunks.
    write(&mut device, CHUNK - 512, [vec![1; 512], vec![2; 512]].concat());
    write(&mut device, 2 * CHUNK - 512, [vec![3; 512], vec![4; 1024]].concat());
    let seen = [
        maps[0].get(CHUNK - 513),
        maps[0].get(CHUNK - 512),
        maps[0].get(CHUNK - 1),
        maps[1].get(0),
        maps[1].get(511),
        maps[1].get(512),
        maps[1].get(CHUNK - 1),
        maps[2].get(0),
        maps[2].get(1023),
    ];
    assert_eq!(seen, [0, 1, 1, 2, 2, 0, 3, 4, 4]);
    // Writes through the mappings are visible to the device.
    maps[0].put(CHUNK - 1, 7);
    maps[1].put(0, 8);
    maps[2].put(1023, 9);
    let over_the_border = read(&mut device, CHUNK - 512, 1024);
    assert_eq!((over_the_border[510], over_the_border[511], over_the_border[512]), (1, 7, 8));
    assert_eq!(read(&mut device, 2 * CHUNK + 512, 512)[511], 9);
}

#[test]
fn the_size_of_a_chunk_stays() {
    let device = device(CHUNK as u64);
    let file = device.chunks().unwrap().open_read_write(0).unwrap();
    assert_eq!(fstat(&file).unwrap().st_size as usize, CHUNK);
    assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
    assert_eq!(ftruncate(&file, 2 * CHUNK as u64), Err(Errno::PERM));
}

#[test]
fn who_may_read_cannot_write() {
    let device = device(CHUNK as u64);
    let file = device.chunks().unwrap().open_read_only(0).unwrap();
    assert_eq!(Mapped::map(file.as_fd(), both()).err(), Some(Errno::ACCESS));
    assert_eq!(rustix::io::write(&file, b"x"), Err(Errno::BADF));
    let map = Mapped::map(file.as_fd(), ProtFlags::READ).unwrap();
    // SAFETY: the pages are this mapping's own, and the rights of no others change.
    let raised = unsafe { mprotect(map.base.cast_mut().cast(), map.bytes, MprotectFlags::WRITE) };
    assert_eq!(raised, Err(Errno::ACCESS));
}

#[test]
fn another_user_cannot_open_it_for_writing() {
    if !rustix::process::geteuid().is_root() {
        return println!("left out: only root can be another user");
    }
    let device = device(CHUNK as u64);
    let file = device.chunks().unwrap().open_read_only(0).unwrap();
    let everybodys = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let other_user = std::thread::spawn(move || {
        const NOBODY: libc::c_long = 65534;
        // SAFETY: the arguments are plain numbers. Unlike the C library's function, the system call changes
        // this thread's user only.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) }, 0);
        let again = |file: BorrowedFd<'_>, how| {
            open(format!("/proc/thread-self/fd/{}", file.as_raw_fd()), how, Mode::empty()).map(drop)
        };
        // A memfd with the default mode can be opened for writing by everybody.
        assert_eq!(again(everybodys.as_fd(), OFlags::RDWR), Ok(()));
        assert_eq!(again(file.as_fd(), OFlags::RDWR), Err(Errno::ACCESS));
        assert_eq!(again(file.as_fd(), OFlags::WRONLY), Err(Errno::ACCESS));
        assert_eq!(rustix::fs::fchmod(&file, Mode::RWXO), Err(Errno::PERM));
        assert!(Mapped::map(file.as_fd(), ProtFlags::READ).is_ok());
    });
    other_user.join().unwrap();
}

#[test]
fn who_had_a_chunk_that_was_renewed_shares_nothing_with_the_device() {
    for (keep, first, second) in [(ReplacedContents::Copied, 1, 2), (ReplacedContents::Zeroed, 0, 0)] {
        let mut device = device(3 * CHUNK as u64);
        let file = device.chunks().unwrap().open_read_write(1).unwrap();
        let old = Mapped::map(file.as_fd(), both()).unwrap();
        write(&mut device, CHUNK - 512, vec![1; 1024]);
        old.put(CHUNK - 1, 2);
        write(&mut device, 2 * CHUNK, vec![3; 512]);
        device.chunks_mut().unwrap().reallocate(1, keep).unwrap();
        // The holder of the old chunk keeps memory of zeros that nobody else uses.
        assert_eq!((old.get(0), old.get(CHUNK - 1)), (0, 0));
        old.put(1, 9);
        write(&mut device, CHUNK + 512, vec![5; 512]);
        assert_eq!(old.get(512), 0);
        // The device has the old contents or zeros in the chunk, and its neighbours are unchanged.
        let border = read(&mut device, CHUNK - 512, 1536);
        let expected = [vec![1; 512], vec![first; 512], vec![5; 512]].concat();
        assert!(border == expected, "{keep:?}");
        let border = read(&mut device, 2 * CHUNK - 512, 1024);
        assert!(border == [vec![0; 511], vec![second], vec![3; 512]].concat(), "{keep:?}");
        // A process that maps the new chunk shares it with the device.
        let new = device.chunks().unwrap().open_read_write(1).unwrap();
        let new = Mapped::map(new.as_fd(), both()).unwrap();
        assert_eq!((new.get(0), new.get(512), new.get(CHUNK - 1)), (first, 5, second));
        new.put(0, 6);
        assert_eq!(read(&mut device, CHUNK, 512)[0], 6);
    }
}

#[test]
fn memory_is_made_and_given_back_elsewhere() {
    let mut device = device(2 * CHUNK as u64);
    write(&mut device, CHUNK, vec![4; 4096]);
    let old = Mapped::map(device.chunks().unwrap().open_read_write(1).unwrap().as_fd(), both()).unwrap();
    let shape = device.chunks().unwrap().shape(1);
    let spare = std::thread::spawn(move || SpareChunk::new(shape).unwrap()).join().unwrap();
    let retired = device.chunks_mut().unwrap().replace(1, ReplacedContents::Copied, spare).unwrap();
    old.put(0, 9);
    assert!(read(&mut device, CHUNK, 4096) == vec![4; 4096]);
    assert_eq!((old.get(0), old.get(1)), (9, 4));
    std::thread::spawn(move || drop(retired)).join().unwrap();
    assert_eq!((old.get(0), old.get(1)), (0, 0));
}

#[test]
#[should_panic(expected = "made for another chunk")]
fn memory_of_another_shape_takes_no_chunks_place() {
    let mut device = device(CHUNK as u64 + 512);
    let chunks = device.chunks_mut().unwrap();
    let spare = SpareChunk::new(chunks.shape(1)).unwrap();
    let _ = chunks.replace(0, ReplacedContents::Zeroed, spare);
}

#[test]
fn chunks_are_renewed_as_often_as_it_takes() {
    let mut device = device(2 * CHUNK as u64);
    write(&mut device, 0, vec![7; 4096]);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let huge = device.description();
    for _ in 0..50 {
        device.chunks_mut().unwrap().reallocate(0, ReplacedContents::Copied).unwrap();
        device.chunks_mut().unwrap().reallocate(1, ReplacedContents::Zeroed).unwrap();
    }
    assert!(descriptors() < before + 20, "descriptors are kept");
    assert_eq!(device.description(), huge, "it lost its huge pages");
    assert!(read(&mut device, 0, 4096) == vec![7; 4096]);
}

#[test]
fn a_model_cannot_be_got_around() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("a=file:{}/device,size=1M", folder.path().display());
    for (spec, is_there) in [
        ("a=mem:2M", true),
        ("a=mem:2M,latency=1us", false),
        ("a=mem:2M,bandwidth=1G/s", false),
        (file.as_str(), false),
    ] {
        let mut device = spec.parse::<Spec>().unwrap().open().unwrap();
        assert_eq!(
            (device.chunks().is_some(), device.chunks_mut().is_some()),
            (is_there, is_there),
            "{spec}"
        );
    }
}
