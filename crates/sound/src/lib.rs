//! Sound devices: samples to and from ALSA, whose library is loaded when a device is opened.
//!
//! A [`Pcm`] is an open device that plays or records. It takes samples from the caller's memory, or puts them there, and
//! never waits: a caller that finds the device full or empty sleeps for part of a period. What a plugin of ALSA may
//! block in, such as opening a device of a daemon that hangs, is done on a thread of its own and is [`Pending`] meanwhile.
//!
//! ```no_run
//! use bywash_sound::{Direction, Pcm, PcmOptions};
//! use std::time::Duration;
//!
//! let opening = Pcm::open(Direction::Playback, "default", &PcmOptions::default())?;
//! let mut pcm = opening.wait(Duration::from_secs(5)).ok_or("the device does not open")??;
//! let silence = vec![0; 48_000 * pcm.frame_bytes()];
//! let mut taken = 0;
//! while taken < silence.len() {
//!     taken += pcm.write(&silence[taken..])?; // from the caller's memory, and without waiting
//!     std::thread::sleep(pcm.period() / 2);
//! }
//! pcm.drain()?.wait(Duration::from_secs(5)).ok_or("the device does not stop")??;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Pcm`], [`PcmOptions`], [`SampleFormat`], [`Direction`]: an open device, and the samples that it takes or gives
//! - [`Pending`]: an operation that may block
//! - [`load`]: loads ALSA's library, to find out early that it is missing
//! - [`Error`]: every error of this crate
//!
//! A device does what was asked for or refuses: nothing is resampled or converted here. ALSA's own plugins do that for
//! devices such as `default` and `plughw`.
//!
//! Inside: `library` declares the functions of ALSA, `pcm` calls them.

#![deny(unsafe_code)]

mod error;
mod library;
mod options;
mod pcm;
mod pending;

pub use error::Error;
pub use library::load;
pub use options::{Direction, PcmOptions, SampleFormat};
pub use pcm::Pcm;
pub use pending::Pending;
