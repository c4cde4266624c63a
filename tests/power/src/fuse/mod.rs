//! A FUSE file system of fixed files, in plain messages (fuse(4)): no library, no thread.
//!
//! - [`layout`]: the messages

pub mod layout;

use layout::{Answer, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Greatest size of a write, in bytes.
pub const WRITE_BYTES_MAX: usize = 1 << 20;
/// Pages of such a write.
pub const PAGES_MAX: u16 = 256;

/// Connection with the kernel.
#[derive(Debug)]
pub struct Connection {
    device: OwnedFd,
    buffer: Vec<u8>,
    /// Requests that have arrived and are not yet answered, oldest first.
    arrived: VecDeque<Request>,
}

impl Connection {
    /// Mounts a file system at the folder `at`. It ends with the last descriptor of its device, so with this process.
    ///
    /// # Errors
    /// An error of open(2) or mount(2): there is no `/dev/fuse`, or the user is not root.
    pub fn mount(at: &Path) -> io::Result<Connection> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options)?;
        mount("bywash-power", at, "fuse", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))?;
        let buffer = vec![0; WRITE_BYTES_MAX + 4096];
        Ok(Connection { device, buffer, arrived: VecDeque::new() })
    }

    /// Takes all requests that have arrived by now, without waiting. Returns false once the file system is unmounted.
    ///
    /// # Errors
    /// An error of read(2).
    pub fn receive(&mut self, mut take: impl FnMut(Request, &mut VecDeque<Request>)) -> io::Result<bool> {
        loop {
            match rustix::io::read(&self.device, &mut self.buffer[..]) {
                Ok(length) => {
                    let request =
                        Request::decode(&self.buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
                    take(request, &mut self.arrived);
                }
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(Errno::NODEV) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until a request has arrived.
    ///
    /// # Errors
    /// An error of poll(2).
    pub fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.device, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the oldest request that is not yet answered.
    pub fn take_oldest(&mut self) -> Option<Request> {
        self.arrived.pop_front()
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// An error of write(2), except if nobody waits for the answer any more.
    pub fn answer(&self, answer: Answer) -> io::Result<()> {
        match rustix::io::write(&self.device, &answer.finish()) {
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
