//! Words of a radar scene: its geometry, which `radar:` and `accel:sar` have in common.

use crate::error::Error;
use bywash_accelerator::kernel::Sar;
use bywash_options::{OptionRow, Value, Words, number};

/// Value of a parameter that need not be a whole number.
pub(crate) const NUMBER: Value = Value::Text("NUMBER");

/// Rows of the options of a geometry.
pub(crate) const OPTIONS: [OptionRow; 8] = [
    OptionRow::new("carrier", NUMBER, "sar: carrier frequency in hertz"),
    OptionRow::new("sampling", NUMBER, "sar: samples of an echo a second"),
    OptionRow::new("bandwidth", NUMBER, "sar: bandwidth of the chirp in hertz"),
    OptionRow::new("pulse", NUMBER, "sar: duration of the chirp in seconds"),
    OptionRow::new("prf", NUMBER, "sar: pulses a second"),
    OptionRow::new("speed", NUMBER, "sar: speed of the platform in metres a second"),
    OptionRow::new("near", NUMBER, "sar: slant range of the first sample in metres"),
    OptionRow::new("antenna", NUMBER, "sar: length of the antenna in metres"),
];

/// Takes the geometry of a scene of this size: the usual one, but for the parameters that are given.
pub(crate) fn geometry(words: &mut Words<'_>, range: usize, azimuth: usize) -> Result<Sar, Error> {
    let mut sar = Sar::strip_map(range, azimuth);
    for (name, parameter) in [
        ("carrier", &mut sar.carrier_hz),
        ("sampling", &mut sar.sampling_hz),
        ("bandwidth", &mut sar.bandwidth_hz),
        ("pulse", &mut sar.pulse_s),
        ("prf", &mut sar.prf_hz),
        ("speed", &mut sar.speed_m_s),
        ("near", &mut sar.near_m),
        ("antenna", &mut sar.antenna_m),
    ] {
        if let Some(value) = words.value(name, number::<f64>)? {
            *parameter = value;
        }
    }
    sar.check().map_err(|error| words.error(error))?;
    Ok(sar)
}

/// Takes the size of a scene, RANGExAZIMUTH.
pub(crate) fn size(words: &Words<'_>, text: &str) -> Result<(usize, usize), Error> {
    let parsed =
        text.split_once('x').and_then(|(range, azimuth)| Some((range.parse().ok()?, azimuth.parse().ok()?)));
    parsed.ok_or_else(|| {
        words.error(format!("'{text}' is no size of a scene: give SAMPLESxPULSES, such as 512x512")).into()
    })
}
