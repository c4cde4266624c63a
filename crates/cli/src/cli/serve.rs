//! The command line of `bywash serve`.

use super::addresses::{
    ExportArg, MetricsArg, NbdArg, UblkArg, export, metrics, nbd, nbd_addresses, sockets, ublk,
    vhost_user_sockets,
};
use crate::socket::mode;
use bywash_device::{Spec, device_kinds};
use bywash_nvme::DEVICE_KIND;
use bywash_options::{Row, help};
use bywash_quantity::{TimeUnit, duration};
use bywash_server::{CORES_MAX, Timeouts};
use clap::{Args, Subcommand, ValueHint};
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

    /// Make a volume a disk of this machine, by the kernel's driver ublk: /dev/ublkbN, or any, the first one that is free;
    /// may be repeated
    #[arg(long = "ublk", value_name = "NAME=/dev/ublkbN|any", value_parser = ublk)]
    pub ublk: Vec<UblkArg>,

    /// Publish metrics for Prometheus as /metrics, at a Unix socket or at tcp:ADDR:PORT,token=FILE
    #[arg(long, value_name = "PATH[,mode=MODE][,group=GROUP]", value_parser = metrics)]
    pub metrics: Option<MetricsArg>,

    /// Number of threads that serve requests, 1 to 64, each of which polls a processor; clients are spread over them
    #[arg(long, value_name = "N", default_value = "1", value_parser = cores)]
    pub cores: usize,

    /// Processor that serves requests; several cores have this one and those with the next numbers
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

fn cores(text: &str) -> Result<usize, String> {
    let cores = text.parse().ok().filter(|cores| (1..=CORES_MAX).contains(cores));
    cores.ok_or_else(|| format!("give a number from 1 to {CORES_MAX}, as many as processors or fewer"))
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
  bywash serve --policy volumes --device disk=file:disk --ublk root=/dev/ublkb0
  bywash serve --policy volumes --device disk=nvme:0000:01:00.0
  bywash serve --device fast=mem:1G --cores 4
  bywash serve --device fast=mem:1G --metrics /run/bywash/metrics,mode=660,group=prometheus
  bywash serve status
  bywash serve add more=block:/dev/nvme1n1

The server runs until SIGINT, SIGTERM or SIGHUP; then it completes the requests in flight and makes
them durable. Exit status: 0 after such a signal; 125 if it cannot start, or one of its parts fails.";
