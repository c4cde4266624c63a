//! Session that forms a radar image: rows of raw echoes in, rows of the image out.
//!
//! Input buffers are parts of slabs, which hold some rows each. A slab that is full goes to the thread that forms the image: it
//! compresses the slab in range while the caller fills the next one. In memory the slabs are the scene itself, so nothing is
//! copied, and the rows of the image are lent out of the same slabs. If the scene lies in a temporary file, a few slabs
//! circulate. The image begins to be formed with the last row of the input, and no row of it is finished before all are.
//!
//! ```text
//!   SceneInput  -- filled slabs -->  thread  -- rows of the image -->  SceneOutput
//!        ^------ slabs to fill again ---'
//! ```

use crate::device::{Output, Session, SessionInput, SessionOptions, SessionOutput, Statistics};
use crate::error::Error;
use crate::kernel::Sar;
use crate::sar::{Former, SarOptions, Slab};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Size of the buffer in which input beyond the scene is noticed, in bytes.
const BEYOND_BYTES: usize = 4096;
/// Slabs of the image that wait for the caller at most.
const FINISHED_MAX: usize = 2;
/// Size of a sample, in bytes.
const SAMPLE: usize = size_of::<[f32; 2]>();

/// Begins the formation of an image.
///
/// # Errors
/// Those of [`Former::new`]; [`Error::Lost`] if no thread can be started.
pub(crate) fn session(sar: &Sar, options: &SessionOptions) -> Result<Session, Error> {
    let former = Former::new(sar, &SarOptions::default().threads(options.threads))?;
    session_of(sar, former, options)
}

/// Begins the formation of an image by a former that has just begun.
///
/// # Errors
/// [`Error::Lost`] if no thread can be started.
pub(crate) fn session_of(sar: &Sar, former: Former, options: &SessionOptions) -> Result<Session, Error> {
    let (input, output) = start(sar, former, options)?;
    Ok(Session { input: Box::new(input), output: Box::new(output) })
}

/// Sizes of a scene, in bytes.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    scene: usize,
    row: usize,
    slab: usize,
    /// Greatest size of an input buffer and of an output.
    block: usize,
}

/// Counters and result.
#[derive(Default)]
struct State {
    busy: Duration,
    slabs: u64,
    in_flight: u64,
    in_flight_max: u64,
    input_bytes: usize,
    copied_bytes: u64,
    /// True once all rows of the image were sent.
    is_complete: bool,
    failure: Option<Error>,
}

/// State that both ends and the thread share.
struct Shared {
    state: Mutex<State>,
    /// Flag that ends the work of the thread.
    stop: Arc<AtomicBool>,
    uses_file: bool,
}

/// Thread that forms the image; it ends with the last end of the session.
struct Thread {
    handle: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

/// End for the rows of raw echoes.
struct SceneInput {
    sizes: Sizes,
    /// Slab that is being filled, and its number of bytes that are.
    filling: Option<Slab>,
    filled: usize,
    /// Number of slabs that may still be allocated.
    slabs_left: usize,
    input_bytes: usize,
    beyond: Vec<u8>,
    is_finished: bool,
    slabs: SyncSender<Slab>,
    free: Receiver<Slab>,
    shared: Arc<Shared>,
    /// Dropped behind the channels, without which the thread ends.
    _thread: Arc<Thread>,
}

/// End for the rows of the image.
struct SceneOutput {
    block_bytes: usize,
    /// Rows that are being taken, and the bytes of them that the caller has.
    current: Option<Slab>,
    begin: usize,
    end: usize,
    output_bytes: usize,
    rows: Receiver<Slab>,
    shared: Arc<Shared>,
    /// Dropped behind the channel, without which the thread ends.
    _thread: Arc<Thread>,
}

fn start(sar: &Sar, former: Former, options: &SessionOptions) -> Result<(SceneInput, SceneOutput), Error> {
    let row = sar.range * SAMPLE;
    let sizes = Sizes {
        scene: row * sar.azimuth,
        row,
        slab: row * former.slab_rows(),
        block: options.block_bytes.max(1),
    };
    let all = sar.azimuth.div_ceil(former.slab_rows());
    let slabs_left = if former.uses_file() { options.blocks.clamp(2, 4).min(all) } else { all };
    // Each of these channels has room for all slabs, so handing one over does not wait.
    let (slabs, incoming) = sync_channel(slabs_left);
    let (freed, free) = channel();
    let (outgoing, rows) = sync_channel(FINISHED_MAX);
    let (stop, uses_file) = (former.stop(), former.uses_file());
    let shared = Arc::new(Shared { state: Mutex::default(), stop: Arc::clone(&stop), uses_file });
    let (azimuth, forming) = (sar.azimuth, Arc::clone(&shared));
    let work = move || {
        if let Err(error) = form(former, azimuth, &incoming, &freed, &outgoing, &forming) {
            forming.fail(error);
        }
    };
    let handle = std::thread::Builder::new().name("bywash-sar".into()).spawn(work).map_err(|error| {
        Error::Lost { device: super::NAME.into(), message: format!("a thread cannot be started: {error}") }
    })?;
    let thread = Arc::new(Thread { handle: Some(handle), stop });
    let input = SceneInput {
        sizes,
        filling: None,
        filled: 0,
        slabs_left,
        input_bytes: 0,
        beyond: vec![0; BEYOND_BYTES],
        is_finished: false,
        slabs,
        free,
        shared: Arc::clone(&shared),
        _thread: Arc::clone(&thread),
    };
    let output = SceneOutput {
        block_bytes: sizes.block,
        current: None,
        begin: 0,
        end: 0,
        output_bytes: 0,
        rows,
        shared,
        _thread: thread,
    };
    Ok((input, output))
}

impl Shared {
    /// Locks the state, which is valid whatever a thread that panicked did.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session by an error, unless one has ended it before. Returns the error that ended it.
    fn fail(&self, error: Error) -> Error {
        self.stop.store(true, Ordering::Relaxed);
        self.state().failure.get_or_insert(error).clone()
    }

    /// Checks that the session has not failed.
    fn check(&self) -> Result<(), Error> {
        self.state().failure.clone().map_or(Ok(()), Err)
    }

    /// Returns the reason for which the thread has ended.
    fn gone(&self) -> Error {
        let message = "the thread that formed the image is gone".into();
        self.fail(Error::Lost { device: super::NAME.into(), message })
    }
}

impl SceneInput {
    /// Gets a slab to fill, if one is free within the limit.
    fn begin_slab(&mut self, limit: Duration) -> Result<(), Error> {
        if self.filling.is_some() {
            return Ok(());
        }
        if self.slabs_left > 0 {
            let rows_left = (self.sizes.scene - self.input_bytes) / self.sizes.row;
            let rows = self.sizes.slab / self.sizes.row;
            // A slab in the file's case is used again, and is of full size.
            let rows = if self.shared.uses_file { rows } else { rows.min(rows_left) };
            self.filling = Some(Slab::new(rows, self.sizes.row / SAMPLE)?);
            self.slabs_left -= 1;
            return Ok(());
        }
        match self.free.recv_timeout(limit) {
            Ok(slab) => self.filling = Some(slab),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(self.shared.gone()),
        }
        Ok(())
    }

    /// Returns the range of the slab that can be filled. The last slab of a scene may have fewer bytes than it has memory for.
    fn room(&self) -> std::ops::Range<usize> {
        if self.filling.is_none() {
            return 0..0;
        }
        let begin = self.input_bytes - self.filled;
        let end = self.sizes.slab.min(self.sizes.scene - begin);
        self.filled..end.min(self.filled + self.sizes.block)
    }

    /// Gives the slab that is full to the thread.
    fn hand_over(&mut self) -> Result<(), Error> {
        let Some(mut slab) = self.filling.take() else { return Ok(()) };
        slab.truncate(self.filled / SAMPLE);
        self.filled = 0;
        let mut state = self.shared.state();
        state.in_flight += 1;
        state.in_flight_max = state.in_flight_max.max(state.in_flight);
        drop(state);
        self.slabs.send(slab).map_err(|_| self.shared.gone())
    }
}

impl SessionInput for SceneInput {
    fn buffer(&mut self, limit: Duration) -> Result<Option<&mut [u8]>, Error> {
        self.shared.check()?;
        if self.is_finished {
            return Ok(None);
        }
        if self.input_bytes == self.sizes.scene {
            return Ok(Some(&mut self.beyond));
        }
        self.begin_slab(limit)?;
        let room = self.room();
        Ok(self.filling.as_mut().map(|slab| &mut bytemuck::cast_slice_mut(slab.samples_mut())[room]))
    }

    fn submit(&mut self, bytes: usize) -> Result<(), Error> {
        self.shared.check()?;
        if bytes > 0 && self.input_bytes == self.sizes.scene && !self.is_finished {
            let Sizes { scene, row, .. } = self.sizes;
            let rows = scene / row;
            return Err(self.shared.fail(Error::Input(format!(
                "sar: the input goes on after {rows} rows of {row} bytes: give the scene more rows"
            ))));
        }
        let room = self.room();
        if bytes > room.len() {
            return Err(self.shared.fail(Error::beyond_buffer(bytes, room.len())));
        }
        self.filled += bytes;
        self.input_bytes += bytes;
        self.shared.state().input_bytes = self.input_bytes;
        if self.room().is_empty() { self.hand_over() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.shared.check()?;
        self.is_finished = true;
        let Sizes { scene, row, .. } = self.sizes;
        let missing = scene - self.input_bytes;
        if missing == 0 {
            return Ok(());
        }
        let (rows, missing_rows, rest) = (scene / row, missing / row, missing % row);
        Err(self.shared.fail(Error::Input(format!(
            "sar: the input ends early: {missing_rows} of {rows} rows and {rest} bytes are missing ({row} bytes a row)"
        ))))
    }
}

impl Drop for SceneInput {
    fn drop(&mut self) {
        if !self.is_finished {
            self.shared.fail(Error::Closed);
        }
    }
}

impl SessionOutput for SceneOutput {
    fn next(&mut self, limit: Duration) -> Result<Output, Error> {
        self.shared.check()?;
        if self.current.as_ref().is_some_and(|slab| self.end == size_of_val(slab.samples())) {
            self.current = None;
        }
        if self.current.is_none() {
            (self.begin, self.end) = (0, 0);
            match self.rows.recv_timeout(limit) {
                Ok(slab) => self.current = Some(slab),
                Err(RecvTimeoutError::Timeout) => return Ok(Output::None),
                Err(RecvTimeoutError::Disconnected) if self.shared.state().is_complete => {
                    return Ok(Output::End);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.shared.gone()),
            }
        }
        self.begin = self.end;
        let bytes = self.current.as_ref().map_or(0, |slab| size_of_val(slab.samples()));
        self.end = bytes.min(self.begin + self.block_bytes);
        self.output_bytes += self.end - self.begin;
        Ok(Output::Block)
    }

    fn block(&self) -> &[u8] {
        let bytes: &[u8] = self.current.as_ref().map_or(&[], |slab| bytemuck::cast_slice(slab.samples()));
        &bytes[self.begin..self.end]
    }

    fn statistics(&self) -> Statistics {
        let state = self.shared.state();
        Statistics {
            input_bytes: state.input_bytes as u64,
            output_bytes: self.output_bytes as u64,
            copied_bytes: state.copied_bytes,
            blocks: state.slabs,
            busy: state.busy,
            in_flight_max: state.in_flight_max,
        }
    }
}

impl Drop for SceneOutput {
    fn drop(&mut self) {
        if !self.shared.state().is_complete {
            self.shared.fail(Error::Closed);
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            // A panic of that thread was reported as the session's failure.
            let _ = handle.join();
        }
    }
}

/// Forms the image of the slabs that come, and sends its rows.
fn form(
    mut former: Former,
    rows: usize,
    incoming: &Receiver<Slab>,
    freed: &Sender<Slab>,
    outgoing: &SyncSender<Slab>,
    shared: &Shared,
) -> Result<(), Error> {
    while former.pushed_rows() < rows {
        // The session was dropped, or its input has ended early.
        let Ok(slab) = incoming.recv() else { return Ok(()) };
        let begin = Instant::now();
        let spare = former.push(slab)?;
        let mut state = shared.state();
        state.busy += begin.elapsed();
        state.slabs += 1;
        state.copied_bytes = former.copied_bytes();
        state.in_flight -= 1;
        drop(state);
        if let Some(slab) = spare {
            // Nobody fills it if the end for the input is gone.
            let _ = freed.send(slab);
        }
    }
    let mut begin = Instant::now();
    former.form()?;
    loop {
        let slab = former.pop()?;
        let mut state = shared.state();
        state.busy += begin.elapsed();
        state.copied_bytes = former.copied_bytes();
        state.is_complete |= slab.is_none();
        drop(state);
        // Nobody takes the rows if the end for the output is gone.
        match slab.map(|slab| outgoing.send(slab)) {
            Some(Ok(())) => begin = Instant::now(),
            Some(Err(_)) | None => return Ok(()),
        }
    }
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

    fn scene(sar: &Sar, memory_bytes: u64, block_bytes: usize) -> (SceneInput, SceneOutput) {
        let former = Former::new(sar, &SarOptions::default().threads(2).memory_bytes(memory_bytes)).unwrap();
        start(sar, former, &SessionOptions::default().block_bytes(block_bytes)).unwrap()
    }

    /// Gives bytes to a session, waiting for free buffers.
    fn fill(input: &mut SceneInput, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let buffer = input.buffer(WAIT)?.expect("a free buffer");
            let count = buffer.len().min(bytes.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
            input.submit(count)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    fn drain(output: &mut SceneOutput) -> Vec<u8> {
        let (mut bytes, begin) = (Vec::new(), Instant::now());
        loop {
            assert!(begin.elapsed() < WAIT, "no end of the output");
            match output.next(Duration::from_millis(100)).unwrap() {
                Output::Block => bytes.extend_from_slice(output.block()),
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
            let (mut input, mut output) = scene(&sar, memory_bytes, block_bytes);
            fill(&mut input, bytemuck::cast_slice(&raw)).unwrap();
            input.finish().unwrap();
            assert_eq!(input.buffer(Duration::ZERO).unwrap(), None);
            assert!(
                drain(&mut output) == bytemuck::cast_slice::<_, u8>(&expected),
                "{memory_bytes} {block_bytes}"
            );
            let statistics = output.statistics();
            assert_eq!((statistics.input_bytes, statistics.output_bytes), (size as u64, size as u64));
            assert_eq!(statistics.copied_bytes, if memory_bytes > 0 { 2 * size as u64 } else { 0 });
            assert!(
                statistics.blocks >= 16 && statistics.in_flight_max > 0 && !statistics.busy.is_zero(),
                "{statistics:?}"
            );
            assert_eq!(output.next(WAIT).unwrap(), Output::End);
        }
    }

    /// Tests that range compression does not wait for the end of the input.
    #[test]
    fn computing_begins_with_the_first_rows() {
        let sar = Sar::strip_map(200, 320);
        let (mut input, mut output) = scene(&sar, 0, 1 << 20);
        fill(&mut input, &vec![0; 200 * 8 * 100]).unwrap();
        let begin = Instant::now();
        while output.statistics().blocks < 5 {
            assert!(begin.elapsed() < WAIT, "{:?}", output.statistics());
            assert_eq!(output.next(Duration::from_millis(1)).unwrap(), Output::None);
        }
    }

    #[test]
    fn input_that_ends_early_or_late_is_an_error() {
        let sar = Sar::strip_map(64, 32);
        let (mut early, mut output) = scene(&sar, 0, 1000);
        fill(&mut early, &vec![0; 512 * 30 + 12]).unwrap();
        let message = early.finish().unwrap_err().to_string();
        assert!(message.contains("1 of 32 rows and 500 bytes are missing"), "{message}");
        assert_eq!(output.next(WAIT).unwrap_err().to_string(), message);
        let (mut late, _output) = scene(&sar, 0, 1000);
        fill(&mut late, &vec![0; 512 * 32]).unwrap();
        let message = fill(&mut late, &[0]).unwrap_err().to_string();
        assert!(message.contains("the input goes on after 32 rows of 512 bytes"), "{message}");
    }

    #[test]
    fn more_than_a_buffer_is_refused() {
        let (mut input, _output) = scene(&Sar::strip_map(64, 32), 0, 1000);
        assert_eq!(input.buffer(WAIT).unwrap().map(|buffer| buffer.len()), Some(1000));
        let message = input.submit(1001).unwrap_err().to_string();
        assert!(message.contains("room for 1000"), "{message}");
    }

    #[test]
    fn a_wait_for_output_is_bounded() {
        let (_input, mut output) = scene(&Sar::strip_map(64, 32), 0, 1000);
        let begin = Instant::now();
        assert_eq!(output.next(Duration::from_millis(20)).unwrap(), Output::None);
        assert!((Duration::from_millis(20)..WAIT).contains(&begin.elapsed()));
    }

    /// Tests that a session ends its thread when its ends are dropped in the middle, in both orders.
    #[test]
    fn a_session_can_be_dropped_at_any_time() {
        let sar = Sar::strip_map(200, 333);
        let bytes: Vec<u8> = bytemuck::cast_slice(&raw(&sar)).to_vec();
        for count in [0, 100_000, bytes.len()] {
            for memory_bytes in [0, bytes.len() as u64 / 2] {
                let (mut input, output) = scene(&sar, memory_bytes, 1 << 20);
                fill(&mut input, &bytes[..count]).unwrap();
                drop(output);
                assert!(input.buffer(WAIT).is_err() && input.finish().is_err());
                let (mut input, mut output) = scene(&sar, memory_bytes, 1 << 20);
                fill(&mut input, &bytes[..count]).unwrap();
                drop(input);
                assert!(matches!(output.next(WAIT), Err(Error::Closed)));
            }
        }
    }
}
