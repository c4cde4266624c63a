//! Figures 8 and 9 by execution: the paper's Web server and its video server run as programs on the machines of the bars.
//!
//! The programs are those of `crates/execute/programs`, compiled for RISC-V Linux by the caller. They have a thread for each
//! of the description's threads, and as many clients, each with a connection of its own that is kept.

use super::servers::descriptions_of;
use crate::program::{MachineError, ProgramReport, TimedMachine, run_load};
use bywash_execute::clients::{Body, Load, LoadError, Mix, Request, Span};
use bywash_execute::{ExecuteError, Execution, FileSystem, ImportError, Program, Time};
use bywash_model::{Architecture, Description};

/// Bar of a figure, from the execution of its server.
#[derive(Clone, Debug)]
pub struct ExecutedBar {
    /// Name of the bar: interconnect, structure, speed of the devices' processors.
    pub name: String,
    /// Throughput of the responses' bodies, in bytes per second.
    pub throughput: f64,
    /// Number of responses that were completed.
    pub responses: u64,
    /// Bytes of bodies that were received.
    pub bytes: u64,
    /// Use of the machine meanwhile.
    pub report: ProgramReport,
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

fn execute(
    figure: u32,
    description: &Description,
    architecture: Architecture,
    program: &[u8],
    requests: u64,
) -> Result<ExecutedBar, ExecutedError> {
    let threads = description.load.threads as usize;
    let count = threads.to_string();
    let request_bytes = (description.workload().request_bytes() as usize).to_string();
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
        let seconds = requests as f64 * description.workload().request_bytes() / 150e6;
        let time = |seconds: f64| Span::Time(Time::from_picoseconds((seconds * 1e12) as u64));
        let load = Load::closed(PORT, threads, Mix::in_order((0..threads).map(film)))
            .warm_up(time((seconds / 2.0).max(0.2)))
            .measure(time(seconds));
        (vec!["video", "--root", "/", "--threads", &count, "--request", &request_bytes], load)
    };
    let machine = TimedMachine::new(description, architecture, 1)?;
    let program_of = Program::new(arguments)
        .files(files)
        .cache_pages(CACHE_PAGES)
        .direct_reads(architecture != Architecture::Conventional);
    let execution = Execution::new(program, program_of, machine)?;
    let (clients, report, _) = run_load(execution, load)?;
    Ok(ExecutedBar {
        name: String::new(),
        throughput: clients.bytes_per_second(),
        responses: clients.responses(),
        bytes: clients.bytes,
        report,
    })
}
