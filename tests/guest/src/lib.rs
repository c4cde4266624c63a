//! A virtual machine that knows nothing of Bywash, with a disk that somebody serves by vhost-user.
//!
//! QEMU without any acceleration by the processor boots Debian's kernel, whose driver of such disks nobody here wrote,
//! into a memory file system with busybox and e2fsprogs. What is to be done there is a shell script; what it says comes
//! out of the serial line.
//!
//! ```no_run
//! use bywash_guest::Guest;
//!
//! let mut guest = Guest::new("/run/disk.sock".as_ref()).boot("step /sbin/mke2fs -q /dev/vda; say made");
//! guest.wait_for("made");
//! guest.wait_for_end();
//! ```
//!
//! - [`Guest`], [`Running`]: starting it, hearing what it says, ending it gently or not
//! - [`script`]: what several tests do in it
//! - [`Disk`], [`check_files`]: an image and its socket, and what is in it afterwards
//! - [`kernel`]: Debian's kernel, fetched once into the target folder
//! - [`system`]: what is in the memory file system; [`archive`]: how it is written
//! - [`installed`]: where programs are and which Debian package brings them
//!
//! A guest takes three seconds to boot, and ten times as long on a machine that is busy.

#![cfg(target_arch = "x86_64")]
#![forbid(unsafe_code)]

pub mod archive;
pub mod disk;
pub mod guest;
pub mod installed;
pub mod kernel;
pub mod script;
pub mod system;

pub use disk::{Disk, check_files};
pub use guest::{Guest, Running};
