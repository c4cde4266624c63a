//! Orders of the exports' owner to the thread that serves them.
//!
//! The thread alone uses the devices, so that no request takes a lock. Sent by `export`, carried out by `service`.

use crate::disk::Disk;
use bywash_export::{Error, STOP_LIMIT, Signal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// Order to the thread of a listener.
#[derive(Debug)]
pub(crate) enum Order {
    /// Adds a disk, which was checked.
    Add { disk: Disk, reply: OrderReply },
    /// Withdraws the disk of this name. The reply is sent when its device is closed.
    Remove { name: String, reply: OrderReply },
    /// Looks again at the size of the device of this name.
    Refresh { name: String },
}

/// Sender of an order's result.
#[derive(Debug)]
pub(crate) struct OrderReply(Sender<Result<(), Error>>);

impl OrderReply {
    pub(crate) fn send(self, outcome: Result<(), Error>) {
        // The owner may have given up waiting.
        let _ = self.0.send(outcome);
    }
}

/// End of the owner, which sends orders.
#[derive(Debug)]
pub(crate) struct OrderSender {
    orders: Sender<Order>,
    signal: Signal,
}

/// End of the thread, which carries orders out.
#[derive(Debug)]
pub(crate) struct OrderReceiver {
    pub(crate) orders: Receiver<Order>,
    /// Signal that an order was sent.
    pub(crate) signal: Signal,
}

/// Makes both ends.
///
/// # Errors
/// [`Error::Io`] if no signal can be made.
pub(crate) fn orders() -> Result<(OrderSender, OrderReceiver), Error> {
    let signal = Signal::new()?;
    let (sender, orders) = channel();
    Ok((OrderSender { orders: sender, signal: signal.clone() }, OrderReceiver { orders, signal }))
}

impl OrderSender {
    /// Sends an order that has no reply. Nothing happens if the thread has ended.
    pub(crate) fn send(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            self.signal.give();
        }
    }

    /// Sends an order, and waits [`STOP_LIMIT`] at most for its result.
    ///
    /// # Errors
    /// [`Error::Ended`] if the thread has ended, [`Error::Busy`] if it takes longer, and the order's own error.
    pub(crate) fn carry_out(&self, order: impl FnOnce(OrderReply) -> Order) -> Result<(), Error> {
        let (sender, outcome) = channel();
        self.orders.send(order(OrderReply(sender))).map_err(|_| Error::Ended)?;
        self.signal.give();
        match outcome.recv_timeout(STOP_LIMIT) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => Err(Error::Busy),
            Err(RecvTimeoutError::Disconnected) => Err(Error::Ended),
        }
    }
}
