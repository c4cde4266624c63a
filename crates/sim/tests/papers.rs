//! Bars of the paper's figures, by the execution of its servers as programs.

#![allow(clippy::unwrap_used)] // helpers of the tests

use bywash_sim::paper::executed::{ExecutedBar, execute_bar};
use bywash_support::riscv;
use std::path::Path;

/// Returns the file of a compiled program of the paper; `None` without a compiler.
fn program(test: &str, name: &str) -> Option<Vec<u8>> {
    let Some(compiler) = riscv::compiler() else {
        riscv::skip(test, "gcc-riscv64-linux-gnu");
        return None;
    };
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../execute/programs").join(name).with_extension("c");
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join(name);
    riscv::build(&compiler, &[source], &["-w".into()], &target);
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
