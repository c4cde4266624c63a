//! fio's psync engine over a file that was fully written before.

use super::micro::size_name;
use super::{Amount, Case, Done, Metric, NOT_SLOWER, Native, Stage, Workload, unreadable};
use crate::error::Error;
use crate::launch::{Run, Side};
use crate::place::Kind;
use crate::{child, programs};
use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;

const FILE_BYTES: u64 = 64 << 20;
const FILE_BYTES_QUICK: u64 = 8 << 20;

struct Fio {
    bytes: u64,
}

fn path(stage: &Stage) -> PathBuf {
    stage.folder.join("data")
}

fn size(stage: &Stage) -> u64 {
    if stage.quick { FILE_BYTES_QUICK } else { FILE_BYTES }
}

impl Workload for Fio {
    fn prepare(&mut self, stage: &Stage) -> Result<(), Error> {
        programs::require("fio", "fio")?;
        let path = path(stage);
        if path.exists() { Ok(()) } else { stage.place.write_file(&path, size(stage), 2) }
    }

    fn reset(&mut self, stage: &Stage) -> Result<(), Error> {
        let path = path(stage);
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.map_err(|error| Error::io("sync", &path, error))
    }

    fn run(&mut self, stage: &Stage, run: &Run, _operations: u64) -> Result<Done, Error> {
        let runtime = if stage.quick { "200ms" } else { "500ms" };
        let mut command = run.command(programs::require("fio", "fio")?);
        let engine = if run.side() == Side::Native { "mmap" } else { "psync" };
        command.arg(format!("--ioengine={engine}"));
        command.args(["--name=bywash", "--time_based", "--norandommap", "--randseed=1"]);
        // A warm cache is what is measured; fio would drop it.
        command.args(["--invalidate=0", "--output-format=json", "--eta=never", "--allow_file_create=0"]);
        command.arg(format!("--filename={}", path(stage).display()));
        command.arg(format!("--size={}", size(stage))).arg(format!("--runtime={runtime}"));
        command.arg("--rw=randread").arg(format!("--bs={}", self.bytes));
        let output = child::run(&mut command)?.stdout;
        parse(&output).ok_or_else(|| unreadable("fio", &output))
    }
}

fn parse(output: &str) -> Option<Done> {
    // fio may say something before the JSON.
    let report: Value = serde_json::from_str(output.get(output.find('{')?..)?).ok()?;
    let job = report.get("jobs")?.get(0)?.get("read")?;
    let rate = job.get("iops")?.as_f64().filter(|rate| *rate > 0.0)?;
    Some(Done { rate, seconds: job.get("runtime")?.as_f64()? / 1000.0, sum: None })
}

/// The `fio` bench.
pub fn cases() -> Vec<Case> {
    [512, 4096, 16_384]
        .map(|bytes| Case {
            bench: "fio",
            name: format!("psync randread {}", size_name(bytes)),
            metrics: vec![Metric::rate("op/s", NOT_SLOWER)],
            places: Kind::ALL,
            amount: Amount::Fixed,
            native: Some(Native::rival("kernel with fio's mmap engine", 1.0)),
            in_quick: bytes == 4096,
            work: Box::new(Fio { bytes }),
        })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_the_reads() {
        let output = r#"note: x
            {"jobs":[{"read":{"iops":12.5,"runtime":500},"write":{"iops":0,"runtime":0}}]}"#;
        assert_eq!(parse(output), Some(Done { rate: 12.5, seconds: 0.5, sum: None }));
        assert_eq!(parse("fio: no such engine"), None);
    }
}
