//! Simulates a radar that flies past a ring with a cross in it, and forms the image: `radar [FOLDER]`.
//!
//! The folder gets `raw.dat` and `image.dat` (complex numbers of two 32-bit floating-point numbers, a row a pulse), and
//! `image.png` (8-bit grey, the top 50 dB).

use bywash_accelerator::kernel::Sar;
use bywash_accelerator::sar::{Echoes, SarOptions, Target, image, picture};
use std::f64::consts::TAU;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

/// Samples of a row, and number of rows.
const SIZE: (usize, usize) = (768, 1024);
/// Decibels between white and black.
const SPAN_DB: f32 = 50.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    let sar = Sar::strip_map(SIZE.0, SIZE.1);
    let raw = Echoes::new(&sar, figure(&sar)).noise(0.05, 1).scene();
    let image = image(&sar, &SarOptions::default(), &raw)?;
    std::fs::write(folder.join("raw.dat"), bytemuck::cast_slice::<_, u8>(&raw))?;
    std::fs::write(folder.join("image.dat"), bytemuck::cast_slice::<_, u8>(&image))?;
    let peak = image.iter().map(|sample| sample.norm()).fold(0.0, f32::max);
    let path = folder.join("image.png");
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(&path)?), SIZE.0 as u32, SIZE.1 as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(&picture::grey(&image, peak, SPAN_DB))?;
    println!("{}: peak {peak:.3}, {} x {} samples", path.display(), SIZE.0, SIZE.1);
    Ok(())
}

/// Returns points on a ring, and on a cross in it.
fn figure(sar: &Sar) -> Vec<Target> {
    let cells = sar.focused_range();
    let middle = (cells.len() as f64 / 2.0, sar.azimuth as f64 / 2.0);
    let radius = 0.4 * cells.len() as f64;
    let target =
        |x: f64, y: f64| Target { range_cell: middle.0 + x, azimuth_row: middle.1 + y, amplitude: 1.0 };
    let ring = (0..48).map(|index| {
        let (sine, cosine) = (TAU * f64::from(index) / 48.0).sin_cos();
        target(radius * cosine, radius * sine)
    });
    let arm = (-4..=4).map(|index| 0.12 * radius * f64::from(index));
    let cross = arm.clone().map(|x| target(x, 0.0)).chain(arm.filter(|y| *y != 0.0).map(|y| target(0.0, y)));
    ring.chain(cross).collect()
}
