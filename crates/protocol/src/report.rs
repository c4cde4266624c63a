//! Reports of a server's state, sent as JSON. Later versions may add fields.

use crate::access::Access;
use serde::{Deserialize, Serialize};

/// Number of buckets of [`Counters::latency`].
pub const BUCKETS: usize = 32;

/// State of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Name of the volume.
    pub name: String,
    /// Name of the device that the volume is on.
    pub device: String,
    /// Size of the volume, in bytes.
    pub bytes: u64,
    /// Number of extents of the device that the volume consists of.
    pub extents: u32,
    /// User number of the owner.
    pub owner: u32,
    /// Group number of the volume.
    pub group: u32,
    /// Permissions to read and write, as bits of chmod(1).
    pub mode: u16,
    /// True if nobody may write the volume.
    pub read_only: bool,
    /// True if the volume was on a memory device that no longer exists: only the volume's name is left.
    #[serde(default)]
    pub is_gone: bool,
    /// Size of the space that the volume has on its device, in bytes: of a thin volume, what was written so far. `None`
    /// if the server is older than thin volumes.
    #[serde(default)]
    pub allocated: Option<u64>,
    /// Size in which the volume allocates space, in bytes; `None` if it is not thin.
    #[serde(default)]
    pub cluster: Option<u64>,
    /// Size of the part of that space that snapshots, clones or their origin have, too, in bytes; `None` if the volume is not
    /// thin.
    #[serde(default)]
    pub shared: Option<u64>,
    /// True if the volume is a snapshot, which nobody can write.
    #[serde(default)]
    pub is_snapshot: bool,
    /// Name of the volume that a snapshot was taken of, or of the snapshot that a clone was made of; `None` for other
    /// volumes, and if the other one was removed.
    #[serde(default)]
    pub origin: Option<String>,
}

/// Counters of a client, a grant, a user or a device, from when the server first knew of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Number of completed reads.
    pub reads: u64,
    /// Number of completed requests that change data: writes, discards, zeroing, compare-and-writes.
    pub writes: u64,
    /// Number of completed flushes.
    pub flushes: u64,
    /// Number of bytes read by successful requests.
    pub bytes_read: u64,
    /// Number of bytes changed by successful requests.
    pub bytes_written: u64,
    /// Number of requests that the server refused: invalid grant, missing right, out of bounds, malformed.
    pub refusals: u64,
    /// Number of requests that failed on a device. A client's counter includes the requests that timed out.
    pub failures: u64,
    /// Histogram of the time from when the server took a request from the ring until the request ended.
    /// Bucket `n` counts requests that took at least 2^n and less than 2^(n+1) nanoseconds; the first bucket
    /// also counts shorter ones, the last also longer ones.
    pub latency: [u64; BUCKETS],
    /// Sum of the times in [`Counters::latency`], in nanoseconds.
    pub latency_ns: u64,
}

/// State of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name of the device, which volumes refer to.
    pub name: String,
    /// Identity of the device, from its label or of the memory; `None` if the device has no label.
    #[serde(default)]
    pub id: Option<String>,
    /// Size of the device, in bytes.
    pub bytes: u64,
    /// Size of the device's space that belongs to no volume, in bytes.
    pub free: u64,
    /// Size of all thin volumes on the device together, in bytes, whether allocated or not.
    #[serde(default)]
    pub thin: u64,
    /// Size of the space that the thin volumes on the device have, in bytes. Space that several of them have counts once.
    #[serde(default)]
    pub thin_allocated: u64,
    /// Size of the free space that thin volumes can still have, in bytes; a part of the device is kept from them.
    #[serde(default)]
    pub thin_left: u64,
    /// True if the device has thin volumes, and little is left for them.
    #[serde(default)]
    pub is_low: bool,
    /// Logical block of the device, in bytes.
    pub block: u32,
    /// Description of the way in which the device carries out commands.
    pub how: String,
    /// Number of commands in flight.
    pub in_flight: u64,
    /// True if commands are in flight and none has completed for longer than the server's request timeout.
    pub is_stuck: bool,
    /// Counters of the requests to this device.
    pub counts: Counters,
}

/// State of a client's grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Number of the grant.
    pub grant: u64,
    /// Name of the volume, or `None` if the client opened the grant by a descriptor.
    pub volume: Option<String>,
    /// Operations that the grant allows.
    pub access: Access,
    /// Size of the grant, in bytes.
    pub bytes: u64,
    /// True if the client has asked for chunks of the grant to map them.
    pub is_mapped: bool,
    /// Counters of the requests by this grant over the channel.
    pub counts: Counters,
}

/// State of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Number of the client.
    pub client: u64,
    /// Number of the core that serves the client.
    #[serde(default)]
    pub core: u32,
    /// Name that the client gave itself.
    pub name: String,
    /// Process number that the kernel reported when the client connected.
    pub pid: u32,
    /// User number of the client.
    pub uid: u32,
    /// Share of each device, in proportion to the shares of other users.
    pub share: u32,
    /// Depth of the client's channel, in requests; 0 if the client has no channel.
    pub depth: u32,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// True if the server polls the client's ring; false if the client wakes the server by a doorbell.
    pub is_polled: bool,
    /// Grants that the client holds.
    pub grants: Vec<Grant>,
    /// Counters of the requests over the client's channel.
    pub counts: Counters,
}

/// State of a user. The counters cover all clients of the user since the server began, ended ones included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Number of the user; `None` for the sum of all users that have no counters of their own, because there
    /// are too many.
    pub uid: Option<u32>,
    /// Number of connected clients.
    pub clients: u64,
    /// Counters of the requests over the clients' channels.
    pub counts: Counters,
    /// Number of helper threads that are stuck with descriptors or memory that the user's clients passed.
    #[serde(default)]
    pub stuck: u64,
}

/// State of a volume that is exported to virtual machines by vhost-user, or of volumes that are exported to NBD
/// clients at one address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// Name of the volume, or names of the volumes with commas between them.
    pub volume: String,
    /// Protocol of the export: `vhost-user`, `nbd` or `ublk`.
    #[serde(default)]
    pub protocol: String,
    /// Address of the export, without its options.
    #[serde(default)]
    pub address: String,
    /// Number of frontends or NBD clients that have connected since the server began.
    pub frontends: u64,
    /// Number of requests that guests or NBD clients have made.
    pub requests: u64,
    /// Number of NBD clients that were disconnected because they broke the protocol or were too slow.
    #[serde(default)]
    pub cut_off: u64,
    /// Number of threads that are still closing descriptors of frontends which have disconnected or were cut
    /// off.
    pub leaving: u64,
    /// Number of frontends whose access was revoked because their thread was stuck with a descriptor that
    /// they had passed.
    pub taken_back: u64,
}

/// State of one of a server's cores, which the clients are spread over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Number of the core, from 0 on.
    pub core: u32,
    /// Processor time of the core's thread, in nanoseconds.
    pub cpu_ns: u64,
    /// Number of clients that the core serves.
    pub clients: u64,
    /// Number of requests of these clients in flight.
    pub in_flight: u64,
}

/// State of the whole server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Process number of the server.
    pub pid: u32,
    /// Time since the server began, in seconds.
    pub uptime_s: u64,
    /// Processor time of all core threads together, in nanoseconds.
    pub core_cpu_ns: u64,
    /// Cores of the server; none if the server is older than several cores.
    #[serde(default)]
    pub cores: Vec<Core>,
    /// Number of control messages that were refused.
    pub asks_refused: u64,
    /// Number of clients that were refused a connection or disconnected: a limit was reached, or they broke
    /// the protocol.
    pub clients_refused: u64,
    /// Devices of the server, including files that clients have passed.
    pub devices: Vec<Device>,
    /// Clients that are connected.
    pub clients: Vec<Client>,
    /// Users who have or had clients.
    #[serde(default)]
    pub users: Vec<User>,
    /// Volumes that are exported to virtual machines and NBD clients.
    #[serde(default)]
    pub exports: Vec<Export>,
}

/// Returns the index of the bucket of [`Counters::latency`] for a request that took this many nanoseconds.
#[inline]
pub fn latency_bucket(nanoseconds: u64) -> usize {
    (63 - (nanoseconds | 1).leading_zeros() as usize).min(BUCKETS - 1)
}

impl Counters {
    /// Counts a request that took this many nanoseconds in the latency histogram.
    #[inline]
    pub fn note_latency(&mut self, nanoseconds: u64) {
        self.latency[latency_bucket(nanoseconds)] += 1;
        self.latency_ns += nanoseconds;
    }

    /// Adds the counters of another client, grant, user or device to these.
    pub fn add(&mut self, other: &Counters) {
        for (sum, part) in [
            (&mut self.reads, other.reads),
            (&mut self.writes, other.writes),
            (&mut self.flushes, other.flushes),
            (&mut self.bytes_read, other.bytes_read),
            (&mut self.bytes_written, other.bytes_written),
            (&mut self.refusals, other.refusals),
            (&mut self.failures, other.failures),
            (&mut self.latency_ns, other.latency_ns),
        ] {
            *sum += part;
        }
        self.latency.iter_mut().zip(other.latency).for_each(|(sum, part)| *sum += part);
    }

    /// Returns the number of requests that reached a device, whether they succeeded or failed.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.flushes
    }
}
