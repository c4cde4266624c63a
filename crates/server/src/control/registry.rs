//! Who is here and what they hold: what the control thread, the administrator's and the metrics' all have to know.
//!
//! Invariant: a grant is in here from before its client hears of it until no request by it is under way any more. A volume
//! that an administrator is changing is closed: nobody opens it meanwhile.

use crate::control::notices::Notices;
use crate::core::order::{Chunk, ClientKey};
use bywash_link::Credentials;
use bywash_protocol::Access;
use bywash_volume::{DeviceNumber, GrantNumber};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) key: ClientKey,
    pub(crate) name: String,
    pub(crate) credentials: Credentials,
    pub(crate) share: u32,
    pub(crate) notices: Arc<Notices>,
    pub(crate) grants: BTreeMap<GrantNumberKey, Held>,
}

/// A grant's number, in an order.
pub(crate) type GrantNumberKey = u64;

/// A grant of a client.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The volume's number and name; none: by a descriptor.
    pub(crate) volume: Option<(u64, String)>,
    pub(crate) device: DeviceNumber,
    pub(crate) access: Access,
    pub(crate) bytes: u64,
    /// Chunks of the device that it consists of, where those can be mapped.
    pub(crate) chunks: Vec<Range<usize>>,
    pub(crate) is_mapped: bool,
}

/// A grant, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) client: ClientKey,
    pub(crate) grant: GrantNumber,
    pub(crate) notices: Arc<Notices>,
}

/// Everybody.
#[derive(Debug, Default)]
pub(crate) struct Everybody {
    /// By their numbers.
    pub(crate) clients: BTreeMap<u64, Client>,
    /// Volumes that nobody opens for now.
    closed: HashSet<u64>,
    /// Chunks that were given to somebody to map since they were new.
    given: HashSet<(u32, usize)>,
}

/// All that, for several threads.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Everybody>);

impl Registry {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Everybody> {
        // Each change is one step, so that whoever panicked has left nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Everybody {
    /// Whether a volume can be opened.
    pub(crate) fn is_open(&self, volume: u64) -> bool {
        !self.closed.contains(&volume)
    }

    /// Closes a volume and answers who holds grants of it.
    pub(crate) fn close(&mut self, volume: u64) -> Vec<Holder> {
        self.closed.insert(volume);
        let of_client = |client: &Client| {
            let (key, notices) = (client.key, client.notices.clone());
            let held = client
                .grants
                .iter()
                .filter(|(_, held)| held.volume.as_ref().is_some_and(|(number, _)| *number == volume));
            held.map(move |(grant, _)| Holder {
                client: key,
                grant: GrantNumber::from_word(*grant),
                notices: notices.clone(),
            })
            .collect::<Vec<_>>()
        };
        self.clients.values().flat_map(of_client).collect()
    }

    /// Lets a volume be opened again.
    pub(crate) fn open(&mut self, volume: u64) {
        self.closed.remove(&volume);
    }

    /// A grant is not there any more.
    pub(crate) fn forget(&mut self, client: u64, grant: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.grants.remove(&grant);
        }
    }

    /// Somebody is given chunks to map.
    pub(crate) fn give(&mut self, device: DeviceNumber, chunks: Range<usize>) {
        self.given.extend(chunks.map(|number| (device.0, number)));
    }

    /// Of these chunks, those that somebody may have mapped; they are to be renewed.
    pub(crate) fn take_given(&mut self, device: DeviceNumber, chunks: &[Range<usize>]) -> Vec<Chunk> {
        let numbers = chunks.iter().cloned().flatten();
        numbers
            .filter(|number| self.given.remove(&(device.0, *number)))
            .map(|number| Chunk { device, number })
            .collect()
    }
}

/// Devices by their names, which stay as they were when the server began.
pub(crate) type ByName<T> = HashMap<String, T>;
