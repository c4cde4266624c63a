//! `sendfile`: the kernel sends a file's pages (sendfile(2)); into a file it copies them.

use super::{Job, Stop, stepwise};
use crate::end::{DescriptorSink, DescriptorSource};
use rustix::fs::SeekFrom;

pub(super) fn run(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    stepwise(job, from, to, |from, to, most| {
        // sendfile(2) writes at the descriptor's own offset only.
        if let Some(position) = to.position {
            rustix::fs::seek(to, SeekFrom::Start(position))?;
        }
        let mut read = from.position.unwrap_or(0);
        rustix::fs::sendfile(to, from, Some(&mut read), most)
    })
}
