//! Files that the log of another run claims: who opens one for writing is warned without a log, and refused with another one,
//! as long as the log may have records.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_log::layout::{BLOCK, Superblock};
use bywash_log::read;
use bywash_log::shared::Counter;
use bywash_preloaded::{library, output};
use bywash_support::log::{LogReader, TestLog};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with a log, and a file of which it has a commit.
struct Place {
    folder: tempfile::TempDir,
    log: TestLog,
}

/// Writes a file and syncs it three times: it joins, and two commits are absorbed.
const COMMITS: &str = "import os, sys\n\
    f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
    for turn in range(3): os.pwrite(f, b'committed', turn * 9); os.fsync(f)\n";
const CONTENTS: &str = "committedcommittedcommitted";

impl Place {
    fn new() -> Place {
        // Not on a tmpfs, whose files cannot be logged.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let log = TestLog::new(&folder.path().join("log"), 2000, 16);
        let place = Place { folder, log };
        assert_eq!(errors(&place.python(Some(&place.log), COMMITS)), "");
        assert_eq!(place.log.shared().counted(Counter::Commits), 2);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, log: Option<&TestLog>, script: &str) -> Command {
        let mut command = Command::new("/usr/bin/python3");
        command.arg("-c").arg(script).arg(self.path("file")).arg(self.folder.path());
        command.env("LD_PRELOAD", library()).stdin(Stdio::null());
        if let Some(log) = log {
            command.env("BYWASH_LOG", log.memory_path());
        }
        command
    }

    /// Runs a script, with the library and a log or none, that gets the path of the file and that of the folder.
    fn python(&self, log: Option<&TestLog>, script: &str) -> Output {
        self.command(log, script).output().unwrap()
    }

    /// Returns the message that the file is written without its log, with this remedy.
    fn warning(&self, remedy: &str) -> String {
        let (file, log) = (self.path("file"), self.log.log_file().to_owned());
        let (file, log) = (file.display(), log.display());
        format!(
            "bywash: '{file}' is written without its commit log '{log}', whose recovery after a crash would undo that; \
             {remedy}, or use `bywash run --log {log}`\n"
        )
    }

    fn remedy(&self) -> String {
        format!(
            "end the programs of the log and run `bywash log checkpoint {}`",
            self.log.log_file().display()
        )
    }

    /// Checks that neither a run without the log nor one with another log is told anything, and that the latter commits.
    fn expect_stale(&self) {
        assert_eq!(errors(&self.python(None, WRITES)), "");
        let other = TestLog::new(&self.path("other"), 2000, 16);
        assert_eq!(errors(&self.python(Some(&other), COMMITS)), "");
        assert_eq!(other.shared().counted(Counter::Commits), 2);
    }
}

const WRITES: &str = "import os, sys\nf = os.open(sys.argv[1], os.O_RDWR); os.pwrite(f, b'w', 0)\n";

/// Returns what a program that has succeeded has written to standard error.
fn errors(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_run_without_the_log_is_warned() {
    let place = Place::new();
    let warning = place.warning(&place.remedy());
    assert_eq!(errors(&place.python(None, WRITES)), warning);
    let reads = "import sys\nprint(open(sys.argv[1]).read())\n";
    assert_eq!(errors(&place.python(None, reads)), "");
    // By streams of the C library as well, and a few times at most.
    let streams = "import ctypes, sys\nlibc = ctypes.CDLL(None); libc.fopen.restype = ctypes.c_void_p\n\
        for mode in ['r', 'r+', 'a', 'w', 'r+', 'a+']: assert libc.fopen(sys.argv[1].encode(), mode.encode())\n";
    assert_eq!(errors(&place.python(None, streams)), warning.repeat(4));
    let mut off = place.command(None, WRITES);
    assert_eq!(errors(&off.env("BYWASH_OFF", "1").output().unwrap()), "");
    let shell = Command::new("/bin/sh")
        .args(["-c", "echo shell > \"$0\""])
        .arg(place.path("file"))
        .env("LD_PRELOAD", library())
        .output()
        .unwrap();
    assert_eq!(errors(&shell), warning);
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), "shell\n");
}

#[test]
fn another_log_is_refused() {
    const REFUSED: &str = "import ctypes, errno, os, sys\n\
        libc = ctypes.CDLL(None, use_errno=True); libc.fopen.restype = ctypes.c_void_p\n\
        def refused(call):\n\
        \x20   try: call()\n\
        \x20   except OSError as error: assert error.errno == errno.EBUSY, error\n\
        \x20   else: raise Exception('not refused')\n\
        path = sys.argv[1]\n\
        before = os.listdir('/proc/self/fd')\n\
        for flags in [os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC, os.O_CREAT | os.O_WRONLY | os.O_TRUNC]:\n\
        \x20   refused(lambda: os.open(path, flags))\n\
        for mode in [b'w', b'r+', b'a']:\n\
        \x20   assert libc.fopen(path.encode(), mode) is None and ctypes.get_errno() == errno.EBUSY\n\
        assert libc.creat(path.encode(), 0o600) == -1 and ctypes.get_errno() == errno.EBUSY\n\
        how = (ctypes.c_uint64 * 3)(os.O_RDWR, 0, 0)\n\
        assert libc.syscall(437, -100, path.encode(), how, 24) == -1 and ctypes.get_errno() == errno.EBUSY\n\
        assert os.listdir('/proc/self/fd') == before\n\
        assert os.open(path, os.O_RDONLY) > 0 and libc.fopen(path.encode(), b'r')\n\
        assert os.open(path + '2', os.O_CREAT | os.O_RDWR) > 0\n";
    let place = Place::new();
    let other = TestLog::new(&place.path("other"), 2000, 16);
    let message = format!(
        "bywash: '{}' is not opened for writing: it belongs to another commit log, '{}'; {}\n",
        place.path("file").display(),
        place.log.log_file().display(),
        place.remedy()
    );
    assert_eq!(errors(&place.python(Some(&other), REFUSED)), message.repeat(4));
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), CONTENTS);
    // Its own log goes on.
    assert_eq!(errors(&place.python(Some(&place.log), COMMITS)), "");
}

/// Both logs have the file open before one of them claims it. The other one commits often, since on a busy machine it leaves
/// the first commits to the kernel.
#[test]
fn a_file_that_another_log_has_claimed_meanwhile_is_the_kernels() {
    const LATE: &str = "import os, sys\n\
        f = os.open(sys.argv[1], os.O_RDWR)\n\
        print(flush=True); sys.stdin.read()\n\
        for turn in range(100): os.pwrite(f, b'later', turn * 5); os.fsync(f)\n";
    let place = Place::new();
    fs::remove_file(place.path("file")).unwrap();
    fs::write(place.path("file"), "").unwrap();
    let other = TestLog::new(&place.path("other"), 2000, 16);
    let mut late = place.command(Some(&other), LATE);
    let mut late = late.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = [0];
    std::io::Read::read_exact(late.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(errors(&place.python(Some(&place.log), COMMITS)), "");
    drop(late.stdin.take());
    let message = errors(&late.wait_with_output().unwrap());
    let log = place.log.log_file().display();
    let expected = format!("is made durable by the kernel: it belongs to another commit log, '{log}'; ");
    assert!(message.contains(&expected) && message.lines().count() == 1, "{message}");
    assert_eq!(other.shared().counted(Counter::Commits), 0);
}

fn superblock(log: &Path) -> Superblock {
    read::superblock(&mut LogReader::open(log)).unwrap()
}

fn write_superblock(log: &Path, superblock: &Superblock) {
    let file = OpenOptions::new().write(true).open(log).unwrap();
    file.write_all_at(&superblock.encode(), superblock.block() * BLOCK as u64).unwrap();
}

#[test]
fn a_claim_of_a_log_that_was_emptied_means_nothing() {
    let place = Place::new();
    let before = superblock(place.log.log_file());
    let emptied = Superblock {
        writes: before.writes + 1,
        epoch: before.epoch + 1,
        tail_batch: before.tail_batch + 2,
        ..before
    };
    write_superblock(place.log.log_file(), &emptied);
    place.expect_stale();
}

#[test]
fn a_claim_of_a_log_that_is_another_one_means_nothing() {
    let place = Place::new();
    let before = superblock(place.log.log_file());
    write_superblock(place.log.log_file(), &Superblock { id: [7; 16], writes: before.writes + 1, ..before });
    place.expect_stale();
    let place = Place::new();
    File::create(place.log.log_file()).unwrap();
    place.expect_stale();
    // Nothing but a file or a block device is opened.
    let place = Place::new();
    fs::remove_file(place.log.log_file()).unwrap();
    output(Command::new("mkfifo").arg(place.log.log_file()));
    place.expect_stale();
}

#[test]
fn a_copy_of_a_file_is_not_claimed() {
    let place = Place::new();
    output(Command::new("cp").arg("--preserve=all").arg(place.path("file")).arg(place.path("copy")));
    fs::rename(place.path("copy"), place.path("file")).unwrap();
    place.expect_stale();
}

#[test]
fn a_log_that_is_in_use_counts_without_records() {
    const JOINS: &str = "import os, sys\n\
        f = os.open(sys.argv[1], os.O_RDWR); os.fsync(f); print(flush=True); sys.stdin.read()\n";
    let place = Place::new();
    let before = superblock(place.log.log_file());
    // No batch is found where the oldest one would be.
    write_superblock(
        place.log.log_file(),
        &Superblock { tail_batch: 99, writes: before.writes + 1, ..before },
    );
    let mut user = place.command(Some(&place.log), JOINS);
    let mut user = user.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0];
    std::io::Read::read_exact(user.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(errors(&place.python(None, WRITES)), place.warning(&place.remedy()));
    drop(user.stdin.take());
    assert!(user.wait().unwrap().success());
    assert_eq!(errors(&place.python(None, WRITES)), "");
}

#[test]
fn a_log_that_is_not_there_is_warned_of() {
    let place = Place::new();
    fs::remove_file(place.log.log_file()).unwrap();
    let remedy = "the log is not there: mount its file system, or, if it is gone for good, \
                  `setfattr -x user.bywash.log` the file";
    assert_eq!(errors(&place.python(None, WRITES)), place.warning(remedy));
}

#[test]
fn a_log_that_is_a_volume_is_named_as_one() {
    let place = Place::new();
    place.log.shared().set_name(c"volume:/run/bywash/socket/commits").unwrap();
    assert_eq!(errors(&place.python(Some(&place.log), COMMITS)), "");
    // The claim is renewed when the file joins again.
    fs::remove_file(place.path("file")).unwrap();
    assert_eq!(errors(&place.python(Some(&place.log), COMMITS)), "");
    let message = errors(&place.python(None, WRITES));
    let remedy = "have its owner run `bywash log checkpoint volume:/run/bywash/socket/commits`, or, if it is gone for good";
    assert!(message.contains(remedy), "{message}");
}

/// A process that has closed standard error may have a file of its own under the number.
#[test]
fn a_warning_is_written_to_nothing_but_standard_error() {
    const REPLACED: &str = "import os, sys\n\
        path, folder = sys.argv[1:]\n\
        os.close(2)\n\
        data = os.open(folder + '/data', os.O_RDWR | os.O_CREAT); assert data == 2\n\
        os.open(path, os.O_RDWR)\n\
        assert os.fstat(data).st_size == 0\n";
    const REPLACED_LATER: &str = "import os, sys\n\
        path, folder = sys.argv[1:]\n\
        data = os.open(folder + '/data', os.O_RDWR | os.O_CREAT)\n\
        os.dup2(data, 2)\n\
        os.open(path, os.O_RDWR)\n\
        assert os.fstat(data).st_size == 0\n";
    const NO_READER: &str = "import os, signal, sys\n\
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n\
        r, w = os.pipe(); os.dup2(w, 2); os.close(r)\n\
        os.open(sys.argv[1], os.O_RDWR)\n";
    let place = Place::new();
    for script in [REPLACED, REPLACED_LATER, NO_READER] {
        assert_eq!(errors(&place.python(None, script)), "", "{script}");
    }
}
