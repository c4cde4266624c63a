//! Device `cuda`: kernels on NVIDIA's cards, by the CUDA driver.
//!
//! `cuda:0` is the first card in the order of the driver, `cuda` the same one. The passes are compiled by NVRTC when a session
//! begins. Blocks are copied to and from the card's memory out of and into pinned memory by the card. They compute what the
//! passes of [`gpu`](crate::gpu) do.

mod driver;

use crate::card::{self, Card, scene};
use crate::device::{Device, Found, Session, SessionOptions};
use crate::error::Error;
use crate::kernel::{Kernel, Sar};
use crate::sar::{Former, SarOptions};
use driver::{Driver, Properties};
use std::sync::Arc;

/// Name of the first device, and beginning of the others' names.
const NAME: &str = "cuda";

/// Card that was opened.
pub struct Cuda {
    driver: Arc<Driver>,
    description: String,
}

impl Cuda {
    /// Opens a card by its number.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no card of this number, with the reason if there is none at all; [`Error::Lost`] if the
    /// driver refuses.
    pub fn open(number: usize) -> Result<Cuda, Error> {
        let name = name(number);
        let missing = |reason: String| Error::Parameter(format!("there is no device '{name}': {reason}"));
        let cards = driver::all().map_err(|texts| missing(texts.join(": ")))?;
        let last = self::name(cards.len() - 1);
        let card = cards.into_iter().nth(number).ok_or_else(|| missing(format!("the last one is {last}")))?;
        let Properties { number, description } = card;
        Ok(Cuda { driver: Arc::new(Driver::open(&name, number)?), description })
    }

    /// Begins an image that the card forms, part by part.
    ///
    /// # Errors
    /// Those of [`Former::new`]; [`Error::Unsupported`] if a row or column does not fit the card's buffers.
    pub fn former(&self, sar: &Sar, options: &SarOptions) -> Result<Former, Error> {
        scene::former(&self.driver, sar, options)
    }
}

impl Device for Cuda {
    fn name(&self) -> String {
        self.driver.name().into()
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.driver.available_bytes()
    }

    fn session(&self, kernel: &Kernel, options: &SessionOptions) -> Result<Session, Error> {
        kernel.check()?;
        options.check()?;
        card::session(&self.driver, kernel, options)
    }
}

/// Returns all cards.
///
/// # Errors
/// The reason why there is none, and the remedy.
pub(crate) fn survey() -> Result<Vec<Found>, [String; 2]> {
    let found = |(number, card): (usize, Properties)| Found {
        name: name(number),
        description: card.description,
        uses_processor: false,
    };
    Ok(driver::all()?.into_iter().enumerate().map(found).collect())
}

/// Returns the name of the card of a number.
fn name(number: usize) -> String {
    format!("{NAME}:{number}")
}
