//! What a server tells of itself: JSON, of which fields may become more.

use crate::message::Access;
use serde::{Deserialize, Serialize};

/// Buckets of a [`Counts::latency`].
pub const BUCKETS: usize = 32;

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// The device that it is on.
    pub device: String,
    /// Its bytes.
    pub bytes: u64,
    /// Pieces of the device that it consists of.
    pub extents: u32,
    /// Whose it is.
    pub owner: u32,
    /// Its group.
    pub group: u32,
    /// Who may do what.
    pub mode: u16,
    /// Whether nobody may write it.
    pub read_only: bool,
    /// Whether its device was memory that has ended: only the name is left.
    #[serde(default)]
    pub is_gone: bool,
}

/// What was done for somebody or with something, since it has been there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that read.
    pub reads: u64,
    /// Requests that changed something.
    pub writes: u64,
    /// Requests to make it durable.
    pub flushes: u64,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Bytes that were changed.
    pub bytes_written: u64,
    /// Requests that were refused: wrong grants, rights, bounds, shapes.
    pub refusals: u64,
    /// Requests that the device failed.
    pub failures: u64,
    /// Requests that were carried out, by the time that it took from when the server saw them: bucket n has those
    /// below 2^(n+1) nanoseconds that are in none before; the last has all others.
    pub latency: [u64; BUCKETS],
    /// The sum of those times, in nanoseconds.
    pub latency_ns: u64,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name, as volumes have it.
    pub name: String,
    /// Identity on its label, or of the memory; none: it has no label.
    #[serde(default)]
    pub id: Option<String>,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of it that no volume has.
    pub free: u64,
    /// Bytes of its logical block.
    pub block: u32,
    /// How it carries out commands.
    pub how: String,
    /// Commands that are under way.
    pub under_way: u64,
    /// Nothing of what is under way has been done for longer than the server waits.
    pub is_stuck: bool,
    /// What was done with it.
    pub counts: Counts,
}

/// A grant of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its number.
    pub grant: u64,
    /// The volume's name; none: by a descriptor.
    pub volume: Option<String>,
    /// What it allows.
    pub access: Access,
    /// Its bytes.
    pub bytes: u64,
    /// Whether the client has mapped it.
    pub is_mapped: bool,
    /// What was done by it over the channel.
    pub counts: Counts,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Its number.
    pub client: u64,
    /// What it calls itself.
    pub name: String,
    /// Its process, as the kernel says.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its share of a device.
    pub share: u32,
    /// Requests that may be under way; 0: it has no channel.
    pub depth: u32,
    /// Requests that are under way.
    pub under_way: u64,
    /// Whether the server looks for its requests without being woken.
    pub is_polled: bool,
    /// Its grants.
    pub grants: Vec<Grant>,
    /// What was done for it over its channel.
    pub counts: Counts,
}

/// A user, and what was done for all of the user's clients since the server began, ended ones included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user; none: users beyond those that are told apart.
    pub uid: Option<u32>,
    /// Clients that are connected.
    pub clients: u64,
    /// What was done over their channels.
    pub counts: Counts,
    /// Threads that are stuck with something that the user's clients have passed.
    #[serde(default)]
    pub stuck: u64,
}

/// A volume that is exported to virtual machines by vhost-user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// The volume's name.
    pub volume: String,
    /// Frontends that were connected, since the server began.
    pub frontends: u64,
    /// Requests of guests.
    pub requests: u64,
    /// Threads that are still closing what frontends have passed that have gone or were cut off.
    pub leaving: u64,
    /// Frontends from which the disk was taken back because their thread was stuck with something that they had passed.
    pub taken_back: u64,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds that it has run.
    pub uptime_s: u64,
    /// Nanoseconds of a processor that its core thread has had.
    pub core_cpu_ns: u64,
    /// Asks of clients that were refused.
    pub asks_refused: u64,
    /// Clients that were turned away or thrown out: too many, or they broke the protocol.
    pub clients_refused: u64,
    /// Devices.
    pub devices: Vec<Device>,
    /// Clients.
    pub clients: Vec<Client>,
    /// Users who have or had clients.
    #[serde(default)]
    pub users: Vec<User>,
    /// Volumes that virtual machines can have.
    #[serde(default)]
    pub exports: Vec<Export>,
}

impl Counts {
    /// Of a request that took so long.
    #[inline]
    pub fn note_latency(&mut self, nanoseconds: u64) {
        let bucket = (63 - (nanoseconds | 1).leading_zeros() as usize).min(BUCKETS - 1);
        self.latency[bucket] += 1;
        self.latency_ns += nanoseconds;
    }

    /// Adds what was done for somebody else.
    pub fn add(&mut self, other: &Counts) {
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

    /// Requests that were carried out.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.flushes
    }
}
