//! The folder on disk in which everything of a run lies, and the removal of folders that earlier runs left there.
//!
//! ```text
//! BASE/bywash-bench/programs/   compiled C programs and a Python environment, kept from run to run
//! BASE/bywash-bench/run-PID/    data and mount points of one run, removed when it ends
//! ```
//!
//! A run that was killed cannot remove its folder; the next one does.

use crate::error::{Attempt, Error};
use crate::say::say;
use std::fs;
use std::path::{Path, PathBuf};

/// Tag with which Cargo marks its target folder (and others their caches).
const CACHE_TAG: &str = "CACHEDIR.TAG";
/// Begins the name of a run's folder; the process id follows.
const RUN_PREFIX: &str = "run-";

/// The folder of this run; removed when dropped.
pub struct Workspace {
    programs: PathBuf,
    run: PathBuf,
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
        let run = root.join(format!("{RUN_PREFIX}{}", std::process::id()));
        let workspace = Workspace { programs: root.join("programs"), run };
        for folder in [&workspace.programs, &workspace.run] {
            fs::create_dir_all(folder).doing("create", folder)?;
        }
        sweep(&root, RUN_PREFIX);
        Ok(workspace)
    }

    /// Folder in which programs are kept.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// The folder of this run.
    pub fn run(&self) -> &Path {
        &self.run
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.run).doing("remove", &self.run) {
            say(format_args!("bywash bench: {error}; remove it by hand"));
        }
    }
}

fn default_base() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    let target = here.ancestors().skip(1).find(|folder| folder.join(CACHE_TAG).is_file());
    target.map_or_else(|| PathBuf::from("/var/tmp"), |target| target.join("tmp"))
}

/// Removes the folders in `parent` named `prefix` and a process id that runs left behind whose process is gone.
pub fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let name = folder.file_name().and_then(|name| name.to_str());
        let pid = name.and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // What is still busy stays for the next run.
            let _ = fs::remove_dir_all(&folder);
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
        let (stale, other) = (root.join("run-4294967"), root.join("runs"));
        fs::create_dir_all(stale.join("tmpfs")).unwrap();
        fs::create_dir_all(&other).unwrap();
        let workspace = Workspace::create(Some(base.path())).unwrap();
        let run = workspace.run().to_path_buf();
        assert!(run.is_dir() && !stale.exists() && other.exists());
        drop(workspace);
        assert!(!run.exists() && root.join("programs").exists());
    }
}
