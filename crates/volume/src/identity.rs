//! Identity of a device: a random number that no other device has. Used by labels and the store.

use std::fmt;
use std::io;
use std::str::FromStr;

/// Identity of a device, a random UUID (RFC 9562, version 4). The identity stays the same when the device's
/// name or size changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId([u8; DeviceId::BYTES]);

impl DeviceId {
    /// Size of an identity in a label and in a store, in bytes.
    pub const BYTES: usize = 16;

    /// Makes a new identity from the kernel's random numbers.
    ///
    /// # Errors
    /// The error of getrandom(2), if it fails.
    pub fn random() -> io::Result<DeviceId> {
        let mut bytes = [0; DeviceId::BYTES];
        let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        // getrandom(2) returns requests of up to 256 bytes in full.
        assert_eq!(got, bytes.len());
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Ok(DeviceId(bytes))
    }

    /// Makes an identity of these bytes. `None` if all are zero, which marks a device without an identity.
    pub fn from_bytes(bytes: [u8; DeviceId::BYTES]) -> Option<DeviceId> {
        (bytes != [0; DeviceId::BYTES]).then_some(DeviceId(bytes))
    }

    /// Returns the bytes of the identity.
    pub fn to_bytes(self) -> [u8; DeviceId::BYTES] {
        self.0
    }
}

/// Number of bytes in each of a UUID's groups, which hyphens separate in its text.
const GROUPS: [usize; 5] = [4, 2, 2, 2, 6];

impl fmt::Display for DeviceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(36);
        let mut bytes = self.0.iter();
        for (number, count) in GROUPS.into_iter().enumerate() {
            if number > 0 {
                text.push('-');
            }
            for byte in bytes.by_ref().take(count) {
                text += &format!("{byte:02x}");
            }
        }
        out.pad(&text)
    }
}

/// Error for a text that is not a valid UUID, or is the UUID of zeros.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no UUID: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12, with '-' between")]
pub struct ParseDeviceIdError(String);

impl FromStr for DeviceId {
    type Err = ParseDeviceIdError;

    fn from_str(text: &str) -> Result<DeviceId, ParseDeviceIdError> {
        let wrong = || ParseDeviceIdError(text.chars().take(64).collect());
        let groups: Vec<&str> = text.split('-').collect();
        let is_formed = groups.len() == GROUPS.len()
            && groups.iter().zip(GROUPS).all(|(group, bytes)| group.len() == 2 * bytes);
        let digits = groups.concat();
        if !is_formed || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let number = u128::from_str_radix(&digits, 16).map_err(|_| wrong())?;
        DeviceId::from_bytes(number.to_be_bytes()).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_as_the_same() {
        let id = DeviceId::from_bytes(*b"0123456789abcdef").unwrap();
        assert_eq!(id.to_string(), "30313233-3435-3637-3839-616263646566");
        assert_eq!(id.to_string().parse(), Ok(id));
        for _ in 0..100 {
            let id = DeviceId::random().unwrap();
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!((&id.to_string()[14..15], id.to_bytes()[8] >> 6), ("4", 2));
        }
        assert_ne!(DeviceId::random().unwrap(), DeviceId::random().unwrap());
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "30313233",
            "00000000-0000-0000-0000-000000000000",
            "30313233-3435-3637-3839-61626364656g",
            "3031323334353637-3839-6162-6364-6566",
            "+0313233-3435-3637-3839-616263646566",
        ] {
            assert!(text.parse::<DeviceId>().is_err(), "{text}");
        }
        assert_eq!(DeviceId::from_bytes([0; 16]), None);
    }
}
