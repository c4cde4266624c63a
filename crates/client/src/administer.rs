//! What only the server's administrator may ask: its own user, and root.

use crate::client::Client;
use crate::error::Error;
use bywash_protocol::Ask;

/// A volume that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Its name.
    pub name: String,
    /// The device that it is to be on.
    pub device: String,
    /// How large, at least.
    pub bytes: u64,
    /// Whose it is.
    pub owner: u32,
    /// Its group.
    pub group: u32,
    /// Who may do what, as chmod(1) has it: bits to read and to write.
    pub mode: u16,
}

/// Who may do what with a volume: what is none stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Whose it is.
    pub owner: Option<u32>,
    /// Its group.
    pub group: Option<u32>,
    /// Who may do what.
    pub mode: Option<u16>,
    /// Whether nobody may write it.
    pub read_only: Option<bool>,
}

/// None of these is asked again when the server goes meanwhile: whether it was done is then unknown.
impl Client {
    /// Makes a volume.
    ///
    /// # Errors
    /// [`Error::Refused`], or what became of the server.
    pub fn create(&self, volume: NewVolume) -> Result<(), Error> {
        let NewVolume { name, device, bytes, owner, group, mode } = volume;
        let what = format!("cannot make {name}");
        self.administer(&Ask::Create { volume: name, device, bytes, owner, group, mode }, || what.clone())
    }

    /// Makes a volume larger or smaller; grants of a smaller one are taken back.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub fn resize(&self, volume: &str, bytes: u64) -> Result<(), Error> {
        let ask = Ask::Resize { volume: volume.into(), bytes };
        self.administer(&ask, || format!("cannot resize {volume}"))
    }

    /// Gives a volume another name.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub fn rename(&self, volume: &str, to: &str) -> Result<(), Error> {
        let ask = Ask::Rename { volume: volume.into(), to: to.into() };
        self.administer(&ask, || format!("cannot rename {volume}"))
    }

    /// Changes who may do what with a volume; its grants are taken back.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub fn permit(&self, volume: &str, permissions: Permissions) -> Result<(), Error> {
        let Permissions { owner, group, mode, read_only } = permissions;
        let ask = Ask::Permit { volume: volume.into(), owner, group, mode, read_only };
        self.administer(&ask, || format!("cannot change who may use {volume}"))
    }

    /// Removes a volume; its grants are taken back and its contents cleared.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub fn remove(&self, volume: &str) -> Result<(), Error> {
        let ask = Ask::Remove { volume: volume.into() };
        self.administer(&ask, || format!("cannot remove {volume}"))
    }

    /// Takes back all grants of a volume, and waits until no request by them is under way.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub fn revoke(&self, volume: &str) -> Result<(), Error> {
        let ask = Ask::Revoke { volume: volume.into() };
        self.administer(&ask, || format!("cannot take back the grants of {volume}"))
    }
}
