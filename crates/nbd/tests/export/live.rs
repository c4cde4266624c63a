//! Tests of disks that are added and removed while others are served.

use crate::client::*;
use crate::held::HeldDevice;
use crate::served::{Served, memory};
use bywash_device::{Command, Completion, Device, Geometry, Memory, QueueFull};
use bywash_nbd::{Disk, Options};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Returns the names that a client is told of.
fn listed(served: &Served) -> Vec<String> {
    let mut replies = Client::fixed(&served.path()).option(LIST, b"");
    assert_eq!(replies.pop(), Some((ACK, vec![])));
    let name = |reply: &(u32, Vec<u8>)| {
        let length = u32::from_be_bytes(reply.1[..4].try_into().unwrap()) as usize;
        String::from_utf8(reply.1[4..4 + length].to_vec()).unwrap()
    };
    replies.iter().map(name).collect()
}

#[test]
fn a_disk_is_added_and_removed_and_others_are_not_disturbed() {
    let served = Served::one(memory());
    let export = served.export.as_ref().unwrap();
    let mut first = served.simple();
    assert_eq!(first.write(0, 0, &[1; 4096]), 0);
    for round in 0..3 {
        export.add(Disk::new("second", memory())).unwrap();
        assert_eq!(listed(&served), ["disk", "second"]);
        let mut second = Client::structured(&served.path(), "second");
        assert_eq!(second.read(0, 4096), [0; 4096], "the disk of round {round} has what another one had");
        assert_eq!(second.write(0, 0, &[2; 4096]), 0);
        assert_eq!(first.read(0, 4096), [1; 4096]);
        export.remove("second").unwrap();
        assert_eq!(second.rest(), b"");
        assert_eq!(listed(&served), ["disk"]);
        assert_eq!(first.read(0, 4096), [1; 4096]);
    }
    // Even the last one can go, and another one come.
    export.remove("disk").unwrap();
    assert_eq!(first.rest(), b"");
    assert!(listed(&served).is_empty());
    export.add(Disk::new("third", memory())).unwrap();
    assert_eq!(Client::simple(&served.path(), "third").read(0, 512), [0; 512]);
}

#[test]
fn names_that_are_taken_or_unknown_are_refused() {
    let served = Served::one(memory());
    let export = served.export.as_ref().unwrap();
    for (refused, why) in [
        (export.add(Disk::new("disk", memory())), "no other export"),
        (export.add(Disk::new("a\0", memory())), "zero bytes"),
        (export.remove("none"), "'none'"),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    for number in 0..bywash_nbd::DISKS_MAX - 1 {
        export.add(Disk::new(number.to_string(), memory_of_a_block())).unwrap();
    }
    let refused = export.add(Disk::new("one more", memory())).unwrap_err().to_string();
    assert!(refused.contains("1 to 256"), "{refused}");
    served.check();
}

fn memory_of_a_block() -> bywash_device::Memory {
    bywash_device::Memory::new(bywash_device::MemoryOptions::new(4096)).unwrap()
}

#[test]
fn a_device_with_requests_in_flight_is_closed_when_they_have_completed() {
    let (device, control) = HeldDevice::new(8, 1 << 20);
    let served = Served::new(vec![Disk::new("disk", memory()), Disk::new("held", device)], Options::new());
    let mut client = Client::simple(&served.path(), "held");
    client.send(&request(READ, 0, 1, 0, 4096));
    client.send(&[&request(WRITE, 0, 2, 0, 512)[..], &[7; 512]].concat());
    control.wait_for(2);
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| served.export.as_ref().unwrap().remove("held"));
        assert_eq!(client.rest(), b"");
        // Nobody finds it any more, and everybody else is served.
        served.check();
        let mut late = Client::fixed(&served.path());
        assert_eq!(late.option(GO, &go("held"))[0].0, (1 << 31) + 6);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!removed.is_finished() && !control.is_closed());
        control.flow(true);
        removed.join().unwrap().unwrap();
    });
    assert!(control.is_closed());
    served.check();
}

/// The number of a withdrawn disk is given to the next one, for which the client has selected nothing.
#[test]
fn a_context_that_was_selected_for_a_removed_disk_is_none_of_the_next() {
    let served = Served::new(vec![Disk::new("disk", memory()), Disk::new("old", memory())], Options::new());
    let export = served.export.as_ref().unwrap();
    let mut client = Client::fixed(&served.path());
    assert_eq!(client.option(STRUCTURED_REPLY, b""), [(ACK, vec![])]);
    assert_eq!(client.option(SET_META_CONTEXT, &context("old")).len(), 2);
    export.remove("old").unwrap();
    export.add(Disk::new("new", memory())).unwrap();
    client.go("new");
    client.is_structured = true;
    assert_eq!(client.ask(BLOCK_STATUS, 0, 0, 512), 22, "without a context");
}

/// Memory of which clients see as much as the test says.
struct Growing {
    memory: Memory,
    shown: u64,
    bytes: Arc<AtomicU64>,
}

impl Device for Growing {
    fn geometry(&self) -> Geometry {
        Geometry { bytes: self.shown, ..self.memory.geometry() }
    }

    fn refresh(&mut self) -> Geometry {
        self.shown = self.bytes.load(Ordering::Relaxed);
        self.geometry()
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        self.memory.submit(command)
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        self.memory.reap(done)
    }

    fn arm(&mut self) -> bool {
        self.memory.arm()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.memory.descriptor()
    }

    fn depth(&self) -> usize {
        self.memory.depth()
    }

    fn in_flight(&self) -> usize {
        self.memory.in_flight()
    }

    fn description(&self) -> String {
        self.memory.description()
    }
}

/// The protocol has no message for it: clients that connect later see the new size, and the others may use it.
#[test]
fn the_size_of_a_disk_changes_while_it_is_served() {
    let bytes = Arc::new(AtomicU64::new(1 << 20));
    let device = Growing { memory: memory(), shown: 1 << 20, bytes: bytes.clone() };
    let served = Served::one(device);
    let mut first = served.simple();
    assert_eq!((first.bytes, first.write(0, 1 << 20, &[5; 512])), (1 << 20, 28), "ENOSPC");
    bytes.store(2 << 20, Ordering::Relaxed);
    served.export.as_ref().unwrap().refresh("disk");
    // The order is carried out before a client that connects behind it is greeted.
    let mut second = served.simple();
    assert_eq!((second.bytes, second.write(0, 1 << 20, &[6; 512])), (2 << 20, 0));
    assert_eq!(first.read(1 << 20, 512), [6; 512]);
    bytes.store(1 << 20, Ordering::Relaxed);
    served.export.as_ref().unwrap().refresh("disk");
    assert_eq!((served.simple().bytes, second.write(0, 1 << 20, &[7; 512])), (1 << 20, 28));
}
