//! Files of all kinds, made here: what is said of each.
#![allow(clippy::unwrap_used)]

use bywash_executable::{Finding, Reason, Target, examine};
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

fn look(path: &Path) -> Option<Finding> {
    examine(&Target::Path(&CString::new(path.as_os_str().as_bytes()).unwrap()), b"")
}

fn reason(path: &Path) -> Option<Reason> {
    look(path).map(|finding| finding.reason)
}

/// An x86-64 program with this loader, or without one.
fn elf(loader: Option<&str>) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[18] = 62;
    bytes[32] = 64;
    bytes[54] = 56;
    if let Some(loader) = loader {
        bytes[56] = 1;
        let mut header = [0u8; 56];
        header[0] = 3;
        header[8] = 120;
        header[32] = loader.len() as u8 + 1;
        bytes.extend(header);
        bytes.extend(loader.as_bytes());
        bytes.push(0);
    }
    bytes
}

#[test]
fn the_loader_the_class_and_the_machine_decide() {
    let folder = Folder::new();
    for (content, expected) in [
        (elf(Some("/lib64/ld-linux-x86-64.so.2")), None),
        (elf(Some("/nix/store/x-glibc-2.38/lib/ld-linux-x86-64.so.2")), None),
        (elf(Some("/lib/ld-musl-x86_64.so.1")), Some(Reason::Musl)),
        (elf(Some("/system/bin/linker64")), Some(Reason::OtherLoader)),
        (elf(None), Some(Reason::Static)),
        (b"no program".to_vec(), None),
        (b"".to_vec(), None),
        (b"\x7fELF".to_vec(), None),
    ] {
        assert_eq!(reason(&folder.file("p", &content)), expected, "{content:?}");
    }
    let mut foreign = elf(None);
    foreign[18] = 183;
    assert_eq!(reason(&folder.file("p", &foreign)), Some(Reason::OtherMachine));
    let mut small = elf(None);
    small[4] = 1;
    assert_eq!(reason(&folder.file("p", &small)), Some(Reason::ThirtyTwoBits), "x32");
    small[18] = 3;
    assert_eq!(reason(&folder.file("p", &small)), Some(Reason::ThirtyTwoBits));
}

#[test]
fn a_script_is_what_its_interpreter_is() {
    let folder = Folder::new();
    let program = folder.file("p", &elf(Some("/lib/ld-musl-x86_64.so.1")));
    let one = folder.file("one", format!("#! {} -x\n", program.display()).as_bytes());
    let two = folder.file("two", format!("#!\t{}", one.display()).as_bytes());
    let found = look(&two).unwrap();
    assert_eq!(found.reason, Reason::Musl);
    assert_eq!(found.program(), fs::canonicalize(&program).unwrap().as_os_str().as_bytes());
    let shell = folder.file("shell", b"#!/bin/sh\n");
    assert_eq!(reason(&shell), None);
    let own = folder.0.path().join("own");
    folder.file("own", format!("#!{}\n", own.display()).as_bytes());
    assert_eq!(reason(&own), None, "a script of itself ends");
    for line in ["#!", "#!   \n", "#!/nowhere/at/all\n"] {
        assert_eq!(reason(&folder.file("odd", line.as_bytes())), None);
    }
}

#[test]
fn a_name_is_searched_for_as_execvp_does() {
    let (first, second) = (Folder::new(), Folder::new());
    let program = second.file("tool", &elf(None));
    let path = format!("/nowhere::{}:{}", first.0.path().display(), second.0.path().display());
    let search = || examine(&Target::Name(c"tool", Some(path.as_bytes())), b"");
    assert_eq!(OsStr::from_bytes(search().unwrap().program()), fs::canonicalize(&program).unwrap());
    // What cannot be executed is passed over, a folder too.
    fs::create_dir(first.0.path().join("tool")).unwrap();
    assert_eq!(search().unwrap().reason, Reason::Static);
    fs::remove_dir(first.0.path().join("tool")).unwrap();
    let other = first.file("tool", &elf(Some("/lib/ld-musl-x86_64.so.1")));
    fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(search().unwrap().reason, Reason::Static);
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(search().unwrap().reason, Reason::Musl);
    let long = "x".repeat(5000);
    assert!(examine(&Target::Name(c"tool", Some(long.as_bytes())), b"").is_none());
    assert!(examine(&Target::Name(c"", Some(path.as_bytes())), b"").is_none());
    assert!(examine(&Target::Name(c"sh", None), b"").is_none(), "/bin/sh");
}

#[test]
fn an_open_file_and_a_folder_lead_to_the_program() {
    let folder = Folder::new();
    let file = fs::File::open(folder.file("p", &elf(None))).unwrap();
    let opened = fs::File::open(folder.0.path()).unwrap();
    assert_eq!(examine(&Target::File(file.as_raw_fd()), b"").unwrap().reason, Reason::Static);
    assert_eq!(examine(&Target::In(opened.as_raw_fd(), c"p"), b"").unwrap().reason, Reason::Static);
    assert!(examine(&Target::File(opened.as_raw_fd()), b"").is_none());
}

#[test]
fn a_loader_that_is_executed_itself_counts() {
    let folder = Folder::new();
    assert_eq!(reason(&folder.file("ld-musl-x86_64.so.1", &elf(None))), Some(Reason::Musl));
}

/// Offsets and numbers in a file are anybody's.
#[test]
fn no_file_confuses_the_look() {
    let folder = Folder::new();
    let own = fs::read(std::env::current_exe().unwrap()).unwrap();
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..500 {
        let mut head = own[..4096].to_vec();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = 8 + (random >> 33) as usize % 1000;
            head[place] = (random >> 24) as u8;
        }
        // Any answer is right; an answer there must be.
        look(&folder.file("p", &head));
    }
}
