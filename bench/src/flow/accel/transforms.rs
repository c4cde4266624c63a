//! Fourier transforms alone: the kernel `fft` of the device `cpu` against SciPy, with as many threads.
//!
//! Both sides transform the same frames, which lie in memory, to other memory, and neither into caches: the device's buffers
//! have room for all of them. A turn is one pass that is not timed, and the median of some more. SciPy's process begins with each
//! turn, which is not timed either; it computes in place and not, of which the faster one counts. One spectrum of each side is
//! compared.
//!
//! The transforms of an image go along rows and columns of one scene, forward and back. Ours are those of the image without
//! its filters; SciPy's scene has the same size.

use super::{LOOK, SCENES, echoes, form, image_time, take};
use crate::engine::{Metric, Rounds, Side};
use crate::error::{Attempt, Error};
use crate::flow::{MIB, Needing, Stage};
use crate::python::Python;
use crate::row::Row;
use crate::statistics::Summary;
use bywash_accelerator::kernel::{Fft, Kernel};
use bywash_accelerator::sar::SarOptions;
use bywash_accelerator::{Session, SessionOptions, devices};
use serde::Deserialize;
use serde_json::json;
use std::cell::{OnceCell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Sizes of a frame, in samples.
const SIZES: [usize; 5] = [1024, 2048, 4096, 8192, 65536];
/// Size of all frames, in bytes, of a full run and of a quick one.
const BYTES: [u64; 2] = [64 * MIB, 8 * MIB];
/// Passes of a turn that are timed; those of a scene, each of which takes seconds.
const REPEATS: usize = 5;
const SCENE_REPEATS: usize = 1;
/// Least ratio to SciPy's throughput.
const GOAL: f64 = 1.0;
/// Greatest relative difference of a spectrum.
const DIFFERENCE: f64 = 1e-5;
/// Size of a sample, in bytes.
const SAMPLE: usize = 8;

const SCIPY: (&str, &str) = ("SciPy", include_str!("../../../programs/transforms.py"));
const PACKAGES: [&str; 2] = ["scipy==1.17.1", "numpy==2.4.6"];

pub(super) fn cases(quick: bool) -> Vec<Needing> {
    let scipy = Rc::new(Scipy::default());
    let case = |size| {
        let head = Row::head("flow/accel", &format!("transforms of {size} samples"), "memory");
        let scipy = Rc::clone(&scipy);
        let measure = move |stage: &Stage, head: &Row| transforms(stage, head, &scipy, size);
        let head = throughput(0).head(&head, SCIPY.0, Some(GOAL));
        (Vec::new(), crate::campaign::Declared::new(head, measure))
    };
    let scene = SCENES[usize::from(quick)];
    let head = Row::head("flow/accel", &format!("transforms of a scene, {scene} x {scene}"), "memory");
    let of_scene = Rc::clone(&scipy);
    let measure = move |stage: &Stage, head: &Row| transforms_of_scene(stage, head, &of_scene, scene);
    let head = image_time().head(&head, SCIPY.0, Some(GOAL));
    let scene = (Vec::new(), crate::campaign::Declared::new(head, measure));
    SIZES.into_iter().map(case).chain([scene]).collect()
}

fn throughput(bytes: u64) -> Metric<'static, f64> {
    Metric::rate("throughput", "B/s", move |seconds: &f64| bytes as f64 / seconds)
}

/// Environment with SciPy, made when it is first needed.
#[derive(Default)]
struct Scipy(OnceCell<Result<(Python, TempDir), Error>>);

/// Answer of the script.
#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    versions: String,
}

impl Scipy {
    /// Returns the environment and a folder for files.
    fn get(&self, programs: &Path) -> Result<&(Python, TempDir), Error> {
        let prepare = || {
            let folder = tempfile::tempdir().doing("create", &std::env::temp_dir())?;
            let python = Python::prepare(programs, folder.path(), "python-scipy", &PACKAGES)?;
            Ok((python, folder))
        };
        let advice = |error: &Error| match error {
            Error::Interrupted => Error::Interrupted,
            error => {
                Error::Unavailable(format!("pip install {} is not possible: {error}", PACKAGES.join(" ")))
            }
        };
        self.0.get_or_init(prepare).as_ref().map_err(advice)
    }

    /// Transforms `frames` frames of `size` samples, in passes along an axis, inverse or not. Returns the seconds, the versions
    /// and a spectrum.
    fn transform(
        &self,
        programs: &Path,
        (frames, size): (usize, usize),
        passes: &[(u32, bool)],
        repeats: usize,
    ) -> Result<(Answer, Vec<f32>), Error> {
        let (python, folder) = self.get(programs)?;
        let [frame, spectrum] = ["frame", "spectrum"].map(|name| folder.path().join(name));
        std::fs::write(&frame, wave(size)).doing("write", &frame)?;
        let order = json!({
            "frame": frame,
            "spectrum": spectrum,
            "frames": frames,
            "threads": std::thread::available_parallelism().map_or(1, usize::from),
            "repeats": repeats,
            "passes": passes.iter().map(|(axis, inverse)| json!({"axis": axis, "inverse": inverse})).collect::<Vec<_>>(),
        });
        let answer = python.run("transforms", SCIPY.1, &order)?;
        Ok((answer, numbers(&std::fs::read(&spectrum).doing("read", &spectrum)?)))
    }
}

/// One size of a frame.
fn transforms(stage: &Stage, head: &Row, scipy: &Scipy, size: usize) -> Result<Vec<Row>, Error> {
    let bytes = BYTES[usize::from(stage.quick)];
    let ours = RefCell::new(Frames::new(size, bytes).map_err(failed)?);
    let versions = RefCell::new(String::new());
    let run = || ours.borrow_mut().turn().map_err(failed);
    let frames = (bytes as usize / SAMPLE / size, size);
    let transform = || scipy.transform(&stage.programs, frames, &[(1, false)], REPEATS);
    let theirs = || Ok(transform()?.0.seconds);
    let compare = || {
        let (answer, spectrum) = transform()?;
        *versions.borrow_mut() = answer.versions;
        let difference = difference(&ours.borrow_mut().spectrum().map_err(failed)?, &spectrum);
        if difference > DIFFERENCE {
            return Err(Error::failed(
                SCIPY.0,
                format!("computed a spectrum that differs by {difference:e}"),
            ));
        }
        Ok(())
    };
    let sides = vec![Side::new("bywash", run), Side::new(SCIPY.0, theirs).warm_up(compare)];
    let runs = Rounds::new(stage.rounds).limited().run(sides)?;
    let head = Row { note: versions.borrow().clone(), ..head.clone() };
    Ok(vec![throughput(bytes).row(&head, &runs[0], &runs[1], Some(GOAL))])
}

/// The four passes of an image of `size` x `size` samples.
fn transforms_of_scene(stage: &Stage, head: &Row, scipy: &Scipy, size: usize) -> Result<Vec<Row>, Error> {
    let (sar, echoes) = echoes(size);
    let versions = RefCell::new(String::new());
    let ours = || form(&sar, &echoes, &SarOptions::default().transforms_only()).map_err(super::device);
    let theirs = || {
        let passes = [(1, false), (1, true), (0, false), (0, true)];
        let answer = scipy.transform(&stage.programs, (size, size), &passes, SCENE_REPEATS)?.0;
        *versions.borrow_mut() = answer.versions;
        Ok(answer.seconds)
    };
    let runs = Rounds::new(stage.rounds)
        .limited()
        .run(vec![Side::new("bywash", ours), Side::new(SCIPY.0, theirs)])?;
    let head = Row { note: versions.borrow().clone(), ..head.clone() };
    Ok(vec![image_time().row(&head, &runs[0], &runs[1], Some(GOAL))])
}

fn failed(error: io::Error) -> Error {
    Error::failed("the accelerator", error.to_string())
}

/// Frames in the buffers of a session that transforms them.
struct Frames {
    session: Session,
    size: usize,
    bytes: u64,
}

impl Frames {
    /// Begins a session whose buffers have room for all frames.
    fn new(size: usize, bytes: u64) -> io::Result<Frames> {
        let block = size_of_block(size);
        let options = SessionOptions::default().block_bytes(block).blocks(bytes as usize / block);
        let device = devices::open("cpu").map_err(io::Error::other)?;
        let kernel = Kernel::Fft(Fft { size, is_inverse: false });
        let session = device.session(&kernel, &options).map_err(io::Error::other)?;
        Ok(Frames { session, size, bytes })
    }

    /// Transforms all frames some times, and returns the median of the seconds.
    fn turn(&mut self) -> io::Result<f64> {
        self.spectrum()?;
        let mut seconds = Vec::new();
        for _ in 0..REPEATS {
            let begin = Instant::now();
            self.pass(|_| (), |_| ())?;
            seconds.push(begin.elapsed().as_secs_f64());
        }
        Ok(Summary::of(&seconds).map_or(0.0, |summary| summary.median))
    }

    /// Fills all buffers, and returns the last spectrum.
    fn spectrum(&mut self) -> io::Result<Vec<f32>> {
        let (wave, mut spectrum) = (wave(self.size), Vec::new());
        let bytes = wave.len();
        let fill = |memory: &mut [u8]| {
            memory.chunks_exact_mut(bytes).for_each(|frame| frame.copy_from_slice(&wave));
        };
        self.pass(fill, |output| spectrum = numbers(&output[output.len() - bytes..]))?;
        Ok(spectrum)
    }

    /// Transforms all frames once, whatever the buffers have after `fill`.
    fn pass(&mut self, mut fill: impl FnMut(&mut [u8]), mut show: impl FnMut(&[u8])) -> io::Result<()> {
        let (mut left, mut due) = (self.bytes, self.bytes);
        while due > 0 {
            if left > 0
                && let Some(memory) = self.session.input.buffer(Duration::ZERO).map_err(io::Error::other)?
            {
                fill(memory);
                let bytes = memory.len();
                self.session.input.submit(bytes).map_err(io::Error::other)?;
                left -= bytes as u64;
                continue;
            }
            take(&mut self.session, LOOK, &mut |output| {
                show(output);
                due -= output.len() as u64;
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Returns the size of a block: whole frames, as many as make a mebibyte.
fn size_of_block(size: usize) -> usize {
    (size * SAMPLE).max(MIB as usize)
}

/// A frame of a wave, as bytes.
fn wave(size: usize) -> Vec<u8> {
    (0..2 * size).flat_map(|number| (number as f32 * 0.37).sin().to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

/// Returns the difference of two spectra in relation to the first one; infinity if they have different sizes.
fn difference(one: &[f32], other: &[f32]) -> f64 {
    if one.len() != other.len() {
        return f64::INFINITY;
    }
    let root =
        |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number * number).sum::<f64>().sqrt();
    let difference = root(&mut one.iter().zip(other).map(|(a, b)| f64::from(a - b)));
    difference / root(&mut one.iter().map(|number| f64::from(*number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_transforms_all_frames() {
        let size = 1024;
        let mut frames = Frames::new(size, 4 * MIB).unwrap();
        assert!(frames.turn().unwrap() > 0.0);
        let spectrum = frames.spectrum().unwrap();
        // By the definition, in one frequency.
        let (wave, bin) = (numbers(&wave(size)), 60);
        let mut sum = [0.0; 2];
        for (index, sample) in wave.as_chunks::<2>().0.iter().enumerate() {
            let (sine, cosine) =
                (std::f64::consts::TAU * (index * bin % size) as f64 / size as f64).sin_cos();
            let [re, im] = sample.map(f64::from);
            sum = [sum[0] + re * cosine + im * sine, sum[1] + im * cosine - re * sine];
        }
        let sum = sum.map(|number| number as f32);
        assert!(difference(&sum, &spectrum[2 * bin..2 * bin + 2]) < 1e-4, "{sum:?}");
    }

    #[test]
    fn spectra_differ_by_a_share() {
        assert_eq!(difference(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert!((difference(&[3.0, 4.0], &[3.0, 4.5]) - 0.1).abs() < 1e-9);
        assert_eq!(difference(&[3.0], &[3.0, 4.0]), f64::INFINITY);
    }
}
