//! Tests of the protocol: each request, each form of reply, several exports, several clients, and the end.

use crate::client::*;
use crate::held::HeldDevice;
use crate::served::{BYTES, Served, devices, memory};
use bywash_device::{Device, Memory, MemoryOptions, Operation};
use bywash_nbd::{Disk, Event, Export, Options};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// Transmission flags of an export that can be written.
const FLAGS: u16 = 1 | 4 | 8 | 32 | 64 | 256 | 2048;
const SEND_DF: u16 = 128;

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at / 512 + at * seed) % 251) as u8).collect()
}

#[test]
fn each_request_is_carried_out_by_each_device() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    for (name, device) in devices(&folder) {
        let served = Served::one(device);
        for mut client in [served.simple(), served.structured()] {
            let flags = if client.is_structured { FLAGS | SEND_DF } else { FLAGS };
            assert_eq!((client.bytes, client.flags), (BYTES, flags), "{name}");
            let data = pattern(1 << 20, 3);
            assert_eq!(client.write(0, 4096, &data), 0);
            assert_eq!(client.write(FUA, 512, &data[..512]), 0);
            assert_eq!(client.read(4096, data.len()), data);
            assert_eq!(client.read(512, 512), data[..512]);
            assert_eq!(client.ask(FLUSH, 0, 0, 0), 0);
            assert_eq!(client.ask(WRITE_ZEROES, FUA, 8192, 8192), 0);
            assert_eq!(client.ask(WRITE_ZEROES, NO_HOLE, 32768, 512), 0);
            assert_eq!(client.read(8192, 8192), [0; 8192]);
            assert_eq!(client.read(32768 - 512, 1024)[512..], [0; 512]);
            assert_eq!(client.read(16384, 16384), data[12288..28672]);
            assert_eq!(client.ask(TRIM, FUA, 0, 4096), 0);
            assert_eq!(client.ask(TRIM, 0, 1 << 20, BYTES as u32 - (1 << 20)), 0);
            assert_eq!(
                client.ask(WRITE_ZEROES, 0, 0, BYTES as u32),
                0,
                "{name}: beyond the length of a command"
            );
            assert_eq!(client.read(0, BYTES as usize), vec![0; BYTES as usize], "{name}");
            let largest = pattern(BYTES as usize, 5);
            assert_eq!(client.write(0, 0, &largest), 0);
            assert_eq!(client.read(0, largest.len()), largest);
        }
        assert_eq!(served.stats().failed, 0);
    }
}

#[test]
fn what_is_not_allowed_gets_its_error_and_the_connection_goes_on() {
    let served = Served::one(memory());
    let (einval, enospc, enotsup) = (22, 28, 95);
    for mut client in [served.simple(), served.structured()] {
        for (kind, flags, offset, length, error) in [
            (READ, 0, BYTES, 512, einval),
            (READ, 0, u64::MAX - 511, 512, einval),
            (READ, 0, 1, 512, einval),
            (READ, 0, 0, 511, einval),
            (READ, 0, 0, 33 << 20, einval),
            (FLUSH, 0, 512, 0, einval),
            (TRIM, 0, BYTES - 512, 1024, einval),
            (WRITE_ZEROES, 0, BYTES - 512, 1024, enospc),
            (WRITE_ZEROES, FAST_ZERO, 0, 1024, enotsup),
            (CACHE, 0, 0, 512, einval),
            (8, 0, 0, 512, einval),
            (0xffff, 0xffff, u64::MAX, u32::MAX, einval),
        ] {
            assert_eq!(client.ask(kind, flags, offset, length), error, "{kind} {flags} {offset} {length}");
        }
        // The payload of a write that is refused is not taken for requests.
        let payload = request(READ, 0, 1, 0, 512).repeat(1000);
        for (flags, offset, error) in [(0, 100, einval), (0, BYTES, enospc), (DF, 0, einval)] {
            let whole = payload.len() / 512 * 512;
            assert_eq!(client.write(flags, offset, &payload[..whole]), error);
        }
        assert_eq!(client.write(0, 0, &[0; 511]), einval);
        assert_eq!(client.read(0, 512), [0; 512]);
        assert_eq!(client.ask(READ, DF, 0, 0), if client.is_structured { 0 } else { einval });
    }
    let stats = served.stats();
    assert!(stats.refused > 30 && stats.cut_off == 0, "{stats:?}");
}

#[test]
fn requests_for_nothing_succeed() {
    let served = Served::one(memory());
    for mut client in [served.simple(), served.structured()] {
        assert_eq!(client.write(0, 0, b""), 0);
        for kind in [READ, TRIM, WRITE_ZEROES] {
            assert_eq!(client.ask(kind, 0, BYTES, 0), 0, "{kind}");
        }
    }
}

#[test]
fn a_block_status_tells_that_all_is_allocated() {
    let served = Served::one(memory());
    let mut client = served.structured();
    for flags in [0, 8] {
        client.send(&request(BLOCK_STATUS, flags, 5, 512, 1 << 20));
        let payload = [1u32, 1 << 20, 0].iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(client.chunk(), Chunk { flags: DONE, kind: 5, cookie: 5, payload });
    }
    assert_eq!(client.ask(BLOCK_STATUS, 0, 0, 0), 22);
    assert_eq!(served.simple().ask(BLOCK_STATUS, 0, 0, 512), 22, "without a context");
}

#[test]
fn a_read_of_which_parts_fail_tells_which() {
    let (device, control) = HeldDevice::new(64, 4096);
    control.flow(true);
    control.fail_from(8192);
    let served = Served::one(device);
    let mut client = served.structured();
    client.send(&request(READ, 0, 5, 0, 16384));
    let chunk = client.chunk();
    assert_eq!((chunk.flags, chunk.kind, chunk.payload.len()), (0, DATA, 8 + 8192));
    for (flags, offset) in [(0, 8192u64), (DONE, 12288)] {
        let chunk = client.chunk();
        assert_eq!((chunk.flags, chunk.kind, chunk.cookie), (flags, ERROR_OFFSET, 5));
        assert_eq!(chunk.payload[..4], 5u32.to_be_bytes());
        assert_eq!(chunk.payload[chunk.payload.len() - 8..], offset.to_be_bytes());
        let text = String::from_utf8_lossy(&chunk.payload[6..]).into_owned();
        assert!(text.contains("the device failed"), "{text}");
    }
    // Not in parts: nothing but the errors.
    client.send(&request(READ, DF, 6, 0, 16384));
    assert_eq!((client.chunk().kind, client.chunk().kind), (ERROR_OFFSET, ERROR_OFFSET));
    assert_eq!(client.write(0, 4096, &[1; 8192]), 5);
    assert_eq!(served.simple().ask(READ, 0, 0, 16384), 5);
    assert_eq!(client.read(0, 8192)[..4096], [0; 4096]);
    assert_eq!(served.stats().failed, 4);
}

#[test]
fn requests_complete_in_any_order() {
    let (device, control) = HeldDevice::new(64, 1 << 20);
    let served = Served::one(device);
    let mut client = served.simple();
    for cookie in 0..20u64 {
        let data = [cookie as u8; 512];
        client.send(&[&request(WRITE, 0, cookie, cookie * 512, 512)[..], &data].concat());
    }
    control.wait_for(20);
    control.flow(true);
    let cookies: Vec<u64> = (0..20).map(|_| client.reply().1).collect();
    assert_eq!(cookies, (0..20).rev().collect::<Vec<_>>());
    assert_eq!(client.read(19 * 512, 512), [19; 512]);
}

#[test]
fn a_cookie_may_be_used_twice_at_a_time() {
    let (device, control) = HeldDevice::new(64, 1 << 20);
    let served = Served::one(device);
    let mut client = served.simple();
    client.send(&request(READ, 0, 7, 0, 512).repeat(3));
    control.wait_for(3);
    control.flow(true);
    for _ in 0..3 {
        assert_eq!(client.reply(), (0, 7));
        client.take(512);
    }
}

#[test]
fn more_requests_than_fit_are_carried_out_in_time() {
    // A device of depth 2 whose commands have 4 KiB, and requests of up to 64 KiB.
    let (device, control) = HeldDevice::new(2, 4096);
    control.flow(true);
    let served = Served::one(device);
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let mut client = served.structured();
            thread::spawn(move || {
                let base = number * (200 << 10);
                let data = pattern(64 << 10, number as usize + 1);
                for round in 0..3 {
                    assert_eq!(client.write(FUA, base, &data), 0, "{round}");
                    client.send(&request(READ, 0, 1, base, 64 << 10).repeat(100));
                    for _ in 0..100 {
                        assert_eq!(client.chunk().payload[8..], data);
                    }
                    assert_eq!(client.ask(WRITE_ZEROES, NO_HOLE | FUA, base, 64 << 10), 0);
                    assert_eq!(client.ask(TRIM, FUA, base, 64 << 10), 0);
                    assert_eq!(client.read(base, 64 << 10), vec![0; 64 << 10]);
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let operations: Vec<_> = control.seen().into_iter().map(|(operation, _)| operation).collect();
    assert!(!operations.contains(&Operation::WriteZeroes), "no hole was allowed");
    assert!(operations.contains(&Operation::WriteDurable) && operations.contains(&Operation::Flush));
}

#[test]
fn durable_discards_and_zeros_are_flushed_when_they_are_done() {
    let (device, control) = HeldDevice::new(64, 4096);
    let served = Served::one(device);
    let mut client = served.simple();
    client.send(&request(TRIM, FUA, 1, 0, 8192));
    control.wait_for(2);
    assert_eq!(control.seen(), [(Operation::Discard, 0), (Operation::Discard, 4096)]);
    control.flow(true);
    assert_eq!(client.reply(), (0, 1));
    assert_eq!(control.seen()[2..], [(Operation::Flush, 0)]);
    assert_eq!(client.ask(WRITE_ZEROES, FUA, 0, 512), 0);
    assert_eq!(control.seen()[3..], [(Operation::WriteZeroes, 0), (Operation::Flush, 0)]);
    assert_eq!(client.ask(WRITE_ZEROES, FUA | NO_HOLE, 0, 512), 0);
    assert_eq!(control.seen()[5..], [(Operation::WriteDurable, 0)]);
}

#[test]
fn exports_are_chosen_by_name_and_used_by_several_clients() {
    let disks =
        vec![Disk::new("a", memory()), Disk::new("b", Memory::new(MemoryOptions::new(1 << 20)).unwrap())];
    let served = Served::new(disks, Options::new());
    let mut a = Client::structured(&served.path(), "a");
    let mut b = Client::simple(&served.path(), "b");
    assert_eq!((a.bytes, b.bytes), (BYTES, 1 << 20));
    assert_eq!((a.write(0, 0, &[1; 512]), b.write(0, 0, &[2; 512])), (0, 0));
    let mut other = Client::structured(&served.path(), "b");
    assert_eq!(other.read(0, 512), [2; 512]);
    assert_eq!(a.read(0, 512), [1; 512]);
    // The oldest form of the handshake, whose reply ends with zeros.
    let mut old = Client::greeted(&served.path());
    old.send(&[&0u32.to_be_bytes()[..], &option(EXPORT_NAME, b"a")].concat());
    assert_eq!(old.take(134)[..8], BYTES.to_be_bytes());
    assert_eq!(old.read(0, 512), [1; 512]);
    let mut listing = Client::fixed(&served.path());
    assert_eq!(listing.option(LIST, b"").len(), 3);
    assert_eq!(listing.option(2, b""), [(ACK, vec![])]);
    assert_eq!(listing.rest(), b"");
}

#[test]
fn a_client_over_tcp_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let export = Export::start(listener, vec![Disk::new("disk", memory())], Options::new(), |_| {}).unwrap();
    let mut client = Client::over_tcp(port);
    client.send(&3u32.to_be_bytes());
    client.go("");
    let data = pattern(3 << 20, 7);
    assert_eq!(client.write(0, 0, &data), 0);
    assert_eq!(client.read(0, data.len()), data);
    client.send(&request(DISC, 0, 0, 0, 0));
    assert_eq!(client.rest(), b"");
    drop(export);
}

#[test]
fn many_requests_are_received_by_one_system_call() {
    let served = Served::one(memory());
    let mut client = served.simple();
    let before = served.stats();
    let data = [7; 4096];
    let mut batch = Vec::new();
    for cookie in 0..16u64 {
        batch.extend(request(READ, 0, cookie, cookie * 4096, 4096));
        batch.extend(request(WRITE, 0, cookie, cookie * 4096, 4096));
        batch.extend(data);
    }
    client.send(&batch);
    for cookie in 0..16 {
        assert_eq!(client.reply(), (0, cookie));
        client.take(4096);
        assert_eq!(client.reply(), (0, cookie));
    }
    served.wait_until(|stats| stats.requests == before.requests + 32);
    let calls = served.stats().socket_calls - before.socket_calls;
    assert!(calls <= 8, "{calls} system calls for 32 requests");
}

#[test]
fn a_client_that_is_done_gets_all_its_replies() {
    let (device, control) = HeldDevice::new(64, 1 << 20);
    let served = Served::one(device);
    let mut client = served.simple();
    client.send(&request(READ, 0, 1, 0, 512).repeat(3));
    client.send(&request(DISC, 0, 0, 0, 0));
    // Whatever follows is not looked at.
    client.send(&request(READ, 0, 2, 0, 512));
    control.wait_for(3);
    control.flow(true);
    for _ in 0..3 {
        assert_eq!(client.reply(), (0, 1));
        client.take(512);
    }
    assert_eq!(client.rest(), b"");
}

#[test]
fn a_client_that_only_sends_no_more_gets_its_replies() {
    let served = Served::one(memory());
    let mut stream = UnixStream::connect(served.path()).unwrap();
    let mut all = 3u32.to_be_bytes().to_vec();
    all.extend(option(GO, &go("disk")));
    all.extend(request(READ, 0, 1, 0, 4096).repeat(1000));
    let mut sending = stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        sending.write_all(&all).unwrap();
        sending.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    sender.join().unwrap();
    assert_eq!(replies.len() % (16 + 4096), 18 + (20 + 12) + (20 + 14) + 20);
    assert_eq!(replies.len() / (16 + 4096), 1000);
}

#[test]
fn stopping_waits_for_requests_in_flight_and_leaves_no_thread() {
    let (device, control) = HeldDevice::new(64, 1 << 20);
    let mut served = Served::one(device);
    let mut client = served.simple();
    let mut idle = served.structured();
    let mut half = Client::fixed(&served.path());
    client.send(&[&request(WRITE, 0, 1, 0, 512)[..], &[3; 512]].concat());
    control.wait_for(1);
    let export = served.export.take().unwrap();
    let watch = export.watch();
    let stopping = thread::spawn(move || drop(export));
    assert_eq!(idle.rest(), b"");
    assert_eq!(half.rest(), b"");
    assert_eq!(control.held(), 1);
    assert!(!stopping.is_finished());
    control.flow(true);
    assert_eq!(client.reply(), (0, 1));
    assert_eq!(client.rest(), b"");
    stopping.join().unwrap();
    assert_eq!(watch.stats().connected, 0);
    assert!(UnixStream::connect(served.path()).is_err());
    let ends = served.events.try_iter().filter(|event| matches!(event, Event::Disconnected { .. }));
    assert_eq!(ends.count(), 3);
}

#[test]
fn the_device_is_dropped_when_the_export_has_stopped() {
    struct Dropped(Memory, std::sync::mpsc::Sender<()>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.1.send(()).unwrap();
        }
    }
    impl Device for Dropped {
        fn geometry(&self) -> bywash_device::Geometry {
            self.0.geometry()
        }
        fn submit<'a>(
            &mut self,
            command: bywash_device::Command<'a>,
        ) -> Result<(), bywash_device::QueueFull<'a>> {
            self.0.submit(command)
        }
        fn reap(&mut self, done: &mut dyn FnMut(bywash_device::Completion)) -> usize {
            self.0.reap(done)
        }
        fn arm(&mut self) -> bool {
            self.0.arm()
        }
        fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            None
        }
        fn depth(&self) -> usize {
            self.0.depth()
        }
        fn in_flight(&self) -> usize {
            self.0.in_flight()
        }
        fn description(&self) -> String {
            self.0.description()
        }
    }
    let (sender, dropped) = std::sync::mpsc::channel();
    let mut served = Served::one(Dropped(memory(), sender));
    let mut client = served.simple();
    assert_eq!(client.write(0, 0, &[1; 512]), 0, "a device that carries out nothing at once");
    let began = Instant::now();
    drop(served.export.take());
    dropped.try_recv().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
}
