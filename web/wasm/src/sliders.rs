//! Numbers of a description that the page can vary: their labels and ranges.
//!
//! A number that a description lacks (a seek time, if its disks are flash; bursts, if no requests arrive on their
//! own) has no slider. A value between two
//! notches, or beyond the last one, is kept until the slider moves.

use crate::notches::Positions::{self, Counts, Doublings, Factors, NothingOrFactors, Steps, Threads};
use crate::notches::Scale;
use bywash_model::Description;
use bywash_model::describe::Key;
use serde::Serialize;

/// Slider for one number of a description.
#[derive(Clone, Copy, Debug)]
pub struct Slider {
    /// Key of the number in a description.
    pub key: &'static str,
    /// Part of the description under which the page shows the slider.
    pub group: &'static str,
    /// Label of the slider.
    pub label: &'static str,
    /// Positions of the slider.
    pub notches: Positions,
    /// True if the page shows the slider only when the user requests more.
    pub is_rare: bool,
}

/// Slider with the value of one description, for the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliderState {
    /// Key of the number in a description.
    pub key: &'static str,
    /// Part of the description under which the page shows the slider.
    pub group: &'static str,
    /// Label of the slider.
    pub label: &'static str,
    /// True if the page shows the slider only when the user requests more.
    pub is_rare: bool,
    /// Value at each position, with its unit.
    pub notches: Vec<String>,
    /// Relation of the positions to the values.
    pub scale: Scale,
    /// Position of the value, from 0; a fraction between two positions.
    pub place: f64,
    /// Value in base units.
    pub value: f64,
}

const fn basic(key: &'static str, group: &'static str, label: &'static str, notches: Positions) -> Slider {
    Slider { key, group, label, notches, is_rare: false }
}

const fn advanced(key: &'static str, group: &'static str, label: &'static str, notches: Positions) -> Slider {
    Slider { key, group, label, notches, is_rare: true }
}

const REQUESTS: &str = "Requests";
const PROCESSORS: &str = "Processors";
const INTERCONNECT: &str = "Interconnect";
const MEMORY: &str = "Memory";
const INTERFACES: &str = "Network interfaces";
const DISKS: &str = "Disks";
const COSTS: &str = "Costs";

const HALF: Positions = Steps(0.5, 100, "%");
const WHOLE: Positions = Steps(1.0, 100, "%");
const HERTZ: Positions = Factors(&[(50.0, 900.0, "MHz"), (1.0, 6.0, "GHz")]);
/// Speeds of processors that devices need not have.
const HERTZ_OR_NONE: Positions = NothingOrFactors("GHz", &[(50.0, 900.0, "MHz"), (1.0, 40.0, "GHz")]);
const ARRIVALS: Positions = NothingOrFactors("/s", &[(1.0, 1e6, "/s")]);
const RATES: Positions = Factors(&[(10.0, 1000.0, "MiB/s"), (1.0, 100.0, "GiB/s")]);
const DISK_RATES: Positions = Factors(&[(1.0, 1000.0, "MiB/s"), (1.0, 20.0, "GiB/s")]);
const SIZES: Positions = Doublings(&[(512, 512, "B"), (1, 512, "KiB"), (1, 64, "MiB")]);
const TIMES: Positions =
    NothingOrFactors("s", &[(10.0, 900.0, "ns"), (1.0, 900.0, "us"), (1.0, 100.0, "ms")]);
const CYCLES: Positions = Steps(200.0, 100, "cycles");
const COMPUTE: Positions = NothingOrFactors("cycles", &[(1e3, 1e7, "cycles")]);
/// Sizes that may be 0, as those of a database's log or of a page's data.
const OR_NONE: Positions = Doublings(&[(0, 0, "B"), (512, 512, "B"), (1, 512, "KiB"), (1, 64, "MiB")]);

/// All sliders, in the order in which the page shows them.
pub const SLIDERS: &[Slider] = &[
    basic("request.web.miss", REQUESTS, "Not in memory", HALF),
    basic("request.web.file", REQUESTS, "Size of a file", SIZES),
    basic("request.video.file", REQUESTS, "Size of a request", SIZES),
    basic("request.streams.writes", REQUESTS, "Coming in", WHOLE),
    basic("request.streams.block", REQUESTS, "Size of a block", SIZES),
    basic("request.blocks.writes", REQUESTS, "Writes", WHOLE),
    basic("request.blocks.block", REQUESTS, "Size of a block", SIZES),
    basic("request.database.miss", REQUESTS, "Pages not in the pool", HALF),
    basic("request.database.pages", REQUESTS, "Pages of a transaction", Counts),
    basic("request.database.page", REQUESTS, "Size of a page", SIZES),
    basic("request.database.log", REQUESTS, "Log of a transaction", OR_NONE),
    basic("request.database.compute", REQUESTS, "Computing for one", COMPUTE),
    basic("request.dynamic.page", REQUESTS, "Size of a page", SIZES),
    basic("request.dynamic.data", REQUESTS, "Data from disks for one", OR_NONE),
    basic("request.dynamic.compute", REQUESTS, "Computing for one", COMPUTE),
    basic("load.threads", REQUESTS, "Threads", Threads),
    basic("load.arrivals", REQUESTS, "Arrivals", ARRIVALS),
    basic("load.burst", REQUESTS, "Arrivals at a time", Counts),
    advanced("load.think", REQUESTS, "Thinking between requests", TIMES),
    basic("machine.processors.count", PROCESSORS, "How many", Counts),
    basic("machine.processors.speed", PROCESSORS, "Speed of each", HERTZ),
    basic("machine.interconnect.rate", INTERCONNECT, "Rate", RATES),
    advanced("machine.interconnect.latency", INTERCONNECT, "Latency", TIMES),
    advanced("machine.interconnect.packet", INTERCONNECT, "Bytes of a packet", OR_NONE),
    advanced("machine.interconnect.overhead", INTERCONNECT, "Bytes beside them", Steps(2.0, 64, "B")),
    basic("machine.memory.rate", MEMORY, "Rate", RATES),
    advanced("machine.memory.banks", MEMORY, "Banks", Counts),
    advanced("machine.memory.latency", MEMORY, "Latency", TIMES),
    basic("machine.interfaces.count", INTERFACES, "How many", Counts),
    basic("machine.interfaces.rate", INTERFACES, "Rate of each", RATES),
    basic("machine.interfaces.processor", INTERFACES, "Processor in each", HERTZ_OR_NONE),
    basic("machine.disks.count", DISKS, "How many", Counts),
    basic("machine.disks.rate", DISKS, "Rate of each", DISK_RATES),
    basic("machine.disks.processor", DISKS, "Processor in each", HERTZ_OR_NONE),
    advanced("machine.disks.cache", DISKS, "Memory of the controller", OR_NONE),
    advanced("machine.disks.segments", DISKS, "Readers it reads ahead for", Counts),
    advanced("machine.disks.rotating.seek", DISKS, "Moving the arm", TIMES),
    advanced("machine.disks.rotating.turn", DISKS, "One turn", TIMES),
    advanced("machine.disks.flash.latency", DISKS, "Median of a read", TIMES),
    advanced("machine.disks.flash.channels", DISKS, "Reads at a time", Counts),
    basic("costs.tcp", COSTS, "TCP", Steps(0.1, 100, "cycles/B")),
    basic("costs.file-system", COSTS, "File system", Steps(0.1, 200, "cycles/B")),
    basic("costs.system", COSTS, "Copies and crossings", Steps(0.05, 200, "cycles/B")),
    basic("costs.server", COSTS, "The program itself", Steps(0.05, 200, "cycles/B")),
    advanced("costs.call", COSTS, "System call for I/O", CYCLES),
    advanced("costs.interrupt", COSTS, "Interrupt", CYCLES),
    advanced("costs.switch", COSTS, "Switch of threads", CYCLES),
    advanced("costs.doorbell", COSTS, "Asking at user level", CYCLES),
    advanced("costs.poll", COSTS, "Noticing at user level", CYCLES),
];

impl Slider {
    /// Returns the slider for `key`, or `None` if `key` has no slider.
    pub fn named(key: &str) -> Option<&'static Slider> {
        SLIDERS.iter().find(|slider| slider.key == key)
    }

    /// Returns the values of the positions, in base units.
    pub fn values(&self) -> Vec<f64> {
        let Ok(key) = Key::by_name(self.key) else { return Vec::new() };
        self.notches.texts().iter().filter_map(|text| key.value(text).ok()).collect()
    }

    /// Returns the slider with its value in `description`, or `None` if the description lacks the number.
    pub fn placed(&self, description: &Description) -> Option<SliderState> {
        let mut description = *description;
        // Bursts belong to an open load, and thinking to a closed one.
        let without = if description.load.is_open() { "load.think" } else { "load.burst" };
        if self.key == without {
            return None;
        }
        let value = *Key::by_name(self.key).ok()?.number_in(&mut description).ok()?;
        Some(SliderState {
            key: self.key,
            group: self.group,
            label: self.label,
            is_rare: self.is_rare,
            notches: self.notches.texts(),
            scale: self.notches.scale(),
            place: place(&self.values(), value),
            value,
        })
    }
}

/// Returns the position of `value` among increasing `values`; between two of them it is a fraction.
fn place(values: &[f64], value: f64) -> f64 {
    let above = values.partition_point(|at| *at < value);
    if above == 0 || above == values.len() {
        return above.min(values.len().saturating_sub(1)) as f64;
    }
    let (low, high) = (values[above - 1], values[above]);
    (above - 1) as f64 + (value - low) / (high - low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_is_a_number_of_a_description_and_all_its_values_can_be() {
        for slider in SLIDERS {
            let key = Key::by_name(slider.key).unwrap();
            let texts = slider.notches.texts();
            for text in &texts {
                assert!(key.value(text).is_ok(), "{}: {text}", slider.key);
            }
            let values = slider.values();
            assert!(values.windows(2).all(|two| two[0] < two[1]), "{}: {texts:?}", slider.key);
            assert!((10..=250).contains(&values.len()), "{}: {}", slider.key, values.len());
        }
    }

    #[test]
    fn no_number_has_two() {
        let keys: BTreeSet<_> = SLIDERS.iter().map(|slider| slider.key).collect();
        assert_eq!(keys.len(), SLIDERS.len());
    }

    #[test]
    fn a_value_between_two_positions_is_between_them() {
        assert_eq!(place(&[1.0, 2.0, 4.0], 2.0), 1.0);
        assert_eq!(place(&[1.0, 2.0, 4.0], 3.0), 1.5);
        assert_eq!((place(&[1.0, 2.0], 0.5), place(&[1.0, 2.0], 9.0)), (0.0, 1.0));
    }
}
