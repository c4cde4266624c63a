//! Events: results that other threads send to the control thread.

use crate::bell::Bell;
use crate::helpers::DropByHelper;
use bywash_channel::{Error, Server};
use bywash_link::Packet;
use bywash_protocol::{ControlReply, Refusal};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Result that another thread sends to the control thread.
pub(crate) enum Event {
    /// A reply to a client's message is ready.
    Answered { connection: u64, answer: ControlReply },
    /// A helper has received a client's message with descriptors.
    Received { connection: u64, packet: Result<Option<DropByHelper<Packet>>, Error> },
    /// A helper has opened a file that a client has passed, or failed to.
    Passed { connection: u64, device: Result<DropByHelper<Box<bywash_device::File>>, bywash_device::Error> },
    /// A helper has set up a channel, or failed to.
    Channel { connection: u64, outcome: Result<DropByHelper<Box<Server>>, Error> },
    /// Hardware for a client is ready, or cannot be had.
    HandedOver { connection: u64, outcome: Result<(ControlReply, Vec<OwnedFd>), Refusal> },
    /// A grant that a client has closed is drained: no request by it is in flight.
    Closed { connection: u64, grant: u64 },
    /// No request of a client that has left is in flight any more, and its memory is unmapped.
    Gone { client: u64 },
    /// The server stops.
    Stop,
}

/// Handle by which other threads send events to the control thread.
#[derive(Clone)]
pub(crate) struct EventSender {
    sender: Sender<Event>,
    bell: Arc<Bell>,
}

impl EventSender {
    pub(crate) fn new(sender: Sender<Event>, bell: Arc<Bell>) -> EventSender {
        EventSender { sender, bell }
    }

    pub(crate) fn send(&self, event: Event) {
        // The send fails only if the control thread has stopped.
        if self.sender.send(event).is_ok() {
            self.bell.ring();
        }
    }
}
