//! One end of a flow.

use super::mac::Mac;
use super::words::{Escaped, Words, flag, number, option};
use crate::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// One end of a flow: where data comes from, or where it goes.
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
    /// `file:PATH`, or a path alone: a file, a pipe with a name, a device.
    File(File),
    /// `raw:DEVICE`: a block device, of its offset and length.
    Raw {
        /// The device's path.
        path: PathBuf,
        /// First byte.
        offset: u64,
        /// So many bytes, and not all up to the end.
        length: Option<u64>,
    },
    /// `-`: standard input or output.
    Standard,
    /// `null:`: nowhere.
    Null,
    /// `zero:`: zeros without end.
    Zero,
    /// `random:`: random bytes without end; the same ones for the same seed.
    Random {
        /// The seed, if it is not to be a new one each time.
        seed: Option<u64>,
    },
    /// `mem:NAME`, `mem-listen:NAME`: a path of containers to another program.
    Memory(Unix),
    /// `unix:PATH`, `unix-listen:PATH`: a stream socket on this machine.
    Unix(Unix),
    /// `tcp:HOST:PORT`, `tcp-listen:ADDRESS:PORT`.
    Tcp(Tcp),
    /// `udp:HOST:PORT`, `udp-listen:ADDRESS:PORT`.
    Udp(Udp),
    /// `eth:IFACE,to=MAC,port=N`, `eth-listen:IFACE,port=N`.
    Ethernet(Ethernet),
}

/// A file, and what is done with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub path: PathBuf,
    /// Source: the first byte. Sink: where the data goes in a file that stays what it is elsewhere.
    pub offset: Option<u64>,
    /// Source: so many bytes, and not all up to the end.
    pub length: Option<u64>,
    /// Sink: behind what is there.
    pub append: bool,
    /// Sink: into the file that is there, from its beginning, in place of a new one that takes its name at the end.
    pub in_place: bool,
    /// Sink: only if there is no such file yet.
    pub exclusive: bool,
    /// Sink: holes of the source are written as zeros.
    pub dense: bool,
    /// The page cache does not fill with what is moved.
    pub nocache: bool,
    /// Sink: permissions of a new file, in place of the source's.
    pub mode: Option<u32>,
}

/// Who waits to be connected, and who connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listening {
    /// This end connects.
    #[default]
    Connects,
    /// This end waits for one that connects.
    Waits,
    /// This end waits for ever new ones, each of which gets a flow of its own.
    Serves,
}

/// A socket with a name in the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unix {
    /// The name.
    pub path: PathBuf,
    /// Who connects.
    pub listening: Listening,
}

/// A TCP connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Name or address; empty where one listens at all of the machine's.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Who connects.
    pub listening: Listening,
}

/// UDP datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Name or address; empty where one receives at all of the machine's.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether this is the end that others send to.
    pub listen: bool,
    /// Bytes of a datagram.
    pub size: Option<u32>,
    /// The end comes when nothing has come for so long.
    pub idle: Option<Duration>,
    /// With numbers, so that what is lost is known.
    pub sequenced: bool,
    /// Over QUIC: nothing is lost.
    pub reliable: bool,
    /// Reliable: the fingerprint of the peer's certificate.
    pub pin: Option<String>,
    /// Reliable: whoever the peer is.
    pub insecure: bool,
    /// Reliable: where this end's certificate is kept.
    pub identity: Option<PathBuf>,
    /// Reliable: how long the peer may be silent.
    pub timeout: Option<Duration>,
    /// Reliable: how a sender finds out how much the network takes.
    pub congestion: Congestion,
}

/// How a sender finds out how much the network takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// `cubic`: by what is lost: for networks that lose nothing as long as they are not full.
    #[default]
    Cubic,
    /// `bbr`: by the rate that arrives: for networks that lose packets whatever is sent, as radio does.
    Bbr,
}

/// Ethernet frames of type 0x0A0A.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ethernet {
    /// The interface.
    pub interface: String,
    /// Which of the flows between two machines.
    pub port: u16,
    /// Whether this is the end that others send to.
    pub listen: bool,
    /// The other machine's address: where to send, or from whom alone to receive.
    pub peer: Option<Mac>,
    /// Bytes of a frame's payload.
    pub size: Option<u32>,
    /// The end comes when nothing has come for so long.
    pub idle: Option<Duration>,
}

/// All kinds, as an error lists them.
const KINDS: &str = "file:, raw:, -, null:, zero:, random:, mem:, mem-listen:, unix:, unix-listen:, tcp:, tcp-listen:, \
                     udp:, udp-listen:, eth:, eth-listen:";

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Endpoint, Error> {
        if text == "-" {
            return Ok(Endpoint::Standard);
        }
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| !kind.contains(['/', ',', '.']))
        else {
            return bare(text);
        };
        let mut words = Words::cut(text, rest);
        match kind {
            "file" => file(&mut words).map(Endpoint::File),
            "raw" => raw(&mut words),
            "null" => alone(&words).map(|()| Endpoint::Null),
            "zero" => alone(&words).map(|()| Endpoint::Zero),
            "random" => {
                let seed = words.value("seed", number)?;
                words.nothing_more(&["seed"])?;
                alone(&words).map(|()| Endpoint::Random { seed })
            }
            "mem" | "mem-listen" => unix(&mut words, kind == "mem-listen", false).map(Endpoint::Memory),
            "unix" | "unix-listen" => unix(&mut words, kind == "unix-listen", true).map(Endpoint::Unix),
            "tcp" | "tcp-listen" => tcp(&mut words, kind == "tcp-listen").map(Endpoint::Tcp),
            "udp" | "udp-listen" => udp(&mut words, kind == "udp-listen").map(Endpoint::Udp),
            "eth" | "eth-listen" => ethernet(&mut words, kind == "eth-listen").map(Endpoint::Ethernet),
            _ => Err(words.wrong(format!(
                "there is no endpoint of the kind '{kind}'; there are {KINDS}, and paths: a file of that name is ./{text}"
            ))),
        }
    }
}

/// A path alone: all of the text.
fn bare(text: &str) -> Result<Endpoint, Error> {
    match text {
        "" => Err(Error::Usage("an endpoint is empty: name a file, or one of ".to_owned() + KINDS)),
        path => Ok(Endpoint::File(File { path: path.into(), ..File::default() })),
    }
}

fn alone(words: &Words<'_>) -> Result<(), Error> {
    match words.address.as_str() {
        "" => words.nothing_more(&[]),
        address => {
            Err(words.wrong(format!("nothing is expected behind the colon, and '{address}' is there")))
        }
    }
}

fn path(words: &Words<'_>) -> Result<PathBuf, Error> {
    match words.address.as_str() {
        "" => Err(words.wrong("a path is missing behind the colon")),
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
    words.nothing_more(&["offset", "length", "append", "in-place", "excl", "dense", "nocache", "mode"])?;
    let ways = [file.append, file.in_place, file.exclusive].iter().filter(|way| **way).count();
    match ways > 1 || (file.offset.is_some() && (file.append || file.exclusive)) {
        true => {
            Err(words
                .wrong("append, in-place, excl and offset exclude each other (in-place and offset do not)"))
        }
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
    words.nothing_more(&["offset", "length"])?;
    Ok(Endpoint::Raw { path, offset, length })
}

fn unix(words: &mut Words<'_>, listen: bool, may_serve: bool) -> Result<Unix, Error> {
    let unix = Unix { path: path(words)?, listening: listening(words, listen && may_serve, listen)? };
    words.nothing_more(if listen && may_serve { &["fork"] } else { &[] })?;
    Ok(unix)
}

fn listening(words: &mut Words<'_>, may_serve: bool, listen: bool) -> Result<Listening, Error> {
    Ok(match (listen, may_serve && words.flag("fork")?) {
        (_, true) => Listening::Serves,
        (true, false) => Listening::Waits,
        (false, false) => Listening::Connects,
    })
}

/// `HOST:PORT`, where an address of IPv6 is in brackets.
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
        .ok_or_else(|| words.wrong(format!("a port is missing: give {example}")))?;
    let port = port.parse().map_err(|_| words.wrong(format!("'{port}' is no port: give {example}")))?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match inner.unwrap_or(host) {
        "" if !listen => Err(words.wrong(format!("a host is missing: give {example}"))),
        _ if inner.is_none() && host.contains(':') => {
            Err(words.wrong(format!("an address of IPv6 goes in brackets: give {example}")))
        }
        host => Ok((host.to_owned(), port)),
    }
}

fn tcp(words: &mut Words<'_>, listen: bool) -> Result<Tcp, Error> {
    let (host, port) = host_and_port(words, listen)?;
    let tcp = Tcp { host, port, listening: listening(words, listen, listen)? };
    words.nothing_more(if listen { &["fork"] } else { &[] })?;
    Ok(tcp)
}

/// Those behind `reliable` are for what is reliable alone.
const UDP_OPTIONS: [&str; 9] =
    ["size", "idle", "sequenced", "reliable", "pin", "insecure", "identity", "timeout", "congestion"];

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
        sequenced: words.flag("sequenced")?,
        reliable: words.flag("reliable")?,
        pin: words.value("pin", fingerprint)?,
        insecure: words.flag("insecure")?,
        identity: words.value("identity", |path| Ok(path.into()))?,
        timeout: words.seconds("timeout")?,
        congestion: words.value("congestion", congestion)?.unwrap_or_default(),
    };
    words.nothing_more(&UDP_OPTIONS)?;
    if udp.sequenced && udp.reliable {
        return Err(words.wrong("what is reliable needs no numbers: give 'sequenced' or 'reliable'"));
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
        let theirs = UDP_OPTIONS[4..].join(", ");
        return Err(words.wrong(format!("{theirs} are for 'reliable', which is not there")));
    }
    if udp.reliable && (udp.size.is_some() || udp.idle.is_some()) {
        return Err(words.wrong("size and idle are for plain and sequenced datagrams, not for 'reliable'"));
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
        port: words.value("port", number)?.ok_or_else(|| words.wrong("a port is missing: port=N"))?,
        size: words.value("size", number)?,
        idle: words.seconds("idle")?,
    };
    words.nothing_more(&[peer_option, "port", "size", "idle"])?;
    if ethernet.interface.is_empty() {
        return Err(words.wrong("an interface is missing behind the colon, as in eth:eth0"));
    }
    if !listen && ethernet.peer.is_none() {
        return Err(words.wrong("to whom? Give to=MAC, as in to=02:00:00:00:00:01"));
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
    /// A piece of a block device, which is opened like a file.
    pub(crate) fn of_device(path: &Path, offset: u64, length: Option<u64>) -> File {
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
        flag(out, "fork", self.listening == Listening::Serves)
    }
}

impl Listening {
    fn suffix(self) -> &'static str {
        if self == Listening::Connects { "" } else { "-listen" }
    }
}

/// A host as it stands in front of a port.
struct Host<'a>(&'a str);

impl fmt::Display for Host<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(out, "[{}]", self.0) } else { Escaped(self.0).fmt(out) }
    }
}

impl fmt::Display for Tcp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "tcp{}:{}:{}", self.listening.suffix(), Host(&self.host), self.port)?;
        flag(out, "fork", self.listening == Listening::Serves)
    }
}

impl Udp {
    /// Host and port as one text.
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
            "unix:/run/x",
            "unix-listen:/run/x,fork",
            "tcp:example.org:80",
            "tcp:[::1]:80",
            "tcp-listen::80",
            "tcp-listen:127.0.0.1:80,fork",
            "udp:host:9,size=1400,sequenced",
            "udp-listen::9,idle=0.5",
            "eth:veth0,to=02:00:00:00:00:0a,port=3,size=1000",
            "eth-listen:veth0,port=3,idle=2",
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
            ("udp:h:1,pin=00", "no SHA-256 fingerprint"),
            ("udp:h:1,insecure", "are for 'reliable'"),
            ("udp:h:1,sequenced,reliable", "needs no numbers"),
            ("eth:veth0,port=1", "to whom?"),
            ("eth:veth0,to=02:00:00:00:00:01", "a port is missing"),
            ("eth:veth0,to=02-00,port=1", "no Ethernet address"),
        ] {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
