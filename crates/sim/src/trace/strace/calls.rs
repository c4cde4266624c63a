//! Effect of each call on descriptors and on the trace.

use super::descriptors::{Descriptor, FileKind, OpenFile, OpenFileId, sort_of_name};
use super::line::{CallResult, Syscall, annotation, number, unquoted};
use super::{CallSite, Importer};
use crate::trace::{CallKind, Error};

const OTHER: &str = "calls that move no data of files or sockets";
const FAILED: &str = "calls that failed";
const NO_BYTES: &str = "calls of 0 bytes, as at the end of a file";
const PEEKED: &str = "looks at what was to be received (MSG_PEEK)";
const STANDARD: &str = "calls on standard input, output or error, of which the recording does not say what they are (record with -y)";
const UNKNOWN: &str = "calls on descriptors whose opening is not in the recording (record with -y, and with all of %desc, %network and %process)";
const WHOLE_SYSTEM: &str = "sync and syncfs, which are of no one file";
const MAPPED: &str = "mappings of files (what is read and written through one is no call)";
const BUNDLED: &str =
    "calls that carry requests of their own, which are not read (io_uring, aio, sendmmsg, recvmmsg)";
const BEYOND: &str = "calls past the end of any file";

const FROM_THE_BEGINNING: &str =
    "files whose opening is not in the recording, and which are taken to have been at their beginning";
const END_UNKNOWN: &str = "writes that append to a file whose end the recording does not show, and is taken to be where its calls end";

/// Position of a call in a file.
#[derive(Clone, Copy)]
enum FilePosition {
    /// At the file's position, where the last call ended.
    Here,
    /// At this offset, in bytes.
    At(u64),
}

impl FilePosition {
    /// Parses `NULL`, `8192`, `[8192]` or `[8192] => [12288]`. Without a number, and for -1, the result is
    /// `Here`.
    fn parse(argument: &str) -> FilePosition {
        number(argument.trim_start_matches('[')).map_or(FilePosition::Here, FilePosition::At)
    }
}

/// Direction in which a recorded system call moves data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// Into the program.
    In,
    /// Out of the program.
    Out,
}

/// Returns true if the call creates a process or a thread.
pub fn makes_a_child(text: &str) -> bool {
    matches!(text.split('(').next(), Some("fork" | "vfork" | "clone" | "clone2" | "clone3"))
}

/// Returns true if the child that the call creates shares its creator's descriptors.
pub fn shares_descriptors(text: &str) -> bool {
    text.contains("CLONE_FILES")
}

impl Importer {
    /// Applies a complete call.
    pub fn call(&mut self, moment: CallSite, call: &Syscall) -> Result<(), Error> {
        if self.data(moment, call)? {
            return Ok(());
        }
        let reason = match call.name {
            "sync" | "syncfs" => WHOLE_SYSTEM,
            "io_uring_enter" | "io_submit" | "sendmmsg" | "recvmmsg" => BUNDLED,
            "vmsplice" | "tee" => reason(FileKind::Pipe),
            "msync" => MAPPED,
            "mmap" | "mmap2" if Descriptor::parse(call.argument(4)).is_some() => MAPPED,
            _ => OTHER,
        };
        self.recorder.count_omitted(reason, moment.line);
        if let CallResult::Value(value, said) = call.result {
            self.update_tables(moment.process, call, value, said);
        }
        Ok(())
    }

    /// Records a call that moves bytes or makes them durable. Returns false for any other call.
    fn data(&mut self, moment: CallSite, call: &Syscall) -> Result<bool, Error> {
        let place = match call.name {
            "pread" | "pread64" | "preadv" | "preadv2" | "pwrite" | "pwrite64" | "pwritev" | "pwritev2" => {
                FilePosition::parse(call.argument(3))
            }
            _ => FilePosition::Here,
        };
        let (first, second) = (call.argument(0), call.argument(1));
        let ends: &[(&str, FilePosition, Direction)] = match call.name {
            "read" | "readv" | "pread" | "pread64" | "preadv" | "preadv2" => &[(first, place, Direction::In)],
            "recv" | "recvfrom" | "recvmsg" => &[(first, place, Direction::In)],
            "write" | "writev" | "pwrite" | "pwrite64" | "pwritev" | "pwritev2" => {
                &[(first, place, Direction::Out)]
            }
            "send" | "sendto" | "sendmsg" => &[(first, place, Direction::Out)],
            "sendfile" | "sendfile64" => &[
                (second, FilePosition::parse(call.argument(2)), Direction::In),
                (first, FilePosition::Here, Direction::Out),
            ],
            "copy_file_range" | "splice" => &[
                (first, FilePosition::parse(second), Direction::In),
                (call.argument(2), FilePosition::parse(call.argument(3)), Direction::Out),
            ],
            "fsync" | "fdatasync" | "sync_file_range" | "sync_file_range2" => {
                self.sync(moment, call)?;
                return Ok(true);
            }
            _ => return Ok(false),
        };
        let flags = match call.name {
            "recv" | "recvfrom" => call.argument(3),
            "recvmsg" => call.argument(2),
            _ => "",
        };
        let is_peek = flags.contains("MSG_PEEK");
        let left = match call.result {
            CallResult::None => Some(super::NO_RETURN),
            CallResult::Failed => Some(FAILED),
            CallResult::Value(0, _) => Some(NO_BYTES),
            CallResult::Value(..) if is_peek => Some(PEEKED),
            CallResult::Value(..) => None,
        };
        if let (None, CallResult::Value(length, _)) = (left, call.result) {
            for (argument, place, way) in ends {
                self.data_moved(moment, call, (argument, *place, *way), length)?;
            }
        } else if let Some(reason) = left {
            self.recorder.count_omitted(reason, moment.line);
        }
        Ok(true)
    }

    /// Records that `length` bytes moved from or to a descriptor.
    fn data_moved(
        &mut self,
        moment: CallSite,
        call: &Syscall,
        (argument, place, way): (&str, FilePosition, Direction),
        length: u64,
    ) -> Result<(), Error> {
        let Some(descriptor) = Descriptor::parse(argument) else {
            self.recorder.count_omitted(super::NOT_READ, moment.line);
            return Ok(());
        };
        let is_of_sockets =
            call.name.starts_with("send") && call.name != "sendfile" && call.name != "sendfile64"
                || call.name.starts_with("recv");
        let Some(id) = self.resolve_descriptor(moment, &descriptor, is_of_sockets) else { return Ok(()) };
        let opened = self.descriptors.opened(id).clone();
        let left = match opened.sort {
            FileKind::File => return self.moved_in_file(moment, call, id, (place, way), length),
            FileKind::Network => {
                let kind = if way == Direction::In { CallKind::Receive } else { CallKind::Send };
                return self.recorder.call(moment.at, moment.process, kind, &opened.name, (0, length));
            }
            sort => reason(sort),
        };
        self.recorder.count_omitted(left, moment.line);
        Ok(())
    }

    fn moved_in_file(
        &mut self,
        moment: CallSite,
        call: &Syscall,
        id: OpenFileId,
        (place, way): (FilePosition, Direction),
        length: u64,
    ) -> Result<(), Error> {
        let opened = self.descriptors.opened(id);
        let name = opened.name.clone();
        let is_durable = way == Direction::Out && (opened.is_durable || is_durable_write(call));
        let (end, is_end_known) = self.ends.get(&name).copied().unwrap_or((0, false));
        // On a file opened with O_APPEND, pwrite appends too (pwrite(2), "BUGS").
        let offset = if way == Direction::Out && opened.appends {
            if !is_end_known {
                self.recorder.count_assumed(END_UNKNOWN, moment.line);
            }
            end
        } else if let FilePosition::At(offset) = place {
            offset
        } else {
            if !opened.is_position_known {
                opened.is_position_known = true;
                self.recorder.count_assumed(FROM_THE_BEGINNING, moment.line);
            }
            opened.position
        };
        let Some(behind) = offset.checked_add(length) else {
            self.recorder.count_omitted(BEYOND, moment.line);
            return Ok(());
        };
        if matches!(place, FilePosition::Here) {
            opened.position = behind;
        }
        self.ends.insert(name.clone(), (end.max(behind), is_end_known));
        let kind = if way == Direction::In { CallKind::Read } else { CallKind::Write };
        self.recorder.call(moment.at, moment.process, kind, &name, (offset, length))?;
        if is_durable {
            self.recorder.call(moment.at, moment.process, CallKind::Sync, &name, (offset, length))?;
        }
        Ok(())
    }

    fn sync(&mut self, moment: CallSite, call: &Syscall) -> Result<(), Error> {
        let range = match call.name {
            "sync_file_range" => (number(call.argument(1)), number(call.argument(2))),
            "sync_file_range2" => (number(call.argument(2)), number(call.argument(3))),
            _ => (Some(0), Some(0)),
        };
        let left = match (call.result, Descriptor::parse(call.argument(0)), range) {
            (CallResult::None, ..) => super::NO_RETURN,
            (CallResult::Failed, ..) => FAILED,
            (CallResult::Value(..), Some(descriptor), (Some(offset), Some(length))) => {
                let Some(id) = self.resolve_descriptor(moment, &descriptor, false) else { return Ok(()) };
                let opened = self.descriptors.opened(id);
                match opened.sort {
                    FileKind::File if offset.checked_add(length).is_none() => BEYOND,
                    FileKind::File => {
                        let name = opened.name.clone();
                        return self.recorder.call(
                            moment.at,
                            moment.process,
                            CallKind::Sync,
                            &name,
                            (offset, length),
                        );
                    }
                    sort => reason(sort),
                }
            }
            _ => super::NOT_READ,
        };
        self.recorder.count_omitted(left, moment.line);
        Ok(())
    }

    /// Returns the open file of a descriptor. Counts the call as omitted if the file is unknown.
    fn resolve_descriptor(
        &mut self,
        moment: CallSite,
        descriptor: &Descriptor,
        is_socket: bool,
    ) -> Option<OpenFileId> {
        if let Some(id) = self.descriptors.find(moment.process, descriptor) {
            return Some(id);
        }
        if is_socket {
            return Some(self.socket(moment.process, descriptor.number, FileKind::Network, None));
        }
        self.recorder.count_omitted(if descriptor.number <= 2 { STANDARD } else { UNKNOWN }, moment.line);
        None
    }

    /// Updates descriptors, positions, working directories and processes for a call that moves no data.
    fn update_tables(&mut self, process: u32, call: &Syscall, value: u64, said: Option<&str>) {
        let small = u32::try_from(value);
        let descriptor = Descriptor::parse(call.argument(0));
        match (call.name, small, descriptor) {
            ("open" | "creat", Ok(number), _) => self.opened(process, call, 0, number, said),
            ("openat" | "openat2", Ok(number), _) => self.opened(process, call, 1, number, said),
            ("close", _, Some(closed)) => self.descriptors.close(process, closed.number, closed.number),
            ("close_range", _, Some(from)) if !call.argument(2).contains("CLOEXEC") => {
                let to = number(call.argument(1)).and_then(|to| u32::try_from(to).ok()).unwrap_or(u32::MAX);
                self.descriptors.close(process, from.number, to);
            }
            ("dup" | "dup2" | "dup3", Ok(number), Some(of)) => self.duplicated(process, &of, number),
            ("fcntl" | "fcntl64", Ok(number), Some(of)) if call.argument(1).starts_with("F_DUPFD") => {
                self.duplicated(process, &of, number);
            }
            ("lseek" | "_llseek", _, Some(of)) => {
                let position = if call.name == "lseek" {
                    FilePosition::At(value)
                } else {
                    FilePosition::parse(call.argument(2))
                };
                if let (Some(id), FilePosition::At(position)) =
                    (self.descriptors.find(process, &of), position)
                {
                    let opened = self.descriptors.opened(id);
                    (opened.position, opened.is_position_known) = (position, true);
                }
            }
            ("ftruncate" | "ftruncate64", _, Some(of)) => {
                if let (Some(id), Some(end)) = (self.descriptors.find(process, &of), number(call.argument(1)))
                {
                    let name = self.descriptors.opened(id).name.clone();
                    self.ends.insert(name, (end, true));
                }
            }
            ("chdir", ..) => {
                if let Some(folder) = unquoted(call.argument(0)) {
                    self.descriptors.set_folder(process, folder);
                }
            }
            ("fchdir", _, Some(of)) => {
                if let Some(id) = self.descriptors.find(process, &of) {
                    let folder = self.descriptors.opened(id).name.clone();
                    self.descriptors.set_folder(process, folder);
                }
            }
            ("socket", Ok(number), _) => {
                self.socket(process, number, sort_of_family(call.argument(0)), said);
            }
            ("accept" | "accept4", Ok(number), Some(of)) => {
                let listening = self.descriptors.find(process, &of);
                let sort = listening.map_or(FileKind::Network, |id| self.descriptors.opened(id).sort);
                self.socket(process, number, sort, said);
            }
            ("socketpair", ..) => self.pair(process, call.argument(3), FileKind::Local),
            ("pipe" | "pipe2", ..) => self.pair(process, call.argument(0), FileKind::Pipe),
            (name, Ok(number), _) if makes_no_file(name) => {
                self.descriptors.open(process, number, OpenFile::new(FileKind::Other, name.to_owned()));
            }
            (name, Ok(child), _) if makes_a_child(name) => self.child_created(process, call, child),
            _ => {}
        }
    }

    fn opened(&mut self, process: u32, call: &Syscall, place: usize, number: u32, said: Option<&str>) {
        let flags = call.argument(place + 1);
        let is_creat = call.name == "creat";
        let name = match (said, unquoted(call.argument(place))) {
            (Some(said), _) => super::descriptors::said(said).1,
            (None, Some(name)) => {
                let folder = call.argument(0);
                let base = match (place, annotation(folder), Descriptor::parse(folder)) {
                    (0, ..) => None,
                    (_, Some(said), _) => Some(super::descriptors::said(said).1),
                    (_, None, Some(folder)) => {
                        let id = self.descriptors.knows(process, folder.number);
                        id.map(|id| self.descriptors.opened(id).name.clone())
                    }
                    (_, None, None) => None,
                };
                self.descriptors.resolve(process, base, name)
            }
            // An open whose name strace could not read from the program's memory cannot have succeeded.
            (None, None) => return,
        };
        if is_creat || flags.contains("O_TRUNC") || (flags.contains("O_CREAT") && flags.contains("O_EXCL")) {
            self.ends.insert(name.clone(), (0, true));
        }
        let mut opened = OpenFile::new(sort_of_name(&name), name);
        opened.appends = !is_creat && flags.contains("O_APPEND");
        opened.is_durable = flags.contains("O_SYNC") || flags.contains("O_DSYNC");
        self.descriptors.open(process, number, opened);
    }

    fn child_created(&mut self, parent: u32, call: &Syscall, child: u32) {
        if self.processes.is_first_heard(child) {
            let is_shared = call.arguments.iter().any(|argument| shares_descriptors(argument));
            self.descriptors.inherit(child, parent, is_shared);
        }
    }

    fn duplicated(&mut self, process: u32, of: &Descriptor, number: u32) {
        match self.descriptors.find(process, of) {
            Some(id) => self.descriptors.duplicate(process, number, id),
            None => self.descriptors.close(process, number, number),
        }
    }

    fn socket(&mut self, process: u32, number: u32, sort: FileKind, said: Option<&str>) -> OpenFileId {
        let named = said.map(super::descriptors::said);
        let sort = if named.as_ref().is_some_and(|(sort, _)| *sort == FileKind::Local) {
            FileKind::Local
        } else {
            sort
        };
        let name = named.map(|(_, name)| name).unwrap_or_else(|| {
            self.sockets += 1;
            format!("socket {}", self.sockets)
        });
        self.descriptors.open(process, number, OpenFile::new(sort, name))
    }

    /// Adds the two descriptors of `[3, 4]`, printed with or without annotations.
    fn pair(&mut self, process: u32, argument: &str, sort: FileKind) {
        for end in argument.trim_matches(['[', ']']).split(", ") {
            if let Some(end) = Descriptor::parse(end) {
                self.descriptors.open(process, end.number, OpenFile::new(sort, String::new()));
            }
        }
    }
}

/// Returns the reason for omitting calls on files of this kind.
fn reason(sort: FileKind) -> &'static str {
    match sort {
        FileKind::Local => "calls on sockets that do not leave the machine (UNIX, netlink)",
        FileKind::Pipe => "calls on pipes",
        FileKind::Terminal => "calls on terminals and other devices that keep nothing",
        FileKind::Kernel => "calls on files that the kernel makes up (/proc, /sys)",
        FileKind::File | FileKind::Network | FileKind::Other => {
            "calls on descriptors that are no files (eventfd, timerfd, memfd, ...)"
        }
    }
}

fn sort_of_family(family: &str) -> FileKind {
    match family {
        "AF_UNIX" | "AF_LOCAL" | "AF_NETLINK" | "AF_ALG" | "AF_VSOCK" => FileKind::Local,
        _ => FileKind::Network,
    }
}

/// Returns true if the flags of this write make it durable when it returns.
fn is_durable_write(call: &Syscall) -> bool {
    call.name == "pwritev2" && ["RWF_SYNC", "RWF_DSYNC"].iter().any(|flag| call.argument(4).contains(flag))
}

fn makes_no_file(name: &str) -> bool {
    const NO_FILES: [&str; 10] = [
        "epoll_create",
        "eventfd",
        "fanotify_init",
        "inotify_init",
        "io_uring_setup",
        "memfd_create",
        "perf_event_open",
        "pidfd_open",
        "signalfd",
        "timerfd_create",
    ];
    NO_FILES.iter().any(|prefix| name.starts_with(prefix))
}
