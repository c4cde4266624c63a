//! Registry of clients with their grants, and of devices, shared by the control thread, the administrator's thread and those
//! that make reports.
//!
//! Invariant: a grant is registered from before its client learns of it until no request by it is in flight.
//! A volume is closed while an administrator changes it: nobody can open it meanwhile.

use crate::control::DeviceFacts;
use crate::control::revocation_page::RevocationPage;
use crate::core::order::{Chunk, ClientKey};
use bywash_link::Credentials;
use bywash_protocol::{Access, Refusal, RefusalKind};
use bywash_volume::{DeviceNumber, Extent, GrantNumber};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A connected client, or one that has left and still has requests in flight.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) key: ClientKey,
    pub(crate) name: String,
    pub(crate) credentials: Credentials,
    pub(crate) share: u32,
    pub(crate) notices: Arc<RevocationPage>,
    pub(crate) grants: BTreeMap<GrantNumberKey, HeldGrant>,
}

/// Number of a grant as a word, which has an order for use as a map's key.
pub(crate) type GrantNumberKey = u64;

/// A grant that a client holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldGrant {
    /// Number and name of the volume; `None` if the grant was opened by a descriptor.
    pub(crate) volume: Option<(u64, String)>,
    pub(crate) device: DeviceNumber,
    pub(crate) access: Access,
    pub(crate) bytes: u64,
    /// Chunks of the device that the grant consists of; empty if the client cannot map them.
    pub(crate) chunks: Vec<Range<usize>>,
    pub(crate) is_mapped: bool,
}

/// A grant together with the client that holds it.
#[derive(Clone, Debug)]
pub(crate) struct GrantHolder {
    pub(crate) client: ClientKey,
    pub(crate) grant: GrantNumber,
    pub(crate) notices: Arc<RevocationPage>,
}

/// A grant of a thin volume, and what its map is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThinHolder {
    pub(crate) client: ClientKey,
    pub(crate) grant: GrantNumber,
    pub(crate) device: DeviceNumber,
    pub(crate) access: Access,
    pub(crate) bytes: u64,
}

/// Contents of the registry.
#[derive(Debug, Default)]
pub(crate) struct RegistryState {
    /// Clients, by their numbers.
    pub(crate) clients: BTreeMap<u64, Client>,
    /// Devices of the server, by their names.
    pub(crate) devices: HashMap<String, DeviceFacts>,
    /// Volumes that nobody can open while an administrator changes them.
    closed: HashSet<u64>,
    /// Chunks, as device and chunk number, that were given to a client for mapping since they were last
    /// replaced.
    mapped_chunks: HashSet<(u32, usize)>,
    /// Blocks of thin volumes that are being released, by the volume's id: they are in the map of no grant.
    withheld: HashMap<u64, Vec<Extent>>,
    /// Thin volumes that no grant may write now, by their ids: a snapshot is being taken.
    frozen: HashSet<u64>,
}

/// Registry that several threads share.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<RegistryState>);

impl Registry {
    pub(crate) fn lock(&self) -> MutexGuard<'_, RegistryState> {
        // A thread that panicked has left no change half done: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    /// Returns true if the volume can be opened.
    pub(crate) fn is_open(&self, volume: u64) -> bool {
        !self.closed.contains(&volume)
    }

    /// Closes a volume and returns all grants of it, with their clients.
    pub(crate) fn close(&mut self, volume: u64) -> Vec<GrantHolder> {
        self.closed.insert(volume);
        let of_client = |client: &Client| {
            let (key, notices) = (client.key, client.notices.clone());
            let held = client
                .grants
                .iter()
                .filter(|(_, held)| held.volume.as_ref().is_some_and(|(number, _)| *number == volume));
            held.map(move |(grant, _)| GrantHolder {
                client: key,
                grant: GrantNumber::from_word(*grant),
                notices: notices.clone(),
            })
            .collect::<Vec<_>>()
        };
        self.clients.values().flat_map(of_client).collect()
    }

    /// Returns a description of each client that may write a volume.
    pub(crate) fn writers_of(&self, volume: u64) -> Vec<String> {
        let is_meant = |held: &&HeldGrant| {
            held.access.allows_write() && held.volume.as_ref().is_some_and(|(number, _)| *number == volume)
        };
        let clients =
            self.clients.iter().filter(|(_, client)| client.grants.values().any(|held| is_meant(&held)));
        clients
            .map(|(number, client)| {
                let Credentials { pid, uid, .. } = client.credentials;
                format!("by client {number} '{}' (process {pid} of user {uid})", client.name)
            })
            .collect()
    }

    /// Lets no grant write a thin volume, by all maps that are made from now on.
    pub(crate) fn freeze(&mut self, volume: u64) {
        self.frozen.insert(volume);
    }

    /// Ends the freezing of a volume.
    pub(crate) fn thaw(&mut self, volume: u64) {
        self.frozen.remove(&volume);
    }

    /// Returns true if no grant may write a thin volume now.
    pub(crate) fn is_frozen(&self, volume: u64) -> bool {
        self.frozen.contains(&volume)
    }

    /// Returns all grants of a thin volume.
    pub(crate) fn holders_of(&self, volume: u64) -> Vec<ThinHolder> {
        let of_client = |client: &Client| {
            let key = client.key;
            let held = client
                .grants
                .iter()
                .filter(move |(_, held)| held.volume.as_ref().is_some_and(|(number, _)| *number == volume));
            held.map(move |(grant, held)| ThinHolder {
                client: key,
                grant: GrantNumber::from_word(*grant),
                device: held.device,
                access: held.access,
                bytes: held.bytes,
            })
            .collect::<Vec<_>>()
        };
        self.clients.values().flat_map(of_client).collect()
    }

    /// Withholds ranges of a thin volume's blocks from all maps that are made from now on. Returns the number of the
    /// volume's device, or `None` if the server does not have it any more.
    pub(crate) fn withhold(&mut self, volume: u64, device: &str, ranges: &[Extent]) -> Option<DeviceNumber> {
        let number = self.devices.get(device)?.number;
        self.withheld.insert(volume, ranges.to_vec());
        Some(number)
    }

    /// Ends the withholding of a volume's blocks: they were released, or stay with the volume.
    pub(crate) fn give_back(&mut self, volume: u64) {
        self.withheld.remove(&volume);
    }

    /// Returns the ranges of a volume's blocks that are withheld.
    pub(crate) fn withheld(&self, volume: u64) -> &[Extent] {
        self.withheld.get(&volume).map_or(&[], Vec::as_slice)
    }

    /// Gives the grants of a volume its new name, for status and metrics.
    pub(crate) fn rename(&mut self, volume: u64, to: &str) {
        let grants = self.clients.values_mut().flat_map(|client| client.grants.values_mut());
        let of_volume =
            grants.filter_map(|held| held.volume.as_mut()).filter(|(number, _)| *number == volume);
        of_volume.for_each(|(_, name)| to.clone_into(name));
    }

    /// Lets a volume be opened again.
    pub(crate) fn open(&mut self, volume: u64) {
        self.closed.remove(&volume);
    }

    /// Returns a device of the server; [`RefusalKind::Missing`] if it has none of that name.
    pub(crate) fn device(&self, name: &str) -> Result<&DeviceFacts, Refusal> {
        self.devices.get(name).ok_or_else(|| {
            let mut names: Vec<&str> = self.devices.keys().map(String::as_str).collect();
            names.sort_unstable();
            let message = format!("there is no device '{name}'; there are {}", names.join(", "));
            Refusal::new(RefusalKind::Missing, message)
        })
    }

    /// Returns a description of each grant on a device: its volume and its client.
    pub(crate) fn users_of(&self, device: DeviceNumber) -> Vec<String> {
        let of_client = |(number, client): (&u64, &Client)| {
            let Credentials { pid, uid, .. } = client.credentials;
            let by = format!("by client {number} '{}' (process {pid} of user {uid})", client.name);
            let held = client.grants.values().filter(|held| held.device == device);
            let volumes = held.filter_map(|held| held.volume.as_ref());
            volumes.map(|(_, volume)| format!("volume '{volume}' {by}")).collect::<Vec<_>>()
        };
        self.clients.iter().flat_map(of_client).collect()
    }

    /// Returns the grants of a client that come with hardware, each with the name of the device.
    pub(crate) fn held_directly(&self, client: u64) -> Vec<(GrantNumberKey, String)> {
        let held = self.devices.iter().filter_map(|(name, facts)| {
            let grant = facts.hardware.as_ref()?.held_by(client)?;
            Some((grant, name.clone()))
        });
        held.collect()
    }

    /// Removes a device that no client uses. Its number may be given to another one.
    pub(crate) fn remove_device(&mut self, name: &str) {
        if let Some(facts) = self.devices.remove(name) {
            self.mapped_chunks.retain(|(device, _)| *device != facts.number.0);
        }
    }

    /// Removes a client's grant.
    pub(crate) fn forget(&mut self, client: u64, grant: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.grants.remove(&grant);
        }
    }

    /// Notes that a client was given these chunks for mapping.
    pub(crate) fn note_mapped(&mut self, device: DeviceNumber, chunks: Range<usize>) {
        self.mapped_chunks.extend(chunks.map(|number| (device.0, number)));
    }

    /// Returns those of these chunks that a client may have mapped, and forgets that they were given: the
    /// caller replaces their memory.
    pub(crate) fn take_mapped(&mut self, device: DeviceNumber, chunks: &[Range<usize>]) -> Vec<Chunk> {
        let numbers = chunks.iter().cloned().flatten();
        numbers
            .filter(|number| self.mapped_chunks.remove(&(device.0, *number)))
            .map(|number| Chunk { device, number })
            .collect()
    }
}
