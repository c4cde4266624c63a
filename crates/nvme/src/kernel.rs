//! Admin commands through the kernel's driver, for a controller that the kernel keeps: its character device
//! `/dev/nvmeN`, and ioctl(2) of `linux/nvme_ioctl.h`.
#![expect(unsafe_code, reason = "the kernel reads and writes the structures of ioctl(2)")]

use crate::completion::StatusField;
use crate::error::Error;
use crate::identify::IDENTIFY_BYTES;
use crate::virtualization::AdminCommand;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Carries out admin commands of a primary controller.
pub(crate) trait AdminQueue: Send + Sync {
    /// Carries out a command, with a page that has its data or gets it.
    ///
    /// # Errors
    /// [`Error::Admin`] if the controller refuses, [`Error::Io`] if the kernel does.
    fn carry_out(&self, command: &AdminCommand, page: &mut [u8; IDENTIFY_BYTES]) -> Result<(), Error>;
}

/// Request of ioctl(2) that carries out an admin command: `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const ADMIN_COMMAND: libc::Ioctl =
    (3 << 30 | (size_of::<PassedCommand>() as u32) << 16 | (b'N' as u32) << 8 | 0x41) as libc::Ioctl;
/// Greatest time that a command may take, in milliseconds.
const TIMEOUT_MS: u32 = 10_000;

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct PassedCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    bytes: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<PassedCommand>() == 72);

/// Controller that the kernel's driver has.
#[derive(Debug)]
pub(crate) struct KernelController(File);

impl KernelController {
    /// Opens the character device of a controller.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened.
    pub(crate) fn open(path: &Path) -> Result<KernelController, Error> {
        let file = File::options().read(true).write(true).open(path);
        file.map(KernelController).map_err(|error| Error::io(format!("open {}", path.display()), error))
    }
}

impl AdminQueue for KernelController {
    fn carry_out(&self, command: &AdminCommand, page: &mut [u8; IDENTIFY_BYTES]) -> Result<(), Error> {
        let has_data = command.opcode & 3 != 0;
        let [ten, eleven] = command.arguments;
        let mut passed = PassedCommand {
            opcode: command.opcode,
            namespace: command.namespace,
            address: if has_data { page.as_mut_ptr() as u64 } else { 0 },
            bytes: if has_data { IDENTIFY_BYTES as u32 } else { 0 },
            words_10_15: [ten, eleven, 0, 0, 0, 0],
            timeout_ms: TIMEOUT_MS,
            ..PassedCommand::default()
        };
        // SAFETY: the request reads and writes one `nvme_passthru_cmd`, which `passed` is, and as many bytes as it says
        // of the page, which nothing else accesses meanwhile.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), ADMIN_COMMAND, &raw mut passed) } {
            0 => Ok(()),
            // A positive number is the status of the completed command.
            status if status > 0 => {
                let status = StatusField(status as u16).to_string();
                Err(Error::Admin { command: command.name, status })
            }
            _ => Err(Error::io(
                format!("have the kernel carry out {}", command.name),
                io::Error::last_os_error(),
            )),
        }
    }
}
