//! Ethernet addresses, and machines that are named by one.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An Ethernet (MAC) address: six bytes in the order of transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Mac, String> {
        let wrong = || format!("'{text}' is no Ethernet address: give six bytes, as in 02:00:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let digits = |part: &&str| {
                matches!(part.len(), 1 | 2) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
            };
            let part = parts.next().filter(digits).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        match parts.next() {
            None => Ok(Mac(bytes)),
            Some(_) => Err(wrong()),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// Another machine on the same Ethernet, as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// Ethernet address of the machine.
    Mac(Mac),
    /// IPv4 address of the machine, whose Ethernet address is in the kernel's neighbour table.
    Address(Ipv4Addr),
}

impl FromStr for Neighbour {
    type Err = String;

    fn from_str(text: &str) -> Result<Neighbour, String> {
        match text.parse() {
            Ok(address) => Ok(Neighbour::Address(address)),
            Err(_) => text
                .parse()
                .map(Neighbour::Mac)
                .map_err(|wrong: String| format!("{wrong}, or an address of IPv4")),
        }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Neighbour::Mac(mac) => mac.fmt(out),
            Neighbour::Address(address) => address.fmt(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_addresses_are_read_and_written() {
        assert_eq!("02:00:0:aB:cd:ff".parse(), Ok(Mac([2, 0, 0, 0xab, 0xcd, 0xff])));
        assert_eq!(Mac([2, 0, 0, 0xab, 0xcd, 0xff]).to_string(), "02:00:00:ab:cd:ff");
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "02-00-00-00-00-01",
            "02:00:00:00:00:0g",
            "+1:0:0:0:0:0",
        ] {
            assert!(text.parse::<Mac>().unwrap_err().contains("02:00:00:00:00:01"), "{text}");
        }
    }
}
