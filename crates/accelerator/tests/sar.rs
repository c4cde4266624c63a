//! Images of simulated points: position, width and side lobes are those of the theory.

use bywash_accelerator::kernel::Sar;
use bywash_accelerator::sar::focus::{self, SIDE_LOBE_DB};
use bywash_accelerator::sar::{Antenna, Echoes, Focus, Former, SarOptions, Target, Weighting, image};
use num_complex::Complex32;
use std::f64::consts::PI;

/// Sizes of scenes: also such that are no powers of two, and not square.
const SIZES: [(usize, usize); 5] = [(512, 512), (300, 500), (500, 300), (1024, 400), (600, 1500)];

fn formed(sar: &Sar, targets: &[Target], options: &SarOptions) -> Vec<Complex32> {
    image(sar, options, &Echoes::new(sar, targets.to_vec()).scene()).expect("an image")
}

fn measured(sar: &Sar, image: &[Complex32], target: &Target) -> Focus {
    focus::measure(
        image,
        sar.range,
        (target.range_cell.round() as usize, target.azimuth_row.round() as usize),
    )
}

/// Returns points in the middle and near the edges of the area in which points are focused completely.
fn points(sar: &Sar) -> Vec<Target> {
    let cells = sar.focused_range();
    let rows = sar.focused_azimuth(sar.range_m(sar.range as f64));
    let (left, right) = (cells.start as f64 + 3.0, cells.end as f64 - 3.0);
    let (top, bottom) = (rows.start as f64, rows.end as f64);
    let target = |range_cell: f64, azimuth_row: f64| Target { range_cell, azimuth_row, amplitude: 1.0 };
    vec![
        target(((left + right) / 2.0).floor(), ((top + bottom) / 2.0).floor()),
        target(left + 0.25, top + 0.5),
        target(right - 0.4, top + 0.1),
        target(left + 0.7, bottom - 0.3),
        target(right - 0.5, bottom - 0.75),
    ]
}

/// Width is compared as a length, the side lobe in decibels. The position's bound of 0.01 cells is narrower than the 5 % of a
/// resolution that were asked for.
#[test]
fn points_are_focused_as_in_theory() {
    for (range, azimuth) in SIZES {
        let sar = Sar::strip_map(range, azimuth);
        for target in points(&sar) {
            let focus = measured(&sar, &formed(&sar, &[target], &SarOptions::default()), &target);
            println!("{range} x {azimuth}, {target:?}: {focus:?}");
            let (across, along) = (focus.range, focus.azimuth);
            assert!((across.position - target.range_cell).abs() < 0.01);
            assert!((along.position - target.azimuth_row).abs() < 0.01);
            assert!((across.width / sar.range_width_cells() - 1.0).abs() < 0.05);
            assert!((along.width / sar.azimuth_width_rows() - 1.0).abs() < 0.05);
            assert!((across.side_lobe_db / SIDE_LOBE_DB - 1.0).abs() < 0.05);
            assert!((along.side_lobe_db / SIDE_LOBE_DB - 1.0).abs() < 0.05);
            assert!((focus.amplitude - 1.0).abs() < 0.05);
        }
    }
}

/// Tests a scene whose points migrate by several cells: without the correction they would be spread over them.
#[test]
fn several_points_are_focused_together_in_spite_of_migration() {
    let sar = Sar::strip_map(512, 4096);
    assert!(sar.migration_cells() > 7.0, "{} cells", sar.migration_cells());
    let targets = points(&sar);
    let image = formed(&sar, &targets, &SarOptions::default());
    for target in targets {
        let focus = measured(&sar, &image, &target);
        println!("{target:?}: {focus:?}");
        assert!((focus.range.position - target.range_cell).abs() < 0.02);
        assert!((focus.azimuth.position - target.azimuth_row).abs() < 0.02);
        assert!((focus.range.width / sar.range_width_cells() - 1.0).abs() < 0.05);
        assert!((focus.azimuth.width / sar.azimuth_width_rows() - 1.0).abs() < 0.05);
        let phase = -4.0 * PI * sar.range_m(target.range_cell) / sar.wavelength_m();
        let difference = (focus.phase - phase + PI).rem_euclid(2.0 * PI) - PI;
        // The phase is that of the exact slant range; migration is corrected to 1/128 cell only, hence the bound.
        assert!(difference.abs() < 0.2, "phase off by {difference} rad");
    }
}

#[test]
fn weights_lower_the_side_lobes() {
    let sar = Sar::strip_map(512, 512);
    let target = points(&sar)[0];
    for (weighting, limit_db) in [(Weighting::Kaiser(2.5), -19.0), (Weighting::Hamming, -30.0)] {
        let options = SarOptions::default().weighting(weighting);
        let focus = measured(&sar, &formed(&sar, &[target], &options), &target);
        for cut in [focus.range, focus.azimuth] {
            assert!(cut.side_lobe_db < limit_db && cut.width > 1.2, "{weighting:?}: {cut:?}");
        }
    }
}

#[test]
fn a_real_antenna_lowers_the_side_lobes_in_azimuth() {
    let sar = Sar::strip_map(512, 512);
    let target = points(&sar)[0];
    let raw = Echoes::new(&sar, vec![target]).antenna(Antenna::Sinc2).scene();
    let focus = measured(&sar, &image(&sar, &SarOptions::default(), &raw).unwrap(), &target);
    assert!(focus.azimuth.side_lobe_db < -15.0, "{focus:?}");
    assert!((focus.range.side_lobe_db / SIDE_LOBE_DB - 1.0).abs() < 0.05, "{focus:?}");
}

/// Tests that a point stands out of noise that is stronger than its echo.
#[test]
fn a_point_is_found_in_noise() {
    let sar = Sar::strip_map(512, 512);
    let target = Target { amplitude: 0.2, ..points(&sar)[0] };
    let raw = Echoes::new(&sar, vec![target]).noise(0.5, 1).scene();
    let image = image(&sar, &SarOptions::default(), &raw).unwrap();
    let peak = (0..image.len()).max_by(|a, b| image[*a].norm().total_cmp(&image[*b].norm())).unwrap();
    assert_eq!((peak % 512, peak / 512), (target.range_cell as usize, target.azimuth_row as usize));
}

#[test]
fn the_number_of_threads_and_the_file_change_no_bit() {
    for (range, azimuth) in [(512, 512), (300, 500), (37, 1000)] {
        let sar = Sar::strip_map(range, azimuth);
        let raw = Echoes::new(&sar, points(&sar)).noise(0.1, 3).scene();
        let expected = image(&sar, &SarOptions::default().threads(1), &raw).unwrap();
        let limit = (raw.len() * 8 / 2) as u64;
        let folder = std::env::temp_dir();
        let some = SarOptions::default().threads(2);
        for options in
            [some.clone(), some.clone().memory_bytes(limit), some.memory_bytes(limit / 2).folder(folder)]
        {
            let uses_file = options.memory_bytes > 0;
            assert_eq!(Former::new(&sar, &options).unwrap().uses_file(), uses_file);
            assert!(image(&sar, &options, &raw).unwrap() == expected, "{range} x {azimuth} with {options:?}");
        }
    }
}

#[test]
fn scenes_that_do_not_fit_are_errors() {
    let sar = Sar::strip_map(64, 32);
    let form = |samples: usize, options: &SarOptions| {
        image(&sar, options, &vec![Complex32::default(); samples]).unwrap_err().to_string()
    };
    let options = SarOptions::default();
    assert!(form(64 * 31, &options).contains("1 of 32 rows are missing"));
    assert!(form(64 * 33, &options).contains("do not fit the scene"));
    assert!(form(64 * 32 - 1, &options).contains("do not fit the scene"));
    assert!(form(64 * 32, &options.clone().memory_bytes(1000)).contains("allow the scene more memory"));
    let folder = options.memory_bytes(8192).folder("/nonexistent".into());
    assert!(form(64 * 32, &folder).contains("temporary file in /nonexistent"));
}
