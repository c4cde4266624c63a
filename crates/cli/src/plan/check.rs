//! `bywash plan check`: what the papers say, against what is computed and simulated here.

use super::watch::Watch;
use super::words::{json, print};
use crate::cli::CheckArgs;
use crate::error::Failure;
use bywash_model::check::{self, Line, Verdict};
use bywash_sim::paper::servers::{self, Ratios, VARIANTS};
use bywash_sim::paper::{Target, streams};
use serde::Serialize;

/// Everything.
#[derive(Serialize)]
struct Checked {
    /// Of the model.
    computed: Vec<Line>,
    /// Of the simulator.
    simulated: Vec<Simulated>,
    /// What the ratios are if what the papers do not give is otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sensitivity: Vec<Sensitivity>,
    /// Whether all of that was simulated that was asked for.
    is_whole: bool,
}

#[derive(Serialize)]
struct Simulated {
    #[serde(flatten)]
    target: Target,
    verdict: Verdict,
}

#[derive(Serialize)]
struct Sensitivity {
    what: &'static str,
    ratios: Ratios,
}

/// Tells all of it.
///
/// # Errors
/// That standard output cannot be written.
pub fn check(arguments: &CheckArgs) -> Result<i32, Failure> {
    let variants = if arguments.sensitivity { VARIANTS } else { &[] };
    let watch = Watch::new(1 + variants.len() as u64);
    watch.go_on(0.0);
    let targets = servers::targets().into_iter().chain(servers::gap_targets()).chain(streams::targets());
    let simulated = targets.map(|target| {
        let verdict = if target.agrees() { Verdict::Agrees } else { Verdict::Differs };
        Simulated { target, verdict }
    });
    watch.ended(1);
    let mut sensitivity = Vec::new();
    for variant in variants {
        if !watch.go_on(0.0) {
            break;
        }
        sensitivity.push(Sensitivity { what: variant.name, ratios: variant.ratios() });
        watch.ended(1);
    }
    watch.finish();
    let checked = Checked {
        computed: check::table(),
        simulated: simulated.collect(),
        is_whole: sensitivity.len() == variants.len(),
        sensitivity,
    };
    print(&if arguments.json { json(&checked) } else { in_words(&checked) })
}

fn in_words(checked: &Checked) -> String {
    let mut text = String::new();
    for line in &checked.computed {
        text += &format!(
            "{:9}  Fig. {}  {}: the paper says {}, computed {}\n",
            line.verdict.name(),
            line.figure,
            line.point,
            line.says,
            line.computed
        );
        if !line.note.is_empty() {
            text += &format!("{:19}{}\n", "", line.note);
        }
    }
    let computed = checked.computed.iter().map(|line| line.verdict);
    text += &format!("{}\n\n", counted(computed));
    for Simulated { target, verdict } in &checked.simulated {
        text += &format!(
            "{:9}  {}  {}: the paper says {}, simulated {:.3}\n",
            verdict.name(),
            target.source,
            target.what,
            target.says,
            target.simulated
        );
        if !target.note.is_empty() {
            text += &format!("{:19}{}\n", "", target.note);
        }
    }
    text += &format!("{}\n", counted(checked.simulated.iter().map(|one| one.verdict)));
    if !checked.sensitivity.is_empty() {
        text += "\n";
        text += &sensitivity(&checked.sensitivity);
    }
    if !checked.is_whole {
        text += "stopped before its end: the other lines were not simulated\n";
    }
    text
}

fn counted(verdicts: impl Iterator<Item = Verdict>) -> String {
    let all: Vec<Verdict> = verdicts.collect();
    let differ = all.iter().filter(|verdict| **verdict == Verdict::Differs).count();
    format!("{} lines, {differ} differ", all.len())
}

/// As a table in Markdown.
fn sensitivity(rows: &[Sensitivity]) -> String {
    let mut text = String::from(
        "| | Web switch / PCI | active 300 MHz | active 1.5 GHz | best / PCI | RapidIO / InfiniBand | video best / PCI | \
         video switch / PCI | video idle |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    text += "| the paper | 1.15 | 1.85 | 2.12 | 2.46 | 1 | 1.47 | 1.31 | > 0.9 |\n";
    for Sensitivity { what, ratios } in rows {
        let numbers = [
            ratios.web_switch,
            ratios.web_slow,
            ratios.web_fast,
            ratios.web_best,
            ratios.web_switches,
            ratios.video_best,
            ratios.video_switch,
            ratios.video_idle,
        ];
        let cells: String = numbers.iter().map(|number| format!(" {number:.2} |")).collect();
        text += &format!("| {what} |{cells}\n");
    }
    text
}
