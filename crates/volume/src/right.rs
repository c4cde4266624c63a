//! Rights to a volume, decided once, when it is opened. Called by the server.
//!
//! The rules are those of files (path_resolution(7), "Permissions"). The owner's bits count for the volume's
//! owner, the group's bits for other members of its group, and the others' bits for everybody else. Only one
//! class counts: an owner without the right to write does not gain it as a member of the group. User 0 has
//! all rights, except that nobody can write a volume marked read-only, like a file on a file system mounted
//! read-only.

use crate::error::Error;
use bywash_protocol::Access;
use std::fmt;

/// Rights of owner, group and others: the read and write bits of a file's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode(u16);

impl Mode {
    /// Mode with which only the owner may read and write, 0o600.
    pub const PRIVATE: Mode = Mode(0o600);
    const ALL: u16 = 0o666;

    /// Makes a mode from bits as chmod(1) takes them, such as 0o640.
    ///
    /// # Errors
    /// [`Error::Mode`] if other bits than those of 0o666 are set.
    pub fn new(bits: u16) -> Result<Mode, Error> {
        if bits & !Mode::ALL == 0 { Ok(Mode(bits)) } else { Err(Error::Mode(bits)) }
    }

    /// Returns the bits of the mode.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Returns true if the bits of a class allow the access.
    fn allows(self, class: UserClass, wanted: Access) -> bool {
        let bits = self.0 >> class.shift();
        let readable = bits & 4 != 0 || wanted == Access::Write;
        let writable = bits & 2 != 0 || wanted == Access::Read;
        readable && writable
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(9);
        for class in [UserClass::Owner, UserClass::Group, UserClass::Others] {
            let bits = self.0 >> class.shift();
            text.push(if bits & 4 != 0 { 'r' } else { '-' });
            text.push(if bits & 2 != 0 { 'w' } else { '-' });
            text.push('-');
        }
        formatter.pad(&text)
    }
}

/// Class of users: the part of a mode whose bits count for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserClass {
    /// The user who owns the volume.
    Owner,
    /// Users in the group of the volume, except for the owner of the volume.
    Group,
    /// All other users.
    Others,
}

impl UserClass {
    fn shift(self) -> u32 {
        match self {
            UserClass::Owner => 6,
            UserClass::Group => 3,
            UserClass::Others => 0,
        }
    }
}

impl fmt::Display for UserClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            UserClass::Owner => "its owner",
            UserClass::Group => "in its group",
            UserClass::Others => "neither its owner nor in its group",
        })
    }
}

/// User and groups of a client, as told by the kernel and never by the client.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
    /// Supplementary group IDs.
    pub groups: &'a [u32],
}

/// Owner, group and rights of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// User ID of the owner.
    pub owner: u32,
    /// Group ID.
    pub group: u32,
    /// Rights of owner, group and others.
    pub mode: Mode,
    /// If true, nobody may write the volume.
    pub read_only: bool,
}

/// Reason why a user may not open a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessDenied {
    /// The volume is marked read-only, so nobody may write it.
    #[error("{wanted} access is refused: the volume is marked read-only")]
    ReadOnly {
        /// Access that was asked for.
        wanted: Access,
    },
    /// The mode does not allow the access.
    #[error("{wanted} access is refused: user {uid} is {class}, and its mode is {mode}")]
    Mode {
        /// Access that was asked for.
        wanted: Access,
        /// User who asked for it.
        uid: u32,
        /// Class whose bits counted.
        class: UserClass,
        /// Mode of the volume.
        mode: Mode,
    },
}

impl Ownership {
    /// Decides if a user may access the volume, and returns `wanted` as the right of the grant.
    ///
    /// # Errors
    /// [`AccessDenied::ReadOnly`] if `wanted` includes writing and the volume is read-only;
    /// [`AccessDenied::Mode`] if the mode does not allow the access.
    pub fn decide(&self, user: &User<'_>, wanted: Access) -> Result<Access, AccessDenied> {
        if self.read_only && wanted.covers(Access::Write) {
            return Err(AccessDenied::ReadOnly { wanted });
        }
        let class = self.class_of(user);
        if user.uid == 0 || self.mode.allows(class, wanted) {
            return Ok(wanted);
        }
        Err(AccessDenied::Mode { wanted, uid: user.uid, class, mode: self.mode })
    }

    fn class_of(&self, user: &User<'_>) -> UserClass {
        if user.uid == self.owner {
            UserClass::Owner
        } else if user.gid == self.group || user.groups.contains(&self.group) {
            UserClass::Group
        } else {
            UserClass::Others
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Read, ReadWrite, Write};

    fn owned(mode: u16) -> Ownership {
        Ownership { owner: 1000, group: 50, mode: Mode::new(mode).unwrap(), read_only: false }
    }

    fn user(uid: u32, gid: u32, groups: &[u32]) -> User<'_> {
        User { uid, gid, groups }
    }

    /// Rows: mode, user, group, supplementary groups, and the rights that they have: `rw`, `r`, `w` or none.
    #[test]
    fn the_rules_of_files() {
        let table: [(u16, u32, u32, &[u32], &str); 14] = [
            (0o600, 1000, 7, &[], "rw"),
            (0o600, 1001, 50, &[], ""),
            (0o640, 1001, 50, &[], "r"),
            (0o640, 1001, 7, &[8, 50], "r"),
            (0o640, 1001, 7, &[8], ""),
            (0o644, 1001, 7, &[], "r"),
            (0o622, 1001, 7, &[], "w"),
            (0o666, 1001, 7, &[], "rw"),
            // Only the owner's bits count for the owner, even if others have more rights.
            (0o066, 1000, 50, &[], ""),
            (0o466, 1000, 50, &[], "r"),
            // Only the group's bits count for the group.
            (0o606, 1001, 50, &[], ""),
            (0o606, 1001, 7, &[], "rw"),
            // User 0 has all rights; group 0 is like any other.
            (0o000, 0, 7, &[], "rw"),
            (0o000, 1001, 0, &[0], ""),
        ];
        for (mode, uid, gid, groups, allowed) in table {
            let who = user(uid, gid, groups);
            for (wanted, needs) in [(Read, "r"), (Write, "w"), (ReadWrite, "rw")] {
                let decided = owned(mode).decide(&who, wanted);
                assert_eq!(decided.is_ok(), allowed.contains(needs), "{mode:o} {who:?} {wanted}");
                assert!(decided.is_err() || decided == Ok(wanted));
            }
        }
    }

    #[test]
    fn what_is_read_only_is_written_by_nobody() {
        let volume = Ownership { read_only: true, ..owned(0o666) };
        for uid in [0, 1000, 1001] {
            assert_eq!(volume.decide(&user(uid, 50, &[]), Read), Ok(Read));
            for wanted in [Write, ReadWrite] {
                assert_eq!(
                    volume.decide(&user(uid, 50, &[]), wanted),
                    Err(AccessDenied::ReadOnly { wanted })
                );
            }
        }
    }

    #[test]
    fn refusals_say_whose_bits_counted() {
        let said =
            |uid, gid, wanted| owned(0o440).decide(&user(uid, gid, &[]), wanted).unwrap_err().to_string();
        assert_eq!(
            said(1000, 50, Write),
            "write access is refused: user 1000 is its owner, and its mode is r--r-----"
        );
        assert_eq!(
            said(1001, 50, ReadWrite),
            "read-write access is refused: user 1001 is in its group, and its mode is r--r-----"
        );
        assert_eq!(
            said(1001, 7, Read),
            "read access is refused: user 1001 is neither its owner nor in its group, and its mode is r--r-----"
        );
    }

    #[test]
    fn modes_have_bits_to_read_and_to_write() {
        assert_eq!(Mode::new(0o640).unwrap().to_string(), "rw-r-----");
        assert_eq!(Mode::new(0o026).unwrap().to_string(), "----w-rw-");
        for bits in [0o700, 0o001, 0o4600, 0o100644, u16::MAX] {
            assert!(matches!(Mode::new(bits), Err(Error::Mode(told)) if told == bits));
        }
    }
}
