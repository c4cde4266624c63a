//! Media: streams of bytes cut into units that have a time, such as frames of video and blocks of samples.
//!
//! Called by the stage `live:`, by [`crate::rtp`] and by the endpoint `alsa:`.

mod ts;
mod units;
mod wav;

pub(crate) use ts::TS_PACKET_BYTES;
pub(crate) use units::{Content, Format, Found, Units};
pub(crate) use wav::header_of_stream;
#[cfg(feature = "sound")]
pub(crate) use wav::{WavFormat, WavHeader, WavInfo, header};
