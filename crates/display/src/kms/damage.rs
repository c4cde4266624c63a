//! Changed parts of a frame, for adapters that transfer only those to the screen: of a virtual machine, or by USB.
//!
//! A flip tells them in the plane's property FB_DAMAGE_CLIPS. The kernel means the difference from the picture before;
//! some drivers keep a copy of each frame and take it for the difference from the same frame's last picture (virtio_gpu of
//! Linux 6.1). Both are right if the parts are told that have changed since this slot was shown last, as done here.

use super::card::Card;
use crate::backend::Rectangle;
use drm::control::atomic::AtomicModeReq;
use drm::control::{AtomicCommitFlags, Device as _, crtc, framebuffer, plane, property};
use drm::{ClientCapability, Device as _};
use std::io;

/// Greatest number of rectangles that are told; more count as the whole frame.
const PARTS_MAX: usize = 16;

/// Changes of a slot since it was last shown: `None` if all of it may have changed.
#[derive(Debug, Default)]
pub(super) struct Pending(Option<Vec<Rectangle>>);

impl Pending {
    /// Adds parts that have changed.
    pub(super) fn add(&mut self, parts: &[Rectangle]) {
        if let Some(all) = &mut self.0 {
            for part in parts {
                if !all.contains(part) {
                    all.push(*part);
                }
            }
            if all.len() > PARTS_MAX {
                self.0 = None;
            }
        }
    }

    /// Returns the changes, and notes that the slot is shown.
    pub(super) fn take(&mut self) -> Option<Vec<Rectangle>> {
        self.0.replace(Vec::new())
    }
}

/// The plane that shows the frames, and its properties.
pub(super) struct Clips {
    plane: plane::Handle,
    framebuffer: property::Handle,
    clips: property::Handle,
}

impl Clips {
    /// Finds the plane on which a CRTC shows a frame; `None` if it cannot be told of changed parts.
    pub(super) fn find(card: &Card, crtc: crtc::Handle, shown: framebuffer::Handle) -> Option<Clips> {
        card.set_client_capability(ClientCapability::Atomic, true).ok()?;
        let is_shown = |plane: &plane::Handle| {
            let info = card.get_plane(*plane);
            info.is_ok_and(|info| info.crtc() == Some(crtc) && info.framebuffer() == Some(shown))
        };
        let plane = card.plane_handles().ok()?.into_iter().find(is_shown)?;
        let properties = card.get_properties(plane).ok()?;
        let named = |name: &str| {
            let infos = properties.iter().filter_map(|(handle, _)| card.get_property(*handle).ok());
            let mut named = infos.filter(|info| info.name().to_bytes() == name.as_bytes());
            named.next().map(|info| info.handle())
        };
        Some(Clips { plane, framebuffer: named("FB_ID")?, clips: named("FB_DAMAGE_CLIPS")? })
    }

    /// Requests the flip to a frame, of which these parts have changed; an event tells when it is done.
    pub(super) fn flip(&self, card: &Card, to: framebuffer::Handle, parts: &[Rectangle]) -> io::Result<()> {
        // struct drm_mode_rect: left, top, right and bottom, the latter two exclusive.
        let edge = |side: u32| i32::try_from(side).unwrap_or(i32::MAX);
        let rectangles: Vec<[i32; 4]> = parts
            .iter()
            .map(|part| [part.x, part.y, part.x + part.width, part.y + part.height].map(edge))
            .collect();
        let blob = card.create_property_blob(rectangles.as_slice())?;
        let mut request = AtomicModeReq::new();
        request.add_property(self.plane, self.framebuffer, property::Value::Framebuffer(Some(to)));
        request.add_property(self.plane, self.clips, blob);
        let flags = AtomicCommitFlags::PAGE_FLIP_EVENT | AtomicCommitFlags::NONBLOCK;
        let flipped = card.atomic_commit(flags, request);
        // The flip keeps what it needs.
        card.destroy_property_blob(blob.into())?;
        flipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(x: u32) -> Rectangle {
        Rectangle { x, y: 0, width: 1, height: 1 }
    }

    #[test]
    fn a_slot_has_the_changes_since_it_was_shown() {
        let mut slot = Pending::default();
        slot.add(&[part(1)]);
        assert_eq!(slot.take(), None, "it was never shown");
        slot.add(&[part(2)]);
        slot.add(&[part(3), part(2)]);
        assert_eq!(slot.take(), Some(vec![part(2), part(3)]));
        assert_eq!(slot.take(), Some(vec![]));
    }

    #[test]
    fn too_many_changes_are_the_whole_frame() {
        let mut slot = Pending::default();
        slot.take();
        (0..=PARTS_MAX as u32).for_each(|x| slot.add(&[part(x)]));
        slot.add(&[part(0)]);
        assert_eq!(slot.take(), None);
    }
}
