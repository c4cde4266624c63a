//! Features that can be used on this machine: one finding for each, by trying the feature.

use super::kernel::{self, Mapping, Ring};
use crate::run;
use bywash_session::Session;
use rustix::fs::MemfdFlags;
use rustix::process::Resource;
use rustix::thread::{MembarrierCommand, membarrier_query};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A line of the doctor's list.
#[derive(Serialize)]
pub struct Finding {
    /// Name of the feature.
    pub name: String,
    /// True if the feature can be used.
    pub usable: bool,
    /// Details of the feature, or the reason that it cannot be used.
    pub detail: String,
    /// Remedy that would make the feature usable, if there is one.
    pub remedy: Option<String>,
}

/// Tries all features, those that `bywash run` requires first.
pub fn probe() -> Vec<Finding> {
    let mut findings = vec![library(), session()];
    findings.extend(candidates().iter().map(|place| mapped_files(place)));
    findings.extend([
        address_space(),
        membarrier(),
        cachestat(),
        io_uring(),
        huge_pages(),
        transparent_huge_pages(),
        tmpfs_huge_pages(),
    ]);
    findings.extend(accelerators());
    findings
}

/// Tells of the devices for `accel:`, and of the kinds of which there is none.
fn accelerators() -> Vec<Finding> {
    let name = |name: &str| format!("accelerator {name}");
    let devices = bywash_accelerator::devices::all();
    let found = devices.found.into_iter().map(|found| usable(name(&found.name), found.description));
    let absent = devices.absent.into_iter();
    let absent = absent.map(|absent| unusable(name(&absent.name), absent.reason, absent.remedy));
    found.chain(absent).collect()
}

/// Returns the directories whose file systems are tried and measured: the one for temporary files, and tmpfs.
pub fn candidates() -> Vec<PathBuf> {
    let temporary = std::env::temp_dir();
    let shared = PathBuf::from("/dev/shm");
    if temporary == shared || !shared.is_dir() { vec![temporary] } else { vec![temporary, shared] }
}

/// Returns the name of the file system that `path` is on, by statfs(2)'s magic number.
pub fn file_system(path: &Path) -> String {
    let Ok(statistics) = rustix::fs::statfs(path) else { return "unknown".into() };
    match statistics.f_type as u64 & 0xffff_ffff {
        0xef53 => "ext4".into(),
        0x5846_5342 => "xfs".into(),
        0x9123_683e => "btrfs".into(),
        0x0102_1994 => "tmpfs".into(),
        0x794c_7630 => "overlayfs".into(),
        0x6969 => "nfs".into(),
        0x6573_5546 => "fuse".into(),
        0x0102_1997 => "9p".into(),
        0xf2f5_2010 => "f2fs".into(),
        0x2fc1_2fc1 => "zfs".into(),
        other => format!("type {other:#x}"),
    }
}

fn usable(name: impl Into<String>, detail: impl Into<String>) -> Finding {
    Finding { name: name.into(), usable: true, detail: detail.into(), remedy: None }
}

fn unusable(name: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { name: name.into(), usable: false, detail: detail.into(), remedy: Some(remedy.into()) }
}

fn library() -> Finding {
    const NAME: &str = "preloaded library";
    match run::find_library() {
        Ok(path) => usable(NAME, path.display().to_string()),
        Err(failure) => {
            let text = failure.to_string();
            let line = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
            unusable(NAME, line, "`make build` or `make install`")
        }
    }
}

fn session() -> Finding {
    const NAME: &str = "counting (--stats)";
    let tried = Session::create().and_then(|session| Session::open(&session.path()).map(|_| ()));
    match tried.map_err(|error| std::io::Error::from_raw_os_error(error.0)) {
        Ok(()) => usable(NAME, "shared memory, opened through /proc"),
        Err(error) => unusable(
            NAME,
            format!("no memory shared through memfd_create and /proc: {error}"),
            "mount /proc, and allow memfd_create; `bywash run` without --stats needs neither",
        ),
    }
}

/// Checks that a shared mapping and reads of the same file agree, which is all that the data path relies on.
fn mapped_files(place: &Path) -> Finding {
    const BYTES: usize = 64 * 1024;
    let name = format!("mapped files in {}", place.display());
    let tried = || -> io::Result<bool> {
        let mut file = tempfile::tempfile_in(place)?;
        file.write_all(&[0; BYTES])?;
        let mapping = Mapping::new(&file, BYTES)?;
        mapping.copy_from(5000, b"by mapping");
        file.write_all_at(b"by call", 9000)?;
        let (mut by_call, mut by_mapping) = ([0; 10], [0; 7]);
        file.read_exact_at(&mut by_call, 5000)?;
        mapping.copy_to(9000, &mut by_mapping);
        Ok(&by_call == b"by mapping" && &by_mapping == b"by call")
    };
    let system = file_system(place);
    match tried() {
        Ok(true) => usable(name, format!("{system}, coherent with reads and writes")),
        Ok(false) => unusable(
            name,
            format!("{system}: a mapping and system calls disagree on the file's bytes"),
            "keep the data on another file system, or run with --except",
        ),
        Err(error) => unusable(
            name,
            format!("{system}: {error}"),
            "give a directory that you may write to in TMPDIR, on a file system with shared mappings",
        ),
    }
}

fn address_space() -> Finding {
    const NAME: &str = "address space";
    match rustix::process::getrlimit(Resource::As).current {
        None => usable(NAME, "not limited"),
        Some(bytes) => unusable(
            NAME,
            format!(
                "limited to {} MiB; mappings would count against the program's limit, so nothing is served",
                bytes >> 20
            ),
            "ulimit -v unlimited",
        ),
    }
}

fn membarrier() -> Finding {
    const NAME: &str = "membarrier";
    if membarrier_query().contains_command(MembarrierCommand::PrivateExpedited) {
        usable(NAME, "private expedited")
    } else {
        unusable(
            NAME,
            "no private expedited command",
            "a kernel of 4.14 or later; in a container, a seccomp profile that allows membarrier",
        )
    }
}

fn cachestat() -> Finding {
    const NAME: &str = "cachestat";
    let tried = tempfile::tempfile().and_then(|mut file| {
        file.write_all(&[1; 4096])?;
        kernel::cached_pages(&file, 4096)
    });
    match tried {
        Ok(pages) => usable(NAME, format!("found {pages} page of a file just written")),
        Err(error) => unusable(
            NAME,
            error.to_string(),
            "a kernel of 6.5 or later; in a container, a seccomp profile that allows cachestat",
        ),
    }
}

fn io_uring() -> Finding {
    const NAME: &str = "io_uring";
    let ring = match Ring::setup(0) {
        Ok(ring) => ring,
        Err(error) => {
            let (detail, remedy) = io_uring_refused(&error);
            return unusable(NAME, detail, remedy);
        }
    };
    let operations = ring.operations().map_or("unknown".into(), |count| count.to_string());
    let features: Vec<&str> = FEATURES
        .iter()
        .enumerate()
        .filter(|(bit, _)| ring.features >> bit & 1 == 1)
        .map(|(_, name)| *name)
        .collect();
    let modes: Vec<&str> =
        MODES.iter().filter(|(_, flags)| Ring::setup(*flags).is_ok()).map(|(name, _)| *name).collect();
    usable(NAME, format!("{operations} operations; modes {}; features {}", list(&modes), list(&features)))
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".into() } else { names.join(" ") }
}

/// Names of the IORING_FEAT_* bits, by bit (io_uring_setup(2)).
const FEATURES: [&str; 18] = [
    "single-mmap",
    "nodrop",
    "submit-stable",
    "rw-cur-pos",
    "cur-personality",
    "fast-poll",
    "poll-32bits",
    "sqpoll-nonfixed",
    "ext-arg",
    "native-workers",
    "rsrc-tags",
    "cqe-skip",
    "linked-file",
    "reg-reg-ring",
    "recvsend-bundle",
    "min-timeout",
    "rw-attr",
    "no-iowait",
];

/// Setup modes of io_uring, with their IORING_SETUP_* bits.
const MODES: [(&str, u32); 3] =
    [("sqpoll", 1 << 1), ("single-issuer", 1 << 12), ("defer-taskrun", 1 << 12 | 1 << 13)];

fn io_uring_refused(error: &io::Error) -> (String, &'static str) {
    let switch = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match (error.raw_os_error(), switch.trim()) {
        (Some(libc::ENOSYS), _) => {
            ("this kernel has none".into(), "a kernel of 5.1 or later with CONFIG_IO_URING")
        }
        (Some(libc::EPERM), "2") => {
            ("switched off for all".into(), "as root: sysctl kernel.io_uring_disabled=0")
        }
        (Some(libc::EPERM), "1") => (
            "switched off for users outside a group".into(),
            "as root: sysctl kernel.io_uring_disabled=0, or join the group in kernel.io_uring_group",
        ),
        (Some(libc::EPERM), _) => (
            "not permitted, probably by a seccomp profile".into(),
            "a container profile that allows io_uring_setup, io_uring_enter and io_uring_register",
        ),
        (Some(libc::ENOMEM), _) => ("not enough lockable memory".into(), "a larger ulimit -l"),
        _ => (error.to_string(), "see io_uring_setup(2)"),
    }
}

fn huge_pages() -> Finding {
    const NAME: &str = "huge pages (reserved)";
    const REMEDY: &str = "as root: sysctl vm.nr_hugepages=64";
    const BYTES: usize = 2 << 20;
    let tried = || -> io::Result<()> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let file = File::from(rustix::fs::memfd_create("bywash-doctor", flags)?);
        file.set_len(BYTES as u64)?;
        Mapping::new(&file, BYTES).map(|_| ())
    };
    let (total, free) = (meminfo("HugePages_Total"), meminfo("HugePages_Free"));
    match tried() {
        Ok(()) => usable(NAME, format!("{free} of {total} free, 2 MiB each")),
        Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
            unusable(NAME, format!("{free} of {total} free"), REMEDY)
        }
        Err(error) => unusable(NAME, error.to_string(), "a kernel with CONFIG_HUGETLBFS"),
    }
}

/// Returns a value of /proc/meminfo; 0 if the kernel has none of this name.
fn meminfo(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn transparent_huge_pages() -> Finding {
    switch(
        "transparent huge pages",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )
}

fn tmpfs_huge_pages() -> Finding {
    switch(
        "huge pages on tmpfs",
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "as root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, \
         or mount the tmpfs with huge=advise",
    )
}

/// Probes a file of words in which the chosen word is in brackets.
fn switch(name: &str, file: &str, remedy: &str) -> Finding {
    let Ok(text) = fs::read_to_string(file) else {
        return unusable(name, "this kernel has none", "a kernel with CONFIG_TRANSPARENT_HUGEPAGE");
    };
    match chosen(&text) {
        Some(word @ ("never" | "deny")) => unusable(name, format!("switched off ('{word}')"), remedy),
        Some(word) => usable(name, format!("'{word}'")),
        None => unusable(name, format!("{file} has no chosen word"), remedy),
    }
}

fn chosen(text: &str) -> Option<&str> {
    Some(text.split_once('[')?.1.split_once(']')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("always madvise"), None);
    }

    #[test]
    fn what_cannot_be_used_says_what_to_do() {
        for finding in probe() {
            assert_ne!(finding.usable, finding.remedy.is_some(), "{}", finding.name);
            assert!(!finding.detail.is_empty(), "{}", finding.name);
        }
        let refused = mapped_files(Path::new("/no/such/place"));
        assert!(!refused.usable && refused.detail.contains("No such file"), "{}", refused.detail);
    }

    #[test]
    fn io_uring_switched_off_is_told_from_missing() {
        let (missing, _) = io_uring_refused(&io::Error::from_raw_os_error(libc::ENOSYS));
        let (refused, _) = io_uring_refused(&io::Error::from_raw_os_error(libc::EPERM));
        assert_ne!(missing, refused);
    }
}
