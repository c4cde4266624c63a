//! A stream of 60 frames a second: how many of them are shown.

use super::broken;
use super::servers::DisplayServer;
use super::sides::{Size, row};
use crate::clock::thread_seconds;
use crate::error::Error;
use bywash_display::{Surface, SurfaceOptions};
use std::time::{Duration, Instant};

/// Frames a second.
pub const RATE: u32 = 60;

/// Outcome of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Frames that were shown.
    pub shown: u32,
    /// Frames that were handed over more than half a period after they were due.
    pub late: u32,
    /// Longest time that the program woke up too late, in seconds: for so long it had no processor.
    pub overslept: f64,
    /// Share of a processor that the program took, drawing included.
    pub program: f64,
    /// Share of a processor that the display server took.
    pub server: f64,
}

/// Shows a stream of `frames` frames. A frame for which the display has no room before the next one is due is dropped.
///
/// # Errors
/// [`Error::Failed`] if the display fails.
pub fn run(server: &DisplayServer, size: Size, frames: u32) -> Result<Stream, Error> {
    let options = SurfaceOptions::new(size.0 as u32, size.1 as u32).display(&server.name);
    let mut surface = Surface::open(server.system.kind(), &options).map_err(broken)?;
    let first = surface.frame().map_err(broken)?;
    surface.present(first, &[]).map_err(broken)?;
    surface.finish().map_err(broken)?;
    let period = Duration::from_secs(1) / RATE;
    let (begin, program, served) = (Instant::now(), thread_seconds(), server.seconds()?);
    let mut stream = Stream { shown: 0, late: 0, overslept: 0.0, program: 0.0, server: 0.0 };
    for number in 0..frames {
        crate::interrupt::check()?;
        let due = begin + period * number;
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            std::thread::sleep(early);
            stream.overslept = stream.overslept.max(due.elapsed().as_secs_f64());
        }
        let left = (due + period).saturating_duration_since(Instant::now());
        let Some(mut frame) = surface.frame_within(left).map_err(broken)? else { continue };
        for y in 0..size.1 {
            frame.write_pixels(0, y as u32, row(number as usize, y, size.0));
        }
        surface.present(frame, &[]).map_err(broken)?;
        stream.shown += 1;
        stream.late += u32::from(due.elapsed() > period / 2);
    }
    let wall = begin.elapsed().as_secs_f64();
    stream.program = (thread_seconds() - program) / wall;
    stream.server = (server.seconds()? - served) / wall;
    Ok(stream)
}
