//! Reads and writes of one file: a loop of our own (`micro`, `lengths`, `direct`, `device`) and fio.
//!
//! The file is written beforehand; the driver warms it with the same kind of call. Only its small-folio or
//! large-folio shape and its size persist from run to run: what a write stores follows from its offset, so
//! every run leaves the same content.

use super::line::program;
use super::{Amount, Case, Data, Done, NOT_MORE_BYTES, NOT_SLOWER, Reading, parse_done};
use crate::number;
use crate::place::Kind;
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Sizes of the usual file, of a full and of a quick run: beyond the processor's private caches, so that a warm access is
/// one to memory.
const FILE_BYTES: [u64; 2] = [64 * MIB, 8 * MIB];
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
    /// Part of the file that is used, from its start, if not the whole file: it stays in the processor's private caches.
    span: Option<u64>,
    /// Sizes of the file, of a full and of a quick run.
    file_bytes: [u64; 2],
    /// Further words for the driver: `direct`, `cold` (no warm-up).
    flags: &'static str,
    /// If true, the file is dropped from the page cache before each run.
    drop_cache: bool,
}

const MICRO: Micro = Micro {
    operation: "read",
    bytes: 4096,
    pattern: "random",
    threads: 1,
    span: None,
    file_bytes: FILE_BYTES,
    flags: "",
    drop_cache: false,
};

impl Micro {
    fn case(self, bench: &'static str, name: String, amount: Amount) -> Case {
        let Micro { operation, bytes, pattern, threads, span, file_bytes, flags, drop_cache } = self;
        let (data, [full, quick]) = (Data::Noise { bytes: file_bytes, drop_cache }, file_bytes);
        let span = span.map_or_else(|| format!("{{{full}|{quick}}}"), |span| span.to_string());
        let line = format!(
            "micro {} {operation} {bytes} {pattern} {threads} {{ops}} {span} 1 {flags} {{~mapped}}",
            data.path()
        );
        program(bench, name, ("op/s", NOT_SLOWER), amount, data, line, parse_done)
    }
}

/// `512 B`, `4 KiB`, ...
fn size_name(bytes: u64) -> String {
    number::bytes(bytes as f64).replace(".0", "")
}

/// The cases of `micro`, `lengths`, `fio`, `direct` and `device`.
pub fn cases() -> Vec<Case> {
    let lasting = |seconds| Amount::For(2000, seconds);
    let mut cases = Vec::new();
    for bytes in [512, 4096] {
        let name = format!("pread {} in a tight loop (1 MiB)", size_name(bytes));
        let micro = Micro { bytes, span: Some(MIB), ..MICRO };
        cases.push(Case { rival: Some(COPY_BOUND), ..micro.case("micro", name, lasting(0.3)) });
    }
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
    // Programs that open a cached file, read it for a while and end. Whatever the library does before it gains is in the
    // time.
    let look_ups = |count| format!("{} look-ups of 4 KiB in 200 MiB", number::grouped(count));
    for (name, pattern, bytes, operations) in [
        (look_ups(8000), "random", LARGE_BYTES, 8000),
        (look_ups(60_000), "random", LARGE_BYTES, 60_000),
        (look_ups(200_000), "random", LARGE_BYTES, 200_000),
        ("32 MiB read 10 times in 4 KiB".into(), "sequential", STREAMED_BYTES, 10 * STREAMED_BYTES / 4096),
    ] {
        let micro = Micro { pattern, file_bytes: [bytes, bytes / 8], flags: "cold", ..MICRO };
        let case = micro.case("lengths", name, Amount::Operations(operations));
        cases.push(Case { in_quick: operations < 100_000, ..case });
    }
    cases.extend([512, 4096, 16_384].map(fio));
    for operation in ["read", "write"] {
        let micro = Micro { operation, flags: "direct cold", ..MICRO };
        let name = format!("p{operation} 4 KiB random, O_DIRECT");
        let case = micro.case("direct", name, Amount::For(500, 0.4));
        cases.push(Case { places: Kind::DEVICES, in_quick: operation == "read", ..case });
    }
    let cold = Micro { file_bytes: [512 * MIB, 64 * MIB], flags: "cold", drop_cache: true, ..MICRO };
    cases.push(Case {
        readings: vec![(Reading::DeviceRead, Some(NOT_MORE_BYTES)), (Reading::Rate, Some(NOT_SLOWER))],
        // The chunks that a file was written in no longer matter once its pages have been dropped.
        places: &[Kind::DiskLarge, Kind::Xfs],
        ..cold.case("device", "cold pread 4 KiB random".into(), Amount::Operations(3000))
    });
    cases
}

/// fio's psync engine over a file that was fully written before. A warm cache is to be measured; fio would drop it.
fn fio(bytes: u64) -> Case {
    let data = Data::Noise { bytes: FILE_BYTES, drop_cache: false };
    let (name, [full, quick]) = (format!("psync randread {}", size_name(bytes)), FILE_BYTES);
    let line = format!(
        "fio --ioengine={{psync~mmap}} --name=bywash --time_based --norandommap --randseed=1 --invalidate=0 \
         --output-format=json --eta=never --allow_file_create=0 --filename={} --size={{{full}|{quick}}} \
         --runtime={{500ms|200ms}} --rw=randread --bs={bytes}",
        data.path()
    );
    let case = program("fio", name, ("op/s", NOT_SLOWER), Amount::Fixed, data, line, parse_fio);
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
