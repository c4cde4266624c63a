//! Times image formation, and its Fourier transforms alone: `sar_bench SIZE [THREADS]`.
//!
//! The transforms alone are the same passes over the same memory with the same code, without filters and migration correction:
//! range forward and inverse, azimuth forward and inverse. Each is measured several times in turn, and the fastest is shown.

use bywash_accelerator::Error;
use bywash_accelerator::kernel::Sar;
use bywash_accelerator::sar::{Echoes, Former, SarOptions, Slab, Target, Times, focus};
use std::time::Duration;

/// Repetitions, of which the fastest counts.
const REPETITIONS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let size: usize = arguments.next().ok_or("give the size of the scene, for instance 2048")?.parse()?;
    let threads: usize = arguments.next().map_or(Ok(0), |threads| threads.parse())?;
    let sar = Sar::strip_map(size, size);
    let options = SarOptions::default().threads(threads);
    let middle = Target {
        range_cell: sar.focused_range().len() as f64 / 2.0,
        azimuth_row: size as f64 / 2.0,
        amplitude: 1.0,
    };
    let echoes = Echoes::new(&sar, vec![middle]);
    let mut fastest = [Times::default(); 2];
    for _ in 0..REPETITIONS {
        for (kind, options) in [options.clone(), options.clone().transforms_only()].iter().enumerate() {
            let (times, slabs) = form(&sar, options, &echoes)?;
            if kind == 0 && fastest[0].range.is_zero() {
                print_focus(&sar, &slabs, &middle);
            }
            if fastest[kind].range.is_zero() || total(times) < total(fastest[kind]) {
                fastest[kind] = times;
            }
        }
    }
    for (name, times) in ["image", "transforms alone"].iter().zip(fastest) {
        let [range, azimuth, migration, inverse] =
            [times.range, times.azimuth, times.migration, times.inverse].map(|time| time.as_secs_f64());
        println!(
            "{name}: {:.3} s (range {range:.3}, azimuth {azimuth:.3}, migration {migration:.3}, inverse {inverse:.3})",
            total(times).as_secs_f64()
        );
    }
    println!("ratio: {:.3}", total(fastest[0]).as_secs_f64() / total(fastest[1]).as_secs_f64());
    Ok(())
}

/// Forms an image of echoes that are made before the time is taken.
fn form(sar: &Sar, options: &SarOptions, echoes: &Echoes) -> Result<(Times, Vec<Slab>), Error> {
    let mut former = Former::new(sar, options)?;
    for first in (0..sar.azimuth).step_by(former.slab_rows()) {
        let mut slab = former.slab(former.slab_rows().min(sar.azimuth - first))?;
        for (index, row) in slab.samples_mut().chunks_exact_mut(sar.range).enumerate() {
            echoes.row(first + index, row);
        }
        former.push(slab)?;
    }
    former.form()?;
    let times = former.times();
    let mut slabs = Vec::new();
    while let Some(slab) = former.pop()? {
        slabs.push(slab);
    }
    Ok((times, slabs))
}

/// Shows that the image is one: the focus of the point in its middle.
fn print_focus(sar: &Sar, slabs: &[Slab], target: &Target) {
    let (column, row) = (target.range_cell.round() as usize, target.azimuth_row.round() as usize);
    let rows = slabs
        .iter()
        .flat_map(|slab| slab.samples().chunks_exact(sar.range))
        .skip(row.saturating_sub(64))
        .take(128);
    let part: Vec<_> = rows.flatten().copied().collect();
    let focus = focus::measure(&part, sar.range, (column, 64));
    println!(
        "point: off by {:.4} cells and {:.4} rows, side lobes {:.2} and {:.2} dB, amplitude {:.3}",
        focus.range.position - target.range_cell,
        focus.azimuth.position - 64.0 + row as f64 - target.azimuth_row,
        focus.range.side_lobe_db,
        focus.azimuth.side_lobe_db,
        focus.amplitude
    );
}

fn total(times: Times) -> Duration {
    times.range + times.azimuth + times.migration + times.inverse
}
