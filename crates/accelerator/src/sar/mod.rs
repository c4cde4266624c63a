//! Formation of synthetic-aperture-radar images by the range-Doppler algorithm, for a strip map at broadside (zero squint).
//!
//! A radar on a moving platform sends chirps and records their echoes: a row of complex samples a pulse. A point on the ground
//! is spread over a chirp's length in range, and over all pulses during which the antenna's beam lay on it (its synthetic
//! aperture) in azimuth. The algorithm focuses it to one point in four steps (Cumming and Wong, Digital Processing of Synthetic
//! Aperture Radar Data, 2005, chapter 6):
//!
//! 1. Range compression: each row is filtered with the chirp's conjugate (`plan`, by rows).
//! 2. Azimuth transform: each column goes to the Doppler domain, where all points of one range lie on one curve
//!    (`columns`). The corner turn is a blocked one: some columns at a time are gathered into contiguous memory.
//! 3. Range cell migration correction: along each row of one Doppler frequency the samples are fetched from where the curve
//!    lies, by interpolation; then the azimuth matched filter turns their phases (`migration`, by rows).
//! 4. Inverse azimuth transform, again by columns.
//!
//! The azimuth filter is applied in step 3, because along a row its phase grows linearly, and is cheap to compute.
//! [`Former`] runs the steps on all threads, in memory or, for a scene that is larger, on a temporary file (`tiles`). The
//! processor computes them (`processor`), or a card.
//!
//! Validity. Transforms are circular and nothing is padded: a cell is focused completely if its whole echo lies within the row
//! ([`Sar::focused_range`]), and its whole aperture within the scene ([`Sar::focused_azimuth`]). A point of amplitude 1 becomes
//! a peak of amplitude 1 with the phase of its slant range, -4 pi R / wavelength. There is no secondary range compression;
//! [`Sar::check`] refuses geometries that need it.
//!
//! [`Sar::check`]: crate::kernel::Sar::check
//! [`Sar::focused_azimuth`]: crate::kernel::Sar::focused_azimuth
//! [`Sar::focused_range`]: crate::kernel::Sar::focused_range

mod columns;
pub mod echo;
mod engine;
pub mod focus;
mod former;
mod geometry;
mod interpolation;
mod memory;
mod migration;
pub mod picture;
mod plan;
mod pool;
mod processor;
mod tiles;
mod window;

pub use echo::{Antenna, Echoes, Target};
#[cfg(feature = "gpu")]
pub(crate) use engine::{Engine, Step, Work};
pub use focus::Focus;
pub use former::{Former, SarOptions, Slab, Times, image, image_by};
pub use geometry::LIGHT_M_S;
#[cfg(feature = "gpu")]
pub(crate) use plan::{Plan, frequency, phasor};
pub use window::Weighting;

/// Sample of an echo or an image.
pub type Sample = rustfft::num_complex::Complex32;
