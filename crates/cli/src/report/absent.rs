//! Reason that a program did not load the preloaded library, as far as its file shows it (ld.so(8)).
//!
//! Called only if the program itself has no record of the library.

use bywash_executable::Reason;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the reason in a few words. `off` says that the library was switched off; `unserved` is the reason
/// from the program's file why the library cannot serve it.
pub fn explain(program: &OsStr, off: bool, unserved: Option<Reason>) -> String {
    if off {
        return "switched off".into();
    }
    let privileged = resolve(program).as_deref().and_then(privileges);
    privileged.or(unserved.map(Reason::words)).unwrap_or("its file does not tell why").into()
}

/// Returns the file that execvp(3) runs for `program`.
fn resolve(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

/// Returns the reason that the dynamic loader ignores LD_PRELOAD for a program with more privileges than its
/// caller.
fn privileges(program: &Path) -> Option<&'static str> {
    let file = File::open(program).ok()?;
    let mode = file.metadata().ok()?.permissions().mode();
    if mode & 0o6000 != 0 {
        return Some("set-user-ID or set-group-ID: the dynamic loader ignores LD_PRELOAD for it");
    }
    rustix::fs::fgetxattr(&file, "security.capability", &mut [0u8; 64])
        .is_ok()
        .then_some("has file capabilities: the dynamic loader ignores LD_PRELOAD for it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_dynamic_program_is_not_blamed() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(privileges(&own), None);
        assert_eq!(explain(own.as_os_str(), false, None), "its file does not tell why");
        assert_eq!(explain(own.as_os_str(), true, Some(Reason::Musl)), "switched off");
        assert_eq!(explain(own.as_os_str(), false, Some(Reason::Static)), "statically linked");
    }

    #[test]
    fn set_uid_comes_before_what_the_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(explain(path.as_os_str(), false, Some(Reason::Static)).starts_with("set-user-ID"));
    }

    #[test]
    fn a_name_without_a_slash_is_looked_up() {
        assert!(resolve(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(resolve(OsStr::new("no-such-program-here")), None);
    }
}
