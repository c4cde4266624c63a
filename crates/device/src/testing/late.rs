//! A device that is slow, and that stops in the middle of its work.
//!
//! Invariant: no completion is reported before its time. Called by tests that kill a server with commands in flight.

use crate::command::{Command, Completion, QueueFull};
use crate::device::{Device, Geometry};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Interval between two looks at the device.
const LOOK: Duration = Duration::from_micros(200);

/// Device that reports the completions of `D` late, and that can only be polled. After a number of commands it
/// reports none any more.
#[derive(Debug)]
pub struct Late<D> {
    device: D,
    /// Time by which a completion is late.
    by: Duration,
    /// Completions of the other device, with the times of their reports.
    done: VecDeque<(Instant, Completion)>,
    /// Number of commands after which no completion is reported.
    commands_left: u64,
    /// File that is created then.
    mark: PathBuf,
}

impl<D: Device> Late<D> {
    /// Makes a device whose completions come later, each by `by`. It creates the file `mark` at the submission of the
    /// last of `commands` commands, which stays in flight.
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
            std::fs::write(&self.mark, "").expect("the mark can be made");
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
        std::thread::sleep(LOOK);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, MemoryOptions};

    #[test]
    fn completions_come_late_and_none_behind_the_last_command() {
        let (folder, by) = (tempfile::tempdir().unwrap(), Duration::from_millis(5));
        let mark = folder.path().join("mark");
        let memory = Memory::new(MemoryOptions::new(1 << 20)).unwrap();
        let mut late = Late::new(memory, by, 2, mark.clone());
        let began = Instant::now();
        assert!(late.submit(Command::flush(1)).is_ok());
        let mut done = Vec::new();
        while late.reap(&mut |completion| done.push(completion.token)) == 0 {}
        assert!(began.elapsed() >= by && done == [1] && !mark.exists());
        assert!(late.submit(Command::flush(2)).is_ok());
        assert!(mark.exists());
        std::thread::sleep(2 * by);
        assert_eq!((late.reap(&mut |_| ()), late.in_flight()), (0, 1));
    }
}
