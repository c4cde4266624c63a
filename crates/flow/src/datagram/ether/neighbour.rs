//! Ethernet addresses of neighbours that the user names by an IPv4 address, from the kernel's table (arp(7)).
//!
//! Invariant: only complete entries of the given device count. The table is that of the calling thread's
//! network namespace. Called by [`crate::endpoint`].

use super::device::Device;
use crate::error::Error;
use crate::mac::{Mac, Neighbour};
use std::net::Ipv4Addr;

/// Path of the table, which has a line of headings (proc_pid_net(5)).
const TABLE: &str = "/proc/thread-self/net/arp";
/// Flag of an entry whose Ethernet address is known (ATF_COM of linux/if_arp.h).
const COMPLETE: u32 = 0x2;
/// Hardware type of Ethernet (ARPHRD_ETHER of linux/if_arp.h).
const ETHERNET: u32 = 1;

/// Returns the Ethernet address of a neighbour at a device.
///
/// # Errors
/// [`Error::Usage`] if there is no such device, or the kernel does not know the address's neighbour there,
/// with what to do; [`Error::Io`] if the table cannot be read.
pub(crate) fn mac_of(neighbour: Neighbour, interface: &str) -> Result<Mac, Error> {
    let address = match neighbour {
        Neighbour::Mac(mac) => return Ok(mac),
        Neighbour::Address(address) => address,
    };
    Device::inspect(interface, &format!("eth:{interface}"))?;
    let table = std::fs::read_to_string(TABLE).map_err(|error| Error::io(format!("read {TABLE}"), error))?;
    table.lines().skip(1).find_map(|line| entry(line, address, interface)).ok_or_else(|| {
        Error::Usage(format!(
            "the Ethernet address of {address} at {interface} is not known: reach it once, as in \
             `ping -c 1 -I {interface} {address}`, and look at `ip neighbour`; or give the Ethernet address in its place, as in 02:00:00:00:00:01"
        ))
    })
}

/// Returns the Ethernet address in a line of the table; `None` if the line is about another neighbour.
fn entry(line: &str, address: Ipv4Addr, interface: &str) -> Option<Mac> {
    let mut words = line.split_whitespace();
    let (found, kind, flags, mac) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let device = words.nth(1)?;
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let is_complete = number(kind)? == ETHERNET && number(flags)? & COMPLETE != 0;
    (found.parse() == Ok(address) && device == interface && is_complete).then(|| mac.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_entries_of_the_device_count() {
        let address = Ipv4Addr::new(10, 77, 0, 2);
        let line = |flags, device| {
            format!("10.77.0.2        0x1         {flags}         02:00:00:00:00:0a     *        {device}")
        };
        assert_eq!(entry(&line("0x6", "wire0"), address, "wire0"), Some(Mac([2, 0, 0, 0, 0, 10])));
        assert_eq!(entry(&line("0x0", "wire0"), address, "wire0"), None);
        assert_eq!(entry(&line("0x2", "wire1"), address, "wire0"), None);
        assert_eq!(entry(&line("0x2", "wire0"), Ipv4Addr::new(10, 77, 0, 20), "wire0"), None);
        assert_eq!(entry("", address, "wire0"), None);
    }
}
