//! The command line of `bywash nvme`.

use bywash_nvme::Address;
use clap::{Args, Subcommand};

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
}

/// Help text behind the options of `bywash nvme`.
pub const NOTES: &str = "\
Examples:
  bywash nvme list
  bywash nvme bind 0000:01:00.0
  bywash serve --policy /var/lib/bywash/volumes --device disk=nvme:0000:01:00.0
  bywash nvme unbind 0000:01:00.0

bind and unbind need root, and hold until the machine is switched off. A module has to be there:
`modprobe vfio-pci`. A server that is not root's needs /dev/vfio/GROUP and enough locked memory (ulimit -l).
The driver was tried on emulated controllers only.";
