//! What a scenario works with: one folder, one side, one transcript.
//!
//! Invariant: both sides of a scenario see the same folder path, the same seed and the same environment, so
//! that whatever differs in their transcripts is the library's doing or the program's own chance.

use crate::counted::Counted;
use crate::library;
use crate::program::Program;
use crate::seed::Seed;
use crate::{installed, place::Folder};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Who serves the program's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel alone.
    Kernel,
    /// The preloaded library is in between.
    Bywash,
}

/// One playing of a scenario.
pub struct Stage {
    side: Side,
    folder: PathBuf,
    spare: PathBuf,
    library: PathBuf,
    counted: Option<Counted>,
    seed: Seed,
    started: Cell<u32>,
    transcript: RefCell<Vec<String>>,
    loaded: RefCell<BTreeSet<PathBuf>>,
    served: RefCell<BTreeSet<PathBuf>>,
    last_command: RefCell<String>,
}

impl Stage {
    /// Sets up `side` in `top`, where the other side may have been before.
    pub(crate) fn set_up(side: Side, top: &Folder, seed: Seed) -> Stage {
        let (folder, spare) = (top.path().join("work"), top.path().join("spare"));
        for made in [&folder, &spare] {
            if made.exists() {
                fs::remove_dir_all(made).expect("the other side's folder can be removed");
            }
            fs::create_dir(made).expect("a folder");
        }
        let counted = (side == Side::Bywash).then(Counted::new);
        let library = spare.join(library::NAME);
        // A copy, because another user may not be allowed to pass the folders above the original.
        fs::copy(library::path(), &library).expect("a copy of the library");
        Stage {
            side,
            folder,
            spare,
            library,
            counted,
            seed,
            started: Cell::new(0),
            transcript: RefCell::default(),
            loaded: RefCell::default(),
            served: RefCell::default(),
            last_command: RefCell::default(),
        }
    }

    /// Which side this is; for programs of which one half shall run under the library and one not.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The folder that programs run in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of `name` in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A folder beside it, for what must not be in the way (logs, drivers).
    pub fn spare(&self) -> &Path {
        &self.spare
    }

    /// Writes a file by the kernel.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap_or_else(|error| panic!("write {name}: {error}"));
    }

    /// Reads a file by the kernel.
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("read {name}: {error}"))
    }

    /// Makes a folder.
    pub fn make_folder(&self, name: &str) {
        fs::create_dir_all(self.path(name)).unwrap_or_else(|error| panic!("mkdir {name}: {error}"));
    }

    /// Random numbers, the same on both sides.
    pub fn seed(&self) -> &Seed {
        &self.seed
    }

    /// The program `name`, to be run in the folder on this side.
    pub fn program(&self, name: impl AsRef<Path>) -> Program<'_> {
        Program::new(self, name.as_ref())
    }

    /// Compiles `drivers/NAME.c` and answers where the program is.
    pub fn driver(&self, name: &str, flags: &[&str]) -> PathBuf {
        let (source, binary) =
            (format!("{}/drivers/{name}.c", env!("CARGO_MANIFEST_DIR")), self.spare.join(name));
        let compile = self.program("cc").plain().args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]);
        compile.arg(&binary).arg(&source).args(flags).run().ok();
        binary
    }

    /// Notes what must be the same on both sides.
    pub fn note(&self, what: impl Into<String>) {
        self.transcript.borrow_mut().push(what.into());
    }

    /// Notes every name, type, permission, size and content in the folder, as the kernel shows them.
    pub fn note_tree(&self) {
        self.note_tree_of(".");
    }

    /// The same for the folder `name` in it.
    pub fn note_tree_of(&self, name: &str) {
        let script = "find \"$1\" -mindepth 1 \\( -type d -o -printf '%p %y %m %s %l\\n' \\) | sort
            find \"$1\" -type f -print0 | sort -z | xargs -0 -r sha256sum";
        let tree = self.program("sh").plain().args(["-c", script, "sh", name]).run().ok();
        self.note(format!("files of {name}:\n{tree}"));
    }

    /// Says that under the library calls of `program` must be served at user level by the end.
    pub fn expect_served(&self, program: impl AsRef<Path>) {
        let path = installed::find(&program.as_ref().to_string_lossy());
        self.served.borrow_mut().insert(fs::canonicalize(path).expect("the program's path"));
    }

    /// Says that under the library it must have been in a process of `program` by the end.
    pub fn expect_loaded(&self, program: &Path) {
        self.loaded.borrow_mut().insert(fs::canonicalize(program).expect("the program's path"));
    }

    /// How the library is set up for a program of this side, if it is.
    pub(crate) fn preload(&self) -> Option<[(&'static str, &Path); 4]> {
        let counted = self.counted.as_ref()?;
        Some([
            ("LD_PRELOAD", self.library.as_path()),
            ("BYWASH_SESSION", counted.path()),
            // So that what lies on tmpfs is written through mappings too.
            ("BYWASH_WRITES", Path::new("1")),
            // So that files are served after few reads, whatever that gains.
            ("BYWASH_ADVANCE", Path::new("1000000")),
        ])
    }

    /// The number of the program that starts next.
    pub(crate) fn number(&self) -> u32 {
        self.started.replace(self.started.get() + 1)
    }

    /// Remembers what runs, for the report of a failure.
    pub(crate) fn remember(&self, command: &str) {
        self.last_command.replace(command.to_owned());
    }

    pub(crate) fn last_command(&self) -> String {
        self.last_command.borrow().clone()
    }

    /// What was noted.
    pub(crate) fn transcript(&self) -> Vec<String> {
        self.transcript.borrow().clone()
    }

    /// Asks of the counters what the scenario said must be.
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
