//! Every kind of end and every fault, as docs/internals/faults.md has them: the table there is what is
//! expected here.

use super::hosts::{wait_for_frames, wait_for_socket};
use super::{BackgroundChild, Mounted, noise, reset, wait_for};
use crate::place::{TestFolder, bywash, stderr};
use bywash_support::hosts::{Hosts, MTU};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const TABLE: &str = include_str!("../../../../../docs/internals/faults.md");
const PORT: u16 = 7301;
/// Time after which something happens to a sender, seconds before it would be done.
const MIDDLE: Duration = Duration::from_millis(700);
/// Enough for seconds at the rate of a sender, and for a disk of 8 MiB.
const BYTES: usize = 24 << 20;

/// Samples of sound a second, which are some 3 MB.
const SAMPLES_PER_S: u32 = 768_000;

/// Header of sound without an end, of two channels of 16 bits.
fn wav_header() -> Vec<u8> {
    let words = [16, 2 << 16 | 1, SAMPLES_PER_S, 4 * SAMPLES_PER_S, 16 << 16 | 4];
    let words: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    [b"RIFF\xff\xff\xff\xffWAVEfmt ".as_slice(), &words, b"data\xff\xff\xff\xff"].concat()
}

/// A kind of end: what the receiver and the sender say, and how it is known that the receiver is there.
struct Kind {
    receiver: String,
    sender: String,
    ready: Ready,
}

enum Ready {
    /// A row of a table of /proc/net.
    Socket(&'static str, u16),
    /// A socket of Ethernet that receives.
    Frames,
    /// A name.
    Name(&'static str),
    /// A pipe between the two is there from the beginning, and a file needs no receiver.
    Already,
}

fn kind(end: &str, hosts: &Hosts) -> Kind {
    let (first, last) = (hosts.first().port(), hosts.last().port());
    let at = format!("{}:{PORT}", hosts.last().address());
    let tcp = |options: &str| Kind {
        receiver: format!("tcp-listen:{at}{options},timeout=3"),
        sender: format!("tcp:{at}{options},timeout=3"),
        ready: Ready::Socket("tcp", PORT),
    };
    let udp = |receiver: &str, sender: &str| Kind {
        receiver: format!("udp-listen:{at}{receiver}"),
        sender: format!("udp:{at}{sender}"),
        ready: Ready::Socket("udp", PORT),
    };
    let named = |kind: &str, options: &str| Kind {
        receiver: format!("{kind}-listen:s{options}"),
        sender: format!("{kind}:s{options}"),
        ready: Ready::Name("s"),
    };
    match end {
        "tcp" => tcp(""),
        "tcp, whole" => tcp(",whole"),
        "unix" => named("unix", ""),
        "unix, whole" => named("unix", ",whole"),
        "mem" => named("mem", ""),
        "QUIC" => udp(",reliable,timeout=3", ",reliable,insecure,timeout=3"),
        "udp, sequenced" => udp(",sequenced,idle=2", ",sequenced"),
        "udp" => udp(",idle=2,lossy", ""),
        "rtp" => Kind {
            receiver: format!("rtp:{at},rate={SAMPLES_PER_S},timeout=1"),
            sender: format!("rtp:{at}"),
            ready: Ready::Socket("udp", PORT),
        },
        "eth" => Kind {
            receiver: format!("eth-listen:{},port=5,idle=2", last.interface),
            sender: format!("eth:{},to={},port=5", first.interface, last.mac),
            ready: Ready::Frames,
        },
        "pipe" => Kind { receiver: "-".into(), sender: "-".into(), ready: Ready::Already },
        other => panic!("there is no end '{other}'"),
    }
}

/// `bywash flow -q` with these words, which signals end as if a person had started it.
fn command(place: &TestFolder, words: &[&str]) -> Command {
    let mut command = place.command("env");
    command.arg("--default-signal").arg(bywash()).args(["flow", "-q"]).args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(mut command: Command) -> BackgroundChild {
    BackgroundChild(command.spawn().unwrap())
}

/// End of the receiver: its exit status, the file that it wrote if any, and its messages.
fn outcome(end: &str, fault: &str) -> (i32, String, String) {
    let (hosts, place) = (Hosts::two(MTU), TestFolder::new());
    let full = (fault == "full disk").then(|| Mounted::make("ext4", 8 << 20));
    let folder = full.as_ref().map_or(place.path().to_owned(), |full| full.path().into());
    let to = folder.join("to");
    fs::write(&to, "old").unwrap();
    let header = if end == "rtp" { wav_header() } else { Vec::new() };
    let from = place.file("from", [header, noise(BYTES)].concat());
    let rate = if full.is_some() { "60M" } else { "4M" };
    let to_word = to.to_str().unwrap();
    let (receiver, sender) = if end == "file" {
        (start(command(&place, &["--rate", rate, "from", to_word])), None)
    } else {
        both(end, fault, &hosts, &place, (to_word, rate))
    };
    std::thread::sleep(MIDDLE);
    let victim = sender.as_ref().unwrap_or(&receiver);
    match fault {
        "kill" => victim.signal("KILL"),
        "interrupt" => victim.signal("INT"),
        "shrink" => fs::OpenOptions::new().write(true).open(&from).unwrap().set_len(1000).unwrap(),
        "dead link" => hosts.first().ip(&format!("link set {} down", hosts.first().port().interface)),
        _ => {}
    }
    let ended = receiver.finish();
    let name = match (fs::read(&to).unwrap() == b"old", folder.join("to.partial").exists()) {
        (false, false) => "to",
        (true, true) => "to.partial",
        (true, false) => "nothing",
        (false, true) => "both",
    };
    let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
    let status = ended.status.code().or(signal.map(|signal| 128 + signal)).unwrap();
    (status, name.into(), stderr(&ended))
}

/// A receiver, and what sends to it.
fn both(
    end: &str,
    fault: &str,
    hosts: &Hosts,
    place: &TestFolder,
    to_and_rate: (&str, &str),
) -> (BackgroundChild, Option<BackgroundChild>) {
    let ((to, rate), kind) = (to_and_rate, kind(end, hosts));
    let mut receives = command(place, &[&kind.receiver, to]);
    let mut sends = command(place, &["--rate", rate, "from", &kind.sender]);
    if end == "pipe" {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        receives.stdin(reader);
        sends.stdout(writer);
    }
    let receiver = hosts.last().run(|| start(receives));
    match kind.ready {
        Ready::Socket(table, port) => wait_for_socket(hosts.last(), table, port),
        Ready::Frames => wait_for_frames(hosts.last(), 1),
        Ready::Name(name) => wait_for("the name", || place.path().join(name).exists()),
        Ready::Already => {}
    }
    if fault == "reset" {
        let address = (hosts.last().address(), PORT);
        let mut peer = hosts.first().run(|| std::net::TcpStream::connect(address).unwrap());
        // Who expects frames has refused it by then.
        let _ = peer.write_all(&noise(1 << 20));
        std::thread::sleep(MIDDLE);
        reset(peer);
        return (receiver, None);
    }
    (receiver, Some(hosts.first().run(|| start(sends))))
}

/// Does what every cell of a row says.
fn row(end: &str) {
    let table = TABLE.split_once("<!-- faults -->").unwrap().1;
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = table.lines().filter(|line| line.starts_with('|'));
    let faults = cells(lines.next().unwrap());
    let row = lines.map(cells).find(|row| row[0] == end).unwrap_or_else(|| panic!("there is no row '{end}'"));
    assert_eq!(row.len(), faults.len(), "{end}");
    for (fault, expected) in faults.iter().zip(&row).skip(1).filter(|cell| cell.1 != "-") {
        let (what, said) = expected.split_once(": ").unwrap_or((expected, ""));
        let (status, name) = what.split_once(", ").unwrap();
        let (came_status, came_name, told) = outcome(end, fault);
        let came = (came_status.to_string(), came_name);
        let wanted = (status.to_owned(), name.trim_matches('`').to_owned());
        assert_eq!(came, wanted, "{end}, {fault}: {told}");
        assert!(
            said.split(" / ").any(|said| told.contains(said)),
            "{end}, {fault}: '{said}' is not in: {told}"
        );
    }
}

#[test]
fn of_a_file() {
    row("file");
}

#[test]
fn of_tcp() {
    row("tcp");
}

#[test]
fn of_tcp_in_frames() {
    row("tcp, whole");
}

#[test]
fn of_a_unix_socket() {
    row("unix");
}

#[test]
fn of_a_unix_socket_in_frames() {
    row("unix, whole");
}

#[test]
fn of_memory() {
    row("mem");
}

#[test]
fn of_quic() {
    row("QUIC");
}

#[test]
fn of_sequenced_datagrams() {
    row("udp, sequenced");
}

#[test]
fn of_plain_datagrams() {
    row("udp");
}

#[test]
fn of_media_by_rtp() {
    row("rtp");
}

#[test]
fn of_frames() {
    row("eth");
}

#[test]
fn of_a_pipe() {
    row("pipe");
}

#[test]
fn every_row_is_done() {
    let rows = TABLE.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| end"));
    let source = include_str!("faults.rs");
    for line in rows {
        let end = line.trim_start_matches("| ").split(" |").next().unwrap();
        assert!(source.contains(&format!("    row(\"{end}\");")), "nothing does what the row '{end}' says");
    }
}
