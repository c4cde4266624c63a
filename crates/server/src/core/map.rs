//! Thin volumes as the core knows them, and the keeper of their maps, which allocates and releases blocks.
//!
//! The core calls a keeper on threads of the users whose requests wait ([`super::thin`]).

use bywash_protocol::layout::Status;
use bywash_volume::ByteRange;
use std::fmt::Debug;
use std::sync::Arc;

/// A thin volume, as the core knows it from a grant.
#[derive(Clone, Debug)]
pub(crate) struct ThinVolume {
    /// Id of the volume in the store.
    pub(crate) id: u64,
    /// Size in which the volume allocates blocks, in bytes.
    pub(crate) cluster_bytes: u64,
    pub(crate) keeper: Arc<dyn MapKeeper>,
}

/// Outcome of a change of a thin volume's map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapChanged {
    /// Status for each of the requests that needed the change.
    pub(crate) statuses: Vec<Status>,
    /// Number of bytes that were copied, since they were shared with other volumes.
    pub(crate) copied_bytes: u64,
}

/// Change of a thin volume's map that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapChange {
    /// Gives the volume all blocks of this range alone: allocates those that it does not have, and copies those that
    /// other volumes have, too.
    Allocate(ByteRange),
    /// Releases this range of the volume, which consists of whole clusters.
    Release(ByteRange),
}

/// Keeper of the maps of thin volumes, whose methods may block.
pub(crate) trait MapKeeper: Debug + Send + Sync {
    /// Changes the map of a volume durably, as several requests need it, and sends the new map to the core
    /// ([`CoreOrder::Remap`](super::order::CoreOrder::Remap)).
    fn change(&self, volume: u64, requests: &[Vec<MapChange>]) -> MapChanged;
}
