//! Endpoints: the text form and the value of one end of a flow.

use super::mac::Neighbour;
use super::words::{Escaped, Words, byte_pieces, flag, number, option};
use crate::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// One end of a flow: the place that data is read from or written to.
///
/// ```
/// use bywash_flow::Endpoint;
///
/// let endpoint: Endpoint = "file:/var/log/syslog,offset=1M".parse()?;
/// assert_eq!(endpoint.to_string(), "file:/var/log/syslog,offset=1048576");
/// assert!("files:/var/log/syslog".parse::<Endpoint>().is_err());
/// # Ok::<(), bywash_flow::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// `file:PATH`, or a path alone: a regular file, a FIFO or a device.
    File(File),
    /// `raw:DEVICE`: a block device, or a range of one.
    Raw {
        /// Path of the block device.
        path: PathBuf,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes; `None` for the rest of the device.
        length: Option<u64>,
    },
    /// `-`: standard input or output.
    Standard,
    /// `null:`: a sink that discards the data.
    Null,
    /// `zero:`: an endless source of zeros.
    Zero,
    /// `random:`: an endless source of random bytes, the same ones for the same seed.
    Random {
        /// Seed of the generator; `None` for a new random one each time.
        seed: Option<u64>,
    },
    /// `mem:NAME`, `mem-listen:NAME`: a path of containers to another process.
    Memory(Unix),
    /// `unix:PATH`, `unix-listen:PATH`: a Unix stream socket.
    Unix(Unix),
    /// `tcp:HOST:PORT`, `tcp-listen:ADDRESS:PORT`: a TCP connection.
    Tcp(Tcp),
    /// `udp:HOST:PORT`, `udp-listen:ADDRESS:PORT`: UDP datagrams, or a QUIC stream if `reliable`.
    Udp(Udp),
    /// `eth:IFACE,to=MAC|IP,port=N`, `eth-listen:IFACE,port=N`: Ethernet frames.
    Ethernet(Ethernet),
}

/// A file as an end of a flow, with its options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Path of the file.
    pub path: PathBuf,
    /// Source: offset of the first byte. Sink: offset at which the data is written into an existing file,
    /// whose other bytes stay.
    pub offset: Option<u64>,
    /// Source: number of bytes to read; `None` for all up to the end. Sink that is a block device: greatest
    /// number of bytes to write.
    pub length: Option<u64>,
    /// Sink: true if the data is appended to the file.
    pub append: bool,
    /// Sink: true if an existing file is overwritten from its beginning, instead of being replaced by a new
    /// file at the end of the flow.
    pub in_place: bool,
    /// Sink: true if the flow fails when the file exists already.
    pub exclusive: bool,
    /// Sink: true if holes of the source are written as zeros.
    pub dense: bool,
    /// True if the data is dropped from the page cache while it is moved.
    pub nocache: bool,
    /// Sink: permissions of a new file; `None` for those of the file that it replaces, or else of the source.
    pub mode: Option<u32>,
}

/// Side that opens a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listening {
    /// This end connects to a listener.
    #[default]
    Connects,
    /// This end listens for one connection.
    Waits,
    /// This end listens for any number of connections, each of which gets a flow of its own (`fork`).
    Serves,
}

/// A socket with a name in the file system, or a path of containers behind one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unix {
    /// Path of the socket.
    pub path: PathBuf,
    /// Side that connects.
    pub listening: Listening,
    /// Stream socket: true if the data travels in frames with an end mark. Both ends must say the same.
    pub whole: bool,
    /// Path of containers: true if the sender marks the end by closing the path, not by an empty container.
    pub plain: bool,
    /// Greatest number of connections at a time of an end that serves; `None` for a default.
    pub max: Option<u32>,
}

/// A TCP connection as an end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Host name or address; empty for a listener at all addresses of this machine.
    pub host: String,
    /// Port number; 0 lets the kernel choose the port of a listener.
    pub port: u16,
    /// Side that connects.
    pub listening: Listening,
    /// True if the data travels in frames with an end mark. Both ends must say the same.
    pub whole: bool,
    /// Time without a sign of life after which the peer counts as dead, 3 s at least; `None` for a default.
    pub timeout: Option<Duration>,
    /// Greatest number of connections at a time of an end that serves; `None` for a default.
    pub max: Option<u32>,
}

/// UDP datagrams as an end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Host name or address; empty for a receiver at all addresses of this machine.
    pub host: String,
    /// UDP port number.
    pub port: u16,
    /// True for the end that receives.
    pub listen: bool,
    /// Payload of a datagram, in bytes; `None` for as many as fit the network.
    pub size: Option<u32>,
    /// Receiver: silence after the first datagram that ends a plain flow or a relay, and makes a sequenced
    /// flow fail; zero for never; `None` for 60 s if sequenced, else never.
    pub idle: Option<Duration>,
    /// Plain receiver: true if datagrams that the kernel dropped do not make the flow fail.
    pub lossy: bool,
    /// True if the datagrams carry sequence numbers, so that loss is detected.
    pub sequenced: bool,
    /// True for a QUIC stream, which loses nothing.
    pub reliable: bool,
    /// Reliable: SHA-256 fingerprint of the peer's certificate, 64 lower-case hexadecimal digits.
    pub pin: Option<String>,
    /// Reliable: true if any peer is accepted, without a check of its certificate.
    pub insecure: bool,
    /// Reliable: path at which this end keeps its certificate.
    pub identity: Option<PathBuf>,
    /// Reliable: greatest time that the peer may be silent; `None` for a default.
    pub timeout: Option<Duration>,
    /// Reliable: congestion control of the sender.
    pub congestion: Congestion,
}

/// Congestion control of a QUIC sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// `cubic`: reacts to loss; for networks that lose packets only when they are full.
    #[default]
    Cubic,
    /// `bbr`: measures the rate that arrives; for networks that lose packets at any rate, such as radio.
    Bbr,
}

/// Ethernet frames of type 0x0A0A as an end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ethernet {
    /// Name of the network interface.
    pub interface: String,
    /// Number that tells apart several flows between two machines.
    pub port: u16,
    /// True for the end that receives.
    pub listen: bool,
    /// Machine to send to, or the only one to receive from; `None` for a receiver that accepts any.
    pub peer: Option<Neighbour>,
    /// Payload of a frame, in bytes; `None` for as many as fit the network.
    pub size: Option<u32>,
    /// Receiver: silence after the first frame that makes the flow fail, or ends a relay; zero for never;
    /// `None` for 60 s, in a relay never.
    pub idle: Option<Duration>,
}

/// List of all kinds of endpoints, for error messages.
const KINDS: &str = "file:, raw:, -, null:, zero:, random:, mem:, mem-listen:, unix:, unix-listen:, tcp:, tcp-listen:, \
                     udp:, udp-listen:, eth:, eth-listen:";

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Endpoint, Error> {
        if text == "-" {
            return Ok(Endpoint::Standard);
        }
        let Some((kind, rest)) = split_kind(text) else { return bare(text) };
        let mut words = Words::cut(text, rest);
        match kind {
            "file" => file(&mut words).map(Endpoint::File),
            "raw" => raw(&mut words),
            "null" => alone(&words).map(|()| Endpoint::Null),
            "zero" => alone(&words).map(|()| Endpoint::Zero),
            "random" => {
                let seed = words.value("seed", number)?;
                words.check_all_taken(&["seed"])?;
                alone(&words).map(|()| Endpoint::Random { seed })
            }
            "mem" | "mem-listen" => memory(&mut words, kind == "mem-listen").map(Endpoint::Memory),
            "unix" | "unix-listen" => unix(&mut words, kind == "unix-listen").map(Endpoint::Unix),
            "tcp" | "tcp-listen" => tcp(&mut words, kind == "tcp-listen").map(Endpoint::Tcp),
            "udp" | "udp-listen" => udp(&mut words, kind == "udp-listen").map(Endpoint::Udp),
            "eth" | "eth-listen" => ethernet(&mut words, kind == "eth-listen").map(Endpoint::Ethernet),
            _ => Err(words.usage_error(format!(
                "there is no endpoint of the kind '{kind}'; there are {KINDS}, and paths: a file of that name is ./{text}"
            ))),
        }
    }
}

/// Splits a text at the colon behind its kind; `None` if the text is a path alone.
fn split_kind(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(kind, _)| !kind.contains(['/', ',', '.']))
}

/// Parses an argument of the command line, whose path need not be UTF-8.
impl TryFrom<&OsStr> for Endpoint {
    type Error = Error;

    fn try_from(word: &OsStr) -> Result<Endpoint, Error> {
        if let Some(text) = word.to_str() {
            return text.parse();
        }
        let lossy = word.to_string_lossy();
        let mut endpoint: Endpoint = lossy.parse()?;
        let path = match &mut endpoint {
            Endpoint::File(File { path, .. })
            | Endpoint::Raw { path, .. }
            | Endpoint::Memory(Unix { path, .. })
            | Endpoint::Unix(Unix { path, .. }) => path,
            _ => return Err(Error::Usage(format!("'{lossy}': only paths may be other than UTF-8"))),
        };
        // All known kinds are ASCII, so a kind is as long in bytes as in the text.
        *path = match split_kind(&lossy) {
            Some((kind, _)) => {
                let rest = &word.as_bytes()[kind.len() + 1..];
                OsString::from_vec(byte_pieces(rest).swap_remove(0)).into()
            }
            None => word.into(),
        };
        Ok(endpoint)
    }
}

/// Parses a path without a kind, which takes the whole text.
fn bare(text: &str) -> Result<Endpoint, Error> {
    match text {
        "" => Err(Error::Usage("an endpoint is empty: name a file, or one of ".to_owned() + KINDS)),
        path => Ok(Endpoint::File(File { path: path.into(), ..File::default() })),
    }
}

fn alone(words: &Words<'_>) -> Result<(), Error> {
    match words.address.as_str() {
        "" => words.check_all_taken(&[]),
        address => {
            Err(words.usage_error(format!("nothing is expected behind the colon, and '{address}' is there")))
        }
    }
}

fn path(words: &Words<'_>) -> Result<PathBuf, Error> {
    match words.address.as_str() {
        "" => Err(words.usage_error("a path is missing behind the colon")),
        path => Ok(path.into()),
    }
}

fn file(words: &mut Words<'_>) -> Result<File, Error> {
    let file = File {
        path: path(words)?,
        offset: words.size("offset")?,
        length: words.size("length")?,
        append: words.flag("append")?,
        in_place: words.flag("in-place")?,
        exclusive: words.flag("excl")?,
        dense: words.flag("dense")?,
        nocache: words.flag("nocache")?,
        mode: words.value("mode", mode)?,
    };
    words.check_all_taken(&["offset", "length", "append", "in-place", "excl", "dense", "nocache", "mode"])?;
    let ways = [file.append, file.in_place, file.exclusive].iter().filter(|way| **way).count();
    match ways > 1 || (file.offset.is_some() && (file.append || file.exclusive)) {
        true => Err(words.usage_error(
            "append, in-place, excl and offset exclude each other (in-place and offset do not)",
        )),
        false => Ok(file),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("'{text}' is no mode: give octal digits, as in 0644")),
    }
}

fn raw(words: &mut Words<'_>) -> Result<Endpoint, Error> {
    let (path, offset) = (path(words)?, words.size("offset")?.unwrap_or(0));
    let length = words.size("length")?;
    words.check_all_taken(&["offset", "length"])?;
    Ok(Endpoint::Raw { path, offset, length })
}

fn memory(words: &mut Words<'_>, listen: bool) -> Result<Unix, Error> {
    let listening = if listen { Listening::Waits } else { Listening::Connects };
    let end = Unix { path: path(words)?, listening, plain: words.flag("plain")?, ..Unix::default() };
    words.check_all_taken(&["plain"])?;
    Ok(end)
}

fn unix(words: &mut Words<'_>, listen: bool) -> Result<Unix, Error> {
    let (path, whole, listening) = (path(words)?, words.flag("whole")?, listening(words, listen)?);
    let end = Unix { path, listening, whole, max: connections(words, listening)?, ..Unix::default() };
    words.check_all_taken(if listen { &["whole", "fork", "max"] } else { &["whole"] })?;
    Ok(end)
}

fn listening(words: &mut Words<'_>, listen: bool) -> Result<Listening, Error> {
    Ok(match (listen, listen && words.flag("fork")?) {
        (_, true) => Listening::Serves,
        (true, false) => Listening::Waits,
        (false, false) => Listening::Connects,
    })
}

/// Parses `max=N`, which only an end that serves may have.
fn connections(words: &mut Words<'_>, listening: Listening) -> Result<Option<u32>, Error> {
    if listening == Listening::Connects {
        return Ok(None);
    }
    match (words.value("max", number)?, listening) {
        (Some(0), _) => Err(words.usage_error("max=0 would serve nobody: give 1 or more")),
        (Some(_), Listening::Waits) => Err(words.usage_error("max is for 'fork', which is not there")),
        (max, _) => Ok(max),
    }
}

/// Splits `HOST:PORT`; an IPv6 address must be in brackets, and a listener may leave the host out.
fn host_and_port(words: &Words<'_>, listen: bool) -> Result<(String, u16), Error> {
    let example = if listen {
        "ADDRESS:PORT, as in 127.0.0.1:9000, [::1]:9000 or :9000"
    } else {
        "HOST:PORT, as in example.org:9000 or [::1]:9000"
    };
    let (host, port) = words
        .address
        .rsplit_once(':')
        .or_else(|| listen.then_some(("", words.address.as_str())))
        .ok_or_else(|| words.usage_error(format!("a port is missing: give {example}")))?;
    let port = port.parse().map_err(|_| words.usage_error(format!("'{port}' is no port: give {example}")))?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner.unwrap_or(host) {
        "" if !listen => Err(words.usage_error(format!("a host is missing: give {example}"))),
        _ if inner.is_none() && host.contains(':') => {
            Err(words.usage_error(format!("an address of IPv6 goes in brackets: give {example}")))
        }
        host => Ok((host.to_owned(), port)),
    }
}

/// Smallest timeout of a TCP peer, since the kernel counts its three keepalive probes in whole seconds.
const TCP_TIMEOUT_MIN: Duration = Duration::from_secs(3);

fn tcp(words: &mut Words<'_>, listen: bool) -> Result<Tcp, Error> {
    let (host, port) = host_and_port(words, listen)?;
    let (whole, timeout) = (words.flag("whole")?, words.seconds("timeout")?);
    let listening = listening(words, listen)?;
    let tcp = Tcp { host, port, listening, whole, timeout, max: connections(words, listening)? };
    words.check_all_taken(if listen {
        &["whole", "timeout", "fork", "max"]
    } else {
        &["whole", "timeout"]
    })?;
    match tcp.timeout {
        Some(timeout) if timeout < TCP_TIMEOUT_MIN => {
            Err(words.usage_error("'timeout': a peer has 3 seconds at the least to give a sign of life"))
        }
        _ => Ok(tcp),
    }
}

/// Options of `udp:`; those after `reliable` may be given only together with it.
const UDP_OPTIONS: [&str; 10] = [
    "size",
    "idle",
    "lossy",
    "sequenced",
    "reliable",
    "pin",
    "insecure",
    "identity",
    "timeout",
    "congestion",
];

fn congestion(text: &str) -> Result<Congestion, String> {
    match text {
        "cubic" => Ok(Congestion::Cubic),
        "bbr" => Ok(Congestion::Bbr),
        _ => Err(format!("'{text}' is not known: there are cubic and bbr")),
    }
}

fn udp(words: &mut Words<'_>, listen: bool) -> Result<Udp, Error> {
    let (host, port) = host_and_port(words, listen)?;
    let udp = Udp {
        host,
        port,
        listen,
        size: words.value("size", number)?,
        idle: words.seconds("idle")?,
        lossy: words.flag("lossy")?,
        sequenced: words.flag("sequenced")?,
        reliable: words.flag("reliable")?,
        pin: words.value("pin", fingerprint)?,
        insecure: words.flag("insecure")?,
        identity: words.value("identity", |path| Ok(path.into()))?,
        timeout: words.seconds("timeout")?,
        congestion: words.value("congestion", congestion)?.unwrap_or_default(),
    };
    words.check_all_taken(&UDP_OPTIONS)?;
    if udp.sequenced && udp.reliable {
        return Err(words.usage_error("what is reliable needs no numbers: give 'sequenced' or 'reliable'"));
    }
    if udp.lossy && (udp.sequenced || udp.reliable || !udp.listen) {
        return Err(
            words.usage_error("lossy is for a receiver of plain datagrams, and nobody else loses any unsaid")
        );
    }
    let of_reliable = Udp {
        pin: udp.pin.clone(),
        insecure: udp.insecure,
        identity: udp.identity.clone(),
        timeout: udp.timeout,
        congestion: udp.congestion,
        ..Udp::default()
    };
    if !udp.reliable && of_reliable != Udp::default() {
        let theirs = UDP_OPTIONS[5..].join(", ");
        return Err(words.usage_error(format!("{theirs} are for 'reliable', which is not there")));
    }
    if udp.reliable && (udp.size.is_some() || udp.idle.is_some()) {
        return Err(
            words.usage_error("size and idle are for plain and sequenced datagrams, not for 'reliable'")
        );
    }
    Ok(udp)
}

fn fingerprint(text: &str) -> Result<String, String> {
    let digits: String =
        text.chars().filter(|letter| *letter != ':').collect::<String>().to_ascii_lowercase();
    match digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => Ok(digits),
        false => Err(format!("'{text}' is no SHA-256 fingerprint: give its 64 hexadecimal digits")),
    }
}

fn ethernet(words: &mut Words<'_>, listen: bool) -> Result<Ethernet, Error> {
    let peer_option = if listen { "from" } else { "to" };
    let ethernet = Ethernet {
        interface: words.address.clone(),
        listen,
        peer: words.value(peer_option, str::parse)?,
        port: words.value("port", number)?.ok_or_else(|| words.usage_error("a port is missing: port=N"))?,
        size: words.value("size", number)?,
        idle: words.seconds("idle")?,
    };
    words.check_all_taken(&[peer_option, "port", "size", "idle"])?;
    if ethernet.interface.is_empty() {
        return Err(words.usage_error("an interface is missing behind the colon, as in eth:eth0"));
    }
    if !listen && ethernet.peer.is_none() {
        return Err(words.usage_error("to whom? Give to=MAC or to=IP, as in to=02:00:00:00:00:01"));
    }
    Ok(ethernet)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::File(file) => file.fmt(out),
            Endpoint::Raw { path, offset, length } => {
                write!(out, "raw:{}", Escaped(&path.to_string_lossy()))?;
                option(out, "offset", Some(*offset).filter(|offset| *offset > 0))?;
                option(out, "length", *length)
            }
            Endpoint::Standard => out.write_str("-"),
            Endpoint::Null => out.write_str("null:"),
            Endpoint::Zero => out.write_str("zero:"),
            Endpoint::Random { seed } => {
                out.write_str("random:")?;
                option(out, "seed", *seed)
            }
            Endpoint::Memory(unix) => unix.write(out, "mem"),
            Endpoint::Unix(unix) => unix.write(out, "unix"),
            Endpoint::Tcp(tcp) => tcp.fmt(out),
            Endpoint::Udp(udp) => udp.fmt(out),
            Endpoint::Ethernet(ethernet) => ethernet.fmt(out),
        }
    }
}

impl File {
    /// Creates the description of a range of a block device, which is opened like a file.
    pub(crate) fn from_device_range(path: &Path, offset: u64, length: Option<u64>) -> File {
        File { path: path.into(), offset: Some(offset), length, ..File::default() }
    }
}

impl fmt::Display for File {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "file:{}", Escaped(&self.path.to_string_lossy()))?;
        option(out, "offset", self.offset)?;
        option(out, "length", self.length)?;
        flag(out, "append", self.append)?;
        flag(out, "in-place", self.in_place)?;
        flag(out, "excl", self.exclusive)?;
        flag(out, "dense", self.dense)?;
        flag(out, "nocache", self.nocache)?;
        option(out, "mode", self.mode.map(|mode| format!("{mode:04o}")))
    }
}

impl Unix {
    fn write(&self, out: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
        write!(out, "{kind}{}:{}", self.listening.suffix(), Escaped(&self.path.to_string_lossy()))?;
        flag(out, "whole", self.whole)?;
        flag(out, "plain", self.plain)?;
        flag(out, "fork", self.listening == Listening::Serves)?;
        option(out, "max", self.max)
    }
}

impl Listening {
    fn suffix(self) -> &'static str {
        if self == Listening::Connects { "" } else { "-listen" }
    }
}

/// A host that displays in the form that precedes a port: an IPv6 address in brackets.
struct Host<'a>(&'a str);

impl fmt::Display for Host<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(out, "[{}]", self.0) } else { Escaped(self.0).fmt(out) }
    }
}

impl fmt::Display for Tcp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "tcp{}:{}:{}", self.listening.suffix(), Host(&self.host), self.port)?;
        flag(out, "whole", self.whole)?;
        option(out, "timeout", self.timeout.map(|timeout| timeout.as_secs_f64()))?;
        flag(out, "fork", self.listening == Listening::Serves)?;
        option(out, "max", self.max)
    }
}

impl Udp {
    /// Returns host and port as one text; an empty host becomes `::`.
    pub(crate) fn address(&self) -> String {
        let host = if self.host.is_empty() { "::" } else { &self.host };
        format!("{}:{}", Host(host), self.port)
    }
}

impl fmt::Display for Udp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.listen { "udp-listen" } else { "udp" };
        write!(out, "{kind}:{}:{}", Host(&self.host), self.port)?;
        option(out, "size", self.size)?;
        option(out, "idle", self.idle.map(|idle| idle.as_secs_f64()))?;
        flag(out, "lossy", self.lossy)?;
        flag(out, "sequenced", self.sequenced)?;
        flag(out, "reliable", self.reliable)?;
        option(out, "pin", self.pin.as_ref())?;
        flag(out, "insecure", self.insecure)?;
        option(out, "identity", self.identity.as_ref().map(|path| path.display()))?;
        option(out, "timeout", self.timeout.map(|timeout| timeout.as_secs_f64()))?;
        option(out, "congestion", Some("bbr").filter(|_| self.congestion == Congestion::Bbr))
    }
}

impl fmt::Display for Ethernet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, peer) = if self.listen { ("eth-listen", "from") } else { ("eth", "to") };
        write!(out, "{kind}:{}", Escaped(&self.interface))?;
        option(out, peer, self.peer)?;
        option(out, "port", Some(self.port))?;
        option(out, "size", self.size)?;
        option(out, "idle", self.idle.map(|idle| idle.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Endpoint {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn what_is_read_is_written_as_it_was() {
        for text in [
            "-",
            "null:",
            "zero:",
            "random:",
            "random:,seed=7",
            "file:a",
            r"file:a\,b,offset=4096,length=1,in-place,dense,nocache,mode=0640",
            "file:a,append",
            "file:a,excl",
            "raw:/dev/loop0,offset=512,length=1024",
            "mem:/run/x",
            "mem-listen:/run/x",
            "mem:/run/x,plain",
            "unix:/run/x",
            "unix:/run/x,whole",
            "unix-listen:/run/x,fork",
            "tcp:example.org:80",
            "tcp:[::1]:80",
            "tcp-listen::80",
            "tcp-listen:127.0.0.1:80,fork",
            "tcp-listen:127.0.0.1:80,whole,timeout=4,fork,max=20",
            "udp:host:9,size=1400,sequenced",
            "udp-listen::9,idle=0.5,lossy",
            "eth:veth0,to=02:00:00:00:00:0a,port=3,size=1000",
            "eth-listen:veth0,port=3,idle=2",
            "eth-listen:veth0,from=10.0.0.1,port=3",
        ] {
            assert_eq!(parsed(text).to_string(), text);
        }
        let pin = "0123456789abcdef".repeat(4);
        let reliable = format!("udp:host:9,reliable,pin={pin},identity=/etc/x,timeout=2,congestion=bbr");
        assert_eq!(parsed(&reliable).to_string(), reliable);
    }

    #[test]
    fn a_path_needs_no_kind() {
        for text in ["a", "/a/b", "./a:b", "a,b", "a.b:c", "/x:y,z"] {
            assert_eq!(parsed(text), Endpoint::File(File { path: text.into(), ..File::default() }), "{text}");
        }
        assert_eq!(parsed("tcp-listen:80"), parsed("tcp-listen::80"));
    }

    #[test]
    fn a_path_need_not_be_utf_8() {
        let read = |word: &[u8]| Endpoint::try_from(OsStr::from_bytes(word));
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let file = |bytes: &[u8]| File { path: path(bytes), ..File::default() };
        for word in [b"\xff".as_slice(), b"./\xff:,\\", b"/a,\xff"] {
            assert_eq!(read(word).unwrap(), Endpoint::File(file(word)));
        }
        assert!(read(b"\xff:x").unwrap_err().to_string().contains("a file of that name is ./"));
        let offset = File { offset: Some(5), ..file(b"a,\xe9\\") };
        assert_eq!(read(b"file:a\\,\xe9\\\\,offset=5").unwrap(), Endpoint::File(offset));
        let listening = Unix { path: path(b"\xe9"), listening: Listening::Waits, ..Unix::default() };
        assert_eq!(read(b"mem-listen:\xe9").unwrap(), Endpoint::Memory(listening.clone()));
        assert_eq!(read(b"unix-listen:\xe9").unwrap(), Endpoint::Unix(listening));
        let raw = Endpoint::Raw { path: path(b"\xe9"), offset: 1, length: None };
        assert_eq!(read(b"raw:\xe9,offset=1").unwrap(), raw);
        assert_eq!(read(b"tcp:host:1").unwrap(), parsed("tcp:host:1"));
        assert!(read(b"tcp:\xe9:1").unwrap_err().to_string().contains("only paths may be"));
        assert!(read(b"file:x,\xe9").unwrap_err().to_string().contains("no option"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("", "is empty"),
            ("files:a", "no endpoint of the kind 'files'"),
            ("file:", "a path is missing"),
            ("file:a,append,excl", "exclude each other"),
            ("file:a,mode=9", "octal"),
            ("null:x", "nothing is expected"),
            ("zero:,x", "no option 'x'"),
            ("tcp:host", "a port is missing"),
            ("tcp:host:http", "'http' is no port"),
            ("tcp:host:70000", "is no port"),
            ("tcp::80", "a host is missing"),
            ("tcp:::1:80", "in brackets"),
            ("tcp:h:80,fork", "no option 'fork'"),
            ("tcp-listen:80,max=3", "max is for 'fork'"),
            ("tcp:h:80,timeout=1", "3 seconds"),
            ("mem:/run/x,whole", "no option 'whole'"),
            ("udp:h:1,lossy", "lossy is for a receiver"),
            ("udp:h:1,pin=00", "no SHA-256 fingerprint"),
            ("udp:h:1,insecure", "are for 'reliable'"),
            ("udp:h:1,sequenced,reliable", "needs no numbers"),
            ("eth:veth0,port=1", "to whom?"),
            ("eth:veth0,to=02:00:00:00:00:01", "a port is missing"),
            ("eth:veth0,to=02-00,port=1", "no Ethernet address"),
            ("eth:veth0,to=10.0.0.256,port=1", "or an address of IPv4"),
        ] {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
