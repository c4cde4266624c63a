//! `bywash plan`: what a server could do, by the model and by the simulator.
//!
//! - [`file`]: descriptions, as the command line names them
//! - [`tell`]: what the model says of one; [`simulate`]: what the simulator says; [`timeline`]: who had what when
//! - [`check`]: what the papers say, against what comes out here
//! - [`drawing`]: the papers' curves as SVG and CSV; [`bars`]: their bars
//! - [`web`]: the planner as a page
//! - [`calibrate`]: this machine, measured, as a description; [`validate`]: simple runs on it, predicted and made
//! - [`measure`]: what these two measure with
//! - [`trace`]: recorded calls as a trace
//! - [`watch`]: how far simulations are; [`words`]: how numbers are told

mod bars;
mod calibrate;
mod check;
mod drawing;
mod file;
mod measure;
mod simulate;
mod tell;
mod timeline;
mod trace;
mod validate;
mod watch;
mod web;
mod words;

use crate::cli::{PlanArgs, PlanCommand, PresetsArgs};
use crate::error::Failure;
use bywash_sim::preset::PRESETS;
use std::ops::RangeInclusive;

/// The figures that can be drawn: curves of the model, then bars of the simulator.
pub const FIGURES: RangeInclusive<u32> = 2..=9;

/// Does what the command line says; answers the exit status.
///
/// # Errors
/// What cannot be read or written.
pub fn main(arguments: &PlanArgs) -> Result<i32, Failure> {
    match &arguments.command {
        PlanCommand::Figure(figure) => drawing::write(figure),
        PlanCommand::Model(model) => tell::model(model),
        PlanCommand::Simulate(simulate) => simulate::simulate(simulate),
        PlanCommand::Compare(compare) => simulate::compare(compare),
        PlanCommand::Presets(named) => presets(named),
        PlanCommand::Check(check) => check::check(check),
        PlanCommand::Calibrate(calibrate) => calibrate::main(calibrate),
        PlanCommand::Validate(validate) => validate::main(validate),
        PlanCommand::Trace(trace) => trace::write(trace),
        PlanCommand::Web(web) => web::main(web),
    }
}

fn presets(arguments: &PresetsArgs) -> Result<i32, Failure> {
    let text = match &arguments.name {
        Some(name) => file::named(name).map_err(Failure::Preset)?.text.to_owned(),
        None => PRESETS.iter().map(|preset| format!("{:22} {}\n", preset.name, preset.about)).collect(),
    };
    words::print(&text)
}
