//! A second client of an X server, which sees the screen and manages windows; and tests of X11 alone.

use crate::image::{Image, assert_shown};
use crate::servers::{SCREEN, Server, Xvfb};
use bywash_display::{DisplayKind, Error, Surface, SurfaceOptions};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConnectionExt, CreateWindowAux, EventMask, ImageFormat, WindowClass,
};
use x11rb::rust_connection::RustConnection;

pub struct Client {
    connection: RustConnection,
    root: u32,
}

impl Client {
    pub fn connect(name: &str) -> Client {
        let (connection, screen) = RustConnection::connect(Some(name)).unwrap();
        let root = connection.setup().roots[screen].root;
        Client { connection, root }
    }

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
    fn close_window(&self, title: &str) {
        let atom = |name: &[u8]| self.connection.intern_atom(false, name).unwrap().reply().unwrap().atom;
        let (protocols, delete) = (atom(b"WM_PROTOCOLS"), atom(b"WM_DELETE_WINDOW"));
        let window = self.window(title);
        let message = ClientMessageEvent::new(32, window, protocols, [delete, 0, 0, 0, 0]);
        self.connection.send_event(false, window, EventMask::NO_EVENT, message).unwrap().check().unwrap();
    }

    /// Covers the screen with a window, and removes it again.
    fn cover_and_uncover(&self) {
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

#[test]
fn a_closed_window_is_reported() {
    let server = Xvfb::start();
    let mut surface = Surface::open(server.kind(), &server.options(100, 80).title("to be closed ✓")).unwrap();
    let frame = surface.frame().unwrap();
    surface.present(frame, &[]).unwrap();
    Client::connect(&server.name()).close_window("to be closed ✓");
    let closed = std::iter::from_fn(|| Some(surface.frame().err())).take(100).flatten().next();
    assert!(matches!(closed, Some(Error::Closed)), "{closed:?}");
}

#[test]
fn what_was_covered_is_shown_again() {
    let server = Xvfb::start();
    let mut surface = Surface::open(server.kind(), &server.options(200, 100)).unwrap();
    let image = Image::pattern(200, 100, 5);
    let mut frame = surface.frame().unwrap();
    image.draw(&mut frame);
    surface.present(frame, &[]).unwrap();
    surface.finish().unwrap();
    let client = Client::connect(&server.name());
    client.cover_and_uncover();
    assert!(image.position_in(&client.screenshot()).is_none());
    // The surface learns of it when it looks for events; meanwhile the program draws the next frame.
    let next = surface.frame().unwrap();
    surface.finish().unwrap();
    drop(next);
    assert_shown("x11-uncovered", &image, &client.screenshot());
}

#[test]
fn frames_are_bytes_that_nobody_else_can_write() {
    let server = Xvfb::start();
    let mut surface = Surface::open(server.kind(), &server.options(64, 64)).unwrap();
    let image = Image::new(64, 64, |x, y| if x > y { 0x40_8020 } else { 0xf0_0f0f });
    let mut frame = surface.frame().unwrap();
    let bytes: Vec<u8> = image.pixels.iter().flat_map(|pixel| pixel.to_le_bytes()).collect();
    frame.bytes_mut().unwrap().copy_from_slice(&bytes);
    surface.present(frame, &[]).unwrap();
    surface.finish().unwrap();
    assert_shown("x11-bytes", &image, &server.screenshot());
}

#[test]
fn another_format_of_pixels_is_refused() {
    let server = Xvfb::with_depth(16);
    let refused = Surface::open(server.kind(), &server.options(64, 64)).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    assert!(refused.to_string().contains("XRGB8888"), "{refused}");
}

#[test]
fn a_display_of_another_machine_is_refused() {
    let options = SurfaceOptions::new(64, 64).display("localhost:77");
    let refused = Surface::open(DisplayKind::X11, &options).unwrap_err().to_string();
    assert!(refused.contains("passes no descriptors"), "{refused}");
    let nonsense = Surface::open(DisplayKind::X11, &options.display("nonsense")).unwrap_err().to_string();
    assert!(nonsense.contains("':0'"), "{nonsense}");
}
