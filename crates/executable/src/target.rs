//! Which file the kernel would execute, and the answer about it.

use crate::file::{self, Kind};
use crate::preload::{entries, file_name, is_address_sanitizer, is_library};
use crate::{Finding, PROGRAM_BYTES, Reason};
use bywash_syscall::{CWD, Descriptor, Error, flags, may_execute, read_link};
use core::ffi::{CStr, c_int};

/// Scripts whose interpreters are scripts; the kernel follows no more (execve(2)).
const SCRIPTS_MAX: usize = 5;
/// Longest path that is tried (PATH_MAX).
const PATH_BYTES: usize = 4096;
/// Folders that a program is looked for in when the environment has no `PATH` (execvp(3)).
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// The program of a call of the exec family.
pub enum Target<'a> {
    /// A path, from the working directory on (execve, posix_spawn).
    Path(&'a CStr),
    /// A name that is looked for in the folders of `PATH` unless it has a slash (execvp, posix_spawnp).
    Name(&'a CStr, Option<&'a [u8]>),
    /// A path from the folder of this descriptor on (execveat).
    In(c_int, &'a CStr),
    /// The open file of this descriptor (fexecve).
    File(c_int),
}

/// Looks at a program that is to be started with `preloaded` in its `LD_PRELOAD`; `None` when the library
/// can serve it, or when its file does not tell (because it may be executed but not read, for example).
pub fn examine(target: &Target<'_>, preloaded: &[u8]) -> Option<Finding> {
    let mut file = match target {
        Target::Path(path) => open(CWD, path).ok()?,
        Target::In(folder, path) => open(*folder, path).ok()?,
        Target::Name(name, _) if name.to_bytes().contains(&b'/') => open(CWD, name).ok()?,
        Target::Name(name, path) => search(name.to_bytes(), path.unwrap_or(PATH_DEFAULT))?,
        Target::File(file) => open(CWD, path_of(*file, &mut [0; 32])?).ok()?,
    };
    for _ in 0..SCRIPTS_MAX {
        match file::kind(&file) {
            Kind::Script(interpreter) => {
                let path = CStr::from_bytes_until_nul(&interpreter.0).ok()?;
                file = open(CWD, path).ok()?;
            }
            Kind::Unserved(reason) => return Some(finding(reason, &file, target)),
            Kind::Servable => {
                let sanitized =
                    entries(preloaded).any(|entry| !is_library(entry) && is_address_sanitizer(entry));
                return sanitized.then(|| finding(Reason::AddressSanitizer, &file, target));
            }
        }
    }
    None
}

fn finding(reason: Reason, file: &Descriptor, target: &Target<'_>) -> Finding {
    let mut program = [0; PROGRAM_BYTES];
    let length =
        path_of(file.number(), &mut [0; 32]).and_then(|path| read_link(path, &mut program).ok()).unwrap_or(0);
    // A loader that is itself executed has no loader.
    let name = match target {
        Target::Path(path) | Target::In(_, path) | Target::Name(path, _) => file_name(path.to_bytes()),
        Target::File(_) => b"",
    };
    let reason = if reason == Reason::Static && file::is_musl(name) { Reason::Musl } else { reason };
    Finding { reason, program, length }
}

/// Opens what may be executed, without waiting (it may be a FIFO) and without changing it.
fn open(folder: c_int, path: &CStr) -> Result<Descriptor, Error> {
    if !may_execute(folder, path) {
        return Err(Error::NO_ENTRY);
    }
    Descriptor::open(folder, path, flags::RDONLY | flags::NONBLOCK | flags::NOCTTY | flags::CLOEXEC)
}

/// The first program of this name in the folders of `path`, an empty folder being the working directory.
fn search(name: &[u8], path: &[u8]) -> Option<Descriptor> {
    let mut buffer = [0u8; PATH_BYTES];
    for folder in path.split(|byte| *byte == b':') {
        let start = folder.len() + usize::from(!folder.is_empty());
        let end = start + name.len();
        if name.is_empty() || end >= PATH_BYTES {
            continue;
        }
        buffer[..folder.len()].copy_from_slice(folder);
        if !folder.is_empty() {
            buffer[folder.len()] = b'/';
        }
        buffer[start..end].copy_from_slice(name);
        buffer[end] = 0;
        let Ok(candidate) = CStr::from_bytes_until_nul(&buffer) else { continue };
        match open(CWD, candidate) {
            // A folder may be entered, and is passed over when it is to be executed.
            Ok(file) if file.is_regular() => return Some(file),
            // It may be executed and not read.
            Err(Error::ACCESS) => return None,
            _ => {}
        }
    }
    None
}

/// The path in /proc that leads to an open file.
fn path_of(file: c_int, buffer: &mut [u8; 32]) -> Option<&CStr> {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let mut number = u32::try_from(file).ok()?;
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    buffer[..PREFIX.len()].copy_from_slice(PREFIX);
    for place in (PREFIX.len()..PREFIX.len() + digits).rev() {
        buffer[place] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    buffer[PREFIX.len() + digits] = 0;
    CStr::from_bytes_until_nul(buffer).ok()
}
