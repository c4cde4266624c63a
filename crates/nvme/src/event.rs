//! Events that a controller reports, or that the driver notices.

use std::fmt;

/// Event of a controller (Base Specification 2.0, section 5.2 "Asynchronous Event Request command"), or of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Attributes of a namespace have changed, for example its size. The device keeps the size that it had when it was
    /// opened.
    NamespaceChanged,
    /// A temperature has passed a threshold.
    Temperature,
    /// The spare blocks have become fewer than the threshold.
    SpareLow,
    /// The controller has become unreliable by errors of its memory or inside.
    Unreliable,
    /// Another event, by its type, its information and the log page that describes it.
    Other {
        /// Asynchronous event type, 0 to 7.
        kind: u8,
        /// Asynchronous event information.
        information: u8,
        /// Identifier of the log page.
        page: u8,
    },
    /// The driver has reset the controller; commands in flight are repeated.
    Reset(ResetReason),
    /// The kernel requests the release of the function, for example because it is to be removed: the device should be dropped.
    ReleaseRequested,
}

/// Reason why the driver reset a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetReason {
    /// The controller reported a fatal error (CSTS.CFS).
    Fatal,
    /// A command did not complete in time, and an Abort command did not end it.
    Timeout,
}

impl Event {
    /// Returns the event that double word 0 of a completed Asynchronous Event Request tells.
    pub(crate) fn from_completion(value: u32) -> Event {
        let (kind, information, page) = ((value & 7) as u8, (value >> 8) as u8, (value >> 16) as u8);
        match (kind, information) {
            (1, 0) => Event::Unreliable,
            (1, 1) => Event::Temperature,
            (1, 2) => Event::SpareLow,
            (2, 0) => Event::NamespaceChanged,
            _ => Event::Other { kind, information, page },
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::NamespaceChanged => out.write_str("attributes of a namespace have changed"),
            Event::Temperature => out.write_str("a temperature has passed its threshold"),
            Event::SpareLow => out.write_str("few spare blocks are left"),
            Event::Unreliable => out.write_str("the controller has become unreliable"),
            Event::Other { kind, information, page } => {
                write!(
                    out,
                    "an event of type {kind:#x} with information {information:#x}, described by log page {page:#x}"
                )
            }
            Event::Reset(ResetReason::Fatal) => {
                out.write_str("the controller had a fatal error and was reset")
            }
            Event::Reset(ResetReason::Timeout) => {
                out.write_str("a command did not complete, and the controller was reset")
            }
            Event::ReleaseRequested => out.write_str("the kernel requests the release of the controller"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_named() {
        assert_eq!(Event::from_completion(0x0004_0002), Event::NamespaceChanged);
        assert_eq!(Event::from_completion(0x0002_0101), Event::Temperature);
        assert_eq!(Event::from_completion(0x0001_0300), Event::Other { kind: 0, information: 3, page: 1 });
    }
}
