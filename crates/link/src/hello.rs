//! Hello message of the handshake: the first message over the socket, 32 bytes, with the descriptors of the
//! end's memory.
//!
//! ```text
//!   0        8         12      16            24       28       32
//!   +--------+---------+-------+-------------+--------+--------+
//!   | magic  | version | flags | arena_bytes | ring 0 | ring 1 |
//!   +--------+---------+-------+-------------+--------+--------+
//!    8 bytes   u32       u32     u64           u32      u32       little-endian
//! ```

/// Parameters of a protocol that the handshake checks.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// First bytes of a hello message of this protocol.
    pub magic: [u8; 8],
    /// Version of everything that the two ends exchange.
    pub version: u32,
    /// Description of an end of this protocol, for error messages.
    pub noun: &'static str,
    /// Greatest number of entries of each ring.
    pub rings_max: [u32; 2],
}

/// Contents of a hello message, without the parameters of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Flags that the protocol defines, and [`FLAG_FENCES`], which every protocol has.
    pub flags: u32,
    /// Size of the end's arena, in bytes; the protocol may define it otherwise.
    pub arena_bytes: u64,
    /// Number of entries of each of the two rings: powers of two.
    pub rings: [u32; 2],
}

/// Flag: heavy fences of the peer reach this end ([`bywash_sync::prepare_shared_fences`]).
pub const FLAG_FENCES: u32 = 4;

const BYTES: usize = 32;

impl Hello {
    /// Encodes the message.
    pub fn to_bytes(self, protocol: &Protocol) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0..8].copy_from_slice(&protocol.magic);
        bytes[8..12].copy_from_slice(&protocol.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.arena_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.rings[0].to_le_bytes());
        bytes[28..32].copy_from_slice(&self.rings[1].to_le_bytes());
        bytes
    }

    /// Returns true if heavy fences of its peer reach the end that sent this message.
    pub fn has_fences(&self) -> bool {
        self.flags & FLAG_FENCES != 0
    }

    /// Decodes and checks a message.
    ///
    /// # Errors
    /// A description of the violation, to be used with the peer as the subject.
    pub fn from_bytes(bytes: &[u8], protocol: &Protocol) -> Result<Hello, String> {
        let no_end = || format!("is not {}", protocol.noun);
        let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| no_end())?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[0..8] != protocol.magic {
            return Err(no_end());
        }
        if u32_at(8) != protocol.version {
            return Err(format!(
                "speaks version {} of the protocol, and this end version {}",
                u32_at(8),
                protocol.version
            ));
        }
        let rings = [u32_at(24), u32_at(28)];
        let fit = |number: u32, most: u32| number.is_power_of_two() && number <= most;
        if !fit(rings[0], protocol.rings_max[0]) || !fit(rings[1], protocol.rings_max[1]) {
            return Err(format!("asks for rings of {} and {} entries", rings[0], rings[1]));
        }
        let arena_bytes = u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32;
        Ok(Hello { flags: u32_at(12), arena_bytes, rings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: Protocol =
        Protocol { magic: *b"bywash ?", version: 7, noun: "an end of a test", rings_max: [1 << 12, 1 << 16] };

    #[test]
    fn golden_hello() {
        let hello = Hello { arena_bytes: 0x0102_0304_0506, rings: [256, 1024], flags: FLAG_FENCES | 1 };
        let bytes = hello.to_bytes(&PROTOCOL);
        assert_eq!(&bytes[..8], b"bywash ?");
        assert_eq!(bytes[8..], [7, 0, 0, 0, 5, 0, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0]);
        assert_eq!(Hello::from_bytes(&bytes, &PROTOCOL), Ok(hello));
    }

    #[test]
    fn a_hello_that_cannot_be() {
        let good = Hello { arena_bytes: 0, rings: [2, 2], flags: 0 }.to_bytes(&PROTOCOL);
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Hello::from_bytes(&bytes, &PROTOCOL).unwrap_err()
        };
        assert!(with(0, b'x').contains("not an end"));
        assert!(with(8, 9).contains("version 9"));
        assert!(with(24, 3).contains("3 and 2"));
        assert!(with(31, 1).contains("rings"));
        assert!(Hello::from_bytes(&good[1..], &PROTOCOL).is_err());
    }
}
