//! A timeline as lanes: for each processor and device, the share of time in which it worked, in equal parts of a window.

use bywash_sim::engine::Time;
use bywash_sim::program::ProgramTimeline;
use serde::Serialize;
use std::collections::BTreeMap;

/// Greatest number of equal stations that have a lane each; more of them have one in common.
const EQUAL_MAX: usize = 8;
/// Greatest number of parts of a window.
pub const PARTS_MAX: usize = 2000;

/// Lane of a drawing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lane {
    /// Name of the processor or device, or of all devices of the lane.
    pub name: String,
    /// Number of processors or devices in the lane, whose mean it shows.
    pub count: usize,
    /// True for a processor.
    pub is_processor: bool,
    /// Share of each part of the window in which it worked, in percent; at least 1 if it worked at all.
    pub busy: Vec<u8>,
}

/// Window of a timeline in parts of equal length.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Start of the window.
    pub from: Time,
    /// End of the window.
    pub to: Time,
    /// Number of parts.
    pub parts: usize,
}

/// Returns the lanes of a window: the processors first, then the devices in the order of the machine's parts. What did
/// nothing in the whole timeline has no lane.
pub fn lanes(timeline: &ProgramTimeline, window: Window) -> Vec<Lane> {
    let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
    for span in &timeline.threads {
        let name = || Row::new(format!("processor {}", span.processor), 1, window.parts);
        let row = rows.entry(Key::Processor(span.processor)).or_insert_with(name);
        row.add(window, span.from, span.to);
    }
    let stations = station_lanes(&timeline.parts.stations);
    for span in &timeline.parts.spans {
        let StationLane { key, name, count } = &stations[span.station as usize];
        let row = rows.entry(*key).or_insert_with(|| Row::new(name.clone(), *count, window.parts));
        row.add(window, span.from, span.to);
    }
    rows.into_iter().map(|(key, row)| row.lane(window, matches!(key, Key::Processor(_)))).collect()
}

/// Lane of a station.
struct StationLane {
    key: Key,
    name: String,
    /// Number of stations in the lane.
    count: usize,
}

/// Returns the lane of each station.
fn station_lanes(stations: &[String]) -> Vec<StationLane> {
    let common: Vec<&str> = stations.iter().map(|name| without_number(name)).collect();
    // Of each common name the first station that has it, and their number.
    let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (station, name) in common.iter().enumerate() {
        groups.entry(name).or_insert((station, 0)).1 += 1;
    }
    let lane = |(station, name): (usize, &&str)| match groups.get(name) {
        Some(&(first, count)) if count > EQUAL_MAX => {
            StationLane { key: Key::Station(first), name: format!("{count} {name}"), count }
        }
        _ => StationLane { key: Key::Station(station), name: stations[station].clone(), count: 1 },
    };
    common.iter().enumerate().map(lane).collect()
}

/// Order of the lanes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Processor(u32),
    Station(usize),
}

/// Lane that is being filled.
struct Row {
    name: String,
    count: usize,
    /// Working time in each part, in picoseconds.
    worked: Vec<f64>,
}

impl Row {
    fn new(name: String, count: usize, parts: usize) -> Row {
        Row { name, count, worked: vec![0.0; parts] }
    }

    /// Adds a span of work.
    fn add(&mut self, window: Window, from: Time, to: Time) {
        let (from, to) = (from.0.max(window.from.0), to.0.min(window.to.0));
        if from >= to {
            return;
        }
        let part = window.part();
        let [from, to] = [from, to].map(|at| (at - window.from.0) as f64);
        let last = self.worked.len() - 1;
        let [first, end] = [from, to].map(|at| ((at / part) as usize).min(last));
        for number in first..=end {
            let begin = (number as f64 * part).max(from);
            let until = ((number + 1) as f64 * part).min(to);
            self.worked[number] += (until - begin).max(0.0);
        }
    }

    fn lane(self, window: Window, is_processor: bool) -> Lane {
        let whole = window.part() * self.count as f64;
        let percent = |worked: f64| {
            let share = (worked / whole * 100.0).round().clamp(0.0, 100.0) as u8;
            if worked > 0.0 { share.max(1) } else { 0 }
        };
        Lane {
            busy: self.worked.into_iter().map(percent).collect(),
            name: self.name,
            count: self.count,
            is_processor,
        }
    }
}

impl Window {
    /// Returns the length of a part, in picoseconds.
    fn part(self) -> f64 {
        (self.to.0.saturating_sub(self.from.0)).max(1) as f64 / self.parts as f64
    }
}

/// Returns a station's name without its number among equal ones.
fn without_number(name: &str) -> &str {
    match name.rsplit_once(' ') {
        Some((before, number)) if number.parse::<u32>().is_ok() => before,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bywash_sim::engine::{Span, Timeline};
    use bywash_sim::program::ThreadSpan;

    #[test]
    fn spans_fill_the_parts_that_they_cover() {
        let mut parts = Timeline::default();
        parts.stations = vec!["bus".into()];
        parts.stations.extend((0..10).map(|number| format!("banks {number}")));
        let span = |station, from, to| Span { station, job: 1, from: Time(from), to: Time(to) };
        parts.spans = vec![span(0, 0, 100), span(0, 250, 300), span(3, 0, 400), span(9, 100, 101)];
        let threads = vec![ThreadSpan { processor: 2, thread: 7, from: Time(50), to: Time(1000) }];
        let timeline = ProgramTimeline { threads, parts };
        let window = Window { from: Time(0), to: Time(400), parts: 4 };
        let lane = |name: &str, count, is_processor, busy: [u8; 4]| Lane {
            name: name.into(),
            count,
            is_processor,
            busy: busy.into(),
        };
        assert_eq!(
            lanes(&timeline, window),
            [
                lane("processor 2", 1, true, [50, 100, 100, 100]),
                lane("bus", 1, false, [100, 0, 50, 0]),
                lane("10 banks", 10, false, [10, 10, 10, 10]),
            ]
        );
        let later = Window { from: Time(260), to: Time(300), parts: 2 };
        assert_eq!(lanes(&timeline, later)[1].busy, [100, 100]);
        let shortest = Window { from: Time(100), to: Time(100), parts: 1 };
        assert!(lanes(&timeline, shortest).iter().all(|lane| lane.busy == [0]));
    }
}
