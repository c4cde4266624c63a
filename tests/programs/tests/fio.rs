//! Tests of fio, which writes patterns with checksums and reads them back.
//!
//! Data that was written on one side is also verified on the other side, by a fio that only reads.

use bywash_programs::{Program, ScenarioRun, on_both_file_systems};

on_both_file_systems!(
    blocking_engines,
    queueing_engines,
    mapped_engine,
    many_jobs_on_one_file,
    small_blocks_over_and_over,
    direct,
    verified_from_the_other_side,
);

/// Block sizes from 512 B to 64 KiB with their shares in percent, small ones more often.
const ALL_SIZES: &str = "--bssplit=512/25:1k/15:2k/10:3584/5:4k/15:8k/10:16k/10:64k/10";
/// Block sizes that are whole pages, with their shares in percent.
const PAGES: &str = "--bssplit=4k/60:16k/20:64k/20";

/// Makes a job that writes blocks of all sizes and then reads and verifies them.
fn job<'a>(stage: &'a ScenarioRun, engine: &str, pattern: &str) -> Program<'a> {
    job_of(stage, engine, pattern, ALL_SIZES)
}

/// Makes a job that writes blocks of `sizes` and then reads and verifies them.
fn job_of<'a>(stage: &'a ScenarioRun, engine: &str, pattern: &str, sizes: &str) -> Program<'a> {
    let seed = stage.seed().below(1 << 30);
    let mut fio =
        stage.program("fio").args(["--output-format=terse", "--terse-version=3", "--verify=crc32c"]);
    fio = fio.args([sizes, "--verify_fatal=1", "--size=2m", "--name=job", "--group_reporting"]);
    fio = fio.args([format!("--ioengine={engine}"), format!("--rw={pattern}"), format!("--randseed={seed}")]);
    fio.arg(format!("--filename={engine}-{pattern}"))
}

/// Runs a job and notes the results that do not depend on time: its error code and the KiB read and written.
fn note(stage: &ScenarioRun, what: &str, job: Program) {
    let text = job.run().ok();
    let fields: Vec<&str> =
        text.lines().find(|line| line.starts_with("3;")).unwrap_or("").split(';').collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or("missing");
    stage.note(format!("{what}: error {} read {} written {}", field(4), field(5), field(46)));
    assert_eq!(field(4), "0", "{what}: fio reports an error:\n{text}");
}

fn blocking_engines(stage: &ScenarioRun) {
    for engine in ["psync", "sync", "pvsync"] {
        for pattern in ["write", "randwrite", "randrw"] {
            note(stage, &format!("{engine} {pattern}"), job(stage, engine, pattern));
            let again = job(stage, engine, pattern).args(["--fsync=9", "--overwrite=1"]);
            note(stage, &format!("{engine} {pattern}, synced"), again);
        }
    }
    stage.expect_served("fio");
}

fn queueing_engines(stage: &ScenarioRun) {
    for engine in ["libaio", "io_uring"] {
        for pattern in ["write", "randwrite", "randrw"] {
            let queued = job(stage, engine, pattern).args(["--iodepth=8", "--fdatasync=16"]);
            note(stage, &format!("{engine} {pattern}"), queued);
        }
    }
    let fixed = job(stage, "io_uring", "randrw").args(["--fixedbufs=1", "--registerfiles=1", "--iodepth=4"]);
    note(stage, "io_uring registered", fixed);
}

/// The mmap engine, with whole pages, as msync(2) requires.
fn mapped_engine(stage: &ScenarioRun) {
    for pattern in ["write", "randwrite", "randrw"] {
        note(stage, pattern, job_of(stage, "mmap", pattern, PAGES).arg("--fsync=20"));
    }
}

/// Four jobs, as threads or as processes, each with its own part of one file.
fn many_jobs_on_one_file(stage: &ScenarioRun) {
    for (engine, how) in [("psync", "--thread=1"), ("pvsync", "--thread=0"), ("sync", "--thread=1")] {
        let several =
            job(stage, engine, "randrw").args(["--numjobs=4", "--size=1m", "--offset_increment=1m"]);
        note(stage, &format!("{engine} {how}"), several.args([how, "--fsync=32"]));
    }
    stage.expect_served("fio");
}

/// The size and pattern that the user level is made for: many small blocks in a file that is mapped and
/// populated.
fn small_blocks_over_and_over(stage: &ScenarioRun) {
    for size in ["--bs=512", "--bs=4k", "--bs=16k"] {
        let warm = job_of(stage, "psync", "randwrite", size).args(["--size=512k", "--loops=3", "--fsync=50"]);
        note(stage, size, warm);
    }
    stage.expect_served("fio");
}

fn direct(stage: &ScenarioRun) {
    for engine in ["psync", "libaio", "io_uring"] {
        let direct = job_of(stage, engine, "randrw", PAGES).args(["--direct=1", "--iodepth=4"]);
        note(stage, engine, direct);
    }
    // The same file with buffered and with direct I/O, one after the other.
    for direct in ["--direct=0", "--direct=1", "--direct=0"] {
        let mixed = job_of(stage, "psync", "randrw", PAGES).args(["--size=1m", direct]);
        note(stage, direct, mixed);
    }
}

/// Written on one side, verified on the other, in both directions.
fn verified_from_the_other_side(stage: &ScenarioRun) {
    for pattern in ["write", "randwrite"] {
        let common = |fio: Program<'_>| fio.args(["--randseed=77", "--fsync=40"]).run().ok();
        common(job(stage, "psync", pattern).arg("--do_verify=0"));
        common(job(stage, "psync", pattern).arg("--verify_only=1").plain());
        common(job(stage, "pvsync", pattern).args(["--do_verify=0", "--filename=other"]).plain());
        common(job(stage, "pvsync", pattern).args(["--verify_only=1", "--filename=other"]));
    }
}
