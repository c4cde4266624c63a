//! `bywash flow`: a flow from the command line.
//!
//! The library moves the data; this module shows the plan, the progress and the report, and handles Ctrl-C.
//!
//! - [`progress`]: a bar, or lines
//! - [`sources`]: the error for several sources, which a flow cannot have
//! - [`tell`]: the report for people

mod progress;
mod sources;
mod tell;

use crate::cli::flow::{By, FlowArgs, Rate};
use crate::error::EXIT_OWN_FAILURE;
use crate::error::Failure;
use crate::signals::Signals;
use crate::standard::{Unfailing, say};
use bywash_flow::report::JsonReport;
use bywash_flow::{Error, Failed, Flow, Report, Stage};
use progress::Progress;
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;

/// Exit status of a flow that has failed.
const EXIT_FAILED: i32 = 1;
/// Added to the signal's number for the exit status after a signal.
const EXIT_SIGNAL: i32 = 128;
/// Interval at which signals are checked and the bar is updated.
const TURN: Duration = Duration::from_millis(50);

/// Runs the command and returns the exit status.
pub fn main(arguments: &FlowArgs) -> Result<i32, Failure> {
    let outcome = flow_of(arguments).and_then(|flow| match arguments.explain {
        true => explain(&flow, arguments),
        false => run(&flow, arguments),
    });
    // The flow failed before it started.
    Ok(outcome.unwrap_or_else(|error| conclude(Err(error.into()), arguments, None)))
}

/// Makes the flow that the command line describes.
fn flow_of(arguments: &FlowArgs) -> Result<Flow, Error> {
    let [source, stages @ .., sink] = arguments.words.as_slice() else {
        return Err(Error::Usage("name where from and where to".into()));
    };
    let mut flow = Flow::new(source.as_os_str().try_into()?, sink.as_os_str().try_into()?)
        .by_reference(arguments.by == By::Reference)
        .sync(arguments.sync)
        .prefer(arguments.prefer)
        .one_way(arguments.one_way)
        .resume(arguments.resume);
    let rate = match arguments.rate {
        Some(Rate::Bytes(bytes)) => Some(bytes),
        Some(Rate::Auto) => {
            flow = flow.finds_rate(true);
            None
        }
        None => None,
    };
    for (name, bytes) in [("limit", arguments.limit), ("rate", rate)] {
        if let Some(bytes) = bytes {
            flow = flow.stage(format!("{name}:{bytes}").parse()?);
        }
    }
    for stage in stages {
        let read = Stage::try_from(stage.as_os_str());
        flow = flow.stage(read.map_err(|error| sources::refused(source, stages, sink).unwrap_or(error))?);
    }
    if let Some(algorithm) = arguments.hash {
        flow = flow.stage(Stage::hash(algorithm));
    }
    if let Some(stage) = arguments.expect_hash.clone() {
        flow = flow.stage(stage);
    }
    if let Some(size) = arguments.expect_size {
        flow = flow.expect_size(size);
    }
    if let Some(via) = arguments.via {
        flow = flow.via(via);
    }
    if let Some(block) = arguments.block {
        flow = flow.block(usize::try_from(block).unwrap_or(usize::MAX));
    }
    Ok(flow)
}

fn explain(flow: &Flow, arguments: &FlowArgs) -> Result<i32, Error> {
    let plans = flow.plan()?;
    let text = match arguments.json {
        true => json(&plans),
        false => plans.iter().map(ToString::to_string).collect(),
    };
    // An error is ignored: a reader that went away (`| head`) is no failure.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(0)
}

fn run(flow: &Flow, arguments: &FlowArgs) -> Result<i32, Error> {
    let signals = Signals::listen();
    let running = flow.start()?;
    let watch = running.watch();
    let mut progress = Progress::new(arguments);
    loop {
        let is_over = watch.wait(Some(TURN))?;
        for notice in watch.take_notices() {
            progress.line(&notice);
        }
        if is_over {
            break;
        }
        if signals.seen().is_some() {
            watch.cancel();
        }
        progress.show(&watch);
    }
    progress.finish();
    Ok(conclude(running.wait(), arguments, signals.seen()))
}

/// Prints the report and the error, and returns the exit status.
fn conclude(outcome: Result<Report, Failed>, arguments: &FlowArgs, signal: Option<i32>) -> i32 {
    let told = arguments.json.then(|| json(&JsonReport::new(&outcome)));
    let (report, error) = match outcome {
        Ok(report) => (report, None),
        Err(failed) => (*failed.report, Some(failed.error)),
    };
    if let Some(text) = told {
        tell_json(&text, arguments);
    } else if !arguments.quiet && (error.is_none() || !report.pieces.is_empty()) {
        let _ = Unfailing.write_all(tell::render(&report).as_bytes());
    }
    match (error, signal) {
        (None, _) => 0,
        (Some(Error::Cancelled), Some(signal)) => {
            say(format_args!("bywash flow: ended by a signal{}", tell::kept(&report)));
            EXIT_SIGNAL + signal
        }
        (Some(error), _) => {
            say(format_args!("bywash flow: {error}{}", tell::kept(&report)));
            match error {
                Error::Usage(_) | Error::Unfit { .. } => EXIT_OWN_FAILURE,
                _ => EXIT_FAILED,
            }
        }
    }
}

/// Writes `text` to standard output, or to standard error if the flow's data went to standard output.
fn tell_json(text: &str, arguments: &FlowArgs) {
    let to_stderr = arguments.words.last().is_some_and(|sink| sink == "-");
    let written = match to_stderr {
        true => Unfailing.write_all(text.as_bytes()),
        false => io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()),
    };
    if let Err(error) = written {
        // The data has arrived, so the exit status stays 0.
        say(format_args!("bywash flow: cannot write the report to standard output: {error}"));
    }
}

fn json(value: &impl Serialize) -> String {
    // Numbers and strings always have a JSON form, so serialisation cannot fail.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
