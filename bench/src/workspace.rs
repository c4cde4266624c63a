//! The folder on disk in which everything of a run lies, and the removal of folders that earlier runs left there.
//!
//! ```text
//! BASE/bywash-bench/programs/   compiled C programs and Python environments, kept from run to run
//! BASE/bywash-bench/run-PID/    data and mount points of one run, removed when it ends
//! ```
//!
//! A run that was killed cannot remove its folder; the next one does.

use crate::error::{Attempt, Error};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempDir};

/// Tag with which Cargo marks its target folder (and others their caches).
const CACHE_TAG: &str = "CACHEDIR.TAG";
/// Begins the name of a run's folder; the process id follows.
const RUN_PREFIX: &str = "run-";

/// The folder of this run; removed when dropped.
pub struct Workspace {
    programs: PathBuf,
    run: TempDir,
}

impl Workspace {
    /// Makes the folder under `base`, or under the default when there is none: `tmp` in the target folder that
    /// the running command lies in, else `/var/tmp`.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be made.
    pub fn create(base: Option<&Path>) -> Result<Workspace, Error> {
        let base = base.map_or_else(default_base, Path::to_path_buf);
        // Servers and tools run in folders of their own, from where a relative path leads elsewhere.
        let root = std::path::absolute(&base).doing("find", &base)?.join("bywash-bench");
        let programs = root.join("programs");
        fs::create_dir_all(&programs).doing("create", &programs)?;
        sweep(&root, RUN_PREFIX);
        let name = format!("{RUN_PREFIX}{}", std::process::id());
        let run = Builder::new().prefix(&name).rand_bytes(0).tempdir_in(&root).doing("create", &root)?;
        Ok(Workspace { programs, run })
    }

    /// Folder in which programs are kept.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// The folder of this run.
    pub fn run(&self) -> &Path {
        self.run.path()
    }
}

fn default_base() -> PathBuf {
    target().map_or_else(|| PathBuf::from("/var/tmp"), |target| target.join("tmp"))
}

/// Returns the target folder that the running command lies in; `None` for an installed command.
pub fn target() -> Option<PathBuf> {
    let here = std::env::current_exe().unwrap_or_default();
    here.ancestors().skip(1).find(|folder| folder.join(CACHE_TAG).is_file()).map(Path::to_path_buf)
}

/// Removes the folders in `parent` that runs left there whose process is gone. Their names are `prefix` and a process id,
/// which anything may follow behind a hyphen.
pub fn sweep(parent: &Path, prefix: &str) {
    for folder in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(prefix).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // What is still busy stays for the next run.
            let _ = fs::remove_dir_all(folder.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_and_what_a_dead_run_left_goes_too() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("bywash-bench");
        let (stale, other) =
            (["run-4294967", "run-4294967-a"].map(|name| root.join(name)), root.join("runs"));
        for folder in stale.iter().chain([&other]) {
            fs::create_dir_all(folder.join("tmpfs")).unwrap();
        }
        let workspace = Workspace::create(Some(base.path())).unwrap();
        let run = workspace.run().to_path_buf();
        assert!(run.is_dir() && !stale.iter().any(|folder| folder.exists()) && other.exists());
        drop(workspace);
        assert!(!run.exists() && root.join("programs").exists());
    }
}
