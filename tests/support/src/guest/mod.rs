//! A virtual machine, mostly without any knowledge of Bywash: its disk is served by vhost-user or over a network, or it
//! has other devices of QEMU and programs of the host.
//!
//! QEMU, without hardware acceleration, boots Debian's kernel, whose driver of such disks is not part of this
//! project, into a memory file system with busybox and e2fsprogs. A shell script tells the guest what to do.
//! The guest's output appears on the serial line.
//!
//! ```no_run
//! use bywash_support::guest::Guest;
//!
//! let mut guest = Guest::new("/run/disk.sock".as_ref()).boot("step /sbin/mke2fs -q /dev/vda; say made");
//! guest.wait_for("made");
//! guest.wait_for_end();
//! ```
//!
//! - [`Guest`], [`Running`], [`HOST`], [`HUGE_PAGES`]: starting a guest, reading its output, ending it gently or by SIGKILL; its network
//! - [`Screen`]: a display adapter, and screenshots for programs in the guest
//! - [`script`]: work that several tests do in a guest
//! - [`Disk`], [`check_files`]: an image and its socket, and a check of its contents
//! - [`kernel`]: Debian's kernels, downloaded once into the target folder, or into that of a bench
//! - [`system`]: the contents of the memory file system; [`archive`]: their format
//! - [`installed`], [`Missing`]: paths of the host's programs, and the Debian packages that contain them
//!
//! A guest takes three seconds to boot, and ten times as long on a machine that is busy.

pub mod archive;
pub mod disk;
pub mod installed;
pub mod kernel;
pub mod machine;
pub mod screen;
pub mod script;
pub mod system;

pub use disk::{Disk, check_files};
pub use installed::Missing;
pub use machine::{Guest, HOST, HUGE_PAGES, Running};
pub use screen::Screen;
