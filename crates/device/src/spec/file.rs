//! `file:PATH` and `block:PATH`: devices of a regular file and of a block device.

use super::{DeviceKind, DeviceOptions, count};
use crate::device::Device;
use crate::error::Error;
use crate::file::{DEPTH_MAX, EngineKind, File, FileKind, FileOptions, THREADS_MAX};
use bywash_options::{Escaped, OptionError, OptionRow, Row, Value, Words, flag, option};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Values of the option `engine`, by its words.
const ENGINES: [EngineKind; 2] = [EngineKind::Ring, EngineKind::Threads];
const ENGINE_WORDS: [&str; 2] = ["io_uring", "threads"];

const READ_ONLY: OptionRow = OptionRow::flag("read-only", "the device may only be read");
const CACHED: OptionRow =
    OptionRow::flag("cached", "the page cache is used even if the file supports O_DIRECT");
const DEPTH: OptionRow =
    OptionRow::new("depth", Value::Number, "greatest number of commands in flight").or("128");
const ENGINE: OptionRow = OptionRow::new(
    "engine",
    Value::Choice(&ENGINE_WORDS),
    "what carries commands out; none: io_uring if the kernel has it, else threads",
);
const THREADS: OptionRow =
    OptionRow::new("threads", Value::Number, "number of threads of the engine threads").or("4");

pub(super) static FILE: DeviceKind = DeviceKind {
    row: Row {
        name: "file",
        address: "PATH",
        sentence: "a regular file, past the page cache if its file system supports that",
        options: &[
            READ_ONLY,
            CACHED,
            DEPTH,
            ENGINE,
            THREADS,
            OptionRow::new("size", Value::Size, "a missing file is created, a shorter one extended"),
            OptionRow::flag("sparse", "blocks are allocated when they are first written"),
        ],
    },
    parse: |words| {
        let mut file = parse(FileKind::File, words)?;
        file.bytes = words.size("size")?;
        file.sparse = words.flag("sparse")?;
        Ok(Arc::new(file))
    },
};

pub(super) static BLOCK: DeviceKind = DeviceKind {
    row: Row {
        name: "block",
        address: "PATH",
        sentence: "a block device",
        options: &[READ_ONLY, CACHED, DEPTH, ENGINE, THREADS],
    },
    parse: |words| Ok(Arc::new(parse(FileKind::Block, words)?)),
};

fn parse(kind: FileKind, words: &mut Words<'_>) -> Result<FileOptions, OptionError> {
    let mut file = FileOptions::new(kind, &words.path()?);
    file.read_only = words.flag("read-only")?;
    file.cached = words.flag("cached")?;
    if let Some(depth) = count(words, "depth", DEPTH_MAX)? {
        file.depth = depth;
    }
    file.engine = words.choice("engine")?.map(|index| ENGINES[index]);
    if let Some(threads) = count(words, "threads", THREADS_MAX)? {
        file.threads = threads;
    }
    Ok(file)
}

impl DeviceOptions for FileOptions {
    fn open(&self) -> Result<Box<dyn Device>, Error> {
        Ok(Box::new(File::open(self)?))
    }

    fn is_volatile(&self) -> bool {
        false
    }

    fn file_to_create(&self) -> Option<(&Path, u64)> {
        Some((&self.path, self.bytes?))
    }

    fn in_folder(&self, folder: &Path) -> Option<Arc<dyn DeviceOptions>> {
        let in_folder = || -> Arc<dyn DeviceOptions> {
            Arc::new(FileOptions { path: folder.join(&self.path), ..self.clone() })
        };
        self.path.is_relative().then(in_folder)
    }
}

impl fmt::Display for FileOptions {
    /// Writes the options as they are parsed, `file:PATH,...` or `block:PATH,...`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = FileOptions::new(self.kind, &self.path);
        let kind = match self.kind {
            FileKind::File => &FILE,
            FileKind::Block => &BLOCK,
        };
        let path = self.path.display().to_string();
        write!(out, "{}{}", kind.row.prefix(), Escaped(&path))?;
        option(out, "size", self.bytes)?;
        flag(out, "sparse", self.sparse)?;
        flag(out, "read-only", self.read_only)?;
        flag(out, "cached", self.cached)?;
        option(out, "depth", Some(self.depth).filter(|depth| *depth != usual.depth))?;
        let index = self.engine.and_then(|engine| ENGINES.iter().position(|known| *known == engine));
        option(out, "engine", index.map(|index| ENGINE_WORDS[index]))?;
        option(out, "threads", Some(self.threads).filter(|threads| *threads != usual.threads))
    }
}
