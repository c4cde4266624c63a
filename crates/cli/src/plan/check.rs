//! `bywash plan check`: the papers' statements against the numbers that are computed and simulated here.

use super::watch::Progress;
use super::words::{json, print};
use crate::cli::plan::CheckArgs;
use crate::error::Failure;
use bywash_model::check::{self, AcceptanceLine};
use bywash_model::claim::Verdict;
use bywash_sim::paper::servers::{self, Bar, Figures, Ratios, VARIANTS};
use bywash_sim::paper::{Target, streams};
use serde::Serialize;

const MIB: f64 = 1048576.0;

/// All results of the command.
#[derive(Serialize)]
struct Checked {
    /// Statements about the model.
    computed: Vec<AcceptanceLine>,
    /// Statements about the papers' simulations.
    simulated: Vec<Target>,
    /// Bars of the simulated figures: throughput, and binding resource.
    bars: Vec<OfFigure>,
    /// Ratios under other values of the parameters that the papers do not give.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sensitivity: Vec<Sensitivity>,
    /// Ratios of the 23 streams under other values of their machine's parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    streams: Vec<StreamSensitivity>,
    /// True if every requested simulation ran to its end.
    is_whole: bool,
}

/// A bar with the number of its figure.
#[derive(Serialize)]
struct OfFigure {
    figure: u32,
    #[serde(flatten)]
    bar: Bar,
    /// Ratio of the bar's throughput to that of the figure's first bar.
    ratio: f64,
}

#[derive(Serialize)]
struct Sensitivity {
    what: &'static str,
    ratios: Ratios,
}

#[derive(Serialize)]
struct StreamSensitivity {
    what: &'static str,
    ratios: streams::Ratios,
}

/// Computes, simulates and prints all results.
///
/// # Errors
/// [`Failure`] if standard output cannot be written.
pub fn check(arguments: &CheckArgs) -> Result<i32, Failure> {
    let variants = if arguments.sensitivity { VARIANTS } else { &[] };
    let stream_variants = if arguments.sensitivity { streams::VARIANTS } else { &[] };
    let watch = Progress::new(1 + variants.len() as u64 + stream_variants.len() as u64);
    watch.go_on(0.0);
    let figures = Figures::simulated();
    let statements = [figures.targets(), servers::gap_targets(), streams::targets()];
    watch.ended(1);
    let mut sensitivity = Vec::new();
    for variant in variants {
        if !watch.go_on(0.0) {
            break;
        }
        sensitivity.push(Sensitivity { what: variant.name, ratios: variant.ratios() });
        watch.ended(1);
    }
    let mut of_streams = Vec::new();
    for variant in stream_variants {
        if !watch.go_on(0.0) {
            break;
        }
        of_streams.push(StreamSensitivity { what: variant.name, ratios: variant.ratios() });
        watch.ended(1);
    }
    watch.finish();
    let checked = Checked {
        computed: check::table(),
        simulated: statements.concat(),
        bars: [(8, figures.web), (9, figures.video)].into_iter().flat_map(in_figure).collect(),
        is_whole: sensitivity.len() == variants.len() && of_streams.len() == stream_variants.len(),
        sensitivity,
        streams: of_streams,
    };
    print(&if arguments.json { json(&checked) } else { in_words(&checked) })
}

fn in_figure((figure, bars): (u32, Vec<Bar>)) -> impl Iterator<Item = OfFigure> {
    let first = bars.first().map_or(1.0, |bar| bar.throughput.mean);
    bars.into_iter().map(move |bar| OfFigure { figure, ratio: bar.throughput.mean / first, bar })
}

fn in_words(checked: &Checked) -> String {
    let mut text = String::new();
    for line in &checked.computed {
        let says = if line.says == "-" { String::new() } else { format!("the paper says {}, ", line.says) };
        text += &entry(
            line.verdict,
            &format!("Fig. {}  {}: {says}computed {}", line.figure, line.point, line.computed),
            line.note,
        );
    }
    text += &format!("{}\n\n", counted(checked.computed.iter().map(|line| line.verdict)));
    for target in &checked.simulated {
        text += &entry(target.verdict, &statement(target), target.note);
    }
    text += &format!("{}\n\n", counted(checked.simulated.iter().map(|target| target.verdict)));
    for bar in &checked.bars {
        text += &entry(bar.bar.verdict, &in_a_line(bar), "");
    }
    text += &format!("{}\n", counted(checked.bars.iter().map(|bar| bar.bar.verdict)));
    if !checked.sensitivity.is_empty() {
        text += "\n";
        text += &sensitivity(&checked.sensitivity);
        text += "\n";
        text += &stream_sensitivity(&checked.streams);
    }
    if !checked.is_whole {
        text += "stopped before its end: the other lines were not simulated\n";
    }
    text
}

/// Formats a verdict with its subject, and the note on a line of its own.
fn entry(verdict: Verdict, about: &str, note: &str) -> String {
    let mut text = format!("{:9}  {about}\n", verdict.name());
    if !note.is_empty() {
        text += &format!("{:19}{note}\n", "");
    }
    text
}

fn statement(target: &Target) -> String {
    let found = significant(target.simulated);
    let head = format!("{}  {}", target.source, target.what);
    match (target.verdict, target.claim.deviation(target.simulated)) {
        (Verdict::Reference, _) => format!("{head}: simulated {found}"),
        (_, Some(off)) => {
            format!("{head}: the paper says {}, simulated {found} ({:+.1} %)", target.says(), 100.0 * off)
        }
        (_, None) => format!("{head}: the paper says {}, simulated {found}", target.says()),
    }
}

/// Formats a number with three significant digits, however small.
fn significant(number: f64) -> String {
    let whole_digits = if number == 0.0 { 1.0 } else { number.abs().log10().floor() + 1.0 };
    format!("{number:.*}", (3.0 - whole_digits).clamp(0.0, 9.0) as usize)
}

fn in_a_line(OfFigure { figure, bar, ratio }: &OfFigure) -> String {
    let says = bar.says_binding.map_or(String::new(), |named| format!("; the paper says that {named} bind"));
    let gain = |wanted: &str| bar.gains.iter().find(|one| one.resource == wanted).map_or(0.0, |one| one.gain);
    format!(
        "Fig. {figure}  {:27} {:4.0} MiB/s, {ratio:.2} of the first; bound by {} ({:+.1} % if a tenth faster; \
         processors {:+.1} %); busiest {} {:.0} %; processors compute {:.0} %, stall {:.0} %, idle {:.0} %{says}",
        bar.name,
        bar.throughput.mean / MIB,
        bar.binding,
        100.0 * gain(&bar.binding),
        100.0 * gain("processors"),
        bar.busiest,
        100.0 * bar.busy,
        100.0 * bar.computing,
        100.0 * bar.stalled,
        100.0 * (1.0 - bar.processors)
    )
}

fn counted(verdicts: impl Iterator<Item = Verdict>) -> String {
    let all: Vec<Verdict> = verdicts.collect();
    let [agree, differ, reference] = [Verdict::Agrees, Verdict::Differs, Verdict::Reference]
        .map(|wanted| all.iter().filter(|verdict| **verdict == wanted).count());
    format!("{} lines: {agree} agree, {differ} differ, {reference} for reference", all.len())
}

/// Formats the ratios of the streams under each variant, as a table in Markdown.
fn stream_sensitivity(rows: &[StreamSensitivity]) -> String {
    let mut text = String::from("| | bandwidth, user-level / kernel | processor taken |\n|---|---|---|\n");
    text += "| the dissertation | 2 | 0.02 |\n";
    for StreamSensitivity { what, ratios } in rows {
        text += &format!("| {what} | {:.2} | {:.4} |\n", ratios.bandwidth, ratios.occupancy);
    }
    text
}

/// Formats the ratios of each variant, as a table in Markdown.
fn sensitivity(rows: &[Sensitivity]) -> String {
    let mut text = String::from(
        "| | Web switch / PCI | active 300 MHz | active 1.5 GHz | best / PCI | RapidIO / InfiniBand | video active, PCI \
         | video switch / PCI | video idle |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    text += "| the paper | 1.15 | 1.85 | 2.12 | 2.46 | 1 | 1.47 | 1.31 | > 0.9 |\n";
    for Sensitivity { what, ratios } in rows {
        let numbers = [
            ratios.web_switch,
            ratios.web_slow,
            ratios.web_fast,
            ratios.web_best,
            ratios.web_switches,
            ratios.video_active,
            ratios.video_switch,
            ratios.video_idle,
        ];
        let cells: String = numbers.iter().map(|number| format!(" {number:.2} |")).collect();
        text += &format!("| {what} |{cells}\n");
    }
    text
}
