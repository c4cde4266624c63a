//! The `bywash` command: all of `bywash` except the start of a program by a plain `bywash run`, which the
//! launcher (`crates/launcher`) does. The launcher is the program `bywash`, and executes this program,
//! `bywash-command`, for everything else.
//!
//! `bywash run` starts an unmodified program with the preloaded library and can report afterwards what
//! happened; `bywash doctor` reports what this machine offers. A program under `bywash run` inherits what
//! this command inherited: signal mask, ignored signals, open and closed descriptors, working directory. For
//! this reason the process starts at C's `main` and not in Rust's runtime, which would ignore SIGPIPE and
//! open closed standard descriptors.
//!
//! - [`cli`]: flags, help texts, exit codes
//! - [`run`]: finding the library, the program's environment, starting, supervising
//! - [`report`]: the records of a session as a table and as JSON
//! - [`flow`]: a flow from the command line: its progress, its report, its signals
//! - [`plan`]: the model of servers: its figures, its answers, its acceptance table
//! - [`serve`]: a device server; [`volume`]: its volumes
//! - [`nvme`]: NVMe controllers of the machine
//! - [`log`]: a commit log and its keeper
//! - [`http`]: a small HTTP server for the planner's page and the metrics
//! - [`doctor`]: probes and costs
//! - [`standard`]: standard error that may be closed or full; [`signals`]: orderly end at the first signal
//! - [`error`]: failures of bywash itself
//! - [`manual`]: man pages and shell completions, generated from [`cli`]
//!
//! Architecture invariant: unsafe code is confined to this file's entry point, `run/process.rs` and
//! `doctor/kernel.rs`.

#![deny(unsafe_code)]
// These macros panic where nobody reads; see `standard`.
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![cfg_attr(not(test), no_main)]

mod cli;
mod doctor;
mod error;
mod flow;
mod http;
#[cfg(test)]
#[path = "../../launcher/src/options.rs"]
mod launcher_options;
mod log;
mod manual;
mod nvme;
mod plan;
mod report;
mod run;
mod serve;
mod signals;
mod socket;
mod standard;
mod volume;

use cli::{Cli, Command};
use error::EXIT_OWN_FAILURE;
use std::process::ExitCode;

// Links GCC's unwinder statically, so that the dynamic loader need not load libgcc_s. Only backtraces use it.
#[allow(unsafe_code)]
#[link(name = "libgcc_eh.a", kind = "static", modifiers = "+whole-archive,+verbatim")]
unsafe extern "C" {}

/// C's entry point. `exit` flushes standard output.
#[cfg(not(test))]
#[allow(unsafe_code)]
// SAFETY: this is the only definition of `main` in this program, with the signature that C requires.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: i32, _argv: *const *const u8) -> i32 {
    let status = bywash();
    std::process::exit(status)
}

/// Parses the command line, carries the command out, and returns the exit status.
#[cfg_attr(test, allow(dead_code))]
fn bywash() -> i32 {
    // ps(1) and pgrep(1) show this name; it is the name by which people start the command.
    let _ = rustix::thread::set_name(c"bywash");
    let arguments = match Cli::read() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Clap returns help and version as errors too, which do not go to standard error.
            let status = if error.use_stderr() { EXIT_OWN_FAILURE } else { 0 };
            // Nothing sensible is left to do if the terminal is gone.
            let _ = error.print();
            return status;
        }
    };
    // A program under `bywash run` inherits the closed descriptors of this command.
    if !matches!(arguments.command, Command::Run(_)) {
        standard::take_closed_descriptors();
        choose_among_cards_here();
    }
    let done = match arguments.command {
        Command::Run(arguments) => run::main(&arguments),
        Command::Flow(arguments) => {
            run::survive_broken_pipes();
            flow::main(&arguments)
        }
        Command::Plan(arguments) => {
            // The recorded program inherits the disposition of SIGPIPE.
            if !arguments.starts_a_program() {
                run::survive_broken_pipes();
            }
            plan::main(&arguments)
        }
        Command::Serve(arguments) => {
            run::survive_broken_pipes();
            serve::main(&arguments)
        }
        Command::Volume(arguments) => {
            run::survive_broken_pipes();
            volume::main(&arguments)
        }
        Command::Nvme(arguments) => {
            run::survive_broken_pipes();
            nvme::main(&arguments)
        }
        Command::Log(arguments) => {
            run::survive_broken_pipes();
            log::main(&arguments)
        }
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Bench(arguments) => {
            // SIGPIPE is ignored, as in every program that Rust's runtime starts.
            run::survive_broken_pipes();
            Ok(number(bywash_bench::command::main(arguments)))
        }
        Command::Man(arguments) => manual::write_pages(&arguments),
        Command::Completions(arguments) => manual::print_completions(&arguments),
    };
    done.unwrap_or_else(|failure| {
        standard::say(format_args!("bywash: {failure}"));
        failure.status()
    })
}

/// Switches off the layer by which Mesa's drivers choose among graphics cards. This command chooses itself, and
/// the layer complains on standard error wherever there is no desktop.
#[cfg_attr(test, allow(dead_code))]
#[allow(unsafe_code)]
fn choose_among_cards_here() {
    // SAFETY: the process has no other thread yet, so nothing reads the environment meanwhile.
    unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
}

/// Returns the number in an exit code, which the standard library does not expose.
#[cfg_attr(test, allow(dead_code))]
fn number(code: ExitCode) -> i32 {
    (0..=u8::MAX).find(|number| ExitCode::from(*number) == code).map_or(EXIT_OWN_FAILURE, i32::from)
}
