//! Reads and writes of one file: a loop of our own (`micro`, `lengths`, `direct`, `device`) and fio.
//!
//! The file is written beforehand; the driver warms it with the same kind of call. Only its small-folio or
//! large-folio shape and its size persist from run to run: what a write stores follows from its offset, so
//! every run leaves the same content.

use super::launch::Mode;
use super::{Amount, Case, Data, Done, NOT_MORE_BYTES, NOT_SLOWER, Reading, case, parse_done, unreadable};
use crate::place::Kind;
use crate::{child, number, programs};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Sizes of the usual file, of a full and of a quick run: beyond the processor's private caches, so that a warm access is
/// one to memory.
const FILE_BYTES: [u64; 2] = [64 * MIB, 8 * MIB];
/// Part of a file that stays in the processor's private caches, in bytes.
const TIGHT_BYTES: u64 = MIB;
/// Size of the file that look-ups are spread over: short runs read few of its pages twice.
const LARGE_BYTES: u64 = 200 * MIB;
/// Size of the file that is read from its start to its end some times.
const STREAMED_BYTES: u64 = 32 * MIB;
/// Bound of the tight loop: copies from a mapping of the same file, which no data path at user level can beat.
const COPY_BOUND: (&str, Option<f64>) = ("copies from a mapping", Some(0.9));

/// Calls of one size on one file.
struct Micro {
    /// `read` or `write`.
    operation: &'static str,
    /// Bytes a call.
    bytes: u64,
    /// `random` or `sequential`.
    pattern: &'static str,
    threads: u64,
    /// Part of the file that is used, from its start; at most the whole file.
    span: u64,
    /// Sizes of the file, of a full and of a quick run.
    file_bytes: [u64; 2],
    /// Further words for the driver: `direct`, `cold` (no warm-up).
    flags: &'static [&'static str],
    /// If true, the file is dropped from the page cache before each run.
    drop_cache: bool,
}

const MICRO: Micro = Micro {
    operation: "read",
    bytes: 4096,
    pattern: "random",
    threads: 1,
    span: u64::MAX,
    file_bytes: FILE_BYTES,
    flags: &[],
    drop_cache: false,
};

impl Micro {
    fn case(self, bench: &'static str, name: String, amount: Amount) -> Case {
        let data = Data::Noise { bytes: self.file_bytes, drop_cache: self.drop_cache };
        case(bench, name, ("op/s", NOT_SLOWER), amount, data, move |stage, run, operations| {
            let mut command = run.command(stage.programs.executable(&programs::MICRO)?);
            command.arg(Data::noise_file(stage, self.file_bytes)).arg(self.operation);
            command.arg(self.bytes.to_string()).arg(self.pattern);
            let span = self.span.min(stage.pick(self.file_bytes[0], self.file_bytes[1]));
            command
                .args([self.threads, operations, span, 1].map(|number| number.to_string()))
                .args(self.flags);
            command.args((run.mode() == Mode::Rival).then_some("mapped"));
            parse_done("micro", &child::run(&mut command)?.stdout)
        })
    }
}

/// `512 B`, `4 KiB`, ...
fn size_name(bytes: u64) -> String {
    if bytes < 1024 { format!("{bytes} B") } else { format!("{} KiB", bytes / 1024) }
}

/// The cases of `micro`, `lengths`, `fio`, `direct` and `device`.
pub fn cases() -> Vec<Case> {
    let lasting = |seconds| Amount::For { first: 2000, seconds };
    let mut cases: Vec<Case> = [512, 4096]
        .map(|bytes| {
            let name = format!("pread {} in a tight loop (1 MiB)", size_name(bytes));
            let micro = Micro { bytes, span: TIGHT_BYTES, ..MICRO };
            Case { rival: Some(COPY_BOUND), ..micro.case("micro", name, lasting(0.3)) }
        })
        .into();
    for (pattern, threads) in [("random", 1), ("random", 2), ("sequential", 1)] {
        for bytes in [512, 4096, 16_384, 65_536] {
            let in_quick = bytes == 4096 && (pattern == "random") == (threads == 1);
            let plural = if threads == 1 { "thread" } else { "threads" };
            let name = format!("pread {} {pattern}, {threads} {plural}", size_name(bytes));
            let micro = Micro { bytes, pattern, threads, ..MICRO };
            cases.push(Case { in_quick, ..micro.case("micro", name, lasting(0.15)) });
        }
    }
    // The price that a write pays for being left to the kernel.
    for bytes in [512, 4096] {
        let name = format!("pwrite {} random, 1 thread", size_name(bytes));
        let micro = Micro { operation: "write", bytes, ..MICRO };
        cases.push(Case { in_quick: bytes == 4096, ..micro.case("micro", name, lasting(0.15)) });
    }
    cases.extend(lengths());
    cases.extend([512, 4096, 16_384].map(fio));
    cases.extend(["read", "write"].map(|operation| {
        let micro = Micro { operation, flags: &["direct", "cold"], ..MICRO };
        let name = format!("p{operation} 4 KiB random, O_DIRECT");
        let case = micro.case("direct", name, Amount::For { first: 500, seconds: 0.4 });
        Case { places: Kind::DEVICES, in_quick: operation == "read", ..case }
    }));
    let cold = Micro { file_bytes: [512 * MIB, 64 * MIB], flags: &["cold"], drop_cache: true, ..MICRO };
    cases.push(Case {
        readings: vec![(Reading::DeviceRead, Some(NOT_MORE_BYTES)), (Reading::Rate, Some(NOT_SLOWER))],
        // The chunks that a file was written in no longer matter once its pages have been dropped.
        places: &[Kind::DiskLarge, Kind::Xfs],
        ..cold.case("device", "cold pread 4 KiB random".into(), Amount::Operations(3000))
    });
    cases
}

/// Programs that open a cached file, read it for a while and end. Whatever the library does before it gains is in the time.
fn lengths() -> impl Iterator<Item = Case> {
    let random = [8000, 60_000, 200_000].map(|operations| {
        let name = format!("{} look-ups of 4 KiB in 200 MiB", number::grouped(operations));
        (name, "random", LARGE_BYTES, operations)
    });
    let passes = 10;
    let name = format!("32 MiB read {passes} times in 4 KiB");
    let streamed = (name, "sequential", STREAMED_BYTES, passes * STREAMED_BYTES / 4096);
    random.into_iter().chain([streamed]).map(|(name, pattern, bytes, operations)| {
        let micro = Micro { pattern, file_bytes: [bytes, bytes / 8], flags: &["cold"], ..MICRO };
        let case = micro.case("lengths", name, Amount::Operations(operations));
        Case { in_quick: operations < 100_000, ..case }
    })
}

/// fio's psync engine over a file that was fully written before.
fn fio(bytes: u64) -> Case {
    let data = Data::Noise { bytes: FILE_BYTES, drop_cache: false };
    let name = format!("psync randread {}", size_name(bytes));
    let case = case("fio", name, ("op/s", NOT_SLOWER), Amount::Fixed, data, move |stage, run, _| {
        let mut command = run.command(programs::require("fio", "fio")?);
        let engine = if run.mode() == Mode::Rival { "mmap" } else { "psync" };
        command.arg(format!("--ioengine={engine}"));
        command.args(["--name=bywash", "--time_based", "--norandommap", "--randseed=1"]);
        // A warm cache is to be measured; fio would drop it.
        command.args(["--invalidate=0", "--output-format=json", "--eta=never", "--allow_file_create=0"]);
        command.arg(format!("--filename={}", Data::noise_file(stage, FILE_BYTES).display()));
        command.arg(format!("--size={}", stage.pick(FILE_BYTES[0], FILE_BYTES[1])));
        command.arg(format!("--runtime={}", stage.pick("500ms", "200ms")));
        command.arg("--rw=randread").arg(format!("--bs={bytes}"));
        let output = child::run(&mut command)?.stdout;
        parse_fio(&output).ok_or_else(|| unreadable("fio", &output))
    });
    Case { rival: Some(("kernel with fio's mmap engine", Some(1.0))), in_quick: bytes == 4096, ..case }
}

fn parse_fio(output: &str) -> Option<Done> {
    // fio may say something before the JSON.
    let report: Value = serde_json::from_str(output.get(output.find('{')?..)?).ok()?;
    let job = report.get("jobs")?.get(0)?.get("read")?;
    let rate = job.get("iops")?.as_f64().filter(|rate| *rate > 0.0)?;
    Some(Done { rate, seconds: job.get("runtime")?.as_f64()? / 1000.0, sum: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_the_reads() {
        let output = r#"note: x
            {"jobs":[{"read":{"iops":12.5,"runtime":500},"write":{"iops":0,"runtime":0}}]}"#;
        assert_eq!(parse_fio(output), Some(Done { rate: 12.5, seconds: 0.5, sum: None }));
        assert_eq!(parse_fio("fio: no such engine"), None);
    }
}
