//! Display servers without a screen, of 4K, and their processor time.

use super::broken;
use crate::error::Error;
use bywash_display::DisplayKind;
use bywash_support::displays::{Server, ServerProcess, Weston, Xvfb};
use std::fs;
use std::path::Path;

/// System of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    X11,
    Wayland,
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            System::X11 => "X11 (Xvfb)",
            System::Wayland => "Wayland (Weston)",
        }
    }

    pub fn kind(self) -> DisplayKind {
        match self {
            System::X11 => DisplayKind::X11,
            System::Wayland => DisplayKind::Wayland,
        }
    }
}

/// Width and height of the screen, in pixels: that of the largest frames.
const SCREEN: (usize, usize) = (3840, 2160);

/// A running display server.
pub struct DisplayServer {
    pub system: System,
    pub name: String,
    pid: u32,
    _running: Running,
}

enum Running {
    X11 { _server: Xvfb },
    Wayland { _server: Weston },
}

impl DisplayServer {
    /// Starts a server.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is not installed.
    pub fn start(system: System) -> Result<DisplayServer, Error> {
        match system {
            System::X11 => {
                installed("Xvfb", "xvfb")?;
                let mut server = Xvfb::with_screen(SCREEN, 24);
                let (name, pid) = (server.name(), server.process().id());
                Ok(DisplayServer { system, name, pid, _running: Running::X11 { _server: server } })
            }
            System::Wayland => {
                installed("weston", "weston")?;
                let mut server = Weston::with_screen(SCREEN);
                let (name, pid) = (server.name(), server.process().id());
                Ok(DisplayServer { system, name, pid, _running: Running::Wayland { _server: server } })
            }
        }
    }

    /// Returns the processor time of all threads of the server so far, in seconds.
    ///
    /// # Errors
    /// [`Error::Failed`] if the server is gone.
    pub fn seconds(&self) -> Result<f64, Error> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).map_err(broken)?;
        let mut sum = 0.0;
        for task in tasks {
            let text = fs::read_to_string(task.map_err(broken)?.path().join("schedstat")).map_err(broken)?;
            let first = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
            sum += first.ok_or_else(|| broken(format!("'{text}' is no schedstat")))? / 1e9;
        }
        Ok(sum)
    }
}

pub fn installed(program: &str, package: &'static str) -> Result<(), Error> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&folders).any(|folder| Path::new(&folder).join(program).exists());
    if is_there { Ok(()) } else { Err(Error::Missing { what: program.into(), package }) }
}
