//! Tests of malicious frontends that pass descriptors whose reception, inspection or closing blocks. Only the
//! frontend's own thread may block: the next frontend is served, and the export ends, in time.

use crate::driver::{Driver, WRITE};
use crate::frontend::{Served, check_disk, check_next};
use crate::held::PausedDevice;
use bywash_support::peers::{Child, Lingering, SilentFile, as_user, memory, role, send};
use bywash_vhost::{Error, Event, Export, Options, STUCK_MAX, Stats};
use rustix::fs::{OFlags, fcntl_setfl};
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

/// Greatest time that the next frontend may wait. If the export itself blocked, it would wait for ever, or as
/// long as a socket lingers.
const BOUND: Duration = Duration::from_secs(20);
/// Greatest time that the end of an export may take.
const END_BOUND: Duration = Duration::from_secs(6);

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_LOG_BASE: u32 = 6;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_INFLIGHT_FD: u32 = 32;

/// Ways to pass a descriptor, each with its name: the message that carries the descriptor.
const WAYS: [(&str, PassMethod); 11] = [
    ("a message that has none", |to, bad| message(to, GET_FEATURES, &[], &[bad])),
    ("the second half of a message", |to, bad| {
        to.write_all(&head(SET_FEATURES, 8)) && to.send(&[0; 8], &[bad])
    }),
    ("memory", |to, bad| message(to, SET_MEM_TABLE, &table(), &[bad])),
    ("kicks", |to, bad| message(to, SET_VRING_KICK, &[0; 8], &[bad])),
    ("calls", |to, bad| message(to, SET_VRING_CALL, &[0; 8], &[bad])),
    ("errors", |to, bad| message(to, SET_VRING_ERR, &[0; 8], &[bad])),
    ("a log", |to, bad| message(to, SET_LOG_BASE, &[0; 16], &[bad])),
    ("a record", |to, bad| message(to, SET_INFLIGHT_FD, &[0; 24], &[bad])),
    ("more descriptors than are received", |to, bad| {
        let null = File::open("/dev/null").unwrap();
        let mut all = vec![null.as_fd(); 60];
        all.push(bad);
        message(to, GET_FEATURES, &[], &all)
    }),
    ("more descriptors than are expected", |to, bad| {
        let good = memory(1 << 20, bywash_support::peers::FIXED);
        message(to, SET_MEM_TABLE, &table(), &[good.as_fd(), bad])
    }),
    ("what is never received", |to, bad| to.write_all(&[0xff; 12]) && to.send(b"x", &[bad])),
];

type PassMethod = fn(&Raw, BorrowedFd<'_>) -> bool;

/// A frontend that sends arbitrary messages.
struct Raw(OwnedFd);

impl Raw {
    /// Connects, and waits until it is served, so that its messages are received.
    fn connect(socket: &Path) -> Raw {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(&head(GET_FEATURES, 0)).unwrap();
        stream.read_exact(&mut [0; 20]).unwrap();
        Raw(stream.into())
    }

    fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let numbers: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        send(&self.0, bytes, &numbers)
    }

    fn write_all(&self, bytes: &[u8]) -> bool {
        self.send(bytes, &[])
    }
}

fn head(request: u32, bytes: u32) -> Vec<u8> {
    [request, 1, bytes].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn message(to: &Raw, request: u32, body: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
    let bytes = [head(request, body.len() as u32), body.to_vec()].concat();
    to.send(&bytes, descriptors)
}

/// Makes the body of a message about one region of 64 KiB.
fn table() -> Vec<u8> {
    [1u64, 0, 0x1_0000, 0x1_0000_0000, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Passes a lingering socket to the export. A frontend that is disconnected before it has sent all of it
/// tries again.
fn pass_lingering(socket: &Path, pass: PassMethod) -> (Raw, Lingering) {
    for _ in 0..1000 {
        let mut lingering = Lingering::new();
        let frontend = Raw::connect(socket);
        if lingering.pass(|bad| pass(&frontend, bad)) {
            return (frontend, lingering);
        }
    }
    panic!("it is never taken");
}

fn check_next_in_time(served: &Served, control: &crate::held::Control, what: &str) {
    let began = Instant::now();
    check_next(served, control);
    assert!(began.elapsed() < BOUND, "after {what} the next one waited for {:?}", began.elapsed());
}

/// User id of malicious frontends, which need not exist.
const ATTACKER: u32 = 54_321;

/// Runs a disk in a process of its own, at a socket in the folder that its role names, and writes its
/// counters to a file there. Does nothing when run as a test.
#[test]
fn a_disk() {
    let Some(role) = role() else { return };
    let folder = Path::new(&role);
    let socket = folder.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let (device, control) = PausedDevice::new(64);
    control.flow(true);
    let export = Export::start(listener, device, Options::new(), |_| {}).unwrap();
    loop {
        let Stats { frontends, stuck, leaving, .. } = export.stats();
        std::fs::write(folder.join("new"), format!("{frontends} {stuck} {leaving}")).unwrap();
        std::fs::rename(folder.join("new"), folder.join("stats")).unwrap();
        thread::sleep(Duration::from_millis(20));
    }
}

/// Reads the counters of the disk in a folder: frontends, stuck ones, and threads that are still closing
/// objects.
fn stats_in(folder: &Path) -> Option<[u64; 3]> {
    let text = std::fs::read_to_string(folder.join("stats")).ok()?;
    let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().ok()
}

fn until<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + BOUND;
    loop {
        match there() {
            Some(found) => return found,
            None => assert!(Instant::now() < end, "{what}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Tries every way to pass a descriptor that blocks against a disk in another user's process. The next
/// frontend has the disk in time, and after the attackers have disconnected the process has as many threads
/// and descriptors as before.
#[test]
fn another_users_frontends_hold_up_their_own_threads_alone() {
    if as_user(ATTACKER, || ()).is_none() {
        return println!("left out: only root can attack as another user");
    }
    let attack = |what: &str, pass: PassMethod| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let child = Child::start("attack::a_disk", folder.path().to_str().unwrap(), Vec::new());
        let socket = folder.path().join("socket");
        until("the disk is not there", || stats_in(folder.path()));
        let count = |of: &str| std::fs::read_dir(format!("/proc/{}/{of}", child.pid())).unwrap().count();
        let had = ["fd", "task"].map(count);
        let attackers = [true, false].map(|stays| {
            let attacked = as_user(ATTACKER, || {
                let (frontend, lingering) = pass_lingering(&socket, pass);
                (stays.then_some(frontend), lingering)
            });
            let began = Instant::now();
            check_disk(&socket);
            assert!(began.elapsed() < BOUND, "after {what} the next one waited for {:?}", began.elapsed());
            attacked
        });
        drop(attackers);
        let end = Instant::now() + BOUND;
        while ["fd", "task"].map(count) != had {
            let has = ["fd", "task"].map(count);
            assert!(Instant::now() < end, "after {what}: {had:?} descriptors and threads, and now {has:?}");
            thread::sleep(Duration::from_millis(10));
        }
        stats_in(folder.path()).unwrap()[1]
    };
    let attack = &attack;
    let stuck: u64 = thread::scope(|scope| {
        let all = WAYS.map(|(what, pass)| scope.spawn(move || attack(what, pass)));
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!(stuck > 0, "no frontend's thread was ever stuck, which proves nothing");
}

#[test]
fn a_silent_file_system() {
    SilentFile::play();
}

#[test]
fn a_descriptor_that_blocks_when_it_is_closed_costs_its_frontend_alone() {
    thread::scope(|scope| {
        for (what, pass) in WAYS {
            scope.spawn(move || {
                let (served, control) = Served::held(64);
                for stays in [true, false] {
                    let (frontend, _lingering) = pass_lingering(&served.socket(), pass);
                    let _stays = stays.then_some(frontend);
                    check_next_in_time(&served, &control, what);
                }
                end_in_time(served, what);
            });
        }
    });
}

#[test]
fn a_file_whose_file_system_does_not_answer_costs_its_frontend_alone() {
    let silent = match SilentFile::new("attack::a_silent_file_system") {
        Ok(silent) => silent,
        Err(why) => return println!("left out: {why}"),
    };
    thread::scope(|scope| {
        for (what, pass) in WAYS {
            let silent = &silent;
            scope.spawn(move || {
                let (served, control) = Served::held(64);
                let frontend = Raw::connect(&served.socket());
                pass(&frontend, silent.as_fd());
                check_next_in_time(&served, &control, what);
                drop(frontend);
                // The export must also end in time when no next frontend waits.
                let frontend = Raw::connect(&served.socket());
                pass(&frontend, silent.as_fd());
                thread::sleep(Duration::from_millis(50));
                end_in_time(served, what);
            });
        }
    });
}

fn end_in_time(served: Served, what: &str) {
    let began = Instant::now();
    drop(served);
    assert!(began.elapsed() < END_BOUND, "after {what} the export took {:?} to end", began.elapsed());
}

/// On a kernel that allows it, a frontend can send descriptors before it is accepted.
#[test]
fn what_waits_to_be_accepted_does_not_hold_up_the_end() {
    let (served, _control) = Served::held(64);
    let _first = Raw::connect(&served.socket());
    let mut lingering = Lingering::new();
    let waiting: OwnedFd = UnixStream::connect(served.socket()).unwrap().into();
    let is_taken = lingering.pass(|bad| send(&waiting, &head(GET_FEATURES, 0), &[bad.as_raw_fd()]));
    let is_new = bywash_link::let_descriptors_in(&waiting, true).unwrap();
    assert!(!is_taken || !is_new, "Linux 6.16 can keep it out");
    end_in_time(served, "a connection that nobody has accepted");
}

/// Writing to an event counter does not block only as long as the frontend leaves O_NONBLOCK set.
#[test]
fn an_event_counter_that_is_full_costs_its_frontend_alone() {
    let (served, control) = Served::held(64);
    control.flow(true);
    let mut driver = Driver::attach(&served.socket(), 0);
    // SAFETY: `driver.call` keeps its descriptor open as long as `call` is used.
    let call = unsafe { BorrowedFd::borrow_raw(driver.call.as_raw_fd()) };
    driver.ask(0, WRITE, 0);
    driver.wait(1);
    // The disk may ring for the first request only after the test has seen it as done. So the test empties
    // the counter again until a write of the counter's greatest value succeeds.
    while rustix::io::write(call, &(u64::MAX - 1).to_ne_bytes()).is_err() {
        let _ = rustix::io::read(call, &mut [0; 8]);
    }
    fcntl_setfl(call, OFlags::RDWR).unwrap();
    // The guest asks for a notification after the next request (virtio 1.2, 2.7.7.1).
    driver.put(0x2004 + 2 * 64, &1u16.to_le_bytes());
    driver.ask(1, WRITE, 1);
    check_next_in_time(&served, &control, "an event counter that is full");
    assert_eq!(served.export.stats().stuck, 1);
    // The thread continues after the read, and finds the disk taken back.
    rustix::io::read(call, &mut [0; 8]).unwrap();
    let end = Instant::now() + BOUND;
    while served.export.stats().leaving > 0 {
        assert!(Instant::now() < end, "{:?}", served.export.stats());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn half_a_message_and_none_at_all_keep_the_next_one_out_for_a_while_only() {
    for said in [&[1, 0, 0][..], &[]] {
        let (served, control) = Served::held(64);
        let mut silent = UnixStream::connect(served.socket()).unwrap();
        silent.write_all(said).unwrap();
        assert!(matches!(served.events.recv_timeout(BOUND), Ok(Event::Connected)));
        check_next_in_time(&served, &control, "half a message");
        let cut_off = until_failed(&served.events);
        assert!(cut_off.to_string().contains("in time"), "{cut_off}");
    }
}

#[test]
fn nobody_is_let_in_beside_too_many_threads_that_are_stuck() {
    let (served, control) = Served::held(64);
    let mut kept = Vec::new();
    let (_, pass) = WAYS[WAYS.len() - 1];
    let end = Instant::now() + 3 * BOUND;
    // Not every frontend's thread gets stuck: sometimes the test's process closes the socket last, in the
    // kernel.
    while served.export.stats().leaving < STUCK_MAX as u64 {
        assert!(Instant::now() < end, "{:?}", served.export.stats());
        kept.push(pass_lingering(&served.socket(), pass).1);
        thread::sleep(Duration::from_millis(30));
    }
    let _waiting = UnixStream::connect(served.socket()).unwrap();
    let told = loop {
        match until_failed(&served.events) {
            stuck @ Error::Stuck { .. } => break stuck.to_string(),
            other => println!("{other}"),
        }
    };
    assert!(told.contains(&format!("{STUCK_MAX} threads are stuck")), "{told}");
    // When the threads have ended, frontends are accepted again.
    drop(kept);
    check_next_in_time(&served, &control, "too many threads");
    end_in_time(served, "too many threads");
}

fn until_failed(events: &Receiver<Event>) -> Error {
    loop {
        if let Event::CutOff(error) = events.recv_timeout(BOUND).unwrap() {
            return error;
        }
    }
}
