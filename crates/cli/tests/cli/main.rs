//! The real `bywash`, run in temporary folders.
//!
//! - [`place`]: a folder and the command
//! - [`exit`]: exit statuses
//! - [`flow`]: flows between files, sockets and programs, also programs that others wrote
//! - [`launcher`]: the small program in front of the command
//! - [`inherited`]: what the program finds is what bywash found
//! - [`signals`]: signals to bywash, Ctrl-C, Ctrl-Z
//! - [`refusals`]: what is refused, and in which words
//! - [`report`]: `--stats` and `--report`
//! - [`plan`]: `bywash plan`; [`plan_web`]: its page, served and written
//! - [`plan_machine`]: `bywash plan calibrate`, `bywash plan validate`
//! - [`plan_execute`]: `bywash plan execute`
//! - [`plan_record`]: `bywash plan record`, `bywash plan predict`
//! - [`plan_trace`]: `bywash plan trace`
//! - [`guide`]: the examples of the guides, as they are printed
//! - [`generated`]: help, man pages, completions
//! - [`serve`]: `bywash serve`, `bywash volume`; [`serve_nbd`]: volumes for NBD clients
//! - [`log`]: `bywash log`, `bywash run --log`
//! - [`unserved`]: programs that the library cannot serve
//! - [`doctor`]: `bywash doctor`

// A test that unwraps what is not there fails, as it should.
#![allow(clippy::unwrap_used)]

mod doctor;
mod exit;
mod flow;
mod generated;
mod guide;
mod inherited;
mod launcher;
mod log;
mod place;
mod plan;
mod plan_execute;
mod plan_load;
mod plan_machine;
mod plan_record;
mod plan_trace;
mod plan_web;
mod refusals;
mod report;
mod serve;
mod serve_live;
mod serve_nbd;
mod signals;
mod tables;
mod unserved;
