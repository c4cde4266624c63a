//! Tests of frontends that connect and disconnect, are malicious, or wait, against a device that the test
//! controls.

use crate::driver::{DATA_BYTES, Driver, FLUSH, READ, RINGS, SLOTS, WRITE, wait_for};
use crate::held::{Control, PausedDevice};
use bywash_device::{Device, Operation};
use bywash_support::huge_pages::{HugePages, free};
use bywash_vhost::{Error, Event, Export, Options};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use std::fs::File;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vhost::VhostBackend;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vmm_sys_util::eventfd::EventFd;

pub struct Served {
    pub export: Export,
    pub events: Receiver<Event>,
    folder: TempDir,
}

impl Served {
    fn new(device: impl Device + 'static, options: Options) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let (send, events) = channel();
        // Sending fails when the test no longer listens, which is no failure.
        let report = move |event| drop(send.send(event));
        Served { export: Export::start(listener, device, options, report).unwrap(), events, folder }
    }

    pub fn held(depth: usize) -> (Served, Control) {
        let (device, control) = PausedDevice::new(depth);
        (Served::new(device, Options::new()), control)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn event(&self) -> Event {
        self.events.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// Returns the reason why the frontend was disconnected.
    fn failure(&self) -> String {
        assert!(matches!(self.event(), Event::Connected));
        match self.event() {
            Event::CutOff(error @ Error::Peer(_)) => error.to_string(),
            event => panic!("{event:?}"),
        }
    }
}

/// Size of a huge page, in bytes.
const HUGE_PAGE: u64 = 2 << 20;

/// An action that a frontend, or its guest, must not do.
type Deed = fn(&mut Driver);

/// Checks that the disk works for the next frontend.
pub fn check_next(served: &Served, control: &Control) {
    control.flow(true);
    check_disk(&served.socket());
}

/// Checks that a disk, whose device does not hold requests, can be written and read.
pub fn check_disk(socket: &Path) {
    let mut driver = Driver::attach(socket, 0);
    driver.fill(0, 7);
    driver.ask(0, WRITE, 3);
    driver.wait(1);
    driver.ask(1, READ, 3);
    driver.wait(1);
    assert_eq!((driver.status(0), driver.status(1)), (0, 0));
    assert_eq!(driver.data(1), [7; DATA_BYTES]);
}

#[test]
fn requests_are_given_back_as_they_are_done() {
    let (served, control) = Served::held(64);
    let mut driver = Driver::attach(&served.socket(), 0);
    for slot in 0..SLOTS {
        driver.fill(slot, slot as u8);
        driver.ask(slot, WRITE, slot.into());
    }
    control.wait_for(SLOTS.into());
    assert_eq!(driver.given_back(), 0);
    control.flow(true);
    let order: Vec<u16> = (0..SLOTS).rev().collect();
    assert_eq!(driver.wait(SLOTS), order);
    for page in 0..SLOTS {
        driver.ask(SLOTS - 1 - page, READ, page.into());
        assert_eq!(driver.wait(1), [SLOTS - 1 - page]);
        assert_eq!(driver.data(SLOTS - 1 - page), [page as u8; DATA_BYTES]);
    }
    let stats = served.export.stats();
    let bytes = u64::from(SLOTS) * DATA_BYTES as u64;
    assert_eq!((stats.bytes_written, stats.bytes_read, stats.refused), (bytes, bytes, 0));
    assert_eq!((stats.requests, stats.under_way_max), (2 * u64::from(SLOTS), SLOTS.into()));
    // The guest has asked for a notification only after the last of many requests.
    assert!(stats.notifications <= 1 + u64::from(SLOTS), "{stats:?}");
}

#[test]
fn what_the_device_has_no_room_for_waits() {
    let (served, control) = Served::held(2);
    let mut driver = Driver::attach(&served.socket(), 0);
    for slot in 0..SLOTS {
        driver.fill(slot, slot as u8 + 1);
        driver.leave(slot, WRITE, slot.into());
    }
    driver.kick.write(1).unwrap();
    control.wait_for(2);
    control.flow(true);
    driver.wait(SLOTS);
    assert!((0..SLOTS).all(|slot| driver.status(slot) == 0));
    assert_eq!(served.export.stats().under_way_max, 2);
}

#[test]
fn a_request_that_fails_fails_alone_and_says_so() {
    let (served, control) = Served::held(64);
    let mut driver = Driver::attach(&served.socket(), 0);
    control.flow(true);
    driver.ask(0, WRITE, 0);
    driver.wait(1);
    // Request 1 is past the end of the disk, and request 2 has an unknown type.
    driver.ask(1, WRITE, 256);
    driver.ask(2, 77, 0);
    driver.wait(2);
    control.fail();
    driver.ask(3, WRITE, 0);
    driver.wait(1);
    assert_eq!([0, 1, 2, 3].map(|slot| driver.status(slot)), [0, 1, 2, 1]);
    let stats = served.export.stats();
    assert_eq!((stats.requests, stats.refused, stats.failed), (4, 2, 1));
}

#[test]
fn a_driver_without_flushes_has_its_writes_made_durable() {
    const FLUSHES: u64 = 1 << 9;
    for (without, expected) in [(0, Operation::Write), (FLUSHES, Operation::WriteDurable)] {
        let (served, control) = Served::held(64);
        control.flow(true);
        let mut driver = Driver::attach(&served.socket(), without);
        driver.ask(0, WRITE, 0);
        driver.wait(1);
        driver.ask(1, FLUSH, 0);
        driver.wait(1);
        assert_eq!(control.seen(), [expected, Operation::Flush]);
    }
}

#[test]
fn a_ring_is_stopped_when_all_is_done_and_goes_on_there() {
    let (served, control) = Served::held(64);
    let mut driver = Driver::attach(&served.socket(), 0);
    driver.ask(0, WRITE, 0);
    driver.ask(1, WRITE, 1);
    control.wait_for(2);
    let release = control.clone();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        release.flow(true);
    });
    assert_eq!(driver.frontend.get_vring_base(0).unwrap(), 2);
    assert_eq!(driver.given_back(), 2);
    later.join().unwrap();
    driver.wait(2);
    // No chain is taken from a ring that is stopped.
    driver.ask(2, WRITE, 2);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(driver.given_back(), 0);
    driver.start(2);
    assert_eq!(driver.wait(1), [2]);
}

#[test]
fn a_frontend_that_is_gone_is_followed_by_the_next_when_all_is_done() {
    let (served, control) = Served::held(64);
    let mut first = Driver::attach(&served.socket(), 0);
    first.fill(0, 9);
    first.ask(0, WRITE, 5);
    control.wait_for(1);
    let memory = first.map.clone();
    drop(first);
    let socket = served.socket();
    let second = std::thread::spawn(move || Driver::attach(&socket, 0));
    assert!(matches!(served.event(), Event::Connected));
    std::thread::sleep(Duration::from_millis(100));
    assert!(served.events.try_recv().is_err(), "the next was let in while something was in flight");
    control.flow(true);
    assert!(matches!(served.event(), Event::Disconnected));
    assert!(matches!(served.event(), Event::Connected));
    let mut second = second.join().unwrap();
    second.ask(0, READ, 5);
    second.wait(1);
    assert_eq!(second.data(0), [9; DATA_BYTES]);
    assert_eq!(served.export.stats().frontends, 2);
    drop(memory);
}

#[test]
fn what_a_server_has_left_is_done_by_the_next() {
    let (first, held) = Served::held(64);
    let mut driver = Driver::connect(&first.socket());
    driver.agree(0);
    let record = driver.record();
    driver.start(0);
    for slot in 0..8 {
        driver.fill(slot, slot as u8);
        driver.ask(slot, WRITE, slot.into());
    }
    held.wait_for(8);
    held.flow(true);
    driver.wait(8);
    held.flow(false);
    for slot in [3, 1, 6] {
        driver.fill(slot, 100 + slot as u8);
        driver.ask(slot, WRITE, slot.into());
    }
    held.wait_for(3);
    // The first server never carries these out: its thread waits for ever, like the thread of a dead process.
    let Served { export, folder: _folder, .. } = first;
    std::mem::forget(export);

    let (second, control) = Served::held(64);
    driver.go_on(&second.socket(), &record);
    driver.ask(0, READ, 200);
    control.wait_for(4);
    control.flow(true);
    // The device carries out the last request first. The second server took the left ones in the order of
    // submission.
    assert_eq!(driver.wait(4), [0, 6, 1, 3]);
    assert!([3, 1, 6].iter().all(|slot| driver.status(*slot) == 0));
    assert_eq!(second.export.stats().resumed, 3);
    driver.ask(9, READ, 6);
    driver.wait(1);
    assert_eq!(driver.data(9), [106; DATA_BYTES]);
}

#[test]
fn who_comes_to_be_called_is_called_for_what_is_done_already() {
    let (served, control) = Served::held(64);
    control.flow(true);
    let mut driver = Driver::attach(&served.socket(), 0);
    driver.ask(0, WRITE, 0);
    driver.wait(1);
    let call = EventFd::new(vmm_sys_util::eventfd::EFD_NONBLOCK).unwrap();
    driver.frontend.set_vring_call(0, &call).unwrap();
    wait_for(&call);
}

#[test]
fn nothing_runs_while_there_is_nothing_to_do() {
    let (device, control) = PausedDevice::new(64);
    let served = Served::new(device, Options::new().name("asleep"));
    let mut driver = Driver::attach(&served.socket(), 0);
    driver.ask(0, WRITE, 0);
    control.wait_for(1);
    // The disk must sleep with a request in flight, after its completion, and without a frontend.
    check_asleep();
    control.flow(true);
    driver.wait(1);
    check_asleep();
    drop(driver);
    assert!(matches!(served.event(), Event::Connected));
    assert!(matches!(served.event(), Event::Disconnected));
    check_asleep();
}

fn check_asleep() {
    std::thread::sleep(Duration::from_millis(50));
    let before = times_asleep();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(times_asleep(), before);
}

/// Returns the number of times that the threads of the disk "asleep" went to sleep (proc_pid_status(5)).
fn times_asleep() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let of_disk = statuses.filter(|status| status.starts_with("Name:\tvhost asleep\n"));
    let times = of_disk.map(|status| {
        let times = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        times.trim().parse::<u64>().unwrap()
    });
    let times: Vec<u64> = times.collect();
    assert!(!times.is_empty());
    times.iter().sum()
}

#[test]
fn a_ring_that_makes_no_sense_is_stopped_and_its_guest_told() {
    let breaks: [(&str, Deed); 3] = [
        ("more entries than there are", |driver| driver.set_available(1000)),
        ("a chain that begins nowhere", |driver| driver.make_available(64)),
        ("a chain that begins nowhere near", |driver| driver.make_available(u16::MAX)),
    ];
    for (what, break_it) in breaks {
        let (served, control) = Served::held(64);
        let mut driver = Driver::attach(&served.socket(), 0);
        break_it(&mut driver);
        driver.kick.write(1).unwrap();
        wait_for(&driver.error);
        driver.leave(0, READ, 0);
        driver.kick.write(1).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(control.waiting(), 0, "{what}");
        drop(driver);
        check_next(&served, &control);
    }
}

#[test]
fn the_same_chain_again_and_again_is_no_more_than_a_ring_holds() {
    let (served, control) = Served::held(1000);
    let mut driver = Driver::attach(&served.socket(), 0);
    driver.leave(0, WRITE, 0);
    for count in 2..300 {
        driver.make_available(0);
        driver.kick.write(1).unwrap();
        control.wait_for(count.min(64));
    }
    assert_eq!((control.waiting(), driver.given_back()), (64, 0));
    drop(driver);
    check_next(&served, &control);
}

#[test]
fn a_frontend_that_says_what_it_must_not_is_cut_off() {
    let (served, control) = Served::held(64);
    let lies: [(&str, Deed); 9] = [
        ("offered were", |driver| {
            let features = driver.frontend.get_features().unwrap();
            driver.frontend.set_features(features | 1 << 11).unwrap_err();
        }),
        ("not sealed", |driver| {
            driver.file = File::from(memfd_create("guest", MemfdFlags::ALLOW_SEALING).unwrap());
            driver.file.set_len(1 << 20).unwrap();
            driver.pass_memory().unwrap_err();
        }),
        ("no memfd", |driver| {
            driver.file = tempfile::tempfile().unwrap();
            driver.file.set_len(1 << 20).unwrap();
            driver.pass_memory().unwrap_err();
        }),
        ("before it has passed on memory", |driver| drop(driver.place(0x1000).unwrap_err())),
        ("outside of the memory", |driver| {
            driver.pass_memory().unwrap();
            driver.place(0x8_0000).unwrap_err();
        }),
        ("not wholly in the memory", |driver| {
            driver.pass_memory().unwrap();
            driver.place(0x7_fff0).unwrap_err();
        }),
        ("invalid message", |driver| {
            driver.pass_memory().unwrap();
            driver.place(0x1001).unwrap_err();
        }),
        ("ring of 3 entries", |driver| drop(driver.frontend.set_vring_num(0, 3).unwrap_err())),
        ("no eventfd", |driver| {
            driver.pass_memory().unwrap();
            driver.place(0x1000).unwrap();
            let file = File::open("/dev/zero").unwrap();
            // SAFETY: `file` was just opened, and `into_raw_fd` gives up its ownership here.
            let pretended = unsafe {
                <EventFd as std::os::fd::FromRawFd>::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(file))
            };
            driver.frontend.set_vring_call(0, &pretended).unwrap_err();
        }),
    ];
    for (why, lie) in lies {
        let mut driver = Driver::connect(&served.socket());
        driver.agree(0);
        lie(&mut driver);
        let failure = served.failure();
        assert!(failure.contains(why), "{failure}: expected {why}");
    }
    check_next(&served, &control);
}

#[test]
fn rubbish_at_the_socket_ends_the_connection() {
    let (served, control) = Served::held(64);
    for rubbish in [[0u8; 12], [0xff; 12], [1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0, 0]] {
        let mut socket = UnixStream::connect(served.socket()).unwrap();
        socket.write_all(&rubbish).unwrap();
        // The disk may have closed the connection before this write.
        let _ = socket.write_all(&[0xaa; 4096]);
        drop(socket);
        assert!(matches!(served.event(), Event::Connected));
        assert!(matches!(served.event(), Event::CutOff(_) | Event::Disconnected));
    }
    check_next(&served, &control);
}

#[test]
fn half_a_message_holds_up_nobody_who_stops_the_disk() {
    let (served, _control) = Served::held(64);
    let mut socket = UnixStream::connect(served.socket()).unwrap();
    socket.write_all(&[1, 0, 0]).unwrap();
    assert!(matches!(served.event(), Event::Connected));
    std::thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    drop(served.export);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_configuration_is_what_the_device_is_like() {
    let (served, _control) = Served::held(64);
    let mut driver = Driver::connect(&served.socket());
    driver.agree(0);
    let flags = vhost::vhost_user::message::VhostUserConfigFlags::empty();
    let (_, bytes) = Frontend::get_config(&mut driver.frontend, 0, 60, flags, &[0; 60]).unwrap();
    assert_eq!(bytes[..8], 2048u64.to_le_bytes());
    assert_eq!(bytes[20..24], 512u32.to_le_bytes());
}

#[test]
fn options_that_cannot_be_are_refused() {
    for (options, why) in [
        (Options::new().queues(0), "1 to 16"),
        (Options::new().queues(17), "1 to 16"),
        (Options::new().name("a name of more than twenty"), "up to 20"),
        (Options::new().name("two words"), "up to 20"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let error = Export::start(listener, PausedDevice::new(1).0, options, |_| {}).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// The device has room for two commands, and each ring has many requests: none waits until another one is empty.
#[test]
fn rings_have_turns_when_the_device_is_full() {
    let (device, control) = PausedDevice::new(2);
    let served = Served::new(device, Options::new().queues(RINGS as u16));
    let mut rings = vec![Driver::attach(&served.socket(), 0)];
    // Ring 2 is never started.
    rings.extend([1, 3].map(|index| rings[0].beside(index)));
    assert_eq!(rings[0].frontend.get_queue_num().unwrap(), RINGS as u64);
    let kinds = [(READ, Operation::Read), (WRITE, Operation::Write), (FLUSH, Operation::Flush)];
    for (ring, (kind, _)) in rings.iter_mut().zip(kinds) {
        (0..SLOTS).for_each(|slot| ring.leave(slot, kind, slot.into()));
    }
    rings[0].kick.write(1).unwrap();
    control.wait_for(2);
    control.flow(true);
    for ring in &mut rings {
        ring.wait(SLOTS);
        assert!((0..SLOTS).all(|slot| ring.status(slot) == 0));
    }
    let seen = control.seen();
    assert_eq!(seen.len(), 3 * usize::from(SLOTS));
    for (round, some) in seen.chunks(6).enumerate() {
        let counts = kinds.map(|(_, kind)| some.iter().filter(|operation| **operation == kind).count());
        assert_eq!(counts, [2, 2, 2], "round {round} of {seen:?}");
    }
}

#[test]
fn notifications_go_to_a_socket_and_to_nothing_else() {
    let (served, control) = Served::held(64);
    let mut driver = Driver::connect(&served.socket());
    driver.agree(0);
    let file = tempfile::tempfile().unwrap();
    // The connection ends instead of an acknowledgement.
    driver.frontend.set_backend_request_fd(&file).unwrap_err();
    let failure = served.failure();
    assert!(failure.contains("no Unix socket for the disk's notifications"), "{failure}");
    drop(driver);
    check_next(&served, &control);
}

/// The guest's memory is of huge pages, and its frontend takes a page away and lets nobody have another one.
#[test]
fn huge_pages_can_vanish_and_the_next_frontend_is_served() {
    let pages = match HugePages::reserve(1) {
        Ok(pages) => pages,
        Err(reason) => return eprintln!("left out: {reason}"),
    };
    let (served, control) = Served::held(64);
    control.flow(true);
    let memory = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let mut driver = Driver::over_memory(&served.socket(), memory, HUGE_PAGE);
    driver.agree(0);
    driver.start(0);
    driver.fill(0, 9);
    driver.ask(0, WRITE, 2);
    driver.wait(1);
    driver.ask(1, READ, 2);
    driver.wait(1);
    assert!(driver.status(1) == 0 && driver.data(1) == [9; DATA_BYTES]);
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&driver.file, hole, 0, HUGE_PAGE).unwrap();
    // The page that has become free is nobody's any more.
    drop(pages);
    if free() > 0 {
        return eprintln!("left out: the machine has other huge pages that are free");
    }
    driver.kick.write(1).unwrap();
    let failure = served.failure();
    assert!(failure.contains("taken pages of its guest's memory away"), "{failure}");
    drop(driver);
    check_next(&served, &control);
}
