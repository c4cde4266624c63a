//! `bywash plan`: performance prediction for servers, by the model and by the simulator.
//!
//! - [`file`]: descriptions as named on the command line
//! - [`tell`]: answers of the model; [`simulate`]: reports of the simulator; [`timeline`]: timeline of a
//!   simulation; [`sweep`]: both for numbers that vary; [`size`]: the most load or the fewest parts for a
//!   response time
//! - [`execute`]: a program inside a described machine
//! - [`check`]: the papers' statements against the numbers computed here
//! - [`figure`]: the papers' figures as SVG and CSV
//! - [`web`]: the planner as a page
//! - [`calibrate`]: measurement of this machine, as a description; [`validate`]: predictions for simple runs,
//!   against measurements
//! - [`measure`]: tools for these two
//! - [`trace`]: recorded calls as a trace; [`record`]: the recorder of this project; [`repeat`]: calls made again;
//!   [`predict`]: a recorded program under `bywash run`
//! - [`watch`]: progress of simulations; [`words`]: numbers as text

mod calibrate;
mod check;
mod execute;
mod figure;
mod file;
mod measure;
mod predict;
mod record;
mod repeat;
mod simulate;
mod size;
mod sweep;
mod tell;
mod timeline;
mod trace;
mod validate;
mod watch;
mod web;
mod words;

use crate::cli::plan::{PlanArgs, PlanCommand, PresetsArgs};
use crate::error::Failure;
use bywash_sim::preset::PRESETS;

/// Carries out the command line and returns the exit status.
///
/// # Errors
/// Those of the subcommand's function: invalid input, files that cannot be read or written, failed
/// measurements.
pub fn main(arguments: &PlanArgs) -> Result<i32, Failure> {
    match &arguments.command {
        PlanCommand::Figure(figure) => figure::write(figure),
        PlanCommand::Model(model) if !model.sweep.axes.is_empty() => sweep::model(model),
        PlanCommand::Model(model) => tell::model(model),
        PlanCommand::Simulate(simulate) if !simulate.sweep.axes.is_empty() => sweep::simulate(simulate),
        PlanCommand::Simulate(simulate) => simulate::simulate(simulate),
        PlanCommand::Compare(compare) => simulate::compare(compare),
        PlanCommand::Size(size) => size::size(size),
        PlanCommand::Execute(execute) => execute::execute(execute),
        PlanCommand::Presets(named) => presets(named),
        PlanCommand::Check(check) => check::check(check),
        PlanCommand::Calibrate(calibrate) => calibrate::main(calibrate),
        PlanCommand::Validate(validate) => validate::main(validate),
        PlanCommand::Trace(trace) => trace::write(trace),
        PlanCommand::Record(record) => record::main(record),
        PlanCommand::Predict(predict) => predict::main(predict),
        PlanCommand::Repeat(repeat) => repeat::main(repeat),
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
