//! Fades a window from black to blue.

use bywash_display::{DisplayKind, Error, Surface, SurfaceOptions};

fn main() -> Result<(), Error> {
    let kind = DisplayKind::detect().unwrap_or(DisplayKind::X11);
    let mut surface = Surface::open(kind, &SurfaceOptions::new(640, 480).title("Fade"))?;
    for blue in 0..=255 {
        let mut frame = surface.frame()?;
        frame.fill(0xff00_0000 | blue);
        surface.present(frame, &[])?;
    }
    surface.finish()
}
