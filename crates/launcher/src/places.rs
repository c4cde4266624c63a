//! Finds the library and the command, which lie beside this program or where `make install` puts them.
//!
//! The command looks for the library in the same places (`run::library`), and reports errors.

use crate::freestanding::Inherited;
use crate::text::Text;
use bywash_syscall::{is_file, read_link};

/// Greatest size of a path, in bytes: PATH_MAX and room for a name after it.
pub const PATH_BYTES: usize = 4096 + 64;

/// A path in fixed memory.
pub type Path = Text<PATH_BYTES>;

/// Path of a file relative to this program's own folder.
#[derive(Clone, Copy)]
pub enum CommandSearch {
    /// Path from the program's folder on, with a leading slash.
    Here(&'static str),
    /// Path from the folder above on, with a leading slash.
    Above(&'static str),
}

/// Paths where the preloaded library may lie.
pub const LIBRARY: [CommandSearch; 3] = [
    CommandSearch::Here("/libbywash_shim.so"),
    CommandSearch::Above("/lib/bywash/libbywash_shim.so"),
    CommandSearch::Above("/lib/libbywash_shim.so"),
];

/// Paths where the command may lie.
pub const COMMAND: [CommandSearch; 2] =
    [CommandSearch::Here("/bywash-command"), CommandSearch::Above("/lib/bywash/bywash-command")];

/// Folder that this program lies in; empty for the root.
pub struct InstallFolder(Path);

impl InstallFolder {
    /// Returns this program's own folder. Without /proc, the path by which it was executed gives the folder.
    pub fn own(inherited: &Inherited) -> Option<InstallFolder> {
        let mut buffer = [0; 4096];
        let linked = read_link(c"/proc/self/exe", &mut buffer).ok().filter(|length| *length < 4096);
        let path = match linked {
            Some(length) => buffer.get(..length)?,
            None => inherited.executed_path()?,
        };
        Some(InstallFolder(Path::concat(&[folder_of(path)?])?))
    }

    /// Returns the path of a file beside this program; empty if it is too long.
    pub fn sibling(&self, place: CommandSearch) -> Path {
        let folder = self.0.as_bytes();
        let (folder, name) = match place {
            CommandSearch::Here(name) => (folder, name),
            CommandSearch::Above(name) => (folder_of(folder).unwrap_or(folder), name),
        };
        Path::concat(&[folder, name.as_bytes()]).unwrap_or(Path::new())
    }

    /// Returns the path of a file beside this program, if the file exists.
    pub fn find(&self, place: CommandSearch) -> Option<Path> {
        let path = self.sibling(place);
        is_file(path.as_c_str()).then_some(path)
    }
}

/// Returns the part of a path before its last slash.
fn folder_of(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    path.get(..slash)
}
