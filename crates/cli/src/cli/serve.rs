//! The command line of `bywash serve` and `bywash volume`.

use crate::socket::{self, SocketArg, mode};
use bywash_device::{Spec, device_kinds};
use bywash_options::{OptionError, OptionRow, Row, Value, Words, help};
use bywash_quantity::{TimeUnit, duration, size};
use bywash_server::Timeouts;
use clap::{Args, Subcommand, ValueHint};
use std::ffi::OsStr;
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
    /// Show what a server does: devices, clients, grants, as a table that is renewed
    Status(StatusArgs),
}

/// Options of the server.
#[derive(Args)]
pub struct ServerArgs {
    /// Socket that clients connect to: a path, which is created
    #[arg(long, value_name = "PATH", default_value = SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,

    /// Mode of the socket, as for chmod(1): users who may connect; rights to volumes are separate
    #[arg(long, value_name = "MODE", default_value = "666", value_parser = mode)]
    pub socket_mode: u16,

    /// A device: NAME=mem:SIZE, NAME=file:PATH or NAME=block:PATH, with options after commas; again for more
    #[arg(long = "device", value_name = "NAME=SPEC[,OPTION...]", required = true)]
    pub devices: Vec<Spec>,

    /// The store of volumes, which is made if it is not there; without it they last as long as the server
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,

    /// Limits of clients, and their shares: a file in TOML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub limits: Option<PathBuf>,

    /// Offer a volume to virtual machines as a disk (vhost-user-blk), at a socket of its own; again for more
    #[arg(long = "vhost-user", value_name = "NAME=PATH[,mode=MODE][,group=GROUP]", value_parser = export)]
    pub exports: Vec<ExportArg>,

    /// Serve metrics to Prometheus, under /metrics: at a Unix socket, or at tcp:ADDR:PORT,token=FILE
    #[arg(long, value_name = "PATH[,mode=MODE][,group=GROUP]", value_parser = metrics)]
    pub metrics: Option<MetricsArg>,

    /// The processor that requests are served on
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,

    /// Look for a client's requests for so long after the last before it has to wake the server; or forever
    #[arg(long, value_name = "N|forever", default_value = "100", value_parser = poll)]
    pub poll_us: Poll,

    /// A request that a device has not done after so many milliseconds fails
    #[arg(long, value_name = "N", default_value = "30000", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout_ms: u32,
}

impl ServerArgs {
    /// Returns the server's timeouts.
    pub fn timeouts(&self) -> Timeouts {
        Timeouts::default().poll(self.poll_us.0).request(Duration::from_millis(self.timeout_ms.into()))
    }
}

/// A volume, and the socket at which virtual machines reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportArg {
    /// Name of the volume.
    pub volume: String,
    /// The socket of the export.
    pub socket: SocketArg,
}

fn export(text: &str) -> Result<ExportArg, String> {
    match text.split_once('=') {
        Some((volume, socket)) if !volume.is_empty() && !socket.is_empty() => {
            let socket = SocketArg::read(socket).map_err(|error| error.reason().to_owned())?;
            Ok(ExportArg { volume: volume.to_owned(), socket })
        }
        _ => Err("give a volume's name and a socket's, as in disk1=/run/bywash/disk1".to_owned()),
    }
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

    /// Once, and not again; so it is if standard output is no terminal
    #[arg(long)]
    pub once: bool,

    /// As JSON, once
    #[arg(long)]
    pub json: bool,

    /// Seconds between two looks
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

    /// The store of volumes itself, while no server has it
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,

    /// Subcommand.
    #[command(subcommand)]
    pub command: VolumeCommand,
}

/// Subcommands of `bywash volume`.
#[derive(Subcommand)]
pub enum VolumeCommand {
    /// Make a volume
    Create {
        /// Its name
        name: String,
        /// Its size
        #[command(flatten)]
        size: SizeArgs,
        /// The device that it is to be on
        #[arg(long, value_name = "NAME")]
        device: String,
        /// Owner: a name or a number [default: the user who runs this]
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// Its group: a name or a number [default: the group of the user who asks]
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Mode of the volume, as for chmod(1): bits to read and to write
        #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
        mode: u16,
    },
    /// List volumes
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a volume larger or smaller; grants of one that becomes smaller are taken back
    Resize {
        /// Its name
        name: String,
        /// Its size
        #[command(flatten)]
        size: SizeArgs,
    },
    /// Give a volume another name
    Rename {
        /// Its name
        name: String,
        /// The new one
        to: String,
    },
    /// Change whose a volume is and who may do what with it; its grants are taken back
    Permit {
        /// Its name
        name: String,
        /// New owner: a name or a number
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// Its group: a name or a number
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Mode of the volume, as for chmod(1)
        #[arg(long, value_name = "MODE", value_parser = mode)]
        mode: Option<u16>,
        /// Refuse writing to everybody, or allow it again
        #[arg(long, value_name = "true|false")]
        read_only: Option<bool>,
    },
    /// Revoke all grants of a volume; users who may open it can do so again
    Revoke {
        /// Its name
        name: String,
    },
    /// Remove a volume; its grants are taken back, and what it had is cleared before anybody else has it
    Remove {
        /// Its name
        name: String,
    },
    /// List devices, with the identity on the label of each
    Devices {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Take a device into the store (--policy), and write a label on it that it is known by
    Adopt {
        /// The device, as `bywash serve` has it
        #[arg(value_name = "NAME=SPEC[,OPTION...]")]
        device: Spec,
        /// Take it although that is lost which it holds; the refusal says what to write
        #[arg(long, value_name = "WHAT")]
        force: Option<String>,
    },
    /// Give a device of the store (--policy) another name, or write its label again
    Relabel {
        /// The device, as `bywash serve` has it
        #[arg(value_name = "NAME=SPEC[,OPTION...]")]
        device: Spec,
        /// The name that it is to have
        #[arg(long, value_name = "NAME")]
        to: Option<String>,
        /// Write the label although there is none: you know that it is the device of that name
        #[arg(long)]
        force: bool,
    },
    /// Forget a device of the store (--policy), which need not be there any more
    Forget {
        /// Its name
        name: String,
        /// Forget the volumes on it as well
        #[arg(long)]
        volumes: bool,
    },
}

/// The size of a volume: behind its name, or by --size.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct SizeArgs {
    /// Size at least: bytes, or with K, M, G, T (1024-based)
    #[arg(value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// The same
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
    let (devices, sockets) = (help(device_kinds()), help(sockets()));
    ["Devices, as NAME=KIND:ADDRESS[,OPTION...]:\n", &devices, BETWEEN, &sockets, SERVE_NOTES].concat()
}

const BETWEEN: &str = "\
  A comma in a path is written '\\,'.
  A file or block device is known by a label, which has its first MiB. A blank one gets it at the first start; of any
  other `bywash volume adopt` says what would be lost.

Sockets of --metrics and --vhost-user:
";

const SERVE_NOTES: &str = "
Examples:
  bywash serve --device fast=mem:1G
  bywash serve --policy /var/lib/bywash/volumes --device disk=file:/var/lib/bywash/disk,size=100G
  bywash volume create log 10G --device disk --owner mysql --mode 600
  bywash serve --policy volumes --device disk=file:disk --vhost-user root=/run/bywash/root
  bywash serve --device fast=mem:1G --metrics /run/bywash/metrics,mode=660,group=prometheus
  bywash serve status

It serves until SIGINT, SIGTERM or SIGHUP: then what is under way is done and made durable.
Exit status: 0 it has served and was told to end; 125 it could not begin, or something of it broke.";

pub const VOLUME_NOTES: &str = "\
Examples:
  bywash volume create log 256M --device fast --owner mysql
  bywash volume resize log 512M
  bywash volume list
  bywash volume permit log --mode 640 --group backup
  bywash volume --policy /var/lib/bywash/volumes list
  bywash volume --policy /var/lib/bywash/volumes adopt disk=block:/dev/nvme1n1 --force GPT
  bywash volume --policy /var/lib/bywash/volumes forget disk --volumes

Sizes are rounded up to whole blocks of the device; it is told when they were.
Changes are for root and for the user who runs the server; everybody may list what he may open.
Exit status: 0 done; 125 not done (the message says why).";

#[cfg(test)]
mod tests {
    use super::*;

    /// The guide's table of sockets is made from their rows.
    #[test]
    fn the_guide_has_the_table_of_sockets() {
        let page = include_str!("../../../../docs/guide/serve.md");
        let table = bywash_options::guide("socket", sockets());
        assert!(page.contains(&table), "docs/guide/serve.md lacks this table:\n{table}");
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
