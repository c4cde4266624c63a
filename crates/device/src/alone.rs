//! Reading and writing a device that nobody else uses: each call waits until its bytes have moved.
//!
//! Invariant: memory that a command may still use is kept by the command itself, so that a call which gives up after its
//! time limit leaves nothing behind that could be used again. Called before a device is served, for its label.

use crate::command::{Command, Failure};
use crate::device::Device;
use crate::error::Error;
use crate::pages::Pages;
use crate::span::Span;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time that a command may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Interval between looks at a command that is under way.
const TURN: Duration = Duration::from_micros(50);
/// Most bytes of a command.
const PIECE: usize = 1 << 20;

/// Reads `bytes` bytes from `offset` on, both whole blocks of the device.
///
/// # Errors
/// [`Error::Command`] if the device fails, or does not answer within 30 s.
pub fn read_alone(device: &mut dyn Device, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
    let mut read = vec![0; bytes];
    for (number, piece) in read.chunks_mut(PIECE).enumerate() {
        let memory = Arc::new(Pages::new(piece.len()));
        // SAFETY: the memory goes along with the command as its owner, and is looked at when that is done.
        let span = unsafe { Span::new(memory.base(), piece.len()) };
        let at = offset + (number * PIECE) as u64;
        wait_for(device, Command::read(0, at, &[span]).owner(memory.clone()), "read")?;
        // SAFETY: the command is done; nobody else knows the memory, which has as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(memory.base(), piece.as_mut_ptr(), piece.len()) };
    }
    Ok(read)
}

/// Writes bytes from `offset` on, both whole blocks of the device. They are durable when it returns.
///
/// # Errors
/// [`Error::Command`] if the device fails, or does not answer within 30 s. Some of the bytes may have been written then.
pub fn write_alone(device: &mut dyn Device, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    for (number, piece) in bytes.chunks(PIECE).enumerate() {
        let memory = Arc::new(Pages::new(piece.len()));
        // SAFETY: new memory of as many bytes, which nobody else knows yet.
        unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), memory.base(), piece.len()) };
        // SAFETY: the memory goes along with the command as its owner, and nobody writes to it any more.
        let span = unsafe { Span::new(memory.base(), piece.len()) };
        let at = offset + (number * PIECE) as u64;
        wait_for(device, Command::write_durable(0, at, &[span]).owner(memory), "write")?;
    }
    Ok(())
}

fn wait_for(device: &mut dyn Device, command: Command<'_>, what: &'static str) -> Result<(), Error> {
    let failed = |why: String| Error::Command { what, why };
    if device.submit(command).is_err() {
        return Err(failed("other commands are under way".into()));
    }
    let end = Instant::now() + LIMIT;
    let mut outcome: Option<Result<(), Failure>> = None;
    loop {
        device.poll(&mut |done| outcome = Some(done.result));
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
        write_alone(&mut device, 4096, &bytes).unwrap();
        assert_eq!(read_alone(&mut device, 4096, bytes.len()).unwrap(), bytes);
        assert_eq!(read_alone(&mut device, 0, 4096).unwrap(), [0; 4096]);
        for wrong in [1, 8 << 20] {
            let error = read_alone(&mut device, wrong, 512).unwrap_err();
            assert!(matches!(error, Error::Command { what: "read", .. }), "{error}");
        }
    }
}
