//! A device that is slow.

use bywash_device::{Command, Completion, Device, Geometry, QueueFull};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A device that reports the completions of another device late, and that can only be polled. After a number of
/// commands it reports none any more.
pub struct Late<D> {
    device: D,
    by: Duration,
    done: VecDeque<(Instant, Completion)>,
    /// Number of commands after which no completion is reported.
    commands_left: u64,
    /// File that is created then.
    mark: PathBuf,
}

impl<D: Device> Late<D> {
    /// Creates the file `mark` after the submission of `commands` commands, the last of which stays in flight.
    pub fn new(device: D, by: Duration, commands: u64, mark: PathBuf) -> Late<D> {
        Late { device, by, done: VecDeque::new(), commands_left: commands, mark }
    }
}

impl<D: Device> Device for Late<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        self.device.submit(command)?;
        self.commands_left = self.commands_left.saturating_sub(1);
        if self.commands_left == 0 {
            std::fs::write(&self.mark, "").unwrap();
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        if self.commands_left == 0 {
            return 0;
        }
        let due = Instant::now() + self.by;
        self.device.reap(&mut |one| self.done.push_back((due, one)));
        let count = self.done.iter().take_while(|(due, _)| *due <= Instant::now()).count();
        self.done.drain(..count).for_each(|(_, one)| done(one));
        count
    }

    fn arm(&mut self) -> bool {
        std::thread::sleep(Duration::from_micros(200));
        true
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn depth(&self) -> usize {
        self.device.depth()
    }

    fn in_flight(&self) -> usize {
        self.device.in_flight() + self.done.len()
    }

    fn description(&self) -> String {
        format!("{}, late", self.device.description())
    }
}
