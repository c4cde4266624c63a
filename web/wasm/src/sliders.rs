//! Numbers of a description that the page can vary: their labels and ranges.
//!
//! A number that a description lacks (a seek time, if its disks are flash) has no slider. A value between two
//! notches, or beyond the last one, is kept until the slider moves.

use crate::notches::Notches::{self, Counts, Doublings, Factors, NothingOrFactors, Steps, Threads};
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
    pub notches: Notches,
    /// True if the page shows the slider only when the user requests more.
    pub is_rare: bool,
}

/// Slider with the value of one description, for the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placed {
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
    /// Position of the value, from 0; a fraction between two positions.
    pub place: f64,
    /// Value in base units.
    pub value: f64,
}

const fn often(key: &'static str, group: &'static str, label: &'static str, notches: Notches) -> Slider {
    Slider { key, group, label, notches, is_rare: false }
}

const fn rarely(key: &'static str, group: &'static str, label: &'static str, notches: Notches) -> Slider {
    Slider { key, group, label, notches, is_rare: true }
}

const REQUESTS: &str = "Requests";
const PROCESSORS: &str = "Processors";
const INTERCONNECT: &str = "Interconnect";
const MEMORY: &str = "Memory";
const INTERFACES: &str = "Network interfaces";
const DISKS: &str = "Disks";
const COSTS: &str = "Costs";

const HALF: Notches = Steps(0.5, 100, "%");
const WHOLE: Notches = Steps(1.0, 100, "%");
const HERTZ: Notches = Factors(&[(50.0, 900.0, "MHz"), (1.0, 6.0, "GHz")]);
const RATES: Notches = Factors(&[(10.0, 1000.0, "MiB/s"), (1.0, 100.0, "GiB/s")]);
const DISK_RATES: Notches = Factors(&[(1.0, 1000.0, "MiB/s"), (1.0, 20.0, "GiB/s")]);
const SIZES: Notches = Doublings(&[(512, 512, "B"), (1, 512, "KiB"), (1, 64, "MiB")]);
const TIMES: Notches = NothingOrFactors("s", &[(10.0, 900.0, "ns"), (1.0, 900.0, "us"), (1.0, 100.0, "ms")]);
const CYCLES: Notches = Steps(200.0, 100, "cycles");
const COMPUTE: Notches = NothingOrFactors("cycles", &[(1e3, 1e7, "cycles")]);
/// Sizes that may be 0, as those of a database's log or of a page's data.
const OR_NONE: Notches = Doublings(&[(0, 0, "B"), (512, 512, "B"), (1, 512, "KiB"), (1, 64, "MiB")]);

/// All sliders, in the order in which the page shows them.
pub const SLIDERS: &[Slider] = &[
    often("request.web.miss", REQUESTS, "Not in memory", HALF),
    often("request.web.file", REQUESTS, "Size of a file", SIZES),
    often("request.video.file", REQUESTS, "Size of a request", SIZES),
    often("request.streams.writes", REQUESTS, "Coming in", WHOLE),
    often("request.streams.block", REQUESTS, "Size of a block", SIZES),
    often("request.blocks.writes", REQUESTS, "Writes", WHOLE),
    often("request.blocks.block", REQUESTS, "Size of a block", SIZES),
    often("request.database.miss", REQUESTS, "Pages not in the pool", HALF),
    often("request.database.pages", REQUESTS, "Pages of a transaction", Counts),
    often("request.database.page", REQUESTS, "Size of a page", SIZES),
    often("request.database.log", REQUESTS, "Log of a transaction", OR_NONE),
    often("request.database.compute", REQUESTS, "Computing for one", COMPUTE),
    often("request.dynamic.page", REQUESTS, "Size of a page", SIZES),
    often("request.dynamic.data", REQUESTS, "Data from disks for one", OR_NONE),
    often("request.dynamic.compute", REQUESTS, "Computing for one", COMPUTE),
    often("load.threads", REQUESTS, "Threads", Threads),
    rarely("load.think", REQUESTS, "Thinking between requests", TIMES),
    often("machine.processors.count", PROCESSORS, "How many", Counts),
    often("machine.processors.speed", PROCESSORS, "Speed of each", HERTZ),
    often("machine.interconnect.rate", INTERCONNECT, "Rate", RATES),
    rarely("machine.interconnect.latency", INTERCONNECT, "Latency", TIMES),
    rarely("machine.interconnect.packet", INTERCONNECT, "Bytes of a packet", OR_NONE),
    rarely("machine.interconnect.overhead", INTERCONNECT, "Bytes beside them", Steps(2.0, 64, "B")),
    often("machine.memory.rate", MEMORY, "Rate", RATES),
    rarely("machine.memory.banks", MEMORY, "Banks", Counts),
    rarely("machine.memory.latency", MEMORY, "Latency", TIMES),
    often("machine.interfaces.count", INTERFACES, "How many", Counts),
    often("machine.interfaces.rate", INTERFACES, "Rate of each", RATES),
    often("machine.interfaces.processor", INTERFACES, "Processor in each", HERTZ),
    often("machine.disks.count", DISKS, "How many", Counts),
    often("machine.disks.rate", DISKS, "Rate of each", DISK_RATES),
    often("machine.disks.processor", DISKS, "Processor in each", HERTZ),
    rarely("machine.disks.cache", DISKS, "Memory of the controller", OR_NONE),
    rarely("machine.disks.segments", DISKS, "Readers it reads ahead for", Counts),
    rarely("machine.disks.rotating.seek", DISKS, "Moving the arm", TIMES),
    rarely("machine.disks.rotating.turn", DISKS, "One turn", TIMES),
    rarely("machine.disks.flash.latency", DISKS, "Median of a read", TIMES),
    rarely("machine.disks.flash.channels", DISKS, "Reads at a time", Counts),
    often("costs.tcp", COSTS, "TCP", Steps(0.1, 100, "cycles/B")),
    often("costs.file-system", COSTS, "File system", Steps(0.1, 200, "cycles/B")),
    often("costs.system", COSTS, "Copies and crossings", Steps(0.05, 200, "cycles/B")),
    often("costs.server", COSTS, "The program itself", Steps(0.05, 200, "cycles/B")),
    rarely("costs.call", COSTS, "System call for I/O", CYCLES),
    rarely("costs.interrupt", COSTS, "Interrupt", CYCLES),
    rarely("costs.switch", COSTS, "Switch of threads", CYCLES),
    rarely("costs.doorbell", COSTS, "Asking at user level", CYCLES),
    rarely("costs.poll", COSTS, "Noticing at user level", CYCLES),
];

impl Slider {
    /// Returns the slider for `key`, or `None` if `key` has no slider.
    pub fn named(key: &str) -> Option<&'static Slider> {
        SLIDERS.iter().find(|slider| slider.key == key)
    }

    /// Returns the values of the positions, in base units.
    pub fn values(&self) -> Vec<f64> {
        let Ok(key) = Key::named(self.key) else { return Vec::new() };
        self.notches.texts().iter().filter_map(|text| key.value(text).ok()).collect()
    }

    /// Returns the slider with its value in `description`, or `None` if the description lacks the number.
    pub fn placed(&self, description: &Description) -> Option<Placed> {
        let mut description = *description;
        let value = *Key::named(self.key).ok()?.of(&mut description).ok()?;
        Some(Placed {
            key: self.key,
            group: self.group,
            label: self.label,
            is_rare: self.is_rare,
            notches: self.notches.texts(),
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
            let key = Key::named(slider.key).unwrap();
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
