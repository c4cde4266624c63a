//! Specifications of devices on the command line: `NAME=SPEC[,OPTION...]`.
//!
//! ```text
//!   fast=mem:4G,latency=300,bandwidth=2G/s
//!   disk=file:/var/lib/bywash/disk,size=100G
//!   nvme=block:/dev/nvme1n1,depth=256
//! ```
//!
//! A comma in a path is written `\,`, and a backslash `\\`. Invariant: printing a parsed specification gives
//! a text that parses to the same specification. Called by the command-line tool with its user's arguments.

use crate::chunks::check_chunk;
use crate::device::Device;
use crate::error::Error;
use crate::file::{DEPTH_MAX, EngineKind, File, FileKind, FileOptions, THREADS_MAX};
use crate::memory::{BLOCK, Memory, MemoryOptions};
use bywash_link::HugePages;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Name of a device, and how to open it.
///
/// ```
/// use bywash_device::Spec;
///
/// let spec: Spec = "fast=mem:64M,latency=300ns".parse()?;
/// assert_eq!(spec.to_string(), "fast=mem:67108864,latency=300");
/// let mut device = spec.open()?;
/// assert_eq!((spec.name.as_str(), device.geometry().bytes), ("fast", 64 << 20));
/// assert!("fast=men:64M".parse::<Spec>().is_err());
/// # Ok::<_, bywash_device::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Name of the device: 1 to 64 of A-Z, a-z, 0-9, '-', '_' and '.'.
    pub name: String,
    /// Kind of the device and its options.
    pub medium: DeviceKind,
}

/// Kind of a device and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// `mem:SIZE`: a device of memory.
    Memory(MemoryOptions),
    /// `file:PATH` or `block:PATH`: a device of a regular file or a block device.
    File(FileOptions),
}

impl Spec {
    /// Opens the device.
    ///
    /// # Errors
    /// Same as [`Memory::new`] or [`File::open`].
    pub fn open(&self) -> Result<Box<dyn Device>, Error> {
        Ok(match &self.medium {
            DeviceKind::Memory(options) => Box::new(Memory::new(options.clone())?),
            DeviceKind::File(options) => Box::new(File::open(options)?),
        })
    }
}

/// Greatest length of a device's name, in letters.
const NAME_MAX: usize = 64;

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Spec, Error> {
        read(text).map_err(|what| Error::Spec { text: text.to_owned(), what })
    }
}

fn read(text: &str) -> Result<Spec, String> {
    let (name, spec) = text.split_once('=').ok_or("write NAME=SPEC, as in fast=mem:4G")?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_plain) {
        return Err(format!("a name has 1 to {NAME_MAX} of A-Z, a-z, 0-9, '-', '_' and '.'"));
    }
    const KINDS: &str = "there are mem:SIZE, file:PATH and block:PATH";
    let (kind, rest) = spec.split_once(':').ok_or(KINDS)?;
    let mut words = pieces(rest).into_iter();
    // Not reached: `pieces` returns at least one piece.
    let first = words.next().unwrap_or_default();
    let mut options = Options(words.map(Some).collect());
    let medium = match kind {
        "mem" => DeviceKind::Memory(read_memory(&first, &mut options)?),
        "file" => DeviceKind::File(read_file(FileKind::File, &first, &mut options)?),
        "block" => DeviceKind::File(read_file(FileKind::Block, &first, &mut options)?),
        _ => return Err(format!("there is no kind '{kind}'; {KINDS}")),
    };
    Ok(Spec { name: name.to_owned(), medium })
}

fn read_memory(size: &str, options: &mut Options) -> Result<MemoryOptions, String> {
    let mut memory = MemoryOptions::new(read_size(size)?);
    if memory.bytes == 0 || !memory.bytes.is_multiple_of(BLOCK as u64) {
        return Err(format!("the size is {size}, and has to be a multiple of {BLOCK} bytes, at least one"));
    }
    if let Some(latency_ns) = options.take("latency", read_nanoseconds)? {
        memory.latency_ns = latency_ns;
    }
    memory.bandwidth = options.take("bandwidth", |text| {
        let rate = read_size(text.strip_suffix("/s").unwrap_or(text))?;
        if rate == 0 { Err("nothing would ever pass".into()) } else { Ok(rate) }
    })?;
    if let Some(pages) = options.take("pages", |text| match text {
        "2M" => Ok(HugePages::Collapse),
        "reserved" => Ok(HugePages::Reserved),
        "4K" => Ok(HugePages::No),
        _ => Err(format!("there are 2M, reserved and 4K, and no '{text}'")),
    })? {
        memory.pages = pages;
    }
    memory.chunk = options.take("chunk", |text| {
        let bytes = read_size(text)?;
        check_chunk(bytes).map(|()| bytes)
    })?;
    if let Some(depth) = options.take("depth", |text| read_count(text, DEPTH_MAX))? {
        memory.depth = depth;
    }
    options.nothing_more("latency=NS, bandwidth=BYTES/s, pages=2M|reserved|4K, chunk=SIZE, depth=N")?;
    Ok(memory)
}

fn read_file(kind: FileKind, path: &str, options: &mut Options) -> Result<FileOptions, String> {
    if path.is_empty() {
        return Err("the path is missing".into());
    }
    let mut file = FileOptions::new(kind, Path::new(path));
    file.read_only = options.flag("read-only")?;
    file.cached = options.flag("cached")?;
    if kind == FileKind::File {
        file.bytes = options.take("size", read_size)?;
        file.sparse = options.flag("sparse")?;
    }
    if let Some(depth) = options.take("depth", |text| read_count(text, DEPTH_MAX))? {
        file.depth = depth;
    }
    if let Some(threads) = options.take("threads", |text| read_count(text, THREADS_MAX))? {
        file.threads = threads;
    }
    file.engine = options.take("engine", |text| match text {
        "io_uring" => Ok(EngineKind::Ring),
        "threads" => Ok(EngineKind::Threads),
        _ => Err(format!("there are io_uring and threads, and no '{text}'")),
    })?;
    options.nothing_more(match kind {
        FileKind::File => {
            "size=BYTES, sparse, read-only, cached, depth=N, engine=io_uring|threads, threads=N"
        }
        FileKind::Block => "read-only, cached, depth=N, engine=io_uring|threads, threads=N",
    })?;
    Ok(file)
}

/// Splits a text at its commas and removes the backslashes that escape letters.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ',' => pieces.push(String::new()),
            // A backslash at the end of the text stands for itself.
            '\\' => pieces.last_mut().expect("begins with one").push(letters.next().unwrap_or('\\')),
            _ => pieces.last_mut().expect("begins with one").push(letter),
        }
    }
    pieces
}

/// Options that have not been taken yet; a taken option leaves `None`.
struct Options(Vec<Option<String>>);

impl Options {
    fn take<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let value = self.0.iter_mut().find_map(|slot| {
            let found = slot.as_deref()?.strip_prefix(name)?.strip_prefix('=')?.to_owned();
            *slot = None;
            Some(found)
        });
        value.map(|value| read(&value).map_err(|why| format!("{name}: {why}"))).transpose()
    }

    fn flag(&mut self, name: &str) -> Result<bool, String> {
        let found = self.0.iter_mut().find(|slot| slot.as_deref() == Some(name));
        Ok(found.map(Option::take).is_some())
    }

    fn nothing_more(&self, known: &str) -> Result<(), String> {
        match self.0.iter().flatten().next() {
            None => Ok(()),
            Some(option) => {
                Err(format!("there is no option '{option}' (or it is there twice); there are {known}"))
            }
        }
    }
}

fn read_number(text: &str, units: &[(&str, u64)], remedy: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let unit = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(suffix)).map(|(_, unit)| *unit);
    let value = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    value.ok_or_else(|| format!("'{text}' is none: {remedy}"))
}

/// Parses a size in bytes as written in a device's options: `4096`, `64M`, `64MiB`.
///
/// # Errors
/// A message with the valid notation, if the text is not a whole number with a known unit, or 2^64 or more.
pub fn read_size(text: &str) -> Result<u64, String> {
    let units = [("", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40), ("KiB", 1 << 10)];
    let more = [("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
    let units: Vec<_> = units.into_iter().chain(more).collect();
    read_number(text, &units, "give bytes, or a whole number with K, M, G or T, as in 4096 or 64M")
}

fn read_nanoseconds(text: &str) -> Result<u64, String> {
    let units = [("", 1), ("ns", 1), ("us", 1000), ("ms", 1_000_000)];
    read_number(text, &units, "give nanoseconds, or a whole number with us or ms, as in 300 or 10us")
}

fn read_count(text: &str, most: usize) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("'{text}' is no number from 1 to {most}"))
}

impl fmt::Display for Spec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}=", self.name)?;
        match &self.medium {
            DeviceKind::Memory(options) => write_memory(options, out),
            DeviceKind::File(options) => write_file(options, out),
        }
    }
}

fn write_memory(options: &MemoryOptions, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let MemoryOptions { bytes, latency_ns, bandwidth, pages, chunk, depth } = options;
    write!(out, "mem:{bytes}")?;
    if *latency_ns > 0 {
        write!(out, ",latency={latency_ns}")?;
    }
    if let Some(rate) = bandwidth {
        write!(out, ",bandwidth={rate}/s")?;
    }
    match pages {
        HugePages::Collapse => {}
        HugePages::Reserved => write!(out, ",pages=reserved")?,
        HugePages::No => write!(out, ",pages=4K")?,
    }
    if let Some(bytes) = chunk {
        write!(out, ",chunk={bytes}")?;
    }
    if *depth == MemoryOptions::new(0).depth { Ok(()) } else { write!(out, ",depth={depth}") }
}

fn write_file(options: &FileOptions, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let usual = FileOptions::new(options.kind, &options.path);
    let path = options.path.display().to_string().replace('\\', "\\\\").replace(',', "\\,");
    write!(out, "{}:{path}", if options.kind == FileKind::File { "file" } else { "block" })?;
    if let Some(bytes) = options.bytes {
        write!(out, ",size={bytes}")?;
    }
    for (is_set, name) in
        [(options.sparse, "sparse"), (options.read_only, "read-only"), (options.cached, "cached")]
    {
        if is_set {
            write!(out, ",{name}")?;
        }
    }
    if options.depth != usual.depth {
        write!(out, ",depth={}", options.depth)?;
    }
    match options.engine {
        None => {}
        Some(EngineKind::Ring) => write!(out, ",engine=io_uring")?,
        Some(EngineKind::Threads) => write!(out, ",engine=threads")?,
    }
    if options.threads == usual.threads { Ok(()) } else { write!(out, ",threads={}", options.threads) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_as_the_same() {
        for (text, printed) in [
            ("a=mem:4G", "a=mem:4294967296"),
            (
                "a.b-c_D=mem:4096,bandwidth=2G,latency=10us",
                "a.b-c_D=mem:4096,latency=10000,bandwidth=2147483648/s",
            ),
            ("a=mem:4K,pages=4K,depth=8", "a=mem:4096,pages=4K,depth=8"),
            ("a=mem:4K,pages=2M", "a=mem:4096"),
            ("a=mem:4M,chunk=2M", "a=mem:4194304,chunk=2097152"),
            ("a=file:/x", "a=file:/x"),
            ("a=file:/x=\\,y\\\\,sparse,size=1G", "a=file:/x=\\,y\\\\,size=1073741824,sparse"),
            (
                "a=block:/dev/x,read-only,engine=threads,threads=2",
                "a=block:/dev/x,read-only,engine=threads,threads=2",
            ),
            ("a=file:rel,cached,engine=io_uring,depth=7", "a=file:rel,cached,depth=7,engine=io_uring"),
        ] {
            let spec: Spec = text.parse().unwrap();
            assert_eq!(spec.to_string(), printed);
            assert_eq!(printed.parse::<Spec>().unwrap(), spec);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (text, what) in [
            ("", "NAME=SPEC"),
            ("mem:4G", "NAME=SPEC"),
            ("=mem:4G", "a name has"),
            ("a/b=mem:4G", "a name has"),
            ("a=4G", "mem:SIZE"),
            ("a=nvme:0", "no kind 'nvme'"),
            ("a=mem:", "as in 4096 or 64M"),
            ("a=mem:0", "multiple of 512"),
            ("a=mem:1000", "multiple of 512"),
            ("a=mem:99999999T", "as in 4096 or 64M"),
            ("a=mem:4G,latency=fast", "latency: 'fast' is none: give nanoseconds"),
            ("a=mem:4G,bandwidth=0", "bandwidth: nothing would"),
            ("a=mem:4G,pages=1G", "2M, reserved and 4K"),
            ("a=mem:4G,chunk=3M", "chunk: a chunk has 2M, 4M"),
            ("a=mem:4G,chunk=2G", "chunk: a chunk has 2M, 4M"),
            ("a=mem:4G,size=3", "no option 'size=3'"),
            ("a=mem:4G,depth=0", "from 1 to"),
            ("a=file:", "path is missing"),
            ("a=file:/x,sparse=yes", "no option 'sparse=yes'"),
            ("a=file:/x,depth=1,depth=2", "twice"),
            ("a=file:/x,engine=aio", "io_uring and threads"),
            ("a=block:/x,size=4K", "no option 'size=4K'"),
        ] {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(what) && error.contains(&format!("'{text}'")), "{text}: {error}");
        }
    }
}
