//! Windows of an X server, which attaches the arena by its descriptor (MIT-SHM 1.2).
//!
//! The server maps the sealed arena for reading. Each presented frame is one ShmPutImage request for each changed
//! rectangle, which copies within the server, and a completion event for the last one. The *current* frame, the
//! one presented last, stays the server's after its completion: when a part of the window was covered and is seen
//! again (Expose), the server is told to put the frame once more.

use crate::backend::{
    Backend, DisplayName, Events, FrameMemory, Rectangle, WindowOptions, connect_within, wait_for,
};
use crate::error::Error;
use rustix::event::PollFlags;
use rustix::net::SocketAddrUnix;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::{ConnectError, ConnectionError, ReplyError, ReplyOrIdError};
use x11rb::properties::WmSizeHints;
use x11rb::protocol::Event;
use x11rb::protocol::shm::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{
    AtomEnum, ConnectionExt as _, CreateGCAux, CreateWindowAux, EventMask, Gcontext, ImageFormat, ImageOrder,
    PropMode, Screen, Setup, VisualClass, WindowClass,
};
use x11rb::reexports::x11rb_protocol::parse_display::{ConnectAddress, parse_display};
use x11rb::reexports::x11rb_protocol::xauth::get_auth;
use x11rb::rust_connection::{DefaultStream, PollMode, RustConnection, Stream};
use x11rb::utils::RawFdContainer;
use x11rb::wrapper::ConnectionExt as _;

/// Greatest number of events that are handled at a time.
const EVENTS_MAX: usize = 1024;

/// A window of an X server.
pub(crate) struct Window {
    connection: RustConnection<LimitedStream>,
    name: DisplayName,
    window: u32,
    context: Gcontext,
    segment: shm::Seg,
    depth: u8,
    width: u16,
    height: u16,
    close_message: u32,
    offsets: Vec<usize>,
    /// Requests that read a slot and whose completion has not come.
    pending: Vec<u32>,
    /// Slot that was presented last.
    current: Option<usize>,
    /// Slots that were returned because another one was presented, and that no event has reported yet.
    replaced: Vec<usize>,
    /// True once the server has shown the window.
    is_mapped: bool,
}

impl Window {
    /// Opens a window and attaches the memory of its frames.
    ///
    /// # Errors
    /// Those of [`crate::Surface::open`].
    pub(crate) fn open(
        name: &DisplayName,
        options: &WindowOptions<'_>,
        memory: &FrameMemory<'_>,
    ) -> Result<Window, Error> {
        let (connection, screen) = connect(name, options.timeout)?;
        let failed = |error: ReplyOrIdError| match error {
            ReplyOrIdError::ConnectionError(error) => lost(name, options.timeout, error),
            ReplyOrIdError::X11Error(error) => name.refused(format!("{error:?}")),
            ReplyOrIdError::IdsExhausted => name.refused("it has no identifiers left"),
        };
        let screen = connection.setup().roots[screen].clone();
        check_format(connection.setup(), &screen).map_err(|what| name.unsupported(what))?;
        if connection
            .extension_information(shm::X11_EXTENSION_NAME)
            .map_err(|error| failed(error.into()))?
            .is_none()
        {
            return Err(name.unsupported("it has no MIT-SHM; connect to a server on this machine"));
        }
        let mut window = Window {
            window: 0,
            context: 0,
            segment: 0,
            depth: screen.root_depth,
            width: options.width as u16,
            height: options.height as u16,
            close_message: 0,
            offsets: memory.offsets.to_vec(),
            pending: vec![0; memory.offsets.len()],
            current: None,
            replaced: Vec::new(),
            is_mapped: false,
            name: name.clone(),
            connection,
        };
        window.attach(memory).map_err(failed)?.map_err(|what| name.unsupported(what))?;
        window.map(&screen, options.title).map_err(failed)?;
        Ok(window)
    }

    /// Attaches the arena for reading. The inner error says why the server does not.
    fn attach(&mut self, memory: &FrameMemory<'_>) -> Result<Result<(), String>, ReplyOrIdError> {
        let version = self.connection.shm_query_version()?.reply()?;
        let version = (version.major_version, version.minor_version);
        if version < (1, 2) {
            let (major, minor) = version;
            return Ok(Err(format!(
                "its MIT-SHM is version {major}.{minor}, and descriptors need 1.2; use a newer server"
            )));
        }
        let descriptor = match memory.descriptor.try_clone_to_owned() {
            Ok(descriptor) => descriptor,
            Err(error) => return Err(ConnectionError::IoError(error).into()),
        };
        self.segment = self.connection.generate_id()?;
        match self.connection.shm_attach_fd(self.segment, RawFdContainer::from(descriptor), true)?.check() {
            Ok(()) => Ok(Ok(())),
            Err(ReplyError::X11Error(error)) => Ok(Err(format!(
                "it does not attach the memory of the frames ({:?}); connect to a server on this machine",
                error.error_kind
            ))),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the window with its properties, and asks the server to show it.
    fn map(&mut self, screen: &Screen, title: &str) -> Result<(), ReplyOrIdError> {
        let connection = &self.connection;
        self.window = connection.generate_id()?;
        self.context = connection.generate_id()?;
        let looks = CreateWindowAux::new()
            .background_pixel(screen.black_pixel)
            .event_mask(EventMask::EXPOSURE | EventMask::STRUCTURE_NOTIFY);
        connection.create_window(
            self.depth,
            self.window,
            screen.root,
            0,
            0,
            self.width,
            self.height,
            0,
            WindowClass::INPUT_OUTPUT,
            screen.root_visual,
            &looks,
        )?;
        connection.create_gc(self.context, self.window, &CreateGCAux::new().graphics_exposures(0))?;
        let atom = |name: &str| connection.intern_atom(false, name.as_bytes());
        let (protocols, delete) = (atom("WM_PROTOCOLS")?, atom("WM_DELETE_WINDOW")?);
        let (name, utf8) = (atom("_NET_WM_NAME")?, atom("UTF8_STRING")?);
        self.close_message = delete.reply()?.atom;
        let (protocols, name, utf8) = (protocols.reply()?.atom, name.reply()?.atom, utf8.reply()?.atom);
        let replace = PropMode::REPLACE;
        connection.change_property32(
            replace,
            self.window,
            protocols,
            AtomEnum::ATOM,
            &[self.close_message],
        )?;
        connection.change_property8(
            replace,
            self.window,
            AtomEnum::WM_NAME,
            AtomEnum::STRING,
            title.as_bytes(),
        )?;
        connection.change_property8(replace, self.window, name, utf8, title.as_bytes())?;
        connection.change_property8(
            replace,
            self.window,
            AtomEnum::WM_CLASS,
            AtomEnum::STRING,
            b"bywash\0Bywash\0",
        )?;
        let size = Some((self.width.into(), self.height.into()));
        let hints = WmSizeHints { min_size: size, max_size: size, ..WmSizeHints::default() };
        hints.set_normal_hints(connection, self.window)?;
        connection.map_window(self.window)?.check()?;
        Ok(())
    }

    /// Requests that the server puts parts of a slot into the window, and that it reports when it is done.
    fn put(&mut self, slot: usize, damage: &[Rectangle]) -> Result<(), Error> {
        for (number, part) in damage.iter().enumerate() {
            let is_last = number + 1 == damage.len();
            let (x, y) = (part.x as u16, part.y as u16);
            self.connection
                .shm_put_image(
                    self.window,
                    self.context,
                    self.width,
                    self.height,
                    x,
                    y,
                    part.width as u16,
                    part.height as u16,
                    x as i16,
                    y as i16,
                    self.depth,
                    ImageFormat::Z_PIXMAP.into(),
                    is_last,
                    self.segment,
                    self.offsets[slot] as u32,
                )
                .map_err(|error| self.lost(error))?;
        }
        self.pending[slot] += u32::from(!damage.is_empty());
        self.connection.flush().map_err(|error| self.lost(error))
    }

    fn lost(&self, error: ConnectionError) -> Error {
        lost(&self.name, self.connection.stream().limit, error)
    }

    fn handle(&mut self, event: &Event, events: &mut Events) -> Result<(), Error> {
        match event {
            Event::ShmCompletion(done) => {
                let found = self.offsets.iter().position(|offset| *offset == done.offset as usize);
                let Some(slot) = found.filter(|slot| self.pending[*slot] > 0) else {
                    return Err(self.name.refused(format!(
                        "it completed a frame at offset {} that it was not given",
                        done.offset
                    )));
                };
                self.pending[slot] -= 1;
                match (self.pending[slot], self.current == Some(slot)) {
                    (0, true) => events.is_ready = true,
                    (0, false) => events.returned.push(slot),
                    _ => {}
                }
            }
            Event::MapNotify(_) => {
                self.is_mapped = true;
                events.is_ready |= self.current.is_none();
            }
            // The last of several.
            Event::Expose(expose) if expose.count == 0 && self.is_mapped => {
                if let Some(slot) = self.current {
                    let (width, height) = (self.width.into(), self.height.into());
                    self.put(slot, &[Rectangle { x: 0, y: 0, width, height }])?;
                }
            }
            Event::ClientMessage(message) if message.data.as_data32()[0] == self.close_message => {
                events.is_closed = true;
            }
            Event::DestroyNotify(_) => events.is_closed = true,
            Event::Error(error) => {
                return Err(self.name.refused(format!(
                    "{:?} in request {}",
                    error.error_kind,
                    error.request_name.unwrap_or("of an unknown kind")
                )));
            }
            _ => {}
        }
        Ok(())
    }
}

impl Backend for Window {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.connection.stream().inner.as_fd()
    }

    fn dispatch(&mut self, events: &mut Events) -> Result<(), Error> {
        events.returned.append(&mut self.replaced);
        for _ in 0..EVENTS_MAX {
            match self.connection.poll_for_event().map_err(|error| self.lost(error))? {
                Some(event) => self.handle(&event, events)?,
                None => break,
            }
        }
        Ok(())
    }

    fn present(&mut self, slot: usize, damage: &[Rectangle]) -> Result<(), Error> {
        if let Some(before) = self.current.replace(slot)
            && self.pending[before] == 0
        {
            self.replaced.push(before);
        }
        self.put(slot, damage)
    }
}

/// Returns an error if the screen does not show XRGB8888.
fn check_format(setup: &Setup, screen: &Screen) -> Result<(), String> {
    let depth = screen.root_depth;
    let bits = setup.pixmap_formats.iter().find(|format| format.depth == depth).map(|one| one.bits_per_pixel);
    let visual = screen
        .allowed_depths
        .iter()
        .flat_map(|depth| &depth.visuals)
        .find(|visual| visual.visual_id == screen.root_visual);
    let is_fit = visual.is_some_and(|visual| {
        visual.class == VisualClass::TRUE_COLOR
            && (visual.red_mask, visual.green_mask, visual.blue_mask) == (0xff_0000, 0xff00, 0xff)
    });
    match (depth, bits, setup.image_byte_order) {
        (24 | 32, Some(32), ImageOrder::LSB_FIRST) if is_fit => Ok(()),
        _ => Err(format!(
            "its screen has a depth of {depth} bits in another format than XRGB8888, and that is the only one offered; \
             use a screen with 24 bits"
        )),
    }
}

/// Connects to the server, and returns the connection and the number of the screen.
fn connect(name: &DisplayName, limit: Duration) -> Result<(RustConnection<LimitedStream>, usize), Error> {
    let parsed = parse_display(Some(&name.name)).map_err(|error| {
        Error::NoDisplay(format!("'{}' is no name of an X display ({error}); one is ':0'", name.name))
    })?;
    let (mut is_local, mut failure) = (false, io::Error::from(io::ErrorKind::NotFound));
    for address in parsed.connect_instruction() {
        let ConnectAddress::Socket(path) = address else { continue };
        is_local = true;
        let connected = connect_to_socket(path.as_ref(), limit)
            .and_then(DefaultStream::from_unix_stream)
            .map_err(|error| failure = error);
        let Ok((stream, (family, address))) = connected else { continue };
        // Without a cookie the server decides by the user's identity.
        let (protocol, cookie) =
            get_auth(family, &address, parsed.display).ok().flatten().unwrap_or_default();
        let stream = LimitedStream { inner: stream, limit };
        let screen = usize::from(parsed.screen);
        let connection = RustConnection::connect_to_stream_with_auth_info(stream, screen, protocol, cookie)
            .map_err(|error| match error {
            ConnectError::IoError(error) if error.kind() == io::ErrorKind::TimedOut => {
                name.silent("answered", limit)
            }
            ConnectError::IoError(error) => name.not_connected(error),
            ConnectError::SetupFailed(refusal) => {
                name.refused(String::from_utf8_lossy(&refusal.reason).trim_end().to_owned())
            }
            error => name.refused(error.to_string()),
        })?;
        return Ok((connection, screen));
    }
    match is_local {
        true => Err(name.not_connected(failure)),
        false => Err(name.unsupported(
            "it is reached through a network, which passes no descriptors; name a server on this machine",
        )),
    }
}

/// Connects to a server's socket: the abstract one of this name, or else the one in the file system.
fn connect_to_socket(path: &std::path::Path, limit: Duration) -> io::Result<UnixStream> {
    use std::os::unix::ffi::OsStrExt;
    let hidden = SocketAddrUnix::new_abstract_name(path.as_os_str().as_bytes())?;
    connect_within(&hidden, limit).or_else(|_| connect_within(&SocketAddrUnix::new(path)?, limit))
}

/// Returns the error for a connection that failed.
fn lost(name: &DisplayName, limit: Duration, error: ConnectionError) -> Error {
    match error {
        ConnectionError::IoError(error) if error.kind() == io::ErrorKind::TimedOut => {
            name.silent("answered", limit)
        }
        ConnectionError::IoError(error) => name.gone(error),
        ConnectionError::UnsupportedExtension => name.unsupported("it has no MIT-SHM"),
        error => name.refused(error.to_string()),
    }
}

/// Connection to the server on which no wait is longer than a limit.
struct LimitedStream {
    inner: DefaultStream,
    limit: Duration,
}

impl Stream for LimitedStream {
    fn poll(&self, mode: PollMode) -> io::Result<()> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, mode.readable());
        events.set(PollFlags::OUT, mode.writable());
        match wait_for(&self.inner, events, Instant::now() + self.limit)? {
            true => Ok(()),
            false => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn read(&self, buffer: &mut [u8], descriptors: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.inner.read(buffer, descriptors)
    }

    fn write(&self, buffer: &[u8], descriptors: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.inner.write(buffer, descriptors)
    }
}
