//! `accel:KERNEL`: computes on the data by an accelerator.
//!
//! Blocks are read into memory of the device and written from it where the flow's source and sink allow that, and the device
//! computes meanwhile ([`work`]). The words behind the colon name a kernel and a device ([`options`]).

mod options;
mod work;

use super::{DeviceStage, DeviceWork, Stage, StageKind, StageRole, StageType};
use crate::error::Error;
use bywash_accelerator::{Kernel, SessionOptions, devices};
use std::fmt;

/// The stage.
#[derive(Clone, Debug)]
struct Accel {
    kernel: Kernel,
    /// Name of the device.
    device: String,
    session: SessionOptions,
    /// Text behind the colon, as it was given.
    text: String,
}

pub(super) static KIND: StageKind =
    StageKind { row: options::ROW, parse: |words| options::parse(words).map(Stage::new) };

impl StageType for Accel {
    fn role(&self) -> StageRole<'_> {
        StageRole::Device(self)
    }
}

impl DeviceStage for Accel {
    fn start(&self, block: Option<usize>) -> Result<DeviceWork, Error> {
        let device = devices::open(&self.device).map_err(failed)?;
        let options = block.map_or(self.session, |bytes| self.session.block_bytes(bytes));
        let session = device.session(&self.kernel, &options).map_err(failed)?;
        let gives_digest = self.kernel == Kernel::Sha256;
        Ok(work::ends(session, device.name(), self.to_string(), gives_digest))
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
        // The other transfer has ended, and says why if that was no success.
        Device::Closed => {
            Error::io("hand data to the device", std::io::Error::from(std::io::ErrorKind::BrokenPipe))
        }
        Device::Lost { .. } | Device::Memory { .. } => {
            Error::io("compute on the device", std::io::Error::other(error.to_string()))
        }
        _ => Error::Usage(error.to_string()),
    }
}
