//! An end without a peer: a source that is at its end, and a sink that discards everything.

use crate::block_io::{Input, Output};
use crate::control::Control;
use crate::error::Error;

/// Sink that discards everything, and source that is at its end.
pub(crate) struct Null;

impl Input for Null {
    fn next<'a>(&'a mut self, _: &'a mut [u8], _: &Control) -> Result<&'a [u8], Error> {
        Ok(&[])
    }
}

impl Output for Null {
    fn put(&mut self, _: &[u8], _: &Control) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self, _: &Control) -> Result<(), Error> {
        Ok(())
    }
}
