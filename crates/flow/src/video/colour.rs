//! Conversion of frames into the pixels of a display, row by row.
//!
//! Luma and chroma become red, green and blue by the matrix of ITU-R BT.601, or of BT.709 for frames of more than
//! 1024 columns or 576 rows, which are those of high definition; in 8 bits of fraction. Each chroma sample holds for
//! all its pixels. A frame is scaled by taking the nearest pixel.

use super::format::{Picture, PixelFormat};

/// Converts the rows of frames.
pub(crate) struct Painter {
    picture: Picture,
    /// Size of the frame that is painted, in pixels.
    width: usize,
    height: usize,
    matrix: Matrix,
    /// Column of the picture for each column that is painted; `None` if they are the same.
    columns: Option<Vec<usize>>,
    /// Chroma of a row, a sample for each pixel.
    chroma: [Vec<u8>; 2],
    /// Pixels of a row of the picture.
    row: Vec<u32>,
    /// Pixels of a row that is painted, if it is scaled.
    scaled: Vec<u32>,
}

impl Painter {
    /// Makes a painter of frames of `width` by `height` pixels.
    pub(crate) fn new(picture: Picture, width: usize, height: usize) -> Painter {
        let columns =
            (width != picture.width).then(|| (0..width).map(|x| x * picture.width / width).collect());
        Painter {
            matrix: Matrix::of_picture(&picture),
            columns,
            chroma: [vec![128; picture.width], vec![128; picture.width]],
            row: vec![0; picture.width],
            scaled: vec![0; width],
            picture,
            width,
            height,
        }
    }

    /// Paints a frame: calls `put` with the number and the pixels of each row.
    pub(crate) fn paint(&mut self, frame: &[u8], mut put: impl FnMut(usize, &[u32])) {
        let mut painted = None;
        for y in 0..self.height {
            let from = y * self.picture.height / self.height;
            if painted != Some(from) {
                self.convert(frame, from);
                self.scale();
                painted = Some(from);
            }
            put(y, if self.columns.is_some() { &self.scaled } else { &self.row });
        }
        debug_assert_eq!(self.scaled.len(), self.width);
    }

    /// Converts row `y` of the picture.
    fn convert(&mut self, frame: &[u8], y: usize) {
        let Picture { width, height, format, .. } = self.picture;
        match format {
            PixelFormat::Xrgb => {
                for (pixel, word) in self.row.iter_mut().zip(frame[4 * y * width..].chunks_exact(4)) {
                    *pixel = rgb(word[2], word[1], word[0]);
                }
            }
            PixelFormat::Rgb => {
                for (pixel, sample) in self.row.iter_mut().zip(frame[3 * y * width..].chunks_exact(3)) {
                    *pixel = rgb(sample[0], sample[1], sample[2]);
                }
            }
            PixelFormat::Gray | PixelFormat::Yuv420 | PixelFormat::Yuv422 | PixelFormat::Yuv444 => {
                let (luma, rest) = frame.split_at(width * height);
                if let Some((across, down)) = format.chroma(width, height) {
                    let at = across * if down == height { y } else { y / 2 };
                    for (plane, samples) in rest.chunks_exact(across * down).zip(&mut self.chroma) {
                        expand(&plane[at..at + across], samples);
                    }
                }
                let [blue, red] = &self.chroma;
                let samples = luma[y * width..].iter().zip(blue.iter().zip(red));
                for (pixel, (luma, (blue, red))) in self.row.iter_mut().zip(samples) {
                    *pixel = self.matrix.pixel(*luma, *blue, *red);
                }
            }
        }
    }

    fn scale(&mut self) {
        if let Some(columns) = &self.columns {
            for (pixel, column) in self.scaled.iter_mut().zip(columns) {
                *pixel = self.row[*column];
            }
        }
    }
}

/// Repeats samples, so that there is one for each pixel: once or twice.
fn expand(samples: &[u8], to: &mut [u8]) {
    if samples.len() == to.len() {
        return to.copy_from_slice(samples);
    }
    for (pair, sample) in to.chunks_mut(2).zip(samples) {
        pair.fill(*sample);
    }
}

/// Returns a pixel. The byte that displays ignore is 255, as programs that take it for opacity expect.
fn rgb(red: u8, green: u8, blue: u8) -> u32 {
    u32::from_be_bytes([255, red, green, blue])
}

/// Factors of a conversion, in 1/256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Matrix {
    /// Luma of black.
    black: i32,
    luma: i32,
    red_by_red: i32,
    green_by_blue: i32,
    green_by_red: i32,
    blue_by_blue: i32,
}

impl Matrix {
    const fn new(black: i32, luma: i32, [red, green_blue, green_red, blue]: [i32; 4]) -> Matrix {
        Matrix {
            black,
            luma,
            red_by_red: red,
            green_by_blue: green_blue,
            green_by_red: green_red,
            blue_by_blue: blue,
        }
    }

    /// Returns the factors for a picture: by its size, as programs that play files do.
    fn of_picture(picture: &Picture) -> Matrix {
        let is_high = picture.width > 1024 || picture.height > 576;
        match (is_high, picture.is_full_range) {
            (false, false) => Matrix::new(16, 298, [409, -100, -208, 516]),
            (true, false) => Matrix::new(16, 298, [459, -55, -136, 541]),
            (false, true) => Matrix::new(0, 256, [359, -88, -183, 454]),
            (true, true) => Matrix::new(0, 256, [403, -48, -120, 475]),
        }
    }

    #[inline]
    fn pixel(self, luma: u8, blue: u8, red: u8) -> u32 {
        let luma = (i32::from(luma) - self.black) * self.luma + 128;
        let (blue, red) = (i32::from(blue) - 128, i32::from(red) - 128);
        let channel = |value: i32| (value >> 8).clamp(0, 255) as u32;
        let r = channel(luma + self.red_by_red * red);
        let g = channel(luma + self.green_by_blue * blue + self.green_by_red * red);
        let b = channel(luma + self.blue_by_blue * blue);
        0xff00_0000 | r << 16 | g << 8 | b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(picture: Picture, frame: &[u8], width: usize, height: usize) -> Vec<u32> {
        let mut pixels = Vec::new();
        assert_eq!(frame.len(), picture.frame_bytes());
        Painter::new(picture, width, height).paint(frame, |y, row| {
            assert_eq!((y, row.len()), (pixels.len() / width, width));
            pixels.extend_from_slice(row);
        });
        assert_eq!(pixels.len(), width * height);
        pixels
    }

    fn picture(width: usize, height: usize, format: PixelFormat) -> Picture {
        Picture { width, height, format, is_full_range: false }
    }

    /// Luma and chroma of the primary colours in studio range by BT.601, and what they are on a screen.
    const PRIMARIES: [([u8; 3], u32); 8] = [
        ([16, 128, 128], 0xff00_0000),
        ([235, 128, 128], 0xffff_ffff),
        ([81, 90, 240], 0xffff_0000),
        ([145, 54, 34], 0xff00_ff00),
        ([41, 240, 110], 0xff00_00ff),
        ([210, 16, 146], 0xffff_ff00),
        ([170, 166, 16], 0xff00_ffff),
        ([106, 202, 222], 0xffff_00ff),
    ];

    fn is_near(one: u32, other: u32) -> bool {
        one.to_be_bytes().iter().zip(other.to_be_bytes()).all(|(one, other)| one.abs_diff(other) <= 2)
    }

    #[test]
    fn primary_colours_come_out() {
        for (sample, expected) in PRIMARIES {
            let one = painted(picture(1, 1, PixelFormat::Yuv444), &sample, 1, 1)[0];
            assert!(is_near(one, expected), "{sample:?}: {one:x} and not {expected:x}");
        }
    }

    /// The conversion in floating point, by the definition of the matrix.
    fn exact([luma, blue, red]: [u8; 3], kr: f64, kb: f64, is_full: bool) -> u32 {
        let (black, luma_range, chroma_range) =
            if is_full { (0.0, 255.0, 255.0) } else { (16.0, 219.0, 224.0) };
        let luma = (f64::from(luma) - black) / luma_range;
        let (blue, red) = ((f64::from(blue) - 128.0) / chroma_range, (f64::from(red) - 128.0) / chroma_range);
        let r = luma + 2.0 * (1.0 - kr) * red;
        let b = luma + 2.0 * (1.0 - kb) * blue;
        let g = (luma - kr * r - kb * b) / (1.0 - kr - kb);
        let byte = |value: f64| (value * 255.0).round().clamp(0.0, 255.0) as u8;
        rgb(byte(r), byte(g), byte(b))
    }

    #[test]
    fn all_matrices_are_right_to_two_steps() {
        for (width, is_full, kr, kb) in [
            (16, false, 0.299, 0.114),
            (16, true, 0.299, 0.114),
            (1280, false, 0.2126, 0.0722),
            (1280, true, 0.2126, 0.0722),
        ] {
            let picture = Picture { is_full_range: is_full, ..picture(width, 1, PixelFormat::Yuv444) };
            let matrix = Matrix::of_picture(&picture);
            for luma in (0..=255).step_by(15) {
                for blue in (0..=255).step_by(17) {
                    for red in (0..=255).step_by(17) {
                        let sample = [luma as u8, blue as u8, red as u8];
                        let (one, other) =
                            (matrix.pixel(sample[0], sample[1], sample[2]), exact(sample, kr, kb, is_full));
                        assert!(is_near(one, other), "{width} {is_full} {sample:?}: {one:x} {other:x}");
                    }
                }
            }
        }
    }

    #[test]
    fn chroma_holds_for_its_pixels_also_at_odd_edges() {
        // Chroma alone tells the samples apart: 3 x 3 pixels with 2 x 2 samples of blue.
        let frame = |planes: [&[u8]; 3]| planes.concat();
        let blue = [[0, 60], [120, 180]];
        let expected = |y: usize, x: usize, down: usize| {
            Matrix::of_picture(&picture(3, 3, PixelFormat::Yuv444)).pixel(
                100,
                blue[(y / down).min(1)][x / 2],
                128,
            )
        };
        let got = painted(
            picture(3, 3, PixelFormat::Yuv420),
            &frame([&[100; 9], &[0, 60, 120, 180], &[128; 4]]),
            3,
            3,
        );
        for y in 0..3 {
            for x in 0..3 {
                assert_eq!(got[3 * y + x], expected(y, x, 2), "{x} {y}");
            }
        }
        let got = painted(
            picture(3, 2, PixelFormat::Yuv422),
            &frame([&[100; 6], &[0, 60, 120, 180], &[128; 4]]),
            3,
            2,
        );
        for y in 0..2 {
            for x in 0..3 {
                assert_eq!(got[3 * y + x], expected(y, x, 1), "{x} {y}");
            }
        }
    }

    #[test]
    fn gray_has_no_colour_and_rgb_is_taken_as_it_is() {
        assert_eq!(painted(picture(2, 1, PixelFormat::Gray), &[16, 235], 2, 1), [0xff00_0000, 0xffff_ffff]);
        assert_eq!(
            painted(picture(1, 2, PixelFormat::Rgb), &[1, 2, 3, 4, 5, 6], 1, 2),
            [0xff01_0203, 0xff04_0506]
        );
        assert_eq!(
            painted(picture(1, 2, PixelFormat::Xrgb), &[3, 2, 1, 9, 6, 5, 4, 9], 1, 2),
            [0xff01_0203, 0xff04_0506]
        );
    }

    #[test]
    fn a_frame_is_scaled_by_the_nearest_pixels() {
        let four = picture(2, 2, PixelFormat::Rgb);
        let frame = [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4];
        let numbers = |pixels: Vec<u32>| pixels.iter().map(|pixel| pixel & 0xff).collect::<Vec<_>>();
        assert_eq!(numbers(painted(four, &frame, 4, 2)), [1, 1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(numbers(painted(four, &frame, 2, 4)), [1, 2, 1, 2, 3, 4, 3, 4]);
        assert_eq!(numbers(painted(four, &frame, 3, 3)), [1, 1, 2, 1, 1, 2, 3, 3, 4]);
        assert_eq!(numbers(painted(four, &frame, 1, 1)), [1]);
    }
}
