//! `copy-range`: the kernel copies from file to file (copy_file_range(2)).

use super::{Job, Stop, stepwise};
use crate::end::{DescriptorSink, DescriptorSource};

pub(super) fn run(
    job: &mut Job<'_>,
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
) -> Result<(), Stop> {
    stepwise(job, from, to, |from, to, most| {
        let (mut read, mut written) = (from.position.unwrap_or(0), to.position.unwrap_or(0));
        rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), most)
    })
}
