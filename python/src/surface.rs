//! Surfaces: windows of a display, or screens, whose frames are memory that the display has mapped.

use crate::errors::{closed, display_exception, from_text};
use crate::options::one_of;
use crate::pool::plain;
use crate::records::{memory_range, record};
use crate::view::{ViewSlot, Writable};
use crate::waiting::Deadline;
use bywash_display::{DisplayKind, Error, Rectangle, SurfaceOptions};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Kinds of displays by their names.
const KINDS: [(&str, DisplayKind); 3] =
    [("wayland", DisplayKind::Wayland), ("x11", DisplayKind::X11), ("kms", DisplayKind::Kms)];

/// Window of a display whose frames are memory that the display has mapped, so that nothing is copied to it.
///
/// ``kind`` is ``"wayland"``, ``"x11"``, ``"kms"`` (a screen without a display server), or None for the display that the
/// environment names. ``name`` names the display, as ``DISPLAY`` or ``WAYLAND_DISPLAY`` do, or a card of ``/dev/dri``.
/// ``frames`` is the number of frames, 2 to 16; ``timeout`` the greatest number of seconds that the display may take to
/// answer or to return a frame; ``mode`` the width and height of a screen's mode, for ``"kms"`` alone.
///
/// Pixels are words of 32 bits: a byte of blue, one of green, one of red, and one that is ignored.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Surface {
    surface: Mutex<Option<bywash_display::Surface>>,
}

impl Surface {
    /// Calls `work` with the surface, without the interpreter.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut bywash_display::Surface) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let done = py.detach(|| {
            let mut surface = self.surface.lock().unwrap_or_else(PoisonError::into_inner);
            surface.as_mut().map(work)
        });
        done.ok_or_else(|| closed("surface"))?.map_err(|error| display_exception(py, error))
    }

    fn frame_until(&self, py: Python<'_>, limit: Deadline) -> PyResult<Option<Frame>> {
        loop {
            let (slice, is_last) = limit.next();
            let found = self.with(py, |surface| surface.frame_within(slice))?;
            match found {
                Some(frame) => return Ok(Some(Frame { frame: ViewSlot::new("frame", frame) })),
                None if is_last => return Ok(None),
                None => py.check_signals()?,
            }
        }
    }
}

#[pymethods]
impl Surface {
    #[new]
    #[pyo3(
        signature = (width, height, *, kind=None, name=None, title="bywash", frames=3, timeout=5.0, mode=None),
        text_signature = "(width, height, *, kind=None, name=None, title='bywash', frames=3, timeout=5.0, mode=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords")]
    fn new(
        py: Python<'_>,
        width: u32,
        height: u32,
        kind: Option<&Bound<'_, PyAny>>,
        name: Option<&str>,
        title: &str,
        frames: usize,
        timeout: f64,
        mode: Option<(u32, u32)>,
    ) -> PyResult<Surface> {
        let kind = match kind {
            Some(kind) => one_of("kind", kind, &KINDS)?,
            None => DisplayKind::detect().ok_or_else(|| {
                let what =
                    "neither WAYLAND_DISPLAY nor DISPLAY is set; set one, or name the kind of the display";
                display_exception(py, Error::NoDisplay(what.into()))
            })?,
        };
        let timeout = Duration::try_from_secs_f64(timeout).map_err(|_| {
            PyValueError::new_err(format!(
                "the timeout is {timeout}, and must be a number of seconds from 0 on"
            ))
        })?;
        let mut options = SurfaceOptions::new(width, height).title(title).frames(frames).timeout(timeout);
        if let Some(name) = name {
            options = options.display(name);
        }
        if let Some((width, height)) = mode {
            options = options.mode(width, height);
        }
        let surface = py.detach(|| bywash_display::Surface::open(kind, &options));
        let surface = surface.map_err(|error| display_exception(py, error))?;
        Ok(Surface { surface: Mutex::new(Some(surface)) })
    }

    /// Width, in pixels.
    #[getter]
    fn width(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |surface| Ok(surface.width()))
    }

    /// Height, in pixels.
    #[getter]
    fn height(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |surface| Ok(surface.height()))
    }

    /// Kind of the display: ``"wayland"``, ``"x11"`` or ``"kms"``.
    #[getter]
    fn kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |surface| Ok(surface.kind().name()))
    }

    /// Waits at most ``timeout`` seconds until the display asks for a frame and one is free, and returns it. Its bytes are
    /// those of an older frame. Raises ``TimedOut`` if there is none then, or if the display has returned none within the
    /// surface's own timeout; ``Closed`` if the user closed the window; ``DisplayGone`` if the display server died or the
    /// screen was unplugged; ``NoRoomError`` if this program holds all frames.
    #[pyo3(signature = (timeout=None))]
    fn frame(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Frame> {
        let found = self.frame_until(py, Deadline::after(timeout)?)?;
        found.ok_or_else(|| {
            from_text(py, "TimedOut", "the display asked for no frame within the timeout".into())
        })
    }

    /// Returns a frame if the display asks for one and one is free, else None. Then ``fileno()`` becomes readable, or 100
    /// ms pass, before there is one.
    fn try_frame(&self, py: Python<'_>) -> PyResult<Option<Frame>> {
        self.frame_until(py, Deadline::after(Some(0.0))?)
    }

    /// Hands a frame to the display without a copy. ``damage`` are rectangles (x, y, width, height) in which it differs
    /// from the frame before; without any, all of it does. Raises ``BufferError`` while views of the frame exist.
    #[pyo3(signature = (frame, damage=Vec::new()), text_signature = "($self, frame, damage=())")]
    fn present(
        &self,
        py: Python<'_>,
        frame: &Bound<'_, Frame>,
        damage: Vec<(u32, u32, u32, u32)>,
    ) -> PyResult<()> {
        let rectangle = |(x, y, width, height)| Rectangle { x, y, width, height };
        let damage: Vec<Rectangle> = damage.into_iter().map(rectangle).collect();
        if self.surface.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Err(closed("surface"));
        }
        let frame = frame.get().frame.take("presented")?;
        self.with(py, |surface| surface.present(frame, &damage))
    }

    /// Waits until the display has asked for another frame after the last one, so that the last one has been shown.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |surface| surface.finish())
    }

    /// Handles what the display has sent, without waiting: for a program that draws nothing for a while.
    fn dispatch(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |surface| surface.dispatch())
    }

    /// Descriptor that is readable when the display has sent something, for an event loop.
    fn fileno(&self, py: Python<'_>) -> PyResult<RawFd> {
        self.with(py, |surface| Ok(surface.as_fd().as_raw_fd()))
    }

    /// Counts so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let known = self.with(py, |surface| Ok(surface.stats()))?;
        record!(py, "bywash.records", "SurfaceStats", {
            presented: known.presented,
            returned: known.returned,
            unseen: known.unseen,
        })
        .map(Bound::into_any)
    }

    /// Closes the window, or gives the screen back. Frames that this program holds can still be drawn into.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let surface = self.surface.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(surface);
        });
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, py: Python<'_>, _why: &Bound<'_, PyAny>) {
        self.close(py);
    }
}

impl Writable for bywash_display::Frame {
    fn range(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }
}

/// Frame of a surface, which a program draws into. ``Surface.frame`` returns it.
///
/// It is a writable buffer: ``memoryview(frame)`` gives its bytes without a copy. Rows begin ``row_bytes`` bytes apart. A
/// display server may write the bytes as well, so do not rely on what they hold. A frame that was presented belongs to the
/// display; one that was not goes back to the surface with its last reference, or by ``free()``.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Frame {
    frame: ViewSlot<bywash_display::Frame>,
}

#[pymethods]
impl Frame {
    /// Width, in pixels.
    #[getter]
    fn width(&self) -> PyResult<u32> {
        self.frame.look(|frame| frame.width())
    }

    /// Height, in pixels.
    #[getter]
    fn height(&self) -> PyResult<u32> {
        self.frame.look(|frame| frame.height())
    }

    /// Distance between the beginnings of two rows, in bytes: at least ``4 * width``.
    #[getter]
    fn row_bytes(&self) -> PyResult<usize> {
        self.frame.look(|frame| frame.row_bytes())
    }

    fn __len__(&self) -> PyResult<usize> {
        self.frame.look(|frame| frame.len())
    }

    /// Descriptor, offset and length of the memory, for a process that maps it by itself.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        memory_range(py, self.frame.look(|frame| plain(frame.memory_range()))?)
    }

    /// Gives the frame back without showing it. Does nothing if it was presented or given back before.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        match self.frame.take("given back") {
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(()),
            other => other.map(drop),
        }
    }

    fn __repr__(&self) -> String {
        format!("<bywash.Frame: {}>", self.frame.describe())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: Python passes a view to fill for `slf`, which owns the slot and releases it below.
        unsafe { slf.get().frame.fill(slf.as_any(), view, flags) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.frame.release();
    }
}
