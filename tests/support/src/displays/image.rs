//! Images: what is drawn, and what a screenshot shows.

use std::path::Path;

/// An image of XRGB8888 pixels, whose highest byte is 0.
#[derive(Clone, PartialEq)]
pub struct Image {
    /// Width, in pixels.
    pub width: usize,
    /// Height, in pixels.
    pub height: usize,
    /// Pixels, row by row.
    pub pixels: Vec<u32>,
}

impl Image {
    /// Makes an image from the pixel at each column and row.
    pub fn new(width: usize, height: usize, pixel: impl Fn(usize, usize) -> u32) -> Image {
        let pixels =
            (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect();
        Image { width, height, pixels }
    }

    /// Makes an image in which each pixel and each channel differs from its neighbours, and that differs for each
    /// seed: a border, a gradient, and a block that moves and has the seed in binary.
    pub fn pattern(width: usize, height: usize, seed: usize) -> Image {
        let moved = seed * 3 % (width - 64).max(1);
        Image::new(width, height, |x, y| {
            if x == 0 || y == 0 || x == width - 1 || y == height - 1 {
                return 0xff_ffff;
            }
            if (8..16).contains(&y) && (moved..moved + 64).contains(&x) {
                let is_set = seed >> ((x - moved) / 8) & 1 == 1;
                return if is_set { 0xff_0000 } else { 0x00_00ff };
            }
            let (red, green, blue) = (x * 7 + seed, y * 5 + seed * 2, x + y * 3);
            ((red & 0xff) << 16 | (green & 0xff) << 8 | (blue & 0xff)) as u32
        })
    }

    /// Returns the pixels of row `y`.
    pub fn row(&self, y: usize) -> &[u32] {
        &self.pixels[y * self.width..][..self.width]
    }

    /// Finds this image in a screenshot; the position of its upper left corner.
    pub fn position_in(&self, screen: &Image) -> Option<(usize, usize)> {
        let (across, down) = (screen.width.checked_sub(self.width)?, screen.height.checked_sub(self.height)?);
        let is_at = |x: usize, y: usize| {
            (0..self.height).all(|row| self.row(row) == &screen.row(y + row)[x..x + self.width])
        };
        (0..=down).flat_map(|y| (0..=across).map(move |x| (x, y))).find(|(x, y)| is_at(*x, *y))
    }

    /// Reads an image of 8 bits a channel; opacity is ignored.
    pub fn read_png(path: &Path) -> Image {
        let decoder = png::Decoder::new(std::io::BufReader::new(std::fs::File::open(path).unwrap()));
        let mut reader = decoder.read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        let channels = info.color_type.samples();
        let pixels = bytes[..info.buffer_size()]
            .chunks(channels)
            .map(|pixel| u32::from(pixel[0]) << 16 | u32::from(pixel[1]) << 8 | u32::from(pixel[2]))
            .collect();
        Image { width: info.width as usize, height: info.height as usize, pixels }
    }

    /// Parses a binary PPM file of 8 bits a channel, without comments.
    pub fn parse_ppm(bytes: &[u8]) -> Image {
        let mut rest = bytes;
        let mut word = || {
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap();
            let word = std::str::from_utf8(&rest[..end]).unwrap();
            rest = &rest[end + 1..];
            word
        };
        assert_eq!(word(), "P6");
        let (width, height) = (word().parse().unwrap(), word().parse().unwrap());
        assert_eq!(word(), "255");
        let pixel = |pixel: &[u8]| u32::from_be_bytes([0, pixel[0], pixel[1], pixel[2]]);
        let pixels: Vec<u32> = rest.chunks_exact(3).map(pixel).collect();
        assert_eq!(pixels.len(), width * height);
        Image { width, height, pixels }
    }

    /// Writes the image to a file.
    pub fn write_png(&self, path: &Path) {
        let mut encoder =
            png::Encoder::new(std::fs::File::create(path).unwrap(), self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        let bytes: Vec<u8> = self.pixels.iter().flat_map(|pixel| pixel.to_be_bytes()[1..].to_vec()).collect();
        encoder.write_header().unwrap().write_image_data(&bytes).unwrap();
    }
}

/// Fails unless the screenshot shows the image; then both are kept in the folder that `BYWASH_SCREENSHOTS` names.
#[track_caller]
pub fn assert_shown(name: &str, image: &Image, screen: &Image) {
    let folder = std::env::var_os("BYWASH_SCREENSHOTS").map(std::path::PathBuf::from);
    let is_shown = image.position_in(screen).is_some();
    if let Some(folder) = folder {
        screen.write_png(&folder.join(format!("{name}.png")));
        if !is_shown {
            image.write_png(&folder.join(format!("{name}-drawn.png")));
        }
    }
    assert!(
        is_shown,
        "{name}: the screen does not show what was drawn; set BYWASH_SCREENSHOTS to a folder to see both"
    );
}
