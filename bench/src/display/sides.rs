//! Ways in which frames reach a display server.

use super::broken;
use super::programs::{self, Program};
use super::servers::DisplayServer;
use crate::clock::thread_seconds;
use crate::error::Error;
use bywash_display::{Surface, SurfaceOptions};
use std::time::Instant;
use x11rb::connection::{Connection, RequestConnection};
use x11rb::protocol::xproto::{
    ConnectionExt, CreateGCAux, CreateWindowAux, EventMask, Gcontext, ImageFormat, Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;

/// Way in which a frame reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handing {
    /// The program draws into a container that the server has mapped.
    Container,
    /// The program draws into memory of its own, and copies the frame into memory that the server has mapped.
    Copied,
    /// The program draws into memory of its own, and sends the frame through the connection.
    PutImage,
    /// A program that people use shows the frame in its own way.
    Program(Program),
}

/// Costs of a frame, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub wall: f64,
    /// Processor time of the program without the drawing.
    pub program: f64,
    pub drawing: f64,
    pub server: f64,
}

/// Size of a frame, in pixels.
pub type Size = (usize, usize);

/// Shows `frames` frames, and returns the cost of each.
///
/// # Errors
/// [`Error::Failed`] if the display fails.
pub fn run(server: &DisplayServer, handing: Handing, size: Size, frames: usize) -> Result<Spent, Error> {
    match handing {
        Handing::Container | Handing::Copied => {
            let mut shown = Shown::open(server, size)?;
            measured(server, frames, |number, drawing| shown.show(handing, number, drawing))
        }
        Handing::PutImage => {
            let mut sent = Sent::open(server, size)?;
            measured(server, frames, |number, drawing| sent.show(number, drawing))
        }
        Handing::Program(program) => programs::run(server, program, size, frames),
    }
}

/// Shows two frames untimed, so that all memory is there, and then `frames` frames. `show` adds the processor time of its
/// drawing to its second argument.
fn measured(
    server: &DisplayServer,
    frames: usize,
    mut show: impl FnMut(usize, &mut f64) -> Result<(), Error>,
) -> Result<Spent, Error> {
    for number in 0..3 {
        show(number, &mut 0.0)?;
    }
    let mut drawing = 0.0;
    let (begin, program, served) = (Instant::now(), thread_seconds(), server.seconds()?);
    for number in 0..frames {
        crate::interrupt::check()?;
        show(number, &mut drawing)?;
    }
    let (program, wall) = (thread_seconds() - program, begin.elapsed().as_secs_f64());
    let each = 1.0 / frames as f64;
    Ok(Spent {
        wall: wall * each,
        program: (program - drawing) * each,
        drawing: drawing * each,
        server: (server.seconds()? - served) * each,
    })
}

/// Pixels of a row: a gradient that moves from frame to frame.
pub fn row(number: usize, y: usize, width: usize) -> impl ExactSizeIterator<Item = u32> {
    let first = (number * 5 + y * 3) as u32;
    (0..width).map(move |x| 0xff00_0000 | (first + x as u32) & 0x00ff_ffff)
}

/// A surface, and a frame in the program's own memory for the side that copies.
struct Shown {
    surface: Surface,
    own: Vec<u32>,
    size: Size,
}

impl Shown {
    fn open(server: &DisplayServer, size: Size) -> Result<Shown, Error> {
        let options = SurfaceOptions::new(size.0 as u32, size.1 as u32).display(&server.name);
        let surface = Surface::open(server.system.kind(), &options).map_err(broken)?;
        Ok(Shown { surface, own: vec![0; size.0 * size.1], size })
    }

    fn show(&mut self, handing: Handing, number: usize, drawing: &mut f64) -> Result<(), Error> {
        let (width, height) = self.size;
        let mut frame = self.surface.frame().map_err(broken)?;
        let begin = thread_seconds();
        match handing {
            Handing::Container => {
                (0..height).for_each(|y| frame.write_pixels(0, y as u32, row(number, y, width)));
                *drawing += thread_seconds() - begin;
            }
            _ => {
                draw(&mut self.own, number, width);
                *drawing += thread_seconds() - begin;
                frame.write_bytes(0, bytemuck::cast_slice(&self.own));
            }
        }
        self.surface.present(frame, &[]).map_err(broken)
    }
}

fn draw(own: &mut [u32], number: usize, width: usize) {
    for (y, pixels) in own.chunks_exact_mut(width).enumerate() {
        for (pixel, value) in pixels.iter_mut().zip(row(number, y, width)) {
            *pixel = value;
        }
    }
}

/// A window to which frames are sent through the connection.
struct Sent {
    connection: RustConnection,
    window: Window,
    context: Gcontext,
    depth: u8,
    own: Vec<u32>,
    size: Size,
}

impl Sent {
    fn open(server: &DisplayServer, size: Size) -> Result<Sent, Error> {
        let (connection, screen) = RustConnection::connect(Some(&server.name)).map_err(broken)?;
        let screen = &connection.setup().roots[screen];
        let (depth, root, visual) = (screen.root_depth, screen.root, screen.root_visual);
        let window = connection.generate_id().map_err(broken)?;
        let context = connection.generate_id().map_err(broken)?;
        let looks = CreateWindowAux::new().event_mask(EventMask::NO_EVENT);
        let (width, height) = (size.0 as u16, size.1 as u16);
        let kind = WindowClass::INPUT_OUTPUT;
        connection
            .create_window(depth, window, root, 0, 0, width, height, 0, kind, visual, &looks)
            .map_err(broken)?;
        connection.create_gc(context, window, &CreateGCAux::new()).map_err(broken)?;
        connection.map_window(window).map_err(broken)?.check().map_err(broken)?;
        Ok(Sent { connection, window, context, depth, own: vec![0; size.0 * size.1], size })
    }

    fn show(&mut self, number: usize, drawing: &mut f64) -> Result<(), Error> {
        let (width, height) = self.size;
        let begin = thread_seconds();
        draw(&mut self.own, number, width);
        *drawing += thread_seconds() - begin;
        // As many rows a request as the server takes, less the request's own fields.
        let most = self.connection.maximum_request_bytes() - 64;
        let rows = (most / (4 * width)).clamp(1, height);
        for (part, pixels) in self.own.chunks(rows * width).enumerate() {
            let (y, count) = ((part * rows) as i16, (pixels.len() / width) as u16);
            let bytes = bytemuck::cast_slice(pixels);
            let format = ImageFormat::Z_PIXMAP;
            self.connection
                .put_image(format, self.window, self.context, width as u16, count, 0, y, 0, self.depth, bytes)
                .map_err(broken)?;
        }
        // The server has shown the frame once it answers.
        self.connection.get_input_focus().map_err(broken)?.reply().map_err(broken).map(drop)
    }
}
