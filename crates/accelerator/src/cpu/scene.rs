//! Session that forms a radar image: rows of raw echoes in, rows of the image out.
//!
//! Input buffers are parts of slabs, which hold some rows each. A slab that is full goes to the thread that forms the image: it
//! compresses the slab in range while the caller fills the next one. In memory the slabs are the scene itself, so nothing is
//! copied, and the rows of the image are lent out of the same slabs. If the scene lies in a temporary file, a few slabs
//! circulate. The image begins to be formed with the last row of the input, and no row of it is finished before all are.

use crate::device::{Output, Session, SessionOptions, Statistics};
use crate::error::Error;
use crate::kernel::Sar;
use crate::sar::{Former, SarOptions, Slab};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Size of the buffer in which input beyond the scene is noticed, in bytes.
const BEYOND_BYTES: usize = 4096;
/// Slabs of the image that wait for the caller at most.
const FINISHED_MAX: usize = 2;

/// Begins the formation of an image.
///
/// # Errors
/// Those of [`Former::new`]; [`Error::Lost`] if no thread can be started.
pub(crate) fn session(sar: &Sar, options: &SessionOptions) -> Result<Box<dyn Session>, Error> {
    let former = Former::new(sar, &SarOptions::default().threads(options.threads))?;
    Ok(Box::new(Scene::new(sar, former, options)?))
}

/// Message of the thread that forms the image.
enum Event {
    /// Slab whose rows were written to the temporary file: it can be filled again.
    Free(Slab),
    /// Next rows of the image.
    Rows(Slab),
    /// All rows were sent.
    End,
    /// Nothing more will come.
    Failed(Error),
}

/// Counters that both threads change.
#[derive(Default)]
struct Counters {
    busy: Duration,
    slabs: u64,
    in_flight: u64,
    in_flight_max: u64,
}

/// Image that is being formed, as a session.
struct Scene {
    /// Sizes of the whole scene and of one row, in bytes.
    scene_bytes: usize,
    row_bytes: usize,
    slab_rows: usize,
    block_bytes: usize,
    uses_file: bool,
    /// Slab that is being filled, its number of bytes that are, and free ones.
    filling: Option<Slab>,
    filled: usize,
    free: Vec<Slab>,
    /// Number of slabs that may still be allocated.
    slabs_left: usize,
    /// Rows of the image that are not taken yet: finished slabs, and the bytes taken of the first one.
    finished: VecDeque<Slab>,
    taken: usize,
    is_finished: bool,
    has_ended: bool,
    beyond: Vec<u8>,
    input_bytes: usize,
    output_bytes: usize,
    counters: Arc<Mutex<Counters>>,
    stop: Arc<AtomicBool>,
    slabs: Option<SyncSender<Slab>>,
    events: Option<Receiver<Event>>,
    thread: Option<JoinHandle<()>>,
}

impl Scene {
    fn new(sar: &Sar, former: Former, options: &SessionOptions) -> Result<Scene, Error> {
        let (row_bytes, slab_rows, uses_file) =
            (sar.range * size_of::<[f32; 2]>(), former.slab_rows(), former.uses_file());
        let all = sar.azimuth.div_ceil(slab_rows);
        let slabs_left = if uses_file { options.blocks.clamp(2, 4).min(all) } else { all };
        let (counters, stop) = (Arc::<Mutex<Counters>>::default(), former.stop());
        // Each channel has room for all slabs, so handing one over does not wait.
        let (slabs, incoming) = sync_channel(slabs_left);
        let (outgoing, events) = sync_channel(slabs_left.min(4) + FINISHED_MAX);
        let shared = Arc::clone(&counters);
        let azimuth = sar.azimuth;
        let work = move || {
            if let Err(error) = form(former, azimuth, &incoming, &outgoing, &shared) {
                // Nobody is there to be told if the session was dropped.
                let _ = outgoing.send(Event::Failed(error));
            }
        };
        let started = std::thread::Builder::new().name("accelerator-sar".into()).spawn(work);
        let lost =
            |error| Error::Lost { device: "cpu".into(), message: format!("cannot start a thread: {error}") };
        Ok(Scene {
            scene_bytes: row_bytes * azimuth,
            row_bytes,
            slab_rows,
            block_bytes: options.block_bytes.max(1),
            uses_file,
            filling: None,
            filled: 0,
            free: Vec::new(),
            slabs_left,
            finished: VecDeque::new(),
            taken: 0,
            is_finished: false,
            has_ended: false,
            beyond: vec![0; BEYOND_BYTES],
            input_bytes: 0,
            output_bytes: 0,
            counters,
            stop,
            slabs: Some(slabs),
            events: Some(events),
            thread: Some(started.map_err(lost)?),
        })
    }

    /// Gets a slab to fill, if one is free.
    fn begin_slab(&mut self) -> Result<(), Error> {
        if self.filling.is_some() || self.input_bytes == self.scene_bytes {
            return Ok(());
        }
        if self.slabs_left > 0 {
            let rows_left = (self.scene_bytes - self.input_bytes) / self.row_bytes;
            // A slab in the file's case is used again, and is of full size.
            let rows = if self.uses_file { self.slab_rows } else { self.slab_rows.min(rows_left) };
            self.filling = Some(Slab::new(rows, self.row_bytes / size_of::<[f32; 2]>())?);
            self.slabs_left -= 1;
            return Ok(());
        }
        while self.free.is_empty() && self.take_event(Duration::ZERO)? {}
        self.filling = self.free.pop();
        Ok(())
    }

    /// Returns the bytes of the slab that is being filled, which may be fewer than it has memory for at the end of the scene.
    fn slab_bytes(&self) -> usize {
        let begin = self.input_bytes - self.filled;
        (self.slab_rows * self.row_bytes).min(self.scene_bytes - begin)
    }

    /// Takes a message of the other thread, and returns whether there was one.
    fn take_event(&mut self, limit: Duration) -> Result<bool, Error> {
        let Some(events) = &self.events else { return Err(gone()) };
        let event = if limit.is_zero() {
            events.try_recv().map_err(|error| matches!(error, TryRecvError::Empty))
        } else {
            events.recv_timeout(limit).map_err(|error| matches!(error, RecvTimeoutError::Timeout))
        };
        match event {
            Ok(Event::Free(slab)) => self.free.push(slab),
            Ok(Event::Rows(slab)) => self.finished.push_back(slab),
            Ok(Event::End) => self.has_ended = true,
            Ok(Event::Failed(error)) => return Err(error),
            Err(true) => return Ok(false),
            Err(false) => return Err(gone()),
        }
        Ok(true)
    }

    /// Gives the slab that is full to the other thread.
    fn hand_over(&mut self) -> Result<(), Error> {
        let Some(mut slab) = self.filling.take() else { return Ok(()) };
        slab.truncate(self.filled / size_of::<[f32; 2]>());
        self.filled = 0;
        {
            let mut counters = lock(&self.counters);
            counters.in_flight += 1;
            counters.in_flight_max = counters.in_flight_max.max(counters.in_flight);
        }
        match self.slabs.as_ref().map(|slabs| slabs.send(slab)) {
            Some(Ok(())) => Ok(()),
            // The other thread has ended, and its last message says why.
            Some(Err(_)) | None => loop {
                if !self.take_event(Duration::from_secs(1))? {
                    return Err(gone());
                }
            },
        }
    }
}

impl Session for Scene {
    fn input(&mut self) -> Result<Option<&mut [u8]>, Error> {
        if self.input_bytes == self.scene_bytes {
            return Ok(Some(&mut self.beyond));
        }
        self.begin_slab()?;
        let (from, to) = (self.filled, self.slab_bytes().min(self.filled + self.block_bytes));
        Ok(self.filling.as_mut().map(|slab| &mut bytemuck::cast_slice_mut(slab.samples_mut())[from..to]))
    }

    fn submit(&mut self, bytes: usize) -> Result<(), Error> {
        if self.is_finished && bytes > 0 {
            return Err(Error::Input("sar: input after its end".into()));
        }
        if bytes > 0 && self.input_bytes == self.scene_bytes {
            let (rows, row_bytes) = (self.scene_bytes / self.row_bytes, self.row_bytes);
            let message = format!(
                "sar: the input goes on after {rows} rows of {row_bytes} bytes: give the scene more rows"
            );
            return Err(Error::Input(message));
        }
        let room = self.filling.as_ref().map_or(0, |_| self.slab_bytes() - self.filled).min(self.block_bytes);
        assert!(bytes <= room, "{bytes} bytes in a buffer of {room}");
        let slab_bytes = self.slab_bytes();
        self.filled += bytes;
        self.input_bytes += bytes;
        if self.filled == slab_bytes { self.hand_over() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.is_finished = true;
        if self.input_bytes == self.scene_bytes {
            return Ok(());
        }
        self.stop.store(true, Ordering::Relaxed);
        let (rows, row_bytes, missing) =
            (self.scene_bytes / self.row_bytes, self.row_bytes, self.scene_bytes - self.input_bytes);
        let (missing_rows, rest) = (missing / row_bytes, missing % row_bytes);
        Err(Error::Input(format!(
            "sar: the input ends early: {missing_rows} of {rows} rows and {rest} bytes are missing ({row_bytes} bytes a row)"
        )))
    }

    fn output(&mut self, limit: Duration) -> Result<Output<'_>, Error> {
        if self.finished.front().is_some_and(|slab| self.taken == size_of_val(slab.samples())) {
            self.finished.pop_front();
            self.taken = 0;
        }
        if self.finished.is_empty() && !self.has_ended {
            // A slab that is free again, or a failure, ends the wait, too.
            self.take_event(limit)?;
        }
        let Some(slab) = self.finished.front() else {
            return Ok(if self.has_ended && self.is_finished { Output::End } else { Output::None });
        };
        let bytes: &[u8] = bytemuck::cast_slice(slab.samples());
        let from = self.taken;
        self.taken = bytes.len().min(from + self.block_bytes);
        self.output_bytes += self.taken - from;
        Ok(Output::Block(&bytes[from..self.taken]))
    }

    fn statistics(&self) -> Statistics {
        let counters = lock(&self.counters);
        let copied = if self.uses_file { self.input_bytes + self.output_bytes } else { 0 };
        Statistics {
            input_bytes: self.input_bytes as u64,
            output_bytes: self.output_bytes as u64,
            copied_bytes: copied as u64,
            blocks: counters.slabs,
            busy: counters.busy,
            in_flight_max: counters.in_flight_max,
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Without its channels the other thread ends at its next message.
        self.slabs = None;
        self.events = None;
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was reported as the session's failure.
            let _ = thread.join();
        }
    }
}

/// Forms the image of the slabs that come, and sends its rows.
fn form(
    mut former: Former,
    rows: usize,
    incoming: &Receiver<Slab>,
    outgoing: &SyncSender<Event>,
    counters: &Mutex<Counters>,
) -> Result<(), Error> {
    while former.pushed_rows() < rows {
        // The session was dropped, or its input has ended early.
        let Ok(slab) = incoming.recv() else { return Ok(()) };
        let begin = Instant::now();
        let spare = former.push(slab)?;
        let mut counters = lock(counters);
        counters.busy += begin.elapsed();
        counters.slabs += 1;
        counters.in_flight -= 1;
        drop(counters);
        if spare.is_some_and(|slab| outgoing.send(Event::Free(slab)).is_err()) {
            return Ok(());
        }
    }
    let mut begin = Instant::now();
    former.form()?;
    loop {
        let slab = former.pop()?;
        lock(counters).busy += begin.elapsed();
        let event = slab.map_or(Event::End, Event::Rows);
        let is_end = matches!(event, Event::End);
        if outgoing.send(event).is_err() || is_end {
            return Ok(());
        }
        begin = Instant::now();
    }
}

/// Returns the failure of a thread that ended without a message.
fn gone() -> Error {
    Error::Lost { device: "cpu".into(), message: "the thread that formed the image is gone".into() }
}

/// Locks the counters, which are valid whatever a thread that panicked did.
fn lock(counters: &Mutex<Counters>) -> MutexGuard<'_, Counters> {
    counters.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sar::{Echoes, Target, image};
    use num_complex::Complex32;

    const WAIT: Duration = Duration::from_secs(30);

    fn raw(sar: &Sar) -> Vec<Complex32> {
        let target = Target { range_cell: 30.0, azimuth_row: sar.azimuth as f64 / 2.0, amplitude: 1.0 };
        Echoes::new(sar, vec![target]).noise(0.1, 5).scene()
    }

    fn scene(sar: &Sar, memory_bytes: u64, block_bytes: usize) -> Scene {
        let former = Former::new(sar, &SarOptions::default().threads(2).memory_bytes(memory_bytes)).unwrap();
        Scene::new(sar, former, &SessionOptions::default().block_bytes(block_bytes)).unwrap()
    }

    /// Gives the input to the session, and takes output whenever no buffer is free.
    fn fill(scene: &mut Scene, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            match scene.input()? {
                Some(buffer) => {
                    let count = buffer.len().min(bytes.len());
                    buffer[..count].copy_from_slice(&bytes[..count]);
                    scene.submit(count)?;
                    bytes = &bytes[count..];
                }
                None => assert_eq!(scene.output(WAIT)?, Output::None),
            }
        }
        Ok(())
    }

    fn drain(scene: &mut Scene) -> Vec<u8> {
        let (mut bytes, begin) = (Vec::new(), Instant::now());
        loop {
            assert!(begin.elapsed() < WAIT, "no end of the output");
            match scene.output(Duration::from_millis(100)).unwrap() {
                Output::Block(block) => bytes.extend_from_slice(block),
                Output::None => {}
                Output::End => return bytes,
            }
        }
    }

    #[test]
    fn rows_come_out_as_the_image() {
        let sar = Sar::strip_map(200, 333);
        let raw = raw(&sar);
        let expected = image(&sar, &SarOptions::default(), &raw).unwrap();
        let size = raw.len() * 8;
        for (memory_bytes, block_bytes) in [(0, 1 << 20), (0, 1000), (0, 12_800), (size as u64 / 2, 1000)] {
            let mut scene = scene(&sar, memory_bytes, block_bytes);
            fill(&mut scene, bytemuck::cast_slice(&raw)).unwrap();
            scene.finish().unwrap();
            assert!(
                drain(&mut scene) == bytemuck::cast_slice::<_, u8>(&expected),
                "{memory_bytes} {block_bytes}"
            );
            let statistics = scene.statistics();
            assert_eq!((statistics.input_bytes, statistics.output_bytes), (size as u64, size as u64));
            assert_eq!(statistics.copied_bytes, if memory_bytes > 0 { 2 * size as u64 } else { 0 });
            assert!(
                statistics.blocks >= 16 && statistics.in_flight_max > 0 && !statistics.busy.is_zero(),
                "{statistics:?}"
            );
            assert_eq!(scene.output(WAIT).unwrap(), Output::End);
        }
    }

    /// Tests that range compression does not wait for the end of the input.
    #[test]
    fn computing_begins_with_the_first_rows() {
        let sar = Sar::strip_map(200, 320);
        let mut scene = scene(&sar, 0, 1 << 20);
        fill(&mut scene, &vec![0; 200 * 8 * 100]).unwrap();
        let begin = Instant::now();
        while scene.statistics().blocks < 5 {
            assert!(begin.elapsed() < WAIT, "{:?}", scene.statistics());
            assert_eq!(scene.output(Duration::from_millis(1)).unwrap(), Output::None);
        }
    }

    #[test]
    fn input_that_ends_early_or_late_is_an_error() {
        let sar = Sar::strip_map(64, 32);
        let mut early = scene(&sar, 0, 1000);
        fill(&mut early, &vec![0; 512 * 30 + 12]).unwrap();
        let message = early.finish().unwrap_err().to_string();
        assert!(message.contains("1 of 32 rows and 500 bytes are missing"), "{message}");
        let mut late = scene(&sar, 0, 1000);
        fill(&mut late, &vec![0; 512 * 32]).unwrap();
        let message = fill(&mut late, &[0]).unwrap_err().to_string();
        assert!(message.contains("the input goes on after 32 rows of 512 bytes"), "{message}");
    }

    #[test]
    fn a_wait_for_output_is_bounded() {
        let sar = Sar::strip_map(64, 32);
        let mut scene = scene(&sar, 0, 1000);
        let begin = Instant::now();
        assert_eq!(scene.output(Duration::from_millis(20)).unwrap(), Output::None);
        assert!((Duration::from_millis(20)..WAIT).contains(&begin.elapsed()));
    }

    /// Tests that a session that is dropped in the middle ends its thread.
    #[test]
    fn a_session_can_be_dropped_at_any_time() {
        let sar = Sar::strip_map(200, 333);
        let bytes: Vec<u8> = bytemuck::cast_slice(&raw(&sar)).to_vec();
        for count in [0, 100_000, bytes.len()] {
            for memory_bytes in [0, bytes.len() as u64 / 2] {
                let mut scene = scene(&sar, memory_bytes, 1 << 20);
                fill(&mut scene, &bytes[..count]).unwrap();
            }
        }
    }
}
