//! Windows of a Wayland compositor, which maps the arena (wl_shm).
//!
//! The arena is a wl_shm_pool, and each slot a wl_buffer of it. A presented frame is attached and committed, with a
//! request for a frame callback, by which the compositor asks for the next one. The compositor returns a buffer by
//! wl_buffer.release. It maps the arena for reading and writing, and so could write to the frames.

use crate::backend::{
    Backend, DisplayName, Events, FrameMemory, PIXEL_BYTES, Rectangle, WindowOptions, connect_within,
    wait_for,
};
use crate::error::Error;
use crate::kind::wayland_socket;
use rustix::event::PollFlags;
use rustix::net::SocketAddrUnix;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;
use wayland_client::backend::WaylandError;
use wayland_client::protocol::wl_buffer::{self, WlBuffer};
use wayland_client::protocol::wl_callback::{self, WlCallback};
use wayland_client::protocol::wl_compositor::WlCompositor;
use wayland_client::protocol::wl_registry::{self, WlRegistry};
use wayland_client::protocol::wl_shm::{self, WlShm};
use wayland_client::protocol::wl_shm_pool::WlShmPool;
use wayland_client::protocol::wl_surface::WlSurface;
use wayland_client::{Connection, Dispatch, DispatchError, EventQueue, Proxy, QueueHandle, delegate_noop};
use wayland_protocols::xdg::shell::client::xdg_surface::{self, XdgSurface};
use wayland_protocols::xdg::shell::client::xdg_toplevel::{self, XdgToplevel};
use wayland_protocols::xdg::shell::client::xdg_wm_base::{self, XdgWmBase};

/// Version of wl_compositor from which damage is told in pixels of the buffer.
const DAMAGE_BUFFER_SINCE: u32 = 4;

/// Greatest number of attempts to read the socket, each of which fails if events were left to be handled.
const READS_MAX: usize = 64;

/// A window of a Wayland compositor.
pub(crate) struct Window {
    connection: Connection,
    /// Duplicate of the connection's descriptor, which stays open while this value lives.
    descriptor: OwnedFd,
    queue: EventQueue<State>,
    name: DisplayName,
    state: State,
    surface: WlSurface,
    buffers: Vec<WlBuffer>,
}

/// State that events change.
#[derive(Default)]
struct State {
    compositor: Option<WlCompositor>,
    memory: Option<WlShm>,
    shell: Option<XdgWmBase>,
    /// True once the compositor has named all its globals.
    is_listed: bool,
    /// True once the compositor has configured the window.
    is_configured: bool,
    events: Events,
}

/// Marks the callback after which all globals have been named.
struct Listed;
/// Marks the callback by which the compositor asks for a frame.
struct NextFrame;

impl Window {
    /// Opens a window and shares the memory of its frames.
    ///
    /// # Errors
    /// Those of [`crate::Surface::open`].
    pub(crate) fn open(
        name: &DisplayName,
        options: &WindowOptions<'_>,
        memory: &FrameMemory<'_>,
    ) -> Result<Window, Error> {
        let path = wayland_socket(&name.name).ok_or_else(|| {
            Error::NoDisplay(format!(
                "XDG_RUNTIME_DIR is not set, and the Wayland display '{}' lies in it; set it, or give the path of the \
                 socket",
                name.name
            ))
        })?;
        let until = Instant::now() + options.timeout;
        let stream = SocketAddrUnix::new(&path)
            .map_err(io::Error::from)
            .and_then(|address| connect_within(&address, options.timeout))
            .map_err(|error| name.not_connected(error))?;
        let descriptor = stream.as_fd().try_clone_to_owned().map_err(|error| name.not_connected(error))?;
        let connection =
            Connection::from_socket(stream).map_err(|error| name.not_connected(io::Error::other(error)))?;
        let mut reader = Reader {
            queue: connection.new_event_queue(),
            state: State::default(),
            descriptor: descriptor.as_fd(),
            name,
            connection: &connection,
        };
        let handle = reader.queue.handle();
        connection.display().get_registry(&handle, ());
        connection.display().sync(&handle, Listed);
        reader
            .wait(until, |state| state.is_listed)
            .map_err(|error| late(error, name, "answered", options))?;
        let missing = |what: &str| name.unsupported(format!("its compositor has no {what}"));
        let compositor = reader.state.compositor.clone().ok_or_else(|| missing("wl_compositor"))?;
        let shm = reader.state.memory.clone().ok_or_else(|| missing("wl_shm"))?;
        let shell = reader
            .state
            .shell
            .clone()
            .ok_or_else(|| missing("xdg_wm_base, the protocol of windows; use a desktop's compositor"))?;
        let buffers = buffers(&shm, memory, options, &handle);
        let surface = compositor.create_surface(&handle, ());
        let shell_surface = shell.get_xdg_surface(&surface, &handle, ());
        let window = shell_surface.get_toplevel(&handle, ());
        let (width, height) = (options.width as i32, options.height as i32);
        window.set_title(options.title.into());
        window.set_app_id("bywash".into());
        window.set_min_size(width, height);
        window.set_max_size(width, height);
        surface.commit();
        reader
            .wait(until, |state| state.is_configured)
            .map_err(|error| late(error, name, "configured the window", options))?;
        let Reader { queue, mut state, .. } = reader;
        state.events.is_ready = true;
        Ok(Window { connection, descriptor, queue, name: name.clone(), state, surface, buffers })
    }
}

/// Shares the arena, and makes a buffer of each slot.
fn buffers(
    shm: &WlShm,
    memory: &FrameMemory<'_>,
    options: &WindowOptions<'_>,
    handle: &QueueHandle<State>,
) -> Vec<WlBuffer> {
    let pool = shm.create_pool(memory.descriptor, memory.bytes as i32, handle, ());
    let (width, height) = (options.width as i32, options.height as i32);
    let buffer = |(slot, offset): (usize, &usize)| {
        let row_bytes = width * PIXEL_BYTES as i32;
        pool.create_buffer(*offset as i32, width, height, row_bytes, wl_shm::Format::Xrgb8888, handle, slot)
    };
    let made = memory.offsets.iter().enumerate().map(buffer).collect();
    // The buffers keep the memory.
    pool.destroy();
    made
}

/// Turns a timeout into the error that says what is missing.
fn late(error: Option<Error>, name: &DisplayName, what: &'static str, options: &WindowOptions<'_>) -> Error {
    error.unwrap_or_else(|| name.silent(what, options.timeout))
}

/// Reads events while the window is opened.
struct Reader<'a> {
    queue: EventQueue<State>,
    state: State,
    descriptor: BorrowedFd<'a>,
    name: &'a DisplayName,
    connection: &'a Connection,
}

impl Reader<'_> {
    /// Reads events until `is_done`; the error is `None` if that takes too long.
    fn wait(&mut self, until: Instant, is_done: impl Fn(&State) -> bool) -> Result<(), Option<Error>> {
        loop {
            read_events(&mut self.queue, &mut self.state, self.connection, self.name)?;
            if is_done(&self.state) {
                return Ok(());
            }
            let failed = |source| Error::Io { what: "wait for the display server", source };
            if !wait_for(self.descriptor, PollFlags::IN, until).map_err(failed)? {
                return Err(None);
            }
        }
    }
}

/// Sends what is queued, and handles all events that have arrived, without waiting.
fn read_events(
    queue: &mut EventQueue<State>,
    state: &mut State,
    connection: &Connection,
    name: &DisplayName,
) -> Result<(), Error> {
    for _ in 0..READS_MAX {
        handle_pending(queue, state, connection, name)?;
        flush(queue, connection, name)?;
        let Some(guard) = queue.prepare_read() else { continue };
        match guard.read() {
            // The socket is empty now: the read goes on until it would block.
            Ok(_) => {
                handle_pending(queue, state, connection, name)?;
                return flush(queue, connection, name);
            }
            Err(WaylandError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(failed(error, connection, name)),
        }
    }
    Ok(())
}

/// Handles the events that have been read.
fn handle_pending(
    queue: &mut EventQueue<State>,
    state: &mut State,
    connection: &Connection,
    name: &DisplayName,
) -> Result<(), Error> {
    queue.dispatch_pending(state).map(drop).map_err(|error| match error {
        DispatchError::Backend(error) => failed(error, connection, name),
        error => name.refused(error.to_string()),
    })
}

/// Sends what is queued, without waiting.
fn flush(queue: &EventQueue<State>, connection: &Connection, name: &DisplayName) -> Result<(), Error> {
    match queue.flush() {
        // What is left is sent next time: a server that reads nothing returns no frames, which has a limit.
        Err(WaylandError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        // The reason of a refusal may still be there to be read.
        Err(WaylandError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| failed(error, connection, name)),
    }
}

/// Returns the error for a connection that failed: the compositor's reason, if it gave one.
fn failed(error: WaylandError, connection: &Connection, name: &DisplayName) -> Error {
    match (connection.protocol_error(), error) {
        (Some(error), _) | (None, WaylandError::Protocol(error)) => {
            name.refused(format!("{} (error {} of {})", error.message, error.code, error.object_interface))
        }
        (None, WaylandError::Io(error)) => name.gone(error),
    }
}

impl Backend for Window {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn dispatch(&mut self, events: &mut Events) -> Result<(), Error> {
        read_events(&mut self.queue, &mut self.state, &self.connection, &self.name)?;
        let read = &mut self.state.events;
        events.returned.append(&mut read.returned);
        events.is_ready |= std::mem::take(&mut read.is_ready);
        events.is_closed |= read.is_closed;
        Ok(())
    }

    fn present(&mut self, slot: usize, damage: &[Rectangle]) -> Result<(), Error> {
        self.surface.attach(Some(&self.buffers[slot]), 0, 0);
        for part in damage {
            let (x, y, width, height) = (part.x as i32, part.y as i32, part.width as i32, part.height as i32);
            match self.surface.version() >= DAMAGE_BUFFER_SINCE {
                true => self.surface.damage_buffer(x, y, width, height),
                false => self.surface.damage(x, y, width, height),
            }
        }
        self.surface.frame(&self.queue.handle(), NextFrame);
        self.surface.commit();
        // What the compositor has sent is read when the next frame is asked for.
        flush(&self.queue, &self.connection, &self.name)
    }
}

impl Dispatch<WlRegistry, ()> for State {
    fn event(
        state: &mut State,
        registry: &WlRegistry,
        event: wl_registry::Event,
        (): &(),
        _: &Connection,
        handle: &QueueHandle<State>,
    ) {
        let wl_registry::Event::Global { name, interface, version } = event else { return };
        match interface.as_str() {
            "wl_compositor" => {
                let version = version.min(DAMAGE_BUFFER_SINCE);
                state.compositor = Some(registry.bind(name, version, handle, ()));
            }
            "wl_shm" => state.memory = Some(registry.bind(name, 1, handle, ())),
            "xdg_wm_base" => state.shell = Some(registry.bind(name, 1, handle, ())),
            _ => {}
        }
    }
}

impl Dispatch<WlCallback, Listed> for State {
    fn event(
        state: &mut State,
        _: &WlCallback,
        _: wl_callback::Event,
        _: &Listed,
        _: &Connection,
        _: &QueueHandle<State>,
    ) {
        state.is_listed = true;
    }
}

impl Dispatch<WlCallback, NextFrame> for State {
    fn event(
        state: &mut State,
        _: &WlCallback,
        _: wl_callback::Event,
        _: &NextFrame,
        _: &Connection,
        _: &QueueHandle<State>,
    ) {
        state.events.is_ready = true;
    }
}

impl Dispatch<WlBuffer, usize> for State {
    fn event(
        state: &mut State,
        _: &WlBuffer,
        event: wl_buffer::Event,
        slot: &usize,
        _: &Connection,
        _: &QueueHandle<State>,
    ) {
        if let wl_buffer::Event::Release = event {
            state.events.returned.push(*slot);
        }
    }
}

impl Dispatch<XdgWmBase, ()> for State {
    fn event(
        _: &mut State,
        shell: &XdgWmBase,
        event: xdg_wm_base::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<State>,
    ) {
        if let xdg_wm_base::Event::Ping { serial } = event {
            shell.pong(serial);
        }
    }
}

impl Dispatch<XdgSurface, ()> for State {
    fn event(
        state: &mut State,
        surface: &XdgSurface,
        event: xdg_surface::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<State>,
    ) {
        if let xdg_surface::Event::Configure { serial } = event {
            surface.ack_configure(serial);
            state.is_configured = true;
        }
    }
}

impl Dispatch<XdgToplevel, ()> for State {
    fn event(
        state: &mut State,
        _: &XdgToplevel,
        event: xdg_toplevel::Event,
        (): &(),
        _: &Connection,
        _: &QueueHandle<State>,
    ) {
        if let xdg_toplevel::Event::Close = event {
            state.events.is_closed = true;
        }
    }
}

delegate_noop!(State: ignore WlCompositor);
delegate_noop!(State: ignore WlShm);
delegate_noop!(State: ignore WlShmPool);
delegate_noop!(State: ignore WlSurface);
