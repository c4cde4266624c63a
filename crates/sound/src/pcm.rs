//! An open device, by the functions of ALSA's library.
//!
//! Invariant: a device is used by one thread at a time, and closed once, by the thread that has it then. All calls but
//! those of opening, draining and closing return without waiting, since the device is in the non-blocking mode.
//!
//! Unsafe code: calls of the library, with pointers to memory of the caller.

#![allow(unsafe_code)]

use crate::error::Error;
use crate::library::{Library, RawParameters, RawPcm, library};
use crate::options::{Direction, PcmOptions};
use crate::pending::Pending;
use std::ffi::{CString, c_int, c_long};
use std::io;
use std::ptr::null_mut;
use std::time::Duration;

/// `SND_PCM_NONBLOCK`.
const NONBLOCK: c_int = 1;
/// `SND_PCM_ACCESS_RW_INTERLEAVED`: the channels' samples alternate.
const INTERLEAVED: c_int = 3;
/// Time that closing a device may take before the caller goes on without it.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// An open sound device that plays or records.
#[derive(Debug)]
pub struct Pcm {
    /// The device; `None` once it is drained or closed.
    handle: Option<Handle>,
    device: String,
    direction: Direction,
    rate: u32,
    frame_bytes: usize,
    /// Size of the device's buffer, and of the part of it that is played or recorded at a time, in frames.
    buffer_frames: u64,
    period_frames: u64,
    xruns: u64,
}

/// A device of the library, which is closed when this value is dropped.
#[derive(Debug)]
struct Handle {
    library: &'static Library,
    pcm: *mut RawPcm,
}

// SAFETY: the library allows any thread to use a device, one at a time; only the owner of this value does.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the device was opened, and this is its only owner, so nobody uses it afterwards.
        unsafe { (self.library.close)(self.pcm) };
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Library")
    }
}

impl Pcm {
    /// Begins to open a device by its name in ALSA's configuration, such as `default` or `hw:1,0`.
    ///
    /// The result of the operation is the device; [`Error::Open`] if it does not exist or is in use;
    /// [`Error::Unsupported`] if it cannot have these samples.
    ///
    /// # Errors
    /// [`Error::Library`] if ALSA's library is missing; [`Error::Thread`] if no thread can be started.
    pub fn open(direction: Direction, device: &str, options: &PcmOptions) -> Result<Pending<Pcm>, Error> {
        let library = library()?;
        let (device, options) = (device.to_owned(), options.clone());
        Pending::start(move || Pcm::opened(library, direction, device, &options))
    }

    fn opened(
        library: &'static Library,
        direction: Direction,
        device: String,
        options: &PcmOptions,
    ) -> Result<Pcm, Error> {
        let refused = |code: c_int| {
            let hint = match -code {
                libc::ENOENT | libc::ENXIO if device.starts_with("pipewire") => {
                    "; Debian's package pipewire-alsa has it"
                }
                libc::ENOENT | libc::ENXIO if device.starts_with("pulse") => {
                    "; Debian's package libasound2-plugins has it"
                }
                libc::ENOENT | libc::ENODEV | libc::ENXIO => {
                    "; 'aplay -L' and 'arecord -L' list those that there are"
                }
                libc::EBUSY => "; another program has it",
                libc::EACCES => "; only the group audio may use it",
                libc::ECONNREFUSED | libc::EHOSTDOWN => "; its daemon does not run, or runs for another user",
                _ => "",
            };
            Error::Open { device: device.clone(), source: error_of(code), hint }
        };
        let name = CString::new(device.as_str()).map_err(|_| refused(-libc::ENOENT))?;
        let stream = match direction {
            Direction::Playback => 0,
            Direction::Capture => 1,
        };
        let mut pcm = null_mut();
        // SAFETY: the name ends with a zero byte, and the library writes one pointer.
        let code = unsafe { (library.open)(&raw mut pcm, name.as_ptr(), stream, NONBLOCK) };
        if code < 0 {
            return Err(refused(code));
        }
        let handle = Handle { library, pcm };
        let latency_us = u32::try_from(options.latency.as_micros()).unwrap_or(u32::MAX);
        let PcmOptions { format, channels, rate, .. } = *options;
        // Plugins may resample, since the user has named a device that has some.
        let may_resample = 1;
        // SAFETY: the device is open, and the other arguments are numbers.
        let code = unsafe {
            (library.set_params)(pcm, format.number(), INTERLEAVED, channels, rate, may_resample, latency_us)
        };
        if code < 0 {
            return Err(match handle.lacks(options) {
                Some(what) => Error::Unsupported { device, what },
                None => Error::Failed { what: "set the samples of", device, source: error_of(code) },
            });
        }
        let (mut buffer_frames, mut period_frames) = (0, 0);
        // SAFETY: the device is set up, and the library writes two numbers.
        let code = unsafe { (library.get_params)(pcm, &raw mut buffer_frames, &raw mut period_frames) };
        if code < 0 {
            return Err(Error::Failed { what: "set the buffer of", device, source: error_of(code) });
        }
        Ok(Pcm {
            handle: Some(handle),
            device,
            direction,
            rate,
            frame_bytes: format.bytes() * channels as usize,
            buffer_frames,
            period_frames,
            xruns: 0,
        })
    }

    /// Returns the size of one sample of all channels, in bytes.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Returns the time of the samples that the device's buffer has room for.
    pub fn buffer(&self) -> Duration {
        self.time(self.buffer_frames)
    }

    /// Returns the time of the samples that the device plays or records at a time: it takes or gives some that often.
    pub fn period(&self) -> Duration {
        self.time(self.period_frames)
    }

    /// Returns how often the device had nothing to play, or no room for what it recorded.
    pub fn xruns(&self) -> u64 {
        self.xruns
    }

    /// Returns the time until a sample that is written now is heard, or since the next one to be read was recorded; `None` if
    /// the device does not know it.
    pub fn delay(&self) -> Option<Duration> {
        let Handle { library, pcm } = self.handle.as_ref()?;
        let mut frames = 0;
        // SAFETY: the device is open, and the library writes one number.
        let code = unsafe { (library.delay)(*pcm, &raw mut frames) };
        u64::try_from(frames).ok().filter(|_| code == 0).map(|frames| self.time(frames))
    }

    /// Begins to record.
    ///
    /// # Errors
    /// [`Error::Gone`] if the device is gone; [`Error::Failed`] if it cannot record.
    pub fn start(&mut self) -> Result<(), Error> {
        let Handle { library, pcm } = self.handle()?;
        // SAFETY: the device is open.
        check(unsafe { (library.start)(*pcm) }, "start", &self.device)
    }

    /// Writes samples without waiting: whole frames of `bytes`, from where they lie. Returns how many bytes the device took: 0
    /// if it is full.
    ///
    /// An underrun is counted, and playing begins again when the buffer is full.
    ///
    /// # Errors
    /// [`Error::Gone`] if the device is gone; [`Error::Failed`] if it does not take the samples.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let frames = bytes.len() / self.frame_bytes;
        self.moved(frames, "write to", |Handle { library, pcm }| {
            // SAFETY: the device is open, and reads as many whole frames as lie in the slice. It reads them as bytes or by
            // loads that need no alignment, as all of Linux's programs rely on that play a mapped file.
            unsafe { (library.writei)(*pcm, bytes.as_ptr().cast(), frames as u64) }
        })
    }

    /// Reads samples without waiting: whole frames into `room`. Returns how many bytes the device gave: 0 if it has none.
    ///
    /// An overrun is counted, and recording goes on.
    ///
    /// # Errors
    /// [`Error::Gone`] if the device is gone; [`Error::Failed`] if it gives no samples.
    pub fn read(&mut self, room: &mut [u8]) -> Result<usize, Error> {
        // No device has more than its buffer; ALSA's plugin `file` gives silence to whoever asks for more.
        let frames = (room.len() / self.frame_bytes).min(self.buffer_frames as usize);
        self.moved(frames, "read from", |Handle { library, pcm }| {
            // SAFETY: the device is open, and writes as many whole frames as the slice has room for.
            unsafe { (library.readi)(*pcm, room.as_mut_ptr().cast(), frames as u64) }
        })
    }

    /// Moves samples by `call`, which returns a number of frames or an error of the library.
    fn moved(
        &mut self,
        frames: usize,
        what: &'static str,
        mut call: impl FnMut(&Handle) -> c_long,
    ) -> Result<usize, Error> {
        // After an underrun or overrun the device is ready at once.
        for _ in 0..2 {
            if frames == 0 {
                break;
            }
            let handle = self.handle()?;
            let moved = call(handle);
            if let Ok(moved) = usize::try_from(moved) {
                assert!(moved <= frames, "the library moves no more frames than it is given");
                return Ok(moved * self.frame_bytes);
            }
            // Errors are numbers of errno, which an int has room for.
            let code = moved as c_int;
            match -code {
                libc::EAGAIN | libc::EINTR => break,
                libc::EPIPE => {
                    self.xruns += 1;
                    self.begin_anew()?;
                }
                libc::ESTRPIPE => {
                    // The machine has slept. A device that is still waking up says EAGAIN.
                    // SAFETY: the device is open.
                    let code = unsafe { (handle.library.resume)(handle.pcm) };
                    match -code {
                        0 => {}
                        libc::EAGAIN => break,
                        _ => self.begin_anew()?,
                    }
                }
                _ => check(code, what, &self.device)?,
            }
        }
        Ok(0)
    }

    fn begin_anew(&mut self) -> Result<(), Error> {
        let Handle { library, pcm } = self.handle()?;
        // SAFETY: the device is open.
        check(unsafe { (library.prepare)(*pcm) }, "restart", &self.device)?;
        match self.direction {
            Direction::Capture => self.start(),
            Direction::Playback => Ok(()),
        }
    }

    /// Begins to play what was written, to the end, and to close the device then: nothing else can be done with it.
    ///
    /// The result of the operation has the errors [`Error::Gone`] and [`Error::Failed`].
    ///
    /// # Errors
    /// [`Error::Thread`] if no thread can be started.
    pub fn drain(&mut self) -> Result<Pending<()>, Error> {
        let (handle, device) = (self.handle.take(), self.device.clone());
        Pending::start(move || {
            let Some(Handle { library, pcm }) = &handle else { return Ok(()) };
            // SAFETY: the device is open, and this thread alone has it.
            let code = unsafe { (library.nonblock)(*pcm, 0).min((library.drain)(*pcm)) };
            let outcome = check(code, "play to the end on", &device);
            // Closing completes the files of plugins that write some.
            drop(handle);
            outcome
        })
    }

    fn handle(&self) -> Result<&Handle, Error> {
        self.handle.as_ref().ok_or_else(|| Error::Gone {
            device: self.device.clone(),
            source: io::Error::new(io::ErrorKind::NotConnected, "it was drained"),
        })
    }

    fn time(&self, frames: u64) -> Duration {
        Duration::from_nanos((u128::from(frames) * 1_000_000_000 / u128::from(self.rate.max(1))) as u64)
    }
}

impl Drop for Pcm {
    fn drop(&mut self) {
        // A plugin may wait for its daemon. If no thread can be started, this one closes the device.
        if let Some(handle) = self.handle.take()
            && let Ok(pending) = Pending::start(move || {
                drop(handle);
                Ok(())
            })
        {
            let _ = pending.wait(CLOSE_LIMIT);
        }
    }
}

impl Handle {
    /// Returns what the device lacks for these samples; `None` if that cannot be told.
    fn lacks(&self, options: &PcmOptions) -> Option<String> {
        let Handle { library, pcm } = self;
        let mut all: *mut RawParameters = null_mut();
        // SAFETY: the library writes one pointer.
        if unsafe { (library.hw_params_malloc)(&raw mut all) } < 0 {
            return None;
        }
        // SAFETY: the device is open, and the set was allocated for these functions, which write one number each.
        let what = unsafe {
            let (mut low, mut high, mut side) = (0, 0, 0);
            if (library.hw_params_any)(*pcm, all) < 0 {
                None
            } else if (library.hw_params_test_access)(*pcm, all, INTERLEAVED) < 0 {
                Some("samples of several channels in turns".to_owned())
            } else if (library.hw_params_test_format)(*pcm, all, options.format.number()) < 0 {
                Some(format!("samples of the format {}", options.format.name()))
            } else if (library.hw_params_test_channels)(*pcm, all, options.channels) < 0 {
                (library.hw_params_get_channels_min)(all, &raw mut low);
                (library.hw_params_get_channels_max)(all, &raw mut high);
                Some(format!("{} channels (it has {low} to {high})", options.channels))
            } else if (library.hw_params_test_rate)(*pcm, all, options.rate, 0) < 0 {
                (library.hw_params_get_rate_min)(all, &raw mut low, &raw mut side);
                (library.hw_params_get_rate_max)(all, &raw mut high, &raw mut side);
                Some(format!("{} samples a second (it has {low} to {high})", options.rate))
            } else {
                None
            }
        };
        // SAFETY: the set was allocated above, and is not used any more.
        unsafe { (library.hw_params_free)(all) };
        what
    }
}

/// Makes an error of a negative result.
fn check(code: c_int, what: &'static str, device: &str) -> Result<(), Error> {
    let (device, source) = (device.to_owned(), error_of(code));
    match -code {
        ..=0 => Ok(()),
        libc::ENODEV | libc::EBADFD | libc::ENOTCONN => Err(Error::Gone { device, source }),
        _ => Err(Error::Failed { what, device, source }),
    }
}

/// Returns the error of a negative result.
fn error_of(code: c_int) -> io::Error {
    io::Error::from_raw_os_error(-code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::SampleFormat;

    /// Longer than anything here takes.
    const LIMIT: Duration = Duration::from_secs(60);

    fn opened(direction: Direction, device: &str, options: &PcmOptions) -> Result<Pcm, Error> {
        Pcm::open(direction, device, options).unwrap().wait(LIMIT).expect("an answer")
    }

    #[test]
    fn whole_frames_are_moved_and_nothing_after_the_end() {
        // ALSA's own device that discards everything, and has silence.
        let options = PcmOptions::default().samples(SampleFormat::S24, 2, 44_100);
        let mut pcm = opened(Direction::Playback, "null", &options).unwrap();
        assert_eq!((pcm.frame_bytes(), pcm.xruns()), (6, 0));
        assert!(pcm.period() <= pcm.buffer() && pcm.buffer() <= options.latency, "{pcm:?}");
        assert_eq!((pcm.write(&[1; 25]).unwrap(), pcm.write(&[1; 5]).unwrap()), (24, 0));
        assert_eq!(pcm.delay(), Some(Duration::ZERO));
        pcm.drain().unwrap().wait(LIMIT).unwrap().unwrap();
        assert!(matches!(pcm.write(&[1; 6]), Err(Error::Gone { .. })));
        assert_eq!(pcm.delay(), None);
        pcm.drain().unwrap().wait(LIMIT).unwrap().unwrap();

        let mut pcm = opened(Direction::Capture, "null", &options).unwrap();
        pcm.start().unwrap();
        let mut room = [1; 25];
        assert_eq!(pcm.read(&mut room).unwrap(), 24);
        assert_eq!(room[24], 1);
    }

    #[test]
    fn a_device_that_cannot_be_opened_is_told() {
        for name in ["no-such-device", "no\0name"] {
            let refused = opened(Direction::Playback, name, &PcmOptions::default()).unwrap_err();
            assert!(matches!(refused, Error::Open { .. }), "{refused}");
            assert!(refused.to_string().contains("'aplay -L'"), "{refused}");
        }
    }
}
