//! `mem:SIZE`: a device of memory.

use super::{DeviceKind, DeviceOptions, count};
use crate::chunks::check_chunk;
use crate::device::Device;
use crate::error::Error;
use crate::file::DEPTH_MAX;
use crate::memory::{BLOCK, Memory, MemoryOptions};
use bywash_link::HugePages;
use bywash_options::{OptionError, OptionRow, Row, Value, Words, option};
use bywash_quantity::{TimeUnit, size};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Values of the option `pages`, by its words.
const PAGES: [HugePages; 3] = [HugePages::Collapse, HugePages::Reserved, HugePages::No];
const PAGE_WORDS: [&str; 3] = ["2M", "reserved", "4K"];

pub(super) static KIND: DeviceKind = DeviceKind {
    row: Row {
        name: "mem",
        address: "SIZE",
        sentence: "memory; its contents end with the server",
        options: &[
            OptionRow::new(
                "latency",
                Value::Duration(TimeUnit::Nanosecond),
                "simulated latency of each command",
            ),
            OptionRow::new("bandwidth", Value::Rate, "simulated bandwidth"),
            OptionRow::new(
                "pages",
                Value::Choice(&PAGE_WORDS),
                "size of the pages: 2M where the kernel has them, reserved huge pages, or 4K",
            )
            .or("2M"),
            OptionRow::new("chunk", Value::Size, "size of a chunk, which is mapped or moved as a whole"),
            OptionRow::new("depth", Value::Number, "greatest number of commands in flight").or("1024"),
        ],
    },
    parse,
};

fn parse(words: &mut Words<'_>) -> Result<Arc<dyn DeviceOptions>, OptionError> {
    let text = words.address()?;
    let bytes = size(text).map_err(|error| words.error(format!("'{text}' is {error}")))?;
    if bytes == 0 || !bytes.is_multiple_of(BLOCK as u64) {
        let reason =
            format!("the size is {text}, and has to be a multiple of {BLOCK} bytes, at least one block");
        return Err(words.error(reason));
    }
    let mut memory = MemoryOptions::new(bytes);
    if let Some(latency) = words.duration("latency")? {
        // Not too large: what is parsed has less than 2^64 nanoseconds.
        memory.latency_ns = latency.as_nanos() as u64;
    }
    memory.bandwidth = words.rate("bandwidth")?;
    if memory.bandwidth == Some(0) {
        return Err(words.error("'bandwidth': nothing would ever pass: give more than 0"));
    }
    if let Some(index) = words.choice("pages")? {
        memory.pages = PAGES[index];
    }
    memory.chunk = words.size("chunk")?;
    if let Some(bytes) = memory.chunk {
        check_chunk(bytes).map_err(|reason| words.error(format!("'chunk': {reason}")))?;
    }
    if let Some(depth) = count(words, "depth", DEPTH_MAX)? {
        memory.depth = depth;
    }
    Ok(Arc::new(memory))
}

impl DeviceOptions for MemoryOptions {
    fn open(&self) -> Result<Box<dyn Device>, Error> {
        Ok(Box::new(Memory::new(self.clone())?))
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn file_to_create(&self) -> Option<(&Path, u64)> {
        None
    }
}

impl fmt::Display for MemoryOptions {
    /// Writes the options as they are parsed, `mem:SIZE,...`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryOptions { bytes, latency_ns, bandwidth, pages, chunk, depth } = self;
        write!(out, "mem:{bytes}")?;
        option(out, "latency", Some(latency_ns).filter(|latency| **latency > 0))?;
        option(out, "bandwidth", bandwidth.map(|rate| format!("{rate}/s")))?;
        let index = PAGES.iter().position(|known| known == pages).filter(|index| *index > 0);
        option(out, "pages", index.map(|index| PAGE_WORDS[index]))?;
        option(out, "chunk", *chunk)?;
        option(out, "depth", Some(depth).filter(|depth| **depth != MemoryOptions::new(0).depth))
    }
}
