//! Network devices: their properties, as the kernel reports them (netdevice(7)), and the frames that they
//! dropped.
//!
//! Invariant: all requests concern the network namespace in which the device was opened; [`Drops`] stays in
//! that namespace, whichever thread reads it. Called when Ethernet ports and relays are opened.

use crate::datagram::socket::answer;
use crate::error::Error;
use crate::mac::Mac;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Commands of `linux/ethtool.h`.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3C;
/// Size of `struct ethtool_drvinfo` in 32-bit words, and of its names in bytes.
const DRIVER_WORDS: usize = 49;
const DRIVER_BYTES: usize = 32;
/// Size of `struct ethtool_channels` in 32-bit words, and indices of the counts of receiving queues.
const CHANNEL_WORDS: usize = 9;
const CHANNELS_RECEIVE: usize = 5;
const CHANNELS_COMBINED: usize = 8;

/// A network device of this host.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub name: String,
    pub index: u32,
    pub mac: Mac,
    /// Greatest payload of a frame (MTU), in bytes.
    pub mtu: usize,
    /// Number of receiving queues.
    pub queues: u32,
    /// True if the device is one end of a virtual Ethernet pair (veth(4)).
    pub is_veth: bool,
}

impl Device {
    /// Inspects the device of an endpoint.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is no such device; [`Error::Io`] if a request fails.
    pub(super) fn inspect(name: &str, label: &str) -> Result<Device, Error> {
        let failed = |error: Errno| Error::io(format!("look at the device of {label}"), error);
        // These ioctl requests work on a socket of any kind.
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).map_err(failed)?;
        let index = netdevice::name_to_index(&socket, name).map_err(|error| match error {
            Errno::NODEV => {
                Error::Usage(format!("{label}: there is no network device '{name}'; `ip link` lists them"))
            }
            error => Error::io(format!("find {label}"), error),
        })?;
        let mtu = ask(socket.as_fd(), name, libc::SIOCGIFMTU as _, |_| {}).map_err(failed)?;
        // SAFETY: SIOCGIFMTU has written this field of the union.
        let mtu = usize::try_from(unsafe { mtu.ifr_ifru.ifru_mtu }).unwrap_or(0);
        let address = ask(socket.as_fd(), name, libc::SIOCGIFHWADDR as _, |_| {}).map_err(failed)?;
        // SAFETY: SIOCGIFHWADDR has written this field of the union.
        let address = unsafe { address.ifr_ifru.ifru_hwaddr }.sa_data;
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(address) {
            *to = from as u8;
        }
        Ok(Device {
            name: name.into(),
            index,
            mac: Mac(mac),
            mtu,
            queues: queues(&socket, name),
            is_veth: driver(&socket, name).starts_with(b"veth\0"),
        })
    }
}

/// Number of queues assumed for a device that does not report it.
fn queues(socket: &OwnedFd, name: &str) -> u32 {
    let mut channels = [0u32; CHANNEL_WORDS];
    channels[0] = ETHTOOL_GCHANNELS;
    match ethtool(socket, name, &mut channels) {
        Ok(()) => (channels[CHANNELS_RECEIVE] + channels[CHANNELS_COMBINED]).max(1),
        Err(_) => 1,
    }
}

/// Returns the name of the device's driver, padded with zeros.
fn driver(socket: &OwnedFd, name: &str) -> [u8; DRIVER_BYTES] {
    let mut words = [0u32; DRIVER_WORDS];
    words[0] = ETHTOOL_GDRVINFO;
    let mut driver = [0; DRIVER_BYTES];
    if ethtool(socket, name, &mut words).is_ok() {
        for (bytes, word) in driver.chunks_exact_mut(size_of::<u32>()).zip(&words[1..]) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
    }
    driver
}

/// Makes an ethtool request. The first of `words` is the command, which reads and writes no more words than
/// given.
fn ethtool(socket: &OwnedFd, name: &str, words: &mut [u32]) -> Result<(), Errno> {
    let pointer = words.as_mut_ptr();
    ask(socket.as_fd(), name, libc::SIOCETHTOOL as _, |request| request.ifr_ifru.ifru_data = pointer.cast())
        .map(drop)
}

/// Makes an ioctl request about the device that `interface` names.
fn ask(
    socket: BorrowedFd<'_>,
    name: &str,
    what: libc::Ioctl,
    fill: impl FnOnce(&mut libc::ifreq),
) -> Result<libc::ifreq, Errno> {
    // SAFETY: a request of zeros is a valid value of the structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero, since no device has a longer name.
    let name_max = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..name_max].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    fill(&mut request);
    // SAFETY: the request is of the type that these commands read and write, and lives through the call; the
    // memory that it points to was given by `ethtool` alone, long enough for its command, and lives as long.
    answer(unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) } as isize)?;
    Ok(request)
}

/// Counters of dropped frames of a device, in the namespace in which this was opened.
pub(super) struct Drops {
    table: File,
    device: String,
    before: Counts,
}

/// Numbers of frames dropped since the device was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    received: u64,
    sent: u64,
}

/// Greatest number of bytes of the table that are read, enough for some hundred devices.
const TABLE_BYTES_MAX: usize = 64 << 10;

impl Drops {
    /// Opens the counters; their present values count as zero.
    pub(super) fn new(device: &Device) -> Result<Drops, Error> {
        // The table shows the devices of the namespace that it was opened in.
        let path = "/proc/thread-self/net/dev";
        let table = File::open(path).map_err(|error| Error::io(format!("open {path}"), error))?;
        let mut drops = Drops { table, device: device.name.clone(), before: Counts::default() };
        drops.before = drops.read().unwrap_or_default();
        Ok(drops)
    }

    /// Returns the number of frames that the device dropped on reception.
    pub(super) fn received(&self) -> u64 {
        self.read().map_or(0, |counts| counts.received.saturating_sub(self.before.received))
    }

    /// Returns the number of frames that the device could not send.
    pub(super) fn sent(&self) -> u64 {
        self.read().map_or(0, |counts| counts.sent.saturating_sub(self.before.sent))
    }

    fn read(&self) -> Option<Counts> {
        let (mut table, mut length) = (vec![0; TABLE_BYTES_MAX], 0);
        loop {
            match self.table.read_at(&mut table[length..], length as u64) {
                Ok(0) => break,
                Ok(bytes) => length += bytes,
                Err(_) => return None,
            }
        }
        find(std::str::from_utf8(&table[..length]).ok()?, &self.device)
    }
}

/// Parses the line of a device in /proc/net/dev: bytes, packets, errors, drops and four more numbers of
/// received frames, then the same of sent frames.
fn find(table: &str, device: &str) -> Option<Counts> {
    let named = |line: &'_ str| line.trim_start().strip_prefix(device)?.strip_prefix(':').map(str::to_owned);
    let numbers: Vec<u64> =
        table.lines().find_map(named)?.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
    let lost = |from: usize| Some(numbers.get(from)? + numbers.get(from + 1)?);
    Some(Counts { received: lost(2)?, sent: lost(10)? })
}

// Size of `struct ethtool_drvinfo`: 4 + 5 * 32 + 12 + 5 * 4 bytes.
const _: () = assert!(DRIVER_WORDS * size_of::<u32>() == 4 + 5 * DRIVER_BYTES + 12 + 5 * 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_dropped_is_found() {
        let table = "Inter-|   Receive      |  Transmit\n face |bytes packets errs drop fifo\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  lo2: 0 0 0 1 0 0 0 0 0 0 0 2 0 0 0 0\n";
        assert_eq!(find(table, "lo"), Some(Counts { received: 7, sent: 23 }));
        assert_eq!(find(table, "lo2"), Some(Counts { received: 1, sent: 2 }));
        assert_eq!(find(table, "l"), None);
    }

    #[test]
    fn the_loopback_is_what_it_is() {
        let lo = Device::inspect("lo", "eth:lo").unwrap();
        assert_eq!((lo.mac, lo.queues, lo.is_veth), (Mac([0; 6]), 1, false));
        assert!(lo.mtu > 1000 && lo.index > 0);
        Drops::new(&lo).unwrap();
    }
}
