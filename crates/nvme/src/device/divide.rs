//! Dividing a device: its pairs of queues become devices of their own, each for another thread, which share the controller (see
//! [`link`](super::link)). Called when several queues of the device are asked for, before it is used.

use super::free::FreeSlots;
use super::link::Link;
use super::{Nvme, QUEUES_MAX, slots};
use crate::error::Error;
use crate::function::Function;
use crate::queue::QueuePair;
use bywash_device::{Claims, Device};
use std::sync::Arc;

impl<F: Function> Nvme<F> {
    /// Makes `count` devices of this one, which shares its controller with them. Each has a pair of queues, an interrupt if
    /// interrupts are used, and an equal part of the depth. Nothing is in flight or prepared. Returns none if the
    /// controller has too few queues or interrupts, or is shared already.
    pub(super) fn divide(&mut self, count: usize) -> Result<Vec<Nvme<F>>, Error> {
        let wanted = count.min(QUEUES_MAX.into()) as u16;
        let has_vectors = !self.options.interrupts || self.function.vectors() >= wanted;
        let is_idle = self.in_flight() == 0 && self.transfers.iter().all(Option::is_none);
        let Link::Own(controller) = &mut self.controller else { return Ok(Vec::new()) };
        if usize::from(wanted) != count || !has_vectors || !is_idle || !controller.is_ready() {
            return Ok(Vec::new());
        }
        if self.options.interrupts {
            self.function.use_vectors(wanted)?;
        }
        let mut make = |queues: u16, vectors: bool, old: &mut Vec<QueuePair<F>>| {
            controller.begin_anew(queues, vectors);
            controller.wait_until_ready(old)?;
            *old = controller.take_queues();
            Ok::<_, Error>(())
        };
        let before = self.queues.len() as u16;
        make(wanted, self.options.interrupts, &mut self.queues)?;
        if self.queues.len() < count {
            make(before, false, &mut self.queues)?;
            return Ok(Vec::new());
        }
        let room = self.queues.iter().map(|queue| usize::from(queue.entries) - 1).min().unwrap_or(1);
        let depth = (self.options.depth / count).clamp(1, room);
        let pairs: Vec<_> = self.queues.drain(1..).collect();
        (self.slots, self.free) = (slots(depth, 1, &self.limits), FreeSlots::new(depth as u16));
        let links = self.controller.share(&self.function, count);
        let claims = Arc::new(Claims::new());
        self.claims = Some(claims.clone());
        let device = |((pair, link), vector): ((QueuePair<F>, Link<F>), u16)| {
            let identity = (self.identity.clone(), self.geometry);
            let (function, options) = (self.function.clone(), self.options.clone());
            Nvme::with_queues(
                link,
                (vec![pair], vector),
                function,
                options,
                identity,
                self.pinner.clone(),
                depth,
            )
        };
        let mut devices: Vec<_> =
            pairs.into_iter().zip(links).zip(1..).map(device).collect::<Result<_, _>>()?;
        devices.iter_mut().for_each(|device| device.claims = Some(claims.clone()));
        Ok(devices)
    }
}
