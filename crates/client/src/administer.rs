//! Operations that the server allows only to its administrators: the user that it runs as, and root.
//!
//! Called by programs of administrators, such as the command line.

use crate::client::Client;
use crate::error::Error;
use bywash_protocol::ControlRequest;

/// Description of a volume to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Name of the volume.
    pub name: String,
    /// Name of the device that the volume is created on.
    pub device: String,
    /// Least size, in bytes.
    pub bytes: u64,
    /// User id of the owner.
    pub owner: u32,
    /// Group id.
    pub group: u32,
    /// Permission bits as of chmod(2): read and write, for the owner, the group and all others.
    pub mode: u16,
}

/// Changes to the permissions of a volume: a field that is `None` changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// New owner, as a user id.
    pub owner: Option<u32>,
    /// New group, as a group id.
    pub group: Option<u32>,
    /// New permission bits, as in [`NewVolume::mode`].
    pub mode: Option<u16>,
    /// True to forbid writing to every user, false to allow it again.
    pub read_only: Option<bool>,
}

/// Operations of an administrator. None of them is repeated when the server dies meanwhile: the operation may
/// or may not have been carried out then.
impl Client {
    /// Creates a volume.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server refuses, for example because this program is no administrator;
    /// [`Error::TimedOut`] if the server does not reply in time; [`Error::Gone`] or
    /// [`Error::ProtocolViolation`] if the connection ends; [`Error::Forked`] in a forked child;
    /// [`Error::Io`] if a system call fails.
    pub fn create(&self, volume: NewVolume) -> Result<(), Error> {
        let NewVolume { name, device, bytes, owner, group, mode } = volume;
        let what = format!("cannot make {name}");
        self.administer(&ControlRequest::Create { volume: name, device, bytes, owner, group, mode }, || {
            what.clone()
        })
    }

    /// Makes a volume larger or smaller. Making it smaller revokes its grants.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn resize(&self, volume: &str, bytes: u64) -> Result<(), Error> {
        let ask = ControlRequest::Resize { volume: volume.into(), bytes };
        self.administer(&ask, || format!("cannot resize {volume}"))
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn rename(&self, volume: &str, to: &str) -> Result<(), Error> {
        let ask = ControlRequest::Rename { volume: volume.into(), to: to.into() };
        self.administer(&ask, || format!("cannot rename {volume}"))
    }

    /// Changes the permissions of a volume and revokes its grants.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn permit(&self, volume: &str, permissions: Permissions) -> Result<(), Error> {
        let Permissions { owner, group, mode, read_only } = permissions;
        let ask = ControlRequest::SetOwnership { volume: volume.into(), owner, group, mode, read_only };
        self.administer(&ask, || format!("cannot change who may use {volume}"))
    }

    /// Removes a volume: revokes its grants and clears its contents.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn remove(&self, volume: &str) -> Result<(), Error> {
        let ask = ControlRequest::Remove { volume: volume.into() };
        self.administer(&ask, || format!("cannot remove {volume}"))
    }

    /// Revokes all grants of a volume, and waits until no request that uses one of them is in flight.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn revoke(&self, volume: &str) -> Result<(), Error> {
        let ask = ControlRequest::Revoke { volume: volume.into() };
        self.administer(&ask, || format!("cannot take back the grants of {volume}"))
    }
}
