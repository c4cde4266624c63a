//! The command line of `bywash serve` and `bywash volume`.

use bywash_device::{Spec, read_size};
use bywash_server::Patience;
use clap::{Args, Subcommand, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where a server listens, if it is not said.
pub const SOCKET: &str = "/run/bywash/socket";

/// `bywash serve`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ServeArgs {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<ServeCommand>,

    /// What to serve, and how.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// What `bywash serve` can do besides.
#[derive(Subcommand)]
pub enum ServeCommand {
    /// Show what a server does: devices, clients, grants, as a table that is renewed
    Status(StatusArgs),
}

/// How to serve.
#[derive(Args)]
pub struct ServerArgs {
    /// Where clients connect: a name in the file system, which is made
    #[arg(long, value_name = "PATH", default_value = SOCKET, value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,

    /// Who may connect, as chmod(1) has it; what they may open is another matter
    #[arg(long, value_name = "MODE", default_value = "666", value_parser = mode)]
    pub socket_mode: u16,

    /// A device: NAME=mem:SIZE, NAME=file:PATH or NAME=block:PATH, with options after commas; again for more
    #[arg(long = "device", value_name = "NAME=SPEC[,OPTION...]", required = true)]
    pub devices: Vec<Spec>,

    /// The store of volumes, which is made if it is not there; without it they last as long as the server
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,

    /// What clients may have at most, and their shares: a file in TOML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub limits: Option<PathBuf>,

    /// Offer a volume to virtual machines as a disk (vhost-user-blk), at a socket of its own; again for more
    #[arg(long = "vhost-user", value_name = "NAME=PATH", value_parser = export)]
    pub exports: Vec<ExportArg>,

    /// Tell Prometheus at this address, as in 127.0.0.1:9105, under /metrics
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,

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
    /// How to wait.
    pub fn patience(&self) -> Patience {
        Patience { poll: self.poll_us.0, request: Duration::from_millis(self.timeout_ms.into()) }
    }
}

/// A volume, and the socket at which virtual machines have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportArg {
    /// The volume's name.
    pub volume: String,
    /// The socket's.
    pub path: PathBuf,
}

fn export(text: &str) -> Result<ExportArg, String> {
    match text.split_once('=') {
        Some((volume, path)) if !volume.is_empty() && !path.is_empty() => {
            Ok(ExportArg { volume: volume.to_owned(), path: path.into() })
        }
        _ => Err("give a volume's name and a socket's, as in disk1=/run/bywash/disk1".to_owned()),
    }
}

/// How long to look; none: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll(Option<Duration>);

fn poll(text: &str) -> Result<Poll, String> {
    if text == "forever" {
        return Ok(Poll(None));
    }
    let micros = text.parse().map_err(|_| "give microseconds, or forever".to_owned())?;
    Ok(Poll(Some(Duration::from_micros(micros))))
}

/// A mode in octal.
fn mode(text: &str) -> Result<u16, String> {
    let bits = u16::from_str_radix(text, 8).ok().filter(|bits| bits & !0o777 == 0);
    bits.ok_or_else(|| "give three octal digits, as in 640".to_owned())
}

/// `bywash serve status`.
#[derive(Args)]
pub struct StatusArgs {
    /// Where the server listens
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
    /// Where the server listens
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

    /// What to do.
    #[command(subcommand)]
    pub command: VolumeCommand,
}

/// What `bywash volume` can do.
#[derive(Subcommand)]
pub enum VolumeCommand {
    /// Make a volume
    Create {
        /// Its name
        name: String,
        /// The device that it is to be on
        #[arg(long, value_name = "NAME")]
        device: String,
        /// How large, at least: bytes, or with K, M, G, T
        #[arg(long, value_name = "SIZE", value_parser = read_size)]
        size: u64,
        /// Whose it is: a name or a number [default: the user who asks]
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// Its group: a name or a number [default: the group of the user who asks]
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Who may do what, as chmod(1) has it: bits to read and to write
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
        /// How large, at least: bytes, or with K, M, G, T
        #[arg(value_parser = read_size)]
        size: u64,
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
        /// Whose it is: a name or a number
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// Its group: a name or a number
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
        /// Who may do what, as chmod(1) has it
        #[arg(long, value_name = "MODE", value_parser = mode)]
        mode: Option<u16>,
        /// Whether nobody may write it
        #[arg(long, value_name = "true|false")]
        read_only: Option<bool>,
    },
    /// Take back all grants of a volume; who may open it can do so again
    Revoke {
        /// Its name
        name: String,
    },
    /// Remove a volume; its grants are taken back, and what it had is cleared before anybody else has it
    Remove {
        /// Its name
        name: String,
    },
}

pub const SERVE_NOTES: &str = "\
Devices:
  NAME=mem:SIZE     memory; options: latency=NS, bandwidth=BYTES/s, pages=2M|reserved|4K, chunk=SIZE, depth=N
  NAME=file:PATH    a file; options: size=SIZE, sparse, read-only, cached, depth=N, using=ring|threads
  NAME=block:PATH   a block device; options: read-only, cached, depth=N, using=ring|threads
  A comma in a path is written '\\,'.

Examples:
  bywash serve --device fast=mem:1G
  bywash serve --policy /var/lib/bywash/volumes --device disk=file:/var/lib/bywash/disk,size=100G
  bywash volume create log --device disk --size 10G --owner mysql --mode 600
  bywash serve --policy volumes --device disk=file:disk --vhost-user root=/run/bywash/root
  bywash serve status

It serves until SIGINT, SIGTERM or SIGHUP: then what is under way is done and made durable.
Exit status: 0 it has served and was told to end; 125 it could not begin, or something of it broke.";

pub const VOLUME_NOTES: &str = "\
Examples:
  bywash volume create log --device fast --size 256M --owner mysql
  bywash volume list
  bywash volume permit log --mode 640 --group backup
  bywash volume --policy /var/lib/bywash/volumes list

Changes are for root and for the user who runs the server; everybody may list what he may open.
Exit status: 0 done; 125 not done (the message says why).";
