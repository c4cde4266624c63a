//! Going on with what an earlier flow has left of a file.
//!
//! The part is compared with the source byte by byte, which is there to be read, and what agrees is not moved again.
//! Invariant: what is kept of a part are whole blocks that the source has at the same place, or all of the part; a part that
//! another flow goes on with is left alone. Called when both ends are open, before anything is moved.

use super::{Reading, Writing};
use crate::control::Control;
use crate::error::Error;
use crate::memory::Memory;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What is kept of a part is a multiple of this, unless it is all of it: blocks of file systems, and of O_DIRECT.
const BLOCK_BYTES: u64 = 4096;
/// Bytes that are compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

/// A part, and how far it agrees with the source.
struct Part {
    path: PathBuf,
    file: OwnedFd,
    agrees: u64,
}

/// Lets the flow go on behind what there is of its sink already, which is told.
///
/// # Errors
/// [`Error::Data`] when there are parts and none of them is of this source; [`Error::Io`] when a part cannot be read or another
/// flow goes on with it; that the flow was cancelled.
pub(crate) fn resume(from: &mut Reading, to: &mut Writing, control: &Control) -> Result<(), Error> {
    let Some(target) = to.target.take() else { return Ok(()) };
    let (mut best, mut others) = (None::<Part>, Vec::new());
    for path in target.parts() {
        match compared(&path, from, control)? {
            part if part.agrees == 0 => others.push(part.path.display().to_string()),
            part if best.as_ref().is_none_or(|best| best.agrees < part.agrees) => best = Some(part),
            _ => {}
        }
    }
    let Some(Part { path, file, agrees }) = best else {
        if others.is_empty() {
            control.tell(format!("there is no part of {} yet: all of it is moved", to.name));
            to.target = Some(target);
            return Ok(());
        }
        return Err(Error::Data(format!(
            "{} is no beginning of {}: remove it, or begin anew without --resume",
            others.join(", "),
            from.name
        )));
    };
    // What lies behind does not agree, and would be taken for a part of the new file.
    rustix::fs::ftruncate(&file, agrees).map_err(|error| failed(&path, error))?;
    control.tell(format!("{} agrees with {} for {agrees} bytes: going on there", path.display(), from.name));
    from.advance(agrees);
    to.descriptor = file;
    to.advance(agrees);
    to.target = Some(target.resumed(path));
    Ok(())
}

fn failed(path: &Path, error: Errno) -> Error {
    Error::io(format!("go on with {}", path.display()), error)
}

/// Opens a part and compares it with the source.
fn compared(path: &Path, from: &Reading, control: &Control) -> Result<Part, Error> {
    let failed = |error| failed(path, error);
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::AGAIN => Error::io(format!("go on with {}, as another flow does", path.display()), error),
        other => failed(other),
    })?;
    let size = rustix::fs::fstat(&file).map_err(failed)?.st_size as u64;
    let (begin, end) = (from.position.unwrap_or(0), size.min(from.left().unwrap_or(0)));
    let (mut ours, mut theirs) = (Memory::new(COMPARED_BYTES)?, Memory::new(COMPARED_BYTES)?);
    let mut agrees = 0;
    while agrees < end {
        control.check()?;
        let most = (end - agrees).min(COMPARED_BYTES as u64) as usize;
        let read = rustix::io::pread(&file, &mut ours[..most], agrees).map_err(failed)?;
        let source = rustix::io::pread(from, &mut theirs[..read], begin + agrees);
        let source = source.map_err(|error| from.failed(error))?;
        let same = ours[..source].iter().zip(&theirs[..source]).take_while(|pair| pair.0 == pair.1).count();
        agrees += same as u64;
        if same < most {
            break;
        }
    }
    if agrees < size {
        agrees -= agrees % BLOCK_BYTES;
    }
    Ok(Part { path: path.into(), file, agrees })
}
