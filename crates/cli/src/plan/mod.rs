//! `bywash plan`: what a server could do, by the model.
//!
//! - [`drawing`]: the paper's figures as SVG and CSV
//! - [`tell`]: one description, and the acceptance table, in words

mod drawing;
mod tell;

use crate::cli::{PlanArgs, PlanCommand};
use crate::error::Failure;

/// Does what the command line says; answers the exit status.
///
/// # Errors
/// What cannot be read or written.
pub fn main(arguments: &PlanArgs) -> Result<i32, Failure> {
    match &arguments.command {
        PlanCommand::Figure(figure) => drawing::write(figure),
        PlanCommand::Model(model) => tell::model(model),
        PlanCommand::Check(check) => tell::check(check),
    }
}
