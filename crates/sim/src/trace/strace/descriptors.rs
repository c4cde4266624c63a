//! What the descriptors of every process lead to, and where in it they are.
//!
//! As in the kernel: a descriptor leads to an open file, which has the position; `dup` and `fork` make more descriptors of
//! one open file; threads share one table of descriptors, other children get a copy.

use super::line::{annotation, number, unescaped};
use std::collections::HashMap;

/// What something open is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A file, or a drive.
    File,
    /// A socket that may lead to the network.
    Network,
    /// A socket that does not leave the machine.
    Local,
    /// A pipe.
    Pipe,
    /// A terminal, or another device that keeps nothing.
    Terminal,
    /// A file that the kernel makes up when it is read.
    Kernel,
    /// No file at all.
    Other,
}

/// Something open.
#[derive(Clone, Debug)]
pub struct Opened {
    /// What.
    pub sort: Sort,
    /// Which.
    pub name: String,
    /// Where reading and writing goes on, unless it is told with the call.
    pub position: u64,
    /// Whether the position is known, and not taken to be 0.
    pub is_position_known: bool,
    /// Writes go to the end (O_APPEND).
    pub appends: bool,
    /// Writes are durable when they return (O_SYNC, O_DSYNC).
    pub is_durable: bool,
    /// Whether its opening is in the recording.
    pub is_seen: bool,
}

impl Opened {
    /// Opened just now.
    pub fn new(sort: Sort, name: String) -> Opened {
        Opened {
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

/// An open file's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(usize);

/// A descriptor as a call names it.
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// Its number.
    pub number: u32,
    /// What strace says that it is, with `-y`.
    pub said: Option<(Sort, String)>,
}

impl Descriptor {
    /// `3`, or `3</data/a>`.
    pub fn parse(argument: &str) -> Option<Descriptor> {
        let number = u32::try_from(number(argument)?).ok()?;
        Some(Descriptor { number, said: annotation(argument).map(said) })
    }
}

/// What strace says of a descriptor, as a sort and a name.
pub fn said(annotation: &str) -> (Sort, String) {
    let plain = annotation.split_once('<').map_or(annotation, |(plain, _)| plain);
    let is_device = annotation[plain.len()..].starts_with("<char ");
    let name = unescaped(plain);
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned();
    let sort = match sort_of_name(&name) {
        Sort::File if is_device => Sort::Terminal,
        sort => sort,
    };
    (sort, name)
}

/// What a name tells of what it names.
pub fn sort_of_name(name: &str) -> Sort {
    const KEEPS_NOTHING: [&str; 6] = ["null", "zero", "full", "random", "urandom", "console"];
    if let Some(device) = name.strip_prefix("/dev/") {
        let is_terminal = device.starts_with("pts/") || device.starts_with("tty") || device == "ptmx";
        return if is_terminal || KEEPS_NOTHING.contains(&device) { Sort::Terminal } else { Sort::File };
    }
    if name.starts_with("/proc/") || name.starts_with("/sys/") {
        return Sort::Kernel;
    }
    if name.starts_with('/') {
        return if name.starts_with("/memfd:") { Sort::Other } else { Sort::File };
    }
    match name.split_once(":[").map(|(kind, _)| kind) {
        Some("pipe") => Sort::Pipe,
        Some("socket") => Sort::Network,
        Some(kind) if kind.starts_with("UNIX") || kind.starts_with("NETLINK") => Sort::Local,
        // TCP, UDPv6, RAW, ...: with -yy.
        Some(kind) if kind.starts_with(|first: char| first.is_ascii_uppercase()) => Sort::Network,
        _ if name.starts_with("anon_inode:") => Sort::Other,
        _ => Sort::File,
    }
}

/// Everybody's.
#[derive(Default)]
pub struct Descriptors {
    opened: Vec<Opened>,
    tables: Vec<Table>,
    /// Which table a process has.
    of: HashMap<u32, usize>,
}

#[derive(Clone, Default)]
struct Table {
    descriptors: HashMap<u32, Id>,
    /// The folder that names are looked up from, if it is known.
    folder: Option<String>,
}

impl Descriptors {
    /// The open file behind a descriptor; nothing if neither the recording nor strace says what it is.
    pub fn find(&mut self, process: u32, descriptor: &Descriptor) -> Option<Id> {
        let known = self.table(process).descriptors.get(&descriptor.number).copied();
        let Some((sort, name)) = &descriptor.said else { return known };
        if let Some(id) = known {
            let opened = self.opened(id);
            // A file may get another name while it is open, a socket gets its name after it is open.
            if opened.sort == *sort && (opened.is_seen || opened.name == *name) {
                if *sort == Sort::Network {
                    opened.name.clone_from(name);
                }
                return Some(id);
            }
            // Without -yy a name says that it is a socket, and where the socket was made is told whether it leaves.
            if opened.sort == Sort::Local && name.starts_with("socket:[") {
                return Some(id);
            }
        }
        let unseen = Opened { is_position_known: false, is_seen: false, ..Opened::new(*sort, name.clone()) };
        Some(self.open(process, descriptor.number, unseen))
    }

    /// Whether the recording says what a descriptor is.
    pub fn knows(&mut self, process: u32, number: u32) -> Option<Id> {
        self.table(process).descriptors.get(&number).copied()
    }

    /// That open file.
    pub fn opened(&mut self, id: Id) -> &mut Opened {
        &mut self.opened[id.0]
    }

    /// Makes a descriptor of something that was opened.
    pub fn open(&mut self, process: u32, number: u32, opened: Opened) -> Id {
        let id = Id(self.opened.len());
        self.opened.push(opened);
        self.table(process).descriptors.insert(number, id);
        id
    }

    /// Makes another descriptor of the same.
    pub fn duplicate(&mut self, process: u32, number: u32, id: Id) {
        self.table(process).descriptors.insert(number, id);
    }

    /// Forgets descriptors.
    pub fn close(&mut self, process: u32, from: u32, to: u32) {
        self.table(process).descriptors.retain(|number, _| !(from..=to).contains(number));
    }

    /// Gives a child its parent's table, or a copy of it.
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

    /// Forgets a process.
    pub fn end(&mut self, process: u32) {
        self.of.remove(&process);
    }

    /// Sets the folder that a process looks names up from.
    pub fn set_folder(&mut self, process: u32, folder: String) {
        let folder = self.resolve(process, None, folder);
        self.table(process).folder = Some(folder);
    }

    /// The name of what a process calls `name`, from the folder `base` or its own.
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
