//! Formation of one image: rows of raw echoes in, rows of the image out.
//!
//! A [`Former`] stores the scene, in memory or in a file, and cuts it into parts for each step: some rows, or a strip of
//! columns. An [`Engine`] computes the parts, several at a time: the processor, or a card.

use super::columns::TILE;
use super::engine::{Engine, Step};
use super::memory::{Memory, SAMPLE};
use super::pool;
use super::processor::Processor;
use super::tiles::{self, TileFile};
use super::window::Weighting;
use crate::error::Error;
use crate::kernel::Sar;
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
    /// Folder of the temporary file; if there is none, TMPDIR or /var/tmp.
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
    engine: Box<dyn Engine>,
    /// Number of rows of the scene, and of samples of each.
    rows: usize,
    columns: usize,
    is_bare: bool,
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
    /// Those of [`Sar::check`]; [`Error::Memory`] if the limit holds no row and column for each thread;
    /// [`Error::TemporaryFile`] if no file can be made.
    pub fn new(sar: &Sar, options: &SarOptions) -> Result<Former, Error> {
        let SarOptions { weighting, transforms_only, threads, .. } = *options;
        let processor = Processor::new(sar, weighting, transforms_only, pool::threads(threads))?;
        Former::with_engine(sar, options, Box::new(processor), Arc::default())
    }

    /// Begins an image that an engine computes, whose geometry was checked. The flag ends the work once it is set.
    ///
    /// # Errors
    /// Those of [`Former::new`].
    pub(crate) fn with_engine(
        sar: &Sar,
        options: &SarOptions,
        engine: Box<dyn Engine>,
        stop: Arc<AtomicBool>,
    ) -> Result<Former, Error> {
        let (threads, part_bytes) = (engine.threads(), engine.part_bytes());
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
            let thread_bytes = thread_bytes.min(part_bytes);
            slab_bytes = slab_bytes.min(thread_bytes).min((limit / 16) as usize).max(row_bytes);
            let width = (thread_bytes / column_bytes).min(sar.range);
            let folder = options.folder.clone().unwrap_or_else(tiles::folder);
            store = Store::File(TileFile::new(&folder, sar.azimuth, sar.range, width)?);
        }
        let slab_rows = (slab_bytes / row_bytes).min(sar.azimuth);
        Ok(Former {
            engine,
            rows: sar.azimuth,
            columns: sar.range,
            is_bare: options.transforms_only,
            store,
            slab_rows,
            pushed: 0,
            popped: 0,
            times: Times::default(),
            stop,
        })
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

    /// Returns the number of bytes that the processor has copied so far: to and from a card, or the temporary file.
    pub fn copied_bytes(&self) -> u64 {
        let in_file = if self.uses_file() { (self.pushed + self.popped) * self.columns * SAMPLE } else { 0 };
        self.engine.copied_bytes() + in_file as u64
    }

    /// Allocates a slab of some rows.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn slab(&self, rows: usize) -> Result<Slab, Error> {
        Ok(Slab { memory: Memory::new(rows * self.columns)? })
    }

    /// Takes the next rows of raw echoes, and compresses them in range. Returns the slab for further rows if the scene lies in
    /// a file.
    ///
    /// # Errors
    /// [`Error::Input`] if the slab has no whole rows, or there are more than those of the scene; [`Error::Lost`], [`Error::TemporaryFile`].
    pub fn push(&mut self, mut slab: Slab) -> Result<Option<Slab>, Error> {
        let begin = Instant::now();
        let (columns, rows) = (self.columns, slab.samples().len() / self.columns);
        if rows * columns != slab.samples().len() || self.pushed + rows > self.rows {
            let (first, samples) = (self.pushed, slab.samples().len());
            return Err(Error::Input(format!(
                "sar: {samples} samples from row {first} on do not fit the scene"
            )));
        }
        let part = self.part_rows(rows.div_ceil(4 * self.engine.threads()));
        let jobs = parts(slab.samples_mut().chunks_exact_mut(columns), part);
        self.run_parts(Step::Compress, part * columns, jobs)?;
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
    /// [`Error::Input`] if rows are missing; [`Error::Memory`], [`Error::Lost`], [`Error::TemporaryFile`].
    pub fn form(&mut self) -> Result<(), Error> {
        let (pushed, rows) = (self.pushed, self.rows);
        if pushed < rows {
            return Err(Error::Input(format!("sar: {} of {rows} rows are missing", rows - pushed)));
        }
        let begin = Instant::now();
        self.transform_columns(Step::Transform)?;
        self.times.azimuth = begin.elapsed();
        let begin = Instant::now();
        if !self.is_bare {
            self.correct_rows()?;
        }
        self.times.migration = begin.elapsed();
        let begin = Instant::now();
        self.transform_columns(Step::Invert)?;
        self.times.inverse = begin.elapsed();
        Ok(())
    }

    /// Returns the next rows of the image, or `None` after the last ones.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::Lost`], [`Error::TemporaryFile`].
    pub fn pop(&mut self) -> Result<Option<Slab>, Error> {
        let rows = self.slab_rows.min(self.rows - self.popped);
        let slab = match &mut self.store {
            Store::Memory(slabs) => slabs.pop_front(),
            Store::File(_) if rows == 0 => None,
            Store::File(file) => {
                let mut slab = Slab { memory: Memory::new(rows * self.columns)? };
                file.read_rows(self.popped, slab.samples_mut(), &mut Vec::new())?;
                Some(slab)
            }
        };
        self.popped += slab.as_ref().map_or(0, |slab| slab.samples().len() / self.columns);
        Ok(slab)
    }

    /// Returns a number of rows of a part: as many as asked for, if the engine can compute so many at a time.
    fn part_rows(&self, rows: usize) -> usize {
        rows.min(self.engine.part_bytes() / (self.columns * SAMPLE)).max(1)
    }

    /// Does a step on parts, which are given by their rows and the number of the first of them.
    fn run_parts(&self, step: Step, samples: usize, parts: Vec<Part<'_>>) -> Result<(), Error> {
        let work = || self.engine.work(step, samples);
        pool::run(self.engine.threads(), &self.stop, parts, work, |work, (first, mut rows)| {
            work.run(first, &mut rows)
        })
    }

    fn transform_columns(&mut self, step: Step) -> Result<(), Error> {
        let (rows, columns, threads) = (self.rows, self.columns, self.engine.threads());
        let mut store = std::mem::replace(&mut self.store, Store::Memory(VecDeque::new()));
        let done = match &mut store {
            Store::Memory(slabs) => {
                let width = columns.div_ceil(threads * STRIPS_PER_THREAD).next_multiple_of(TILE);
                let width = width.min(self.engine.part_bytes() / (rows * SAMPLE)).max(1);
                let mut strips: Vec<Part<'_>> = Vec::new();
                strips.resize_with(columns.div_ceil(width), || (0, Vec::with_capacity(rows)));
                for row in slabs.iter_mut().flat_map(|slab| slab.samples_mut().chunks_exact_mut(columns)) {
                    strips
                        .iter_mut()
                        .zip(row.chunks_mut(width))
                        .for_each(|(strip, piece)| strip.1.push(piece));
                }
                self.run_parts(step, rows * width.min(columns), strips)
            }
            Store::File(file) => {
                let samples = rows * file.strip_columns(0);
                let state = || Ok((self.engine.work(step, samples)?, Memory::new(samples)?));
                pool::run(
                    threads,
                    &self.stop,
                    (0..file.strips()).collect(),
                    state,
                    |(work, memory), strip| {
                        let width = file.strip_columns(strip);
                        let samples = &mut memory.samples_mut()[..rows * width];
                        file.read_strip(strip, samples)?;
                        work.run(0, &mut samples.chunks_exact_mut(width).collect::<Vec<_>>())?;
                        file.write_strip(strip, samples)
                    },
                )
            }
        };
        self.store = store;
        done
    }

    fn correct_rows(&mut self) -> Result<(), Error> {
        let (rows, columns, part_rows, threads) =
            (self.rows, self.columns, self.slab_rows, self.engine.threads());
        let mut store = std::mem::replace(&mut self.store, Store::Memory(VecDeque::new()));
        let done = match &mut store {
            Store::Memory(slabs) => {
                // Some rows at a time, because those beyond the Doppler band take hardly any time.
                let some = self.part_rows(part_rows.div_ceil(2 * threads));
                let all = slabs.iter_mut().flat_map(|slab| slab.samples_mut().chunks_exact_mut(columns));
                self.run_parts(Step::Correct, some * columns, parts(all, some))
            }
            Store::File(file) => {
                let samples = part_rows * columns;
                let state =
                    || Ok((self.engine.work(Step::Correct, samples)?, Memory::new(samples)?, Vec::new()));
                let firsts = (0..rows).step_by(part_rows).collect();
                pool::run(threads, &self.stop, firsts, state, |(work, memory, part), first| {
                    let samples = &mut memory.samples_mut()[..part_rows.min(rows - first) * columns];
                    file.read_rows(first, samples, part)?;
                    work.run(first, &mut samples.chunks_exact_mut(columns).collect::<Vec<_>>())?;
                    file.write_rows(first, samples, part)
                })
            }
        };
        self.store = store;
        done
    }
}

/// Rows, or parts of rows, and the number of the first one.
type Part<'a> = (usize, Vec<&'a mut [Complex32]>);

/// Collects rows to parts of so many at most.
fn parts<'a>(rows: impl Iterator<Item = &'a mut [Complex32]>, most: usize) -> Vec<Part<'a>> {
    let mut parts: Vec<Part<'a>> = Vec::new();
    for (index, row) in rows.enumerate() {
        match parts.last_mut().filter(|(_, rows)| rows.len() < most) {
            Some((_, rows)) => rows.push(row),
            None => parts.push((index, vec![row])),
        }
    }
    parts
}

/// Forms the image of a whole scene in memory.
///
/// # Errors
/// Those of [`Former`]; [`Error::Input`] if the raw data are not those of the scene.
pub fn image(sar: &Sar, options: &SarOptions, raw: &[Complex32]) -> Result<Vec<Complex32>, Error> {
    let former = Former::new(sar, options)?;
    image_by(former, raw)
}

/// Forms the image of a whole scene by a former that has just begun.
///
/// # Errors
/// Those of [`image()`].
pub fn image_by(mut former: Former, raw: &[Complex32]) -> Result<Vec<Complex32>, Error> {
    let slab_samples = former.slab_rows() * former.columns;
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
