//! Formation of one image: rows of raw echoes in, rows of the image out, on all threads.

use super::columns::{self, ColumnWork, TILE};
use super::memory::{Memory, SAMPLE};
use super::plan::Plan;
use super::pool;
use super::tiles::TileFile;
use super::window::Weighting;
use crate::error::Error;
use crate::kernel::Sar;
use rustfft::Fft;
use rustfft::num_complex::Complex32;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Greatest size of the rows that are handled as one, in bytes.
const SLAB_BYTES: usize = 32 << 20;
/// Slabs that a scene has at least, if it has so many rows: so range compression begins before all rows have come.
const SLABS_MIN: usize = 16;
/// Strips for each thread in a pass over columns: so a thread that is slow does not delay the others by much.
const STRIPS_PER_THREAD: usize = 8;

/// Resources that the formation of an image may use.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SarOptions {
    /// Memory for the scene, in bytes; a scene that is larger goes through a temporary file. 0: three quarters of the memory
    /// that the system has available.
    pub memory_bytes: u64,
    /// Folder of the temporary file; the system's if there is none.
    pub folder: Option<PathBuf>,
    /// Threads; 0: as many as there are processors that this process may use.
    pub threads: usize,
    /// Weights on the spectra of range and azimuth.
    pub weighting: Weighting,
    /// Leaves out filters and migration correction: the transforms alone, to be timed.
    pub transforms_only: bool,
}

impl SarOptions {
    /// Sets the memory for the scene, in bytes.
    #[must_use]
    pub fn memory_bytes(self, memory_bytes: u64) -> SarOptions {
        SarOptions { memory_bytes, ..self }
    }

    /// Sets the folder of the temporary file.
    #[must_use]
    pub fn folder(self, folder: PathBuf) -> SarOptions {
        SarOptions { folder: Some(folder), ..self }
    }

    /// Sets the number of threads.
    #[must_use]
    pub fn threads(self, threads: usize) -> SarOptions {
        SarOptions { threads, ..self }
    }

    /// Sets the weights on the spectra.
    #[must_use]
    pub fn weighting(self, weighting: Weighting) -> SarOptions {
        SarOptions { weighting, ..self }
    }

    /// Leaves out filters and migration correction.
    #[must_use]
    pub fn transforms_only(self) -> SarOptions {
        SarOptions { transforms_only: true, ..self }
    }
}

/// Consecutive rows of the raw data or of the image.
#[derive(Debug, Default)]
pub struct Slab {
    memory: Memory,
}

impl Slab {
    /// Allocates rows of a number of samples.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(crate) fn new(rows: usize, columns: usize) -> Result<Slab, Error> {
        Ok(Slab { memory: Memory::new(rows * columns)? })
    }

    /// Drops the samples after the first `length` ones.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.memory.truncate(length);
    }

    /// Returns the samples, row by row.
    pub fn samples(&self) -> &[Complex32] {
        self.memory.samples()
    }

    /// Returns the samples, to be filled.
    pub fn samples_mut(&mut self) -> &mut [Complex32] {
        self.memory.samples_mut()
    }
}

/// Time that each step took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Range compression of all rows.
    pub range: Duration,
    /// Azimuth transform of all columns.
    pub azimuth: Duration,
    /// Migration correction and azimuth filter.
    pub migration: Duration,
    /// Inverse azimuth transform of all columns.
    pub inverse: Duration,
}

/// Scene between the steps.
#[derive(Debug)]
enum Store {
    Memory(VecDeque<Slab>),
    File(TileFile),
}

/// Image that is being formed.
pub struct Former {
    plan: Plan,
    threads: usize,
    store: Store,
    slab_rows: usize,
    /// Rows that were pushed, and rows that were popped.
    pushed: usize,
    popped: usize,
    times: Times,
    stop: Arc<AtomicBool>,
}

impl Former {
    /// Begins an image.
    ///
    /// # Errors
    /// Those of [`Sar::check`]; [`Error::Memory`] if the limit holds no row and column for each thread; [`Error::Lost`] if the
    /// temporary file cannot be made.
    pub fn new(sar: &Sar, options: &SarOptions) -> Result<Former, Error> {
        let plan = Plan::new(sar, options.weighting, options.transforms_only)?;
        let threads = pool::threads(options.threads);
        let limit = if options.memory_bytes == 0 { available_bytes() } else { options.memory_bytes };
        let (row_bytes, column_bytes) = (sar.range * SAMPLE, sar.azimuth * SAMPLE);
        let scene_bytes = sar.range * column_bytes;
        let mut slab_bytes = (scene_bytes / SLABS_MIN).clamp(row_bytes, SLAB_BYTES.max(row_bytes));
        let mut store = Store::Memory(VecDeque::new());
        if scene_bytes as u64 > limit {
            // A quarter is for the strips or rows of the threads, half for the slabs that are in flight.
            let thread_bytes = usize::try_from(limit).unwrap_or(usize::MAX) / 4 / threads;
            if thread_bytes < row_bytes.max(column_bytes) {
                let remedy = "allow the scene more memory, or use fewer threads";
                let bytes = (4 * threads * row_bytes.max(column_bytes)) as u64;
                return Err(Error::Memory { device: "cpu".into(), bytes, remedy });
            }
            slab_bytes = slab_bytes.min(thread_bytes).min((limit / 16) as usize).max(row_bytes);
            let width = (thread_bytes / column_bytes).min(sar.range);
            let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
            store = Store::File(TileFile::new(&folder, sar.azimuth, sar.range, width)?);
        }
        let slab_rows = (slab_bytes / row_bytes).min(sar.azimuth);
        let stop = Arc::default();
        Ok(Former { plan, threads, store, slab_rows, pushed: 0, popped: 0, times: Times::default(), stop })
    }

    /// Returns the number of rows of a slab; the last one may have fewer.
    pub fn slab_rows(&self) -> usize {
        self.slab_rows
    }

    /// Returns the number of rows that were pushed.
    pub fn pushed_rows(&self) -> usize {
        self.pushed
    }

    /// Returns whether the scene lies in a temporary file.
    pub fn uses_file(&self) -> bool {
        matches!(self.store, Store::File(_))
    }

    /// Returns a flag that ends the work at the next opportunity, once it is set; the image is then not valid.
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Returns the time that each step took so far.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Allocates a slab of some rows.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn slab(&self, rows: usize) -> Result<Slab, Error> {
        Ok(Slab { memory: Memory::new(rows * self.plan.sar.range)? })
    }

    /// Takes the next rows of raw echoes, and compresses them in range. Returns the slab for further rows if the scene lies in
    /// a file.
    ///
    /// # Errors
    /// [`Error::Input`] if the slab has no whole rows, or there are more than those of the scene; [`Error::Lost`].
    pub fn push(&mut self, mut slab: Slab) -> Result<Option<Slab>, Error> {
        let begin = Instant::now();
        let (columns, rows) = (self.plan.sar.range, slab.samples().len() / self.plan.sar.range);
        if rows * columns != slab.samples().len() || self.pushed + rows > self.plan.sar.azimuth {
            let (first, samples) = (self.pushed, slab.samples().len());
            return Err(Error::Input(format!(
                "sar: {samples} samples from row {first} on do not fit the scene"
            )));
        }
        let part = rows.div_ceil(4 * self.threads).max(1) * columns;
        let jobs: Vec<&mut [Complex32]> = slab.samples_mut().chunks_mut(part).collect();
        let scratch = || Memory::new(self.plan.compress_scratch());
        pool::run(self.threads, &self.stop, jobs, scratch, |scratch, rows| {
            rows.chunks_exact_mut(columns).for_each(|row| self.plan.compress(row, scratch.samples_mut()));
            Ok(())
        })?;
        let spare = match &mut self.store {
            Store::Memory(slabs) => {
                slabs.push_back(slab);
                None
            }
            Store::File(file) => {
                file.write_rows(self.pushed, slab.samples(), &mut Vec::new())?;
                Some(slab)
            }
        };
        self.pushed += rows;
        self.times.range += begin.elapsed();
        Ok(spare)
    }

    /// Forms the image of the rows that were pushed.
    ///
    /// # Errors
    /// [`Error::Input`] if rows are missing; [`Error::Memory`], [`Error::Lost`].
    pub fn form(&mut self) -> Result<(), Error> {
        let (pushed, rows) = (self.pushed, self.plan.sar.azimuth);
        if pushed < rows {
            return Err(Error::Input(format!("sar: {} of {rows} rows are missing", rows - pushed)));
        }
        let (forward, inverse) =
            (Arc::clone(&self.plan.azimuth_forward), Arc::clone(&self.plan.azimuth_inverse));
        let begin = Instant::now();
        self.transform_columns(&*forward)?;
        self.times.azimuth = begin.elapsed();
        let begin = Instant::now();
        if !self.plan.is_bare {
            self.correct_rows()?;
        }
        self.times.migration = begin.elapsed();
        let begin = Instant::now();
        self.transform_columns(&*inverse)?;
        self.times.inverse = begin.elapsed();
        Ok(())
    }

    /// Returns the next rows of the image, or `None` after the last ones.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Lost`].
    pub fn pop(&mut self) -> Result<Option<Slab>, Error> {
        let rows = self.slab_rows.min(self.plan.sar.azimuth - self.popped);
        let slab = match &mut self.store {
            Store::Memory(slabs) => slabs.pop_front(),
            Store::File(_) if rows == 0 => None,
            Store::File(file) => {
                let mut slab = Slab { memory: Memory::new(rows * self.plan.sar.range)? };
                file.read_rows(self.popped, slab.samples_mut(), &mut Vec::new())?;
                Some(slab)
            }
        };
        self.popped += slab.as_ref().map_or(0, |slab| slab.samples().len() / self.plan.sar.range);
        Ok(slab)
    }

    fn transform_columns(&mut self, fft: &dyn Fft<f32>) -> Result<(), Error> {
        let (rows, columns) = (self.plan.sar.azimuth, self.plan.sar.range);
        match &mut self.store {
            Store::Memory(slabs) => {
                let width = columns.div_ceil(self.threads * STRIPS_PER_THREAD).next_multiple_of(TILE);
                let mut strips: Vec<Vec<&mut [Complex32]>> = Vec::new();
                strips.resize_with(columns.div_ceil(width), || Vec::with_capacity(rows));
                for row in slabs.iter_mut().flat_map(|slab| slab.samples_mut().chunks_exact_mut(columns)) {
                    strips.iter_mut().zip(row.chunks_mut(width)).for_each(|(strip, piece)| strip.push(piece));
                }
                pool::run(
                    self.threads,
                    &self.stop,
                    strips,
                    || ColumnWork::new(fft),
                    |work, mut strip| {
                        columns::transform(&mut strip, fft, work);
                        Ok(())
                    },
                )
            }
            Store::File(file) => {
                let state = || Ok((ColumnWork::new(fft)?, Memory::new(rows * file.strip_columns(0))?));
                let strips = (0..file.strips()).collect();
                pool::run(self.threads, &self.stop, strips, state, |(work, memory), strip| {
                    let width = file.strip_columns(strip);
                    let samples = &mut memory.samples_mut()[..rows * width];
                    file.read_strip(strip, samples)?;
                    let mut pieces: Vec<&mut [Complex32]> = samples.chunks_exact_mut(width).collect();
                    columns::transform(&mut pieces, fft, work);
                    file.write_strip(strip, samples)
                })
            }
        }
    }

    fn correct_rows(&mut self) -> Result<(), Error> {
        let (rows, columns, part_rows) = (self.plan.sar.azimuth, self.plan.sar.range, self.slab_rows);
        let plan = &self.plan;
        let correct = |first: usize, samples: &mut [Complex32], scratch: &mut Memory| {
            for (index, row) in samples.chunks_exact_mut(columns).enumerate() {
                plan.correct(first + index, row, scratch.samples_mut());
            }
        };
        match &mut self.store {
            Store::Memory(slabs) => {
                // Some rows at a time, because those beyond the Doppler band take hardly any time.
                let some = part_rows.div_ceil(2 * self.threads).max(1);
                let samples = slabs.iter_mut().flat_map(|slab| slab.samples_mut().chunks_exact_mut(columns));
                let mut jobs: Vec<(usize, Vec<&mut [Complex32]>)> = Vec::new();
                for (index, row) in samples.enumerate() {
                    match jobs.last_mut().filter(|(_, rows)| rows.len() < some) {
                        Some((_, rows)) => rows.push(row),
                        None => jobs.push((index, vec![row])),
                    }
                }
                let scratch = || Memory::new(plan.correct_scratch());
                pool::run(self.threads, &self.stop, jobs, scratch, |scratch, (first, rows)| {
                    rows.into_iter()
                        .enumerate()
                        .for_each(|(index, row)| correct(first + index, row, scratch));
                    Ok(())
                })
            }
            Store::File(file) => {
                let state = || {
                    Ok((Memory::new(plan.correct_scratch())?, Memory::new(part_rows * columns)?, Vec::new()))
                };
                let parts = (0..rows).step_by(part_rows).collect();
                pool::run(self.threads, &self.stop, parts, state, |(scratch, memory, part), first| {
                    let samples = &mut memory.samples_mut()[..part_rows.min(rows - first) * columns];
                    file.read_rows(first, samples, part)?;
                    correct(first, samples, scratch);
                    file.write_rows(first, samples, part)
                })
            }
        }
    }
}

/// Forms the image of a whole scene in memory.
///
/// # Errors
/// Those of [`Former`]; [`Error::Input`] if the raw data are not those of the scene.
pub fn image(sar: &Sar, options: &SarOptions, raw: &[Complex32]) -> Result<Vec<Complex32>, Error> {
    let mut former = Former::new(sar, options)?;
    let slab_samples = former.slab_rows() * sar.range;
    for part in raw.chunks(slab_samples) {
        let mut slab = Slab { memory: Memory::new(part.len())? };
        slab.samples_mut().copy_from_slice(part);
        former.push(slab)?;
    }
    former.form()?;
    let mut image = Vec::with_capacity(raw.len());
    while let Some(slab) = former.pop()? {
        image.extend_from_slice(slab.samples());
    }
    Ok(image)
}

/// Returns three quarters of the memory that the system has available, or what a scene of 8192 x 8192 samples needs if that is
/// not known.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB"));
    line.and_then(|line| line.trim().parse::<u64>().ok())
        .map_or(512 << 20, |kilobytes| (kilobytes << 10) / 4 * 3)
}
