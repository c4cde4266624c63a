//! The papers' programs by execution: the Web server and the video server on the machines of the bars of Figures 8 and 9,
//! and in each structure; the streams; and a database.
//!
//! The programs are those of `crates/execute/programs`, compiled for RISC-V Linux by the caller. The servers have a thread
//! for each of the description's threads, and as many clients, each with a connection of its own that is kept.

use super::servers::descriptions_of;
use crate::preset::Preset;
use crate::program::{MachineError, ProgramReport, TimedMachine, run_load};
use bywash_execute::clients::{Body, Load, LoadError, Mix, Request, Span};
use bywash_execute::{End, ExecuteError, Execution, FileSystem, ImportError, Program, Progress, Time};
use bywash_model::{Architecture, Description};

/// Execution of a program: a bar of a figure, or a structure.
#[derive(Clone, Debug)]
pub struct ExecutedBar {
    /// Name of the bar: interconnect, structure, speed of the devices' processors. Of a structure: its name.
    pub name: String,
    /// Throughput of the responses' bodies, or of what a program without clients reads, in bytes per second.
    pub throughput: f64,
    /// Number of responses that were completed; 0 without clients.
    pub responses: u64,
    /// Bytes of bodies that were received, or bytes that were read.
    pub bytes: u64,
    /// Number of requests: responses of the Web server, reads of the other programs, rows of the database.
    pub requests: f64,
    /// Use of the machine meanwhile.
    pub report: ProgramReport,
}

impl ExecutedBar {
    /// Returns the instructions of the program for a request.
    pub fn instructions(&self) -> f64 {
        self.report.instructions as f64 / self.requests
    }

    /// Returns the cycles of the operating system for a request, without those that it waits for memory.
    pub fn system_cycles(&self) -> f64 {
        self.report.sum(|one| one.system_cycles) as f64 / self.requests
    }

    /// Returns the cycles for a request that processors wait for caches and memory, in the program and in the system.
    pub fn stalled_cycles(&self) -> f64 {
        let picoseconds = self.report.sum(|one| one.program_stalled + one.system_stalled) as f64;
        let cycles = self.report.sum(|one| one.second_cycles) as f64;
        (cycles + picoseconds * 1e-12 * self.report.hertz as f64) / self.requests
    }

    /// Returns the system calls for a request.
    pub fn calls(&self) -> f64 {
        self.report.sum(|one| one.calls) as f64 / self.requests
    }
}

/// Reason for which a bar cannot be executed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutedError {
    /// The machine cannot execute programs.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The files do not fit into the simulated file system.
    #[error(transparent)]
    Files(#[from] ImportError),
    /// The program cannot be executed.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The program does not serve its clients.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A program without clients does not end as it should.
    #[error("the program ended with {0}, not with status 0, after it wrote: {1}")]
    Ended(String, String),
}

/// Size of a file of the Web server, in bytes.
const WEB_FILE: usize = 16384;
/// Number of files that stay in the Web server's cache, and of those that never do.
const WEB_FILES: [usize; 2] = [256, 1024];
/// Share of the Web server's requests that miss its cache.
const WEB_MISS: f64 = 0.1;
/// Cache of the Web server: room for the files that stay and for some of the others.
const WEB_CACHE: &str = "8M";
/// Size of a file of the video server, in bytes. A client begins anew when its file has ended.
const VIDEO_FILE: usize = 2 << 20;
/// Page cache of the simulated system, in pages: too small for files to be read from there again.
const CACHE_PAGES: usize = 4096;
/// Port of the servers.
const PORT: u16 = 8080;
/// Bar of Figures 8 and 9 whose machine runs the servers in each structure: on a switch, with devices of 300 MHz.
const SWITCHED: usize = 4;
/// Size of a request of a stream, in bytes.
const STREAM_REQUEST: u64 = 65536;

/// Executes a bar of Figure 8 or 9, in the order of [`figure`](super::servers::figure), with the file of the compiled
/// server's program. `requests` responses of the Web server are measured; of the video server the time in which it reads
/// about so many requests, after half of that. Its streams need some seconds until they no longer move in step. Returns `None` if there is no such bar.
///
/// # Errors
/// [`ExecutedError`] if the program is not what it should be.
pub fn execute_bar(
    figure: u32,
    number: usize,
    program: &[u8],
    requests: u64,
) -> Option<Result<ExecutedBar, ExecutedError>> {
    let (name, description, architecture) = descriptions_of(figure)?.into_iter().nth(number)?;
    Some(
        execute(figure, &description, architecture, program, requests).map(|bar| ExecutedBar { name, ..bar }),
    )
}

/// Executes the Web server (8) or the video server (9) in a structure, on the machine of the figure's switched bar with
/// processors of 300 MHz in its devices; `program` and `requests` as in [`execute_bar`]. The video server of the direct
/// structure sends by sendfile(2). Returns `None` for another number, and for a direct Web server, whose files go through
/// its own cache.
///
/// # Errors
/// [`ExecutedError`] if the program is not what it should be.
pub fn execute_structure(
    figure: u32,
    architecture: Architecture,
    program: &[u8],
    requests: u64,
) -> Option<Result<ExecutedBar, ExecutedError>> {
    let (_, description, _) = descriptions_of(figure)?.into_iter().nth(SWITCHED)?;
    if figure == 8 && architecture == Architecture::Direct {
        return None;
    }
    Some(execute(figure, &description, architecture, program, requests))
}

/// Executes the streams of the preset `schaelicke-streams` in a structure, each of which reads `bytes` bytes of a file of
/// its own, with the file of the compiled program.
///
/// # Errors
/// [`ExecutedError`] if the program is not what it should be.
pub fn execute_streams(
    architecture: Architecture,
    program: &[u8],
    bytes: u64,
) -> Result<ExecutedBar, ExecutedError> {
    let description = streams_machine();
    let streams = description.load.threads as usize;
    let mut files = FileSystem::new(1 << 30);
    let body = vec![b'x'; bytes as usize];
    let paths: Vec<String> = (0..streams).map(|at| format!("/{at}")).collect();
    for path in &paths {
        files.add_file(path, &body)?;
    }
    let words = ["streams".to_owned(), "--request".into(), STREAM_REQUEST.to_string()];
    let bar = execute_alone(&description, architecture, program, words.into_iter().chain(paths), files)?;
    let bytes = bytes * streams as u64;
    let throughput = bytes as f64 / bar.report.seconds;
    Ok(ExecutedBar { bytes, throughput, requests: (bytes / STREAM_REQUEST) as f64, ..bar })
}

/// Executes the database with so many rows and further options on the machine of the preset `schaelicke-streams`, in a
/// structure, with the file of the compiled program, which has SQLite in it. Rows are its requests, and its throughput is
/// that of rows per second.
///
/// # Errors
/// [`ExecutedError`] if the program is not what it should be.
pub fn execute_database(
    architecture: Architecture,
    program: &[u8],
    rows: u64,
    options: &[&str],
) -> Result<ExecutedBar, ExecutedError> {
    let rows_text = rows.to_string();
    let words = ["database", "/accounts", "--rows", &rows_text];
    let words = words.iter().chain(options).map(|&word| word.to_owned());
    let files = FileSystem::new(1 << 30);
    let bar = execute_alone(&streams_machine(), architecture, program, words, files)?;
    Ok(ExecutedBar { throughput: rows as f64 / bar.report.seconds, requests: rows as f64, ..bar })
}

/// Returns the machine of the dissertation's streams.
fn streams_machine() -> Description {
    Preset::named("schaelicke-streams").expect("it comes along").description()
}

/// Executes a program without clients to its end; the caller knows what it has done.
fn execute_alone(
    description: &Description,
    architecture: Architecture,
    program: &[u8],
    words: impl IntoIterator<Item = String>,
    files: FileSystem,
) -> Result<ExecutedBar, ExecutedError> {
    let machine = TimedMachine::new(description, architecture, 1)?;
    let words: Vec<String> = words.into_iter().collect();
    let program_of = Program::new(words.iter().map(String::as_bytes))
        .files(files)
        .cache_pages(CACHE_PAGES)
        .direct_reads(architecture != Architecture::Conventional);
    let mut execution = Execution::new(program, program_of, machine)?;
    let mut text = String::new();
    loop {
        let progress = execution.run()?;
        for (_, bytes) in execution.output() {
            text += &String::from_utf8_lossy(&bytes);
        }
        match progress {
            Progress::Ended(End::Exited(0)) => break,
            Progress::Input => execution.input(b"", true),
            Progress::Output => {}
            other => return Err(ExecutedError::Ended(format!("{other:?}"), text)),
        }
    }
    let report = execution.machine().report();
    let name = architecture.name().to_owned();
    Ok(ExecutedBar { name, throughput: 0.0, responses: 0, bytes: 0, requests: 0.0, report })
}

fn execute(
    figure: u32,
    description: &Description,
    architecture: Architecture,
    program: &[u8],
    requests: u64,
) -> Result<ExecutedBar, ExecutedError> {
    let threads = description.load.threads as usize;
    let count = threads.to_string();
    let request_bytes = description.workload().request_bytes();
    let request = (request_bytes as usize).to_string();
    let mut files = FileSystem::new(1 << 30);
    let web_page = |at: usize| format!("/{at}");
    let (arguments, load) = if figure == 8 {
        let body = vec![b'x'; WEB_FILE];
        for at in 0..WEB_FILES.iter().sum() {
            files.add_file(&web_page(at), &body)?;
        }
        let page = |at: usize| Request::get(&web_page(at)).body(Body::Length(WEB_FILE as u64));
        let mix = Mix::with_misses(
            (0..WEB_FILES[0]).map(page),
            (WEB_FILES[0]..WEB_FILES.iter().sum()).map(page),
            WEB_MISS,
        );
        let load = Load::closed(PORT, threads, mix)
            .warm_up(Span::Responses(2000))
            .measure(Span::Responses(requests));
        (vec!["web", "--root", "/", "--threads", &count, "--cache", WEB_CACHE], load)
    } else {
        let body = vec![b'x'; VIDEO_FILE];
        for at in 0..threads {
            files.add_file(&web_page(at), &body)?;
        }
        let film = |at: usize| Request::get(&web_page(at)).body(Body::Length(VIDEO_FILE as u64));
        let seconds = requests as f64 * request_bytes / 150e6;
        let time = |seconds: f64| Span::Time(Time::from_picoseconds((seconds * 1e12) as u64));
        let load = Load::closed(PORT, threads, Mix::in_order((0..threads).map(film)))
            .warm_up(time((seconds / 2.0).max(0.2)))
            .measure(time(seconds));
        let mut words = vec!["video", "--root", "/", "--threads", &count, "--request", &request];
        if architecture == Architecture::Direct {
            words.push("--sendfile");
        }
        (words, load)
    };
    let machine = TimedMachine::new(description, architecture, 1)?;
    let program_of = Program::new(arguments)
        .files(files)
        .cache_pages(CACHE_PAGES)
        .direct_reads(architecture != Architecture::Conventional);
    let execution = Execution::new(program, program_of, machine)?;
    let (clients, report, _) = run_load(execution, load)?;
    let requests =
        if figure == 8 { clients.responses() as f64 } else { clients.bytes as f64 / request_bytes };
    Ok(ExecutedBar {
        name: architecture.name().to_owned(),
        throughput: clients.bytes_per_second(),
        responses: clients.responses(),
        bytes: clients.bytes,
        requests,
        report,
    })
}
