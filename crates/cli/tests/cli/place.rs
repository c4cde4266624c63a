//! A temporary folder, the command in it, and what a run gave.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// A folder that is gone when the test ends.
pub struct TestFolder {
    folder: tempfile::TempDir,
}

impl TestFolder {
    pub fn new() -> TestFolder {
        TestFolder { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of the folder; answers its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Makes an executable file of the folder.
    pub fn script(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let source = self.file(&format!("{name}.source"), content);
        self.executable(&source, name)
    }

    /// Copies a program into the folder. By another process: while this one has a file open for writing, a
    /// child that another test starts at that moment has it open too, and the kernel executes no such file.
    pub fn executable(&self, source: &Path, name: &str) -> PathBuf {
        let path = self.path().join(name);
        assert!(Command::new("install").arg("-Dm755").args([source, &path]).status().unwrap().success());
        path
    }

    /// `program`, in this folder, with an empty standard input.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BYWASH_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// The command under test with its library beside it.
    pub fn bywash(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(bywash());
        command.args(arguments);
        command
    }

    /// Runs `sh -c script` under `bywash run` with `flags`.
    pub fn sh(&self, flags: &[&str], script: &str) -> Output {
        self.bywash(&["run"]).args(flags).args(["--", "sh", "-c", script]).output().unwrap()
    }
}

/// The command under test. Its launcher and libraries are built first, once: `cargo test -p bywash-cli` alone would not.
pub fn bywash() -> &'static Path {
    static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();
    LAUNCHER.get_or_init(bywash_support::built::launcher)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
