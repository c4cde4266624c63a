//! The command line of `bywash serve` and `bywash volume`.

use crate::socket::{self, SocketArg, absolute, mode};
use bywash_device::{Spec, device_kinds};
use bywash_nvme::DEVICE_KIND;
use bywash_options::{OptionError, OptionRow, Row, Value, Words, flag, help, option};
use bywash_quantity::{TimeUnit, duration, size};
use bywash_server::Timeouts;
use clap::{Args, Subcommand, ValueHint};
use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Default path of a server's socket.
pub const SOCKET: &str = "/run/bywash/socket";

/// `bywash serve`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ServeArgs {
    /// Subcommand that runs instead of serving.
    #[command(subcommand)]
    pub command: Option<ServeCommand>,

    /// Devices to serve, and options of the server.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Subcommands of `bywash serve`.
#[derive(Subcommand)]
pub enum ServeCommand {
    /// Show a server's devices, clients and grants in a table that is updated
    Status(StatusArgs),
    /// Add a device to a running server, until the server ends
    Add(AddArgs),
    /// Take a device away from a running server, if no client uses it
    Drop(DropArgs),
}

/// `bywash serve add`.
#[derive(Args)]
pub struct AddArgs {
    /// Device, as for --device
    #[arg(value_name = "NAME=SPEC[,OPTION...]", value_parser = device)]
    pub device: Spec,

    /// Socket of the server
    #[arg(long, value_name = "PATH", default_value = SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
}

/// `bywash serve drop`.
#[derive(Args)]
pub struct DropArgs {
    /// Name of the device
    pub name: String,

    /// Socket of the server
    #[arg(long, value_name = "PATH", default_value = SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,
}

/// Options of the server.
#[derive(Args)]
pub struct ServerArgs {
    /// Path of the socket that clients connect to; it is created
    #[arg(long, value_name = "PATH", default_value = SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,

    /// Mode of the socket, as for chmod(1): users who may connect; volumes have permissions of their own
    #[arg(long, value_name = "MODE", default_value = "666", value_parser = mode)]
    pub socket_mode: u16,

    /// Device to serve: NAME=mem:SIZE, NAME=file:PATH, NAME=block:PATH or NAME=nvme:PCI-ADDRESS, with options behind
    /// commas; may be repeated
    #[arg(long = "device", value_name = "NAME=SPEC[,OPTION...]", required = true, value_parser = device)]
    pub devices: Vec<Spec>,

    /// File in which volumes are stored; created if it does not exist. Without it volumes end with the server
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,

    /// TOML file with the limits and shares of users
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub limits: Option<PathBuf>,

    /// Export a volume as a disk for virtual machines (vhost-user-blk), at a socket of its own; may be repeated
    #[arg(long = "vhost-user", value_name = "NAME=PATH[,OPTION...]", value_parser = export)]
    pub exports: Vec<ExportArg>,

    /// Export a volume to NBD clients, at unix:PATH or tcp:ADDR:PORT, with options behind commas; may be repeated, also
    /// with the same address
    #[arg(long = "nbd", value_name = "NAME=ADDRESS[,OPTION...]", value_parser = nbd)]
    pub nbd: Vec<NbdArg>,

    /// Publish metrics for Prometheus as /metrics, at a Unix socket or at tcp:ADDR:PORT,token=FILE
    #[arg(long, value_name = "PATH[,mode=MODE][,group=GROUP]", value_parser = metrics)]
    pub metrics: Option<MetricsArg>,

    /// Processor that serves requests
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,

    /// Time for which the server polls a client's channel after its last request, in microseconds, or forever;
    /// after that the client must wake the server
    #[arg(long, value_name = "N|forever", default_value = "100", value_parser = poll)]
    pub poll_us: Poll,

    /// Time after which a request that its device has not completed fails, in milliseconds
    #[arg(long, value_name = "N", default_value = "30000", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout_ms: u32,
}

impl ServerArgs {
    /// Returns the server's timeouts.
    pub fn timeouts(&self) -> Timeouts {
        Timeouts::default().poll(self.poll_us.0).request(Duration::from_millis(self.timeout_ms.into()))
    }
}

/// Parses the description of a device.
///
/// # Errors
/// The text of [`Spec::parse`]'s error.
pub fn device(text: &str) -> Result<Spec, String> {
    Spec::parse(text, &[&DEVICE_KIND]).map_err(|error| error.to_string())
}

/// Returns the rows of all kinds of devices.
fn devices() -> impl Iterator<Item = &'static Row> {
    device_kinds().chain([&DEVICE_KIND.row])
}

/// A volume, and the socket at which virtual machines reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportArg {
    /// Name of the volume.
    pub volume: String,
    /// The socket and options of the export.
    pub at: VhostUserAddress,
}

/// Socket at which virtual machines connect to a disk, and options of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUserAddress {
    /// The socket, whose mode decides who may connect.
    pub socket: SocketArg,
    /// Greatest number of queues that a virtual machine can use.
    pub queues: u16,
}

/// Syntax of a socket at which virtual machines connect to a disk.
static VHOST_USER: Row = Row {
    name: "",
    address: "PATH",
    sentence: "a Unix socket",
    options: &[
        socket::MODE_ROW,
        socket::GROUP_ROW,
        OptionRow::new(
            "queues",
            Value::Text("N"),
            "greatest number of queues that a virtual machine can use (num-queues of QEMU), 1 to 16",
        )
        .or("16"),
    ],
};

/// Returns the row of the sockets at which virtual machines connect to disks.
pub fn vhost_user_sockets() -> [&'static Row; 1] {
    [&VHOST_USER]
}

fn export(text: &str) -> Result<ExportArg, String> {
    match text.split_once('=') {
        Some((volume, at)) if !volume.is_empty() && !at.is_empty() => {
            Ok(ExportArg { volume: volume.to_owned(), at: vhost_user_address(at)? })
        }
        _ => Err("give a volume's name and a socket's, as in disk1=/run/bywash/disk1".to_owned()),
    }
}

/// Parses a socket at which virtual machines connect to a disk, with the options of the disk.
///
/// # Errors
/// The reason, as text, if the path is missing or an option is invalid.
pub fn vhost_user_address(text: &str) -> Result<VhostUserAddress, String> {
    let mut words = Words::cut(&VHOST_USER, OsStr::new(text), text.as_bytes());
    let mut read = || {
        let socket = SocketArg::take(&mut words)?;
        let queues = words.value("queues", queues)?.unwrap_or(bywash_vhost::QUEUES_MAX);
        words.check_all_taken().map(|()| VhostUserAddress { socket, queues })
    };
    read().map_err(|error: OptionError| error.reason().to_owned())
}

fn queues(text: &str) -> Result<u16, String> {
    let queues = text.parse().ok().filter(|queues| (1..=bywash_vhost::QUEUES_MAX).contains(queues));
    queues.ok_or_else(|| format!("give a number from 1 to {}", bywash_vhost::QUEUES_MAX))
}

impl VhostUserAddress {
    /// Makes the path absolute, for a server whose current folder is another one.
    ///
    /// # Errors
    /// The reason, as text, if it cannot be made absolute.
    pub fn absolute(self) -> Result<VhostUserAddress, String> {
        Ok(VhostUserAddress { socket: self.socket.absolute()?, ..self })
    }
}

/// Displays the socket with the options of the disk, as the command line reads it.
impl fmt::Display for VhostUserAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{},queues={}", self.socket, self.queues)
    }
}

/// A volume, and the address at which NBD clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdArg {
    /// Name of the volume, and of the export.
    pub volume: String,
    /// The address, which several volumes can have.
    pub address: NbdAddress,
}

/// Address at which NBD clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A Unix socket, whose mode decides who may connect.
    Unix(SocketArg),
    /// A TCP address. Other machines can reach it only if it has TLS, or was declared open.
    Tcp {
        /// Address and port to listen at.
        address: SocketAddr,
        /// Certificates, if clients must use TLS.
        tls: Option<NbdTls>,
        /// True if it was declared open: other machines may reach it, without TLS.
        is_open: bool,
    },
}

impl NbdAddress {
    /// Returns true if two addresses are the same socket, even if their options differ.
    pub fn is_same_socket(&self, other: &NbdAddress) -> bool {
        match (self, other) {
            (NbdAddress::Unix(one), NbdAddress::Unix(other)) => one.is_same(other),
            (NbdAddress::Tcp { address: one, .. }, NbdAddress::Tcp { address: other, .. }) => one == other,
            _ => false,
        }
    }

    /// Returns the address without its options, as messages and reports show it.
    pub fn shown(&self) -> String {
        match self {
            NbdAddress::Unix(at) => format!("unix:{}", at.shown()),
            NbdAddress::Tcp { address, .. } => format!("tcp:{address}"),
        }
    }

    /// Makes the paths absolute, for a server whose current folder is another one.
    ///
    /// # Errors
    /// The reason, as text, if a path cannot be made absolute.
    pub fn absolute(mut self) -> Result<NbdAddress, String> {
        match &mut self {
            NbdAddress::Unix(at) => at.path = absolute(&at.path)?,
            NbdAddress::Tcp { tls: Some(NbdTls { certificate, key, authorities }), .. } => {
                for path in [certificate, key, authorities] {
                    *path = absolute(path)?;
                }
            }
            NbdAddress::Tcp { tls: None, .. } => {}
        }
        Ok(self)
    }
}

/// Displays the address with its options, as the command line reads it.
impl fmt::Display for NbdAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(at) => write!(out, "unix:{at}"),
            NbdAddress::Tcp { address, tls, is_open } => {
                write!(out, "tcp:{address}")?;
                if let Some(NbdTls { certificate, key, authorities }) = tls {
                    option(out, "cert", Some(certificate.display()))?;
                    option(out, "key", Some(key.display()))?;
                    option(out, "clients", Some(authorities.display()))?;
                }
                flag(out, "open", *is_open)
            }
        }
    }
}

/// Files with the certificates of TLS, in the form PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdTls {
    /// Certificate of the server.
    pub certificate: PathBuf,
    /// Key of the server.
    pub key: PathBuf,
    /// Certificates of the authorities of clients.
    pub authorities: PathBuf,
}

/// Syntax of a Unix socket at which NBD clients connect.
static NBD_UNIX: Row =
    Row { name: "unix", address: "PATH", sentence: "a Unix socket", options: socket::ROW.options };

/// Syntax of a TCP address at which NBD clients connect.
static NBD_TCP: Row = Row {
    name: "tcp",
    address: "ADDR:PORT",
    sentence: "a TCP address, such as 127.0.0.1:10809",
    options: &[
        OptionRow::new(
            "cert",
            Value::Text("FILE"),
            "clients must use TLS; FILE has the server's certificate (PEM). It goes with key and clients",
        ),
        OptionRow::new("key", Value::Text("FILE"), "file with the key of the server's certificate"),
        OptionRow::new(
            "clients",
            Value::Text("FILE"),
            "file with the certificates of authorities, one of which must have signed a client's certificate",
        ),
        OptionRow::flag(
            "open",
            "other machines can reach the address, nothing is encrypted, and everybody who can connect may read and write \
             the volume",
        ),
    ],
};

/// Returns the rows of the addresses at which volumes are exported to NBD clients.
pub fn nbd_addresses() -> [&'static Row; 2] {
    [&NBD_UNIX, &NBD_TCP]
}

fn nbd(text: &str) -> Result<NbdArg, String> {
    let Some((volume, address)) = text.split_once('=').filter(|(volume, _)| !volume.is_empty()) else {
        let example = "as in disk1=unix:/run/bywash/nbd or disk1=tcp:127.0.0.1:10809";
        return Err(format!("give a volume's name and an address, {example}"));
    };
    Ok(NbdArg { volume: volume.to_owned(), address: nbd_address(address)? })
}

/// Parses an address at which NBD clients connect.
///
/// # Errors
/// The reason, as text, if it is none, or other machines could reach it without TLS.
pub fn nbd_address(text: &str) -> Result<NbdAddress, String> {
    let parsed = if let Some(rest) = text.strip_prefix("unix:") {
        SocketArg::read(rest).map(NbdAddress::Unix)
    } else if let Some(rest) = text.strip_prefix("tcp:") {
        nbd_tcp(Words::cut(&NBD_TCP, OsStr::new(text), rest.as_bytes()))
    } else {
        let example = "as in unix:/run/bywash/nbd or tcp:127.0.0.1:10809";
        return Err(format!("an address begins with 'unix:' or 'tcp:', {example}"));
    };
    parsed.map_err(|error| error.reason().to_owned())
}

fn nbd_tcp(mut words: Words<'_>) -> Result<NbdAddress, OptionError> {
    let text = words.address()?;
    let address: SocketAddr =
        text.parse().map_err(|_| words.error(format!("'{text}' is no address, such as 127.0.0.1:10809")))?;
    let files = (words.path_value("cert")?, words.path_value("key")?, words.path_value("clients")?);
    let is_open = words.flag("open")?;
    words.check_all_taken()?;
    let tls = match files {
        (Some(certificate), Some(key), Some(authorities)) if !is_open => {
            Some(NbdTls { certificate, key, authorities })
        }
        (None, None, None) => None,
        _ => {
            let reason =
                "give cert, key and clients together, for TLS with certificates of both sides, and not open";
            return Err(words.error(reason.to_owned()));
        }
    };
    if tls.is_none() && !is_open && bywash_nbd::check_loopback(&address).is_err() {
        let reason = "other machines can reach it, and nothing is encrypted; give cert, key and clients for TLS, an \
                      address of 127.0.0.0/8 or [::1], or open if everybody who can connect may read and write the volume";
        return Err(words.error(format!("{address}: {reason}")));
    }
    Ok(NbdAddress::Tcp { address, tls, is_open })
}

/// Socket or address at which metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsArg {
    /// A Unix socket, whose mode decides who may read.
    Unix(SocketArg),
    /// A TCP address.
    Tcp {
        /// Address and port to listen at.
        address: SocketAddr,
        /// File with the token that requests must bear; `None` lets everybody read who can connect.
        token: Option<PathBuf>,
    },
}

/// Syntax of a TCP address at which metrics are served.
static TCP: Row = Row {
    name: "tcp",
    address: "ADDR:PORT",
    sentence: "a TCP address, for metrics alone",
    options: &[
        OptionRow::new(
            "token",
            Value::Text("FILE"),
            "requests must send the token in FILE, which only its owner and group may read (Authorization: Bearer TOKEN)",
        ),
        OptionRow::flag("open", "everybody who can connect may read"),
    ],
};

/// Returns the rows of the sockets that the command line can name.
pub fn sockets() -> [&'static Row; 2] {
    [&socket::ROW, &TCP]
}

fn metrics(text: &str) -> Result<MetricsArg, String> {
    let arg = match text.strip_prefix("tcp:") {
        Some(rest) => tcp(Words::cut(&TCP, OsStr::new(text), rest.as_bytes())),
        None => SocketArg::read(text).map(MetricsArg::Unix),
    };
    match arg.map_err(|error| error.reason().to_owned())? {
        MetricsArg::Unix(socket)
            if socket.path.to_str().is_some_and(|path| path.parse::<SocketAddr>().is_ok()) =>
        {
            Err(format!("a TCP address begins with 'tcp:', as in tcp:{text},token=FILE"))
        }
        arg => Ok(arg),
    }
}

fn tcp(mut words: Words<'_>) -> Result<MetricsArg, OptionError> {
    let address = words.address()?;
    let address = address
        .parse()
        .map_err(|_| words.error(format!("'{address}' is no address, such as 127.0.0.1:9105")))?;
    let (token, is_open) = (words.path_value("token")?, words.flag("open")?);
    words.check_all_taken()?;
    match token.is_some() != is_open {
        true => Ok(MetricsArg::Tcp { address, token }),
        false => Err(words.error(
            "give token=FILE, or open if everybody who can connect may read the metrics; one of the two",
        )),
    }
}

/// Time that a server spins on a client's queue after its last request, before the client has to wake it;
/// `None` for no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll(Option<Duration>);

fn poll(text: &str) -> Result<Poll, String> {
    if text == "forever" {
        return Ok(Poll(None));
    }
    let duration = duration(text, TimeUnit::Microsecond).map_err(|error| format!("{error}, or forever"))?;
    Ok(Poll(Some(duration)))
}

/// `bywash serve status`.
#[derive(Args)]
pub struct StatusArgs {
    /// Socket of the server
    #[arg(long, value_name = "PATH", default_value = SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,

    /// Print the table once; the default if standard output is no terminal
    #[arg(long)]
    pub once: bool,

    /// Print JSON, once
    #[arg(long)]
    pub json: bool,

    /// Interval between updates, in seconds
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
}

/// `bywash volume`.
#[derive(Args)]
pub struct VolumeArgs {
    /// Socket of the server
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        default_value = SOCKET,
        conflicts_with = "policy",
        value_hint = ValueHint::FilePath
    )]
    pub socket: PathBuf,

    /// Change the file of a server's --policy instead, which no server may have open
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,

    /// Subcommand.
    #[command(subcommand)]
    pub command: VolumeCommand,
}

/// Subcommands of `bywash volume`.
#[derive(Subcommand)]
pub enum VolumeCommand {
    /// Create a volume
    Create {
        /// Name of the volume
        name: String,
        /// Size of the volume
        #[command(flatten)]
        size: SizeArgs,
        /// Name of the device to create the volume on
        #[arg(long, value_name = "NAME")]
        device: String,
        /// Owner of the volume: a name or a number [default: the user who runs this command]
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// Group of the volume: a name or a number [default: the group of that user]
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Mode of the volume, as for chmod(1): bits to read and to write
        #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
        mode: u16,
    },
    /// List volumes
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the size of a volume; if it becomes smaller, its grants are revoked
    Resize {
        /// Name of the volume
        name: String,
        /// Size of the volume
        #[command(flatten)]
        size: SizeArgs,
    },
    /// Rename a volume
    Rename {
        /// Name of the volume
        name: String,
        /// New name
        to: String,
    },
    /// Change the owner, group or mode of a volume, and revoke its grants
    Permit {
        /// Name of the volume
        name: String,
        /// New owner: a name or a number
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// New group: a name or a number
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// New mode, as for chmod(1)
        #[arg(long, value_name = "MODE", value_parser = mode)]
        mode: Option<u16>,
        /// Make the volume read-only for everybody, or writable again
        #[arg(long, value_name = "true|false")]
        read_only: Option<bool>,
    },
    /// Revoke all grants of a volume; users who may open it can do so again
    Revoke {
        /// Name of the volume
        name: String,
    },
    /// Remove a volume and revoke its grants; its blocks are cleared before another volume gets them
    Remove {
        /// Name of the volume
        name: String,
    },
    /// Export a volume as a disk for programs that are not clients, until the server ends
    Export {
        /// Name of the volume
        name: String,
        /// Address of the export
        #[command(flatten)]
        at: ExportAt,
    },
    /// End the exports of a volume: all, or the one at an address
    Unexport {
        /// Name of the volume when it was exported
        name: String,
        /// Address of the export
        #[command(flatten)]
        at: UnexportAt,
    },
    /// List devices with the identities on their labels
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a device to the store (--policy), and write a label on it
    Adopt {
        /// Device, as for `bywash serve --device`
        #[arg(value_name = "NAME=SPEC[,OPTION...]", value_parser = device)]
        device: Spec,
        /// Adopt the device although this is lost: the contents that the refusal names
        #[arg(long, value_name = "WHAT")]
        force: Option<String>,
    },
    /// Rename a device of the store (--policy), or write its label again
    Relabel {
        /// Device, as for `bywash serve --device`
        #[arg(value_name = "NAME=SPEC[,OPTION...]", value_parser = device)]
        device: Spec,
        /// New name of the device
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
        /// Write the label although the device has none, because you know that it is the one of that name
        #[arg(long)]
        force: bool,
    },
    /// Remove a device from the store (--policy), even if the device does not exist any more
    Forget {
        /// Name of the device
        name: String,
        /// Remove the volumes on the device, too
        #[arg(long)]
        volumes: bool,
    },
}

/// Address at which a volume is exported, by one of the protocols.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct ExportAt {
    /// For NBD clients, at unix:PATH or tcp:ADDR:PORT, with options behind commas as for `bywash serve --nbd`
    #[arg(long, value_name = "ADDRESS[,OPTION...]", value_parser = nbd_address)]
    pub nbd: Option<NbdAddress>,
    /// For virtual machines (vhost-user-blk), at a socket, with options as for `bywash serve --vhost-user`
    #[arg(long, value_name = "PATH[,OPTION...]", value_parser = vhost_user_address)]
    pub vhost_user: Option<VhostUserAddress>,
}

/// Address of an export that is to end, by one of the protocols; none for all exports of the volume.
#[derive(Args)]
#[group(multiple = false)]
pub struct UnexportAt {
    /// Only the export for NBD clients at unix:PATH or tcp:ADDR:PORT
    #[arg(long, value_name = "ADDRESS", value_parser = nbd_address)]
    pub nbd: Option<NbdAddress>,
    /// Only the export for virtual machines at this socket
    #[arg(long, value_name = "PATH", value_parser = vhost_user_address)]
    pub vhost_user: Option<VhostUserAddress>,
}

/// The size of a volume: behind its name, or by --size.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct SizeArgs {
    /// Size, rounded up to whole blocks: bytes, or with K, M, G, T (1024-based)
    #[arg(value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Size, as an option
    #[arg(long = "size", value_name = "SIZE", value_parser = size)]
    size_option: Option<u64>,
}

impl SizeArgs {
    /// Returns the size in bytes, from the one of the two options that was given.
    pub fn bytes(&self) -> u64 {
        self.size.or(self.size_option).unwrap_or_default()
    }
}

/// Returns the help text behind the options of `bywash serve`.
pub fn notes() -> String {
    let (devices, sockets) = (help(devices()), help(sockets()));
    let (vhost_user, nbd) = (help(vhost_user_sockets()), help(nbd_addresses()));
    let parts = [
        "Devices, as NAME=KIND:ADDRESS[,OPTION...]:\n",
        &devices,
        BETWEEN,
        &sockets,
        VHOST_USER_HEAD,
        &vhost_user,
        NBD_HEAD,
        &nbd,
        SERVE_NOTES,
    ];
    parts.concat()
}

const BETWEEN: &str = "\
  Write a comma in a path as '\\,'.
  A label in the first MiB identifies a file or block device. A blank device gets one when it is first
  served; `bywash volume adopt` adds any other device.

Sockets of --metrics:
";

const VHOST_USER_HEAD: &str = "\nSockets of --vhost-user:\n";

const NBD_HEAD: &str = "\nAddresses of --nbd:\n";

const SERVE_NOTES: &str = "
Examples:
  bywash serve --device fast=mem:1G
  bywash serve --policy /var/lib/bywash/volumes --device disk=file:/var/lib/bywash/disk,size=100G
  bywash volume create log 10G --device disk --owner mysql --mode 600
  bywash serve --policy volumes --device disk=file:disk --vhost-user root=/run/bywash/root
  bywash serve --policy volumes --device disk=file:disk --nbd root=unix:/run/bywash/nbd
  bywash serve --policy volumes --device disk=nvme:0000:01:00.0
  bywash serve --device fast=mem:1G --metrics /run/bywash/metrics,mode=660,group=prometheus
  bywash serve status
  bywash serve add more=block:/dev/nvme1n1

The server runs until SIGINT, SIGTERM or SIGHUP; then it completes the requests in flight and makes
them durable. Exit status: 0 after such a signal; 125 if it cannot start, or one of its parts fails.";

pub const VOLUME_NOTES: &str = "\
Examples:
  bywash volume create log 256M --device fast --owner mysql
  bywash volume resize log 512M
  bywash volume list
  bywash volume permit log --mode 640 --group backup
  bywash volume --policy /var/lib/bywash/volumes list
  bywash volume --policy /var/lib/bywash/volumes adopt disk=block:/dev/nvme1n1 --force GPT
  bywash volume --policy /var/lib/bywash/volumes forget disk --volumes
  bywash volume export log --nbd unix:/run/bywash/log,mode=660
  bywash volume unexport log

Sizes are rounded up to whole blocks of the device; the command prints a rounded size. Root and the
user who runs the server may change and export volumes; other users may list those that they may open.
Exit status: 0, or 125 after an error (the message says why).";

#[cfg(test)]
mod tests {
    use super::*;

    /// The guide's table of sockets is made from their rows.
    #[test]
    fn the_guide_has_the_table_of_sockets_for_virtual_machines() {
        let page = include_str!("../../../../docs/guide/virtual-machines.md");
        let table = bywash_options::guide("socket", vhost_user_sockets());
        assert!(page.contains(&table), "docs/guide/virtual-machines.md has another table than:\n{table}");
    }

    #[test]
    fn the_guide_has_the_table_of_sockets() {
        let page = include_str!("../../../../docs/guide/serve.md");
        let table = bywash_options::guide("socket", sockets());
        assert!(page.contains(&table), "docs/guide/serve.md lacks this table:\n{table}");
        let table = bywash_options::guide("address", nbd_addresses());
        let page = include_str!("../../../../docs/guide/nbd.md");
        assert!(page.contains(&table), "docs/guide/nbd.md lacks this table:\n{table}");
    }

    #[test]
    fn volumes_are_exported_to_nbd_clients_at_addresses() {
        let unix = |path: &str, mode| SocketArg { path: path.into(), mode, group: None };
        let with = |address| Ok(NbdArg { volume: "v".into(), address });
        assert_eq!(nbd("v=unix:/x,mode=660"), with(NbdAddress::Unix(unix("/x", 0o660))));
        let tcp = |address: &str, tls, is_open| {
            let address = address.parse().unwrap();
            NbdAddress::Tcp { address, tls, is_open }
        };
        for address in ["127.0.0.1:10809", "[::1]:1"] {
            assert_eq!(nbd(&format!("v=tcp:{address}")), with(tcp(address, None, false)));
        }
        assert_eq!(nbd("v=tcp:0.0.0.0:1,open"), with(tcp("0.0.0.0:1", None, true)));
        let tls = NbdTls { certificate: "/c".into(), key: "/k".into(), authorities: "/a".into() };
        let with_tls = with(tcp("0.0.0.0:1", Some(tls), false));
        assert_eq!(nbd("v=tcp:0.0.0.0:1,cert=/c,key=/k,clients=/a"), with_tls);
        // A server reads the address as it was displayed.
        for text in [
            "unix:/x\\,y,mode=660,group=kvm",
            "tcp:127.0.0.1:10809",
            "tcp:0.0.0.0:1,open",
            "tcp:0.0.0.0:1,cert=/c\\,d,key=/k,clients=/a",
        ] {
            let address = nbd_address(text).unwrap();
            assert_eq!((address.to_string().as_str(), address.absolute()), (text, nbd_address(text)));
        }
        let absolute = nbd_address("unix:x").unwrap().absolute().unwrap();
        assert!(absolute.is_same_socket(&nbd_address("unix:x,mode=666").unwrap()));
        assert!(!absolute.is_same_socket(&nbd_address("unix:/x").unwrap()));
        for (text, reason) in [
            ("v", "a volume's name"),
            ("=unix:/x", "a volume's name"),
            ("v=/x", "begins with 'unix:'"),
            ("v=unix:", "missing"),
            ("v=unix:/x,mode=x", "octal"),
            ("v=tcp:localhost", "'localhost' is no address"),
            ("v=tcp:0.0.0.0:1", "other machines can reach it"),
            ("v=tcp:192.0.2.1:1", "other machines can reach it"),
            ("v=tcp:192.0.2.1:1,cert=/c,key=/k", "cert, key and clients together"),
            ("v=tcp:127.0.0.1:1,cert=/c,key=/k,clients=/a,open", "and not open"),
            ("v=tcp:127.0.0.1:1,opn", "did you mean 'open'?"),
        ] {
            let error = nbd(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn volumes_are_exported_to_virtual_machines_at_sockets() {
        let socket = SocketArg { path: "/x".into(), mode: 0o660, group: Some("kvm".into()) };
        let with = |queues| VhostUserAddress { socket: socket.clone(), queues };
        assert_eq!(export("v=/x,mode=660,group=kvm"), Ok(ExportArg { volume: "v".into(), at: with(16) }));
        let two = vhost_user_address("/x,queues=2,mode=660,group=kvm").unwrap();
        assert_eq!((&two, vhost_user_address(&two.to_string())), (&with(2), Ok(with(2))));
        for (text, reason) in [
            ("v", "a volume's name"),
            ("v=", "a volume's name"),
            ("v=/x,queues=0", "from 1 to 16"),
            ("v=/x,queues=17", "from 1 to 16"),
            ("v=/x,queue=2", "did you mean 'queues'?"),
        ] {
            let error = export(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn metrics_are_served_at_a_socket_or_an_address() {
        let address = "127.0.0.1:9105".parse().unwrap();
        let with = MetricsArg::Tcp { address, token: Some("/t".into()) };
        assert_eq!(metrics("tcp:127.0.0.1:9105,token=/t"), Ok(with));
        assert_eq!(metrics("tcp:127.0.0.1:9105,open"), Ok(MetricsArg::Tcp { address, token: None }));
        assert!(matches!(metrics("/run/x,mode=660"), Ok(MetricsArg::Unix(socket)) if socket.mode == 0o660));
        for (text, reason) in [
            ("127.0.0.1:9105", "begins with 'tcp:'"),
            ("tcp:host", "'host' is no address"),
            ("tcp:127.0.0.1:9105", "one of the two"),
            ("tcp:127.0.0.1:9105,open,token=/t", "one of the two"),
            ("tcp:127.0.0.1:9105,tokn=/t", "did you mean 'token'?"),
        ] {
            let error = metrics(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
