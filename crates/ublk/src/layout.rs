//! Numbers and structures of the driver's interface, as in `linux/ublk_cmd.h`.
//!
//! ```text
//!   /dev/ublk-control   makes, starts, stops and deletes disks: commands of io_uring with 80 bytes
//!   /dev/ublkcN         requests of /dev/ublkbN: descriptors in mapped memory, commands of io_uring with 16 bytes
//! ```
//!
//! Structures are arrays of bytes in the order of this machine; all fields are at multiples of their size. Called by all
//! other modules.

use std::ops::Range;

/// Size of a sector, in which the driver counts, in bytes.
pub(crate) const SECTOR: u64 = 512;
/// Size of a request's descriptor, in bytes.
pub(crate) const DESCRIPTOR: usize = 24;
/// Number of a disk that the driver is to choose.
pub(crate) const ANY: u32 = u32::MAX;

/// Commands to the control device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Info,
    Add,
    Delete,
    Start,
    Stop,
    SetParameters,
    Parameters,
    StartRecovery,
    EndRecovery,
    Features,
}

impl Control {
    /// Returns the command's number, and true if it only asks for something.
    fn number(self) -> (u32, bool) {
        match self {
            Control::Info => (0x02, true),
            Control::Add => (0x04, false),
            Control::Delete => (0x05, false),
            Control::Start => (0x06, false),
            Control::Stop => (0x07, false),
            Control::SetParameters => (0x08, false),
            Control::Parameters => (0x09, true),
            Control::StartRecovery => (0x10, false),
            Control::EndRecovery => (0x11, false),
            Control::Features => (0x13, true),
        }
    }
}

/// Commands for requests: a tag becomes free for a request, at first and with the result of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Fetch = 0x20,
    CommitAndFetch = 0x21,
}

/// Encoding of commands: since Linux 6.4 like numbers of ioctl(2), which older kernels do not know, and which newer ones can
/// insist on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain,
    Ioctl,
}

impl Encoding {
    pub(crate) fn control(self, command: Control) -> u32 {
        let (number, only_asks) = command.number();
        self.encode(number, CONTROL_COMMAND, if only_asks { 2 } else { 3 })
    }

    pub(crate) fn queue(self, command: Queue) -> u32 {
        self.encode(command as u32, QUEUE_COMMAND, 3)
    }

    /// Encodes a number for an argument of `bytes` bytes; `direction` is 2 if the kernel only writes it, 3 if it reads it, too.
    fn encode(self, number: u32, bytes: usize, direction: u32) -> u32 {
        match self {
            Encoding::Plain => number,
            Encoding::Ioctl => direction << 30 | (bytes as u32) << 16 | u32::from(b'u') << 8 | number,
        }
    }
}

/// Size of `struct ublksrv_ctrl_cmd`, in bytes.
const CONTROL_COMMAND: usize = 32;
/// Size of `struct ublksrv_io_cmd`, in bytes.
const QUEUE_COMMAND: usize = 16;

/// Makes `struct ublksrv_ctrl_cmd`, in the room that a command of io_uring has for it. The buffer is at `address`; `data` is a
/// number that some commands have.
pub(crate) fn control_command(disk: u32, address: u64, bytes: usize, data: u64) -> [u8; 80] {
    let mut command = [0; 80];
    put(&mut command, 0..4, disk.into());
    // No command here is for a queue.
    put(&mut command, 4..6, u64::from(u16::MAX));
    put(&mut command, 6..8, bytes as u64);
    put(&mut command, 8..16, address);
    put(&mut command, 16..24, data);
    command
}

/// Makes `struct ublksrv_io_cmd` for a tag of the first queue: the result of its last request, and the address of the memory
/// for the data of its next one.
pub(crate) fn queue_command(tag: u16, result: i32, address: u64) -> [u8; QUEUE_COMMAND] {
    let mut command = [0; QUEUE_COMMAND];
    put(&mut command, 2..4, tag.into());
    put(&mut command, 4..8, u64::from(result as u32));
    put(&mut command, 8..16, address);
    command
}

/// Features of a disk.
pub(crate) mod feature {
    /// The disk outlives the process that serves it, and requests wait for the next one.
    pub(crate) const USER_RECOVERY: u64 = 1 << 3;
    /// Requests that the last process had not completed are given to the next one.
    pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
}

/// State of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has not been started, or was stopped.
    Dead,
    Live,
    /// Its process has ended, and its requests wait.
    Quiesced,
    /// Its process has ended, and its requests fail.
    FailIo,
    /// A state of newer kernels.
    Other(u16),
}

/// Contents of `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) state: State,
    /// Greatest size of a request's data, in bytes.
    pub(crate) transfer_max: u32,
    pub(crate) disk: u32,
    /// Process that serves the disk, or did.
    pub(crate) process: i32,
    pub(crate) features: u64,
    /// Number that the driver keeps for who made the disk.
    pub(crate) mark: u64,
}

/// Size of [`Info`] as the driver has it, in bytes.
pub(crate) const INFO: usize = 64;

impl Info {
    pub(crate) fn to_bytes(self) -> [u8; INFO] {
        let mut bytes = [0; INFO];
        put(&mut bytes, 0..2, self.queues.into());
        put(&mut bytes, 2..4, self.depth.into());
        put(&mut bytes, 8..12, self.transfer_max.into());
        put(&mut bytes, 12..16, self.disk.into());
        // The driver takes the process when the disk is started.
        put(&mut bytes, 16..20, u64::from(u32::MAX));
        put(&mut bytes, 24..32, self.features);
        put(&mut bytes, 32..40, self.mark);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; INFO]) -> Info {
        let state = match get(bytes, 4..6) as u16 {
            0 => State::Dead,
            1 => State::Live,
            2 => State::Quiesced,
            3 => State::FailIo,
            other => State::Other(other),
        };
        Info {
            queues: get(bytes, 0..2) as u16,
            depth: get(bytes, 2..4) as u16,
            state,
            transfer_max: get(bytes, 8..12) as u32,
            disk: get(bytes, 12..16) as u32,
            process: get(bytes, 16..20) as i32,
            features: get(bytes, 24..32),
            mark: get(bytes, 32..40),
        }
    }
}

/// Contents of `struct ublk_params` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) is_read_only: bool,
    /// Sizes of blocks, as powers of two.
    pub(crate) logical_shift: u8,
    pub(crate) physical_shift: u8,
    /// Size of the disk, in sectors.
    pub(crate) sectors: u64,
    /// Greatest length of a request with data, in sectors.
    pub(crate) transfer_sectors_max: u32,
    /// Greatest length of a request that discards or writes zeros, in sectors.
    pub(crate) range_sectors_max: u32,
}

/// Size of [`Parameters`] as the driver has it, in bytes: the parts that every kernel knows.
pub(crate) const PARAMETERS: usize = 64;

/// Kinds of parameters: the basic ones, and those of discards.
const BASIC_AND_DISCARD: u64 = 1 | 2;
const READ_ONLY: u64 = 1;
const VOLATILE_CACHE: u64 = 1 << 2;
const FUA: u64 = 1 << 3;

impl Parameters {
    pub(crate) fn to_bytes(self) -> [u8; PARAMETERS] {
        let mut bytes = [0; PARAMETERS];
        put(&mut bytes, 0..4, PARAMETERS as u64);
        put(&mut bytes, 4..8, BASIC_AND_DISCARD);
        // Writes may be volatile until a flush, and can be made durable one by one.
        let read_only = if self.is_read_only { READ_ONLY } else { 0 };
        put(&mut bytes, 8..12, VOLATILE_CACHE | FUA | read_only);
        let optimal_shift = self.physical_shift.max(self.logical_shift);
        bytes[12..16].copy_from_slice(&[
            self.logical_shift,
            optimal_shift,
            optimal_shift,
            self.logical_shift,
        ]);
        put(&mut bytes, 16..20, self.transfer_sectors_max.into());
        put(&mut bytes, 24..32, self.sectors);
        let granularity = 1u64 << self.logical_shift;
        put(&mut bytes, 44..48, granularity);
        put(&mut bytes, 48..52, self.range_sectors_max.into());
        put(&mut bytes, 52..56, self.range_sectors_max.into());
        // One range in each discard.
        put(&mut bytes, 56..58, 1);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; PARAMETERS]) -> Parameters {
        Parameters {
            is_read_only: get(bytes, 8..12) & READ_ONLY != 0,
            logical_shift: bytes[12],
            physical_shift: bytes[13],
            sectors: get(bytes, 24..32),
            transfer_sectors_max: get(bytes, 16..20) as u32,
            range_sectors_max: get(bytes, 48..52) as u32,
        }
    }
}

/// Writes a number into the bytes of a structure.
fn put(bytes: &mut [u8], range: Range<usize>, number: u64) {
    let length = range.len();
    // The low bytes are at another end on machines of the other order.
    let all = if cfg!(target_endian = "little") { number } else { number << (64 - 8 * length) };
    bytes[range].copy_from_slice(&all.to_ne_bytes()[..length]);
}

/// Reads a number from the bytes of a structure.
fn get(bytes: &[u8], range: Range<usize>) -> u64 {
    let mut all = [0; 8];
    let length = range.len();
    let at = if cfg!(target_endian = "little") { 0 } else { 8 - length };
    all[at..at + length].copy_from_slice(&bytes[range]);
    u64::from_ne_bytes(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that a C program prints with `linux/ublk_cmd.h` of Linux 6.12.
    #[test]
    fn commands_have_the_numbers_of_the_header() {
        assert_eq!(Encoding::Ioctl.control(Control::Info), 0x8020_7502);
        assert_eq!(Encoding::Ioctl.control(Control::Add), 0xc020_7504);
        assert_eq!(Encoding::Ioctl.control(Control::Features), 0x8020_7513);
        assert_eq!(Encoding::Ioctl.queue(Queue::Fetch), 0xc010_7520);
        assert_eq!(Encoding::Ioctl.queue(Queue::CommitAndFetch), 0xc010_7521);
        assert_eq!(Encoding::Plain.control(Control::EndRecovery), 0x11);
        assert_eq!(Encoding::Plain.queue(Queue::Fetch), 0x20);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn structures_have_their_fields_in_place() {
        let command = control_command(7, 0x1234, 64, 99);
        assert_eq!(command[..8], [7, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!(
            (command[8], command[9], command[16], command[24..].iter().max()),
            (0x34, 0x12, 99, Some(&0))
        );
        let command = queue_command(0x0201, -5, 0x3000);
        assert_eq!(command[..8], [0, 0, 1, 2, 0xfb, 0xff, 0xff, 0xff]);
        assert_eq!(command[8..10], [0, 0x30]);
    }

    #[test]
    fn what_is_written_is_read() {
        let info = Info {
            queues: 1,
            depth: 128,
            state: State::Dead,
            transfer_max: 1 << 19,
            disk: 3,
            process: -1,
            features: feature::USER_RECOVERY,
            mark: u64::MAX - 1,
        };
        assert_eq!(Info::from_bytes(&info.to_bytes()), info);
        let parameters = Parameters {
            is_read_only: true,
            logical_shift: 9,
            physical_shift: 12,
            sectors: 1 << 40,
            transfer_sectors_max: 1024,
            range_sectors_max: 1 << 21,
        };
        assert_eq!(Parameters::from_bytes(&parameters.to_bytes()), parameters);
    }
}
