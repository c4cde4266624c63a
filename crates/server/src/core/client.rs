//! A client, as the core knows it: its table, its channel, and what was done for it.

use crate::core::arenas::{Arena, AtDevice};
use crate::core::clock::Clock;
use crate::core::disk::Disk;
use crate::core::order::Reply;
use crate::core::work::{Origin, Works};
use crate::schedule::{self, Limits};
use bywash_channel::{self as channel, Memories, Ticket};
use bywash_device::Owner;
use bywash_protocol::layout::Status;
use bywash_protocol::notices;
use bywash_protocol::report::Counts;
use bywash_volume::{GrantNumber, Refusal, Table};
use slab::Slab;
use std::sync::Arc;

/// A client that is new.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) number: u64,
    pub(crate) uid: u32,
    pub(crate) limits: Limits,
    pub(crate) grants_max: u32,
}

/// What a client had, when it is gone: dropping it unmaps its memory.
#[derive(Debug)]
pub(crate) struct Gone {
    /// What was done for it.
    pub(crate) counts: Counts,
    _channel: Option<Channel>,
    _table: Table,
}

/// A grant of a client, as long as it is there or a request by it is under way.
#[derive(Debug)]
pub(crate) struct GrantState {
    number: GrantNumber,
    /// Stretches of requests under way.
    pub(crate) under_way: u32,
    pub(crate) counts: Counts,
    /// It was taken back; who waits until nothing is under way by it: its client, who has closed it, and an administrator.
    draining: Vec<Reply<Result<(), Refusal>>>,
    is_revoked: bool,
}

/// A client's channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) server: channel::Server,
    /// Keep the client's memory mapped while a device may use it.
    pub(crate) memories: Arc<Memories>,
    pub(crate) owner: Owner,
    pub(crate) arena: Arena,
    pub(crate) depth: u32,
}

/// How the core looks for a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// It has no channel, or none that is of any use any more.
    None,
    /// In each round.
    Polled,
    /// The client wakes the core.
    Woken,
}

/// What was next in a client's ring.
#[derive(Clone, Copy)]
pub(crate) enum Taken {
    Nothing,
    /// What is carried out now, by this device first.
    Work {
        device: usize,
    },
    /// Something of no bytes.
    Empty {
        place: usize,
    },
    /// What must not be carried out: why is in the work.
    Refused {
        place: usize,
    },
    /// The channel is of no use any more.
    Broken,
}

/// A client in a device's schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) turn: schedule::Member,
    pub(crate) arena: AtDevice,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) number: u64,
    /// Its user.
    pub(crate) uid: u32,
    pub(crate) table: Table,
    pub(crate) channel: Option<Channel>,
    pub(crate) attention: Attention,
    /// The work that was taken from its ring and not all submitted yet.
    pub(crate) current: Option<usize>,
    /// Requests that were taken and not completed.
    pub(crate) under_way: usize,
    /// How often it was asked for a doorbell since a helper has read those in its socket; none: a helper reads.
    pub(crate) armed: Option<u32>,
    /// The connection of its channel has ended.
    pub(crate) is_over: bool,
    /// When there was something last.
    pub(crate) active_ns: u64,
    pub(crate) counts: Counts,
    pub(crate) limits: Limits,
    /// In the schedules of the devices that it has used, by the device's number.
    pub(crate) members: Vec<Option<Member>>,
    pub(crate) states: Slab<GrantState>,
    /// By the place of a grant's number.
    by_place: Vec<usize>,
    /// It is gone; who waits until nothing of it is under way.
    pub(crate) leaving: Option<Reply<Option<Gone>>>,
}

impl Client {
    pub(crate) fn new(joining: Joining) -> Client {
        Client {
            number: joining.number,
            uid: joining.uid,
            table: Table::new(joining.grants_max),
            channel: None,
            attention: Attention::None,
            current: None,
            under_way: 0,
            armed: Some(0),
            is_over: false,
            active_ns: 0,
            counts: Counts::default(),
            limits: joining.limits,
            members: Vec::new(),
            states: Slab::new(),
            by_place: Vec::new(),
            leaving: None,
        }
    }

    /// Begins to count for a grant that the table has just taken in.
    pub(crate) fn note_granted(&mut self, number: GrantNumber) {
        let place = notices::place_of(number.to_word());
        if self.by_place.len() <= place {
            self.by_place.resize(place + 1, usize::MAX);
        }
        let (counts, draining) = (Counts::default(), Vec::new());
        let state = GrantState { number, under_way: 0, counts, draining, is_revoked: false };
        self.by_place[place] = self.states.insert(state);
    }

    /// What is kept of a grant that the table has.
    #[inline]
    pub(crate) fn state_of(&self, number: GrantNumber) -> usize {
        self.by_place[notices::place_of(number.to_word())]
    }

    /// Takes the next request out of its ring, checks it, and lays it out.
    pub(crate) fn take(
        &mut self,
        number: usize,
        works: &mut Works,
        disks: &Slab<Disk>,
        clock: &mut Clock,
    ) -> Taken {
        let Some(channel) = &mut self.channel else { return Taken::Nothing };
        // Left where it is: to move all of it would be a copy.
        let taken = channel.server.try_next();
        let request = match &taken {
            Ok(Some(request)) => request,
            Ok(None) => return Taken::Nothing,
            Err(_) => return Taken::Broken,
        };
        let (place, work) = works.take();
        self.active_ns = clock.fresh();
        self.under_way += 1;
        let outcome = work.take(self, request, disks, self.active_ns);
        let request = taken.ok().flatten().map(Ticket::from);
        work.origin = Origin::Client { client: number, request };
        if let Err(refused) = outcome {
            (work.status, work.value) = (refused.status, refused.value);
            return Taken::Refused { place };
        }
        for stretch in &work.stretches {
            self.states[stretch.grant].under_way += 1;
        }
        let Some(device) = work.next_device() else { return Taken::Empty { place } };
        self.current = Some(place);
        Taken::Work { device }
    }

    /// Completes a request over its channel, if it is still to be; true: the channel is of no use any more.
    #[inline]
    pub(crate) fn answer(&mut self, request: Option<Ticket>, status: Status, value: u64) -> bool {
        self.under_way -= 1;
        match (request, &mut self.channel) {
            (Some(request), Some(channel)) => channel.server.complete(request, status as u16, value).is_err(),
            _ => false,
        }
    }

    /// Whether it is this one in a device's schedule.
    #[inline]
    pub(crate) fn is_member(&self, device: usize, turn: schedule::Member) -> bool {
        matches!(self.members.get(device), Some(Some(member)) if member.turn == turn)
    }

    /// Takes a grant back; the reply is sent when nothing is under way by it any more, whoever took it back first.
    pub(crate) fn revoke(&mut self, number: GrantNumber, reply: Reply<Result<(), Refusal>>) {
        let state = match self.table.revoke(number) {
            Ok(_) => self.state_of(number),
            Err(refusal) => match self.drains(number) {
                Some(state) => state,
                None => return reply.send(Err(refusal)),
            },
        };
        self.states[state].is_revoked = true;
        if self.states[state].under_way == 0 {
            self.states.remove(state);
            return reply.send(Ok(()));
        }
        self.states[state].draining.push(reply);
    }

    /// What is kept of a grant that was taken back, and by which something is still under way. Its place in the table may
    /// have another grant by now.
    #[cold]
    fn drains(&self, number: GrantNumber) -> Option<usize> {
        let mut states = self.states.iter();
        states.find(|(_, state)| state.is_revoked && state.number == number).map(|(state, _)| state)
    }

    /// A stretch by a grant is done with.
    #[inline]
    pub(crate) fn note_drained(&mut self, state: usize) {
        let grant = &mut self.states[state];
        grant.under_way -= 1;
        if grant.under_way == 0 && grant.is_revoked {
            self.forget(state);
        }
    }

    /// Nothing is under way any more by a grant that was taken back.
    #[cold]
    fn forget(&mut self, state: usize) {
        let grant = self.states.remove(state);
        grant.draining.into_iter().for_each(|reply| reply.send(Ok(())));
    }

    /// What is left of it, to be dropped by somebody who has time.
    pub(crate) fn into_gone(self) -> Gone {
        Gone { counts: self.counts, _channel: self.channel, _table: self.table }
    }
}
