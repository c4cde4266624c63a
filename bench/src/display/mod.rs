//! `bywash bench display`: frames that are handed to a display server as containers, against frames that are copied.
//!
//! Every side draws the same frames of XRGB pixels and has the same server show them, one after the other. What is
//! compared is the processor time of the program for a frame without the drawing, which is all that differs. The display
//! server's processor time is shown beside it.
//!
//! - `sides`: the ways in which a frame reaches the server
//! - `programs`: SDL 2 and mpv, if they are installed
//! - `paced`: a stream of 60 frames a second, and how many of them are shown
//! - `servers`: Xvfb and Weston, and their processor time

mod paced;
mod programs;
mod servers;
mod sides;

use crate::campaign::{self, Audience, Choice};
use crate::engine::{Metric, Rounds, Runs, Side};
use crate::error::Error;
use crate::row::{Report, Row};
use bywash_display::PIXEL_BYTES;
use programs::Program;
use servers::{DisplayServer, System};
use sides::{Handing, Spent};

/// Sizes of frames: name, width and height.
const SIZES: [(&str, usize, usize); 4] =
    [("480p", 854, 480), ("720p", 1280, 720), ("1080p", 1920, 1080), ("4K", 3840, 2160)];
/// Height from which the goal is asked for.
const GOAL_HEIGHT: usize = 720;
/// Ratio of the program's processor time for handing a frame over to that of the best copying side.
const GOAL: f64 = 4.0;
/// Frames of a run, and of a quick one.
const FRAMES: usize = 120;
const FRAMES_QUICK: usize = 12;

/// A system with the sides that hand frames to it, ours first.
const SYSTEMS: [(System, &[(&str, Handing)]); 2] = [
    (
        System::X11,
        &[
            ("bywash", Handing::Container),
            ("MIT-SHM with a copy", Handing::Copied),
            ("XPutImage", Handing::PutImage),
            ("SDL 2, software renderer", Handing::Program(Program::Sdl)),
            ("mpv --vo=x11", Handing::Program(Program::Mpv)),
        ],
    ),
    (
        System::Wayland,
        &[
            ("bywash", Handing::Container),
            ("wl_shm with a copy", Handing::Copied),
            ("mpv --vo=wlshm", Handing::Program(Program::Mpv)),
        ],
    ),
];

/// A case: frames of a size on a system.
#[derive(Clone, Copy)]
struct Case {
    system: System,
    sides: &'static [(&'static str, Handing)],
    size: (&'static str, usize, usize),
}

impl Case {
    fn head(&self) -> Row {
        Row::head("display", &format!("{}, {}", self.system.name(), self.size.0), "")
    }

    fn goal(&self) -> Option<f64> {
        (self.size.2 >= GOAL_HEIGHT).then_some(GOAL)
    }

    fn metrics(&self) -> [Metric<'static, Spent>; 4] {
        let megabytes = (self.size.1 * self.size.2 * PIXEL_BYTES) as f64 / 1e6;
        [
            Metric::cost("CPU time a frame, program", "us", |spent: &Spent| spent.program * 1e6),
            Metric::cost("CPU time a frame, display server", "us", |spent: &Spent| spent.server * 1e6),
            Metric::rate("frames", "1/s", |spent: &Spent| 1.0 / spent.wall),
            Metric::rate("data shown", "MB/s", move |spent: &Spent| megabytes / spent.wall),
        ]
    }

    fn declared(&self) -> Vec<Row> {
        let [program, ..] = self.metrics();
        let peers = self.sides.iter().skip(1);
        peers.map(|(name, _)| program.head(&self.head(), name, self.goal())).collect()
    }

    fn measure(&self, frames: usize, rounds: Rounds) -> Result<Vec<Row>, Error> {
        let server = DisplayServer::start(self.system)?;
        let (_, width, height) = self.size;
        let turn = |(name, handing): &(&'static str, Handing)| {
            let (server, handing) = (&server, *handing);
            Side::new(*name, move || sides::run(server, handing, (width, height), frames))
        };
        let runs = rounds.run(self.sides.iter().map(turn).collect())?;
        let metrics = self.metrics();
        let (ours, peers) = (&runs[0], &runs[1..]);
        let rows = metrics.iter().enumerate().flat_map(|(number, metric)| {
            peers.iter().map(move |peer| {
                let goal = self.goal().filter(|_| number == 0);
                noted(metric.row(&self.head(), ours, peer, goal), ours)
            })
        });
        Ok(rows.collect())
    }
}

/// Adds the time of drawing, which no side's figure includes.
fn noted(row: Row, ours: &Runs<Spent>) -> Row {
    match (row.ratio, ours.median(|spent| spent.drawing)) {
        (Some(_), Some(drawing)) => {
            Row { note: format!("without the drawing, which takes {:.0} us", drawing * 1e6), ..row }
        }
        _ => row,
    }
}

/// A case: a stream of 60 frames a second, of 1080p.
struct Stream {
    system: System,
    seconds: u32,
}

/// Size of a stream's frames.
const STREAM_SIZE: (&str, (usize, usize)) = ("1080p", (1920, 1080));
/// Seconds of a stream, and of a quick one.
const STREAM_SECONDS: u32 = 20;
const STREAM_SECONDS_QUICK: u32 = 1;

impl Stream {
    fn head(&self) -> Row {
        let (system, size, rate) = (self.system.name(), STREAM_SIZE.0, paced::RATE);
        Row::head("display", &format!("{system}, {size}, a stream of {rate} a second"), "")
    }

    fn frames(&self) -> u32 {
        self.seconds * paced::RATE
    }

    fn peer(&self) -> String {
        format!("all {} frames of {} s", self.frames(), self.seconds)
    }

    fn metric() -> Metric<'static, paced::Stream> {
        Metric::rate("frames shown", "frames", |stream: &paced::Stream| stream.shown.into())
    }

    /// Returns the goal where the display can: Weston without a screen asks for a frame 25 ms after the one before.
    fn goal(&self) -> Option<f64> {
        (self.system == System::X11).then_some(1.0)
    }

    fn declared(&self) -> Vec<Row> {
        vec![Stream::metric().head(&self.head(), &self.peer(), self.goal())]
    }

    fn measure(&self) -> Result<Vec<Row>, Error> {
        let server = DisplayServer::start(self.system)?;
        let side = Side::new("bywash", || paced::run(&server, STREAM_SIZE.1, self.frames()));
        let runs = Rounds::new(1).run(vec![side])?;
        let row =
            Stream::metric().row_of_limit(&self.head(), &runs[0], &self.peer(), self.frames().into(), 1.0);
        let Ok([stream]) = runs[0].samples.as_deref() else { return Ok(vec![row]) };
        let why = match self.goal() {
            Some(_) => "",
            None => "; this display asks for no more than 40 a second",
        };
        let dropped = self.frames() - stream.shown;
        let (program, served) = (stream.program * 100.0, stream.server * 100.0);
        let note = format!(
            "{dropped} dropped, {} late; the program woke up to {:.0} ms too late; of a processor it took {program:.0} %, with \
             the drawing, and the display server {served:.0} %{why}",
            stream.late,
            stream.overslept * 1e3
        );
        let (goal, met) = (self.goal(), self.goal().and(row.met));
        Ok(vec![Row { note, goal, met, ..row }])
    }
}

/// Measures the chosen cases. Returns the report, and whether the run was interrupted.
///
/// # Errors
/// [`Error::Usage`] if no case has such a name.
pub fn measure(choice: &Choice, audience: &mut dyn Audience) -> Result<(Report, bool), Error> {
    let (rounds, frames) = (choice.rounds(), if choice.quick { FRAMES_QUICK } else { FRAMES });
    let cases = SYSTEMS.iter().flat_map(|(system, sides)| {
        SIZES.iter().map(move |size| Case { system: *system, sides, size: *size })
    });
    let cases = cases.map(|case| {
        let name = format!("display: {}", case.head().case);
        campaign::Case::new(name, case.declared(), move || case.measure(frames, rounds))
    });
    let seconds = if choice.quick { STREAM_SECONDS_QUICK } else { STREAM_SECONDS };
    let streams = SYSTEMS.iter().map(|(system, _)| Stream { system: *system, seconds });
    let streams = streams.map(|stream| {
        let name = format!("display: {}", stream.head().case);
        campaign::Case::new(name, stream.declared(), move || stream.measure())
    });
    let cases = cases.chain(streams);
    let cases = campaign::choose(cases.collect(), &choice.names, |case| &case.name)?;
    Ok(campaign::run(cases, audience))
}

/// Error of a side.
fn broken(what: impl ToString) -> Error {
    Error::failed("the display", what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_copying_side_and_large_frames_a_goal() {
        for (system, sides) in SYSTEMS {
            assert_eq!(sides[0].1, Handing::Container, "{}", system.name());
            assert!(sides.iter().any(|side| side.1 == Handing::Copied), "{}", system.name());
            for size in SIZES {
                let declared = Case { system, sides, size }.declared();
                assert_eq!(declared.len(), sides.len() - 1);
                assert!(declared.iter().all(|row| row.goal.is_some() == (size.0 != "480p")));
            }
        }
    }

    #[test]
    fn a_stream_is_shown() {
        let server = DisplayServer::start(System::X11).unwrap_or_else(|error| panic!("{error}"));
        let stream = paced::run(&server, (64, 48), 30).unwrap();
        // A busy machine may be late for some.
        assert!((20..=30).contains(&stream.shown), "{stream:?}");
    }

    #[test]
    fn all_sides_show_frames() {
        for (system, sides) in SYSTEMS {
            let server = DisplayServer::start(system).unwrap_or_else(|error| panic!("{error}"));
            for (name, handing) in sides {
                // Of programs, so few frames may cost less than starting them varies.
                let frames = if matches!(handing, Handing::Program(_)) { 60 } else { 5 };
                let spent = match sides::run(&server, *handing, (320, 240), frames) {
                    Ok(spent) => spent,
                    Err(error) if error.is_absence() || error.to_string().contains("varied") => continue,
                    Err(error) => panic!("{name}: {error}"),
                };
                if *handing == Handing::Program(Program::Mpv) {
                    assert!(spent.wall > 0.0 && spent.program > 0.0, "{name}: {spent:?}");
                    continue;
                }
                assert!(spent.wall > 0.0 && spent.drawing > 0.0 && spent.program > 0.0, "{name}: {spent:?}");
            }
        }
    }
}
