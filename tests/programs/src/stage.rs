//! The environment of a scenario: one folder, one side, one transcript.
//!
//! Invariant: both sides of a scenario have the same folder path, the same seed and the same environment, so
//! that a difference between their transcripts is caused by the library, or by chance in the program itself.

use crate::counted::CountedSession;
use crate::library;
use crate::program::Program;
use crate::seed::Seed;
use crate::{installed, place::Folder};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Server of the program's file calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel alone.
    Kernel,
    /// The preloaded library, which serves calls or passes them to the kernel.
    Bywash,
}

/// One run of a scenario, on one side.
pub struct ScenarioRun {
    side: Side,
    folder: PathBuf,
    spare: PathBuf,
    library: PathBuf,
    counted: Option<CountedSession>,
    seed: Seed,
    started: Cell<u32>,
    writes: Cell<bool>,
    transcript: RefCell<Vec<String>>,
    loaded: RefCell<BTreeSet<PathBuf>>,
    served: RefCell<BTreeSet<PathBuf>>,
    last_command: RefCell<String>,
}

impl ScenarioRun {
    /// Prepares `side` in the folder `top`, and removes the folders that an earlier side has left there.
    pub(crate) fn set_up(side: Side, top: &Folder, seed: Seed) -> ScenarioRun {
        let (folder, spare) = (top.path().join("work"), top.path().join("spare"));
        for made in [&folder, &spare] {
            if made.exists() {
                fs::remove_dir_all(made).expect("the other side's folder can be removed");
            }
            fs::create_dir(made).expect("a folder");
        }
        let counted = (side == Side::Bywash).then(CountedSession::new);
        let library = spare.join(library::NAME);
        // The library is copied, since another user may have no access to the folders above the original.
        fs::copy(library::path(), &library).expect("a copy of the library");
        ScenarioRun {
            side,
            folder,
            spare,
            library,
            counted,
            seed,
            started: Cell::new(0),
            writes: Cell::new(true),
            transcript: RefCell::default(),
            loaded: RefCell::default(),
            served: RefCell::default(),
            last_command: RefCell::default(),
        }
    }

    /// Returns the side, for scenarios that run some programs with the library and others without it.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the folder that programs run in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of `name` in that folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns a folder beside that folder, for files that must not be compared (logs, drivers).
    pub fn spare(&self) -> &Path {
        &self.spare
    }

    /// Writes a file in the folder, without the library.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap_or_else(|error| panic!("write {name}: {error}"));
    }

    /// Reads a file in the folder, without the library.
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("read {name}: {error}"))
    }

    /// Makes a folder in the folder.
    pub fn make_folder(&self, name: &str) {
        fs::create_dir_all(self.path(name)).unwrap_or_else(|error| panic!("mkdir {name}: {error}"));
    }

    /// Returns the source of random numbers, which is the same on both sides.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Prepares the program `name` to run in the folder on this side.
    pub fn program(&self, name: impl AsRef<Path>) -> Program<'_> {
        Program::new(self, name.as_ref())
    }

    /// Compiles `drivers/NAME.c` and returns the path of the program.
    pub fn driver(&self, name: &str, flags: &[&str]) -> PathBuf {
        let (source, binary) =
            (format!("{}/drivers/{name}.c", env!("CARGO_MANIFEST_DIR")), self.spare.join(name));
        let compile = self.program("cc").plain().args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]);
        compile.arg(&binary).arg(&source).args(flags).run().ok();
        binary
    }

    /// Adds text to the transcript, which must be the same on both sides.
    pub fn note(&self, what: impl Into<String>) {
        self.transcript.borrow_mut().push(what.into());
    }

    /// Adds the name, type, permissions, size and contents of every file in the folder to the transcript, as
    /// the kernel shows them.
    pub fn note_tree(&self) {
        self.note_tree_of(".");
    }

    /// Like [`ScenarioRun::note_tree`], for the folder `name` in the folder.
    pub fn note_tree_of(&self, name: &str) {
        let script = "find \"$1\" -mindepth 1 \\( -type d -o -printf '%p %y %m %s %l\\n' \\) | sort
            find \"$1\" -type f -print0 | sort -z | xargs -0 -r sha256sum";
        let tree = self.program("sh").plain().args(["-c", script, "sh", name]).run().ok();
        self.note(format!("files of {name}:\n{tree}"));
    }

    /// Requires that with the library some calls of `program` have been served at user level by the end.
    pub fn expect_served(&self, program: impl AsRef<Path>) {
        let path = installed::find(&program.as_ref().to_string_lossy());
        self.served.borrow_mut().insert(fs::canonicalize(path).expect("the program's path"));
    }

    /// Requires that the library has been loaded into a process of `program` by the end.
    pub fn expect_loaded(&self, program: &Path) {
        self.loaded.borrow_mut().insert(fs::canonicalize(program).expect("the program's path"));
    }

    /// Leaves all writes to the kernel, as without `--writes`. Mapped writes to tmpfs are not atomic against kill -9, so a
    /// program that is killed and cannot repair a page that is half written needs this.
    pub fn without_mapped_writes(&self) {
        self.writes.set(false);
    }

    /// Returns the environment variables that preload the library; `None` on the kernel's side.
    pub(crate) fn preload(&self) -> Option<[(&'static str, &Path); 4]> {
        let counted = self.counted.as_ref()?;
        Some([
            ("LD_PRELOAD", self.library.as_path()),
            ("BYWASH_SESSION", counted.path()),
            // Files on tmpfs are to be written through mappings too.
            ("BYWASH_WRITES", Path::new(if self.writes.get() { "1" } else { "0" })),
            // Files are to be served after few reads, even where that gains no time.
            ("BYWASH_ADVANCE", Path::new("1000000")),
        ])
    }

    /// Returns the number of the program that starts next, from 0 on.
    pub(crate) fn number(&self) -> u32 {
        self.started.replace(self.started.get() + 1)
    }

    /// Stores the command that runs, for the report of a failure.
    pub(crate) fn remember(&self, command: &str) {
        self.last_command.replace(command.to_owned());
    }

    pub(crate) fn last_command(&self) -> String {
        self.last_command.borrow().clone()
    }

    /// Returns the transcript.
    pub(crate) fn transcript(&self) -> Vec<String> {
        self.transcript.borrow().clone()
    }

    /// Checks the counters against the requirements of the scenario.
    pub(crate) fn assert_counted(&self) {
        let Some(counted) = &self.counted else { return };
        for program in self.loaded.borrow().iter() {
            counted.assert_loaded(program);
        }
        for program in self.served.borrow().iter() {
            counted.assert_served(program);
        }
    }
}
