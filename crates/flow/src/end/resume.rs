//! Continuation of the partial file that an earlier flow has left.
//!
//! The partial file is compared with the source byte by byte, and the data that is equal is not moved again.
//! Invariant: the part that is kept is either the whole partial file or a number of whole blocks that equal
//! the source; a partial file that another flow continues is not touched. Called when both ends are open,
//! before anything is moved.

use super::{DescriptorSink, DescriptorSource};
use crate::block_buffer::BlockBuffer;
use crate::control::Control;
use crate::error::Error;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Unit of the kept part unless it is the whole partial file, in bytes: the block size of file systems and of
/// O_DIRECT.
const BLOCK_BYTES: u64 = 4096;
/// Number of bytes compared at a time.
const COMPARED_BYTES: usize = 1 << 20;

/// A partial file, and the number of its first bytes that equal the source.
struct Part {
    path: PathBuf,
    file: OwnedFd,
    agrees: u64,
}

/// Lets the flow start behind the data that its sink has already, and reports that as a notice.
///
/// # Errors
/// [`Error::Data`] if there are partial files but none begins like the source; [`Error::Io`] if one cannot be
/// read or another flow continues it; [`Error::Cancelled`] if the flow is cancelled.
pub(crate) fn resume(
    from: &mut DescriptorSource,
    to: &mut DescriptorSink,
    control: &Control,
) -> Result<(), Error> {
    let Some(new_file) = to.new_file.take() else { return Ok(()) };
    let (mut best, mut others) = (None::<Part>, Vec::new());
    for path in new_file.partial_files() {
        match compared(&path, from, control)? {
            part if part.agrees == 0 => others.push(part.path.display().to_string()),
            part if best.as_ref().is_none_or(|best| best.agrees < part.agrees) => best = Some(part),
            _ => {}
        }
    }
    let Some(Part { path, file, agrees }) = best else {
        if others.is_empty() {
            control.notify(format!("there is no part of {} yet: all of it is moved", to.name));
            to.new_file = Some(new_file);
            return Ok(());
        }
        return Err(Error::Data(format!(
            "{} is no beginning of {}: remove it, or begin anew without --resume",
            others.join(", "),
            from.name
        )));
    };
    // The bytes behind the equal ones belong to another version of the source, and must not become part of
    // the new file.
    rustix::fs::ftruncate(&file, agrees).map_err(|error| failed(&path, error))?;
    control.notify(format!(
        "{} agrees with {} for {agrees} bytes: going on there",
        path.display(),
        from.name
    ));
    from.advance(agrees);
    to.descriptor = file;
    to.advance(agrees);
    to.new_file = Some(new_file.resumed(path));
    Ok(())
}

fn failed(path: &Path, error: Errno) -> Error {
    Error::io(format!("go on with {}", path.display()), error)
}

/// Opens and locks a partial file and compares it with the source.
fn compared(path: &Path, from: &DescriptorSource, control: &Control) -> Result<Part, Error> {
    let failed = |error| failed(path, error);
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::AGAIN => Error::io(format!("go on with {}, as another flow does", path.display()), error),
        other => failed(other),
    })?;
    let size = rustix::fs::fstat(&file).map_err(failed)?.st_size as u64;
    let (begin, end) = (from.position.unwrap_or(0), size.min(from.left().unwrap_or(0)));
    let (mut ours, mut theirs) = (BlockBuffer::new(COMPARED_BYTES)?, BlockBuffer::new(COMPARED_BYTES)?);
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
