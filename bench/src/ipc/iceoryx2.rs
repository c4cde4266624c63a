//! iceoryx2 as published: publish and subscribe, one service each way, both ends polling.
//!
//! Its own recommendations are followed: memory is loaned and written once, nothing is discarded, and a full
//! buffer makes the publisher wait.

use super::wire::{Wire, check_length};
use super::words::{fill_uninit, sum_words};
use crate::error::Error;
use crate::interrupt;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use std::time::{Duration, Instant};

/// Samples that a subscriber's buffer holds: as many as our arena in this bench.
const BUFFER: usize = 8;
const LIMIT: Duration = Duration::from_secs(10);

/// One end of two services.
pub struct Iceoryx2 {
    publisher: Publisher<ipc::Service, [u64], ()>,
    subscriber: Subscriber<ipc::Service, [u64], ()>,
    _node: Node<ipc::Service>,
}

fn failed(error: impl std::fmt::Debug) -> Error {
    Error::failed("iceoryx2", format!("{error:?}"))
}

impl Iceoryx2 {
    /// Opens an end and waits for the other one.
    pub fn open(bytes: usize, second: bool, name: &str) -> Result<Iceoryx2, Error> {
        set_log_level(LogLevel::Error);
        let node = NodeBuilder::new().create::<ipc::Service>().map_err(failed)?;
        let service = |way: &str| {
            let name = ServiceName::new(&format!("{name}/{way}")).map_err(failed)?;
            node.service_builder(&name)
                .publish_subscribe::<[u64]>()
                .enable_safe_overflow(false)
                .subscriber_max_buffer_size(BUFFER)
                .max_publishers(1)
                .max_subscribers(1)
                .open_or_create()
                .map_err(failed)
        };
        let (there, back) = (service("there")?, service("back")?);
        let (out, in_) = if second { (back, there) } else { (there, back) };
        let subscriber = in_.subscriber_builder().buffer_size(BUFFER).create().map_err(failed)?;
        let publisher = out
            .publisher_builder()
            .initial_max_slice_len(bytes.div_ceil(8))
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .map_err(failed)?;
        let end = Instant::now() + LIMIT;
        while out.dynamic_config().number_of_subscribers() == 0
            || in_.dynamic_config().number_of_publishers() == 0
        {
            if Instant::now() > end {
                return Err(failed("the other process did not come"));
            }
            std::thread::yield_now();
        }
        Ok(Iceoryx2 { publisher, subscriber, _node: node })
    }
}

impl Wire for Iceoryx2 {
    #[expect(unsafe_code, reason = "every word is written just before")]
    fn send(&mut self, bytes: usize, seed: u64) -> Result<u64, Error> {
        let mut sample = self.publisher.loan_slice_uninit(bytes / 8).map_err(failed)?;
        let sum = fill_uninit(sample.payload_mut(), seed);
        // SAFETY: every word was written.
        unsafe { sample.assume_init() }.send().map_err(failed)?;
        Ok(sum)
    }

    fn receive(&mut self, bytes: usize) -> Result<u64, Error> {
        let mut looks = 0u32;
        loop {
            if let Some(sample) = self.subscriber.receive().map_err(failed)? {
                check_length(sample.payload().len() * 8, bytes / 8 * 8)?;
                return Ok(sum_words(sample.payload()));
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 20) {
                interrupt::check()?;
            }
            std::hint::spin_loop();
        }
    }
}
