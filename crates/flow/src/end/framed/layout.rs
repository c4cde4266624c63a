//! Byte layout of a framed connection (`whole` at both ends). Version 1, little-endian.
//!
//! ```text
//!     each side, once          magic "BYWASHW\n"  version  role  zero
//!                              8 bytes            2        2     4
//!     the sender, any number   length 1..=4 MiB   data
//!                              4                  length
//!     the sender, once         zero               bytes of all data
//!                              4                  8
//! ```

/// First bytes of a hello message.
pub(super) const MAGIC: [u8; 8] = *b"BYWASHW\n";
/// Version of this layout.
pub(super) const VERSION: u16 = 1;
/// Size of a hello message, in bytes.
pub(super) const HELLO_BYTES: usize = 16;
/// Size of the length in front of a frame's data, in bytes.
pub(super) const HEAD_BYTES: usize = 4;
/// Size of the count behind a zero length, in bytes.
pub(super) const COUNT_BYTES: usize = 8;
/// Greatest number of data bytes in a frame.
pub(super) const FRAME_BYTES_MAX: usize = 4 << 20;

/// Directions in which a side moves data on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) sends: bool,
    pub(crate) receives: bool,
}

/// Reason why the bytes of a peer are not a hello message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelloError {
    /// The magic is missing: the peer was not told `whole`.
    Plain,
    /// The peer uses this other version of the layout.
    Version(u16),
}

impl Role {
    /// Encodes the hello message of a side with this role.
    pub(super) fn encode(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        let role = u16::from(self.sends) | u16::from(self.receives) << 1;
        bytes[10..12].copy_from_slice(&role.to_le_bytes());
        bytes
    }

    /// Decodes the role from a peer's hello message.
    ///
    /// # Errors
    /// [`HelloError`], if the magic or the version is another.
    pub(super) fn decode(hello: &[u8; HELLO_BYTES]) -> Result<Role, HelloError> {
        if hello[..8] != MAGIC {
            return Err(HelloError::Plain);
        }
        match u16::from_le_bytes([hello[8], hello[9]]) {
            VERSION => Ok(Role { sends: hello[10] & 1 != 0, receives: hello[10] & 2 != 0 }),
            version => Err(HelloError::Version(version)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_greeting() {
        let role = Role { sends: true, receives: false };
        assert_eq!(role.encode(), *b"BYWASHW\n\x01\0\x01\0\0\0\0\0");
        for role in [role, Role { sends: false, receives: true }, Role { sends: true, receives: true }] {
            assert_eq!(Role::decode(&role.encode()), Ok(role));
        }
        assert_eq!(Role::decode(b"GET / HTTP/1.0\r\n"), Err(HelloError::Plain));
        assert_eq!(Role::decode(b"BYWASHW\n\x02\0\x01\0\0\0\0\0"), Err(HelloError::Version(2)));
    }
}
