//! A Wayland compositor that misbehaves as a test tells it. It shows nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use wayland_protocols::xdg::shell::server::xdg_surface::{self, XdgSurface};
use wayland_protocols::xdg::shell::server::xdg_toplevel::{self, XdgToplevel};
use wayland_protocols::xdg::shell::server::xdg_wm_base::{self, XdgWmBase};
use wayland_server::backend::{ClientData, ClientId, DisconnectReason};
use wayland_server::protocol::wl_buffer::{self, WlBuffer};
use wayland_server::protocol::wl_callback::{self, WlCallback};
use wayland_server::protocol::wl_compositor::{self, WlCompositor};
use wayland_server::protocol::wl_region::{self, WlRegion};
use wayland_server::protocol::wl_shm::{self, WlShm};
use wayland_server::protocol::wl_shm_pool::{self, WlShmPool};
use wayland_server::protocol::wl_surface::{self, WlSurface};
use wayland_server::{
    Client, DataInit, Dispatch, Display, DisplayHandle, GlobalDispatch, ListeningSocket, New, Resource,
};

/// Behaviour of a compositor.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// True if it has xdg_wm_base.
    pub has_shell: bool,
    /// True if it configures windows.
    pub configures: bool,
    /// True if it returns a buffer when another one is committed.
    pub releases: bool,
    /// True if it asks for frames: it asks for none of a window that nobody sees.
    pub asks: bool,
}

pub const WELL: Behaviour = Behaviour { has_shell: true, configures: true, releases: true, asks: true };

pub enum Order {
    CloseWindow,
    Refuse,
    End,
}

pub struct Compositor {
    folder: TempDir,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl Compositor {
    pub fn start(behaviour: Behaviour) -> Compositor {
        let folder = tempfile::tempdir().unwrap();
        let socket = ListeningSocket::bind_absolute(folder.path().join("socket")).unwrap();
        let (orders, received) = channel();
        let thread = std::thread::spawn(move || serve(behaviour, &socket, &received));
        Compositor { folder, orders, thread: Some(thread) }
    }

    pub fn name(&self) -> String {
        let path: PathBuf = self.folder.path().join("socket");
        path.to_str().unwrap().to_owned()
    }

    pub fn order(&self, order: Order) {
        self.orders.send(order).unwrap();
    }
}

impl Drop for Compositor {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct State {
    behaviour: Behaviour,
    surface: Option<WlSurface>,
    window: Option<XdgToplevel>,
    /// Buffer attached and not committed, buffer that is shown, and callbacks of the last commit.
    attached: Option<WlBuffer>,
    shown: Option<WlBuffer>,
    callbacks: Vec<WlCallback>,
}

struct Nobody;

impl ClientData for Nobody {
    fn initialized(&self, _: ClientId) {}
    fn disconnected(&self, _: ClientId, _: DisconnectReason) {}
}

fn serve(behaviour: Behaviour, socket: &ListeningSocket, orders: &Receiver<Order>) {
    let mut display = Display::<State>::new().unwrap();
    let handle = display.handle();
    handle.create_global::<State, WlCompositor, _>(4, ());
    handle.create_global::<State, WlShm, _>(1, ());
    if behaviour.has_shell {
        handle.create_global::<State, XdgWmBase, _>(1, ());
    }
    let mut state =
        State { behaviour, surface: None, window: None, attached: None, shown: None, callbacks: Vec::new() };
    loop {
        if let Some(stream) = socket.accept().unwrap() {
            display.handle().insert_client(stream, Arc::new(Nobody)).unwrap();
        }
        display.dispatch_clients(&mut state).unwrap();
        if state.behaviour.asks {
            state.callbacks.drain(..).for_each(|callback| callback.done(0));
        }
        match orders.try_recv() {
            Ok(Order::CloseWindow) => state.window.as_ref().unwrap().close(),
            Ok(Order::Refuse) => {
                state.surface.as_ref().unwrap().post_error(wl_surface::Error::InvalidScale, "it is refused");
            }
            Ok(Order::End) | Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
        }
        display.flush_clients().unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

macro_rules! global {
    ($interface:ty) => {
        impl GlobalDispatch<$interface, ()> for State {
            fn bind(
                _: &mut State,
                _: &DisplayHandle,
                _: &Client,
                new: New<$interface>,
                (): &(),
                init: &mut DataInit<'_, State>,
            ) {
                init.init(new, ());
            }
        }
    };
}

global!(WlCompositor);
global!(XdgWmBase);

impl GlobalDispatch<WlShm, ()> for State {
    fn bind(
        _: &mut State,
        _: &DisplayHandle,
        _: &Client,
        new: New<WlShm>,
        (): &(),
        init: &mut DataInit<'_, State>,
    ) {
        init.init(new, ()).format(wl_shm::Format::Xrgb8888);
    }
}

macro_rules! requests {
    ($interface:ty, $request:ty, |$state:ident, $object:ident, $message:ident, $init:ident| $body:expr) => {
        impl Dispatch<$interface, ()> for State {
            fn request(
                $state: &mut State,
                _: &Client,
                $object: &$interface,
                $message: $request,
                (): &(),
                _: &DisplayHandle,
                $init: &mut DataInit<'_, State>,
            ) {
                $body
            }
        }
    };
}

requests!(WlCompositor, wl_compositor::Request, |state, _object, request, init| match request {
    wl_compositor::Request::CreateSurface { id } => state.surface = Some(init.init(id, ())),
    wl_compositor::Request::CreateRegion { id } => drop(init.init(id, ())),
    _ => {}
});

requests!(WlShm, wl_shm::Request, |_state, _object, request, init| {
    if let wl_shm::Request::CreatePool { id, .. } = request {
        init.init(id, ());
    }
});

requests!(WlShmPool, wl_shm_pool::Request, |_state, _object, request, init| {
    if let wl_shm_pool::Request::CreateBuffer { id, .. } = request {
        init.init(id, ());
    }
});

requests!(WlSurface, wl_surface::Request, |state, _object, request, init| match request {
    wl_surface::Request::Attach { buffer, .. } => state.attached = buffer,
    wl_surface::Request::Frame { callback } => state.callbacks.push(init.init(callback, ())),
    wl_surface::Request::Commit => {
        if let Some(buffer) = state.attached.take()
            && let Some(before) = state.shown.replace(buffer)
            && state.behaviour.releases
        {
            before.release();
        }
    }
    _ => {}
});

requests!(XdgWmBase, xdg_wm_base::Request, |state, _object, request, init| {
    if let xdg_wm_base::Request::GetXdgSurface { id, .. } = request {
        let surface = init.init(id, ());
        if state.behaviour.configures {
            surface.configure(1);
        }
    }
});

requests!(XdgSurface, xdg_surface::Request, |state, _object, request, init| {
    if let xdg_surface::Request::GetToplevel { id } = request {
        state.window = Some(init.init(id, ()));
    }
});

requests!(XdgToplevel, xdg_toplevel::Request, |_state, _object, _request, _init| {});

requests!(WlBuffer, wl_buffer::Request, |_state, _object, _request, _init| {});
requests!(WlCallback, wl_callback::Request, |_state, _object, _request, _init| {});
requests!(WlRegion, wl_region::Request, |_state, _object, _request, _init| {});
