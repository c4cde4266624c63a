//! The types of `tls` without its feature: there are no values of them.

use crate::raw::{Moved, Raw};
use bywash_export::Error;
use std::io::{IoSlice, IoSliceMut};

/// Certificates of a server, which there are none of without the feature `tls`.
#[derive(Clone, Debug)]
pub(crate) enum Tls {}

/// TLS of a connection, which there is none of without the feature `tls`.
#[derive(Debug)]
pub(crate) enum Session {}

impl Tls {
    pub(crate) fn session(&self) -> Result<Session, Error> {
        match *self {}
    }
}

impl Session {
    pub(crate) fn has_received(&self) -> bool {
        match *self {}
    }

    pub(crate) fn wants_to_send(&self) -> bool {
        match *self {}
    }

    pub(crate) fn receive(&mut self, _: Raw<'_>, _: &mut [IoSliceMut<'_>]) -> Moved {
        match *self {}
    }

    pub(crate) fn send(&mut self, _: Raw<'_>, _: &mut [IoSlice<'_>]) -> Moved {
        match *self {}
    }

    pub(crate) fn close(&mut self, _: Raw<'_>) {
        match *self {}
    }
}
