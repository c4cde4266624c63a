//! Tests with recordings, and with lines of every kind that strace prints.

use super::super::{CallKind, Error, Imported, TextFormat, Trace};
use super::line::{Body, CallResult, StraceLine, Syscall, Time, annotation, unquoted};

/// Recording by strace 6.1 of `sh -c 'cat a | wc -c; cat a > c'` with -f -r. Program and strace share
/// standard error.
const SHELL: &str = include_str!("../recordings/shell.txt");
/// Recording of `sqlite3 orders.db 'create table ...; insert ...; select ...'` with -f -ttt -y, from the
/// opening of the file.
const SQLITE: &str = include_str!("../recordings/sqlite.txt");
/// Recording of a server and its client, two threads of one process, with -f -tt -T -yy.
const SERVER: &str = include_str!("../recordings/server.txt");
/// Second recording of the server and its client, with -f -t.
const SERVER_PLAIN: &str = include_str!("../recordings/server-plain.txt");

type Row<'a> = (u32, CallKind, &'a str, u64, u64);

fn rows(imported: &Imported) -> Vec<Row<'_>> {
    let name = |file: u32| imported.trace.files[file as usize].as_str();
    let calls = imported.trace.calls.iter();
    calls.map(|call| (call.process, call.kind, name(call.file), call.offset, call.length)).collect()
}

/// Imports lines, with a process and a time in front of each.
fn lines(text: &str) -> Imported {
    let text: String = text
        .lines()
        .enumerate()
        .map(|(at, line)| format!("7 1700000000.{at:06} {}\n", line.trim()))
        .collect();
    let imported = Trace::import(&text).unwrap();
    assert_eq!(imported.form, TextFormat::Strace);
    imported
}

/// Returns kind, file, offset and length of all calls.
fn short(imported: &Imported) -> Vec<(CallKind, &str, u64, u64)> {
    rows(imported).into_iter().map(|(_, kind, file, offset, length)| (kind, file, offset, length)).collect()
}

fn count(imported: &Imported, beginning: &str) -> u64 {
    let left = imported.left_out.iter().chain(&imported.assumed);
    left.filter(|left| left.what.starts_with(beginning)).map(|left| left.count).sum()
}

#[test]
fn a_shell_s_files_are_told_from_its_pipes() {
    let imported = Trace::import(SHELL).unwrap();
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    assert_eq!(
        rows(&imported),
        [
            (23295, CallKind::Read, libc, 0, 832),
            (23297, CallKind::Read, libc, 0, 832),
            (23296, CallKind::Read, libc, 0, 832),
            (23296, CallKind::Read, "a", 0, 131072),
            (23296, CallKind::Read, "a", 131072, 131072),
            (23296, CallKind::Read, "a", 262144, 37856),
            (23298, CallKind::Read, libc, 0, 832),
            (23298, CallKind::Read, "a", 0, 300000),
            (23298, CallKind::Write, "c", 0, 300000),
        ]
    );
    // The importer joins lines that strace split to announce a child. It does not join the `300000` that wc
    // printed.
    assert_eq!(count(&imported, "lines that are not strace's"), 2, "{:?}", imported.left_out);
    assert_eq!(count(&imported, "calls on pipes"), 19 + 3);
    assert_eq!(count(&imported, "calls of 0 bytes"), 3);
    assert_eq!(count(&imported, "calls on standard input"), 0);
    assert_eq!(count(&imported, "files whose opening"), 0);
}

#[test]
fn a_database_s_journal_comes_before_its_pages() {
    let imported = Trace::import(SQLITE).unwrap();
    let (pages, journal) = ("/data/orders.db", "/data/orders.db-journal");
    assert_eq!(
        short(&imported)[..9],
        [
            (CallKind::Write, journal, 0, 512),
            (CallKind::Sync, journal, 0, 0),
            (CallKind::Sync, "/data", 0, 0),
            (CallKind::Write, journal, 0, 12),
            (CallKind::Sync, journal, 0, 0),
            (CallKind::Write, pages, 0, 4096),
            (CallKind::Write, pages, 4096, 4096),
            (CallKind::Sync, pages, 0, 0),
            (CallKind::Read, pages, 24, 16),
        ]
    );
    let written = short(&imported)
        .iter()
        .filter(|row| (row.0, row.1) == (CallKind::Write, pages))
        .map(|row| row.3)
        .sum::<u64>();
    assert_eq!(written, 6 * 4096, "two pages, then four");
    let times: Vec<f64> = imported.trace.calls.iter().map(|call| call.at).collect();
    assert_eq!((times[0], times[1]), (0.0, 0.000201));
    assert_eq!(count(&imported, "calls on terminals"), 2, "/dev/urandom and /dev/null");
}

#[test]
fn threads_have_their_descriptors_in_common_and_sockets_are_the_network() {
    let (client, server) =
        ("TCP:[127.0.0.1:54010->127.0.0.1:59451]", "TCP:[127.0.0.1:59451->127.0.0.1:54010]");
    let imported = Trace::import(SERVER).unwrap();
    assert_eq!(
        rows(&imported),
        [
            (23313, CallKind::Send, client, 0, 3),
            (23313, CallKind::Receive, client, 0, 50000),
            (23317, CallKind::Receive, server, 0, 3),
            (23317, CallKind::Read, "/data/a", 1000, 50000),
            (23317, CallKind::Send, server, 0, 50000),
            (23313, CallKind::Receive, client, 0, 100),
            (23317, CallKind::Send, server, 0, 100),
        ]
    );
    assert_eq!(imported.trace.calls[3].at, 0.000643);
    assert_eq!(count(&imported, "calls that did not return"), 1, "{:?}", imported.left_out);

    let (client, server) = ("socket 2", "socket 3");
    let plain = Trace::import(SERVER_PLAIN).unwrap();
    assert_eq!(
        rows(&plain),
        [
            (23323, CallKind::Send, client, 0, 3),
            (23324, CallKind::Receive, server, 0, 3),
            (23323, CallKind::Receive, client, 0, 32768),
            (23324, CallKind::Read, "a", 1000, 50000),
            (23324, CallKind::Send, server, 0, 50000),
            (23323, CallKind::Receive, client, 0, 17232),
            (23324, CallKind::Send, server, 0, 100),
            (23323, CallKind::Receive, client, 0, 100),
        ]
    );
    assert_eq!(count(&plain, "calls on standard input"), 2);
}

#[test]
fn positions_are_those_of_open_files() {
    let imported = lines(
        r#"openat(AT_FDCWD, "/a", O_RDWR|O_CREAT, 0644) = 3
        write(3, "x"..., 100) = 100
        dup(3) = 4
        write(4, "x"..., 50) = 50
        lseek(3, -10, SEEK_CUR) = 140
        read(4, "x", 10) = 10
        pread64(3, "x", 7, 1000) = 7
        preadv2(3, [{iov_base="x", iov_len=9}], 1, -1, RWF_HIPRI) = 4
        preadv(3, [{iov_base="x", iov_len=9}, {iov_base="y", iov_len=9}], 2, 4096) = 18
        fcntl(3, F_DUPFD_CLOEXEC, 10) = 10
        close(3) = 0
        write(3, "x", 1) = -1 EBADF (Bad file descriptor)
        readv(10, [{iov_base="x", iov_len=1}], 1) = 1
        open("/a", O_RDONLY) = 3
        read(3, "x", 5) = 5
        _llseek(3, 77, [77], SEEK_SET) = 0
        read(3, "x", 5) = 5
        fork() = 8
        read(3, "x", 5) = 5
        dup2(10, 3) = 3
        read(3, "x", 2) = 2"#,
    );
    assert_eq!(
        short(&imported),
        [
            (CallKind::Write, "/a", 0, 100),
            (CallKind::Write, "/a", 100, 50),
            (CallKind::Read, "/a", 140, 10),
            (CallKind::Read, "/a", 1000, 7),
            (CallKind::Read, "/a", 150, 4),
            (CallKind::Read, "/a", 4096, 18),
            (CallKind::Read, "/a", 154, 1),
            (CallKind::Read, "/a", 0, 5),
            (CallKind::Read, "/a", 77, 5),
            (CallKind::Read, "/a", 82, 5),
            (CallKind::Read, "/a", 155, 2),
        ]
    );
    assert_eq!(count(&imported, "calls that failed"), 1);
}

#[test]
fn children_go_on_where_their_parents_are() {
    let recorded = r#"
        1 12:00:00 openat(AT_FDCWD, "/a", O_RDONLY) = 3
        1 12:00:00 read(3, "", 10) = 10
        1 12:00:01 fork( <unfinished ...>
        2 12:00:01 read(3, "", 10) = 10
        1 12:00:02 <... fork resumed>) = 2
        1 12:00:02 read(3, "", 10) = 10
        2 12:00:03 close(3) = 0
        2 12:00:03 read(3, "", 10) = -1 EBADF (Bad file descriptor)
        1 12:00:04 read(3, "", 10) = 10
        1 12:00:05 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD) = 3
        3 12:00:06 close(3) = 0
        3 12:00:06 openat(AT_FDCWD, "/b", O_RDONLY) = 3
        1 12:00:07 read(3, "", 10 <unfinished ...>
        3 12:00:08 +++ exited with 0 +++
        1 12:00:09 <... read resumed>) = ?
        1 12:00:09 +++ killed by SIGKILL +++"#;
    let imported = Trace::import(recorded).unwrap();
    let positions: Vec<_> = rows(&imported).iter().map(|row| (row.0, row.2, row.3)).collect();
    assert_eq!(positions, [(1, "/a", 0), (2, "/a", 10), (1, "/a", 20), (1, "/a", 30)]);
    assert_eq!(count(&imported, "calls that did not return"), 1);
}

#[test]
fn appending_and_durable_writes_are_what_they_were_opened_as() {
    let imported = lines(
        r#"open("/log", O_WRONLY|O_CREAT|O_TRUNC|O_APPEND, 0644) = 3
        write(3, "x"..., 100) = 100
        open("/log", O_WRONLY|O_APPEND) = 4
        write(4, "x"..., 20) = 20
        pwrite64(3, "x"..., 10, 5) = 10
        ftruncate(3, 40) = 0
        write(3, "x", 1) = 1
        open("/old", O_WRONLY|O_APPEND|O_DSYNC) = 5
        write(5, "x"..., 8) = 8
        creat("/new", 0644) = 6
        pwritev2(6, [{iov_base="x", iov_len=3}], 1, 64, RWF_DSYNC) = 3
        fsync(6) = 0
        fdatasync(6) = -1 EIO (Input/output error)
        sync_file_range(6, 64, 3, SYNC_FILE_RANGE_WRITE) = 0
        sync() = 0"#,
    );
    assert_eq!(
        short(&imported),
        [
            (CallKind::Write, "/log", 0, 100),
            (CallKind::Write, "/log", 100, 20),
            (CallKind::Write, "/log", 120, 10),
            (CallKind::Write, "/log", 40, 1),
            (CallKind::Write, "/old", 0, 8),
            (CallKind::Sync, "/old", 0, 8),
            (CallKind::Write, "/new", 64, 3),
            (CallKind::Sync, "/new", 64, 3),
            (CallKind::Sync, "/new", 0, 0),
            (CallKind::Sync, "/new", 64, 3),
        ]
    );
    assert_eq!(count(&imported, "writes that append"), 1);
    assert_eq!((count(&imported, "sync and syncfs"), count(&imported, "calls that failed")), (1, 1));
}

#[test]
fn what_goes_between_two_descriptors_is_two_calls() {
    let imported = lines(
        r#"open("/from", O_RDONLY) = 3
        open("/to", O_WRONLY|O_CREAT|O_EXCL, 0644) = 4
        socket(AF_INET6, SOCK_STREAM, IPPROTO_TCP) = 5
        pipe2([6, 7], O_CLOEXEC) = 0
        copy_file_range(3, NULL, 4, [100], 1000, 0) = 1000
        sendfile(5, 3, NULL, 500) = 500
        sendfile(4, 3, [8192] => [8292], 100) = 100
        splice(3, NULL, 7, NULL, 64, 0) = 64
        splice(6, NULL, 4, NULL, 64, 0) = 64"#,
    );
    assert_eq!(
        short(&imported),
        [
            (CallKind::Read, "/from", 0, 1000),
            (CallKind::Write, "/to", 100, 1000),
            (CallKind::Read, "/from", 1000, 500),
            (CallKind::Send, "socket 1", 0, 500),
            (CallKind::Read, "/from", 8192, 100),
            (CallKind::Write, "/to", 0, 100),
            (CallKind::Read, "/from", 1500, 64),
            (CallKind::Write, "/to", 100, 64),
        ]
    );
    assert_eq!(count(&imported, "calls on pipes"), 2);
}

#[test]
fn what_is_no_file_and_no_network_is_counted() {
    let imported = lines(
        r#"socketpair(AF_UNIX, SOCK_STREAM, 0, [3, 4]) = 0
        write(3, "x", 1) = 1
        socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) = 5
        sendto(5, "x"..., 20, 0, NULL, 0) = 20
        socket(AF_INET, SOCK_DGRAM, IPPROTO_IP) = 6
        recvfrom(6, "x", 1, MSG_PEEK, NULL, NULL) = 1
        recvfrom(6, "MSG_PEEK", 8, 0, NULL, NULL) = 8
        recvmsg(6, {msg_name=NULL, msg_iov=[{iov_base="a)b,", iov_len=9}], msg_iovlen=1, msg_flags=0}, 0) = 4
        eventfd2(0, EFD_CLOEXEC) = 7
        write(7, "\1\0\0\0\0\0\0\0", 8) = 8
        open("/proc/meminfo", O_RDONLY) = 8
        read(8, "x"..., 4096) = 1000
        read(9, "x", 4) = 4
        write(1, "x", 4) = 4
        sendto(20, "x", 1, 0, NULL, 0) = 1
        mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 8, 0) = 0x7f0000000000
        mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000001000
        io_uring_enter(11, 1, 1, IORING_ENTER_GETEVENTS, NULL, 8) = 1
        read(3<TCP:[10.0.0.1:1->10.0.0.2:80]>, "x", 1) = 1
        read(12<pipe:[77]>, "x", 1) = 1
        read(13</dev/pts/0<char 136:0>>, "x", 1) = 1
        read(14</dev/sda<block 8:0>>, "x", 1) = 1
        read(15</data/gone (deleted)>, "x", 1) = 1
        read(16<UNIX:[5->6]>, "x", 1) = 1
        what is this(it is no call)
        read(17, "x"#,
    );
    assert_eq!(
        short(&imported),
        [
            (CallKind::Receive, "socket 2", 0, 8),
            (CallKind::Receive, "socket 2", 0, 4),
            (CallKind::Send, "socket 3", 0, 1),
            (CallKind::Receive, "TCP:[10.0.0.1:1->10.0.0.2:80]", 0, 1),
            (CallKind::Read, "/dev/sda", 0, 1),
            (CallKind::Read, "/data/gone", 0, 1),
        ]
    );
    for (beginning, wanted) in [
        ("calls on sockets that do not leave", 3),
        ("looks at", 1),
        ("calls on descriptors that are no files", 1),
        ("calls on files that the kernel makes up", 1),
        ("calls on descriptors whose opening", 1),
        ("calls on standard input", 1),
        ("mappings of files", 1),
        ("calls that carry requests", 1),
        ("calls on pipes", 1),
        ("calls on terminals", 1),
        ("lines that are not strace's", 2),
        ("files whose opening", 2),
    ] {
        assert_eq!(count(&imported, beginning), wanted, "{beginning}: {:?}", imported.left_out);
    }
    let told: u64 = imported.left_out.iter().map(|left| left.count).sum();
    assert_eq!(told + 6, 26, "each line is a call or is counted");
}

#[test]
fn names_are_looked_up_from_where_the_process_is() {
    let imported = lines(
        r#"open("x", O_RDONLY) = 3
        read(3, "", 1) = 1
        chdir("/data") = 0
        open("./x", O_RDONLY) = 3
        read(3, "", 1) = 1
        open("/other", O_RDONLY|O_DIRECTORY) = 4
        openat(4, "a\303\244\"\n\x41", O_RDONLY) = 5
        read(5, "", 1) = 1
        fchdir(4) = 0
        openat2(AT_FDCWD, "y", {flags=O_RDONLY, resolve=0}, 24) = 6
        read(6, "", 1) = 1
        openat(AT_FDCWD</seen>, "y", O_RDONLY) = 7</seen/really>
        read(7</seen/renamed>, "", 1) = 1
        read(7</seen/renamed>, "", 1) = 1"#,
    );
    let places: Vec<_> = short(&imported).iter().map(|row| (row.1, row.2)).collect();
    let wanted = [
        ("x", 0),
        ("/data/x", 0),
        ("/other/a\u{e4}\"\nA", 0),
        ("/other/y", 0),
        ("/seen/really", 0),
        ("/seen/really", 1),
    ];
    assert_eq!(places, wanted);
}

#[test]
fn times_of_every_sort_are_read() {
    let at = |texts: [&str; 3]| {
        let text: String = texts.map(|time| format!("{time} read(0</a>, \"\", 1) = 1\n")).concat();
        let trace = Trace::import(&text).unwrap().trace;
        trace.calls.iter().map(|call| call.at).collect::<Vec<_>>()
    };
    assert_eq!(at(["1700000000.5", "1700000000.75", "1700000001.000000001"]), [0.0, 0.25, 0.500000001]);
    assert_eq!(at(["7 23:59:59", "7 00:00:01", "[pid 7] 00:00:02"]), [0.0, 2.0, 3.0]);
    assert_eq!(at(["23:59:59.500000", "00:00:00.500000", "00:00:01.5"]), [0.0, 1.0, 2.0]);
    assert_eq!(at(["     0.000000", "     0.000100", "     0.000200"]), [0.0, 0.0001, 0.0003]);
    assert_eq!(at(["1700000000", "1700000001 (+     1.000000)", "1700000002"]), [0.0, 1.0, 2.0]);
    assert_eq!(Trace::import("read(0</a>, \"\", 1) = 1\n"), Err(Error::NoTimes));
    assert_eq!(Trace::import("7 read(0</a>, \"\", 1) = 1\n"), Err(Error::NoTimes));
    let mixed = "1700000000.5 read(0</a>, \"\", 1) = 1\nread(0</a>, \"\", 1) = 1\n12:00:00 read(0</a>, \"\", 1) = 1\n";
    let imported = Trace::import(mixed).unwrap();
    assert_eq!((imported.trace.calls.len(), count(&imported, "lines without a time")), (1, 2));
}

#[test]
fn lines_are_taken_apart() {
    let line = StraceLine::parse("[pid  4711] 12:34:56.5 read(3<a>, \"b\"...,  <unfinished ...>").unwrap();
    assert_eq!((line.process, line.time), (Some(4711), Some(Time::Day(45_296_500_000_000))));
    assert_eq!(line.body, Body::Unfinished("read(3<a>, \"b\"...,"));
    let line = StraceLine::parse("4711<cat> <... read resumed>) = 1").unwrap();
    assert_eq!((line.process, line.body), (Some(4711), Body::Resumed("read", ") = 1")));
    for remark in
        ["--- SIGCHLD {si_signo=SIGCHLD} ---", "strace: Process 3 detached", "1 --- stopped by SIGSTOP ---"]
    {
        assert_eq!(StraceLine::parse(remark).unwrap().body, Body::Remark, "{remark}");
    }
    for wrong in [
        "",
        "hello world",
        "Read(3) = 1",
        "read 3 = 1",
        "12:34 read() = 1",
        "<... resumed",
        "[pid x] read() = 1",
    ] {
        assert_eq!(StraceLine::parse(wrong), None, "{wrong}");
    }
    let call = Syscall::parse(
        r#"f("a\"),", {x=[1, 2], y=(3)}, 4</d (e>, "1"..., 1<<3, /* 5, ) */ 6) = 7 <0.000008>"#,
    )
    .unwrap();
    assert_eq!(call.arguments.len(), 6);
    assert_eq!((call.argument(0), call.argument(2)), (r#""a\"),""#, "4</d (e>"));
    assert_eq!(call.result, CallResult::Value(7, None));
    assert_eq!(Syscall::parse("f() = 3</a>").unwrap().result, CallResult::Value(3, Some("/a")));
    assert_eq!(Syscall::parse("f() = -1 EAGAIN (again)").unwrap().result, CallResult::Failed);
    assert_eq!(Syscall::parse("f() = ? ERESTARTSYS").unwrap().result, CallResult::None);
    for wrong in ["f(", "f(\"", "f(1<a, 2) = 3", "f() 3", "f() = x", "f(/* ) = 3"] {
        assert_eq!(Syscall::parse(wrong), None, "{wrong}");
    }
    assert_eq!(unquoted("\"a\\tb\"...").unwrap(), "a\tb");
    assert_eq!(annotation("3<TCPv6:[[::1]:80->[::1]:4242]>"), Some("TCPv6:[[::1]:80->[::1]:4242]"));
}
