//! The handshake: a client and the server agree on an export and on the form of replies.
//!
//! ```text
//!   server: magic, flags ──► client: flags ──► options and their replies ──► GO or EXPORT_NAME ──► transmission
//! ```
//!
//! A pure state machine: bytes of the client in, bytes of the server out. Invariant: whatever a client sends,
//! each call consumes bytes or asks for more; an option of more than [`OPTION_MAX`] bytes is skipped without
//! being stored. The chapter "Handshake" of the specification has the names. Called by `connection`.

use crate::disk::Face;
use crate::layout::{
    ALLOCATION, ALLOCATION_ID, BASE, CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, EXPORT_NAME_ZEROES,
    HANDSHAKE_FLAGS, MAGIC, OPTION_BYTES, OPTION_MAGIC, OptionHeader, STRING_MAX, block_sizes, info, option,
    option_reply, option_reply as reply, transmission_flags,
};

/// Greatest length of an option's data that is looked at, in bytes.
pub(crate) const OPTION_MAX: u32 = 32 << 10;
/// Greatest length of an option's data that is skipped, in bytes; a client that sends more is disconnected.
const SKIPPED_MAX: u32 = 1 << 20;

/// Result of a successful handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// Number of the export.
    pub(crate) disk: usize,
    /// True if reads are replied to in structured chunks.
    pub(crate) is_structured: bool,
    /// True if the client has selected the context `base:allocation`.
    pub(crate) has_context: bool,
}

/// Result of a step of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// More bytes of the client are needed.
    More,
    /// A message was handled; the next one may follow.
    Again,
    /// TLS begins when the reply has been sent.
    StartTls,
    /// The handshake is over.
    Transmission(Agreement),
    /// The connection ends as the client has requested, after the reply has been sent.
    End,
    /// The client broke the protocol; the reason is for the report.
    Broken(String),
}

/// State of a handshake.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    tls: TlsState,
    has_flags: bool,
    is_fixed: bool,
    sends_no_zeroes: bool,
    is_structured: bool,
    /// Export for which the context `base:allocation` was selected.
    context: Option<usize>,
    /// Option whose data are skipped, and the number of bytes that are left of them.
    skipping: Option<OptionHeader>,
}

/// Part that TLS has in a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TlsState {
    /// The server has none.
    #[default]
    Absent,
    /// Nothing else is served before it.
    Required,
    /// It has begun.
    Started,
}

impl Handshake {
    /// Begins with the client's flags. With `has_tls` no option but `STARTTLS` and `ABORT` is served.
    pub(crate) fn new(has_tls: bool) -> Handshake {
        let tls = if has_tls { TlsState::Required } else { TlsState::Absent };
        Handshake { tls, ..Handshake::default() }
    }

    /// Begins anew within TLS: no option counts that came before, but the client's flags do.
    pub(crate) fn within_tls(&self) -> Handshake {
        let Handshake { has_flags, is_fixed, sends_no_zeroes, .. } = *self;
        Handshake { tls: TlsState::Started, has_flags, is_fixed, sends_no_zeroes, ..Handshake::default() }
    }

    /// Appends the server's first message.
    pub(crate) fn greet(out: &mut Vec<u8>) {
        out.extend(MAGIC.to_be_bytes());
        out.extend(OPTION_MAGIC.to_be_bytes());
        out.extend(HANDSHAKE_FLAGS.to_be_bytes());
    }

    /// Handles the next message at the beginning of `input`, and appends replies to `out`. Returns the number
    /// of bytes consumed.
    pub(crate) fn step(&mut self, input: &[u8], out: &mut Vec<u8>, faces: &[Face]) -> (usize, Step) {
        if !self.has_flags {
            return match input.first_chunk() {
                None => (0, Step::More),
                Some(flags) => (4, self.take_flags(u32::from_be_bytes(*flags))),
            };
        }
        if let Some(header) = self.skipping {
            return self.skip(header, input.len(), out);
        }
        let Some(header) = input.first_chunk::<OPTION_BYTES>() else { return (0, Step::More) };
        let Some(header) = OptionHeader::decode(header) else {
            return (0, Step::Broken("an option does not begin with the magic number".into()));
        };
        if !self.is_fixed && header.option != option::EXPORT_NAME {
            let reason = format!("option {} without having agreed on the fixed newstyle", header.option);
            return (0, Step::Broken(reason));
        }
        if header.length > OPTION_MAX {
            if header.option == option::EXPORT_NAME || header.length > SKIPPED_MAX {
                let reason = format!("option {} has {} bytes of data", header.option, header.length);
                return (0, Step::Broken(reason));
            }
            self.skipping = Some(header);
            return (OPTION_BYTES, Step::Again);
        }
        let bytes = OPTION_BYTES + header.length as usize;
        match input.get(OPTION_BYTES..bytes) {
            None => (0, Step::More),
            Some(data) => (bytes, self.option(header.option, data, out, faces)),
        }
    }

    fn take_flags(&mut self, flags: u32) -> Step {
        if flags & !(CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES) != 0 {
            return Step::Broken(format!("client flags {flags:#x} have unknown bits"));
        }
        self.has_flags = true;
        self.is_fixed = flags & CLIENT_FIXED_NEWSTYLE != 0;
        self.sends_no_zeroes = flags & CLIENT_NO_ZEROES != 0;
        Step::Again
    }

    fn skip(&mut self, header: OptionHeader, available: usize, out: &mut Vec<u8>) -> (usize, Step) {
        let OptionHeader { option: number, length } = header;
        let skipped = available.min(length as usize);
        let left = length - skipped as u32;
        if left > 0 {
            self.skipping = Some(OptionHeader { option: number, length: left });
            return (skipped, Step::More);
        }
        self.skipping = None;
        if number == option::ABORT {
            // Its data are ignored, whatever they are.
            option_reply(out, number, reply::ACK, &[]);
            return (skipped, Step::End);
        }
        if number == option::SET_META_CONTEXT {
            // Even a request that fails replaces the contexts that were selected before.
            self.context = None;
        }
        let kind = match self.tls {
            TlsState::Required if number != option::STARTTLS => reply::ERR_TLS_REQD,
            _ => reply::ERR_TOO_BIG,
        };
        let message = format!("at most {OPTION_MAX} bytes of data are looked at");
        option_reply(out, number, kind, &[message.as_bytes()]);
        (skipped, Step::Again)
    }

    fn option(&mut self, number: u32, data: &[u8], out: &mut Vec<u8>, faces: &[Face]) -> Step {
        let mut refuse = |kind: u32, message: &str| {
            option_reply(out, number, kind, &[message.as_bytes()]);
            Step::Again
        };
        match number {
            option::EXPORT_NAME if self.tls == TlsState::Required => {
                Step::Broken("it has chosen an export without TLS".into())
            }
            option::STARTTLS if self.tls == TlsState::Required && data.is_empty() => {
                option_reply(out, number, reply::ACK, &[]);
                Step::StartTls
            }
            option::STARTTLS if self.tls == TlsState::Started => {
                refuse(reply::ERR_INVALID, "TLS has begun before")
            }
            _ if self.tls == TlsState::Required && !matches!(number, option::ABORT | option::STARTTLS) => {
                refuse(reply::ERR_TLS_REQD, "this server serves nothing before TLS")
            }
            option::EXPORT_NAME => self.export_name(data, out, faces),
            option::ABORT => {
                option_reply(out, number, reply::ACK, &[]);
                Step::End
            }
            option::LIST | option::STRUCTURED_REPLY | option::STARTTLS if !data.is_empty() => {
                refuse(reply::ERR_INVALID, "the option has no data")
            }
            option::LIST => {
                for face in faces {
                    let name = face.name.as_bytes();
                    let parts = [&(name.len() as u32).to_be_bytes(), name, face.description.as_bytes()];
                    option_reply(out, number, reply::SERVER, &parts);
                }
                option_reply(out, number, reply::ACK, &[]);
                Step::Again
            }
            option::STARTTLS => refuse(reply::ERR_POLICY, "this server has no certificate, so no TLS"),
            option::INFO | option::GO => self.export(number, data, out, faces),
            option::STRUCTURED_REPLY if self.is_structured => {
                refuse(reply::ERR_INVALID, "structured replies were agreed on before")
            }
            option::STRUCTURED_REPLY => {
                self.is_structured = true;
                option_reply(out, number, reply::ACK, &[]);
                Step::Again
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(number, data, out, faces);
                Step::Again
            }
            _ => refuse(reply::ERR_UNSUP, "this server does not know the option"),
        }
    }

    fn export_name(&mut self, name: &[u8], out: &mut Vec<u8>, faces: &[Face]) -> Step {
        let Some(Face { number: disk, geometry, .. }) = find(name, faces) else {
            return Step::Broken(format!("there is no export '{}'", shown(name)));
        };
        out.extend(geometry.bytes.to_be_bytes());
        out.extend(transmission_flags(geometry, self.is_structured).to_be_bytes());
        if !self.sends_no_zeroes {
            out.extend([0; EXPORT_NAME_ZEROES]);
        }
        Step::Transmission(self.agreement(*disk))
    }

    /// Handles `INFO` and `GO`.
    fn export(&mut self, number: u32, data: &[u8], out: &mut Vec<u8>, faces: &[Face]) -> Step {
        let mut refuse = |kind: u32, message: &str| {
            option_reply(out, number, kind, &[message.as_bytes()]);
            Step::Again
        };
        let Some((name, wanted)) = parse_export(data) else {
            return refuse(reply::ERR_INVALID, "the lengths in the option's data are wrong");
        };
        let Some(Face { number: disk, name, description, geometry }) = find(name, faces) else {
            return refuse(reply::ERR_UNKNOWN, "there is no export of that name");
        };
        let has = |kind: u16| wanted.chunks_exact(2).any(|word| word == kind.to_be_bytes());
        let mut tell = |kind: u16, parts: &[&[u8]]| {
            let kind = kind.to_be_bytes();
            let all: Vec<&[u8]> = std::iter::once(&kind[..]).chain(parts.iter().copied()).collect();
            option_reply(out, number, reply::INFO, &all);
        };
        let flags = transmission_flags(geometry, self.is_structured).to_be_bytes();
        tell(info::EXPORT, &[&geometry.bytes.to_be_bytes(), &flags]);
        if has(info::NAME) {
            tell(info::NAME, &[name.as_bytes()]);
        }
        if has(info::DESCRIPTION) && !description.is_empty() {
            tell(info::DESCRIPTION, &[description.as_bytes()]);
        }
        let sizes = block_sizes(geometry).map(u32::to_be_bytes);
        tell(info::BLOCK_SIZE, &[&sizes[0], &sizes[1], &sizes[2]]);
        if number == option::INFO && !has(info::BLOCK_SIZE) {
            let message = "requests are of whole blocks: ask for the block size";
            option_reply(out, number, reply::ERR_BLOCK_SIZE_REQD, &[message.as_bytes()]);
            return Step::Again;
        }
        option_reply(out, number, reply::ACK, &[]);
        match number {
            option::GO => Step::Transmission(self.agreement(*disk)),
            _ => Step::Again,
        }
    }

    /// Handles `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
    fn contexts(&mut self, number: u32, data: &[u8], out: &mut Vec<u8>, faces: &[Face]) {
        let mut refuse = |kind: u32, message: &str| option_reply(out, number, kind, &[message.as_bytes()]);
        let is_set = number == option::SET_META_CONTEXT;
        if is_set {
            // Even a request that fails replaces the contexts that were selected before.
            self.context = None;
        }
        if !self.is_structured {
            return refuse(reply::ERR_INVALID, "structured replies must be agreed on first");
        }
        let Some((name, queries)) = parse_contexts(data) else {
            return refuse(reply::ERR_INVALID, "the lengths in the option's data are wrong");
        };
        let Some(face) = find(name, faces) else {
            return refuse(reply::ERR_UNKNOWN, "there is no export of that name");
        };
        let lists_all = !is_set && queries.is_empty();
        let names = |query: &&[u8]| *query == ALLOCATION.as_bytes() || (!is_set && *query == BASE.as_bytes());
        if lists_all || queries.iter().any(names) {
            let id = if is_set { ALLOCATION_ID } else { 0 };
            option_reply(out, number, reply::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION.as_bytes()]);
            if is_set {
                self.context = Some(face.number);
            }
        }
        option_reply(out, number, reply::ACK, &[]);
    }

    /// Forgets what was selected for an export that is withdrawn: another one may get its number.
    pub(crate) fn forget(&mut self, disk: usize) {
        if self.context == Some(disk) {
            self.context = None;
        }
    }

    fn agreement(&self, disk: usize) -> Agreement {
        let has_context = self.context == Some(disk);
        Agreement { disk, is_structured: self.is_structured, has_context }
    }
}

/// Returns the export `name`. The empty name means the only export.
fn find<'a>(name: &[u8], faces: &'a [Face]) -> Option<&'a Face> {
    let found = faces.iter().find(|face| face.name.as_bytes() == name);
    found.or_else(|| faces.first().filter(|_| name.is_empty() && faces.len() == 1))
}

/// Splits the data of `INFO` and `GO` into the name and the list of information types.
fn parse_export(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = parse_string(data)?;
    let (count, wanted) = rest.split_first_chunk()?;
    (wanted.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some((name, wanted))
}

/// Splits the data of options about contexts into the name of the export and the queries.
fn parse_contexts(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = parse_string(data)?;
    let (count, mut rest) = rest.split_first_chunk()?;
    let mut queries = Vec::new();
    // Ends after at most as many steps as `data` has words.
    for _ in 0..u32::from_be_bytes(*count) {
        let (query, behind) = parse_string(rest)?;
        queries.push(query);
        rest = behind;
    }
    rest.is_empty().then_some((name, queries))
}

/// Splits a string off that begins with its length.
fn parse_string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk()?;
    let length = u32::from_be_bytes(*length) as usize;
    (length <= STRING_MAX).then(|| rest.split_at_checked(length)).flatten()
}

/// Returns a name as text for a report, without control characters and not too long.
fn shown(name: &[u8]) -> String {
    const SHOWN_MAX: usize = 64;
    let text = String::from_utf8_lossy(&name[..name.len().min(SHOWN_MAX)]);
    text.chars().filter(|character| !character.is_control()).collect()
}

#[cfg(test)]
mod tests;
