//! Commands of all devices allocate nothing: a counting allocator checks all threads.
//!
//! The test has a process without a test harness, whose own thread would be counted, too.

#![allow(clippy::unwrap_used)]

use bywash_device::{Command, Device, MemoryOwner, Region, Segment, Spec};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system allocator's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; `alloc` got `at` from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[repr(align(4096))]
struct AlignedMemory([AtomicU8; 64 << 10]);

fn work(device: &mut dyn Device, memory: &Arc<AlignedMemory>, region: Option<bywash_device::RegionId>) {
    let base: *mut u8 = memory.0.as_ptr().cast_mut().cast();
    // SAFETY: atomics, which may be written at any time; every command owns them.
    let segment = |at: usize, bytes| unsafe { Segment::new(base.wrapping_add(at), bytes) };
    let aligned = [segment(0, 4096)];
    // Unaligned memory, which needs bounce pieces.
    let pieces = [segment(4097, 3), segment(5000, 4093)];
    let two = [segment(8192, 1024)];
    for round in 0..200u64 {
        let offset = round % 16 * 4096;
        for command in [
            Command::write(1, offset, &aligned),
            Command::read(2, offset, &pieces),
            Command::compare_and_write(3, offset, &two),
            Command::write_durable(4, offset, &pieces),
            Command::write_zeroes(5, offset, 4096),
            Command::discard(6, offset, 4096),
            Command::flush(7),
            Command::read(8, 1, &aligned),
        ] {
            let owner: MemoryOwner = memory.clone();
            assert!(device.submit(command.owner(owner).region(region)).is_ok());
        }
        while device.in_flight() > 0 {
            device.reap(&mut |_| {});
            device.arm();
        }
    }
}

fn main() {
    let memory = Arc::new(AlignedMemory([const { AtomicU8::new(0) }; 64 << 10]));
    let folder = tempfile::tempdir().unwrap();
    for (number, spec) in
        ["mem:1M", "mem:1M,latency=1us", "file:,depth=8", "file:,engine=threads", "file:,cached"]
            .into_iter()
            .enumerate()
    {
        let file = format!("file:{}/{number},size=1M", folder.path().display());
        let spec = format!("a={}", spec.replace("file:", &file));
        let mut device = spec.parse::<Spec>().unwrap().open().unwrap();
        // SAFETY: the owner keeps the memory, which consists of atomics.
        let region = unsafe { Region::new(memory.0.as_ptr().cast_mut().cast(), 64 << 10, memory.clone()) };
        // Registering fails on kernels before 6.13; the commands then use the memory unregistered.
        let pinned = device.pinner().and_then(|pinner| region.pin(&*pinner).ok());
        let region = pinned.and_then(|memory| device.register(&Arc::new(memory)).ok().flatten());
        work(&mut *device, &memory, region);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        work(&mut *device, &memory, region);
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{spec}");
    }
    println!("test commands_allocate_nothing ... ok");
}
