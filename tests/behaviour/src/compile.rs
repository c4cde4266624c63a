//! Builds the C programs and the preloaded library when a test starts.
//!
//! Invariant: what is tested is what the tree says now; nothing that was built earlier is taken for it.
//! Called by the tests' `main`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Why something could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The compiler is not there.
    #[error("{command} cannot be started ({reason}): install it (Debian: apt-get install gcc libc6-dev)")]
    Start {
        /// Command that could not be started.
        command: String,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The compiler refused.
    #[error(
        "{what} does not build; its headers are in Debian's liburing-dev, libaio-dev and linux-libc-dev:\n{text}"
    )]
    Refused {
        /// Name of the program that was being built.
        what: String,
        /// Output of the compiler.
        text: String,
    },
}

/// Which names of libc's functions a program is built to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// `open`, `pread`, ... and the fortified variants.
    Plain,
    /// `open64`, `pread64`, ... and the fortified variants.
    Large,
}

/// Compiles every C file of `folder` (a folder of this package) into one program in `into`.
///
/// # Errors
/// When the compiler is missing or refuses.
pub fn program(folder: &str, names: Names, into: &Path) -> Result<PathBuf, Error> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let target = into.join(format!("{folder}-{names:?}"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(&sources)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    files.sort();
    let mut command = Command::new("cc");
    command
        .current_dir(&sources)
        .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-result"])
        .args(["-D_GNU_SOURCE", "-D_FORTIFY_SOURCE=2"])
        .args((names == Names::Large).then_some("-D_FILE_OFFSET_BITS=64"))
        .arg("-o")
        .arg(&target)
        .args(files.iter().filter_map(|path| path.file_name()))
        .args(["-luring", "-laio", "-pthread"]);
    finish(&mut command, folder)?;
    Ok(target)
}

/// Returns the path of the preloaded library, built with the profile of the tests.
///
/// # Panics
/// If it cannot be built.
pub fn library() -> PathBuf {
    bywash_support::built::file("bywash-shim", "libbywash_shim.so")
}

fn finish(command: &mut Command, what: &str) -> Result<(), Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|reason| Error::Start { command: name, reason })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Refused { what: what.into(), text: String::from_utf8_lossy(&output.stderr).into_owned() })
}
