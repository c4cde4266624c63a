//! Behaviour of single kinds of devices: opening files, block devices and memory, and files that are changed
//! by others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_device::{Access, Command, CommandError, Device, Segment, Spec};
use bywash_support::disks::LoopDevice;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Memory of a command, on a page of its own.
#[repr(align(4096))]
struct Page([AtomicU8; 4096]);

impl Page {
    fn filled(byte: u8) -> Arc<Page> {
        Arc::new(Page(std::array::from_fn(|_| AtomicU8::new(byte))))
    }

    fn segment(self: &Arc<Page>) -> Segment {
        // SAFETY: atomics, which may be written at any time; every command here owns its page.
        unsafe { Segment::new(self.0.as_ptr().cast_mut().cast(), self.0.len()) }
    }

    fn is_all(&self, byte: u8) -> bool {
        self.0.iter().all(|there| there.load(Ordering::Relaxed) == byte)
    }
}

fn open(spec: &str) -> Box<dyn Device> {
    spec.parse::<Spec>().unwrap().open().unwrap()
}

fn refused(spec: &str) -> String {
    match spec.parse::<Spec>().unwrap().open() {
        Ok(device) => panic!("{spec} is {}", device.description()),
        Err(error) => error.to_string(),
    }
}

fn finish(device: &mut dyn Device) -> Vec<(u64, Result<(), CommandError>)> {
    let (mut all, end) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    while device.in_flight() > 0 {
        device.reap(&mut |done| all.push((done.token, done.result)));
        assert!(Instant::now() < end, "stuck");
    }
    all.sort_by_key(|(token, _)| *token);
    all
}

fn run(device: &mut dyn Device, command: Command<'_>, page: &Arc<Page>) -> Result<(), CommandError> {
    assert!(device.submit(command.owner(page.clone())).is_ok());
    finish(device)[0].1
}

/// A file that was created for a device that cannot be opened is removed again; one that existed stays.
#[test]
fn a_file_that_is_refused_is_not_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new");
    for size in ["1000", "8388607T"] {
        let said = refused(&format!("a=file:{},size={size}", path.display()));
        assert!(!path.exists(), "{size}: {said}");
    }
    fs::write(&path, [1; 4096]).unwrap();
    refused(&format!("a=file:{},size=1000", path.display()));
    assert_eq!(fs::read(&path).unwrap(), [1; 4096]);
}

#[test]
fn what_makes_no_device_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("small"), [1; 100]).unwrap();
    fs::write(at("large"), [1; 8192]).unwrap();
    for (spec, why) in [
        (format!("a=file:{}", at("none")), "give size=BYTES"),
        (format!("a=file:{}", at("small")), "not one block"),
        (format!("a=file:{},size=4K", at("large")), "has 8192 bytes already"),
        (format!("a=file:{},size=1000", at("new")), "multiple of"),
        (format!("a=file:{},size=1M,read-only", at("large")), "only be read"),
        (format!("a=file:{}", folder.path().display()), "open"),
        (format!("a=file:{},read-only", folder.path().display()), "no file"),
        ("a=file:/dev/null".into(), "no file"),
        (format!("a=block:{}", at("large")), "write file:"),
        (format!("a=block:{}", at("none")), "No such file"),
        ("a=mem:1000T".into(), "give less"),
    ] {
        let error = refused(&spec);
        assert!(error.contains(why), "{spec}: {error}");
    }
    // Files that were refused are unchanged.
    assert_eq!(fs::metadata(at("large")).unwrap().len(), 8192);
}

#[test]
fn a_file_is_used_by_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("a=file:{}/device,size=1M", folder.path().display());
    let first = open(&spec);
    assert!(refused(&spec).contains("locked"), "{}", refused(&spec));
    drop(first);
    // Opening succeeds at once, since the drop has left nothing that the kernel would have to free first.
    let begun = Instant::now();
    open(&spec);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
}

#[test]
fn room_is_taken_at_once_or_as_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    for (option, least, most) in [("", 2048, 1 << 20), (",sparse", 0, 1000)] {
        let path = folder.path().join(format!("device{option}"));
        let text = path.display().to_string().replace(',', "\\,");
        drop(open(&format!("a=file:{text},size=1M{option}")));
        let status = fs::metadata(&path).unwrap();
        assert_eq!(status.len(), 1 << 20);
        assert!((least..=most).contains(&status.blocks()), "{option}: {} blocks", status.blocks());
    }
}

#[test]
fn what_may_only_be_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    fs::write(&path, [7; 8192]).unwrap();
    for engine in ["", ",engine=threads"] {
        let mut device = open(&format!("a=file:{},read-only{engine}", path.display()));
        let (device, page) = (&mut *device, Page::filled(1));
        assert_eq!(device.geometry().access, Access::Read);
        let segment = [page.segment()];
        for command in [
            Command::write(1, 0, &segment),
            Command::write_durable(1, 0, &segment),
            Command::write_zeroes(1, 0, 4096),
            Command::discard(1, 0, 4096),
            Command::compare_and_write(1, 0, &segment),
        ] {
            assert_eq!(run(device, command, &page), Err(CommandError::ReadOnly));
        }
        assert_eq!(run(device, Command::flush(1), &page), Ok(()));
        assert_eq!(run(device, Command::read(1, 4096, &segment), &page), Ok(()));
        assert!(page.is_all(7));
    }
    assert_eq!(fs::read(&path).unwrap(), [7; 8192]);
}

#[test]
fn of_a_file_that_was_cut_short_the_rest_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    for engine in ["", ",engine=threads", ",cached"] {
        let path = folder.path().join("device");
        let mut device = open(&format!("a=file:{},size=1M{engine}", path.display()));
        let pages: Vec<_> = (0..16).map(|_| Page::filled(1)).collect();
        fs::File::options().write(true).open(&path).unwrap().set_len(512 << 10).unwrap();
        for (token, page) in (0..).zip(&pages) {
            let offset = if token % 2 == 0 { token << 12 } else { (1 << 20) - (token << 12) };
            let segment = [page.segment()];
            assert!(device.submit(Command::read(token, offset, &segment).owner(page.clone())).is_ok());
        }
        for (token, result) in finish(&mut *device) {
            let failed = Err(CommandError::Io(rustix::io::Errno::IO.raw_os_error()));
            assert_eq!(result, if token % 2 == 0 { Ok(()) } else { failed }, "{engine}");
        }
        assert!(pages[2].is_all(0));
        drop(device);
        fs::remove_file(&path).unwrap();
    }
}

/// Makes io_uring_setup(2) fail in this thread and those that it starts, with a seccomp filter.
fn forbid_io_uring() {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut steps = [
        // Load the number of the system call, which is the first word of `struct seccomp_data`.
        step(load, 0, 0, 0),
        step(jump, 0, 1, libc::SYS_io_uring_setup as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the call takes plain numbers and accesses no memory.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the kernel copies the filter, which has as many steps as `len` says.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
    assert_eq!(set, 0);
}

#[test]
fn without_io_uring_there_are_threads_and_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("a=file:{}/device,size=1M,threads=2", folder.path().display());
    let test = move || {
        forbid_io_uring();
        let mut device = open(&spec);
        let text = device.description();
        assert!(text.contains("by 2 threads (there is no io_uring") && text.contains("seccomp"), "{text}");
        let page = Page::filled(3);
        assert_eq!(run(&mut *device, Command::write(1, 0, &[page.segment()]), &page), Ok(()));
        drop(device);
        let error = refused(&format!("{spec},engine=io_uring"));
        assert!(error.contains("there is no io_uring") && error.contains("leave the engine out"), "{error}");
    };
    std::thread::spawn(test).join().unwrap();
}

#[test]
fn flushes_reach_the_medium() {
    match LoopDevice::new(1 << 20) {
        Ok(device) => check_flushes(&device.path().display().to_string()),
        Err(why) => println!("left out: {why}"),
    }
}

fn check_flushes(name: &str) {
    let stat = format!("/sys/block/{}/stat", Path::new(name).file_name().unwrap().display());
    // The sixteenth number is the count of flushes; see Documentation/block/stat.rst.
    let flushes = || {
        let text = fs::read_to_string(&stat).unwrap();
        text.split_whitespace().nth(15).unwrap().parse::<u64>().unwrap()
    };
    for engine in ["", ",engine=threads"] {
        let mut device = open(&format!("a=block:{name}{engine}"));
        assert!(refused(&format!("a=block:{name}")).contains("somebody has it open"));
        let (device, page) = (&mut *device, Page::filled(5));
        let segment = [page.segment()];
        let before = flushes();
        assert_eq!(run(device, Command::write(1, 0, &segment), &page), Ok(()));
        assert_eq!(flushes(), before, "a write is no flush");
        assert_eq!(run(device, Command::flush(2), &page), Ok(()));
        let flushed = flushes();
        assert!(flushed > before, "the flush did not come");
        assert_eq!(run(device, Command::write_durable(3, 0, &segment), &page), Ok(()));
        assert!(flushes() > flushed, "the durable write did not come through");
    }
}

#[test]
fn a_pipe_takes_its_time() {
    let mut device = open("m=mem:1M,latency=2ms,bandwidth=1M/s");
    let page = Page::filled(1);
    let begun = Instant::now();
    // Each command takes 3.9 ms of the pipe, one after the other; the latency adds 2 ms.
    for token in 0..4 {
        let segment = [page.segment()];
        assert!(device.submit(Command::write(token, 0, &segment).owner(page.clone())).is_ok());
    }
    assert_eq!(device.reap(&mut |_| {}), 0);
    assert_eq!(finish(&mut *device).len(), 4);
    assert!(begun.elapsed() >= Duration::from_micros(4 * 3906 + 2000), "{:?}", begun.elapsed());
}
