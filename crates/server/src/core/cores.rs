//! All cores of a server: orders to one of them, or to all of them with one reply.
//!
//! ```text
//!                        ┌─► core 0: its clients, its queue of each device, the device's chunks
//!   control, helpers ────┼─► core 1: its clients, its queue of each device
//!                        └─► ...
//! ```
//!
//! A client belongs to one core, and so do its grants and the files that it has passed. What concerns a device is
//! ordered from all cores, and done when all have replied.
//!
//! Invariant: orders from one thread to one core are carried out in the order in which they were sent. Called by the
//! threads of control.

use crate::core::order::{CoreHandle, CoreOrder, CoreStopped, OnDone};
use bywash_volume::DeviceNumber;
use slab::Slab;
use std::fmt::Debug;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Core that has the first queue of each device of the server, with the chunks of memory devices.
pub(crate) const FIRST: usize = 0;

/// Handles of all cores of a server, by their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Cores(Arc<[CoreHandle]>);

/// Numbers of devices, which are the same on all cores.
#[derive(Debug, Default)]
pub(crate) struct DeviceNumbers(Mutex<Slab<()>>);

/// Replies of all cores to one order.
struct Gathered<T> {
    replies: Vec<T>,
    missing: usize,
    all: Option<OnDone<Vec<T>>>,
}

impl Cores {
    /// Names the cores of a server: one or more.
    pub(crate) fn new(handles: Vec<CoreHandle>) -> Cores {
        Cores(handles.into())
    }

    /// Returns the number of cores.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the core for a client that joins: the one with the fewest clients that have lately sent requests, and
    /// among those the one with the fewest clients.
    pub(crate) fn least_loaded(&self) -> usize {
        let loads = self.0.iter().enumerate().map(|(number, core)| (core.load(), number));
        loads.min().map_or(FIRST, |(_, number)| number)
    }

    /// Sends an order to one core. Its [`OnDone`] is called when the core has carried it out.
    pub(crate) fn send(&self, core: usize, order: CoreOrder) -> Result<(), CoreStopped> {
        self.0.get(core).ok_or(CoreStopped)?.send(order)
    }

    /// Sends an order to one core and waits for its reply.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        core: usize,
        order: impl FnOnce(OnDone<T>) -> CoreOrder,
    ) -> Result<T, CoreStopped> {
        self.0.get(core).ok_or(CoreStopped)?.ask(order)
    }

    /// Sends an order to all cores. `all` is called with their replies when each has carried it out, and dropped if one
    /// of them has stopped.
    pub(crate) fn send_all<T: Send + 'static>(
        &self,
        order: impl Fn(usize, OnDone<T>) -> CoreOrder,
        all: OnDone<Vec<T>>,
    ) -> Result<(), CoreStopped> {
        let missing = self.count();
        let gathered = Gathered { replies: Vec::with_capacity(missing), missing, all: Some(all) };
        let gathered = Arc::new(Mutex::new(gathered));
        for (number, core) in self.0.iter().enumerate() {
            let gathered = gathered.clone();
            core.send(order(number, OnDone::new(move |reply| Gathered::take(&gathered, reply))))?;
        }
        Ok(())
    }

    /// Sends an order to all cores and waits for their replies, which are in no particular order.
    pub(crate) fn ask_all<T: Send + 'static>(
        &self,
        order: impl Fn(usize, OnDone<T>) -> CoreOrder,
    ) -> Result<Vec<T>, CoreStopped> {
        let (sender, receiver) = channel();
        // The send fails only if the receiver was dropped and nobody waits any more.
        self.send_all(order, OnDone::new(move |replies| drop(sender.send(replies))))?;
        self.wait(&receiver, None).map_err(|_| CoreStopped)
    }

    /// Waits for a message of the cores, at most until `until`.
    pub(crate) fn wait<T>(
        &self,
        receiver: &std::sync::mpsc::Receiver<T>,
        until: Option<Instant>,
    ) -> Result<T, RecvTimeoutError> {
        // All the same which handle waits: a caller that steps one core of a server steps all of them.
        self.0[FIRST].wait(receiver, until)
    }

    /// Tells all cores to stop.
    pub(crate) fn stop(&self) {
        for core in self.0.iter() {
            // The send fails only if the core has stopped already.
            let _ = core.send(CoreOrder::Stop);
        }
    }
}

impl<T> Gathered<T> {
    fn take(gathered: &Mutex<Gathered<T>>, reply: T) {
        // A thread that panicked has left the list whole: a reply is added in one step.
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.replies.push(reply);
        gathered.missing -= 1;
        if gathered.missing > 0 {
            return;
        }
        let replies = std::mem::take(&mut gathered.replies);
        if let Some(all) = gathered.all.take() {
            all.send(replies);
        }
    }
}

impl DeviceNumbers {
    /// Takes a number that no device has.
    pub(crate) fn take(&self) -> DeviceNumber {
        let number = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(());
        // The number of devices is limited far below 2^32.
        DeviceNumber(number as u32)
    }

    /// Gives back the number of a device that all its cores have removed.
    pub(crate) fn give(&self, number: DeviceNumber) {
        let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).try_remove(number.0 as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    /// Cores of which the test carries out the orders.
    fn cores(count: usize) -> (Cores, Vec<std::sync::mpsc::Receiver<CoreOrder>>) {
        let made = (0..count).map(|number| {
            let (handle, orders, _) = CoreHandle::new(number).unwrap();
            (handle, orders)
        });
        let (handles, orders): (Vec<_>, Vec<_>) = made.unzip();
        (Cores::new(handles), orders)
    }

    #[test]
    fn all_have_replied_when_the_reply_comes() {
        let (cores, orders) = cores(3);
        let (sender, receiver) = channel();
        let drain = |_, reply| CoreOrder::Drain { device: DeviceNumber(0), spans: Vec::new(), reply };
        cores.send_all(drain, OnDone::new(move |all: Vec<()>| sender.send(all.len()).unwrap())).unwrap();
        for (number, orders) in orders.iter().enumerate() {
            assert!(receiver.try_recv().is_err(), "core {number} has not replied");
            match orders.recv().unwrap() {
                CoreOrder::Drain { reply, .. } => reply.send(()),
                order => panic!("{order:?}"),
            }
        }
        assert_eq!(receiver.try_recv(), Ok(3));
    }

    #[test]
    fn nobody_waits_for_a_core_that_has_stopped() {
        let (cores, mut orders) = cores(2);
        let asked = thread::spawn({
            let cores = cores.clone();
            move || cores.ask_all(|_, reply| CoreOrder::Report { reply }).is_err()
        });
        // The first core drops its order when it stops; the other one replies never.
        let first = orders.remove(0);
        let order = first.recv_timeout(Duration::from_secs(20)).unwrap();
        drop((order, first));
        drop(orders);
        assert!(asked.join().unwrap());
        assert_eq!(cores.send(1, CoreOrder::Stop), Err(CoreStopped));
    }

    #[test]
    fn clients_join_the_core_with_the_least_load() {
        let (cores, _orders) = cores(3);
        cores.0[0].note_load(2, 5);
        cores.0[1].note_load(1, 9);
        cores.0[2].note_load(1, 8);
        assert_eq!(cores.least_loaded(), 2);
        cores.0[2].note_load(3, 8);
        assert_eq!(cores.least_loaded(), 1);
    }

    #[test]
    fn numbers_of_devices_are_given_again() {
        let numbers = DeviceNumbers::default();
        assert_eq!([numbers.take(), numbers.take()], [DeviceNumber(0), DeviceNumber(1)]);
        numbers.give(DeviceNumber(0));
        assert_eq!(numbers.take(), DeviceNumber(0));
    }
}
