//! Programs that people use to show pixels: SDL 2 with its software renderer, and mpv with its software output.
//!
//! Each is run with few frames and with more, and the difference is the cost of the frames: starting a program costs more
//! than many frames do, and small ones are shown more often for that reason. A program that is not installed is an absent
//! side.

use super::broken;
use super::servers::{DisplayServer, System, installed};
use super::sides::{Size, Spent};
use crate::child;
use crate::error::{Attempt, Error};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Program that shows frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// SDL 2: a streaming texture, which the software renderer copies into the window. It draws the frames of all sides.
    Sdl,
    /// mpv: raw frames of a source that draws nothing. Its figure is that of the whole player.
    Mpv,
}

/// Frames of the short run.
const FEW: usize = 8;
/// Pixels of a frame that is shown as often as the other sides show theirs, and the factor for the smallest ones.
const PIXELS: usize = 3840 * 2160;
const FACTOR_MAX: usize = 8;
/// Greatest number of attempts to tell the cost of the frames from that of starting; each shows twice as many as the one
/// before.
const ATTEMPTS: usize = 6;
const SDL_SOURCE: &str = include_str!("../../programs/sdl.c");
const SDL_LIBRARY: &str = "libSDL2-2.0.so.0";
/// Folders of libraries, of Debian and of others.
const LIBRARIES: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Cost of a whole run, in seconds.
struct Total {
    wall: f64,
    program: f64,
    drawing: f64,
    server: f64,
}

/// Shows `frames` frames by a program, and returns the cost of each.
///
/// # Errors
/// [`Error::Missing`] if the program is not installed; [`Error::Failed`] if it fails.
pub fn run(server: &DisplayServer, program: Program, size: Size, frames: usize) -> Result<Spent, Error> {
    let folder = tempfile::tempdir().doing("make a folder for", Path::new("a program"))?;
    let prepared = prepare(program, &folder)?;
    let total = |frames: usize| -> Result<Total, Error> {
        let before = server.seconds()?;
        let mut command = prepared(size, frames);
        let ended = child::run(address(server, command.env("XDG_RUNTIME_DIR", folder.path())))?;
        let drawing = match program {
            Program::Sdl => ended.stdout.trim().parse().map_err(|_| broken("SDL told no time"))?,
            Program::Mpv => 0.0,
        };
        let (wall, server) = (ended.wall.as_secs_f64(), server.seconds()? - before);
        Ok(Total { wall, program: ended.cpu_seconds - drawing, drawing, server })
    };
    // Wayland paces the frames, so that many of them would take long.
    let factor = match server.system {
        System::X11 => (PIXELS / (size.0 * size.1)).clamp(1, FACTOR_MAX),
        System::Wayland => 1,
    };
    for attempt in 0..ATTEMPTS {
        let frames = (frames * factor) << attempt;
        let (few, many) = (total(FEW)?, total(FEW + frames)?);
        // On a busy machine starting the program can vary by more than its frames cost: then more frames are shown.
        if many.wall <= few.wall || many.program <= few.program {
            continue;
        }
        let each = |few: f64, many: f64| (many - few).max(0.0) / frames as f64;
        return Ok(Spent {
            wall: each(few.wall, many.wall),
            program: each(few.program, many.program),
            drawing: each(few.drawing, many.drawing),
            server: each(few.server, many.server),
        });
    }
    Err(broken("starting the program varied by more than its frames cost; run it again"))
}

/// Sees to it that a program is there; returns how it is run for a size and a number of frames.
fn prepare(program: Program, folder: &TempDir) -> Result<Box<dyn Fn(Size, usize) -> Command>, Error> {
    match program {
        Program::Sdl => {
            if !LIBRARIES.iter().any(|folder| Path::new(folder).join(SDL_LIBRARY).exists()) {
                return Err(Error::Missing { what: SDL_LIBRARY.into(), package: "libsdl2-2.0-0" });
            }
            installed("cc", "gcc")?;
            let (source, built) = (folder.path().join("sdl.c"), folder.path().join("sdl"));
            fs::write(&source, SDL_SOURCE).doing("write", &source)?;
            child::run(Command::new("cc").args(["-O2", "-o"]).arg(&built).arg(&source).arg("-ldl"))?;
            Ok(Box::new(move |(width, height), frames| {
                let mut command = Command::new(&built);
                command.args([width, height, frames].map(|number| number.to_string()));
                command
            }))
        }
        Program::Mpv => {
            installed("mpv", "mpv")?;
            Ok(Box::new(|(width, height), frames| {
                let mut command = Command::new("mpv");
                command
                    .args(["--no-config", "--no-terminal", "--no-audio", "--no-osc", "--osd-level=0"])
                    .args(["--untimed", "--framedrop=no", "--no-border", "--vo=x11,wlshm"])
                    .arg(format!("--frames={frames}"))
                    .arg(format!("av://lavfi:nullsrc=s={width}x{height}:r=1000,format=bgr0"));
                command
            }))
        }
    }
}

/// Has a program show its frames on a server.
fn address<'a>(server: &DisplayServer, command: &'a mut Command) -> &'a mut Command {
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    match server.system {
        System::X11 => command.env("DISPLAY", &server.name).env("SDL_VIDEODRIVER", "x11"),
        System::Wayland => command.env("WAYLAND_DISPLAY", &server.name).env("SDL_VIDEODRIVER", "wayland"),
    }
}
