//! Dropping a device while the kernel is carrying out a command waits for the command.
//!
//! The memory of a read is a missing page: the kernel waits in the page fault until this test fills the page
//! (userfaultfd(2)). The test needs root and a kernel that has userfaultfd; without them it prints so and
//! passes.

use bywash_device::{Command, Device, MemoryOwner, Segment, Spec};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PAGE: usize = 4096;
/// ioctl(2) requests of userfaultfd, from linux/userfaultfd.h.
const UFFDIO_API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const UFFDIO_ZEROPAGE: libc::Ioctl = 0xc020_aa04_u32 as libc::Ioctl;

/// A page that is missing until the test fills it. Dropping it sets `is_gone`.
struct Absent {
    base: *mut u8,
    faults: OwnedFd,
    is_gone: Arc<AtomicBool>,
}

// SAFETY: a mapping that belongs to this value alone; no access depends on the thread.
unsafe impl Send for Absent {}
// SAFETY: a shared reference gives out nothing but the address and the descriptor.
unsafe impl Sync for Absent {}

impl Absent {
    fn new(is_gone: Arc<AtomicBool>) -> Result<Absent, std::io::Error> {
        // SAFETY: the system call takes a number and returns a new descriptor.
        let number = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        if number < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the system call above has just made this descriptor, and nobody else has it.
        let faults = unsafe { OwnedFd::from_raw_fd(number as i32) };
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, rights, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let absent = Absent { base: base.cast(), faults, is_gone };
        absent.ask(UFFDIO_API, &mut [0xaa, 0, 0])?;
        // 1 is UFFDIO_REGISTER_MODE_MISSING: faults of missing pages.
        absent.ask(UFFDIO_REGISTER, &mut [base as u64, PAGE as u64, 1, 0])?;
        Ok(absent)
    }

    fn ask(&self, what: libc::Ioctl, words: &mut [u64]) -> Result<(), std::io::Error> {
        // SAFETY: the kernel reads and writes `words`, whose size the request number contains.
        match unsafe { libc::ioctl(self.faults.as_raw_fd(), what, words.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Waits until a page fault occurs.
    fn wait(&self) {
        let mut fault = [0u8; 32];
        // SAFETY: the kernel writes at most 32 bytes into `fault`, which has 32.
        let read = unsafe { libc::read(self.faults.as_raw_fd(), fault.as_mut_ptr().cast(), 32) };
        assert_eq!(read, 32);
    }
}

impl Drop for Absent {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::SeqCst);
        // SAFETY: the mapping belongs to this value, and no command uses it any more.
        unsafe { libc::munmap(self.base.cast(), PAGE) };
    }
}

#[test]
fn the_kernel_is_waited_for() {
    // On tmpfs a kernel thread of io_uring copies the data, and can wait in the fault while this thread goes
    // on.
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return println!("left out: there is no /dev/shm here");
    };
    for options in ["", ",engine=threads"] {
        let is_gone = Arc::new(AtomicBool::new(false));
        let page = match Absent::new(is_gone.clone()) {
            Ok(page) => Arc::new(page),
            Err(error) => return println!("left out: no userfaultfd here: {error}"),
        };
        let spec = format!("a=file:{}/device,size=1M{options}", folder.path().display());
        let mut device = spec.parse::<Spec>().unwrap().open().unwrap();
        println!("{}", device.description());
        // SAFETY: the command owns the page, and no reference points into it.
        let segment = [unsafe { Segment::new(page.base, PAGE) }];
        let owner: MemoryOwner = page.clone();
        assert!(device.submit(Command::read(1, 0, &segment).owner(owner)).is_ok());
        device.reap(&mut |_| panic!("the page is not there"));
        page.wait();
        // The command's owner alone keeps the page mapped now; the descriptor remains for filling it.
        let (faults, base) = (page.faults.try_clone().unwrap(), page.base as u64);
        drop(page);
        let dropped = Arc::new(AtomicBool::new(false));
        let dropper = std::thread::spawn({
            let dropped = dropped.clone();
            move || {
                drop(device);
                dropped.store(true, Ordering::SeqCst);
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        assert!(!is_gone.load(Ordering::SeqCst), "the kernel's memory was given back{options}");
        assert!(!dropped.load(Ordering::SeqCst), "nobody waited for the kernel{options}");
        let mut words = [base, PAGE as u64, 0, 0];
        // SAFETY: the kernel reads and writes `words`, which has the four words of the request.
        let filled = unsafe { libc::ioctl(faults.as_raw_fd(), UFFDIO_ZEROPAGE, words.as_mut_ptr()) };
        assert_eq!(filled, 0, "{}", std::io::Error::last_os_error());
        dropper.join().unwrap();
        assert!(is_gone.load(Ordering::SeqCst));
    }
}
