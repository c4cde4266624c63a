//! Screens of a display adapter without a display server: kernel mode setting (KMS).
//!
//! The frames are the adapter's own memory (*dumb buffers*), as large as the screen's mode; the picture lies in the
//! middle, and black around it. The first frame is shown by setting the mode, each other one by a page flip, of which the
//! kernel tells by an event when the screen shows it: then the frame before is returned, and the display asks for the
//! next one. At most one flip is under way.
//!
//! - `card`: the adapter, its connectors and modes
//! - `damage`: the changed parts of a frame, for adapters that transfer them alone
//!
//! One process at a time drives a card (the DRM master); a card that a display server drives is refused. The
//! virtual terminal is left as it is. What the screen showed before is shown again when the window is dropped; if the
//! process is killed, the kernel brings back the text console.

mod card;
mod damage;

use crate::backend::{Backend, DisplayName, Events, PIXEL_BYTES, Rectangle, WindowOptions};
use crate::error::Error;
use crate::memory::Memory;
use bywash_container::DeviceMemory;
use card::{Card, Output};
use damage::{Clips, Pending};
use drm::buffer::{Buffer, DrmFourcc};
use drm::control::dumbbuffer::DumbBuffer;
use drm::control::{Device as _, Event, PageFlipFlags, framebuffer};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

pub(crate) use card::{first_card, screen_size};

/// Greatest number of reads of events at a time; each has up to 32 events.
const READS_MAX: usize = 8;
/// Interval between two looks at whether the screen is still connected.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A screen of a card that this process drives.
pub(crate) struct Screen {
    card: Card,
    name: DisplayName,
    output: Output,
    slots: Vec<Slot>,
    /// Distance of the frame's upper left corner from the screen's, in pixels.
    corner: (u32, u32),
    /// Slot that the screen shows.
    current: Option<usize>,
    /// Slot that the screen is to show next, and of whose flip the event has not come.
    pending: Option<usize>,
    /// True if the display asks for a frame, and [`Backend::dispatch`] has not said so.
    is_ready: bool,
    /// Way to tell the adapter what has changed; `None` if it cannot be told.
    clips: Option<Clips>,
    looked_at: Instant,
    /// Process that took the card: a forked child has the same open file, and must not give the screen back.
    maker: u32,
}

/// A dumb buffer, as the adapter knows it.
struct Slot {
    buffer: DumbBuffer,
    framebuffer: framebuffer::Handle,
    /// Changes since the adapter last showed this slot.
    changed: Pending,
}

/// Layout of the frames in their memory.
pub(crate) struct FrameLayout {
    /// Offset of the first pixel, in bytes.
    pub(crate) offset: usize,
    /// Distance between the beginnings of two rows, in bytes.
    pub(crate) row_bytes: usize,
}

impl Screen {
    /// Takes a card and makes the frames, which are black.
    ///
    /// # Errors
    /// Those of [`crate::Surface::open`].
    pub(crate) fn open(
        name: &DisplayName,
        options: &WindowOptions<'_>,
        frames: usize,
    ) -> Result<(Screen, Vec<Memory>, FrameLayout), Error> {
        let card = Card::open(name)?;
        let output = card.output(name, options.mode)?;
        card.take(name)?;
        let (across, down) = output.size();
        let (width, height) = (options.width, options.height);
        let (Some(left), Some(above)) = (across.checked_sub(width), down.checked_sub(height)) else {
            return Err(name.unsupported(format!(
                "frames of {width}x{height} pixels do not fit on a screen of {across}x{down}; scale them, or choose a \
                 larger mode"
            )));
        };
        let mut screen = Screen {
            card,
            name: name.clone(),
            output,
            slots: Vec::with_capacity(frames),
            corner: (left / 2, above / 2),
            current: None,
            pending: None,
            is_ready: true,
            clips: None,
            looked_at: Instant::now(),
            maker: std::process::id(),
        };
        let memories = (0..frames).map(|_| screen.add_slot()).collect::<Result<Vec<_>, _>>()?;
        let row_bytes = screen.slots[0].buffer.pitch() as usize;
        let (x, y) = (screen.corner.0 as usize, screen.corner.1 as usize);
        Ok((screen, memories, FrameLayout { offset: y * row_bytes + x * PIXEL_BYTES, row_bytes }))
    }

    /// Makes a dumb buffer of the screen's size, maps it, and makes it black.
    fn add_slot(&mut self) -> Result<Memory, Error> {
        let (width, height) = self.output.size();
        let failed = |error: io::Error| {
            self.name
                .unsupported(format!("a frame of {width}x{height} pixels of 32 bits is refused: {error}"))
        };
        let buffer =
            self.card.create_dumb_buffer((width, height), DrmFourcc::Xrgb8888, 32).map_err(failed)?;
        let framebuffer = match self.card.add_framebuffer(&buffer, 24, 32) {
            Ok(framebuffer) => framebuffer,
            Err(error) => {
                // The kernel frees it at the latest when the card is closed.
                let _ = self.card.destroy_dumb_buffer(buffer);
                return Err(failed(error));
            }
        };
        // From here on, dropping this value frees the buffer.
        self.slots.push(Slot { buffer, framebuffer, changed: Pending::default() });
        let offset = self.card.map_offset(&buffer).map_err(failed)?;
        let (row_bytes, rows) = (buffer.pitch() as usize, height as usize);
        let mut memory = DeviceMemory::map(self.card.as_fd(), offset, row_bytes * rows)?;
        for row in 0..rows {
            memory.write_words(row * row_bytes, (0..row_bytes / PIXEL_BYTES).map(|_| 0));
        }
        Ok(Memory::Adapter(memory))
    }

    /// Notes that the screen shows the slot whose flip was under way.
    fn note_flip(&mut self, events: &mut Events) {
        let Some(slot) = self.pending.take() else { return };
        events.returned.extend(self.current.replace(slot));
        self.is_ready = true;
    }

    /// Looks from time to time whether the screen is still connected: no event tells.
    fn check_connected(&mut self) -> Result<(), Error> {
        if self.looked_at.elapsed() < LOOK_INTERVAL {
            return Ok(());
        }
        self.looked_at = Instant::now();
        match self.card.is_connected(&self.output).map_err(|error| self.failed(error))? {
            true => Ok(()),
            false => {
                let unplugged = io::Error::new(io::ErrorKind::NotConnected, "its screen was unplugged");
                Err(self.name.gone(unplugged))
            }
        }
    }

    /// Returns the error for a request that failed.
    fn failed(&self, error: io::Error) -> Error {
        match Errno::from_io_error(&error) {
            Some(Errno::NODEV | Errno::NXIO | Errno::IO) => self.name.gone(error),
            Some(Errno::ACCESS) => {
                self.name.refused("another program drives the card now; end that one, or show frames there")
            }
            _ => self.name.refused(error.to_string()),
        }
    }

    /// Moves rectangles of the frame to their place on the screen.
    fn on_screen(&self, damage: &[Rectangle]) -> Vec<Rectangle> {
        let (x, y) = self.corner;
        damage.iter().map(|part| Rectangle { x: part.x + x, y: part.y + y, ..*part }).collect()
    }
}

impl Backend for Screen {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.card.as_fd()
    }

    fn dispatch(&mut self, events: &mut Events) -> Result<(), Error> {
        for _ in 0..READS_MAX {
            let read = match self.card.receive_events() {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(error)),
            };
            for event in read {
                if let Event::PageFlip(flip) = event
                    && flip.crtc == self.output.crtc
                {
                    self.note_flip(events);
                }
            }
        }
        events.is_ready |= std::mem::take(&mut self.is_ready);
        self.check_connected()
    }

    fn present(&mut self, slot: usize, damage: &[Rectangle]) -> Result<(), Error> {
        assert!(self.pending.is_none(), "a surface waits for a flip before it presents the next frame");
        let damage = self.on_screen(damage);
        self.slots.iter_mut().for_each(|slot| slot.changed.add(&damage));
        let framebuffer = self.slots[slot].framebuffer;
        let changed = self.slots[slot].changed.take();
        if self.current.is_none() {
            self.card.show(&self.output, framebuffer).map_err(|error| self.failed(error))?;
            self.clips = Clips::find(&self.card, self.output.crtc, framebuffer);
            self.current = Some(slot);
            self.is_ready = true;
            return Ok(());
        }
        let flipped = match (&self.clips, changed) {
            (Some(clips), Some(parts)) => clips.flip(&self.card, framebuffer, &parts),
            _ => self.card.page_flip(self.output.crtc, framebuffer, PageFlipFlags::EVENT, None),
        };
        flipped.map_err(|error| self.failed(error))?;
        self.pending = Some(slot);
        Ok(())
    }

    fn may_be_unseen(&self) -> bool {
        false
    }
}

impl Drop for Screen {
    /// Shows again what the screen showed before. An error is of no consequence: closing the card, which comes next,
    /// frees the frames, and the kernel brings back its console.
    fn drop(&mut self) {
        if self.maker != std::process::id() {
            return;
        }
        if self.current.is_some() {
            let _ = self.card.restore(&self.output);
        }
        for slot in self.slots.drain(..) {
            let _ = self.card.destroy_framebuffer(slot.framebuffer);
            let _ = self.card.destroy_dumb_buffer(slot.buffer);
        }
    }
}
