//! The label of a device: the identity that is written on the device, by which it is recognised.
//!
//! A name and a size do not identify a device: if two files of one size were exchanged, users of each would
//! see the volumes of the other. So the store recognises a device by the [`DeviceId`] in its label.
//!
//! Invariant: of the two places for labels, [`Label::choose`] reads the one that was written last, and
//! [`Label::place`] gives the other one to the next label. Called by the server when it starts, and by the
//! commands that change labels.

mod layout;

pub use layout::{LABEL_BYTES, LABEL_NAME_BYTES_MAX, LABEL_OFFSETS, RESERVED_BYTES};

use crate::extent::Bytes;
use crate::identity::DeviceId;

/// Contents of a device's label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Identity of the device.
    pub id: DeviceId,
    /// Name of the device when the label was written.
    pub name: String,
    /// Size of the device when the label was written, in bytes.
    pub size: Bytes,
    /// Time at which the device got its identity, in seconds since 1970.
    pub created_s: u64,
    /// Number of this label among those that were written to the device.
    pub sequence: u64,
    /// True if the device's volumes ended with its server, which had no store in a file.
    pub is_temporary: bool,
}

/// Error for a label that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The label is not as it was written.
    #[error("its label is damaged: {0}")]
    Damaged(&'static str),
    /// A later version wrote the label.
    #[error("its label has version {found}, and this program knows {known}; use the version that wrote it")]
    Newer {
        /// Version of the label.
        found: u32,
        /// Latest version that is known here.
        known: u32,
    },
}

impl Label {
    /// Chooses the label that was written last from the contents of the two places. `None` if neither has a
    /// label.
    ///
    /// # Errors
    /// [`LabelError::Newer`] if a later version wrote either label; [`LabelError::Damaged`] if neither label
    /// is valid and at least one is damaged.
    pub fn choose(places: &[[u8; LABEL_BYTES]; 2]) -> Result<Option<Label>, LabelError> {
        let read = places.each_ref().map(Label::from_bytes);
        if let Some(newer) = read.iter().find(|read| matches!(read, Err(LabelError::Newer { .. }))) {
            return newer.clone();
        }
        let last = read.iter().flatten().flatten().max_by_key(|label| label.sequence);
        match last {
            Some(label) => Ok(Some(label.clone())),
            None => read.into_iter().find(Result::is_err).unwrap_or(Ok(None)),
        }
    }

    /// Returns the place of this label, as an index of [`LABEL_OFFSETS`]. The place differs from the previous
    /// label's.
    pub fn slot_index(&self) -> usize {
        (self.sequence % 2) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(sequence: u64) -> Label {
        let id = DeviceId::from_bytes([7; 16]).unwrap();
        Label { id, name: "disk".into(), size: Bytes(4096), created_s: 1, sequence, is_temporary: false }
    }

    /// After a write that is torn at any byte, either the previous label or the new one is read.
    #[test]
    fn a_torn_write_leaves_one_of_two_labels() {
        let mut places = [[0; LABEL_BYTES]; 2];
        for sequence in 0..6 {
            let next = label(sequence);
            let written = next.to_bytes();
            for torn_at in 1..LABEL_BYTES {
                let mut torn = places;
                torn[next.slot_index()][..torn_at].copy_from_slice(&written[..torn_at]);
                let found = Label::choose(&torn);
                let before = sequence.checked_sub(1).map(label);
                // A device's first label has no previous one.
                let is_known_torn = before.is_none() && matches!(found, Err(LabelError::Damaged(_)));
                assert!(
                    is_known_torn || found == Ok(before.clone()) || found == Ok(Some(next.clone())),
                    "{sequence}, torn at {torn_at}: {found:?}"
                );
            }
            places[next.slot_index()] = written;
            assert_eq!(Label::choose(&places), Ok(Some(next)));
        }
    }

    #[test]
    fn a_label_of_a_later_version_is_never_passed_over() {
        let mut newer = label(0).to_bytes();
        newer[8] = 9;
        let check = layout::crc32c(&newer[..508]);
        newer[508..].copy_from_slice(&check.to_le_bytes());
        let found = Label::choose(&[newer, label(1).to_bytes()]);
        assert_eq!(found, Err(LabelError::Newer { found: 9, known: 1 }));
    }
}
