//! A client as the core knows it: its table of grants, its channel, and its counters.

use crate::core::map::ThinVolume;
use crate::core::order::{ClientRemains, NewClient, OnDone};
use crate::core::pins::{ArenaPins, RegisteredArena};
use crate::schedule::{self, Limits};
use bywash_channel::{self as channel, BufferAccess, RequestToken};
use bywash_device::MemoryOwner;
use bywash_protocol::layout::Status;
use bywash_protocol::report::Counters;
use bywash_protocol::revocations;
use bywash_volume::{GrantError, GrantNumber, Table};
use slab::Slab;
use std::sync::Arc;

/// State of a client's grant, from its opening until it is revoked and drained.
#[derive(Debug)]
pub(crate) struct GrantState {
    pub(crate) number: GrantNumber,
    /// Number of segments in flight, those of requests that are not fully submitted included.
    pub(crate) in_flight: u32,
    pub(crate) counts: Counters,
    /// Replies to send when the revoked grant is drained: to its client that has closed it, and to
    /// administrators.
    draining: Vec<OnDone<Result<(), GrantError>>>,
    is_revoked: bool,
    /// The grant's volume, if it is thin.
    pub(crate) thin: Option<ThinVolume>,
}

/// A client's channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) server: channel::Server,
    /// Handles that keep the client's memory mapped while a device may use it.
    pub(crate) memories: Arc<BufferAccess>,
    pub(crate) owner: MemoryOwner,
    /// State of the arena for devices that register memory, by their pinners.
    pub(crate) pins: Vec<ArenaPins>,
    pub(crate) depth: u32,
}

/// Way in which the core learns of a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeMode {
    /// The core ignores the client: it has no channel, or an abandoned one.
    None,
    /// The core looks at the client's ring in each round.
    Polled,
    /// The client wakes the core by a doorbell.
    Woken,
}

/// State of a client's arena at one device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Registration {
    /// The device was not asked to register the arena yet.
    Unknown,
    Registered(RegisteredArena),
    /// The device did not register the arena.
    Refused,
}

/// A client's membership in the schedule of one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMember {
    pub(crate) turn: schedule::ConnectionKey,
    /// The client's user in the device's schedule.
    pub(crate) user: schedule::ClientKey,
    pub(crate) arena: Registration,
}

/// State of a connected client, or of one that has left and still has requests in flight.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: u64,
    /// User number of the client.
    pub(crate) uid: u32,
    pub(crate) table: Table,
    pub(crate) channel: Option<Channel>,
    pub(crate) attention: WakeMode,
    /// Slot of the work that was taken from the ring and is not fully submitted.
    pub(crate) current: Option<usize>,
    /// Number of requests that were taken from the ring and have not ended.
    pub(crate) in_flight: usize,
    /// True if requests have completed since the client was last woken, so that it is in the core's list.
    pub(crate) is_unrung: bool,
    /// Number of times that the client was asked for a doorbell since a helper last read its socket; `None`
    /// while a helper reads.
    pub(crate) unread_doorbells: Option<u32>,
    /// True if the peer has closed the channel's socket.
    pub(crate) is_disconnected: bool,
    /// Time at which the ring last had a request, in nanoseconds of the core's clock.
    pub(crate) active_ns: u64,
    pub(crate) counts: Counters,
    pub(crate) limits: Limits,
    /// Memberships in the schedules of devices that the client has used, by the device's number.
    pub(crate) members: Vec<Option<DeviceMember>>,
    pub(crate) states: Slab<GrantState>,
    /// Index in `states` of each grant, by the grant's index in the table; `usize::MAX` for none.
    state_by_index: Vec<usize>,
    /// Reply to send when the client, which has left, has no requests in flight.
    pub(crate) leaving: Option<OnDone<Option<ClientRemains>>>,
}

impl Client {
    pub(crate) fn new(joining: NewClient) -> Client {
        Client {
            number: joining.number,
            uid: joining.uid,
            table: Table::new(joining.grants_max),
            channel: None,
            attention: WakeMode::None,
            current: None,
            in_flight: 0,
            is_unrung: false,
            unread_doorbells: Some(0),
            is_disconnected: false,
            active_ns: 0,
            counts: Counters::default(),
            limits: joining.limits,
            members: Vec::new(),
            states: Slab::new(),
            state_by_index: Vec::new(),
            leaving: None,
        }
    }

    /// Creates the state of a grant that was just added to the table.
    pub(crate) fn note_granted(&mut self, number: GrantNumber, thin: Option<ThinVolume>) {
        let place = revocations::index_of(number.to_word());
        if self.state_by_index.len() <= place {
            self.state_by_index.resize(place + 1, usize::MAX);
        }
        let (counts, draining) = (Counters::default(), Vec::new());
        let state = GrantState { number, in_flight: 0, counts, draining, is_revoked: false, thin };
        self.state_by_index[place] = self.states.insert(state);
    }

    /// Returns the index in `states` of a grant that is in the table.
    #[inline]
    pub(crate) fn state_of(&self, number: GrantNumber) -> usize {
        self.state_by_index[revocations::index_of(number.to_word())]
    }

    /// Completes a request over the client's channel, unless that was done before; the client is woken when the core
    /// rings ([`Client::ring`]). Returns true if the channel broke the protocol.
    #[inline]
    pub(crate) fn answer(&mut self, request: Option<RequestToken>, status: Status, value: u64) -> bool {
        self.in_flight -= 1;
        match (request, &mut self.channel) {
            (Some(request), Some(channel)) => {
                channel.server.complete_unrung(request, status as u16, value).is_err()
            }
            _ => false,
        }
    }

    /// Wakes the client if it sleeps until a request has completed.
    #[inline]
    pub(crate) fn ring(&mut self) {
        self.is_unrung = false;
        if let Some(channel) = &self.channel {
            channel.server.ring();
        }
    }

    /// Returns this client's membership in the device's schedule if its key is `turn`.
    #[inline]
    pub(crate) fn membership(&self, device: usize, turn: schedule::ConnectionKey) -> Option<&DeviceMember> {
        self.members.get(device)?.as_ref().filter(|member| member.turn == turn)
    }

    /// Revokes a grant. Sends the reply when no request by it is in flight, even if somebody else has revoked
    /// it before.
    pub(crate) fn revoke(&mut self, number: GrantNumber, reply: OnDone<Result<(), GrantError>>) {
        let state = match self.table.revoke(number) {
            Ok(_) => self.state_of(number),
            Err(refusal) => match self.draining_state(number) {
                Some(state) => state,
                None => return reply.send(Err(refusal)),
            },
        };
        self.states[state].is_revoked = true;
        if self.states[state].in_flight == 0 {
            self.states.remove(state);
            return reply.send(Ok(()));
        }
        self.states[state].draining.push(reply);
    }

    /// Returns the state of a revoked grant that is not drained. Another grant may have its index in the
    /// table by now.
    #[cold]
    fn draining_state(&self, number: GrantNumber) -> Option<usize> {
        let mut states = self.states.iter();
        states.find(|(_, state)| state.is_revoked && state.number == number).map(|(state, _)| state)
    }

    /// Notes that a segment by this grant has ended.
    #[inline]
    pub(crate) fn end_segment(&mut self, state: usize) {
        let grant = &mut self.states[state];
        grant.in_flight -= 1;
        if grant.in_flight == 0 && grant.is_revoked {
            self.forget(state);
        }
    }

    /// Removes a revoked grant that is drained, and sends the replies.
    #[cold]
    fn forget(&mut self, state: usize) {
        let grant = self.states.remove(state);
        grant.draining.into_iter().for_each(|reply| reply.send(Ok(())));
    }

    /// Turns the client into its remains, for a helper to drop.
    pub(crate) fn into_gone(self) -> ClientRemains {
        ClientRemains::new(self.counts, (self.channel, self.table))
    }
}
