//! Bars of the paper's figures, by the execution of its servers as programs.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_model::Architecture;
use bywash_sim::paper::executed::{
    ExecutedBar, execute_bar, execute_database, execute_streams, execute_structure,
};
use bywash_support::riscv;

/// Returns the file of a compiled program of the paper; `None` without a compiler.
fn program(test: &str, name: &str) -> Option<Vec<u8>> {
    let Some(compiler) = riscv::compiler() else {
        riscv::skip(test, "gcc-riscv64-linux-gnu");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join(name);
    let (sources, options) = match name {
        "database" => riscv::database(),
        name => (vec![riscv::program(name)], vec!["-w".into()]),
    };
    riscv::build(&compiler, &sources, &options, &target);
    Some(std::fs::read(target).unwrap())
}

/// Executes a bar of a figure.
fn execute(figure: u32, number: usize, program: &[u8], requests: u64) -> Option<ExecutedBar> {
    execute_bar(figure, number, program, requests).map(|bar| bar.unwrap())
}

const MIB: f64 = 1048576.0;

#[test]
fn an_active_video_server_on_a_switch_is_bound_by_its_disks() {
    let test = "an_active_video_server_on_a_switch_is_bound_by_its_disks";
    let Some(program) = program(test, "video") else { return };
    let bar = execute(9, 4, &program, 1000).unwrap();
    assert_eq!(bar.name, "RapidIO, active, 300 MHz");
    // Each of 16 disks reads the 32 KiB of a stream for each positioning of 2 ms, at 40 MB/s.
    let bound = 16.0 * 32768.0 / (0.002 + 32768.0 / 40e6);
    assert!((bar.throughput / bound - 1.0).abs() < 0.02, "{} of {bound} B/s", bar.throughput);
    let working = |name| bar.report.parts.iter().find(|part| part.name == name).unwrap().working;
    assert!(working("disks") > 0.98 && working("link out of memory") < 0.2);
    // Nothing is copied, and all the work of TCP and of the file system is done in the devices.
    assert_eq!(bar.report.sum(|one| one.copied), 0);
    let tcp = bar.throughput * 3.8 / (16.0 * 300e6);
    assert!((working("interface processors") / tcp - 1.0).abs() < 0.03);
    assert!(bar.report.shares.idle > 0.99);
}

#[test]
fn a_direct_video_server_leaves_the_memory_out() {
    let test = "a_direct_video_server_leaves_the_memory_out";
    let Some(program) = program(test, "video") else { return };
    let run = |architecture| execute_structure(9, architecture, &program, 200).unwrap().unwrap();
    let [active, direct] = [Architecture::Active, Architecture::Direct].map(run);
    let served = |bar: &ExecutedBar, name| {
        bar.report.parts.iter().find(|part| part.name == name).map_or(0.0, |part| part.working)
    };
    // A byte of the active server crosses the memory bus twice, and one of the direct server does not cross it.
    let bus = |bar: &ExecutedBar| served(bar, "memory bus") / bar.throughput;
    assert!(bus(&direct) < bus(&active) / 20.0, "{:?} {:?}", active.report.parts, direct.report.parts);
    assert!(direct.throughput > 0.9 * active.throughput && direct.report.sum(|one| one.copied) == 0);
    // One call takes the place of a read and a send.
    assert!(direct.calls() < 0.7 * active.calls(), "{} {}", direct.calls(), active.calls());
    assert!(execute_structure(8, Architecture::Direct, &program, 1).is_none());
}

/// The programs in each structure, which take a minute: printed as docs/internals/planner.md has them.
#[test]
fn requests_are_counted_by_path() {
    let test = "requests_are_counted_by_path";
    if std::env::var_os("BYWASH_ALL_BARS").is_none() {
        return eprintln!("skipped: {test}: takes a minute; set BYWASH_ALL_BARS=1");
    }
    use Architecture::{Active, Conventional, Direct, UserLevel};
    let structures = [Conventional, UserLevel, Active, Direct];
    let [web, video, streams, database] = ["web", "video", "streams", "database"].map(|it| program(test, it));
    let (Some(web), Some(video), Some(streams), Some(database)) = (web, video, streams, database) else {
        return;
    };
    let mut rows = Vec::new();
    for (figure, name, program, requests) in [(8, "Web", &web, 4000), (9, "video", &video, 8000)] {
        let bars = structures.iter().filter_map(|one| execute_structure(figure, *one, program, requests));
        rows.extend(bars.map(|bar| (name, "MiB/s", MIB, bar.unwrap())));
    }
    for structure in &structures[..2] {
        let bar = execute_streams(*structure, &streams, 8 << 20).unwrap();
        rows.push(("23 streams", "MiB/s", MIB, bar));
    }
    // The first is nearest to a server's database: a log that is written at each commit, and a pool that holds all pages.
    let pool = ["--cache-pages", "10000"];
    let options: [Vec<&str>; 5] = [
        [&["--log", "--rows-per-commit", "1"], &pool[..]].concat(),
        vec!["--log", "--rows-per-commit", "1"],
        [&["--rows-per-commit", "1"], &pool[..]].concat(),
        [&["--log"], &pool[..]].concat(),
        pool.to_vec(),
    ];
    for options in options {
        for structure in &structures[..2] {
            let bar = execute_database(*structure, &database, 1000, &options).unwrap();
            rows.push((
                "SQLite",
                "rows/s",
                1.0,
                ExecutedBar { name: format!("{} {options:?}", bar.name), ..bar },
            ));
        }
    }
    for (name, unit, of, bar) in &rows {
        let busiest = bar.report.parts.iter().max_by(|a, b| a.working.total_cmp(&b.working)).unwrap();
        println!(
            "| {name} | {} | {:.0} {unit} | {:.0} | {:.0} | {:.0} | {:.2} | {} {:.0} %, processors {:.0} % |",
            bar.name,
            bar.throughput / of,
            bar.instructions(),
            bar.system_cycles(),
            bar.stalled_cycles(),
            bar.calls(),
            busiest.name,
            busiest.working * 100.0,
            (1.0 - bar.report.shares.idle) * 100.0,
        );
        assert!(bar.throughput > 0.0 && bar.requests > 0.0);
    }
}

/// All bars, which take minutes: they are printed as docs/internals/planner.md has them.
#[test]
fn all_bars_are_executed() {
    if std::env::var_os("BYWASH_ALL_BARS").is_none() {
        return eprintln!("skipped: all_bars_are_executed: takes minutes; set BYWASH_ALL_BARS=1");
    }
    for (figure, name, requests) in [(8, "web", 4000), (9, "video", 16_000)] {
        let Some(program) = program("all_bars_are_executed", name) else { return };
        let bars: Vec<ExecutedBar> =
            (0..).map_while(|number| execute(figure, number, &program, requests)).collect();
        let simulated = bywash_sim::paper::servers::figure(figure).unwrap();
        assert_eq!((bars.len(), simulated.len()), (9, 9));
        for (bar, one) in bars.iter().zip(&simulated) {
            let shares = bar.report.shares;
            let busiest = bar.report.parts.iter().max_by(|a, b| a.working.total_cmp(&b.working)).unwrap();
            println!(
                "| {figure} | {} | {:.0} | {:.0} | {:.2} | {:.2} | {} {:.0} % | {:.1} / {:.1} | {:.1} / {:.1} | {:.1} |",
                bar.name,
                one.throughput.mean / MIB,
                bar.throughput / MIB,
                one.throughput.mean / simulated[0].throughput.mean,
                bar.throughput / bars[0].throughput,
                busiest.name,
                busiest.working * 100.0,
                shares.program * 100.0,
                shares.program_stalled * 100.0,
                shares.system * 100.0,
                shares.system_stalled * 100.0,
                shares.idle * 100.0
            );
            assert!(bar.throughput > 0.0);
        }
    }
}
