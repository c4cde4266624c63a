//! Synchronous reads and writes of a device that nobody else uses: each call waits until its bytes have
//! moved.
//!
//! Invariant: each command owns its memory, so a call that gives up after its timeout leaves no memory behind
//! that the device could still use after it was freed. Called before a device is served, to read or write its
//! label.

use crate::command::{Command, CommandError};
use crate::device::Device;
use crate::error::Error;
use crate::pages::Pages;
use crate::segment::Segment;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Greatest time that a command may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Interval between polls for the command in flight.
const TURN: Duration = Duration::from_micros(50);
/// Greatest length of one command, in bytes.
const PIECE: usize = 1 << 20;

/// Reads `bytes` bytes, beginning at `offset`; both are multiples of the device's block.
///
/// # Errors
/// [`Error::Command`] if the device has commands in flight already, a command fails, or it takes longer than
/// 30 s.
pub fn read_exclusive(device: &mut dyn Device, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
    let mut read = vec![0; bytes];
    for (number, piece) in read.chunks_mut(PIECE).enumerate() {
        let memory = Arc::new(Pages::new(piece.len()));
        // SAFETY: the command owns the memory and keeps it alive; nobody reads it before the command has
        // completed.
        let segment = unsafe { Segment::new(memory.base(), piece.len()) };
        let at = offset + (number * PIECE) as u64;
        wait_for(device, Command::read(0, at, &[segment]).owner(memory.clone()), "read")?;
        // SAFETY: both sides have `piece.len()` bytes; the command has completed, and nobody else knows the
        // new memory.
        unsafe { std::ptr::copy_nonoverlapping(memory.base(), piece.as_mut_ptr(), piece.len()) };
    }
    Ok(read)
}

/// Writes `bytes`, beginning at `offset`; both are in whole blocks of the device. The bytes are durable when
/// the call returns.
///
/// # Errors
/// [`Error::Command`] if the device has commands in flight already, a command fails, or it takes longer than
/// 30 s. Some of the bytes may have been written then.
pub fn write_exclusive(device: &mut dyn Device, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        let memory = Arc::new(Pages::new(piece.len()));
        // SAFETY: the new memory has `piece.len()` bytes, and nobody else knows it yet.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), memory.base(), piece.len()) };
        // SAFETY: the command owns the memory and keeps it alive; nobody writes to it any more.
        let segment = unsafe { Segment::new(memory.base(), piece.len()) };
        let at = offset + (number * PIECE) as u64;
        wait_for(device, Command::write_durable(0, at, &[segment]).owner(memory), "write")?;
    }
    Ok(())
}

/// Makes all completed writes durable.
///
/// # Errors
/// As for [`write_exclusive`].
pub fn flush_exclusive(device: &mut dyn Device) -> Result<(), Error> {
    wait_for(device, Command::flush(0), "flush")
}

fn wait_for(device: &mut dyn Device, command: Command<'_>, what: &'static str) -> Result<(), Error> {
    let failed = |why: String| Error::Command { what, why };
    if device.submit(command).is_err() {
        return Err(failed("other commands are in flight".into()));
    }
    let end = Instant::now() + LIMIT;
    let mut outcome: Option<Result<(), CommandError>> = None;
    loop {
        device.reap(&mut |done| outcome = Some(done.result));
        match outcome {
            Some(result) => return result.map_err(|failure| failed(failure.to_string())),
            None if Instant::now() > end => {
                return Err(failed(format!("it has not answered for {} s", LIMIT.as_secs())));
            }
            None => thread::sleep(TURN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, MemoryOptions};

    #[test]
    fn what_was_written_is_read() {
        let mut device = Memory::new(MemoryOptions::new(8 << 20)).unwrap();
        let bytes: Vec<u8> = (0..PIECE + 4096).map(|at| (at / 512 % 251) as u8).collect();
        write_exclusive(&mut device, 4096, &bytes).unwrap();
        assert_eq!(read_exclusive(&mut device, 4096, bytes.len()).unwrap(), bytes);
        assert_eq!(read_exclusive(&mut device, 0, 4096).unwrap(), [0; 4096]);
        for wrong in [1, 8 << 20] {
            let error = read_exclusive(&mut device, wrong, 512).unwrap_err();
            assert!(matches!(error, Error::Command { what: "read", .. }), "{error}");
        }
    }
}
