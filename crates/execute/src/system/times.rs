//! Calls that tell the time and wait for one.

use super::{Caller, Served, Stop, System};
use crate::clock::Time;
use crate::errno::Errno;

/// Time of the real-time clock at the start of a simulation, in seconds since 1970: 2026-01-01.
pub(super) const EPOCH_SECONDS: u64 = 1_767_225_600;
/// Clock ticks per second (`sysconf(_SC_CLK_TCK)`).
const TICKS: u64 = 100;

/// Numbers of clocks (clock_gettime(2)).
mod clock {
    pub const REAL: u64 = 0;
    pub const MONOTONIC: u64 = 1;
    pub const PROCESS: u64 = 2;
    pub const THREAD: u64 = 3;
    pub const REAL_COARSE: u64 = 5;
    pub const LAST: u64 = 7;
}

/// Time that a program passes (`struct timespec`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Timespec {
    /// Whole seconds.
    seconds: u64,
    /// Nanoseconds, below a second.
    nanoseconds: u64,
}

impl Timespec {
    /// Returns the time as a duration, or as one since the start of the simulation.
    pub fn duration(self) -> Time {
        Time::from_nanoseconds(self.seconds.saturating_mul(1_000_000_000).saturating_add(self.nanoseconds))
    }

    /// Returns the time of the simulation at which the real-time clock shows this; times before are its start.
    pub fn since_start(self) -> Time {
        Timespec { seconds: self.seconds.saturating_sub(EPOCH_SECONDS), ..self }.duration()
    }
}

impl System {
    /// Reads a time of the program.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for a negative time or more than 999,999,999 nanoseconds, and [`Errno::EFAULT`].
    pub(super) fn time_at(&mut self, address: u64) -> Result<Timespec, Errno> {
        let [seconds, nanoseconds] = self.memory.words(address)?;
        if seconds > i64::MAX as u64 || nanoseconds >= 1_000_000_000 {
            return Err(Errno::EINVAL);
        }
        Ok(Timespec { seconds, nanoseconds })
    }

    /// Serves clock_gettime(2).
    pub(super) fn clock_gettime(&mut self, caller: &Caller) -> Served {
        let [clock, address, ..] = caller.arguments;
        let nanoseconds = match clock {
            clock::PROCESS => self.busy().nanoseconds(),
            clock::THREAD => self.threads.get(caller.thread).map_or(0, |thread| thread.busy.nanoseconds()),
            clock::REAL | clock::REAL_COARSE => caller.now.nanoseconds() + EPOCH_SECONDS * 1_000_000_000,
            clock::MONOTONIC..=clock::LAST => caller.now.nanoseconds(),
            _ => return Err(Errno::EINVAL.into()),
        };
        self.memory.set_words(address, &[nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000])?;
        Ok(0)
    }

    /// Serves clock_getres(2).
    pub(super) fn clock_getres(&mut self, caller: &Caller) -> Served {
        let [clock, address, ..] = caller.arguments;
        if clock > clock::LAST {
            return Err(Errno::EINVAL.into());
        }
        if address != 0 {
            self.memory.set_words(address, &[0, 1])?;
        }
        Ok(0)
    }

    /// Serves gettimeofday(2).
    pub(super) fn gettimeofday(&mut self, caller: &Caller) -> Served {
        let [address, zone, ..] = caller.arguments;
        let microseconds = caller.now.nanoseconds() / 1000;
        if address != 0 {
            let seconds = EPOCH_SECONDS + microseconds / 1_000_000;
            self.memory.set_words(address, &[seconds, microseconds % 1_000_000])?;
        }
        if zone != 0 {
            self.memory.write(zone, &[0; 8])?;
        }
        Ok(0)
    }

    /// Serves nanosleep(2).
    pub(super) fn nanosleep(&mut self, caller: &Caller) -> Served {
        let [time, left, ..] = caller.arguments;
        let wait = self.time_at(time)?.duration();
        self.sleep(caller, caller.now + wait, left)
    }

    /// Serves clock_nanosleep(2).
    pub(super) fn clock_nanosleep(&mut self, caller: &Caller) -> Served {
        let [clock, flags, time, left, ..] = caller.arguments;
        let time = self.time_at(time)?;
        let is_absolute = flags & 1 != 0;
        let deadline = match clock {
            clock::REAL if is_absolute => time.since_start(),
            clock::MONOTONIC | clock::LAST if is_absolute => time.duration(),
            clock::REAL | clock::MONOTONIC | clock::LAST => caller.now + time.duration(),
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        self.sleep(caller, deadline, if is_absolute { 0 } else { left })
    }

    /// Lets a thread wait until a time. Writes the time that is left in case a signal interrupts it.
    fn sleep(&mut self, caller: &Caller, deadline: Time, left_address: u64) -> Served {
        let call = self.call_of(caller.thread)?;
        let deadline = *call.deadline.get_or_insert(deadline);
        if deadline <= caller.now {
            return Ok(0);
        }
        if left_address != 0 {
            let left = deadline.since(caller.now).nanoseconds();
            self.memory.set_words(left_address, &[left / 1_000_000_000, left % 1_000_000_000])?;
        }
        Err(Stop::Block(Vec::new()))
    }

    /// Serves setitimer(2) for the real-time timer.
    pub(super) fn setitimer(&mut self, caller: &Caller) -> Served {
        let [which, new, old, ..] = caller.arguments;
        if which != 0 {
            return Err(self.unsupported(caller, "for a timer of processor time", "use ITIMER_REAL"));
        }
        if old != 0 {
            self.write_interval(old, caller.now)?;
        }
        let [interval, interval_part, value, value_part] = self.memory.words(new)?;
        if interval_part >= 1_000_000 || value_part >= 1_000_000 {
            return Err(Errno::EINVAL.into());
        }
        let time = |seconds: u64, part: u64| Timespec { seconds, nanoseconds: part * 1000 }.duration();
        let value = time(value, value_part);
        self.interval.next = (value > Time::ZERO).then_some(caller.now + value);
        self.interval.interval = time(interval, interval_part);
        Ok(0)
    }

    /// Serves getitimer(2) for the real-time timer.
    pub(super) fn getitimer(&mut self, caller: &Caller) -> Served {
        if caller.arguments[0] != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.write_interval(caller.arguments[1], caller.now)?;
        Ok(0)
    }

    /// Writes the interval timer's interval and remaining time.
    fn write_interval(&mut self, address: u64, now: Time) -> Result<(), Errno> {
        let left = self.interval.next.map_or(Time::ZERO, |next| next.since(now));
        let parts =
            |time: Time| [time.nanoseconds() / 1_000_000_000, time.nanoseconds() % 1_000_000_000 / 1000];
        self.memory.set_words(address, &[parts(self.interval.interval), parts(left)].concat())
    }

    /// Serves times(2).
    pub(super) fn times(&mut self, caller: &Caller) -> Served {
        let ticks = |time: Time| time.nanoseconds() / (1_000_000_000 / TICKS);
        if caller.arguments[0] != 0 {
            let busy = ticks(self.busy());
            self.memory.set_words(caller.arguments[0], &[busy, 0, 0, 0])?;
        }
        Ok(ticks(caller.now))
    }

    /// Serves getrusage(2): the time on processors.
    pub(super) fn getrusage(&mut self, caller: &Caller) -> Served {
        let [who, address, ..] = caller.arguments;
        let busy = match who as i32 {
            0 => self.busy(),
            1 => self.threads.get(caller.thread).map_or(Time::ZERO, |thread| thread.busy),
            -1 => Time::ZERO,
            _ => return Err(Errno::EINVAL.into()),
        };
        let mut words = [0; 18];
        words[0] = busy.nanoseconds() / 1_000_000_000;
        words[1] = busy.nanoseconds() % 1_000_000_000 / 1000;
        words[4] = self.memory.space.bytes_in_use() / 1024;
        self.memory.set_words(address, &words)?;
        Ok(0)
    }

    /// Returns the time that all threads have spent on processors.
    pub(crate) fn busy(&self) -> Time {
        let threads = self.threads.ids().filter_map(|id| self.threads.get(id));
        threads.fold(self.ended_busy, |sum, thread| sum + thread.busy)
    }
}
