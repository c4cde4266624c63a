//! The controller of a rotating disk: its cache, its read-ahead, and the position of the head.
//!
//! ```text
//!     command ── in a segment? ──── yes ──── no time
//!                    │
//!                    no ── head stands behind the segment's last byte? ── yes ── transfer
//!                                                  │
//!                                                  no ── seek, transfer
//! ```
//!
//! The cache is divided into equal segments, each with the last bytes of one stream (a sequence of adjacent
//! accesses); the least recently used segment is replaced. After a command the head reads on in the same
//! segment, until the segment is full or the next command starts. This costs no time and no event: the
//! controller computes at the next command how far the head came.
//!
//! A controller fills a segment at once, before it takes the next command, in two cases: the stream came back
//! after the head had left it and its segment was still there, so that segments outnumber streams; or the
//! controller *knows the file*, because the file system runs in it.
//!
//! A run calls the module for each station that has a controller.

use super::arm::Arm;
use super::time::Time;

/// Key of an access that belongs to no stream.
const NO_STREAM: u32 = u32::MAX;

/// Cache of a disk's controller, and the rate of its disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// Transfer time of the disk, in picoseconds per byte.
    byte: f64,
    /// Size of a segment, in bytes. With 0 the controller has no cache, and every access positions the head.
    segment_bytes: u64,
    /// Greatest number of segments.
    segments_max: usize,
    /// True if the controller knows the files, and therefore fills a segment at each access.
    knows_files: bool,
    /// Bytes per track, or 0 if a stream stays on its track.
    track_bytes: u64,
    /// Segments with data, the most recently used one last.
    segments: Vec<Segment>,
    /// Stream and position behind the byte that the head read last.
    head: (u32, u64),
    /// Time since which the head reads on in the last segment.
    reads_on_since: Time,
}

/// Bytes of one stream in the controller's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    stream: u32,
    /// First byte that the segment holds, as a position in the stream.
    from: u64,
    /// Position behind the last byte that the segment holds.
    to: u64,
}

/// One command to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// Stream that the command continues, or `None` for an access elsewhere on the disk.
    pub stream: Option<u32>,
    /// Position in the stream, in bytes.
    pub at: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Track of the stream's first byte.
    pub track: u32,
    /// True for a write, which no read-ahead serves.
    pub writes: bool,
}

impl Controller {
    /// Returns a controller with an empty cache of `segments_max` segments of `segment_bytes` bytes, for a
    /// disk that transfers a byte in `seconds_per_byte`.
    pub fn new(seconds_per_byte: f64, segment_bytes: u32, segments_max: u32) -> Controller {
        Controller {
            byte: seconds_per_byte * 1e12,
            segment_bytes: u64::from(segment_bytes),
            segments_max: segments_max.max(1) as usize,
            knows_files: false,
            track_bytes: 0,
            segments: Vec::new(),
            head: (NO_STREAM, 0),
            reads_on_since: Time(0),
        }
    }

    /// Returns the controller with knowledge of the files, so that it reads ahead at each access.
    pub fn with_files(self) -> Controller {
        Controller { knows_files: true, ..self }
    }

    /// Returns the controller of a disk with `bytes` bytes per track.
    pub fn with_tracks_of(self, bytes: u32) -> Controller {
        Controller { track_bytes: u64::from(bytes), ..self }
    }

    /// Serves `command` from the time `now` on, and returns the time that this takes. `turned` is the
    /// rotational delay of a positioning, as a share of a rotation.
    pub(super) fn serve(&mut self, arm: &mut Arm, command: Command, now: Time, turned: f64) -> Time {
        self.read_on(now);
        let Command { at, bytes, .. } = command;
        let stream = command.stream.unwrap_or(NO_STREAM);
        let end = at + bytes;
        let found = if stream == NO_STREAM { None } else { self.take(stream, at) };
        let is_known = found.is_some();
        let held = found.filter(|_| !command.writes).unwrap_or(Segment { stream, from: at, to: at });
        if held.to >= end {
            // The head reads on only if it still stands behind the data.
            self.segments.push(Segment { from: end, ..held });
            self.reads_on_since = now;
            return Time(0);
        }
        let is_there = self.segment_bytes > 0 && stream != NO_STREAM && self.head == (stream, held.to);
        let is_filled = self.knows_files || (is_known && !is_there);
        let is_ahead = is_filled && !command.writes && stream != NO_STREAM;
        let to = if is_ahead { end.max(at + self.segment_bytes) } else { end };
        let [first, last] = [held.to, to].map(|position| self.track_of(command.track, position));
        let positioning = if is_there { Time(0) } else { arm.reach(first, turned) };
        let passed = arm.follow(last);
        self.head = (stream, to);
        let takes = positioning + passed + Time::from_picoseconds((to - held.to) as f64 * self.byte);
        self.keep(Segment { stream, from: end, to });
        self.reads_on_since = now + takes;
        takes
    }

    /// Extends the last segment by the bytes that the head has read since the last command.
    fn read_on(&mut self, now: Time) {
        let Some(segment) = self.segments.last_mut() else { return };
        if self.head == (segment.stream, segment.to) && segment.stream != NO_STREAM {
            let read = ((now - self.reads_on_since).0 as f64 / self.byte) as u64;
            segment.to = (segment.to + read).min(segment.from + self.segment_bytes).max(segment.to);
            self.head.1 = segment.to;
        }
    }

    /// Removes and returns the segment of `stream` that holds, or ends at, the position `at`.
    fn take(&mut self, stream: u32, at: u64) -> Option<Segment> {
        let holds = |segment: &Segment| segment.stream == stream && (segment.from..=segment.to).contains(&at);
        self.segments.iter().position(holds).map(|number| self.segments.remove(number))
    }

    /// Stores a segment, in place of the least recently used one if the cache is full.
    fn keep(&mut self, segment: Segment) {
        if self.segment_bytes == 0 {
            return;
        }
        if self.segments.len() >= self.segments_max {
            self.segments.remove(0);
        }
        self.segments.push(segment);
    }

    fn track_of(&self, first: u32, position: u64) -> u32 {
        match position.checked_div(self.track_bytes) {
            Some(passed) => first.saturating_add(passed as u32),
            None => first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    const SEEK: u64 = 2_000_000_000;
    /// Time to transfer a byte at 40 MB/s, in picoseconds.
    const BYTE: u64 = 25_000;

    fn controller(segment_bytes: u32, segments: u32) -> Controller {
        Controller::new(1.0 / 40e6, segment_bytes, segments)
    }

    /// Serves a sequential command, and returns its picoseconds.
    fn read(it: &mut Controller, arm: &mut Arm, now: u64, stream: u32, at: u64, bytes: u64) -> u64 {
        let command = Command { stream: Some(stream), at, bytes, track: stream * 10, writes: false };
        it.serve(arm, command, Time(now), 0.0).0
    }

    fn arm() -> Arm {
        Arm::new(Time(SEEK), Time(20_000_000), Time(0))
    }

    #[test]
    fn one_stream_moves_the_head_once() {
        let (mut it, mut arm) = (controller(131_072, 1), arm());
        let (mut now, mut all) = (0, 0);
        for number in 0..100 {
            let takes = read(&mut it, &mut arm, now, 0, number * 16384, 16384);
            (now, all) = (now + takes, all + takes);
        }
        assert_eq!(all, SEEK + 100 * 16384 * BYTE);
    }

    #[test]
    fn an_idle_head_reads_on_until_the_segment_is_full() {
        let (mut it, mut arm) = (controller(131_072, 1), arm());
        let first = read(&mut it, &mut arm, 0, 0, 0, 16384);
        // Half of the next command's bytes pass the head before it comes.
        let now = first + 8192 * BYTE;
        assert_eq!(read(&mut it, &mut arm, now, 0, 16384, 16384), 8192 * BYTE);
        // Within a second the whole segment is read, and no more.
        let now = now + 1_000_000_000_000;
        assert_eq!(read(&mut it, &mut arm, now, 0, 32768, 131_072), 0);
        assert_eq!(read(&mut it, &mut arm, now, 0, 163_840, 16384), 16384 * BYTE);
    }

    #[test]
    fn interleaved_streams_move_the_head_each_time() {
        // Streams at tracks 0, 10, 20, 30 in turn: three moves of 10 tracks and one of 30 in four commands.
        let (mut it, mut arm) = (controller(131_072, 1), arm());
        let (mut now, mut all) = (0, 0);
        for number in 0..400u64 {
            let takes = read(&mut it, &mut arm, now, number as u32 % 4, number / 4 * 16384, 16384);
            (now, all) = (now + takes, all + takes);
        }
        let moves = 99 * 30 + 100 * 30;
        assert_eq!(all, 400 * (SEEK + 16384 * BYTE) + moves * 20_000_000);
    }

    #[test]
    fn segments_or_knowledge_of_the_files_read_a_segment_for_each_move() {
        for (mut it, segment) in
            [(controller(32768, 4), 32768u64), (controller(32768, 4).with_files(), 32768)]
        {
            let (mut arm, mut now) = (Arm::new(Time(SEEK), Time(0), Time(0)), 0);
            let mut all = 0;
            let rounds = 400u64;
            for number in 0..4 * rounds {
                let takes = read(&mut it, &mut arm, now, number as u32 % 4, number / 4 * 8192, 8192);
                now += takes;
                // The first access of a stream is not known to be one.
                if number >= 8 {
                    all += takes;
                }
            }
            let bytes = 4 * (rounds - 2) * 8192;
            let wanted = bytes as f64 / segment as f64 * (SEEK + segment * BYTE) as f64;
            assert!((all as f64 / wanted - 1.0).abs() < 0.01, "{all} {wanted}");
        }
    }

    #[test]
    fn random_tracks_are_a_third_of_the_disk_apart() {
        let (mut it, mut arm, mut random) = (controller(131_072, 4), arm(), Random::new(7));
        let (tracks, count) = (300u64, 100_000u64);
        let mut all = 0;
        for _ in 0..count {
            let track = random.below(tracks) as u32;
            let command = Command { stream: None, at: 0, bytes: 16384, track, writes: false };
            all += it.serve(&mut arm, command, Time(all), 0.0).0;
        }
        // The mean distance of two of T equally likely tracks is (T^2 - 1) / (3 T).
        let distance = (tracks * tracks - 1) as f64 / (3 * tracks) as f64;
        let wanted = (SEEK + 16384 * BYTE) as f64 + distance * 20e6;
        assert!((all as f64 / count as f64 / wanted - 1.0).abs() < 0.005);
    }

    #[test]
    fn a_long_stream_pays_for_each_track_it_passes() {
        let mut it = controller(131_072, 1).with_tracks_of(65536);
        let mut arm = arm();
        let (mut now, mut all) = (0, 0);
        for number in 0..64 {
            let takes = read(&mut it, &mut arm, now, 0, number * 16384, 16384);
            (now, all) = (now + takes, all + takes);
        }
        assert_eq!(all, SEEK + 64 * 16384 * BYTE + 16 * 20_000_000);
    }

    #[test]
    fn writes_and_accesses_without_a_cache_move_the_head_each_time() {
        let mut arm = Arm::new(Time(SEEK), Time(0), Time(0));
        let mut none = controller(0, 1);
        for at in [0, 4096] {
            assert_eq!(read(&mut none, &mut arm, 0, 0, at, 4096), SEEK + 4096 * BYTE);
        }
        let mut it = controller(131_072, 4);
        read(&mut it, &mut arm, 0, 0, 0, 4096);
        read(&mut it, &mut arm, 0, 1, 0, 4096);
        let write = Command { stream: Some(0), at: 4096, bytes: 4096, track: 0, writes: true };
        assert_eq!(it.serve(&mut arm, write, Time(1_000_000_000_000), 0.0).0, SEEK + 4096 * BYTE);
    }
}
