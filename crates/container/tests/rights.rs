//! Rights of a receiver, credentials of a peer, and ownership of a path by its process.
//!
//! Failures that this looks for: a receiver bypasses the library and writes to the arena or resizes it; a
//! peer is taken for somebody else; a forked child uses its parent's path and breaks it for the parent; the
//! name of a listener is missing or taken and the error does not say which.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod choices;

use bywash_container::{Error, Listener, MemoryRange, Options, Path, socket_pair};
use bywash_support::peers::{Child, check, fill, inherited_sockets, memfds, role};
use choices::options;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
const ARENA: usize = 1 << 20;

fn error_of(result: i64) -> Option<i32> {
    (result < 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap())
}

/// Tries to map the whole file for writing; returns the error number if the kernel refuses.
fn map_for_writing(file: RawFd) -> Option<i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address of the kernel's choice; nobody accesses it.
    let base = unsafe { libc::mmap(ptr::null_mut(), ARENA, protection, libc::MAP_SHARED, file, 0) };
    error_of(if base == libc::MAP_FAILED { -1 } else { 0 })
}

/// Maps the file for reading and then tries to add the right to write.
fn map_and_upgrade(file: RawFd) -> Option<i32> {
    // SAFETY: a new mapping, at an address of the kernel's choice; only its protection is changed.
    unsafe {
        let base = libc::mmap(ptr::null_mut(), ARENA, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        assert_ne!(base, libc::MAP_FAILED);
        error_of(libc::mprotect(base, ARENA, libc::PROT_READ | libc::PROT_WRITE).into())
    }
}

/// Maps the file for reading and then tries to punch holes through the mapping.
fn map_and_remove(file: RawFd) -> Option<i32> {
    // SAFETY: a new mapping, at an address of the kernel's choice; nobody accesses it.
    unsafe {
        let base = libc::mmap(ptr::null_mut(), ARENA, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        assert_ne!(base, libc::MAP_FAILED);
        error_of(libc::madvise(base, ARENA, libc::MADV_REMOVE).into())
    }
}

/// Tries every way to change an arena, and returns the error number of each that the kernel refuses.
fn attempts(file: RawFd) -> Vec<(&'static str, Option<i32>)> {
    let rubbish = [0xaau8; 4096];
    let holes = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: system calls on a live descriptor, which read at most the 4096 bytes of the live buffer.
    unsafe {
        vec![
            ("map it for writing", map_for_writing(file)),
            ("change the rights of a mapping", map_and_upgrade(file)),
            ("remove what is mapped", map_and_remove(file)),
            ("pwrite", error_of(libc::pwrite(file, rubbish.as_ptr().cast(), 4096, 0) as i64)),
            ("write", error_of(libc::write(file, rubbish.as_ptr().cast(), 4096) as i64)),
            ("shrink", error_of(libc::ftruncate(file, 0).into())),
            ("grow", error_of(libc::ftruncate(file, 2 * ARENA as i64).into())),
            ("grow by allocation", error_of(libc::fallocate(file, 0, 0, 2 * ARENA as i64).into())),
            ("punch holes", error_of(libc::fallocate(file, holes, 0, ARENA as i64).into())),
            ("zero", error_of(libc::fallocate(file, libc::FALLOC_FL_ZERO_RANGE, 0, 4096).into())),
            ("add seals", error_of(libc::fcntl(file, libc::F_ADD_SEALS, libc::F_SEAL_WRITE).into())),
        ]
    }
}

/// Like [`attempts`], but through a second open file, which is writable if the kernel allows that.
fn attempts_after_reopening(file: RawFd) -> Vec<(&'static str, Option<i32>)> {
    let name = std::ffi::CString::new(format!("/proc/self/fd/{file}")).unwrap();
    // SAFETY: open(2) reads a live path that ends in a zero byte.
    let again = unsafe { libc::open(name.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    match again {
        -1 => Vec::new(),
        again => attempts(again),
    }
}

/// Not a test by itself: a child that receives a container and tries to write to it.
#[test]
fn receiving_child() {
    let Some(class) = role() else { return };
    let socket = inherited_sockets().remove(0);
    let options = options(&class, "sleep");
    // It has no arena of its own, so that the only arena in this process is the peer's.
    let options = if class == "sealed" { options } else { options.arena_bytes(0) };
    let path = Path::over(socket, &options).unwrap();
    let message = path.receive_within(LONG).unwrap();
    let before = if class == "forward" { Vec::new() } else { message.to_vec().unwrap() };
    let files = memfds(if class == "sealed" { "bywash-sealed" } else { "bywash-arena" });
    assert_eq!(files.len(), 1);
    let tried = [attempts(files[0]), attempts_after_reopening(files[0])].concat();
    assert!(tried.len() >= 11);
    for (what, error) in tried {
        assert!(error.is_some(), "{class}: the receiver could {what}");
    }
    if class != "forward" {
        check(&before);
        assert_eq!(before, message.to_vec().unwrap());
    }
    drop(message);
    path.ship(path.alloc(100).unwrap()).unwrap();
    assert!(matches!(path.receive_within(LONG), Err(Error::Closed)));
}

#[test]
fn whoever_receives_cannot_write() {
    if role().is_some() {
        return;
    }
    for class in ["checked", "trusted", "sealed", "forward"] {
        let (here, there) = socket_pair().unwrap();
        let mut child = Child::start("receiving_child", class, vec![there]);
        let own = if class == "forward" { "checked" } else { class };
        let path = Path::over(here, &options(own, "sleep")).unwrap();
        // The container is as large as the arena.
        let mut container = path.alloc(ARENA).unwrap();
        fill(&mut container, 7);
        path.ship(container).unwrap();
        let answer = path.receive_within(LONG);
        assert!(answer.is_ok(), "{class}: {answer:?}");
        // The allocation gets the same block, whose contents must be unchanged, since nobody wrote to it.
        if class != "sealed" {
            let again = path.alloc_within(ARENA, LONG).unwrap();
            check(&again);
        }
        drop(path);
        assert!(child.finish(LONG).success(), "{class}");
    }
}

/// Reads the memory of a container by its descriptor, as a process that maps it by itself would.
fn read(memory: &MemoryRange<'_>) -> Vec<u8> {
    let mut bytes = vec![0; memory.length];
    assert_eq!(
        rustix::io::pread(memory.descriptor, &mut bytes, memory.offset as u64).unwrap(),
        memory.length
    );
    bytes
}

#[test]
fn the_memory_of_a_container_is_told_to_readers() {
    if role().is_some() {
        return;
    }
    for class in ["checked", "trusted", "sealed"] {
        let (here, there) = socket_pair().unwrap();
        let chosen = options(class, "sleep");
        let other = std::thread::spawn(move || Path::over(there, &chosen).unwrap());
        let path = Path::over(here, &options(class, "sleep")).unwrap();
        let peer = other.join().unwrap();
        let before = path.alloc(5000).unwrap();
        let mut container = path.alloc(5000).unwrap();
        fill(&mut container, 9);
        let whole = container.to_vec();
        match (class, container.memory()) {
            // Nobody gets the descriptor of memory that is to be sealed.
            ("sealed", refused) => assert!(matches!(refused, Err(Error::NotMapped(_)))),
            (_, memory) => {
                let memory = memory.unwrap();
                assert_eq!(read(&memory), whole);
                assert_ne!(memory.offset, before.memory().unwrap().offset);
                for (what, error) in attempts(memory.descriptor.as_raw_fd()) {
                    assert!(error.is_some(), "{class}: whoever has the descriptor could {what}");
                }
            }
        }
        path.ship(container).unwrap();
        let message = peer.receive_within(LONG).unwrap();
        let memory = message.first().memory().unwrap();
        assert_eq!(read(&memory), whole, "{class}");
        for (what, error) in attempts(memory.descriptor.as_raw_fd()) {
            assert!(error.is_some(), "{class}: whoever has the received descriptor could {what}");
        }
        if class != "sealed" {
            assert!(matches!(path.alloc(8).unwrap().memory(), Err(Error::NotMapped(_))));
        }
    }
}

#[test]
fn an_arena_that_both_ends_write_is_told_to_nobody() {
    if role().is_some() {
        return;
    }
    // SAFETY: both ends are here, and write only to containers that they own.
    let writing = || unsafe { Options::new().trusted_to_write() };
    let (here, there) = socket_pair().unwrap();
    let other = std::thread::spawn(move || Path::over(there, &writing()).unwrap());
    let path = Path::over(here, &writing()).unwrap();
    let peer = other.join().unwrap();
    let container = path.alloc(5000).unwrap();
    assert!(
        matches!(container.memory(), Err(Error::NotMapped(why)) if why.contains("sealed against writing"))
    );
    path.ship(container).unwrap();
    assert!(matches!(peer.receive_within(LONG).unwrap().first().memory(), Err(Error::NotMapped(_))));
}

/// Not a test by itself: a child that makes a path and ships one message.
#[test]
fn greeting_child() {
    if role().is_none() {
        return;
    }
    let path = Path::over(inherited_sockets().remove(0), &options("checked", "sleep")).unwrap();
    // SAFETY: getppid(2) has no preconditions.
    assert_eq!(path.peer().pid, unsafe { libc::getppid() } as u32);
    path.ship(path.alloc(500).unwrap()).unwrap();
    assert!(matches!(path.receive_within(LONG), Err(Error::Closed)));
}

#[test]
fn a_peer_is_who_the_kernel_says() {
    if role().is_some() {
        return;
    }
    let (here, there) = socket_pair().unwrap();
    let mut child = Child::start("greeting_child", "child", vec![there]);
    let path = Path::over(here, &options("checked", "sleep")).unwrap();
    // SAFETY: geteuid(2) and getegid(2) have no preconditions.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let peer = path.peer();
    // This process made the pair of sockets, but the child sent the hello message: so the child is the peer.
    assert_eq!((peer.pid, peer.uid, peer.gid), (child.pid(), uid, gid));
    let message = path.receive_within(LONG).unwrap();
    assert_eq!(message.origin(), peer);
    assert_eq!(message.first().origin(), peer);
    drop(path);
    assert!(child.finish(LONG).success());
}

/// Forks. The child runs `work` and reports the result by its exit code.
fn in_a_fork(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child starts with one thread, runs `work` alone, and exits without destructors. Another thread
    // of this test may hold the allocator's lock during the fork, which glibc reinitialises in the child.
    match unsafe { libc::fork() } {
        -1 => panic!("cannot fork: {}", std::io::Error::last_os_error()),
        0 => {
            let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
            // SAFETY: _exit(2) ends the process and has no preconditions.
            unsafe { libc::_exit(if fine { 0 } else { 1 }) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: waits for the child just forked, and writes to a live integer.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

#[test]
fn a_forked_child_cannot_use_its_parents_path() {
    if role().is_some() {
        return;
    }
    for class in ["checked", "trusted", "sealed"] {
        let (here, there) = socket_pair().unwrap();
        let theirs = options(class, "sleep");
        let other = std::thread::spawn(move || Path::over(there, &theirs).unwrap());
        let path = Path::over(here, &options(class, "adaptive")).unwrap();
        let peer = other.join().unwrap();
        let mut own = Some(path.alloc(1000).unwrap());
        fill(own.as_mut().unwrap(), 1);
        let mut first = peer.alloc(2000).unwrap();
        fill(&mut first, 2);
        peer.ship(first).unwrap();
        let mut received = Some(path.receive_within(LONG).unwrap());
        let mut path = Some(path);
        let all_forked = in_a_fork(|| {
            let forked = |error: &Error| matches!(error, Error::Forked);
            let inherited = path.take().unwrap();
            let refused = inherited.ship(own.take().unwrap());
            let refused_on = inherited.ship_message(received.take().unwrap());
            let fine = forked(&refused.as_ref().unwrap_err().error)
                && forked(&refused_on.as_ref().unwrap_err().error)
                && inherited.alloc(5000).is_err_and(|error| forked(&error))
                && inherited.try_alloc(5000).is_err_and(|error| forked(&error))
                && inherited.alloc_within(5000, LONG).is_err_and(|error| forked(&error))
                && inherited.receive().is_err_and(|error| forked(&error))
                && inherited.receive_within(LONG).is_err_and(|error| forked(&error))
                && inherited.try_receive().is_err_and(|error| forked(&error))
                && inherited.arm().is_err_and(|error| forked(&error));
            // The child drops the path, the container and the message, which still belong to the parent.
            drop((refused, refused_on, inherited));
            fine
        });
        assert!(all_forked, "{class}");
        let path = path.unwrap();
        check(&received.take().unwrap().to_vec().unwrap());
        path.ship(own.take().unwrap()).unwrap();
        check(&peer.receive_within(LONG).unwrap().to_vec().unwrap());
        // No block was freed twice.
        for seed in 0..50 {
            let mut container = peer.alloc_within(200_000, LONG).unwrap();
            fill(&mut container, seed);
            peer.ship(container).unwrap();
            check(&path.receive_within(LONG).unwrap().to_vec().unwrap());
        }
        drop(peer);
        assert!(matches!(path.receive_within(LONG), Err(Error::Closed)));
    }
}

#[test]
fn a_forked_child_gets_no_small_containers_either() {
    let (here, there) = socket_pair().unwrap();
    let other = std::thread::spawn(move || Path::over(there, &options("checked", "sleep")).unwrap());
    let path = Path::over(here, &options("checked", "adaptive")).unwrap();
    let _peer = other.join().unwrap();
    assert!(in_a_fork(|| matches!(path.alloc(100), Err(Error::Forked))));
}

#[test]
fn a_path_that_a_forked_child_makes_is_its_own() {
    if role().is_some() {
        return;
    }
    let (here, there) = socket_pair().unwrap();
    let mut sockets = Some((here, there));
    let fine = in_a_fork(|| {
        let (here, there) = sockets.take().unwrap();
        let other = std::thread::spawn(move || Path::over(there, &options("checked", "sleep")).unwrap());
        let path = Path::over(here, &options("checked", "sleep")).unwrap();
        let peer = other.join().unwrap();
        path.ship(path.alloc(5000).unwrap()).unwrap();
        peer.receive_within(LONG).is_ok_and(|message| message.len() == 5000)
    });
    assert!(fine);
}

/// Not a test by itself: a process that knows only the name of the other one's socket.
#[test]
fn connecting_child() {
    let Some(name) = role() else { return };
    let path = Path::connect(name, &options("checked", "sleep")).unwrap();
    let mut container = path.alloc(3000).unwrap();
    fill(&mut container, 3);
    path.ship(container).unwrap();
    check(&path.receive_within(LONG).unwrap().to_vec().unwrap());
}

#[test]
fn processes_meet_at_a_name() {
    if role().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("meet here");
    let shown = name.display().to_string();
    let missing = Path::connect(&name, &options("checked", "sleep")).unwrap_err().to_string();
    assert!(missing.contains(&shown) && missing.contains("No such file"), "{missing}");
    let listener = Listener::bind(&name).unwrap();
    let taken = Listener::bind(&name).unwrap_err().to_string();
    assert!(taken.contains(&shown) && taken.contains("in use"), "{taken}");
    for _ in 0..2 {
        let mut child = Child::start("connecting_child", &shown, Vec::new());
        let path = listener.accept(&options("checked", "sleep")).unwrap();
        assert_eq!(path.peer().pid, child.pid());
        check(&path.receive_within(LONG).unwrap().to_vec().unwrap());
        let mut container = path.alloc(4000).unwrap();
        fill(&mut container, 4);
        path.ship(container).unwrap();
        assert!(matches!(path.receive_within(LONG), Err(Error::Closed)));
        assert!(child.finish(LONG).success());
    }
    // The name stays, but no process listens on it.
    drop(listener);
    let refused = Path::connect(&name, &options("checked", "sleep")).unwrap_err().to_string();
    assert!(refused.contains(&shown) && refused.contains("refused"), "{refused}");
    let file = folder.path().join("no socket");
    std::fs::write(&file, b"x").unwrap();
    let error = Path::connect(&file, &options("checked", "sleep")).unwrap_err().to_string();
    assert!(error.contains("no socket"), "{error}");
    let long = folder.path().join("n".repeat(200));
    for error in [
        Path::connect(&long, &options("checked", "sleep")).map(drop).unwrap_err(),
        Listener::bind(&long).map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("nnnn"), "{error}");
    }
}
