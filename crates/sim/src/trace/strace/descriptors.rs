//! Tables of the descriptors of every process, with the open files behind them.
//!
//! The tables follow the kernel: a descriptor refers to an open file, which has the position; `dup` and
//! `fork` create more descriptors for one open file; threads share one table of descriptors, and other
//! children get a copy.

use super::line::{annotation, number, unescaped};
use std::collections::HashMap;

/// Kind of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A file or a block device.
    File,
    /// A socket that may lead to the network.
    Network,
    /// A socket that does not leave the machine.
    Local,
    /// A pipe.
    Pipe,
    /// A terminal, or another device that stores nothing.
    Terminal,
    /// A file that the kernel generates when it is read (/proc, /sys).
    Kernel,
    /// Not a file, as an eventfd.
    Other,
}

/// An open file, as in the kernel.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// Kind of the file.
    pub sort: FileKind,
    /// Name of the file.
    pub name: String,
    /// Position for the next read or write without an offset of its own, in bytes.
    pub position: u64,
    /// True if the position is known, false if 0 is assumed.
    pub is_position_known: bool,
    /// True if writes append to the file (O_APPEND).
    pub appends: bool,
    /// True if writes are durable when they return (O_SYNC, O_DSYNC).
    pub is_durable: bool,
    /// True if the recording contains the call that opened the file.
    pub is_seen: bool,
}

impl OpenFile {
    /// Returns a newly opened file, at position 0.
    pub fn new(sort: FileKind, name: String) -> OpenFile {
        OpenFile {
            sort,
            name,
            position: 0,
            is_position_known: true,
            appends: false,
            is_durable: false,
            is_seen: true,
        }
    }
}

/// Number of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFileId(usize);

/// A descriptor, as printed in a call.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// Number of the descriptor.
    pub number: u32,
    /// Kind and name of its file, if strace printed them (`-y`).
    pub said: Option<(FileKind, String)>,
}

impl Descriptor {
    /// Parses `3` or `3</data/a>`.
    pub fn parse(argument: &str) -> Option<Descriptor> {
        let number = u32::try_from(number(argument)?).ok()?;
        Some(Descriptor { number, said: annotation(argument).map(said) })
    }
}

/// Converts strace's annotation of a descriptor to a kind and a name.
pub fn said(annotation: &str) -> (FileKind, String) {
    let plain = annotation.split_once('<').map_or(annotation, |(plain, _)| plain);
    let is_device = annotation[plain.len()..].starts_with("<char ");
    let name = unescaped(plain);
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned();
    let sort = match sort_of_name(&name) {
        FileKind::File if is_device => FileKind::Terminal,
        sort => sort,
    };
    (sort, name)
}

/// Returns the kind of a file, judged by its name.
pub fn sort_of_name(name: &str) -> FileKind {
    const KEEPS_NOTHING: [&str; 6] = ["null", "zero", "full", "random", "urandom", "console"];
    if let Some(device) = name.strip_prefix("/dev/") {
        let is_terminal = device.starts_with("pts/") || device.starts_with("tty") || device == "ptmx";
        return if is_terminal || KEEPS_NOTHING.contains(&device) {
            FileKind::Terminal
        } else {
            FileKind::File
        };
    }
    if name.starts_with("/proc/") || name.starts_with("/sys/") {
        return FileKind::Kernel;
    }
    if name.starts_with('/') {
        return if name.starts_with("/memfd:") { FileKind::Other } else { FileKind::File };
    }
    match name.split_once(":[").map(|(kind, _)| kind) {
        Some("pipe") => FileKind::Pipe,
        Some("socket") => FileKind::Network,
        Some(kind) if kind.starts_with("UNIX") || kind.starts_with("NETLINK") => FileKind::Local,
        // strace prints TCP, UDPv6, RAW, ... with -yy.
        Some(kind) if kind.starts_with(|first: char| first.is_ascii_uppercase()) => FileKind::Network,
        _ if name.starts_with("anon_inode:") => FileKind::Other,
        _ => FileKind::File,
    }
}

/// Descriptors of all processes.
#[derive(Default)]
pub struct Descriptors {
    opened: Vec<OpenFile>,
    tables: Vec<Table>,
    /// Index of each process's table.
    of: HashMap<u32, usize>,
}

#[derive(Clone, Default)]
struct Table {
    descriptors: HashMap<u32, OpenFileId>,
    /// Working directory, if known.
    folder: Option<String>,
}

impl Descriptors {
    /// Returns the open file of a descriptor, or `None` if neither the recording nor strace's annotation
    /// identifies it.
    pub fn find(&mut self, process: u32, descriptor: &Descriptor) -> Option<OpenFileId> {
        let known = self.table(process).descriptors.get(&descriptor.number).copied();
        let Some((sort, name)) = &descriptor.said else { return known };
        if let Some(id) = known {
            let opened = self.opened(id);
            // A file may be renamed while it is open, and a socket gets its name after it was opened.
            if opened.sort == *sort && (opened.is_seen || opened.name == *name) {
                if *sort == FileKind::Network {
                    opened.name.clone_from(name);
                }
                return Some(id);
            }
            // Without -yy, the annotation shows only that this is a socket. The call that created the socket
            // shows whether it is local.
            if opened.sort == FileKind::Local && name.starts_with("socket:[") {
                return Some(id);
            }
        }
        let unseen =
            OpenFile { is_position_known: false, is_seen: false, ..OpenFile::new(*sort, name.clone()) };
        Some(self.open(process, descriptor.number, unseen))
    }

    /// Returns the open file of a descriptor if the recording shows its opening, without regard to
    /// annotations.
    pub fn knows(&mut self, process: u32, number: u32) -> Option<OpenFileId> {
        self.table(process).descriptors.get(&number).copied()
    }

    /// Returns the open file `id`.
    pub fn opened(&mut self, id: OpenFileId) -> &mut OpenFile {
        &mut self.opened[id.0]
    }

    /// Adds an open file, with a descriptor of `process` for it.
    pub fn open(&mut self, process: u32, number: u32, opened: OpenFile) -> OpenFileId {
        let id = OpenFileId(self.opened.len());
        self.opened.push(opened);
        self.table(process).descriptors.insert(number, id);
        id
    }

    /// Adds a descriptor for an open file that exists.
    pub fn duplicate(&mut self, process: u32, number: u32, id: OpenFileId) {
        self.table(process).descriptors.insert(number, id);
    }

    /// Removes the descriptors `from` to `to`, inclusive.
    pub fn close(&mut self, process: u32, from: u32, to: u32) {
        self.table(process).descriptors.retain(|number, _| !(from..=to).contains(number));
    }

    /// Gives a child its parent's table, or a copy of this table.
    pub fn inherit(&mut self, child: u32, parent: u32, is_shared: bool) {
        let index = self.index(parent);
        if is_shared {
            self.of.insert(child, index);
        } else {
            let copy = self.tables[index].clone();
            self.of.insert(child, self.tables.len());
            self.tables.push(copy);
        }
    }

    /// Removes a process.
    pub fn end(&mut self, process: u32) {
        self.of.remove(&process);
    }

    /// Sets the working directory of a process.
    pub fn set_folder(&mut self, process: u32, folder: String) {
        let folder = self.resolve(process, None, folder);
        self.table(process).folder = Some(folder);
    }

    /// Returns the path that a process means by `name`, relative to `base` or else to its working directory.
    pub fn resolve(&mut self, process: u32, base: Option<String>, name: String) -> String {
        if name.starts_with('/') {
            return name;
        }
        let base = base.or_else(|| self.table(process).folder.clone());
        let name = name.strip_prefix("./").unwrap_or(&name);
        match base {
            Some(base) if !name.is_empty() => format!("{}/{name}", base.trim_end_matches('/')),
            Some(base) => base,
            None => name.to_owned(),
        }
    }

    fn table(&mut self, process: u32) -> &mut Table {
        let index = self.index(process);
        &mut self.tables[index]
    }

    fn index(&mut self, process: u32) -> usize {
        let next = self.tables.len();
        let index = *self.of.entry(process).or_insert(next);
        if index == next {
            self.tables.push(Table::default());
        }
        index
    }
}
