//! Runs the model (`model/`) with one seed after another, by turns on tmpfs and on the disk, until its time
//! is over: `BYWASH_MODEL_SECONDS`, 12 if not set. Even seeds have mapped writes switched on, odd ones
//! positions at user level. The first run on each file system is by the kernel alone and shows that the model
//! is right. `BYWASH_MODEL_SEED` runs that one seed and ends.

use bywash_behaviour::compile::Names;
use bywash_behaviour::{Counts, ProgramResult, Run, TestFolder, library, program};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Operations of one run.
const STEPS: u32 = 10_000;
/// A run takes a second or two.
const LIMIT: Duration = Duration::from_secs(300);
/// Share of all reads that the library must have served in the whole test. Single seeds have 9 to 20 %, and a busy
/// machine plays no more than two.
const SHARE_OF_READS_MIN: f64 = 0.05;
/// As [`SHARE_OF_READS_MIN`], of the writes on tmpfs, half of whose runs have mapped writes.
const SHARE_OF_WRITES_MIN: f64 = 0.01;

struct Model {
    program: PathBuf,
    library: PathBuf,
    places: Vec<TestFolder>,
}

fn main() -> ExitCode {
    match test() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("model: {error}");
            ExitCode::FAILURE
        }
    }
}

fn test() -> Result<(), Box<dyn Error>> {
    let build = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let model = Model {
        program: program("model", Names::Plain, build)?,
        library: library(),
        places: TestFolder::all(build)?,
    };
    let seconds = number("BYWASH_MODEL_SECONDS")?.unwrap_or(12);
    if let Some(seed) = number("BYWASH_MODEL_SEED")? {
        for place in &model.places {
            model.play(seed, place, None)?;
            println!("seed {seed} on {}: {:?}", place.name(), model.play(seed, place, Some(&model.library))?);
        }
        return Ok(());
    }
    let first = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    model.play_for(Duration::from_secs(seconds), first)
}

fn number(variable: &str) -> Result<Option<u64>, Box<dyn Error>> {
    match std::env::var(variable) {
        Ok(text) => Ok(Some(text.parse().map_err(|_| format!("{variable} must be a number, is {text:?}"))?)),
        Err(_) => Ok(None),
    }
}

impl Model {
    fn play_for(&self, time: Duration, first: u64) -> Result<(), Box<dyn Error>> {
        println!("seeds from {first}, {STEPS} operations each, for {} s", time.as_secs());
        let start = Instant::now();
        for place in &self.places {
            self.play(first, place, None)?;
        }
        let mut totals = vec![Counts::default(); self.places.len()];
        let mut seed = first;
        // Two seeds at least, of which one has mapped writes and one positions at user level.
        while start.elapsed() < time || seed - first < 2 {
            for (place, total) in self.places.iter().zip(&mut totals) {
                total.add(self.play(seed, place, Some(&self.library))?);
            }
            seed += 1;
        }
        println!("{} seeds agreed", seed - first);
        for (place, total) in self.places.iter().zip(&totals) {
            let (reads, writes) = (total.share_of_reads(), total.share_of_writes());
            println!(
                "{}: {:.0} % of reads and {:.0} % of writes at user level, {total:?}",
                place.name(),
                reads * 100.0,
                writes * 100.0
            );
            let on_disk = place.name() != "tmpfs";
            if reads < SHARE_OF_READS_MIN || (!on_disk && writes < SHARE_OF_WRITES_MIN) {
                return Err(format!("too little was served at user level on {}", place.name()).into());
            }
            if on_disk && total.user_writes != 0 {
                return Err("a write to a disk was mapped".into());
            }
        }
        Ok(())
    }

    /// One seed; what went wrong comes with the command that plays it again.
    fn play(&self, seed: u64, place: &TestFolder, library: Option<&Path>) -> Result<Counts, Box<dyn Error>> {
        let folder = place.folder()?;
        let run = Run {
            program: &self.program,
            arguments: vec![
                seed.to_string(),
                STEPS.to_string(),
                folder.path().to_string_lossy().into_owned(),
            ],
            library,
            environment: match seed % 2 {
                0 => vec![("BYWASH_WRITES", "1".into())],
                _ => vec![("BYWASH_POSITIONS", "user".into())],
            },
            limit: LIMIT,
        };
        match run.finish()? {
            (ProgramResult::Passed, counts) => Ok(counts),
            (ProgramResult::Failed(why) | ProgramResult::Skipped(why), _) => Err(format!(
                "seed {seed} on {} {}: {why}\n\
                 again:   BYWASH_MODEL_SEED={seed} cargo test -p bywash-behaviour --test model\n\
                 by hand: {} (in an empty folder; MODEL_TRACE=1 prints every operation)",
                place.name(),
                if library.is_some() { "under the library" } else { "by the kernel" },
                run.by_hand()
            )
            .into()),
        }
    }
}
