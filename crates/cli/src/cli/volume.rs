//! The command line of `bywash volume`.

use super::addresses::{NbdAddress, UblkDisk, VhostUserAddress, nbd_address, ublk_disk, vhost_user_address};
use super::serve::{SOCKET, device};
use crate::socket::mode;
use bywash_device::Spec;
use bywash_quantity::size;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

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
        /// Allocate blocks when they are first written; until then they read as zeros
        #[arg(long)]
        thin: bool,
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
    /// Take a snapshot of a thin volume of a running server: a volume that nobody can write
    Snapshot {
        /// Name of the thin volume
        volume: String,
        /// Name of the snapshot
        name: String,
    },
    /// Create a thin volume with the contents, owner, group and mode of a snapshot
    Clone {
        /// Name of the snapshot
        snapshot: String,
        /// Name of the new volume
        name: String,
    },
    /// Give a thin volume the contents and size of one of its snapshots, and revoke its grants
    Rollback {
        /// Name of the thin volume, which no client may have open for writing
        volume: String,
        /// Name of the snapshot
        snapshot: String,
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
    /// As a disk of this machine, by the kernel's driver ublk: /dev/ublkbN, or any, the first one that is free
    #[arg(long, value_name = "DISK", value_parser = ublk_disk)]
    pub ublk: Option<UblkDisk>,
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
    /// Only the disk /dev/ublkbN of this machine
    #[arg(long, value_name = "DISK", value_parser = ublk_disk)]
    pub ublk: Option<UblkDisk>,
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

/// Text behind the options of `bywash volume`.
pub const NOTES: &str = "\
Examples:
  bywash volume create log 256M --device fast --owner mysql
  bywash volume create images 2T --device disk --thin
  bywash volume snapshot images images-monday
  bywash volume clone images-monday trial
  bywash volume rollback images images-monday
  bywash volume resize log 512M
  bywash volume list
  bywash volume permit log --mode 640 --group backup
  bywash volume --policy /var/lib/bywash/volumes list
  bywash volume --policy /var/lib/bywash/volumes adopt disk=block:/dev/nvme1n1 --force GPT
  bywash volume --policy /var/lib/bywash/volumes forget disk --volumes
  bywash volume export log --nbd unix:/run/bywash/log,mode=660
  bywash volume unexport log
  bywash volume export log --ublk any

Sizes are rounded up to whole blocks of the device; the command prints a rounded size. The thin
volumes of a device may together be larger than the device: when it has no more blocks for them,
writes that need one fail (ENOSPC), and `bywash serve status` says how much is left. Root and the
user who runs the server may change and export volumes; other users may list those that they may open.
Exit status: 0, or 125 after an error (the message says why).";
