//! The control device: disks are made, started, stopped and deleted by it.
//!
//! Commands are passed by io_uring and take as long as the driver wants: starting a disk waits until its requests are
//! served, and reads its partition table; stopping waits for requests. So nobody calls these from a thread that serves.
//! Called by `export`.

#![expect(unsafe_code, reason = "commands of io_uring refer to their memory by address")]

use crate::layout::{ANY, Control as Number, Encoding, INFO, Info, PARAMETERS, Parameters, control_command};
use bywash_export::Error;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Path of the driver's control device, which is there if the driver is.
pub const CONTROL: &str = "/dev/ublk-control";
/// Time that the driver has to stop or delete a disk.
const END_LIMIT: Duration = bywash_export::STOP_LIMIT;

/// The control device, by a ring of its own.
pub(crate) struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: OwnedFd,
    pub(crate) encoding: Encoding,
    /// Number of commands so far, which is the user data of the last one.
    commands: u64,
}

impl Control {
    /// Opens the control device.
    ///
    /// # Errors
    /// [`Error::Unfit`] with what to do if there is none or it may not be used; [`Error::Io`] if there is no io_uring.
    pub(crate) fn open() -> Result<Control, Error> {
        let file = open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|error| match error {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => Error::Unfit(format!(
                "there is no {CONTROL}: load the kernel's driver with `modprobe ublk_drv` (Linux 6.0 or later, with \
                 CONFIG_BLK_DEV_UBLK)"
            )),
            Errno::ACCESS | Errno::PERM => {
                Error::Unfit(format!("{CONTROL} may not be opened ({error}): only root may make disks by it"))
            }
            error => Error::io("open /dev/ublk-control", error),
        })?;
        let ring = IoUring::builder().build(2);
        let ring = ring.map_err(|error| Error::io("make an io_uring, by which disks are made", error))?;
        let mut control = Control { ring, file, encoding: Encoding::Ioctl, commands: 0 };
        // Drivers before Linux 6.5 do not know the question. Those before 6.4 know plain numbers only, and the ones between
        // know both.
        if control.carry_out(Number::Features, ANY, &mut [0; 8], 0).is_err() {
            control.encoding = Encoding::Plain;
        }
        Ok(control)
    }

    /// Returns the properties and the state of a disk; `None` if there is no such disk.
    ///
    /// # Errors
    /// [`Error::Io`] if the driver refuses to tell.
    pub(crate) fn info(&mut self, disk: u32) -> Result<Option<Info>, Error> {
        let mut bytes = [0; INFO];
        match self.carry_out(Number::Info, disk, &mut bytes, 0) {
            Ok(()) => Ok(Some(Info::from_bytes(&bytes))),
            Err(Errno::NODEV | Errno::INVAL) => Ok(None),
            Err(error) => Err(Error::io("ask for a disk", error)),
        }
    }

    /// Makes a disk, and returns it with the number and the limits that the driver has chosen.
    ///
    /// # Errors
    /// [`Error::Unfit`] if it may not be made; [`Error::Io`] if the driver refuses for another reason.
    pub(crate) fn add(&mut self, wanted: Info) -> Result<Info, Error> {
        let mut bytes = wanted.to_bytes();
        match self.carry_out(Number::Add, wanted.disk, &mut bytes, 0) {
            Ok(()) => Ok(Info::from_bytes(&bytes)),
            Err(Errno::PERM | Errno::ACCESS) => Err(Error::Unfit(
                "a disk of the kernel needs the capability CAP_SYS_ADMIN; run it as root".into(),
            )),
            Err(error) => Err(Error::io("make a disk by ublk", error)),
        }
    }

    /// Sets the parameters of a disk that has not been started.
    ///
    /// # Errors
    /// [`Error::Io`] if the driver refuses.
    pub(crate) fn set_parameters(&mut self, disk: u32, parameters: Parameters) -> Result<(), Error> {
        let mut bytes = parameters.to_bytes();
        let set = self.carry_out(Number::SetParameters, disk, &mut bytes, 0);
        set.map_err(|error| Error::io("set the size and limits of a disk", error))
    }

    /// Returns the parameters of a disk.
    ///
    /// # Errors
    /// [`Error::Io`] if the driver refuses.
    pub(crate) fn parameters(&mut self, disk: u32) -> Result<Parameters, Error> {
        let mut bytes = [0; PARAMETERS];
        bytes[..4].copy_from_slice(&(PARAMETERS as u32).to_ne_bytes());
        let asked = self.carry_out(Number::Parameters, disk, &mut bytes, 0);
        asked.map_err(|error| Error::io("ask for the size of a disk", error))?;
        Ok(Parameters::from_bytes(&bytes))
    }

    /// Gives a disk to another process: after its own has ended, the driver does not let it be served before this. The
    /// driver notices that end seconds later, for which this waits `limit` at most.
    ///
    /// # Errors
    /// [`Error::Io`] if the driver refuses, with EBUSY if the process has not ended.
    pub(crate) fn start_recovery(&mut self, disk: u32, limit: Duration) -> Result<(), Error> {
        let end = Instant::now() + limit;
        loop {
            match self.carry_out(Number::StartRecovery, disk, &mut [], 0) {
                Err(Errno::BUSY | Errno::INTR) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                done => return done.map_err(|error| Error::io("take over a disk", error)),
            }
        }
    }

    /// Starts a disk whose requests a thread of this process serves from now on, or goes on with one that was taken over.
    ///
    /// # Errors
    /// [`Error::Io`] if the driver refuses, with ETIMEDOUT if it has not done so within `limit`.
    pub(crate) fn start(&mut self, disk: u32, is_recovered: bool, limit: Duration) -> Result<(), Error> {
        let command = if is_recovered { Number::EndRecovery } else { Number::Start };
        let process = u64::from(std::process::id());
        let started = self.carry_out_within(command, disk, &mut [], process, Some(limit));
        started.map_err(|error| Error::io("start a disk", error))
    }

    /// Stops a disk: it vanishes for programs, and its thread is told that there are no more requests. Waits for requests in
    /// flight.
    ///
    /// # Errors
    /// [`Error::Io`] if the driver refuses, with ETIMEDOUT if it has not done so within ten seconds.
    pub(crate) fn stop(&mut self, disk: u32) -> Result<(), Error> {
        let stopped = self.carry_out_within(Number::Stop, disk, &mut [], 0, Some(END_LIMIT));
        stopped.map_err(|error| Error::io("stop a disk", error))
    }

    /// Deletes a disk, which waits until nobody has its requests open any more.
    ///
    /// # Errors
    /// [`Error::Io`] if the driver refuses, with ETIMEDOUT if it has not done so within ten seconds.
    pub(crate) fn delete(&mut self, disk: u32) -> Result<(), Error> {
        let deleted = self.carry_out_within(Number::Delete, disk, &mut [], 0, Some(END_LIMIT));
        deleted.map_err(|error| Error::io("delete a disk", error))
    }

    fn carry_out(&mut self, command: Number, disk: u32, buffer: &mut [u8], data: u64) -> Result<(), Errno> {
        self.carry_out_within(command, disk, buffer, data, None)
    }

    /// Carries out a command, and waits for it; with a limit only if it has no buffer. A command that takes longer goes on
    /// until the ring is closed.
    fn carry_out_within(
        &mut self,
        command: Number,
        disk: u32,
        buffer: &mut [u8],
        data: u64,
        limit: Option<Duration>,
    ) -> Result<(), Errno> {
        debug_assert!(limit.is_none() || buffer.is_empty());
        let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr().expose_provenance() as u64 };
        let payload = control_command(disk, address, buffer.len(), data);
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), self.encoding.control(command));
        self.commands += 1;
        let entry = entry.cmd(payload).build().user_data(self.commands);
        // SAFETY: the buffer is borrowed until the command is over, which is waited for below; a command that is not waited
        // for has none. The file is open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // Not reached: each command is submitted before the next one is pushed.
        pushed.map_err(|_| Errno::AGAIN)?;
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            let submitted = match end {
                None => self.ring.submit_and_wait(1),
                Some(_) => self.ring.submit(),
            };
            match submitted {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                }
            }
            // A command that took too long may be over now, too.
            let number = self.commands;
            if let Some(done) = self.ring.completion().find(|done| done.user_data() == number) {
                return match done.result() {
                    result if result < 0 => Err(Errno::from_raw_os_error(-result)),
                    _ => Ok(()),
                };
            }
            if let Some(end) = end {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Errno::TIMEDOUT);
                }
                let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
                // SAFETY: the ring's descriptor stays open as long as the ring, which outlives this borrow.
                let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
                // What comes of it, the next look tells.
                let _ = poll(&mut [PollFd::new(&ring, PollFlags::IN)], Some(&left));
            }
        }
    }
}
