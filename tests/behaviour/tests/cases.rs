//! Runs every case of `program/` in a process of its own: by the kernel alone, which shows that the case is
//! right about the kernel, and under the library, on each file system. Arguments are parts of names.

use bywash_behaviour::compile::Names;
use bywash_behaviour::{Counts, ProgramResult, Run, TestFolder, library, program};
use bywash_support::log::{Counter, TestLog};
use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Expectations about the counters: the numbers of `enum expectation` in `program/case.h`.
const READS: u32 = 1;
const WRITES: u32 = 2;
const NO_READS: u32 = 4;
const NO_WRITES: u32 = 8;
/// The case holds only where positions are the kernel's.
const KERNEL_POSITIONS: u32 = 16;
const POSITION_READS: u32 = 32;
const KERNEL_WRITES: u32 = 64;
const KERNEL_SYNCS: u32 = 128;

/// Size of the log in blocks, and in files.
const LOG_BLOCKS: u64 = 30_000;
const LOG_FILES: u32 = 1024;

/// No case takes a tenth of it.
const LIMIT: Duration = Duration::from_secs(60);

struct Case {
    name: String,
    expects: u32,
}

/// One way to run each case.
struct Variant<'a> {
    name: String,
    program: &'a Path,
    library: Option<&'a Path>,
    /// True if mapped writes are enabled.
    writes: bool,
    place: &'a TestFolder,
    /// True if the library may keep file positions.
    keeps_positions: bool,
    /// Log that the case commits to, if any.
    log: Option<&'a TestLog>,
    /// True if a session counts calls. Without a session a process sets nothing up before the first call that
    /// could be served.
    is_counted: bool,
}

impl Variant<'_> {
    fn maps_writes(&self) -> bool {
        self.writes && self.place.name() == "tmpfs"
    }
}

fn main() -> ExitCode {
    match run_all() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cases: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_all() -> Result<bool, Box<dyn Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let build = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let plain = program("program", Names::Plain, build)?;
    let large = program("program", Names::Large, build)?;
    let library = library();
    let places = TestFolder::all(build)?;
    let cases: Vec<Case> = list(&plain)?
        .into_iter()
        .filter(|case| wanted.is_empty() || wanted.iter().any(|part| case.name.contains(part.as_str())))
        .collect();
    let mut ways = Vec::new();
    for place in &places {
        let name = place.name();
        let mut add = |kind: &str, library, writes, is_counted| {
            let name = format!("{kind} {name}");
            ways.push(Variant {
                name,
                program: &plain,
                library,
                writes,
                place,
                keeps_positions: false,
                log: None,
                is_counted,
            });
        };
        add("kernel", None, false, true);
        add("bywash", Some(library.as_path()), false, true);
        add("writes", Some(library.as_path()), true, true);
        add("uncounted", Some(library.as_path()), true, false);
    }
    // With a log that all cases share, on both file systems, of which one cannot be logged.
    let folder = tempfile::tempdir_in(build)?;
    let log = TestLog::new(&folder.path().join("log"), LOG_BLOCKS, LOG_FILES);
    for place in &places {
        ways.push(Variant {
            name: format!("logged {}", place.name()),
            program: &plain,
            library: Some(&library),
            writes: false,
            place,
            keeps_positions: false,
            log: Some(&log),
            is_counted: true,
        });
    }
    // The functions with 64 in their names, positions at user level, mapped writes and the log, in one.
    ways.push(Variant {
        name: "bywash large".into(),
        program: &large,
        library: Some(&library),
        writes: true,
        place: &places[0],
        keeps_positions: true,
        log: Some(&log),
        is_counted: true,
    });
    let is_right = play(&cases, &ways);
    let commits = log.shared().counted(Counter::Commits);
    println!("{commits} syncs were absorbed by the log");
    // Only all cases together are sure to sync a file more than once.
    Ok(is_right && (commits > 0 || !wanted.is_empty()))
}

fn list(program: &Path) -> Result<Vec<Case>, Box<dyn Error>> {
    let output = Command::new(program).arg("--list").output()?;
    let lines = String::from_utf8(output.stdout)?;
    lines
        .lines()
        .map(|line| {
            let (name, expects) = line.split_once('\t').ok_or("a line of --list has no tab")?;
            Ok(Case { name: name.into(), expects: expects.parse()? })
        })
        .collect()
}

/// Runs each case each way, two at a time; prints what ends and says whether none failed.
fn play(cases: &[Case], ways: &[Variant]) -> bool {
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let (passed, skipped) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get().min(2));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((case, way)) = pick(cases, ways, next.fetch_add(1, Relaxed)) {
                    let name = format!("{:12} {}", way.name, case.name);
                    match play_one(case, way) {
                        ProgramResult::Passed => {
                            passed.fetch_add(1, Relaxed);
                            println!("ok      {name}");
                        }
                        ProgramResult::Skipped(why) => {
                            skipped.fetch_add(1, Relaxed);
                            println!("skipped {name}: {why}");
                        }
                        ProgramResult::Failed(why) => {
                            println!("FAILED  {name}: {why}");
                            if let Ok(mut failures) = failures.lock() {
                                failures.push(format!("{name}: {why}"));
                            }
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_default();
    println!(
        "\n{} passed, {} failed, {} skipped in {:.1} s",
        passed.into_inner(),
        failures.len(),
        skipped.into_inner(),
        start.elapsed().as_secs_f64()
    );
    for failure in &failures {
        println!("FAILED  {failure}");
    }
    failures.is_empty()
}

fn pick<'a>(cases: &'a [Case], ways: &'a [Variant<'a>], turn: usize) -> Option<(&'a Case, &'a Variant<'a>)> {
    Some((cases.get(turn / ways.len())?, &ways[turn % ways.len()]))
}

fn play_one(case: &Case, way: &Variant) -> ProgramResult {
    let folder = match way.place.folder() {
        Ok(folder) => folder,
        Err(error) => return ProgramResult::Failed(format!("no folder: {error}")),
    };
    let maps_writes = way.writes && case.expects & KERNEL_WRITES == 0;
    let keeper = if way.keeps_positions && case.expects & KERNEL_POSITIONS == 0 { "user" } else { "kernel" };
    let mut environment = vec![
        ("BYWASH_POSITIONS", keeper.into()),
        ("BYWASH_WRITES", if maps_writes { "1" } else { "0" }.into()),
    ];
    if let Some(log) = way.log.filter(|_| case.expects & KERNEL_SYNCS == 0) {
        environment.push(("BYWASH_LOG", log.memory_path()));
    }
    if !way.is_counted {
        environment.push(("BYWASH_SESSION", String::new()));
    }
    let run = Run {
        program: way.program,
        arguments: vec![case.name.clone(), folder.path().to_string_lossy().into_owned()],
        library: way.library,
        environment,
        limit: LIMIT,
    };
    let (outcome, counts) = match run.finish() {
        Ok(ended) => ended,
        Err(error) => return ProgramResult::Failed(format!("not started: {error}")),
    };
    match outcome {
        ProgramResult::Failed(why) => {
            ProgramResult::Failed(format!("{why}\n        by hand: {}", run.by_hand()))
        }
        ProgramResult::Passed if way.library.is_some() && way.is_counted => {
            served(case.expects, way, counts).map_or(ProgramResult::Passed, ProgramResult::Failed)
        }
        other => other,
    }
}

/// Returns the expectation that the counters do not meet, if any.
fn served(expects: u32, way: &Variant, counts: Counts) -> Option<String> {
    let reads = if way.keeps_positions { READS | POSITION_READS } else { READS };
    let wrong = if counts.processes == 0 {
        "the library was not there"
    } else if expects & reads != 0 && counts.user_reads == 0 {
        "no read was served at user level"
    } else if expects & WRITES != 0 && way.maps_writes() && counts.user_writes == 0 {
        "no write was served at user level"
    } else if expects & NO_READS != 0 && counts.user_reads != 0 {
        "a read was served at user level that must be the kernel's"
    } else if (expects & NO_WRITES != 0 || !way.writes) && counts.user_writes != 0 {
        "a write was served at user level that must be the kernel's"
    } else {
        return None;
    };
    Some(format!("{wrong}: {counts:?}"))
}
