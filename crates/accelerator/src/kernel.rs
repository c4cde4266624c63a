//! Kernels: what a device computes on the bytes that pass, and how these are laid out.
//!
//! Samples are complex numbers of two 32-bit floating-point numbers, real part first, little-endian: 8 bytes.

mod fft;
mod fir;

use crate::error::Error;
use std::path::PathBuf;

/// Computation on a stream of bytes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kernel {
    /// Filter with a finite impulse response that keeps one of some samples: the low-pass of a digital receiver.
    Fir(Fir),
    /// Fourier transforms of consecutive frames of samples.
    Fft(Fft),
    /// SHA-256 of the bytes, which pass unchanged; the digest of all of them is the session's last output, 32 bytes.
    Sha256,
    /// Formation of a synthetic-aperture-radar image from raw echoes.
    Sar(Sar),
    /// Function of a shared library (C interface: include/bywash_kernel.h).
    Library(PathBuf),
    /// Compute shader in WGSL, for graphics cards (its interface: the module `gpu`).
    Shader(PathBuf),
}

impl Kernel {
    /// Returns the name of the kernel, as in `accel:NAME`.
    pub fn name(&self) -> &'static str {
        match self {
            Kernel::Fir(_) => "fir",
            Kernel::Fft(_) => "fft",
            Kernel::Sha256 => "sha256",
            Kernel::Sar(_) => "sar",
            Kernel::Library(_) => "so",
            Kernel::Shader(_) => "wgsl",
        }
    }

    /// Checks the parameters. A file is checked when a session begins.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the value and the possible range.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Kernel::Fir(fir) => fir.check(),
            Kernel::Fft(fft) => fft.check(),
            Kernel::Sar(sar) => sar.check(),
            Kernel::Sha256 | Kernel::Library(_) | Kernel::Shader(_) => Ok(()),
        }
    }
}

/// Filter with a finite impulse response, with samples of value zero before the first one. Output `m` is the sum over `k`
/// of `taps[k]` times sample `m * decimation - k`: there are as many outputs as multiples of `decimation` are numbers of
/// samples, and none for what the filter still holds at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Fir {
    /// Coefficients, the first for the newest sample: 1 to [`Fir::TAPS_MAX`] finite numbers.
    pub taps: Vec<f32>,
    /// Number of samples of which one is kept, 1 to [`Fir::DECIMATION_MAX`].
    pub decimation: usize,
}

/// Fourier transforms of consecutive frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fft {
    /// Samples of a frame, 1 to [`Fft::SIZE_MAX`]. The last frame is filled up with zeros.
    pub size: usize,
    /// True for the inverse transform, which divides by the size; the other one does not.
    pub is_inverse: bool,
}

/// Geometry and waveform of a radar, and the size of its scene. Rows of the raw data are pulses (azimuth), each of `range`
/// samples; so are those of the image, whose samples are complex, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sar {
    /// Samples of a pulse.
    pub range: usize,
    /// Number of pulses.
    pub azimuth: usize,
    /// Carrier frequency, in hertz.
    pub carrier_hz: f64,
    /// Sampling rate of an echo, in hertz.
    pub sampling_hz: f64,
    /// Bandwidth of the linear chirp, in hertz.
    pub bandwidth_hz: f64,
    /// Duration of the chirp, in seconds.
    pub pulse_s: f64,
    /// Pulse repetition frequency, in hertz.
    pub prf_hz: f64,
    /// Speed of the platform, in metres a second.
    pub speed_m_s: f64,
    /// Slant range of the first sample, in metres.
    pub near_m: f64,
    /// Length of the real antenna along the track, in metres: half of it is the resolution.
    pub antenna_m: f64,
}
