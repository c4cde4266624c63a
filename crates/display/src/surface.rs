//! Surfaces: windows of a display whose frames are containers of a pool.
//!
//! Invariant: each frame is held by exactly one of the surface (free), the program (a [`Frame`]) and the display
//! server (presented and not yet returned). Rust's ownership keeps the program from a frame that the server holds,
//! and the pool keeps the surface from it.

use crate::backend::{
    Backend, DisplayName, Events, FrameMemory, PIXEL_BYTES, Rectangle, WindowOptions, wait_for,
};
use crate::error::Error;
use crate::kind::DisplayKind;
use crate::kms::{self, FrameLayout};
use crate::memory::{Memory, Shipped};
use crate::{wayland, x11};
use bywash_container::{MemoryRange, Pool, Trust};
use rustix::event::PollFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Greatest width and height of a surface, in pixels.
pub const SIDE_MAX: u32 = 16384;
/// Fewest and most frames of a surface: the server may hold the frame that is shown until the next one comes.
const FRAMES_MIN: usize = 2;
const FRAMES_MAX: usize = 16;
/// Time after a frame was presented at which the next one may follow though the display has not asked for it: a
/// compositor asks for no frames of a window that nobody sees.
const UNSEEN_INTERVAL: Duration = Duration::from_millis(100);

/// Options of a surface.
#[derive(Clone, Debug)]
pub struct SurfaceOptions {
    width: u32,
    height: u32,
    title: String,
    frames: usize,
    timeout: Duration,
    display: Option<String>,
    mode: Option<(u32, u32)>,
}

impl SurfaceOptions {
    /// Returns the defaults for a surface of this size, in pixels: three frames, a timeout of 5 s, and the
    /// display that the environment names.
    pub fn new(width: u32, height: u32) -> SurfaceOptions {
        let timeout = Duration::from_secs(5);
        let title = "bywash".into();
        SurfaceOptions { width, height, title, frames: 3, timeout, display: None, mode: None }
    }

    /// Sets the title of the window. Default "bywash".
    pub fn title(mut self, title: impl Into<String>) -> SurfaceOptions {
        self.title = title.into();
        self
    }

    /// Sets the number of frames, 2 to 16: of those that the program draws into, and those that the display
    /// server holds. Default 3.
    pub fn frames(mut self, frames: usize) -> SurfaceOptions {
        self.frames = frames;
        self
    }

    /// Sets the greatest time that the display server may take to answer or to return a frame. Default 5 s.
    pub fn timeout(mut self, timeout: Duration) -> SurfaceOptions {
        self.timeout = timeout;
        self
    }

    /// Names the display: for X11 as in `DISPLAY` (":0"), for Wayland its socket, by path or by name in
    /// `XDG_RUNTIME_DIR`, for KMS the path of the card. Default the one that the environment names, and for KMS the
    /// first card to which a screen is connected.
    pub fn display(mut self, name: impl Into<String>) -> SurfaceOptions {
        self.display = Some(name.into());
        self
    }

    /// Sets the size of the screen's mode, in pixels, for KMS alone. Default the mode that the screen prefers. A frame
    /// that is smaller lies in the middle.
    pub fn mode(mut self, width: u32, height: u32) -> SurfaceOptions {
        self.mode = Some((width, height));
        self
    }

    /// Finds the display that the options or the environment name.
    fn name(&self, kind: DisplayKind) -> Result<DisplayName, Error> {
        let named = self.display.clone().or_else(|| kind.named_by_environment());
        let name = match (named, kind.variable()) {
            (Some(name), _) => name,
            (None, Some(variable)) => {
                let what = format!("{variable} is not set; set it, or name the display");
                return Err(Error::NoDisplay(what));
            }
            (None, None) => kms::first_card()?,
        };
        Ok(DisplayName { kind, name })
    }

    fn check(&self) -> Result<(), Error> {
        let within = |option, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => {
                Err(Error::Option { option, value: value.to_string(), allowed: format!("{least} to {most}") })
            }
        };
        within("the width", self.width.into(), 1, SIDE_MAX.into())?;
        within("the height", self.height.into(), 1, SIDE_MAX.into())?;
        within("the number of frames", self.frames as u64, FRAMES_MIN as u64, FRAMES_MAX as u64)
    }
}

/// Counts of a surface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurfaceStats {
    /// Frames that were handed to the display server.
    pub presented: u64,
    /// Frames that the server has returned.
    pub returned: u64,
    /// Frames that followed though the display had not asked for them, since nobody sees the window.
    pub unseen: u64,
}

/// A window of a display, whose frames are containers.
///
/// Pixels are XRGB8888: words of 32 bits with blue in the lowest byte, then green, then red; the highest byte is
/// ignored. No other format is offered.
pub struct Surface {
    backend: Box<dyn Backend>,
    name: DisplayName,
    width: u32,
    height: u32,
    layout: FrameLayout,
    free: FreeFrames,
    /// Frames that the server holds, by slot.
    shipped: Vec<Option<Shipped>>,
    events: Events,
    timeout: Duration,
    /// Time at which the last frame was presented; `None` before the first one.
    presented_at: Option<Instant>,
    /// Time since which the surface waits for the server, while there is no frame for the program.
    waiting_since: Option<Instant>,
    stats: SurfaceStats,
}

/// Free frames by slot, to which a dropped [`Frame`] returns.
type FreeFrames = Arc<Mutex<Vec<(usize, Memory)>>>;

/// Opens a window of a display server, and makes its frames: containers of one arena.
fn open_window(
    name: &DisplayName,
    window: &WindowOptions<'_>,
    frames: usize,
) -> Result<(Box<dyn Backend>, Vec<Memory>), Error> {
    let WindowOptions { width, height, .. } = *window;
    if window.mode.is_some() {
        return Err(name.unsupported("its server chooses the mode of the screen; leave out the mode"));
    }
    let bytes = width as usize * height as usize * PIXEL_BYTES;
    // Room for the rounding of blocks: an eighth.
    let arena_bytes = (bytes + bytes / 8).next_multiple_of(4096) * frames;
    if arena_bytes > i32::MAX as usize {
        return Err(name.unsupported(format!(
            "{frames} frames of {width}x{height} pixels are more than 2 GiB; use fewer or smaller ones"
        )));
    }
    let is_x11 = name.kind == DisplayKind::X11;
    let pool = Pool::create(arena_bytes, if is_x11 { Trust::Reader } else { Trust::Writer })?;
    let containers = (0..frames).map(|_| pool.alloc(bytes)).collect::<Result<Vec<_>, _>>()?;
    let offsets: Vec<usize> = containers.iter().map(|container| container.memory().offset).collect();
    let memory = FrameMemory { descriptor: pool.as_fd(), bytes: pool.bytes(), offsets: &offsets };
    let backend: Box<dyn Backend> = match is_x11 {
        true => Box::new(x11::Window::open(name, window, &memory)?),
        false => Box::new(wayland::Window::open(name, window, &memory)?),
    };
    Ok((backend, containers.into_iter().map(Memory::Container).collect()))
}

impl Surface {
    /// Opens a window on a display of this kind. The window cannot be resized by the user.
    ///
    /// # Errors
    /// - [`Error::Option`] if an option has an invalid value.
    /// - [`Error::NoDisplay`] if no display is named; [`Error::Connect`] if it cannot be reached;
    ///   [`Error::Silent`] if it does not answer within the timeout.
    /// - [`Error::Unsupported`] if the display lacks something: the message says what.
    /// - [`Error::Memory`] if there is no memory for the frames.
    pub fn open(kind: DisplayKind, options: &SurfaceOptions) -> Result<Surface, Error> {
        options.check()?;
        let SurfaceOptions { width, height, frames, timeout, mode, .. } = *options;
        let name = options.name(kind)?;
        let window = WindowOptions { title: &options.title, width, height, mode, timeout };
        let (backend, memories, layout): (Box<dyn Backend>, _, _) = match kind {
            DisplayKind::Wayland | DisplayKind::X11 => {
                let (backend, memories) = open_window(&name, &window, frames)?;
                (backend, memories, FrameLayout { offset: 0, row_bytes: width as usize * PIXEL_BYTES })
            }
            DisplayKind::Kms => {
                let (screen, memories, layout) = kms::Screen::open(&name, &window, frames)?;
                (Box::new(screen), memories, layout)
            }
        };
        Ok(Surface {
            backend,
            name,
            width,
            height,
            layout,
            free: Arc::new(Mutex::new(memories.into_iter().enumerate().collect())),
            shipped: (0..frames).map(|_| None).collect(),
            events: Events::default(),
            timeout,
            presented_at: None,
            waiting_since: None,
            stats: SurfaceStats::default(),
        })
    }

    /// Returns width and height, in pixels, of the screen that a surface with these options would have for itself;
    /// `None` if it would share a screen with other windows. For a program that draws as large as the screen.
    ///
    /// # Errors
    /// Those of [`Surface::open`] that concern a card and its mode.
    pub fn screen_size(kind: DisplayKind, options: &SurfaceOptions) -> Result<Option<(u32, u32)>, Error> {
        match kind {
            DisplayKind::Wayland | DisplayKind::X11 => Ok(None),
            DisplayKind::Kms => kms::screen_size(&options.name(kind)?, options.mode).map(Some),
        }
    }

    /// Returns the width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Returns the kind of the display.
    pub fn kind(&self) -> DisplayKind {
        self.name.kind
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> SurfaceStats {
        self.stats
    }

    /// Returns a frame to draw into, and waits until the display asks for one and a frame is free. The contents
    /// are those of an older frame.
    ///
    /// # Errors
    /// Same as [`Surface::try_frame`].
    pub fn frame(&mut self) -> Result<Frame, Error> {
        loop {
            if let Some(frame) = self.try_frame()? {
                return Ok(frame);
            }
            self.wait(Instant::now() + UNSEEN_INTERVAL)?;
        }
    }

    /// Like [`Surface::frame`], but waits no longer than `limit`: `None` if there is no frame then.
    ///
    /// # Errors
    /// Same as [`Surface::try_frame`].
    pub fn frame_within(&mut self, limit: Duration) -> Result<Option<Frame>, Error> {
        let begin = Instant::now();
        loop {
            let left = limit.saturating_sub(begin.elapsed());
            match self.try_frame()? {
                None if !left.is_zero() => self.wait(Instant::now() + left.min(UNSEEN_INTERVAL))?,
                other => return Ok(other),
            }
        }
    }

    /// Like [`Surface::frame`], but does not wait: `None` if the display has not asked for a frame yet, or holds
    /// all of them. Then the descriptor of [`AsFd`] becomes readable, or 100 ms pass, before there is one: a
    /// compositor asks for no frames of a window that nobody sees, and such a window goes on slowly.
    ///
    /// # Errors
    /// - [`Error::Closed`] if the user closed the window.
    /// - [`Error::Gone`] if the display server died or closed the connection.
    /// - [`Error::Refused`] if it refused a request.
    /// - [`Error::NotReturned`] if it has held all frames for the timeout, [`Error::Silent`] if it has not shown
    ///   the window within it.
    /// - [`Error::AllTaken`] if this program holds all frames that the server does not hold.
    pub fn try_frame(&mut self) -> Result<Option<Frame>, Error> {
        self.dispatch()?;
        let is_paced = self.events.is_ready || self.is_unseen();
        let free = if is_paced { lock(&self.free).pop() } else { None };
        let Some((slot, memory)) = free else {
            self.check_timeout(is_paced)?;
            return Ok(None);
        };
        self.waiting_since = None;
        let FrameLayout { offset, row_bytes } = self.layout;
        Ok(Some(Frame {
            slot,
            memory: Some(memory),
            width: self.width,
            height: self.height,
            offset,
            row_bytes,
            home: self.free.clone(),
        }))
    }

    /// Hands a frame to the display server without a copy. `damage` are the rectangles in which it differs from
    /// the frame before; empty for all of it. The server may read it until it returns it, and shows it as long as
    /// no other frame is presented.
    ///
    /// # Errors
    /// [`Error::OtherSurface`] for a frame of another surface; otherwise those of [`Surface::try_frame`] that
    /// concern the server.
    pub fn present(&mut self, mut frame: Frame, damage: &[Rectangle]) -> Result<(), Error> {
        if !Arc::ptr_eq(&frame.home, &self.free) {
            return Err(Error::OtherSurface);
        }
        let whole = [Rectangle { x: 0, y: 0, width: self.width, height: self.height }];
        let cut: Vec<Rectangle> =
            damage.iter().filter_map(|one| one.within(self.width, self.height)).collect();
        let damage = if cut.is_empty() { &whole[..] } else { &cut };
        if !self.events.is_ready && self.presented_at.is_some() {
            self.stats.unseen += 1;
        }
        let Some(memory) = frame.memory.take() else { return Ok(()) };
        self.shipped[frame.slot] = Some(memory.ship());
        self.events.is_ready = false;
        self.presented_at = Some(Instant::now());
        self.stats.presented += 1;
        self.backend.present(frame.slot, damage)
    }

    /// Waits until the display server has sent something, or the time `until` has come.
    ///
    /// # Errors
    /// [`Error::Io`] if poll(2) fails.
    pub fn wait(&self, until: Instant) -> Result<(), Error> {
        wait_for(self.backend.descriptor(), PollFlags::IN, until)
            .map(drop)
            .map_err(|source| Error::Io { what: "wait for the display server", source })
    }

    /// Waits until the display has asked for another frame after the last one, so that the last one has been
    /// shown; at most for the timeout. A window that nobody sees counts as shown.
    ///
    /// # Errors
    /// Same as [`Surface::try_frame`].
    pub fn finish(&mut self) -> Result<(), Error> {
        loop {
            self.dispatch()?;
            let Some(presented_at) = self.presented_at else { return Ok(()) };
            if self.events.is_ready || self.is_unseen() {
                return Ok(());
            }
            if presented_at.elapsed() >= self.timeout {
                return Err(self.name.silent("shown the frame", self.timeout));
            }
            self.wait(Instant::now() + UNSEEN_INTERVAL)?;
        }
    }

    /// Reads what the server has sent, answers it, and takes back the frames that it has returned, without waiting:
    /// for a program that draws nothing for a while. [`Surface::try_frame`] does the same.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Gone`] and [`Error::Refused`], as [`Surface::try_frame`].
    pub fn dispatch(&mut self) -> Result<(), Error> {
        self.backend.dispatch(&mut self.events)?;
        for slot in self.events.returned.drain(..) {
            if let Some(shipped) = self.shipped[slot].take() {
                self.stats.returned += 1;
                lock(&self.free).push((slot, shipped.returned()));
            }
        }
        if self.events.is_closed { Err(Error::Closed) } else { Ok(()) }
    }

    /// Returns true if the display has not asked for a frame for so long that nobody can be seeing the window.
    fn is_unseen(&self) -> bool {
        self.backend.may_be_unseen() && self.presented_at.is_some_and(|at| at.elapsed() >= UNSEEN_INTERVAL)
    }

    /// Checks that the wait for the server has not taken too long.
    fn check_timeout(&mut self, is_paced: bool) -> Result<(), Error> {
        let shipped = self.shipped.iter().flatten().count();
        if is_paced && shipped < FRAMES_MIN && shipped < self.shipped.len() {
            return Err(Error::AllTaken(self.shipped.len() - shipped));
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        if since.elapsed() < self.timeout {
            return Ok(());
        }
        let (DisplayName { kind, name }, timeout) = (self.name.clone(), self.timeout);
        match is_paced {
            true => Err(Error::NotReturned { kind, name, shipped, timeout }),
            false if self.presented_at.is_some() => Err(self.name.silent("shown the frame", timeout)),
            false => Err(self.name.silent("shown the window", timeout)),
        }
    }
}

/// The descriptor is readable when the display server has sent something: see [`Surface::try_frame`].
impl AsFd for Surface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.backend.descriptor()
    }
}

impl std::fmt::Debug for Surface {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Surface")
            .field("display", &self.name)
            .field("width", &self.width)
            .field("height", &self.height)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

fn lock(free: &FreeFrames) -> std::sync::MutexGuard<'_, Vec<(usize, Memory)>> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A frame that the program draws into. Dropping it gives it back to the surface without showing it.
#[derive(Debug)]
pub struct Frame {
    slot: usize,
    /// The memory; `None` once the frame was presented.
    memory: Option<Memory>,
    width: u32,
    height: u32,
    /// Offset of the first pixel in the memory, in bytes.
    offset: usize,
    row_bytes: usize,
    home: FreeFrames,
}

impl Frame {
    /// Returns the width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Returns the distance between the beginnings of two rows, in bytes. With KMS there are other pixels in between, if
    /// the frame is smaller than the screen.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns the number of bytes from the first pixel up to the end of the last one.
    pub fn len(&self) -> usize {
        (self.height as usize - 1) * self.row_bytes + self.width as usize * PIXEL_BYTES
    }

    /// Returns false: a frame has at least one pixel.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores pixels in row `y`, from column `x` on, straight into the memory that the server reads.
    ///
    /// # Panics
    /// If they do not fit into the row.
    #[inline]
    pub fn write_pixels(&mut self, x: u32, y: u32, pixels: impl ExactSizeIterator<Item = u32>) {
        let left = self.width.checked_sub(x).filter(|_| y < self.height);
        assert!(
            left.is_some_and(|left| pixels.len() <= left as usize),
            "{} pixels from ({x}, {y}) on do not fit into a frame of {}x{}",
            pixels.len(),
            self.width,
            self.height
        );
        let offset = y as usize * self.row_bytes + x as usize * PIXEL_BYTES;
        let at = self.offset + offset;
        self.memory().write_words(at, pixels);
    }

    /// Copies bytes into the memory, from `offset` bytes behind the frame's beginning on: for pixels that lie in
    /// memory already.
    ///
    /// # Panics
    /// If they do not fit into the frame.
    #[inline]
    pub fn write_bytes(&mut self, offset: usize, bytes: &[u8]) {
        let length = self.len();
        assert!(
            offset <= length && bytes.len() <= length - offset,
            "{} bytes from {offset} on do not fit into a frame of {length}",
            bytes.len()
        );
        let at = self.offset + offset;
        self.memory().write(at, bytes);
    }

    /// Sets all pixels.
    pub fn fill(&mut self, pixel: u32) {
        for y in 0..self.height {
            self.write_pixels(0, y, (0..self.width as usize).map(|_| pixel));
        }
    }

    /// Returns the address of the first pixel, for a program that stores through pointers: [`Frame::len`] bytes, rows
    /// [`Frame::row_bytes`] apart. The display server or the adapter may access them, so that there must be no reference
    /// to them, and no store once the frame was presented or dropped.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        let offset = self.offset;
        self.memory().as_mut_ptr().wrapping_add(offset)
    }

    /// Returns descriptor, offset and length of the memory of [`Frame::len`] bytes from the first pixel on, for a process
    /// that maps it by itself. With KMS the descriptor is that of the card.
    pub fn memory_range(&mut self) -> MemoryRange<'_> {
        let (offset, length) = (self.offset, self.len());
        let whole = self.memory().range();
        MemoryRange { offset: whole.offset + offset, length, ..whole }
    }

    /// Returns the bytes, if nobody else can write them: on X11, whose server attaches a sealed arena.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.memory().bytes_mut()
    }

    fn memory(&mut self) -> &mut Memory {
        match &mut self.memory {
            Some(memory) => memory,
            None => unreachable!("a frame has its memory until `Surface::present` consumes it"),
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            lock(&self.home).push((self.slot, memory));
        }
    }
}
