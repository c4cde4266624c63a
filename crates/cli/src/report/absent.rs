//! Why a program did not load the preloaded library, as far as its file tells (ld.so(8), elf(5)).
//!
//! Reads a few hundred bytes of the program; called only when the library did not report from it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The reason, in a few words, given whether the library was switched `off`.
pub fn explain(program: &OsStr, off: bool) -> String {
    if off {
        return "switched off".into();
    }
    resolve(program).as_deref().and_then(reason).unwrap_or("static or set-uid?").into()
}

/// The file that execvp(3) runs for `program`.
fn resolve(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

fn reason(program: &Path) -> Option<&'static str> {
    let file = File::open(program).ok()?;
    let mode = file.metadata().ok()?.permissions().mode();
    if mode & 0o6000 != 0 {
        return Some("set-user-ID or set-group-ID: the dynamic loader ignores LD_PRELOAD for it");
    }
    if rustix::fs::fgetxattr(&file, "security.capability", &mut [0u8; 64]).is_ok() {
        return Some("has file capabilities: the dynamic loader ignores LD_PRELOAD for it");
    }
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    const ELF_CLASS_64: u8 = 2;
    if head[4] != ELF_CLASS_64 {
        return Some("a 32-bit program; the library is 64-bit");
    }
    (!names_interpreter(&file, &head)?).then_some("statically linked")
}

/// Whether a 64-bit ELF file has a PT_INTERP segment: names a dynamic loader.
fn names_interpreter(file: &File, head: &[u8; 64]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let offset = u64::from_le_bytes(head[32..40].try_into().ok()?);
    let entry_bytes = u16::from_le_bytes(head[54..56].try_into().ok()?);
    let entries = u16::from_le_bytes(head[56..58].try_into().ok()?);
    for index in 0..u64::from(entries) {
        let mut kind = [0; 4];
        let at = offset.checked_add(index * u64::from(entry_bytes))?;
        file.read_exact_at(&mut kind, at).ok()?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_dynamic_program_is_not_blamed() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(reason(&own), None);
        assert_eq!(explain(own.as_os_str(), false), "static or set-uid?");
        assert_eq!(explain(own.as_os_str(), true), "switched off");
    }

    #[test]
    fn set_uid_static_and_32_bit_programs_are_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut elf = [0u8; 64];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        fs::write(&path, elf).unwrap();
        assert_eq!(reason(&path), Some("statically linked"));
        elf[4] = 1;
        fs::write(&path, elf).unwrap();
        assert!(reason(&path).unwrap().starts_with("a 32-bit program"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(reason(&path).unwrap().starts_with("set-user-ID"));
    }

    #[test]
    fn a_name_without_a_slash_is_looked_up() {
        assert!(resolve(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(resolve(OsStr::new("no-such-program-here")), None);
    }
}
