//! The command line of `bywash nvme`.

use bywash_nvme::Address;
use bywash_quantity::size;
use clap::{Args, Subcommand, ValueEnum};

/// `bywash nvme`.
#[derive(Args)]
pub struct NvmeArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: NvmeCommand,
}

/// Subcommands of `bywash nvme`.
#[derive(Subcommand)]
pub enum NvmeCommand {
    /// List NVMe controllers, their drivers and disks, and whether they can be served without the kernel
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take a controller from the kernel, for `bywash serve`; its disks vanish from /dev
    ///
    /// Refused if one of its disks is mounted, used for swapping, part of another device or open in a process,
    /// if no IOMMU limits the memory that the controller reaches, or if the IOMMU cannot tell it from a device
    /// with another driver. Nothing on the disks is changed.
    Bind {
        /// PCI address of the controller, as `bywash nvme list` prints it
        #[arg(value_name = "PCI-ADDRESS")]
        address: Address,
    },
    /// Give a controller back to the kernel, which finds the driver that it would find at boot
    ///
    /// Refused while a process has the controller open.
    Unbind {
        /// PCI address of the controller, as `bywash nvme list` prints it
        #[arg(value_name = "PCI-ADDRESS")]
        address: Address,
    },
    /// Check whether every block of a controller's namespace can be read; nothing is written
    ///
    /// The controller is bound to vfio-pci before (`bywash nvme bind`), and no server has it. A controller that
    /// says that it offers the command Verify reads the blocks by itself, and no data moves; else they are read into
    /// memory. Either way they come from the medium and not from a cache. Prints the ranges that cannot be read, and which
    /// of the two was done. Ctrl-C ends it.
    ///
    /// Exit status: 0 if all blocks can be read, 1 if some cannot, 128 and a signal's number after a signal, 125
    /// if the controller cannot be used.
    Verify(VerifyArgs),
}

/// `bywash nvme verify`.
#[derive(Args)]
pub struct VerifyArgs {
    /// PCI address of the controller, as `bywash nvme list` prints it
    #[arg(value_name = "PCI-ADDRESS")]
    pub address: Address,
    /// Number of the namespace; without it, the controller's only one
    #[arg(long, value_name = "N")]
    pub namespace: Option<u32>,
    /// Offset of the first byte to check, a multiple of a block
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "0")]
    pub offset: u64,
    /// Number of bytes to check, a multiple of a block; without it, all from the offset on
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub length: Option<u64>,
    /// Means by which blocks are checked, whatever the controller says that it offers
    #[arg(long, value_name = "MEANS", value_enum)]
    pub by: Option<VerifyBy>,
}

/// Value of `bywash nvme verify --by`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum VerifyBy {
    /// The controller's command Verify; no data moves
    Verify,
    /// Reading into memory, which checks the path from the disk as well
    Read,
}

/// Help text behind the options of `bywash nvme`.
pub const NOTES: &str = "\
Examples:
  bywash nvme list
  bywash nvme bind 0000:01:00.0
  bywash nvme verify 0000:01:00.0
  bywash serve --policy /var/lib/bywash/volumes --device disk=nvme:0000:01:00.0
  bywash nvme unbind 0000:01:00.0

bind and unbind need root, and hold until the machine is switched off. A module has to be there:
`modprobe vfio-pci`. A server that is not root's needs /dev/vfio/GROUP and enough locked memory (ulimit -l).
The driver was tried on emulated controllers only.";
