//! The bench command by itself: `cargo run --release -p bywash-bench --example bench -- run --quick`.

use bywash_bench::command::{self, BenchArgs};
use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> ExitCode {
    command::main(Arguments::parse().bench)
}
