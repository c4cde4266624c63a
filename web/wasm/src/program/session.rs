//! Questions about one execution, and their answers.

use super::error::{Error, SECONDS_MAX};
use super::examples::{ClientLoad, MadeFiles};
use super::lanes::{Lane, PARTS_MAX, Window, lanes};
use super::run::{Finished, Over, ProgramRun};
use super::words::words;
use crate::reading::{checked, json};
use bywash_execute::clients::{Load, Mix, Request, Span};
use bywash_execute::{CACHE_PAGES, End, Execution, FILE_BYTES, FileSystem};
use bywash_execute::{MEMORY_BYTES, Program, Time};
use bywash_model::Architecture;
use bywash_sim::engine;
use bywash_sim::program::{ClientTimes, FunctionUse, ProgramReport, TimedMachine};
use bywash_sim::trace_events;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Greatest number of spans of devices that are recorded for the drawing, and of those of threads.
const SPANS_MAX: usize = 1_000_000;
/// Number of functions in a result.
const FUNCTIONS_MAX: usize = 30;
/// Exit status of a run that was over before its program.
const STATUS_OVER: i32 = 124;

/// Question about a program.
#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
enum Question {
    /// Begins an execution. The passed bytes are the program and then the files, with nothing in between.
    Begin(Box<Start>),
    /// Executes about so many instructions, with those of the system.
    Continue { instructions: u64 },
    /// Ends the execution, and returns its result so far.
    Result,
    /// Returns a window of the timeline, from and to a time in seconds, in parts of equal length.
    Lanes { from: f64, to: f64, parts: usize },
    /// Returns the timeline as a file for Perfetto.
    Spans,
}

/// Program with its world.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    description: Value,
    architecture: Architecture,
    /// Size of the program's file, in bytes.
    program: usize,
    /// Name of the program, its first argument.
    name: String,
    /// Further arguments.
    arguments: String,
    /// Files whose bytes are passed.
    files: Vec<PassedFile>,
    /// Files that are made.
    made: Vec<MadeFiles>,
    clients: Option<ClientLoad>,
    /// Limit of the simulated time, in seconds.
    seconds: f64,
    seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PassedFile {
    path: String,
    /// Size of the file, in bytes.
    bytes: usize,
}

/// State of an execution after a step.
#[derive(Serialize)]
struct Told {
    /// Simulated time, in seconds.
    seconds: f64,
    /// Number of instructions that the program has executed.
    instructions: u64,
    /// Number of responses that clients have received.
    responses: u64,
    /// Output of the program in this step.
    output: String,
    /// True if the execution is over.
    is_over: bool,
}

/// Result of an execution; the same as that of the command with `--json`, and more.
#[derive(Serialize)]
struct Outcome {
    architecture: Architecture,
    /// Exit status, as the command has it; null if the execution was stopped.
    status: Option<i32>,
    /// Reason for which the execution is over, for people; empty if the program has ended by itself.
    reason: String,
    #[serde(flatten)]
    report: ProgramReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<ClientTimes>,
    functions: Vec<FunctionUse>,
    /// Simulated time at which the execution was over, in seconds.
    end: f64,
    /// Simulated time until which the timeline has all spans, in seconds.
    recorded: f64,
}

/// Window of a timeline.
#[derive(Serialize)]
struct Lanes {
    lanes: Vec<Lane>,
}

/// One execution of a program: begun, continued, and looked at when it is over.
#[derive(Default)]
pub struct Session {
    /// Bytes of the program and its files.
    bytes: Vec<u8>,
    stage: Stage,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    Running(Architecture, Box<ProgramRun>),
    Over(Box<Finished>),
}

impl Session {
    /// Makes room for the bytes of a program and its files, and returns it.
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        self.bytes = vec![0; bytes];
        &mut self.bytes
    }

    /// Answers a question.
    pub fn reply(&mut self, question: &str) -> String {
        let asked = serde_json::from_str(question).map_err(Error::Question);
        let told = match asked.and_then(|asked| self.done(asked)) {
            Ok(done) => serde_json::json!({ "done": done }),
            Err(refused) => serde_json::json!({ "refused": refused.to_string() }),
        };
        told.to_string()
    }

    fn done(&mut self, question: Question) -> Result<Value, Error> {
        match question {
            Question::Begin(start) => {
                let architecture = start.architecture;
                let run = begin(*start, &std::mem::take(&mut self.bytes))?;
                self.stage = Stage::Running(architecture, Box::new(run));
                Ok(Value::Null)
            }
            Question::Continue { instructions } => {
                let Stage::Running(_, run) = &mut self.stage else { return Err(Error::State("is running")) };
                run.step(instructions)?;
                Ok(json(&Told {
                    seconds: run.execution().time().picoseconds() as f64 / 1e12,
                    instructions: run.execution().retired(),
                    responses: run.responses(),
                    output: run.take_output(),
                    is_over: run.over().is_some(),
                })?)
            }
            Question::Result => match std::mem::take(&mut self.stage) {
                Stage::Running(architecture, run) => {
                    let (status, reason) = ended(run.over());
                    let finished = run.finish();
                    let outcome = Outcome::new(architecture, status, reason, &finished);
                    self.stage = Stage::Over(Box::new(finished));
                    Ok(json(&outcome)?)
                }
                other => {
                    self.stage = other;
                    Err(Error::State("is running"))
                }
            },
            Question::Lanes { from, to, parts } => {
                let [from, to] = [from, to].map(|at| engine::Time((at.max(0.0) * 1e12) as u64));
                let window = Window { from, to, parts: parts.clamp(1, PARTS_MAX) };
                Ok(json(&Lanes { lanes: lanes(&self.finished()?.timeline, window) })?)
            }
            Question::Spans => {
                let mut timeline = self.finished()?.timeline.clone();
                timeline.threads.truncate(trace_events::SPANS_MAX);
                timeline.parts.spans.truncate(trace_events::SPANS_MAX);
                let mut file = Vec::new();
                // Writing to memory does not fail.
                let _ = trace_events::write_program(&mut file, &timeline);
                Ok(Value::from(String::from_utf8_lossy(&file).into_owned()))
            }
        }
    }

    fn finished(&self) -> Result<&Finished, Error> {
        match &self.stage {
            Stage::Over(finished) => Ok(finished),
            _ => Err(Error::State("is over")),
        }
    }
}

impl Outcome {
    fn new(architecture: Architecture, status: Option<i32>, reason: String, finished: &Finished) -> Outcome {
        let spans = &finished.timeline.parts.spans;
        let is_full = spans.len() >= SPANS_MAX;
        let latest = spans.last().map_or(0.0, |span| span.to.seconds());
        Outcome {
            architecture,
            status,
            reason,
            report: finished.report.clone(),
            clients: finished.clients.clone(),
            functions: finished.functions.iter().take(FUNCTIONS_MAX).cloned().collect(),
            end: finished.end,
            recorded: if is_full { latest } else { finished.end },
        }
    }
}

/// Begins an execution.
fn begin(start: Start, bytes: &[u8]) -> Result<ProgramRun, Error> {
    let Start { description, architecture, name, seed, .. } = start;
    let description = checked(&description)?;
    if !(start.seconds > 0.0 && start.seconds <= SECONDS_MAX) {
        return Err(Error::Time);
    }
    let machine =
        TimedMachine::new(&description, architecture, seed)?.with_profile().with_timeline(SPANS_MAX);
    let wanted = start.files.iter().fold(start.program, |sum, file| sum.saturating_add(file.bytes));
    if wanted > bytes.len() {
        return Err(Error::Bytes { given: bytes.len(), wanted });
    }
    let (program, mut rest) = bytes.split_at(start.program);
    // In the order of the command, which copies a folder: files have their numbers by it, and numbers choose disks.
    let mut contents: BTreeMap<String, &[u8]> = BTreeMap::new();
    for PassedFile { path, bytes } in &start.files {
        let (file, behind) = rest.split_at(*bytes);
        contents.insert(path.clone(), file);
        rest = behind;
    }
    let most = start.made.iter().map(|made| made.bytes).max().unwrap_or(0);
    let content = vec![b'x'; most as usize];
    for MadeFiles { folder, count, bytes } in &start.made {
        let names = (0..*count).map(|number| format!("{folder}/{number}"));
        contents.extend(names.map(|name| (name, &content[..*bytes as usize])));
    }
    let mut files = FileSystem::new(FILE_BYTES);
    for (path, bytes) in contents {
        files.add_file(&path, bytes)?;
    }
    let arguments = std::iter::once(name).chain(words(&start.arguments)?);
    let program_of = Program::new(arguments)
        .files(files)
        .seed(seed)
        .memory_bytes(MEMORY_BYTES)
        .cache_pages(CACHE_PAGES)
        .direct_reads(architecture != Architecture::Conventional && description.mechanisms.transfer);
    let execution = Execution::new(program, program_of, machine)?;
    let load = start.clients.map(|clients| load(&clients, seed)).transpose()?;
    ProgramRun::new(execution, load, Time::from_picoseconds((start.seconds * 1e12) as u64))
}

/// Returns the load of clients. A tenth of the responses comes before the measurement.
fn load(clients: &ClientLoad, seed: u64) -> Result<Load, Error> {
    let paths = words(&clients.paths)?;
    if paths.is_empty() {
        return Err(Error::NoPaths);
    }
    let mix = Mix::uniform(paths.iter().map(|path| Request::get(path)));
    let requests = u64::from(clients.requests);
    let load = Load::closed(clients.port, clients.clients as usize, mix);
    let load = load.warm_up(Span::Responses(requests.div_ceil(10)));
    Ok(load.measure(Span::Responses(requests)).seed(seed))
}

/// Returns the exit status and the reason for which an execution is over.
fn ended(over: Option<&Over>) -> (Option<i32>, String) {
    match over {
        None => (None, "stopped: this is what was executed until then".into()),
        Some(Over::Ended(End::Exited(status))) => (Some(i32::from(*status)), String::new()),
        Some(Over::Ended(End::Killed { signal, message })) => {
            (Some(128 + *signal as i32), format!("the program was ended by signal {signal}: {message}"))
        }
        Some(Over::Measured) => (Some(0), String::new()),
        Some(Over::Limit) => {
            (Some(STATUS_OVER), "the limit of simulated time was reached before the program’s end".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading;
    use bywash_sim::preset::Preset;
    use bywash_support::riscv;
    use serde_json::json;

    /// Returns an executable that writes "hello" and ends with the status 3.
    fn hello() -> Vec<u8> {
        let code = [
            0x0010_0513,
            0x0000_0597,
            0x0205_8593,
            0x0060_0613,
            0x0400_0893,
            0x0000_0073_u32,
            0x0030_0513,
            0x05d0_0893,
            0x0000_0073,
        ];
        let (start, length) = (0x1_0000, 120 + 36 + 6);
        let file =
            [0x0001_0102_464c_457f, 0, 2 | 243 << 16 | 1 << 32, start + 120, 64, 0, 64 << 32 | 56 << 48, 1];
        let segment = [1 | 5 << 32, 0, start, start, length, length, 0x1000_u64];
        let mut bytes: Vec<u8> = file.iter().chain(&segment).flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(code.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(b"hello\n");
        bytes
    }

    fn ask(session: &mut Session, question: &Value) -> Value {
        serde_json::from_str(&session.reply(&question.to_string())).unwrap()
    }

    fn start(preset: &str, program: usize, name: &str) -> Value {
        let description = reading::read(Preset::named(preset).unwrap().text).unwrap();
        json!({
            "ask": "begin", "description": description, "architecture": "conventional", "program": program,
            "name": name, "arguments": "", "files": [], "made": [], "clients": null, "seconds": 1.0, "seed": 1,
        })
    }

    /// Begins an execution and continues it in steps of so many instructions until it is over. Returns its output and
    /// its result.
    fn executed(bytes: &[u8], question: &Value, instructions: u64) -> (Session, String, Value) {
        let mut session = Session::default();
        session.room(bytes.len()).copy_from_slice(bytes);
        assert_eq!(ask(&mut session, question), json!({ "done": null }));
        let mut output = String::new();
        loop {
            let told = ask(&mut session, &json!({ "ask": "continue", "instructions": instructions }));
            output += told["done"]["output"].as_str().unwrap_or_else(|| panic!("{told}"));
            if told["done"]["is_over"] == true {
                break;
            }
        }
        let result = ask(&mut session, &json!({ "ask": "result" }))["done"].clone();
        (session, output, result)
    }

    #[test]
    fn a_program_is_executed_and_looked_at() {
        let bytes = hello();
        let (mut session, output, result) = executed(&bytes, &start("today-25g", bytes.len(), "hello"), 1000);
        assert_eq!(output, "hello\n");
        assert_eq!(
            (&result["status"], &result["instructions"], &result["reason"]),
            (&json!(3), &json!(9), &json!(""))
        );
        let end = result["end"].as_f64().unwrap();
        assert_eq!(result["recorded"].as_f64(), Some(end));
        let window = json!({ "ask": "lanes", "from": 0.0, "to": end, "parts": 50 });
        let lanes = ask(&mut session, &window)["done"]["lanes"].clone();
        let lane = |name: &str| lanes.as_array().unwrap().iter().find(|lane| lane["name"] == name).cloned();
        assert_eq!(lane("processor 0").unwrap()["busy"].as_array().unwrap().len(), 50);
        assert!(lane("memory bus").is_some() && lane("128 memory banks").is_some(), "{lanes}");
        let file = ask(&mut session, &json!({ "ask": "spans" }))["done"].clone();
        let file: Value = serde_json::from_str(file.as_str().unwrap()).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        assert!(events.iter().any(|event| event["name"] == "thread 1" && event["dur"].as_f64() > Some(0.0)));
    }

    #[test]
    fn steps_do_not_change_a_run() {
        let test = "steps_do_not_change_a_run";
        let Some(compiler) = riscv::compiler() else { return riscv::skip(test, "gcc-riscv64-linux-gnu") };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("web");
        riscv::build(&compiler, &[riscv::program("web")], &["-w".into(), "-pthread".into()], &file);
        let bytes = std::fs::read(file).unwrap();
        let mut question = start("today-25g", bytes.len(), "web");
        question["arguments"] = json!("--root /www --threads 4 --cache 1M");
        question["made"] = json!([{ "folder": "/www", "count": 100, "bytes": 16384 }]);
        question["clients"] = json!({ "clients": 4, "paths": "/{0..99}", "requests": 200, "port": 8080 });
        for architecture in ["conventional", "user-level"] {
            question["architecture"] = json!(architecture);
            let (_, output, whole) = executed(&bytes, &question, 1_000_000_000);
            assert_eq!(output, "listening at port 8080\n");
            assert_eq!(
                (&whole["status"], &whole["clients"]["responses"]),
                (&json!(0), &json!(200)),
                "{whole}"
            );
            assert!(whole["functions"].as_array().unwrap().len() > 10, "{whole}");
            for instructions in [700, 20_000] {
                let (_, _, stepped) = executed(&bytes, &question, instructions);
                assert_eq!(stepped, whole, "{architecture}, {instructions}");
            }
        }
    }

    #[test]
    fn an_execution_stops_at_its_limit_or_when_it_is_told_to() {
        let bytes = hello();
        let mut question = start("today-25g", bytes.len(), "hello");
        question["seconds"] = json!(1e-9);
        let (_, _, result) = executed(&bytes, &question, 1000);
        assert_eq!(result["status"], 124);
        assert!(result["reason"].as_str().unwrap().contains("limit of simulated time"), "{result}");
        let mut session = Session::default();
        session.room(bytes.len()).copy_from_slice(&bytes);
        ask(&mut session, &start("today-25g", bytes.len(), "hello"));
        ask(&mut session, &json!({ "ask": "continue", "instructions": 1 }));
        let result = ask(&mut session, &json!({ "ask": "result" }))["done"].clone();
        assert_eq!(result["status"], Value::Null);
        assert!(result["reason"].as_str().unwrap().starts_with("stopped"), "{result}");
    }

    #[test]
    fn what_cannot_be_executed_is_refused_with_the_reason() {
        let bytes = hello();
        let with = |pointer: &str, value: Value| {
            let mut question = start("today-25g", bytes.len(), "hello");
            *question.pointer_mut(pointer).unwrap() = value;
            question
        };
        let clients = |paths: &str, clients: u32| json!({ "clients": clients, "paths": paths, "requests": 1, "port": 80 });
        for (question, wanted) in [
            (json!({ "ask": "weather" }), "not a question"),
            (json!({ "ask": "continue", "instructions": 1 }), "no program is running"),
            (json!({ "ask": "spans" }), "no program is over"),
            (start("carrera-table-2", bytes.len(), "hello"), "has no machine.memory"),
            (with("/program", json!(1000)), "162 bytes were passed, and the program with its files has 1000"),
            (with("/program", json!(60)), "cannot load the program"),
            (with("/seconds", json!(0)), "simulated time"),
            (with("/architecture", json!("active")), "conventional or user-level"),
            (with("/arguments", json!("{1..5000}")), "more than 4096 words"),
            (with("/clients", clients("", 1)), "nothing to get"),
            (with("/clients", clients("/", 0)), "clients"),
        ] {
            let mut session = Session::default();
            session.room(bytes.len()).copy_from_slice(&bytes);
            let refused = ask(&mut session, &question);
            let refused = refused["refused"].as_str().unwrap_or_else(|| panic!("{question}: {refused}"));
            assert!(refused.contains(wanted), "{refused}");
        }
        // A program that ends does not serve its clients.
        let mut session = Session::default();
        session.room(bytes.len()).copy_from_slice(&bytes);
        ask(&mut session, &with("/clients", clients("/", 1)));
        let refused = ask(&mut session, &json!({ "ask": "continue", "instructions": 1_000_000 }));
        assert!(refused["refused"].as_str().unwrap().contains("the program ended"), "{refused}");
    }
}
