//! Finds the preloaded library: beside the command, or where `make install` puts it.
//!
//! Invariant: the returned path is absolute, exists, and has no space or colon, at which the dynamic loader
//! splits LD_PRELOAD (ld.so(8)). Called by `bywash run` and by the doctor.

use crate::error::Failure;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// File name of the library of `bywash run`.
const NAME: &str = "libbywash_shim.so";
/// File name of the recorder of `bywash plan record`.
const RECORDER: &str = "libbywash_recorder.so";

/// Finds the library of this command.
pub fn find() -> Result<PathBuf, Failure> {
    find_named(NAME)
}

/// Finds the recorder of this command.
pub fn find_recorder() -> Result<PathBuf, Failure> {
    find_named(RECORDER)
}

fn find_named(name: &'static str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::OwnPath)?;
    find_from(&folder_of_bywash(own.parent().unwrap_or(Path::new("/"))), name)
}

/// Returns the folder of the program `bywash`, which starts this command. The two lie side by side, or are
/// installed in `bin` and `lib/bywash` under one prefix. The launcher looks for the library from its own
/// folder, so this command does the same.
fn folder_of_bywash(own: &Path) -> PathBuf {
    let prefix = own.ends_with("lib/bywash").then(|| own.ancestors().nth(2)).flatten();
    let installed = prefix.map(|prefix| prefix.join("bin")).filter(|bin| bin.join("bywash").is_file());
    installed.unwrap_or_else(|| own.into())
}

/// Finds the library `name` of a `bywash` program that lies in `folder`.
fn find_from(folder: &Path, name: &'static str) -> Result<PathBuf, Failure> {
    let above = folder.parent().unwrap_or(folder);
    let places = [folder.join(name), above.join("lib/bywash").join(name), above.join("lib").join(name)];
    let Some(found) = places.iter().find(|place| place.is_file()) else {
        return Err(Failure::LibraryMissing { name, tried: places.into() });
    };
    if found.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(Failure::LibraryPath(found.clone()));
    }
    Ok(found.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn beside_the_command_comes_first_then_the_installed_places() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        let places = ["lib", "lib/bywash", "bin"].map(|place| root.path().join(place));
        for place in places {
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join(NAME), "").unwrap();
            assert_eq!(find_from(&bin, NAME).unwrap(), place.join(NAME));
        }
    }

    #[test]
    fn an_installed_command_looks_from_the_folder_of_bywash() {
        let root = tempfile::tempdir().unwrap();
        let (bin, own) = (root.path().join("bin"), root.path().join("lib/bywash"));
        assert_eq!(folder_of_bywash(&own), own);
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("bywash"), "").unwrap();
        assert_eq!(folder_of_bywash(&own), bin);
        assert_eq!(folder_of_bywash(&bin), bin);
    }

    #[test]
    fn a_missing_library_names_every_place_and_the_remedy() {
        let root = tempfile::tempdir().unwrap();
        let message = find_from(&root.path().join("bin"), NAME).unwrap_err().to_string();
        for place in ["bin", "lib", "lib/bywash"] {
            let place = root.path().join(place).join(NAME);
            assert!(message.contains(&format!("{}\n", place.display())), "{message}");
        }
        assert!(message.contains("remedy"), "{message}");
    }

    #[test]
    fn a_path_that_ld_preload_would_split_is_refused() {
        for name in ["a b", "a:b"] {
            let root = tempfile::Builder::new().prefix(name).tempdir().unwrap();
            fs::write(root.path().join(NAME), "").unwrap();
            assert!(matches!(find_from(root.path(), NAME), Err(Failure::LibraryPath(_))));
        }
    }
}
