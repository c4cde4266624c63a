//! Environment of the program: the flags of `bywash run` as variables for the library.
//!
//! Invariant: a variable is set only if its flag was given, so that the caller's environment holds otherwise;
//! LD_PRELOAD keeps its other entries. Called once per run, before the program starts.

use crate::cli::RunArgs;
use crate::error::Failure;
use bywash_executable::preload;
use bywash_session::settings;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Name and value of a variable; without a value, the variable is removed.
pub type Variable = (&'static str, Option<OsString>);

/// Returns the variables to set for a program. `library` is the library to preload, or `None` if the program
/// cannot load it.
///
/// # Errors
/// [`Failure::Prefix`] if a prefix of `--only` or `--except` cannot be passed on.
pub fn variables(arguments: &RunArgs, library: Option<&Path>) -> Result<Vec<Variable>, Failure> {
    let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let preload = preload(library.map(Path::as_os_str), &before);
    let mut variables = vec![("LD_PRELOAD", (!preload.is_empty()).then_some(preload))];
    for (flag, setting, given) in
        [("--only", &settings::ONLY, &arguments.only), ("--except", &settings::EXCEPT, &arguments.except)]
    {
        if !given.is_empty() {
            variables.push((setting.variable, Some(prefixes(flag, given)?)));
        }
    }
    if let Some(bytes) = arguments.threshold {
        variables.push((settings::THRESHOLD.variable, Some(bytes.to_string().into())));
    }
    if let Some(keeper) = arguments.positions {
        variables.push((settings::POSITIONS.variable, Some(keeper.name().into())));
    }
    if arguments.writes {
        variables.push((settings::WRITES.variable, Some("1".into())));
    }
    if let Some(bytes) = arguments.resident {
        variables.push((settings::RESIDENT.variable, Some(bytes.to_string().into())));
    }
    if arguments.off {
        variables.push((settings::OFF.variable, Some("1".into())));
    }
    Ok(variables)
}

/// Joins the library and the entries of `before`, without other copies of the library (of a run within a
/// run).
pub fn preload(library: Option<&OsStr>, before: &OsStr) -> OsString {
    let others = preload::entries(before.as_bytes()).filter(|entry| !preload::is_library(entry));
    let all: Vec<&[u8]> = library.map(OsStr::as_bytes).into_iter().chain(others).collect();
    OsString::from_vec(all.join(&b':'))
}

/// Joins the prefixes, made absolute, with colons. If a prefix contains symbolic links, the path that it
/// resolves to follows it, since a program may open the file by either name.
fn prefixes(flag: &'static str, given: &[PathBuf]) -> Result<OsString, Failure> {
    let mut value: Vec<u8> = Vec::new();
    for prefix in given {
        let refused = |reason: String| Failure::Prefix { flag, prefix: prefix.display().to_string(), reason };
        let absolute = std::path::absolute(prefix).map_err(|error| {
            refused(format!("cannot be made absolute: {error}; give an absolute path that is not empty"))
        })?;
        let real = without_links(&absolute).filter(|real| *real != absolute);
        for path in [Some(absolute), real].into_iter().flatten() {
            if path.as_os_str().as_bytes().contains(&b':') {
                return Err(refused(
                    "has a colon in it, which separates prefixes; give a prefix that ends before the colon"
                        .into(),
                ));
            }
            if !value.is_empty() {
                value.push(b':');
            }
            value.extend_from_slice(path.as_os_str().as_bytes());
        }
    }
    Ok(OsString::from_vec(value))
}

/// Resolves the symbolic links in the part of `path` that exists, and appends the rest.
fn without_links(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|there| {
        let real = there.canonicalize().ok()?;
        let rest = path.strip_prefix(there).ok()?;
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_goes_in_front_of_what_is_preloaded_already() {
        for (before, with, without) in [
            ("", "/l.so", ""),
            ("/other.so", "/l.so:/other.so", "/other.so"),
            ("/a.so /b.so:", "/l.so:/a.so:/b.so", "/a.so:/b.so"),
            ("/a.so:/before/libbywash_shim.so", "/l.so:/a.so", "/a.so"),
        ] {
            assert_eq!(preload(Some(OsStr::new("/l.so")), OsStr::new(before)), *with);
            assert_eq!(preload(None, OsStr::new(before)), *without);
        }
    }

    #[test]
    fn prefixes_become_absolute() {
        let here = std::env::current_dir().unwrap();
        let value = prefixes("--only", &["/data".into(), "x/y".into()]).unwrap();
        assert_eq!(value, *format!("/data:{}/x/y", here.display()));
    }

    #[test]
    fn a_link_and_what_it_stands_for_are_both_meant() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("real", folder.join("link")).unwrap();
        std::fs::create_dir(folder.join("real")).unwrap();
        let value = prefixes("--only", &[folder.join("link")]).unwrap();
        assert_eq!(value, *format!("{0}/link:{0}/real", folder.display()));
        let value = prefixes("--only", &[folder.join("link/not yet")]).unwrap();
        assert_eq!(value, *format!("{0}/link/not yet:{0}/real/not yet", folder.display()));
    }

    #[test]
    fn a_colon_or_nothing_is_refused_by_the_flags_name() {
        for wrong in ["/a:b", ""] {
            let message = prefixes("--except", &[wrong.into()]).unwrap_err().to_string();
            assert!(message.starts_with(&format!("--except '{wrong}'")), "{message}");
        }
    }
}
