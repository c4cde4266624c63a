//! The description as TOML: each number with a comment on its measurement.

use super::files::LARGE;
use super::forwarding::PIECE;
use super::parameters::Parameters;
use super::{Measured, figure};
use crate::plan::measure::others;
use bywash_model::units::{Cycles, CyclesPerByte, Frequency, Rate, Size, Time};
use bywash_quantity::Bytes;
use std::fmt::{Display, Write};

/// Returns the description in the form that [`bywash_model::Description::from_toml`] reads.
pub fn text(measured: &Measured) -> String {
    let found = Parameters::from_measured(measured);
    let mut out = Preset(String::new());
    out.head(measured);
    out.machine(measured, &found);
    out.devices(measured, &found);
    out.work();
    out.costs(measured, &found);
    out.0
}

/// Text written so far.
struct Preset(String);

impl Preset {
    fn section(&mut self, name: &str) {
        self.0 += &format!("\n[{name}]\n");
    }

    /// Appends a comment, wrapped into lines of at most [`WIDTH`].
    fn say(&mut self, comment: &str) {
        let mut line = String::from("#");
        for word in comment.split_whitespace() {
            if line.len() + 1 + word.len() > WIDTH {
                self.0 += &format!("{line}\n");
                line = String::from("#");
            }
            line += &format!(" {word}");
        }
        self.0 += &format!("{line}\n");
    }

    fn quantity(&mut self, key: &str, value: impl Display, comment: &str) {
        self.say(comment);
        self.0 += &format!("{key} = \"{}\"\n", rounded(&value.to_string()));
    }

    fn number(&mut self, key: &str, value: f64, comment: &str) {
        self.say(comment);
        self.0 += &format!("{key} = {}\n", rounded(&value.to_string()));
    }

    fn head(&mut self, measured: &Measured) {
        self.say(&format!(
            "A machine with {}, as `bywash plan calibrate` measured it: medians of {} rounds, quartiles in \
             parentheses. How the numbers follow from what was measured is in the guide to `bywash plan`.",
            measured.system, measured.rounds
        ));
        if let Some(words) = others::in_words(measured.others) {
            self.say(&words);
        }
    }

    fn machine(&mut self, measured: &Measured, found: &Parameters) {
        let Measured { processors, memory, .. } = measured;
        self.section("machine.processors");
        self.number("count", found.count, "Those that a process may use.");
        let comment = format!("{}.", processors.known_by);
        self.quantity("speed", Frequency(found.speed), &capital(&comment));
        self.section("machine.memory");
        let copies: Vec<String> = memory
            .copies
            .iter()
            .map(|(size, rate)| format!("{} of {}", figure(*rate, "B/s"), Bytes(*size as u64)))
            .collect();
        let comment = format!(
            "Twice what all processors copy at a time where no cache holds it, {}, as a byte is read and written. One \
             processor copies over and over {}.",
            figure(memory.together, "B/s"),
            copies.join(", ")
        );
        self.quantity("rate", Rate(found.memory_rate), &comment);
        let comment = format!(
            "What a block of 1 KiB takes a processor that copies many out of memory in order, {}, beyond its passing of \
             the bus. Lines in no order, each of which says where the next one is, take {} each.",
            figure(memory.inward, "B/s"),
            figure(memory.latency, "s")
        );
        self.quantity("latency", Time(found.memory_latency), &comment);
        let comment =
            "Not measured: as many blocks of 1 KiB as must be in flight, at that latency, for that rate.";
        self.number("banks", found.banks, comment);
        for (key, bytes) in ["l1", "l2"].into_iter().zip(found.caches) {
            if bytes > 0.0 {
                self.quantity(key, Size(bytes), "Of data, as the kernel says.");
            }
        }
    }

    fn devices(&mut self, measured: &Measured, found: &Parameters) {
        let Measured { messages, device, .. } = measured;
        self.section("machine.interconnect");
        let comment = "Not measured by itself: no device reaches memory faster than its bus goes.";
        self.quantity("rate", Rate(found.memory_rate), comment);
        let comment = format!(
            "What a byte through TCP takes to a thread that runs where the kernel has it run, {}, beyond what it takes to \
             one of the same processor: a processor that sleeps has to wake.",
            figure(messages.tcp_apart, "s")
        );
        self.quantity("latency", Time(found.latency), &comment);
        self.section("machine.interfaces");
        self.number("count", 1.0, "Loopback.");
        let comment = format!(
            "Loopback has no wire: it carries what is copied, and that is in costs.tcp. So it is as fast as the fastest copy, \
             and does not bind. One connection that carries as much as goes came to {}, with both ends here, at {} of \
             processors.",
            figure(messages.rate, "B/s"),
            figure(messages.byte, "s/B")
        );
        self.quantity("rate", Rate(found.loopback_rate), &comment);
        self.say("It computes none that the host would have to.");
        self.0 += "checksums = true\n";
        let own = "Not measured: there is none. The host's speed, for who asks what it would change.";
        self.quantity("processor", Frequency(found.speed), own);
        self.section("machine.disks");
        self.number("count", 1.0, "The device that the folder is on.");
        let how = if device.is_direct {
            "past the page cache"
        } else {
            "through the page cache, as this file system cannot do without: memory, not a device"
        };
        let comment = format!(
            "Four threads, reading 1 MiB at a time in order, {how}: {}.",
            figure(device.in_order, "B/s")
        );
        self.quantity("rate", Rate(found.disk_rate), &comment);
        self.quantity("processor", Frequency(found.speed), own);
        self.section("machine.disks.flash");
        let comment = format!(
            "{} reads of 4 KiB anywhere, {how}, one at a time: {}, of which the median, less what is charged besides. A \
             processor has {} of it.",
            device.latencies.len(),
            percentiles(&device.latencies),
            figure(device.processor, "s"),
        );
        self.quantity("latency", Time(found.flash_latency), &comment);
        self.number("spread", found.flash_spread, "Standard deviation of the logarithm of the same.");
        let rates: Vec<String> = device
            .rates
            .iter()
            .map(|(threads, rate)| format!("{} by {threads}", figure(*rate, "/s")))
            .collect();
        let comment = format!(
            "So many reads at a time make the most that some number of threads came to: {}. Where the processors bind, the \
             device may have more.",
            rates.join(", ")
        );
        self.number("channels", found.flash_channels, &comment);
    }

    fn work(&mut self) {
        self.section("request.web");
        self.say(
            "What is asked of the machine. Nothing of this was measured: write here what you want to know.",
        );
        self.0 += "file = \"16 KiB\"\nmiss = \"10 %\"\n";
    }

    fn costs(&mut self, measured: &Measured, found: &Parameters) {
        let Measured { processors, messages, cached, device, forwarding, .. } = measured;
        self.section("costs");
        self.say("The program's own work. Not measured: the paper's.");
        self.0 += "server = \"0.15 cycles/B\"\n";
        let comment = format!(
            "64 KiB through TCP to another thread of the same processor and a byte back, {} for half of it, less that of a \
             byte both ways: a byte at one end, sending and receiving on the average, copy and all.",
            figure(messages.large, "s")
        );
        self.quantity("tcp", CyclesPerByte(found.tcp), &comment);
        let comment = format!(
            "What sending pieces of {} that were just read past the page cache takes of a processor over loopback, {}.",
            Bytes(PIECE as u64),
            figure(forwarding.sent, "s/B")
        );
        self.quantity("tcp-large", CyclesPerByte(found.tcp_large), &comment);
        let comment = format!(
            "What a processor has to do for reading {} past the page cache, {}, beyond 4 KiB, {}, for a byte.",
            Bytes(PIECE as u64),
            figure(forwarding.read, "s"),
            figure(device.processor, "s")
        );
        self.quantity("file-system", CyclesPerByte(found.file_system), &comment);
        let comment = format!(
            "What a processor has to do for 16 KiB that the page cache does not hold, {}, less call, interrupt, switch and \
             what the bytes cost.",
            figure(device.cold, "s")
        );
        self.quantity("access", Cycles(found.access), &comment);
        let comment = format!(
            "What {} between page cache and program take beyond reading 4 KiB, for a byte: {} to read and {} to write over, \
             of which the mean.",
            Bytes(LARGE as u64),
            figure(cached.read[1], "s"),
            figure(cached.write[1], "s")
        );
        self.quantity("system", CyclesPerByte(found.system), &comment);
        let comment = format!(
            "Reading 4 KiB that the page cache holds, {}, less its bytes. Writing over them takes {}.",
            figure(cached.read[0], "s"),
            figure(cached.write[0], "s")
        );
        self.quantity("call", Cycles(found.call), &comment);
        let comment = format!("A system call that does nothing, {}.", figure(processors.call, "s"));
        self.quantity("trap", Cycles(found.trap), &comment);
        let comment = format!(
            "A byte through TCP to another thread of the same processor, {}, less the switch and two calls: the protocol \
             and the waking.",
            figure(messages.tcp, "s")
        );
        self.quantity("interrupt", Cycles(found.interrupt), &comment);
        let comment = format!(
            "A byte through a pipe to another thread of the same processor, {}, less that into a pipe and out of it by one \
             thread, {}.",
            figure(messages.pipe, "s"),
            figure(messages.alone, "s")
        );
        self.quantity("switch", Cycles(found.switch), &comment);
        let comment = match processors.word {
            Some(word) => {
                format!("A word to another processor and back takes {}: half of it.", figure(word, "s"))
            }
            None => "Not measured: there is one processor only.".to_owned(),
        };
        self.quantity("doorbell", Cycles(found.doorbell), &comment);
        self.quantity("poll", Cycles(found.poll), "The other half.");
    }
}

/// Greatest width of a comment line, in columns.
const WIDTH: usize = 118;

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn percentiles(latencies: &[f64]) -> String {
    let mut sorted = latencies.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted.get((share * (sorted.len() as f64 - 1.0)) as usize).copied().unwrap_or(0.0);
    let mut text = String::new();
    for (name, share) in [("half within", 0.5), ("90 % within", 0.9), ("99 % within", 0.99)] {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{name} {}", rounded(&Time(at(share)).to_string()));
    }
    text
}

/// Rounds a number, with or without a unit, to four significant digits, the precision of the measurements.
pub fn rounded(text: &str) -> String {
    let (number, unit) = text.split_once(' ').map_or((text, ""), |(number, unit)| (number, unit));
    let Ok(value) = number.parse::<f64>() else { return text.to_owned() };
    let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 12) };
    let mut shown = format!("{value:.*}", digits as usize);
    if shown.contains('.') {
        shown.truncate(shown.trim_end_matches('0').trim_end_matches('.').len());
    }
    if unit.is_empty() { shown } else { format!("{shown} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::super::tests::measured;
    use super::*;
    use bywash_model::{Architecture, Description, bound};

    #[test]
    fn what_is_written_is_read_back_as_what_was_found() {
        let text = text(&measured());
        let found = Parameters::from_measured(&measured());
        let read = Description::from_toml(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let flash = read.machine.disks.flash.unwrap();
        let memory = read.machine.memory.unwrap();
        for (read, found) in [
            (read.machine.processors.count, found.count),
            (read.machine.processors.speed.0, found.speed),
            (memory.rate.0, found.memory_rate),
            (memory.latency.0, found.memory_latency),
            (memory.banks, found.banks),
            (memory.l1.0, found.caches[0]),
            (memory.l2.0, found.caches[1]),
            (read.machine.interconnect.rate.0, found.memory_rate),
            (read.machine.interfaces.rate.0, found.loopback_rate),
            (read.machine.interconnect.latency.0, found.latency),
            (read.machine.disks.rate.0, found.disk_rate),
            (flash.latency.0, found.flash_latency),
            (flash.spread, found.flash_spread),
            (flash.channels, found.flash_channels),
            (read.costs.call.0, found.call),
            (read.costs.trap.0, found.trap),
            (read.costs.interrupt.0, found.interrupt),
            (read.costs.switch.0, found.switch),
            (read.costs.system.0, found.system),
            (read.costs.tcp.0, found.tcp),
            (read.costs.tcp_large.0, found.tcp_large),
            (read.costs.file_system.0, found.file_system),
            (read.costs.access.0, found.access),
            (read.costs.doorbell.0, found.doorbell),
            (read.costs.poll.0, found.poll),
        ] {
            assert!((read / found - 1.0).abs() < 1e-3, "{read} {found}\n{text}");
        }
        let most = bound(&read.machine, &read.workload(), Architecture::Conventional).throughput;
        assert!(most.is_finite() && most > 0.0);
        assert!(text.lines().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn one_processor_and_caches_of_unknown_size_make_a_description_too() {
        let mut measured = measured();
        measured.processors.word = None;
        measured.processors.caches = [0, 0];
        let read = Description::from_toml(&text(&measured)).unwrap();
        assert_eq!((read.costs.doorbell.0, read.machine.memory.unwrap().l2.0), (0.0, 0.0));
    }

    #[test]
    fn four_digits_are_left() {
        for (text, wanted) in [
            ("2.596124 GHz", "2.596 GHz"),
            ("65123.4 cycles", "65123 cycles"),
            ("0 s", "0 s"),
            ("0.00012345 cycles/B", "0.0001234 cycles/B"),
            ("48 KiB", "48 KiB"),
            ("100", "100"),
        ] {
            assert_eq!(rounded(text), wanted);
        }
    }
}
