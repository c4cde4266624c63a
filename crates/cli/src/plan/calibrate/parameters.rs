//! Conversion of the measurements to the numbers of a description.
//!
//! Each number is chosen so that the model's charges for an operation add up to the measured time of the
//! operation:
//!
//! ```text
//!     trap                                           = a system call that does nothing
//!     call + 4 KiB x system                          = reading 4 KiB out of the page cache
//!     call + 128 KiB x system                        = reading and writing 128 KiB of it, on the average
//!     switch + a byte into a pipe and out            = a byte to another thread of the same processor by a pipe
//!     interrupt + switch + 2 call                    = a byte to another thread of the same processor by TCP
//!     interconnect.latency                           = how much longer that takes to a thread that runs elsewhere
//!     64 KiB x 2 tcp + a byte there and back         = 64 KiB by TCP and a byte back, on one processor
//!     tcp-large                                      = the sender's processor time for a byte, of pieces of 1 MiB that were just read
//!     (1 MiB - 4 KiB) x file-system                  = how much more processor time 1 MiB past the page cache takes than 4 KiB
//!     access + 16 KiB x (file-system + system) + call + interrupt + switch
//!                                                    = processor time to read 16 KiB not in the page cache
//!     flash.latency + what is charged besides        = reading 4 KiB past the page cache
//!     flash.channels / flash.latency                 = the most such reads a second
//!     memory.latency + 1 KiB / memory.rate           = a processor copies 1 KiB of much out of memory
//! ```
//!
//! A negative difference counts as 0. The conversion is a pure function of the measurements.

use super::Measured;
use super::files::{FILE, LARGE, SMALL};
use super::forwarding::PIECE;
use super::messages;

const BLOCK: f64 = bywash_model::machine::Memory::BLOCK;

/// Numbers of a description, in bytes, seconds, cycles and cycles for a byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    pub count: f64,
    pub speed: f64,
    pub memory_rate: f64,
    pub banks: f64,
    pub memory_latency: f64,
    pub caches: [f64; 2],
    pub loopback_rate: f64,
    pub latency: f64,
    pub disk_rate: f64,
    pub flash_latency: f64,
    pub flash_spread: f64,
    pub flash_channels: f64,
    pub call: f64,
    pub trap: f64,
    pub interrupt: f64,
    pub switch: f64,
    pub system: f64,
    pub tcp: f64,
    pub tcp_large: f64,
    pub file_system: f64,
    pub access: f64,
    pub doorbell: f64,
    pub poll: f64,
}

impl Parameters {
    /// Computes the numbers from the measurements.
    pub fn from_measured(measured: &Measured) -> Parameters {
        let Measured { processors, memory, messages, cached, device, forwarding, .. } = measured;
        let speed = processors.speed;
        // All values are in seconds up to the last lines, which convert to cycles.
        let large = (cached.read[1].median + cached.write[1].median) / 2.0;
        let system = above_zero(large - cached.read[0].median) / (LARGE - SMALL) as f64;
        let call = (cached.read[0].median - SMALL as f64 * system).max(processors.call.median);
        let switch = above_zero(messages.pipe.median - messages.alone.median);
        let interrupt = above_zero(messages.tcp.median - switch - 2.0 * call);
        let latency = above_zero(messages.tcp_apart.median - messages.tcp.median);
        // The medians are half round trips, and a byte costs time at both ends, so the difference for a byte
        // is the time at one end.
        let tcp = above_zero(messages.large.median - messages.tcp.median) / messages::LARGE as f64;
        let handling = call + interrupt + switch;
        let direct = above_zero(forwarding.read.median - device.processor.median) / (PIECE - SMALL) as f64;
        // A file system that does not read past its page cache copies.
        let file_system = if device.is_direct { direct } else { above_zero(direct - system) };
        let access = above_zero(device.cold.median - handling - FILE as f64 * (system + file_system));
        // A byte that is copied is both read and written.
        let memory_rate = (2.0 * memory.together.median).max(memory.inward.median);
        let memory_latency = above_zero(BLOCK / memory.inward.median - BLOCK / memory_rate);
        let besides = handling
            + access
            + SMALL as f64 * (system + file_system)
            + SMALL as f64 * (1.0 / memory_rate + 1.0 / device.in_order.median)
            + latency;
        let (flash_latency, flash_spread, flash_mean) = flash(&device.latencies, besides);
        let most = device.rates.iter().map(|(_, rate)| rate.median).fold(0.0, f64::max);
        let line = processors.word.map_or(0.0, |word| word.median / 2.0);
        Parameters {
            count: processors.count as f64,
            speed,
            memory_rate,
            // Number of banks that must be busy at a time, so that the latency does not keep the bus from its
            // rate.
            banks: (1.0 + memory_rate * memory_latency / BLOCK).ceil(),
            memory_latency,
            caches: processors.caches.map(|bytes| bytes as f64),
            loopback_rate: memory.copies.iter().map(|(_, rate)| rate.median).fold(0.0, f64::max),
            latency,
            disk_rate: device.in_order.median,
            flash_latency,
            flash_spread,
            flash_channels: (most * flash_mean).round().max(1.0),
            call: call * speed,
            trap: processors.call.median * speed,
            interrupt: interrupt * speed,
            switch: switch * speed,
            system: system * speed,
            tcp: tcp * speed,
            tcp_large: forwarding.sent.median * speed,
            file_system: file_system * speed,
            access: access * speed,
            doorbell: line * speed,
            poll: line * speed,
        }
    }
}

fn above_zero(seconds: f64) -> f64 {
    seconds.max(0.0)
}

/// Fits a lognormal distribution to the device's own part of read times: `latencies` less the model's other
/// charges `besides`, in seconds. Returns the median, the standard deviation of the logarithm, and the mean.
fn flash(latencies: &[f64], besides: f64) -> (f64, f64, f64) {
    // The device takes at least a small part of each read, whatever is charged besides.
    let mut own: Vec<f64> =
        latencies.iter().map(|latency| (latency - besides).max(latency * LEAST_SHARE)).collect();
    own.sort_by(f64::total_cmp);
    let median = own.get(own.len() / 2).copied().unwrap_or(0.0);
    let deviation: f64 = own.iter().map(|latency| (latency / median).ln().powi(2)).sum();
    let spread = (deviation / own.len().max(1) as f64).sqrt();
    (median, spread, median * (spread * spread / 2.0).exp())
}

/// Least share of a read's time that is attributed to the device.
const LEAST_SHARE: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::super::tests::measured;
    use super::*;

    #[test]
    fn what_is_charged_for_an_operation_is_what_it_took() {
        let (measured, found) = (measured(), Parameters::from_measured(&measured()));
        let seconds = |cycles: f64| cycles / found.speed;
        let near = |one: f64, other: f64| (one / other - 1.0).abs() < 1e-9;
        let page = seconds(found.call + 4096.0 * found.system);
        assert!(near(page, measured.cached.read[0].median));
        let message = seconds(2.0 * found.call + found.interrupt + found.switch);
        assert!(near(message, measured.messages.tcp.median));
        let large =
            seconds(2.0 * (2.0 * found.call + found.interrupt + found.switch) + 131_072.0 * found.tcp);
        assert!(near(large, 2.0 * measured.messages.large.median));
        let handling = found.call + found.interrupt + found.switch;
        let file = seconds(handling + found.access + 16384.0 * (found.system + found.file_system));
        assert!(near(file, measured.device.cold.median));
        let more = seconds(found.file_system * (1_048_576.0 - 4096.0));
        assert!(near(more, measured.forwarding.read.median - measured.device.processor.median));
        let calls = 2.0 * seconds(found.call + 131_072.0 * found.system);
        assert!(near(calls, measured.cached.read[1].median + measured.cached.write[1].median));
        let block = found.memory_latency + 1024.0 / found.memory_rate;
        assert!(near(block, 1024.0 / measured.memory.inward.median));
        assert!(near(found.latency, 15e-6) && found.banks == 3.0);
    }

    #[test]
    fn a_lognormal_device_is_found_again() {
        // Sample with a median of 80 us and a spread of 0.3: sums of twelve uniform numbers are nearly
        // normal.
        let mut state = 1u64;
        let mut even = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut normal = || (0..12).map(|_| even()).sum::<f64>() - 6.0;
        let latencies: Vec<f64> = (0..20_000).map(|_| 10e-6 + 80e-6 * (0.3 * normal()).exp()).collect();
        let (median, spread, mean) = flash(&latencies, 10e-6);
        assert!(
            (median / 80e-6 - 1.0).abs() < 0.02 && (spread / 0.3 - 1.0).abs() < 0.03,
            "{median} {spread}"
        );
        let wanted = latencies.iter().sum::<f64>() / 20_000.0 - 10e-6;
        assert!((mean / wanted - 1.0).abs() < 0.02);
        assert!(flash(&[1e-6; 3], 1e-3).0 > 0.0, "less than is charged besides");
    }
}
