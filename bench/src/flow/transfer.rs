//! Programs of a side, as lines of words, and the hosts that they run in: network namespaces of this machine.
//!
//! | in a line | becomes |
//! |---|---|
//! | `{NAME}` | the value that the caller gives for it |
//! | `{at}`, `{host}`, `{port}` | the address at which a program listens or to which the sender connects, and its parts |
//! | `{next}` | the address to which the program in the middle connects |
//! | `{=NAME}` | the path of the program NAME |
//! | `<FILE`, `>FILE` | standard input, standard output |
//!
//! Words end at spaces outside of apostrophes, before values are put in. The first one is a program; `bywash` is this one.

use crate::child::{self, Process};
use crate::error::{Attempt, Error};
use crate::interrupt;
use crate::programs::require;
use bywash_support::hosts::{Host, Hosts, MTU};
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Port at which programs in hosts of their own listen.
const PORT: u16 = 7301;
/// Greatest time until a program listens.
const TIMEOUT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_micros(500);
/// Time until frames are received; no table of the kernel shows it.
const FRAMES_READY: Duration = Duration::from_millis(200);

/// Names in braces, with what they become.
pub type Values = Vec<(&'static str, String)>;

/// Network of a transfer: a row of hosts, or the loopback interface of this machine.
pub struct Net(pub Option<Hosts>);

/// Kind of packets that a program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
    Ethernet,
}

/// Programs of a transfer.
pub struct Transfer<'a> {
    pub protocol: Protocol,
    /// Lines of the sender, of the program that passes on, and of the receiver; empty where there is none.
    pub lines: [&'a str; 3],
    /// True if the program in the middle ends by SIGTERM, and not with the connection.
    pub is_told: bool,
    pub values: Values,
}

/// Result of a transfer.
pub struct Transferred {
    /// Time from the start of the sender to the end of the receiver.
    pub seconds: f64,
    /// Time from the start of the sender to the end of both.
    pub seconds_of_both: f64,
    /// CPU time of the program in the middle, if there is one, else of both others; or the error of one of them.
    pub cpu_seconds: Result<f64, Error>,
    /// Output of the sender and the receiver.
    pub told: [String; 2],
}

impl Net {
    /// A row of hosts.
    pub fn hosts(count: u8) -> Result<Net, Error> {
        let hosts = Hosts::row(count, MTU).map_err(|reason| {
            let remedy = "hosts of their own need root, or unshare --user --map-root-user --net";
            Error::Unavailable(format!("{reason}; {remedy}"))
        })?;
        Ok(Net(Some(hosts)))
    }

    /// Address in one of the hosts; a new one each time on loopback.
    fn address(&self, host: fn(&Hosts) -> &Host) -> Result<SocketAddr, Error> {
        self.0.as_ref().map_or_else(free_address, |hosts| Ok((host(hosts).address(), PORT).into()))
    }

    fn start(&self, host: fn(&Hosts) -> &Host, program: (Command, bool)) -> Result<Process, Error> {
        let (mut command, is_telling) = program;
        let start = if is_telling { Process::start_telling } else { Process::start };
        match &self.0 {
            Some(hosts) => host(hosts).run(|| start(&mut command)),
            None => start(&mut command),
        }
    }

    /// Runs the programs of a transfer to their ends.
    pub fn run(&self, transfer: &Transfer) -> Result<Transferred, Error> {
        let Transfer { protocol, lines: [sender, middle, receiver], is_told, values } = transfer;
        let last = self.address(Hosts::last)?;
        let first = if middle.is_empty() { last } else { self.address(Hosts::middle)? };
        let program = |line: &str, at: SocketAddr| {
            let mut values = values.clone();
            values.extend([("{at}", at.to_string()), ("{next}", last.to_string())]);
            values.extend([("{host}", at.ip().to_string()), ("{port}", at.port().to_string())]);
            command(line, &values)
        };
        let waiting = |host, line: &str, at: SocketAddr| {
            let process =
                |program| self.start(host, program).and_then(|process| protocol.wait(process, at.port()));
            (!line.is_empty()).then(|| program(line, at).and_then(process)).transpose()
        };
        let sender = program(sender, first)?;
        let receiver = waiting(Hosts::last, receiver, last)?;
        let middle = waiting(Hosts::middle, middle, first)?;
        let begin = Instant::now();
        let sender = self.start(Hosts::first, sender)?;
        let receiver = receiver.map(Process::wait).transpose()?;
        let seconds = begin.elapsed().as_secs_f64();
        let mut sender = sender.wait()?;
        let seconds_of_both = begin.elapsed().as_secs_f64();
        let of_middle =
            middle.map(|middle| if *is_told { middle.end() } else { middle.finish() }).transpose()?;
        let mut told = [std::mem::take(&mut sender.stdout), String::new()];
        let mut cpu_seconds = sender.success();
        if let Some(mut receiver) = receiver {
            told[1] = std::mem::take(&mut receiver.stdout);
            cpu_seconds = cpu_seconds.and_then(|of_sender| Ok(of_sender + receiver.success()?));
        }
        let cpu_seconds = cpu_seconds.map(|of_both| of_middle.unwrap_or(of_both));
        Ok(Transferred { seconds, seconds_of_both, cpu_seconds, told })
    }
}

impl Protocol {
    /// Waits until the program listens at `port` of the host that it runs in.
    fn wait(self, mut process: Process, port: u16) -> Result<Process, Error> {
        let begin = Instant::now();
        while !self.is_open(process.id(), port, begin) {
            interrupt::check()?;
            if process.has_ended() || begin.elapsed() > TIMEOUT {
                return Err(process.failure(format!("does not listen at port {port}")));
            }
            thread::sleep(LOOK);
        }
        Ok(process)
    }

    /// Returns whether a socket of the host that `process` runs in waits at `port`.
    fn is_open(self, process: u32, port: u16, begin: Instant) -> bool {
        // The states of sockets that wait, in the tables of proc_pid_net(5).
        let (tables, state) = match self {
            Protocol::Tcp => (["tcp", "tcp6"], "0A"),
            Protocol::Udp => (["udp", "udp6"], "07"),
            Protocol::Ethernet => return begin.elapsed() > FRAMES_READY,
        };
        let port = format!(":{port:04X}");
        let is_listener = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&port)) && fields.nth(1) == Some(state)
        };
        tables.iter().any(|table| {
            let text = fs::read_to_string(format!("/proc/{process}/net/{table}"));
            text.is_ok_and(|text| text.lines().any(is_listener))
        })
    }
}

/// Returns an address of the loopback interface at which nobody listens.
pub fn free_address() -> Result<SocketAddr, Error> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map_err(|error| Error::failed("a socket", error.to_string()))
}

/// The command of a line, and whether its output goes to no file and is kept.
fn command(line: &str, values: &Values) -> Result<(Command, bool), Error> {
    let mut words = line.split('\'').enumerate().flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    let mut command = Command::new(path_of(words.next().unwrap_or_default())?);
    command.stdin(Stdio::null());
    let mut is_telling = true;
    for word in words {
        let word = values.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value));
        if let Some(name) = word.strip_prefix("{=") {
            command.arg(path_of(name.trim_end_matches('}'))?);
        } else if let Some(path) = word.strip_prefix('<').map(Path::new) {
            command.stdin(File::open(path).doing("open", path)?);
        } else if let Some(path) = word.strip_prefix('>').map(Path::new) {
            command.stdout(File::create(path).doing("create", path)?);
            is_telling = false;
        } else {
            command.arg(word);
        }
    }
    Ok((command, is_telling))
}

fn path_of(name: &str) -> Result<PathBuf, Error> {
    let package = match name {
        "bywash" => return child::this_program(),
        "haproxy" => "haproxy",
        "mbuffer" => "mbuffer",
        "nc.openbsd" => "netcat-openbsd",
        "pv" => "pv",
        "socat" => "socat",
        _ => "coreutils",
    };
    require(name, package)
}

/// The member of the JSON that `bywash flow` has printed; its own error if there is none.
pub fn reported<T: DeserializeOwned>(text: &str, pointer: &str) -> Result<T, Error> {
    let report: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let member = report.pointer(pointer).and_then(|member| T::deserialize(member).ok());
    let why = report["error"].as_str().unwrap_or(text.trim());
    member.ok_or_else(|| Error::failed("bywash flow", format!("does not report {pointer}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_words_values_and_files_and_their_failures_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out of it");
        let values = vec![("{out}", out.display().to_string()), ("{word}", "a b".into())];
        let run = |sender: &str| {
            let (protocol, lines) = (Protocol::Tcp, [sender, "", ""]);
            Net(None).run(&Transfer { protocol, lines, is_told: false, values: values.clone() })
        };
        let done = run("sh -c 'cat; echo \"$0\" \"$1\"' {=cat} -{word}").unwrap();
        assert!(done.told[0].ends_with("/cat -a b\n") && done.cpu_seconds.is_ok(), "{}", done.told[0]);
        assert!(run("cat </proc/version >{out}").unwrap().seconds_of_both > 0.0);
        assert!(fs::read_to_string(&out).unwrap().starts_with("Linux"));
        assert!(run("false").unwrap().cpu_seconds.unwrap_err().to_string().ends_with("status: 1"));
        assert!(run("no-such-program").err().unwrap().is_absence());
    }

    #[test]
    fn a_flow_reports_its_members_or_says_why_not() {
        let text = r#"{"bytes": 9, "error": null, "pieces": [{"datagrams": [{"lost": 1}]}]}"#;
        assert_eq!(reported::<u64>(text, "/pieces/0/datagrams/0/lost").unwrap(), 1);
        let refused = reported::<u64>(r#"{"pieces": [], "error": "nobody answers"}"#, "/pieces/0/lost");
        assert!(refused.unwrap_err().to_string().contains("nobody answers"));
        assert!(reported::<u64>("no JSON", "/bytes").unwrap_err().to_string().contains("no JSON"));
    }
}
