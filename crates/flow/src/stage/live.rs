//! `live:[FORMAT]`: passes frames, blocks of sound and other units on at the time at which they are due.
//!
//! Invariant: what leaves the stage is what came, less whole units that were too late; headers are never dropped, and
//! every unit is counted as passed on or dropped.

use super::filter::{Demand, Emit, Filter};
use super::{Bound, FilterContext, FilterStage, Stage, StageKind, StageRole, StageType};
use crate::control::Control;
use crate::error::Error;
use crate::media::{Format, Found, Units};
use crate::timing::{LiveStream, Meter, Omitted};
use crate::video::{Clock, Tolerance, Turn};
use bywash_options::{OptionRow, Row, Value, Words, option};
use bywash_quantity::{TimeUnit, duration};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The stage, with what the user says of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Live {
    /// Format of the stream; `None` for the one that its first bytes tell.
    format: Option<Format>,
    /// Time of a unit of sound.
    block: Duration,
    tolerance: Tolerance,
}

/// Time of a unit of sound, if the user says none.
const BLOCK: Duration = Duration::from_millis(20);
/// Longest time of a unit of sound.
const BLOCK_MAX: Duration = Duration::from_secs(10);
const FORMATS: [(&str, Format); 3] = [("y4m", Format::Y4m), ("wav", Format::Wav), ("ts", Format::Ts)];

pub(super) static KIND: StageKind = StageKind {
    row: Row {
        name: "live",
        address: "[y4m|wav|ts|raw]",
        sentence: "passes frames and sound on in real time, by the clock of a y4m, WAV or MPEG transport stream, or raw \
                   data with rate= and unit=; 'live' alone tells the format from the data",
        options: &[
            OptionRow::new("rate", Value::Rate, "raw: bytes a second"),
            OptionRow::new("unit", Value::Size, "raw: bytes of a unit, which is passed on as a whole"),
            OptionRow::new("block", Value::Duration(TimeUnit::Second), "wav: time of a unit").or("0.02"),
            OptionRow::new(
                "late",
                Value::Text("unit|never|SECONDS"),
                "a unit that is later than this is dropped: later than the next one is due, none, or a time",
            )
            .or("unit"),
        ],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Stage, Error> {
    let name = words.address()?.to_owned();
    let (rate, unit) = (words.rate("rate")?, words.size("unit")?);
    let block = words.duration("block")?;
    let tolerance = words.value("late", tolerance)?.unwrap_or(Tolerance::Unit);
    words.check_all_taken()?;
    let format = match (name.as_str(), rate, unit) {
        ("" | "raw", Some(bytes_per_s @ 1..), Some(unit_bytes @ 1..)) => {
            Some(Format::Raw { bytes_per_s, unit_bytes })
        }
        ("", None, None) => None,
        ("" | "raw", ..) => {
            return Err(words
                .error("raw data needs both, and not 0: rate= for the bytes a second and unit= for the bytes of a unit")
                .into());
        }
        (_, None, None) => Some(named(&name).ok_or_else(|| {
            let known = ["y4m", "wav", "ts", "raw"];
            words.error(format!("there is no format '{name}'{}", bywash_options::among(&name, &known)))
        })?),
        _ => {
            return Err(words
                .error("rate= and unit= are for raw data: the other formats tell theirs")
                .into());
        }
    };
    if block.is_some_and(|block| block.is_zero() || block > BLOCK_MAX) {
        let most = BLOCK_MAX.as_secs();
        return Err(words
            .error(format!("a block of sound has more than 0 and at most {most} seconds"))
            .into());
    }
    if block.is_some() && !matches!(format, None | Some(Format::Wav)) {
        return Err(words
            .error("block= is for sound: units of other formats have a length of their own")
            .into());
    }
    Ok(Stage::new(Live { format, block: block.unwrap_or(BLOCK), tolerance }))
}

fn named(name: &str) -> Option<Format> {
    FORMATS.iter().find(|known| known.0 == name).map(|known| known.1)
}

fn tolerance(text: &str) -> Result<Tolerance, String> {
    match text {
        "unit" => Ok(Tolerance::Unit),
        "never" => Ok(Tolerance::Never),
        text => match duration(text, TimeUnit::Second) {
            Ok(limit) => Ok(Tolerance::Time(limit)),
            Err(error) => Err(format!("'{text}' is neither 'unit' nor 'never', and as a time it is {error}")),
        },
    }
}

impl StageType for Live {
    fn role(&self) -> StageRole<'_> {
        StageRole::Filter(self)
    }
}

impl FilterStage for Live {
    fn bound(&self) -> Option<Bound> {
        None
    }

    fn keeps_data(&self) -> bool {
        false
    }

    fn drops_units(&self) -> bool {
        self.tolerance != Tolerance::Never
    }

    fn filter(&self, context: &FilterContext<'_>) -> Result<Box<dyn Filter>, Error> {
        Ok(Box::new(LiveFilter::new(self, context.settings.omitted.clone())?))
    }
}

impl fmt::Display for Live {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("live:")?;
        match self.format {
            None => {}
            Some(Format::Raw { bytes_per_s, unit_bytes }) => {
                write!(out, "raw,rate={bytes_per_s},unit={unit_bytes}")?;
            }
            Some(format) => {
                let name = FORMATS.iter().find(|known| known.1 == format).map_or("", |known| known.0);
                out.write_str(name)?;
            }
        }
        option(out, "block", Some(self.block.as_secs_f64()).filter(|_| self.block != BLOCK))?;
        match self.tolerance {
            Tolerance::Unit => Ok(()),
            Tolerance::Never => out.write_str(",late=never"),
            Tolerance::Time(limit) => option(out, "late", Some(limit.as_secs_f64())),
        }
    }
}

/// The stage at work.
struct LiveFilter {
    name: String,
    units: Units,
    clock: Clock,
    meter: Meter,
    /// Time of the units that were left out, for the end that gives the stream its timestamps.
    omitted: Arc<Omitted>,
}

impl LiveFilter {
    fn new(stage: &Live, omitted: Arc<Omitted>) -> Result<LiveFilter, Error> {
        let name = stage.to_string();
        Ok(LiveFilter {
            units: Units::new(&name, stage.format, stage.block, u64::MAX)?,
            clock: Clock::tolerating(stage.tolerance),
            meter: Meter::new(),
            omitted,
            name,
        })
    }

    /// Waits until the last whole unit is due and passes it on, or drops it.
    fn play(&mut self, control: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        let unit = self.units.unit();
        let due = match self.clock.turn_between(unit.begin_ns, unit.end_ns, Instant::now()) {
            Turn::Drop => {
                self.meter.dropped();
                self.omitted.add(unit.end_ns - unit.begin_ns);
                return Ok(Demand::More);
            }
            Turn::At(due, ..) => due,
            Turn::Now => unreachable!("a clock of units has their times"),
        };
        if Instant::now() < due {
            control.sleep_until(due)?;
        }
        self.meter.passed(due.elapsed());
        for part in [unit.header, unit.body] {
            if !part.is_empty() && next(part)? == Demand::Enough {
                return Ok(Demand::Enough);
            }
        }
        Ok(Demand::More)
    }
}

impl Filter for LiveFilter {
    fn pass(&mut self, mut block: &[u8], control: &Control, next: &mut Emit<'_>) -> Result<Demand, Error> {
        loop {
            let (taken, demand) = match self.units.feed(block)? {
                Found::More => return Ok(Demand::More),
                Found::Header(taken) => (taken, next(self.units.header())?),
                Found::Unit(taken) => (taken, self.play(control, next)?),
                Found::Rest(taken) => (taken, next(&block[..taken])?),
            };
            if demand == Demand::Enough {
                return Ok(Demand::Enough);
            }
            block = &block[taken..];
        }
    }

    fn finish(&mut self, control: &Control, next: &mut Emit<'_>) -> Result<(), Error> {
        if self.units.finish()? {
            self.play(control, next)?;
        }
        Ok(())
    }

    fn live(&self) -> Option<LiveStream> {
        Some(self.meter.account(&self.name, self.clock.restarts()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::Chain;
    use super::super::filter::tests::{Collected, through};
    use super::*;

    fn filter(tolerance: Tolerance) -> Box<dyn Filter> {
        let format = Some(Format::Raw { bytes_per_s: 100_000, unit_bytes: 1000 });
        Box::new(LiveFilter::new(&Live { format, block: BLOCK, tolerance }, Arc::default()).unwrap())
    }

    #[test]
    fn units_come_no_earlier_than_they_are_due_and_are_the_same() {
        let data: Vec<u8> = (0..9500).map(|number| number as u8).collect();
        let begin = Instant::now();
        assert_eq!(through(vec![filter(Tolerance::Never)], &data, 700).unwrap(), data);
        // The last one is due 90 ms after the first one.
        assert!(begin.elapsed() >= Duration::from_millis(90), "{:?}", begin.elapsed());
    }

    #[test]
    fn what_is_late_is_dropped_and_counted_and_never_without_leave() {
        for (tolerance, drops) in [(Tolerance::Unit, true), (Tolerance::Never, false)] {
            let control = Control::new().unwrap();
            let (mut chain, mut kept) = (Chain(vec![filter(tolerance)]), Collected::default());
            let unit = |number: u8| vec![number; 1000];
            chain.pass(&unit(0), &control, &mut kept).unwrap();
            // Units 1 to 14 are late by more than one unit then, however slow the machine is.
            std::thread::sleep(Duration::from_millis(150));
            for number in 1..=14 {
                chain.pass(&unit(number), &control, &mut kept).unwrap();
            }
            chain.finish(&control, &mut kept).unwrap();
            let told = chain.0[0].live().unwrap();
            assert_eq!(told.units + told.units_dropped, 15);
            assert_eq!(told.units * 1000, kept.0.len() as u64);
            assert_eq!(told.units_dropped > 0, drops && told.restarts == 0, "{told:?}");
            if !drops {
                assert_eq!(told.units, 15);
                assert!(told.lateness.unwrap().max > 0.1, "{told:?}");
            }
        }
    }

    #[test]
    fn a_wait_for_the_time_of_a_unit_can_be_cancelled() {
        let control = Control::new().unwrap();
        let (mut chain, mut kept) = (Chain(vec![filter(Tolerance::Never)]), Collected::default());
        chain.pass(&[0; 1000], &control, &mut kept).unwrap();
        control.cancel();
        assert!(matches!(chain.pass(&[1; 1000], &control, &mut kept), Err(Error::Cancelled)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, reason) in [
            ("live:avi", "no format 'avi'"),
            ("live:raw", "raw data needs both"),
            ("live:,rate=5", "raw data needs both"),
            ("live:raw,rate=5,unit=0", "raw data needs both"),
            ("live:y4m,rate=5,unit=1", "for raw data"),
            ("live:wav,block=0", "a block of sound"),
            ("live:wav,block=60", "a block of sound"),
            ("live:y4m,block=1", "block= is for sound"),
            ("live:,late=soon", "neither 'unit' nor 'never'"),
        ] {
            let refused = text.parse::<Stage>().unwrap_err().to_string();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }
}
