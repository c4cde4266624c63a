//! The cases of all benches but `servers`, in the order in which they run.

use super::{Case, NOT_SLOWER, Reading, case};
use crate::number;
use crate::place::{Kind, xorshift};
use crate::programs::line::{Mode, Run, Told, Turn};
use crate::programs::output::{self, Done, unreadable};
use crate::programs::stage::{Amount, Data, Stage};

/// Ratio of device bytes: the device may read at most 1.1 times as much.
const NOT_MORE_BYTES: f64 = 1.0 / 1.1;

const MIB: u64 = 1 << 20;
/// Sizes of the usual file, of a full and of a quick run: beyond the processor's private caches, so that a warm access is
/// one to memory.
const FILE_BYTES: [u64; 2] = [64 * MIB, 8 * MIB];
/// Bound of the tight loop: copies from a mapping of the same file, which no data path at user level can beat.
const COPY_BOUND: (&str, Option<f64>) = ("copies from a mapping", Some(0.9));
const RECORDS: &str = "{100000|10000}";
/// Rival of SQLite's cases, which may map more bytes than the database has.
const MMAP_SIZE: &str = "kernel with PRAGMA mmap_size";
const KEYS: &str = "{300000|20000}";
const DB_BENCH: &str = "db_bench --compression_type=none --value_size=100 --cache_size=1048576 --seed=1 \
                        --write_buffer_size=4194304 --threads=1 --db={work}";
/// Sizes of the file that cat, grep and tar read.
const LARGE_BYTES: [u64; 2] = [96 * MIB, 4 * MIB];
/// Sizes of the file that gzip and sort read, which compute more.
const MEDIUM_BYTES: [u64; 2] = [12 * MIB, MIB];
/// Most that a process may cost more with the library than without it, in nanoseconds.
const LIBRARY_NS_MAX: u32 = 50_000;
/// Most that a program may cost more under `bywash run`, in nanoseconds.
const RUN_NS_MAX: u32 = 400_000;
/// A script as autoconf writes them, which tests by small programs over small files, and by the compiler `$CC` if there is
/// one; `$1` is the number of rounds.
const CONFIGURE: &str = include_str!("../../programs/configure.sh");

pub fn all() -> Vec<Case> {
    let parts = [micro(), lengths(), fio(), direct(), berkeley(), sqlite(), rocksdb(), tools(), start()];
    parts.into_iter().flatten().collect()
}

/// A case whose run is the program of `line`, from whose output `read` takes the figures.
fn program(
    bench: &'static str,
    name: impl Into<String>,
    figure: (&'static str, f64),
    amount: Amount,
    data: Data,
    line: String,
    read: fn(&Told) -> Option<Done>,
) -> Case {
    case(bench, name, figure, amount, data, move |stage, run, operations| {
        let told = Turn { stage, run, operations, work: &stage.work() }.told(&line)?;
        read(&told).ok_or_else(|| unreadable(bench, &told.output))
    })
}

/// Calls of one size on one file, as `words` tell a loop of our own, which warms the file with the same kind of call unless
/// it is `cold`. What a write stores follows from its offset, so every run leaves the same content.
fn calls(bench: &'static str, name: String, amount: Amount, data: Data, words: &str) -> Case {
    let line = format!("micro {{folder}}/{} {words} {{~mapped}}", data.name);
    program(bench, name, ("op/s", NOT_SLOWER), amount, data, line, output::driver)
}

/// `512 B`, `4 KiB`, ...
fn size_name(bytes: u64) -> String {
    number::bytes(bytes as f64).replace(".0", "")
}

/// The sizes for a command line.
fn either([full, quick]: [u64; 2]) -> String {
    format!("{{{full}|{quick}}}")
}

fn micro() -> Vec<Case> {
    let case = |name, seconds, words: String| {
        calls("micro", name, Amount::For(2000, seconds), Data::noise(FILE_BYTES), &words)
    };
    let (mut cases, whole) = (Vec::new(), either(FILE_BYTES));
    // A part of the file that stays in the processor's private caches.
    for bytes in [512, 4096] {
        let name = format!("pread {} in a tight loop (1 MiB)", size_name(bytes));
        let case = case(name, 0.3, format!("read {bytes} random 1 {{ops}} {MIB} 1"));
        cases.push(Case { rival: Some(COPY_BOUND), ..case });
    }
    for (pattern, threads) in [("random", "1 thread"), ("random", "2 threads"), ("sequential", "1 thread")] {
        for bytes in [512, 4096, 16_384, 65_536] {
            let in_quick = bytes == 4096 && (pattern == "random") == (threads == "1 thread");
            let name = format!("pread {} {pattern}, {threads}", size_name(bytes));
            let words = format!("read {bytes} {pattern} {} {{ops}} {whole} 1", &threads[..1]);
            cases.push(Case { in_quick, ..case(name, 0.15, words) });
        }
    }
    // The price that a write pays for being left to the kernel.
    for bytes in [512, 4096] {
        let name = format!("pwrite {} random, 1 thread", size_name(bytes));
        let case = case(name, 0.15, format!("write {bytes} random 1 {{ops}} {whole} 1"));
        cases.push(Case { in_quick: bytes == 4096, ..case });
    }
    cases
}

/// Programs that open a cached file, read it for a while and end. Whatever the library does before it gains is in the time.
/// Look-ups are spread over so large a file that short runs read few of its pages twice.
fn lengths() -> Vec<Case> {
    let look_ups = |count| format!("{} look-ups of 4 KiB in 200 MiB", number::grouped(count));
    let cases = [
        (look_ups(8000), "random", 200 * MIB, 8000),
        (look_ups(60_000), "random", 200 * MIB, 60_000),
        (look_ups(200_000), "random", 200 * MIB, 200_000),
        ("32 MiB read 10 times in 4 KiB".into(), "sequential", 32 * MIB, 10 * 32 * MIB / 4096),
    ]
    .map(|(name, pattern, bytes, operations)| {
        let sizes = [bytes, bytes / 8];
        let words = format!("read 4096 {pattern} 1 {{ops}} {} 1 cold", either(sizes));
        let case = calls("lengths", name, Amount::Of([operations; 2]), Data::noise(sizes), &words);
        Case { in_quick: operations < 100_000, ..case }
    });
    cases.into()
}

/// fio's psync engine over a file that was fully written before. A warm cache is to be measured; fio would drop it.
fn fio() -> Vec<Case> {
    let case = |bytes| {
        let (data, size) = (Data::noise(FILE_BYTES), either(FILE_BYTES));
        let line = format!(
            "fio --ioengine={{psync~mmap}} --name=bywash --time_based --norandommap --randseed=1 --invalidate=0 \
             --output-format=json --eta=never --allow_file_create=0 --filename={{folder}}/{} --size={size} \
             --runtime={{500ms|200ms}} --rw=randread --bs={bytes}",
            data.name
        );
        let name = format!("psync randread {}", size_name(bytes));
        let case = program("fio", name, ("op/s", NOT_SLOWER), Amount::FREE, data, line, output::fio);
        Case { rival: Some(("kernel with fio's mmap engine", Some(1.0))), in_quick: bytes == 4096, ..case }
    };
    [512, 4096, 16_384].map(case).into()
}

fn direct() -> Vec<Case> {
    let mut cases = Vec::new();
    for operation in ["read", "write"] {
        let name = format!("p{operation} 4 KiB random, O_DIRECT");
        let words = format!("{operation} 4096 random 1 {{ops}} {} 1 direct cold", either(FILE_BYTES));
        let case = calls("direct", name, Amount::For(500, 0.4), Data::noise(FILE_BYTES), &words);
        cases.push(Case { places: Kind::DEVICES, in_quick: operation == "read", ..case });
    }
    let sizes = [512 * MIB, 64 * MIB];
    let (data, amount) = (Data { drop_cache: true, ..Data::noise(sizes) }, Amount::Of([3000; 2]));
    let words = format!("read 4096 random 1 {{ops}} {} 1 cold", either(sizes));
    cases.push(Case {
        readings: vec![(Reading::DeviceRead, Some(NOT_MORE_BYTES)), (Reading::Rate, Some(NOT_SLOWER))],
        // The chunks that a file was written in no longer matter once its pages have been dropped.
        places: &[Kind::DiskLarge, Kind::Xfs],
        ..calls("device", "cold pread 4 KiB random".into(), amount, data, &words)
    });
    cases
}

/// Berkeley DB with a cache of a sixteenth of its data.
fn berkeley() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in ["btree", "hash"] {
        for (transactions, name, goal, first) in [
            ("none", "no transactions", 1.3, 4000),
            ("nosync", "transactions NOSYNC", NOT_SLOWER, 4000),
            ("sync", "transactions SYNC", NOT_SLOWER, 400),
        ] {
            let load = format!("berkeley load {{work}} {kind} none {RECORDS}");
            let data = Data::loaded(&format!("master-{kind}"), load);
            let line =
                format!("berkeley run {{work}} {kind} {transactions} {RECORDS} {{ops}} {{1048576|65536}} 1");
            let (name, amount) = (format!("{kind}, {name}"), Amount::For(first, 0.8));
            let in_quick = kind == "btree" || transactions == "none";
            let case = program("berkeley", name, ("op/s", goal), amount, data, line, output::driver);
            cases.push(Case { in_quick, ..case });
        }
    }
    cases
}

/// SQLite with a cache of 100 pages.
fn sqlite() -> Vec<Case> {
    let case = |name: String, figure, amount, [kind, journal, synchronous]: [&str; 3]| {
        let data = Data::loaded("master", format!("sqlite load {{work}}/db {RECORDS}"));
        let line = format!(
            "sqlite run {{work}}/db {RECORDS} {kind} {{ops}} 1 {journal} {synchronous} {{0~1073741824}}"
        );
        program("sqlite", name, figure, amount, data, line, output::driver)
    };
    let mut cases = Vec::new();
    for (name, kind, goal, rival_goal) in [
        ("select inside a transaction", "select-transaction", 1.5, Some(1.0)),
        ("select, autocommit", "select-autocommit", NOT_SLOWER, None),
    ] {
        let case = case(name.into(), ("op/s", goal), Amount::For(2000, 0.3), [kind, "DELETE", "OFF"]);
        cases.push(Case { rival: Some((MMAP_SIZE, rival_goal)), ..case });
    }
    for journal in ["WAL", "DELETE"] {
        for synchronous in ["OFF", "NORMAL", "FULL"] {
            let name = format!("4 updates, {journal}, synchronous {synchronous}");
            // Long enough for the device's moods to even out.
            let (figure, amount) = (("transactions/s", NOT_SLOWER), Amount::For(200, 1.0));
            let rival = (synchronous == "OFF").then_some((MMAP_SIZE, None));
            let case = case(name, figure, amount, ["update", journal, synchronous]);
            cases.push(Case { rival, in_quick: synchronous != "NORMAL", ..case });
        }
    }
    cases
}

/// RocksDB's own db_bench, with uncompressed data that fits memory and a block cache much smaller than the data.
fn rocksdb() -> Vec<Case> {
    let lasting = |first| Amount::For(first, 0.5);
    let cases = [
        ("readrandom", 1.3, lasting(5000), "readrandom --reads={ops}"),
        // Four passes over the data make a run long enough to be timed.
        ("readseq", NOT_SLOWER, Amount::FREE, "readseq,readseq,readseq,readseq"),
        ("fillrandom", NOT_SLOWER, lasting(20_000), "fillrandom --num={ops} --sync=0"),
        ("fillrandom --sync", NOT_SLOWER, lasting(200), "fillrandom --num={ops} --sync=1"),
    ]
    .map(|(name, goal, amount, words)| {
        let mut line = format!("{DB_BENCH} --benchmarks={words}");
        let (mut data, mut rival) = (Data::nothing(), None);
        if name.starts_with("read") {
            line += &format!(" --use_existing_db=1 --num={KEYS} --mmap_read={{0~1}}");
            data = Data::loaded("master", format!("{DB_BENCH} --benchmarks=fillrandom,compact --num={KEYS}"));
            rival = Some(("kernel with --mmap_read", None));
        }
        Case { rival, ..program("rocksdb", name, ("op/s", goal), amount, data, line, output::db_bench) }
    });
    cases.into()
}

/// Tools that read a large file from end to end, which is named several times where a run would else be too short to be
/// timed.
fn tools() -> Vec<Case> {
    let cases = [
        // Nobody looks at cat's output; a file of that size would measure the writes.
        ("cat", "cat * > /dev/null", 8),
        // Counting, as grep stops at the first match when its output is thrown away.
        ("grep", "grep -c -h ffff.*dam * > {output}", 2),
        ("gzip", "gzip -1 -c -n * > {output}", 1),
        // To a pipe or file, as tar reads nothing when its archive is /dev/null.
        ("tar", "tar --hard-dereference -cf - * > {output}", 4),
        ("sort", "sort * > {output}", 1),
    ]
    .map(|(name, line, times)| {
        let (file, sizes) = if times == 1 { ("medium", MEDIUM_BYTES) } else { ("large", LARGE_BYTES) };
        let text = move |stage: &Stage| lines(stage.pick(sizes[0], sizes[1]) as usize);
        let files = vec![format!("{{folder}}/{file}"); times].join(" ");
        let line = line.replacen(" *", &format!(" {files}"), 1);
        let amount = Amount::Of(sizes.map(|bytes| bytes * times as u64));
        program("tools", name, ("B/s", NOT_SLOWER), amount, Data::text(file, text), line, output::timed)
    });
    cases.into()
}

fn lines(bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = ["water", "around", "a", "dam", "carries", "channel", "mapping", "page"];
    let mut text = Vec::with_capacity(bytes + 64);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    while text.len() < bytes {
        state = xorshift(state);
        let words = [0, 3, 6, 9, 12, 15].map(|shift| WORDS[(state >> shift) as usize % WORDS.len()]);
        text.extend_from_slice(format!("{:08x} {}\n", state >> 32, words.join(" ")).as_bytes());
    }
    text.truncate(bytes);
    text
}

/// Processes that do next to nothing, whose price is that of starting one by the library and by `bywash run`. Builds and
/// scripts consist of them.
fn start() -> Vec<Case> {
    let line = "CC={?cc} sh {folder}/configure {ops}".into();
    let (figure, data) = (("rounds/s", NOT_SLOWER), Data::text("configure", |_| CONFIGURE.into()));
    let configure =
        program("start", "configure script", figure, Amount::Of([25, 2]), data, line, output::timed);
    let rival = Some(("kernel with an empty library preloaded", Some(NOT_SLOWER)));
    vec![
        Case { rival, ..shell("shell that starts true", LIBRARY_NS_MAX, false) },
        shell("bywash run true", RUN_NS_MAX, true),
        Case { places: &[Kind::Tmpfs, Kind::DiskSmall], ..configure },
    ]
}

/// A shell that starts /bin/true again and again: with the library in it, or each of them by `bywash run`.
fn shell(name: &'static str, limit_ns: u32, by_run: bool) -> Case {
    let (figure, amount) = (("processes/s", NOT_SLOWER), Amount::For(200, 1.5));
    let case = case("start", name, figure, amount, Data::nothing(), move |stage, run, operations| {
        let kernel = Run::of_kernel();
        // Under `bywash run` the shell itself is the kernel's. The run that counts has the library in the shell.
        let (run, line) = match run.mode {
            Mode::Bywash if by_run => (&kernel, "sh -c {loop} sh {ops} {bywash} run -- /bin/true"),
            Mode::Rival => (run, "LD_PRELOAD={empty} sh -c {loop} sh {ops} /bin/true"),
            _ => (run, "sh -c {loop} sh {ops} /bin/true"),
        };
        let told = Turn { stage, run, operations, work: &stage.work() }.told(line)?;
        output::timed(&told).ok_or_else(|| unreadable(name, &told.output))
    });
    Case {
        // The rate comes first, for the control of a row that misses its goal is read like it. It has no goal of its own:
        // the time that is added has one.
        readings: vec![(Reading::Rate, None), (Reading::Added(limit_ns), Some(1.0))],
        places: &[Kind::Tmpfs],
        ..case
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::find;
    use crate::programs::stage::on_stage;

    #[test]
    fn the_script_finds_what_is_there_and_text_is_the_same_every_time() {
        let configure = start().pop().unwrap();
        let [found, again] = on_stage(true, |stage| {
            configure.data.prepare(stage).unwrap();
            // A second run starts from the same state and finds the same.
            [(); 2].map(|()| {
                configure.data.reset(stage).unwrap();
                (configure.run)(stage, &Run::of_kernel(), 2).unwrap().sum.unwrap()
            })
        });
        for line in ["copy_0=yes 35", "copy_1=yes 35", "sed_works_1=yes", "system_1=known"] {
            assert!(found.lines().any(|found| found == line), "{line} is not in\n{found}");
        }
        assert_eq!(found.contains("compiler_0=yes"), find("cc").is_some(), "{found}");
        assert!(!found.contains("=no") && found == again, "{found}");
        let text = lines(10_000);
        assert!(text.len() == 10_000 && text == lines(10_000));
    }
}
