//! `reflink`: the sink shares the source's blocks until one of the two is written (FICLONERANGE).

use super::{Job, Stop, does_not_go_along, failed, reason};
use crate::end::{Reading, Writing};
use crate::sys;
use std::os::fd::AsFd;

/// Shares all blocks of the job by one call; holes are shared too.
pub(super) fn run(job: &mut Job<'_>, from: &mut Reading, to: &mut Writing) -> Result<(), Stop> {
    let (Some(read), Some(written), Some(left)) = (from.position, to.position, from.left()) else {
        return Err(Stop::Unfit("blocks are shared between files alone".into()));
    };
    job.control.check()?;
    let length = left.min(job.left);
    if length == 0 {
        return Ok(());
    }
    match sys::clone_range(from.as_fd(), to.as_fd(), read, length, written) {
        Ok(()) => {
            // Some file systems have shared fewer blocks than they reported.
            let size = rustix::fs::fstat(&to.descriptor).map_err(|error| to.failed(error))?.st_size as u64;
            if size < written + length {
                return Err(Stop::Unfit(format!("only {size} bytes were shared")));
            }
            job.moved(from, to, usize::try_from(length).unwrap_or(usize::MAX));
            Ok(())
        }
        // A source with dirty pages may be refused, and file systems refuse by different errors.
        Err(rustix::io::Errno::AGAIN) => Err(Stop::Unfit("the source is being written".into())),
        Err(error) if does_not_go_along(error) => Err(Stop::Unfit(reason(error))),
        Err(error) => Err(failed(from, to, error).into()),
    }
}
