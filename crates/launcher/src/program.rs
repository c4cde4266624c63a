//! Builds a program's environment with the library in it, and finds and executes the program.
//!
//! Invariant: the program gets the environment that the command would give it (`run::environment`,
//! `run::process`), in the same order. An environment that does not fit into the memory set aside is left to
//! the command.

use crate::freestanding::Inherited;
use crate::options::Options;
use crate::places::{InstallFolder, LIBRARY, Path};
use crate::text::Text;
use bywash_executable::{Target, examine, preload};
use bywash_syscall::{Error, call};
use core::ffi::{CStr, c_char};
use core::ptr;

const PRELOAD: &[u8] = b"LD_PRELOAD";
/// Greatest number of variables in an environment that is changed here; a larger one is left to the command.
const VARIABLES_MAX: usize = 8192;
/// Greatest length of a file name, in bytes (NAME_MAX).
const NAME_BYTES_MAX: usize = 255;

/// Memory for a program's environment and path.
pub struct ArgumentBuffer {
    variables: [*const c_char; VARIABLES_MAX],
    count: usize,
    preload: Text<16_384>,
    path: Path,
}

impl ArgumentBuffer {
    /// Returns empty room, which touches no page as a static.
    pub const fn new() -> ArgumentBuffer {
        ArgumentBuffer {
            variables: [ptr::null(); VARIABLES_MAX],
            count: 0,
            preload: Text::new(),
            path: Path::new(),
        }
    }

    /// Appends a variable; `None` if the variable and a terminating null do not fit.
    fn push(&mut self, variable: *const c_char) -> Option<()> {
        *self.variables.get_mut(self.count)? = variable;
        self.count += 1;
        (self.count < VARIABLES_MAX).then_some(())
    }
}

/// Becomes the program that `options` names, with the library. Returns if that fails, or if the case is not
/// plain enough.
pub fn start(
    inherited: &Inherited,
    options: &Options,
    own: &InstallFolder,
    room: &mut ArgumentBuffer,
) -> Option<()> {
    // `inherited` counts the word `bywash` as well, `options` does not.
    let arguments = inherited.arguments_from(options.program + 1)?;
    let program = inherited.words().nth(options.program)?;
    let library = LIBRARY.into_iter().find_map(|place| own.find(place))?;
    if library.as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return None;
    }
    let searched = inherited.variable(b"PATH");
    let preloaded = inherited.variable(PRELOAD).unwrap_or_default();
    // SAFETY: each argument is a C string of the initial stack.
    let name = unsafe { CStr::from_ptr(*arguments) };
    let unserved = examine(&Target::Name(name, searched), preloaded);
    let library = match unserved {
        Some(finding) if finding.reason.forbids_preloading() => &b""[..],
        _ => library.as_bytes(),
    };
    fill(inherited, options, library, preloaded, room)?;
    if program.contains(&b'/') {
        execute(name, arguments, room.variables.as_ptr());
        return None;
    }
    search(program, searched?, arguments, room)
}

/// Fills `room` with the program's environment: the inherited variables, and those that are set.
fn fill(
    inherited: &Inherited,
    options: &Options,
    library: &[u8],
    preloaded: &[u8],
    room: &mut ArgumentBuffer,
) -> Option<()> {
    let set = [(PRELOAD, true), (b"BYWASH_WRITES", options.writes), (b"BYWASH_OFF", options.off)];
    for variable in inherited.variables() {
        let name = variable.name();
        if !set.iter().any(|(set, is_set)| *is_set && *set == name) {
            room.push(variable.pointer())?;
        }
    }
    set_preload(&mut room.preload, library, preloaded)?;
    if room.preload.as_bytes().len() > PRELOAD.len() + 1 {
        let text = room.preload.as_c_str().as_ptr();
        room.push(text)?;
    }
    if options.writes {
        room.push(c"BYWASH_WRITES=1".as_ptr())?;
    }
    if options.off {
        room.push(c"BYWASH_OFF=1".as_ptr())?;
    }
    Some(())
}

/// Writes the variable LD_PRELOAD: the library, then the inherited entries without other copies of the
/// library (of a run within a run).
fn set_preload(text: &mut Text<16_384>, library: &[u8], before: &[u8]) -> Option<()> {
    text.set(&[PRELOAD, b"=", library])?;
    let mut is_first = library.is_empty();
    for entry in preload::entries(before).filter(|entry| !preload::is_library(entry)) {
        text.push(if is_first { b"" } else { b":" })?;
        text.push(entry)?;
        is_first = false;
    }
    Some(())
}

/// Executes the first program of this name in `folders`, as execvp(3) does. Returns if no folder has one that
/// the kernel executes.
fn search(
    name: &[u8],
    folders: &[u8],
    arguments: *const *const c_char,
    room: &mut ArgumentBuffer,
) -> Option<()> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    for folder in folders.split(|byte| *byte == b':') {
        let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
        room.path.set(&[folder, slash, name])?;
        match execute(room.path.as_c_str(), arguments, room.variables.as_ptr()) {
            Error::NO_ENTRY
            | Error::ACCESS
            | Error::NOT_A_FOLDER
            | Error::NO_DEVICE
            | Error::STALE
            | Error::TIMED_OUT => {}
            _ => return None,
        }
    }
    None
}

/// Executes a program. Returns only if that fails, with the reason.
pub fn execute(path: &CStr, arguments: *const *const c_char, variables: *const *const c_char) -> Error {
    const EXECVE: usize = 59;
    // SAFETY: `path` is a C string, and both arrays hold C strings and end with a null: they are the kernel's
    // own, or `fill` built them.
    let answer =
        unsafe { call(EXECVE, [path.as_ptr() as usize, arguments as usize, variables as usize, 0, 0, 0]) };
    Error(-answer as i32)
}
