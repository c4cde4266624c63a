//! `reflink`: the sink shares the source's blocks until one of the two is written (FICLONERANGE).

use super::{Job, Stop, failed, is_refusal, reason};
use crate::end::{DescriptorSink, DescriptorSource};
use crate::sys;
use std::os::fd::AsFd;

/// Shares all blocks of the job by one call; holes are shared too.
pub(super) fn run(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    let (Some(read), Some(written), Some(left)) = (from.position, to.position, from.left()) else {
        return Err(Stop::Refused("blocks are shared between files alone".into()));
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
                return Err(Stop::Refused(format!("only {size} bytes were shared")));
            }
            job.record_moved(from, to, usize::try_from(length).unwrap_or(usize::MAX));
            Ok(())
        }
        // A source with dirty pages may be refused, and file systems refuse by different errors.
        Err(rustix::io::Errno::AGAIN) => Err(Stop::Refused("the source is being written".into())),
        Err(error) if is_refusal(error) => Err(Stop::Refused(reason(error))),
        Err(error) => Err(failed(from, to, error).into()),
    }
}
