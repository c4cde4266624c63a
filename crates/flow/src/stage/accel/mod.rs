//! `accel:KERNEL`: computes on the data by an accelerator.
//!
//! Blocks are read into memory of the device and written from it where the flow's source and sink allow that, and the device
//! computes meanwhile ([`work`]). The words behind the colon name a kernel and a device ([`options`]).

mod options;
mod work;

use super::filter::Filter;
use super::{Bound, FilterContext, FilterStage, Stage, StageKind, StageRole, StageType};
use crate::error::Error;
use bywash_accelerator::{Kernel, SessionOptions, devices};
use std::fmt;

/// The stage.
#[derive(Clone, Debug)]
struct Accel {
    kernel: Kernel,
    /// Name of the device.
    device: &'static str,
    session: SessionOptions,
    /// Text behind the colon, as it was given.
    text: String,
}

pub(super) static KIND: StageKind =
    StageKind { row: options::ROW, parse: |words| options::parse(words).map(Stage::new) };

impl StageType for Accel {
    fn role(&self) -> StageRole<'_> {
        StageRole::Filter(self)
    }
}

impl FilterStage for Accel {
    fn bound(&self) -> Option<Bound> {
        None
    }

    fn keeps_data(&self) -> bool {
        // Its session says so only when the data has ended.
        false
    }

    fn filter(&self, _: &FilterContext<'_>) -> Result<Box<dyn Filter>, Error> {
        let device = devices::open(self.device).map_err(failed)?;
        let session = device.session(&self.kernel, &self.session).map_err(failed)?;
        Ok(Box::new(work::Work::new(session, device.name(), self.to_string(), self.kernel == Kernel::Sha256)))
    }
}

impl fmt::Display for Accel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "accel:{}", self.text)
    }
}

/// Returns a failure of a device as one of the flow.
fn failed(error: bywash_accelerator::Error) -> Error {
    use bywash_accelerator::Error as Device;
    match error {
        Device::Input(_) => Error::Data(error.to_string()),
        Device::Lost { .. } | Device::Memory { .. } => {
            Error::io("compute on the device", std::io::Error::other(error.to_string()))
        }
        _ => Error::Usage(error.to_string()),
    }
}
