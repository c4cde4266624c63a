//! Endpoints: the sources and sinks that a user can name, one module each.
//!
//! A kind of endpoint is one row of [`KINDS`] and one module, which defines a type that implements
//! [`EndpointType`] and the row: name, syntax, options, and the function that parses them. Nothing outside of
//! such a module asks an endpoint for its kind; callers ask for properties. Invariant: every endpoint can be
//! displayed and parsed again to an equal one. Called by [`crate::flow`] and the modules below it.

#[cfg(feature = "sound")]
mod alsa;
#[cfg(feature = "display")]
mod display;
mod ethernet;
mod file;
mod host;
mod memory;
mod null;
mod quic;
#[cfg(feature = "accelerator")]
mod radar;
mod random;
mod raw;
mod rtp;
mod standard;
mod stream;
mod tcp;
mod udp;
mod unix;
mod zero;

use crate::control::Control;
use crate::datagram::{DatagramEndpoint, Rate};
use crate::end::{ListeningSocket, OpenedStream, Role, Sink, SinkSettings, Source};
use crate::error::Error;
use crate::facts::End;
use crate::movers::Mover;
use bywash_options::{Row, Words, among};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

pub(crate) use file::File;
pub(crate) use stream::{Listening, StreamEndpoint};

/// Source or sink of a flow.
///
/// ```
/// use bywash_flow::Endpoint;
///
/// let endpoint: Endpoint = "file:/var/log/syslog,offset=1M".parse()?;
/// assert_eq!(endpoint.to_string(), "file:/var/log/syslog,offset=1048576");
/// assert!("files:/var/log/syslog".parse::<Endpoint>().is_err());
/// # Ok::<(), bywash_flow::Error>(())
/// ```
#[derive(Clone)]
pub struct Endpoint {
    /// The parsed endpoint, by its own type.
    pub(crate) kind: Arc<dyn EndpointType>,
}

/// A kind of endpoint: its row, and the function that parses the words of such an endpoint.
pub(crate) struct EndpointKind {
    row: Row,
    parse: fn(&mut Words<'_>) -> Result<Endpoint, Error>,
}

/// All kinds of endpoints, in the order in which messages list them.
static KINDS: &[&EndpointKind] = &[
    &file::KIND,
    &raw::KIND,
    &standard::KIND,
    &null::KIND,
    &zero::KIND,
    &random::KIND,
    #[cfg(feature = "accelerator")]
    &radar::KIND,
    #[cfg(feature = "display")]
    &display::KIND,
    #[cfg(feature = "sound")]
    &alsa::KIND,
    &memory::CONNECT,
    &memory::LISTEN,
    &unix::CONNECT,
    &unix::LISTEN,
    &tcp::CONNECT,
    &tcp::LISTEN,
    &udp::CONNECT,
    &udp::LISTEN,
    &rtp::KIND,
    &ethernet::CONNECT,
    &ethernet::LISTEN,
];

/// Returns the rows of all kinds of endpoints.
pub fn endpoints() -> impl Iterator<Item = &'static Row> {
    KINDS.iter().map(|kind| &kind.row)
}

/// A parsed endpoint: answers questions about it, and opens it.
pub(crate) trait EndpointType: fmt::Display + fmt::Debug + Send + Sync {
    /// Returns the properties of the endpoint as a source, without changing anything.
    ///
    /// # Errors
    /// [`Error::Io`] if the endpoint does not exist or cannot be inspected; [`Error::Usage`] if it cannot be
    /// a source.
    fn inspect_source(&self) -> Result<End, Error>;

    /// Returns the properties of the endpoint as a sink, or those that the file to be created will have.
    ///
    /// # Errors
    /// [`Error::Io`] if the endpoint cannot be inspected or a file may not be replaced; [`Error::Usage`] if
    /// it cannot be a sink.
    fn inspect_sink(&self) -> Result<End, Error>;

    /// Returns true if the endpoint is open only after a peer has acted.
    fn waits_for_peer(&self) -> bool;

    /// Opens the endpoint as a source.
    ///
    /// # Errors
    /// [`Error::Usage`] if the endpoint cannot be a source; [`Error::Io`] if it cannot be opened;
    /// [`Error::Data`] if the handshake of a framed connection fails; [`Error::Cancelled`] if the flow is
    /// cancelled.
    fn open_source(&self, context: &OpenContext<'_>) -> Result<OpenedStream<Source>, Error>;

    /// Opens the endpoint as a sink.
    ///
    /// # Errors
    /// [`Error::Usage`] if the endpoint cannot be a sink; otherwise those of [`EndpointType::open_source`].
    fn open_sink(
        &self,
        context: &OpenContext<'_>,
        settings: &SinkSettings,
    ) -> Result<OpenedStream<Sink>, Error>;

    /// Checks that several connections can write to the endpoint at once.
    ///
    /// # Errors
    /// [`Error::Usage`] with the reason if they cannot.
    fn check_shared_sink(&self) -> Result<(), Error>;

    /// Returns the file that the endpoint names; `None` if it is no file with a name.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Returns the path of the file or block device whose data the endpoint is; `None` for other endpoints.
    fn storage_path(&self) -> Option<&Path> {
        None
    }

    /// Returns the endpoint as a stream socket; `None` for other endpoints.
    fn stream(&self) -> Option<&dyn StreamEndpoint> {
        None
    }

    /// Returns the endpoint of datagrams that moves them in this direction; `None` for other endpoints.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Usage`] if a neighbour's address is unknown.
    fn datagrams(&self, _: Direction, _: Option<Mover>, _: Rate) -> Result<Option<DatagramEndpoint>, Error> {
        Ok(None)
    }

    /// Returns how an endpoint of datagrams without sequence numbers treats loss; `None` for other endpoints.
    fn unnumbered_datagrams(&self) -> Option<UnnumberedDatagrams> {
        None
    }
}

/// Direction in which an endpoint moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The endpoint is the source of the flow.
    Receive,
    /// The endpoint is the sink of the flow.
    Send,
}

/// Treatment of loss by an endpoint of datagrams without sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnnumberedDatagrams {
    /// True if datagrams that the kernel dropped do not make the flow fail.
    pub(crate) tolerates_drops: bool,
}

/// Circumstances in which an endpoint is opened.
pub(crate) struct OpenContext<'a> {
    /// Text of the endpoint, for messages.
    pub(crate) name: &'a str,
    /// Socket that already listens for the endpoint; `None` for endpoints that do not listen early.
    pub(crate) listener: Option<&'a ListeningSocket>,
    /// Directions in which the flow moves data at this end.
    pub(crate) role: Role,
    /// Mover that the user forces; `None` if the planner chooses.
    pub(crate) via: Option<Mover>,
    pub(crate) control: &'a Control,
}

/// An endpoint that is about to be opened. A socket that listens does so already, so that a peer that
/// connects early is not refused.
pub(crate) struct PendingEnd<'a> {
    endpoint: &'a Endpoint,
    name: String,
    listener: Option<ListeningSocket>,
    via: Option<Mover>,
    control: &'a Control,
}

impl<'a> PendingEnd<'a> {
    /// Starts to listen if the endpoint is a socket that listens.
    ///
    /// # Errors
    /// Same as [`StreamEndpoint::listen`].
    pub(crate) fn new(
        endpoint: &'a Endpoint,
        via: Option<Mover>,
        control: &'a Control,
    ) -> Result<PendingEnd<'a>, Error> {
        let name = endpoint.to_string();
        let listener = match endpoint.kind.stream() {
            Some(stream) if stream.listening() != Listening::Connects => Some(stream.listen(&name, control)?),
            Some(_) | None => None,
        };
        Ok(PendingEnd { endpoint, name, listener, via, control })
    }

    /// Returns true if the end is open only after a peer has acted.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.endpoint.kind.waits_for_peer()
    }

    /// Opens the end as a source. Errors are those of [`EndpointType::open_source`].
    pub(crate) fn open_source(self, role: Role) -> Result<OpenedStream<Source>, Error> {
        self.endpoint.kind.open_source(&self.context(role))
    }

    /// Opens the end as a sink. Errors are those of [`EndpointType::open_sink`].
    pub(crate) fn open_sink(self, role: Role, settings: &SinkSettings) -> Result<OpenedStream<Sink>, Error> {
        self.endpoint.kind.open_sink(&self.context(role), settings)
    }

    fn context(&self, role: Role) -> OpenContext<'_> {
        let PendingEnd { name, listener, via, control, .. } = self;
        OpenContext { name, listener: listener.as_ref(), role, via: *via, control }
    }
}

impl Endpoint {
    /// Creates the endpoint of the file, FIFO or device at `path`, whatever its name contains.
    pub fn file_at(path: impl Into<PathBuf>) -> Endpoint {
        Endpoint::new(File { path: path.into(), ..File::default() })
    }

    pub(crate) fn new(endpoint: impl EndpointType + 'static) -> Endpoint {
        Endpoint { kind: Arc::new(endpoint) }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Endpoint, Error> {
        OsStr::new(text).try_into()
    }
}

/// Parses an argument of the command line, whose path need not be UTF-8.
impl TryFrom<&OsStr> for Endpoint {
    type Error = Error;

    fn try_from(text: &OsStr) -> Result<Endpoint, Error> {
        if text == standard::KIND.row.name {
            return (standard::KIND.parse)(&mut Words::cut(&standard::KIND.row, text, b""));
        }
        let Some((name, rest)) = split_name(text.as_bytes()) else { return bare(text) };
        match KINDS.iter().find(|kind| kind.row.name.as_bytes() == name) {
            Some(kind) => (kind.parse)(&mut Words::cut(&kind.row, text, rest)),
            None => {
                let (name, text) = (String::from_utf8_lossy(name), text.to_string_lossy());
                let known: Vec<String> = endpoints().map(Row::prefix).collect();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                Err(Error::Usage(format!(
                    "'{text}': there is no endpoint of the kind '{name}'{}, and paths: a file of that name is ./{text}",
                    among(&format!("{name}:"), &known)
                )))
            }
        }
    }
}

/// Splits a text at the colon behind its kind; `None` if the text is a path alone.
fn split_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (name, rest) = (&text[..colon], &text[colon + 1..]);
    let is_path = name.iter().any(|byte| matches!(byte, b'/' | b',' | b'.'));
    (!is_path).then_some((name, rest))
}

/// Parses a path without a kind, which takes the whole text.
fn bare(text: &OsStr) -> Result<Endpoint, Error> {
    match text.is_empty() {
        true => {
            let known: Vec<String> = endpoints().map(Row::prefix).collect();
            Err(Error::Usage(format!("an endpoint is empty: name a file, or one of {}", known.join(", "))))
        }
        false => Ok(Endpoint::file_at(text)),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(out)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.kind, out)
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
            #[cfg(feature = "display")]
            "display:",
            #[cfg(feature = "display")]
            r"display:x11,name=:1,title=a\, b,scale=2,fps=30000/1001,size=8x6,format=yuv420,timeout=2.5",
            #[cfg(feature = "display")]
            "display:wayland,scale=64x48,fps=max",
            #[cfg(feature = "sound")]
            "alsa:",
            #[cfg(feature = "sound")]
            r"alsa:hw:CARD=1\,DEV=0,rate=44100,channels=1,format=s24,latency=0.02,timeout=2,length=2.5",
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
            "rtp:host:5004,type=97,sdp=a.sdp,mtu=1200",
            "rtp::5004,rate=48000,channels=2,buffer=0.05,timeout=2,loss=silence",
            "rtp:[::1]:5004,size=64x48,format=yuv422,fps=30000/1001",
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
            assert_eq!(parsed(text).kind.file().unwrap(), &file(text.as_bytes()), "{text}");
        }
        assert_eq!(parsed("tcp-listen:80").to_string(), parsed("tcp-listen::80").to_string());
    }

    fn file(path: &[u8]) -> File {
        File { path: OsStr::from_bytes(path).into(), ..File::default() }
    }

    #[test]
    fn a_path_need_not_be_utf_8() {
        let read = |word: &[u8]| Endpoint::try_from(OsStr::from_bytes(word));
        for word in [b"\xff".as_slice(), b"./\xff:,\\", b"/a,\xff"] {
            assert_eq!(read(word).unwrap().kind.file().unwrap(), &file(word));
        }
        assert!(read(b"\xff:x").unwrap_err().to_string().contains("a file of that name is ./"));
        let offset = File { offset: Some(5), ..file(b"a,\xe9\\") };
        assert_eq!(read(b"file:a\\,\xe9\\\\,offset=5").unwrap().kind.file().unwrap(), &offset);
        let raw = read(b"raw:\xe9,offset=1").unwrap();
        assert_eq!(raw.kind.storage_path().unwrap().as_os_str().as_bytes(), b"\xe9");
        for word in [&b"mem-listen:\xe9"[..], b"unix-listen:\xe9"] {
            let listener = format!("{:?}", read(word).unwrap());
            assert!(listener.contains(r#"path: "\xE9""#), "{listener}");
        }
        assert_eq!(read(b"tcp:host:1").unwrap().to_string(), parsed("tcp:host:1").to_string());
        assert!(read(b"tcp:\xe9:1").unwrap_err().to_string().contains("only paths may be"));
        assert!(read(b"file:x,\xe9").unwrap_err().to_string().contains("no option"));
        assert!(read(b"udp:h:1,pin=\xe9").unwrap_err().to_string().contains("only paths may be"));
    }

    /// Returns an address that the row's kind accepts, and the options that the kind requires.
    fn example(row: &Row) -> String {
        let address = row
            .address
            .replace("[ADDRESS:]PORT", "80")
            .replace("[HOST:]PORT", "80")
            .replace("HOST:PORT", "host:80");
        let address = address.replace("SAMPLESxPULSES", "512x512").replace("[wayland|x11|kms]", "kms");
        let required = match row.name {
            "eth" => ",to=02:00:00:00:00:01,port=1",
            "eth-listen" => ",port=1",
            _ => "",
        };
        format!("{}{address}{required}", row.prefix())
    }

    #[test]
    fn every_row_parses_its_example_its_options_and_their_defaults() {
        // A text that begins with `-` is the endpoint of that name only if nothing follows.
        for row in endpoints().filter(|row| row.name != "-") {
            let plain = example(row);
            parsed(&plain);
            assert_eq!(row.syntax().split(':').next(), Some(row.name), "{plain}");
            for option in row.options {
                let value = match option.value {
                    bywash_options::Value::Flag => String::new(),
                    _ if option.default.is_some() => format!("={}", option.default.unwrap()),
                    bywash_options::Value::Text("OCTAL") => "=0644".into(),
                    bywash_options::Value::Text("FINGERPRINT") => format!("={}", "0f".repeat(32)),
                    bywash_options::Value::Text("MAC|IP") => "=10.0.0.1".into(),
                    bywash_options::Value::Text("WxH") => "=64x48".into(),
                    bywash_options::Value::Choice(words) => format!("={}", words[0]),
                    _ => "=7".into(),
                };
                // The option may exclude another one, or need it; but no row has an option that is unknown.
                if let Err(error) = format!("{plain},{}{value}", option.name).parse::<Endpoint>() {
                    let error = error.to_string();
                    assert!(!error.contains("no option"), "{error}");
                    assert!(!error.contains(&format!("'{}':", option.name)), "{error}");
                }
            }
            let unknown = format!("{plain},nonsense").parse::<Endpoint>().unwrap_err().to_string();
            assert!(unknown.contains("no option 'nonsense'"), "{unknown}");
            let misspelt = format!("{}{}", row.name.replacen(|_: char| true, "", 1), ":x");
            if row.name.len() > 3 {
                let error = misspelt.parse::<Endpoint>().unwrap_err().to_string();
                assert!(error.contains(&format!("did you mean '{}:'", row.name)), "{error}");
            }
        }
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
            ("udp:h:1,sequenced,sequenced", "'sequenced' is there twice"),
            ("rtp:h:1,type=128", "no payload type"),
            ("rtp:h:1,mtu=10", "no size of a packet"),
            ("file:a,ofset=1", "did you mean 'offset'?"),
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
