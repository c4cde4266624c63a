//! Batches of reads that another process on the same processor carries out.
//!
//! The client runs before the server whenever it can (SCHED_FIFO). It sleeps after a submission, and is awake again when
//! everything has completed; so it never looks for a completion in vain. Its sleep is a window in which the plugin cuts the
//! server's instructions at each PAUSE: the host takes the cuts in which the server did something.

use super::{LOOKS_MAX, Offsets, WARM_UP, failed, keep, mark, series, settle};
use crate::error::Error;
use std::time::Duration;

/// Depths at which the client reads.
pub(super) const DEPTHS: [usize; 2] = [1, 32];
/// Time that the server has for a batch of requests at first, and at most.
const WINDOW: Duration = Duration::from_micros(250);
const WINDOW_MAX: Duration = Duration::from_millis(20);

/// Path of requests to the server.
pub(super) trait Path {
    /// Submits a read into the buffer of a tag. Returns false if it is refused.
    fn submit(&mut self, tag: usize, offset: u64) -> bool;

    /// Shows everything that was submitted to the server.
    fn publish(&mut self) -> Result<(), Error>;

    /// Takes completions, if there are any, and returns their number.
    fn reap(&mut self) -> Result<usize, Error>;
}

/// Reader of batches.
pub(super) struct Batches {
    offsets: Offsets,
    /// Size of the volume, in bytes.
    volume: u64,
    /// Time that the server has for a batch of requests.
    window: Duration,
}

impl Batches {
    pub(super) fn new(volume: u64) -> Batches {
        Batches { offsets: Offsets::new(), volume, window: WINDOW }
    }

    /// Reads at each depth, in series that begin with a name.
    pub(super) fn run(&mut self, name: &str, path: &mut impl Path, operations: usize) -> Result<(), Error> {
        for depth in DEPTHS {
            self.window = WINDOW;
            series(&format!("{name}; {depth}"))?;
            for number in 0..WARM_UP + operations.div_ceil(depth) {
                self.read(path, depth, number)?;
            }
        }
        Ok(())
    }

    /// Reads at so many offsets, and counts that.
    pub(super) fn read(&mut self, path: &mut impl Path, depth: usize, number: usize) -> Result<(), Error> {
        let some: Vec<u64> = self.offsets.some(depth).iter().map(|offset| offset % self.volume).collect();
        let (mut refused, mut done) = (false, 0);
        mark::start();
        for (tag, offset) in some.iter().enumerate() {
            refused |= !path.submit(tag, *offset);
        }
        let published = path.publish();
        mark::stop();
        mark::open();
        std::thread::sleep(self.window);
        mark::close();
        published?;
        let mut looks = 0;
        while done < depth && looks < LOOKS_MAX && !refused {
            mark::start();
            while done < depth {
                let taken = path.reap()?;
                if taken == 0 {
                    break;
                }
                done += taken;
            }
            mark::stop();
            looks += 1;
            if done < depth {
                settle();
            }
        }
        if refused || done < depth {
            return Err(failed("the client", format!("{done} of {depth} requests completed")));
        }
        // Looks in vain are not counted.
        if looks > 1 {
            mark::give_up();
            self.window = (2 * self.window).min(WINDOW_MAX);
            return Ok(());
        }
        keep(number, false);
        Ok(())
    }
}

/// Has this process run before all others whenever it can.
#[expect(unsafe_code, reason = "a system call that reads a structure")]
pub(super) fn run_first() -> Result<(), Error> {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads the structure.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) } {
        0 => Ok(()),
        _ => Err(failed("sched_setscheduler", std::io::Error::last_os_error())),
    }
}
