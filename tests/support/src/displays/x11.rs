//! A second client of an X server, which sees the screen and manages windows.

use super::image::Image;
use super::servers::SCREEN;
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConnectionExt, CreateWindowAux, EventMask, ImageFormat, WindowClass,
};
use x11rb::rust_connection::RustConnection;

/// A connection to an X server.
pub struct Client {
    connection: RustConnection,
    root: u32,
}

impl Client {
    /// Connects to the display of this name.
    pub fn connect(name: &str) -> Client {
        let (connection, screen) = RustConnection::connect(Some(name)).unwrap();
        let root = connection.setup().roots[screen].root;
        Client { connection, root }
    }

    /// Returns what the screen shows.
    pub fn screenshot(&self) -> Image {
        let (width, height) = SCREEN;
        let image = self
            .connection
            .get_image(ImageFormat::Z_PIXMAP, self.root, 0, 0, width as u16, height as u16, u32::MAX)
            .unwrap()
            .reply()
            .unwrap();
        let pixel = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        Image { width, height, pixels: image.data.chunks(4).map(pixel).collect() }
    }

    fn window(&self, title: &str) -> u32 {
        let windows = self.connection.query_tree(self.root).unwrap().reply().unwrap().children;
        let name = self.connection.intern_atom(false, b"_NET_WM_NAME").unwrap().reply().unwrap().atom;
        let is_named = |window: &u32| {
            let asked = self.connection.get_property(false, *window, name, AtomEnum::ANY, 0, 100).unwrap();
            asked.reply().is_ok_and(|property| property.value == title.as_bytes())
        };
        windows.into_iter().find(is_named).unwrap_or_else(|| panic!("no window is called '{title}'"))
    }

    /// Asks the window to close, as a window manager does when its button is pressed.
    pub fn close_window(&self, title: &str) {
        let atom = |name: &[u8]| self.connection.intern_atom(false, name).unwrap().reply().unwrap().atom;
        let (protocols, delete) = (atom(b"WM_PROTOCOLS"), atom(b"WM_DELETE_WINDOW"));
        let window = self.window(title);
        let message = ClientMessageEvent::new(32, window, protocols, [delete, 0, 0, 0, 0]);
        self.connection.send_event(false, window, EventMask::NO_EVENT, message).unwrap().check().unwrap();
    }

    /// Covers the screen with a window, and removes it again.
    pub fn cover_and_uncover(&self) {
        let window = self.connection.generate_id().unwrap();
        let looks = CreateWindowAux::new().background_pixel(0x12_3456).override_redirect(1);
        let (width, height) = SCREEN;
        self.connection
            .create_window(
                24,
                window,
                self.root,
                0,
                0,
                width as u16,
                height as u16,
                0,
                WindowClass::INPUT_OUTPUT,
                0,
                &looks,
            )
            .unwrap();
        self.connection.map_window(window).unwrap().check().unwrap();
        assert_eq!(self.screenshot().pixels[0], 0x12_3456);
        self.connection.destroy_window(window).unwrap().check().unwrap();
    }
}
