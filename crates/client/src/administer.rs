//! Operations that the server allows only to its administrators: the user that it runs as, and root.
//!
//! Called by programs of administrators, such as the command line.

use crate::client::Client;
use crate::error::Error;
use bywash_protocol::{ControlRequest, ExportProtocol};
use rustix::process::{getegid, geteuid};

/// Description of a volume to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    name: String,
    device: String,
    bytes: u64,
    owner: u32,
    group: u32,
    mode: u16,
    is_thin: bool,
}

impl NewVolume {
    /// Describes a volume `name` of at least `bytes` bytes on a device. It belongs to this process's effective user
    /// and group and has mode 0600, unless said otherwise.
    pub fn new(name: impl Into<String>, device: impl Into<String>, bytes: u64) -> NewVolume {
        let (owner, group) = (geteuid().as_raw(), getegid().as_raw());
        NewVolume {
            name: name.into(),
            device: device.into(),
            bytes,
            owner,
            group,
            mode: 0o600,
            is_thin: false,
        }
    }

    /// Sets the owner, by a user id.
    pub fn owner(self, owner: u32) -> NewVolume {
        NewVolume { owner, ..self }
    }

    /// Sets the group, by a group id.
    pub fn group(self, group: u32) -> NewVolume {
        NewVolume { group, ..self }
    }

    /// Sets the permission bits as of chmod(2): read and write, for the owner, the group and all others.
    pub fn mode(self, mode: u16) -> NewVolume {
        NewVolume { mode, ..self }
    }

    /// Makes the volume thin if true: its blocks are allocated when they are first written, and until then read as
    /// zeros. The volumes of a device may together be larger than the device; a write for which it has no room fails
    /// with [`Error::NoSpace`]. Default: false.
    pub fn thin(self, is_thin: bool) -> NewVolume {
        NewVolume { is_thin, ..self }
    }
}

/// Changes to the permissions of a volume; the default changes nothing, and neither does `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    owner: Option<u32>,
    group: Option<u32>,
    mode: Option<u16>,
    read_only: Option<bool>,
}

impl Permissions {
    /// Sets the new owner, by a user id.
    pub fn owner(self, owner: impl Into<Option<u32>>) -> Permissions {
        Permissions { owner: owner.into(), ..self }
    }

    /// Sets the new group, by a group id.
    pub fn group(self, group: impl Into<Option<u32>>) -> Permissions {
        Permissions { group: group.into(), ..self }
    }

    /// Sets the new permission bits, as in [`NewVolume::mode`].
    pub fn mode(self, mode: impl Into<Option<u16>>) -> Permissions {
        Permissions { mode: mode.into(), ..self }
    }

    /// Forbids writing to every user if true, and allows it again if false.
    pub fn read_only(self, read_only: impl Into<Option<bool>>) -> Permissions {
        Permissions { read_only: read_only.into(), ..self }
    }
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
        let NewVolume { name, device, bytes, owner, group, mode, is_thin } = volume;
        let what = format!("cannot make {name}");
        let ask = ControlRequest::Create { volume: name, device, bytes, owner, group, mode, is_thin };
        self.administer(&ask, || what.clone())
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

    /// Takes a snapshot of a thin volume: a volume that nobody can write, with the contents of one instant. Every write that
    /// completed before this call is in it, and all of it is durable when this returns. It takes space only where the volume
    /// is written afterwards, which has a cluster copied at the first write.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn snapshot(&self, volume: &str, name: &str) -> Result<(), Error> {
        let ask = ControlRequest::Snapshot { volume: volume.into(), name: name.into() };
        self.administer(&ask, || format!("cannot take a snapshot of {volume}"))
    }

    /// Creates a thin volume with the contents, the owner, the group and the mode of a snapshot.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn clone_snapshot(&self, snapshot: &str, name: &str) -> Result<(), Error> {
        let ask = ControlRequest::Clone { snapshot: snapshot.into(), name: name.into() };
        self.administer(&ask, || format!("cannot clone {snapshot}"))
    }

    /// Gives a thin volume the contents and the size that one of its snapshots has, and revokes its grants.
    ///
    /// # Errors
    /// Same as [`Client::create`]; the server refuses while a client may write the volume.
    pub fn rollback(&self, volume: &str, snapshot: &str) -> Result<(), Error> {
        let ask = ControlRequest::Rollback { volume: volume.into(), snapshot: snapshot.into() };
        self.administer(&ask, || format!("cannot roll {volume} back"))
    }

    /// Removes a volume: revokes its grants and clears its contents, except what snapshots or clones have, too.
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

    /// Exports a volume to programs that are no clients, until the server ends. `address` has the options of the export
    /// as on the command line of `bywash serve`, and absolute paths.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn export(&self, volume: &str, protocol: ExportProtocol, address: &str) -> Result<(), Error> {
        let ask = ControlRequest::Export { volume: volume.into(), protocol, address: address.into() };
        self.administer(&ask, || format!("cannot export {volume}"))
    }

    /// Ends the exports of a volume: all, or the one by this protocol at this address. Waits until no request of theirs is
    /// in flight.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn unexport(&self, volume: &str, only: Option<(ExportProtocol, &str)>) -> Result<(), Error> {
        let only = only.map(|(protocol, address)| (protocol, address.to_owned()));
        let ask = ControlRequest::Unexport { volume: volume.into(), only };
        self.administer(&ask, || format!("cannot end the export of {volume}"))
    }

    /// Adds a device, until the server ends. `device` is written as on the command line of `bywash serve`, with absolute
    /// paths.
    ///
    /// # Errors
    /// Same as [`Client::create`].
    pub fn add_device(&self, device: &str) -> Result<(), Error> {
        let ask = ControlRequest::AddDevice { device: device.into() };
        self.administer(&ask, || format!("cannot add {device}"))
    }

    /// Takes a device away. Its volumes stay in the store, and can be used when the device is added again.
    ///
    /// # Errors
    /// Same as [`Client::create`]; the server refuses while a client has opened a volume on the device, and takes memory
    /// away only if no volume is on it.
    pub fn drop_device(&self, device: &str) -> Result<(), Error> {
        let ask = ControlRequest::DropDevice { device: device.into() };
        self.administer(&ask, || format!("cannot drop {device}"))
    }
}
