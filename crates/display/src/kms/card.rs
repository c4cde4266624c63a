//! Display adapters (cards), the screens that are connected to them, and their modes.

use crate::backend::DisplayName;
use crate::error::Error;
use crate::kind::DisplayKind;
use drm::buffer::Buffer;
use drm::control::dumbbuffer::DumbBuffer;
use drm::control::{Device as _, Mode, ModeTypeFlags, ResourceHandles};
use drm::control::{connector, crtc, encoder, framebuffer};
use drm::{Device as _, DriverCapability};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Folder of the cards.
const FOLDER: &str = "/dev/dri";

/// A display adapter that is open, without blocking reads.
pub(super) struct Card(File);

impl AsFd for Card {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl drm::Device for Card {}
impl drm::control::Device for Card {}

/// A connected screen, with the mode that it is to have and the part of the adapter that drives it (CRTC).
pub(super) struct Output {
    connector: connector::Handle,
    pub(super) crtc: crtc::Handle,
    mode: Mode,
    before: crtc::Info,
    /// Connectors of the screens that showed the same before.
    connectors_before: Vec<connector::Handle>,
}

impl Output {
    /// Returns width and height of the mode, in pixels.
    pub(super) fn size(&self) -> (u32, u32) {
        size(&self.mode)
    }
}

fn size(mode: &Mode) -> (u32, u32) {
    let (width, height) = mode.size();
    (width.into(), height.into())
}

/// Returns the path of the first card that has a screen connected.
///
/// # Errors
/// [`Error::NoDisplay`] if there is none.
pub(crate) fn first_card() -> Result<String, Error> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let mut cards: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("card")))
        .collect();
    cards.sort();
    let mut refused = String::new();
    for path in &cards {
        let name = DisplayName { kind: DisplayKind::Kms, name: path.to_string_lossy().into_owned() };
        match Card::open(&name).and_then(|card| card.connected(&name)) {
            Ok(_) => return Ok(name.name),
            Err(error) => refused += &format!("; {error}"),
        }
    }
    Err(Error::NoDisplay(match cards.is_empty() {
        true => format!("{FOLDER} has no card: load the driver of the display adapter"),
        false => format!("no card of {FOLDER} has a screen that can be used{refused}"),
    }))
}

/// Returns width and height that the mode of a card's screen has, in pixels.
///
/// # Errors
/// Those of [`crate::Surface::open`] for a card.
pub(crate) fn screen_size(name: &DisplayName, mode: Option<(u32, u32)>) -> Result<(u32, u32), Error> {
    let card = Card::open(name)?;
    let connector = card.connected(name)?;
    Ok(size(&choose(&connector, mode).map_err(|what| name.unsupported(what))?))
}

impl Card {
    /// Opens a card.
    pub(super) fn open(name: &DisplayName) -> Result<Card, Error> {
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&name.name);
        let card = Card(file.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                let hint = "permission denied: be a member of the group 'video', or root";
                name.not_connected(io::Error::new(error.kind(), hint))
            }
            _ => name.not_connected(error),
        })?);
        match card.get_driver_capability(DriverCapability::DumbBuffer) {
            Ok(1..) => Ok(card),
            Ok(0) => {
                Err(name.unsupported("its driver has no frames that a program can write (dumb buffers)"))
            }
            Err(error) => Err(name.unsupported(format!("it is no display adapter ({error})"))),
        }
    }

    /// Becomes the one process that drives the card.
    pub(super) fn take(&self, name: &DisplayName) -> Result<(), Error> {
        self.acquire_master_lock().map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::BUSY | Errno::ACCESS) => name.unsupported(
                "another program drives the card, such as a display server; show frames there (wayland or x11), or end it",
            ),
            _ => name.refused(format!("it cannot be taken: {error}")),
        })
    }

    /// Returns the first connector with a screen.
    fn connected(&self, name: &DisplayName) -> Result<connector::Info, Error> {
        let failed = |error: io::Error| name.unsupported(format!("it has no screens ({error})"));
        let resources = self.resource_handles().map_err(failed)?;
        for handle in resources.connectors() {
            let connector = self.get_connector(*handle, true).map_err(failed)?;
            if connector.state() == connector::State::Connected && !connector.modes().is_empty() {
                return Ok(connector);
            }
        }
        Err(name.unsupported("no screen is connected to it"))
    }

    /// Finds the screen, its mode and the part of the card that can drive it.
    pub(super) fn output(&self, name: &DisplayName, mode: Option<(u32, u32)>) -> Result<Output, Error> {
        let connector = self.connected(name)?;
        let mode = choose(&connector, mode).map_err(|what| name.unsupported(what))?;
        let failed = |error: io::Error| name.unsupported(format!("its screen cannot be driven ({error})"));
        let resources = self.resource_handles().map_err(failed)?;
        let encoders = self.encoders(&resources).map_err(failed)?;
        let crtc = self
            .crtc(&connector, &resources, &encoders)
            .ok_or_else(|| name.unsupported("all that could drive its screen drives others"))?;
        let shows_same = |(_, encoder): &&(connector::Handle, encoder::Info)| encoder.crtc() == Some(crtc);
        let connectors_before = encoders.iter().filter(shows_same).map(|(connector, _)| *connector).collect();
        let before = self.get_crtc(crtc).map_err(failed)?;
        Ok(Output { connector: connector.handle(), crtc, mode, before, connectors_before })
    }

    /// Returns the encoder of each connector that has one at present.
    fn encoders(&self, resources: &ResourceHandles) -> io::Result<Vec<(connector::Handle, encoder::Info)>> {
        let mut all = Vec::new();
        for handle in resources.connectors() {
            if let Some(encoder) = self.get_connector(*handle, false)?.current_encoder() {
                all.push((*handle, self.get_encoder(encoder)?));
            }
        }
        Ok(all)
    }

    /// Returns the CRTC that drives a connector, or else one that can and drives no other.
    fn crtc(
        &self,
        connector: &connector::Info,
        resources: &ResourceHandles,
        encoders: &[(connector::Handle, encoder::Info)],
    ) -> Option<crtc::Handle> {
        let is_own = |(handle, _): &&(connector::Handle, encoder::Info)| *handle == connector.handle();
        let own = encoders.iter().find(is_own).and_then(|(_, encoder)| encoder.crtc());
        let is_free =
            |crtc: &crtc::Handle| !encoders.iter().any(|(_, encoder)| encoder.crtc() == Some(*crtc));
        let possible = || {
            let encoders = connector.encoders().iter().filter_map(|handle| self.get_encoder(*handle).ok());
            let mut all = encoders.flat_map(|encoder| resources.filter_crtcs(encoder.possible_crtcs()));
            all.find(is_free)
        };
        own.or_else(possible)
    }

    /// Returns the offset at which a buffer can be mapped.
    pub(super) fn map_offset(&self, buffer: &DumbBuffer) -> io::Result<u64> {
        let handle = u32::from(buffer.handle());
        Ok(drm_ffi::mode::dumbbuffer::map(self.as_fd(), handle, 0, 0)?.offset)
    }

    /// Returns true if the screen is still connected, as far as the kernel has noticed.
    pub(super) fn is_connected(&self, output: &Output) -> io::Result<bool> {
        let connector = self.get_connector(output.connector, false)?;
        Ok(connector.state() != connector::State::Disconnected)
    }

    /// Sets the mode and shows a frame.
    pub(super) fn show(&self, output: &Output, framebuffer: framebuffer::Handle) -> io::Result<()> {
        self.set_crtc(output.crtc, Some(framebuffer), (0, 0), &[output.connector], Some(output.mode))
    }

    /// Shows what was shown before.
    pub(super) fn restore(&self, output: &Output) -> io::Result<()> {
        let Output { before, connectors_before, .. } = output;
        match before.mode() {
            Some(mode) if !connectors_before.is_empty() => self.set_crtc(
                output.crtc,
                before.framebuffer(),
                before.position(),
                connectors_before,
                Some(mode),
            ),
            _ => self.set_crtc(output.crtc, None, (0, 0), &[], None),
        }
    }
}

/// Chooses the mode of this size, or else the preferred one; the error says which sizes there are.
fn choose(connector: &connector::Info, wanted: Option<(u32, u32)>) -> Result<Mode, String> {
    let modes = connector.modes();
    let preferred = || {
        let found = modes.iter().find(|mode| mode.mode_type().contains(ModeTypeFlags::PREFERRED));
        found.or(modes.first()).copied().ok_or_else(|| format!("its screen {connector} has no mode"))
    };
    let Some((width, height)) = wanted else { return preferred() };
    modes.iter().find(|mode| size(mode) == (width, height)).copied().ok_or_else(|| {
        let mut sizes: Vec<String> =
            modes.iter().map(size).map(|(width, height)| format!("{width}x{height}")).collect();
        sizes.dedup();
        format!("its screen {connector} has no mode {width}x{height}; it has {}", sizes.join(", "))
    })
}
