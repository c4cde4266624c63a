//! Finds the library and the command, which lie beside this program or where `make install` puts them.
//!
//! The command looks for the library in the same places (`run::library`), and says what is wrong with them.

use crate::freestanding::Inherited;
use crate::text::Text;
use bywash_syscall::{is_file, read_link};

/// Longest path that is followed (PATH_MAX), and room for a name behind it.
pub const PATH_BYTES: usize = 4096 + 64;

/// A path.
pub type Path = Text<PATH_BYTES>;

/// A file's place from a folder on: from this program's own, or from the one above.
#[derive(Clone, Copy)]
pub enum Beside {
    /// In the folder.
    Here(&'static str),
    /// In the folder above.
    Above(&'static str),
}

/// Places of the preloaded library.
pub const LIBRARY: [Beside; 3] = [
    Beside::Here("/libbywash_shim.so"),
    Beside::Above("/lib/bywash/libbywash_shim.so"),
    Beside::Above("/lib/libbywash_shim.so"),
];

/// Places of the command.
pub const COMMAND: [Beside; 2] =
    [Beside::Here("/bywash-command"), Beside::Above("/lib/bywash/bywash-command")];

/// The folder that this program lies in; empty for the root.
pub struct Place(Path);

impl Place {
    /// This program's own. Without /proc it is where it was executed by its path.
    pub fn own(inherited: &Inherited) -> Option<Place> {
        let mut buffer = [0; 4096];
        let linked = read_link(c"/proc/self/exe", &mut buffer).ok().filter(|length| *length < 4096);
        let path = match linked {
            Some(length) => buffer.get(..length)?,
            None => inherited.executed_path()?,
        };
        Some(Place(Path::of(&[folder_of(path)?])?))
    }

    /// The path of a place.
    pub fn beside(&self, place: Beside) -> Path {
        let folder = self.0.as_bytes();
        let (folder, name) = match place {
            Beside::Here(name) => (folder, name),
            Beside::Above(name) => (folder_of(folder).unwrap_or(folder), name),
        };
        Path::of(&[folder, name.as_bytes()]).unwrap_or(Path::new())
    }

    /// The path of a place where there is a file.
    pub fn find(&self, place: Beside) -> Option<Path> {
        let path = self.beside(place);
        is_file(path.as_c_str()).then_some(path)
    }
}

/// Returns the part of a path before its last slash.
fn folder_of(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    path.get(..slash)
}
