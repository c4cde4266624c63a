//! Parser of one line of strace's output (strace(1), "DESCRIPTION").
//!
//! ```text
//! [pid  4711] 12:34:56.789012 pread64(3</data/a>, "..."..., 4096, 8192) = 4096 <0.000017>
//!  process    time            call   arguments, quoted as in C          result  how long
//! ```
//!
//! Process, time, the annotation of a descriptor (`-y`) and the duration (`-T`) may be missing.

use super::super::imported::nanoseconds;
use std::borrow::Cow;

/// One line of strace's output.
#[derive(Debug, PartialEq, Eq)]
pub struct StraceLine<'a> {
    /// Number of the process, if printed.
    pub process: Option<u32>,
    /// Time, if printed.
    pub time: Option<Time>,
    /// Contents of the line.
    pub body: Body<'a>,
}

/// Time in nanoseconds, since a moment that depends on strace's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// `-ttt`: time since 1970.
    Epoch(u64),
    /// `-t`, `-tt`: time since midnight.
    Day(u64),
    /// `-r`: time since the previous line.
    Since(u64),
}

/// Contents of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Text of a call from its name on, with a result.
    Call(&'a str),
    /// Beginning of a call that another process interrupted, without the marker of the interruption.
    Unfinished(&'a str),
    /// Name of an interrupted call, and the rest of its text.
    Resumed(&'a str, &'a str),
    /// End of the process.
    Ended,
    /// Signal, or a message of strace itself.
    Remark,
}

/// Limit of process numbers (PID_MAX_LIMIT). A larger number without a decimal point is a time in seconds.
const PID_LIMIT: u64 = 1 << 22;
/// Bound between times since 1970, which exceed it since 1973, and the shorter times between lines, in
/// seconds.
const EPOCH: u64 = 100_000_000;

/// Marker that strace prints after the beginning of an interrupted call.
pub const UNFINISHED: &str = "<unfinished ...>";

/// Removes `strace: Process 4711 attached` from the end of a line, and returns the rest with the number of
/// the child. The rest is a call that strace had begun to print; it gets the marker [`UNFINISHED`], as if
/// another process had interrupted the call.
pub fn split_attached(line: &str) -> (Cow<'_, str>, Option<u32>) {
    let child = || {
        let (before, number) = line.trim_end().strip_suffix(" attached")?.rsplit_once("Process ")?;
        Some((before.strip_suffix("strace: ").unwrap_or(before), pid(number)?))
    };
    match child() {
        Some((before, child)) if before.trim().is_empty() => (Cow::Borrowed(""), Some(child)),
        Some((before, child)) => (Cow::Owned(format!("{before} {UNFINISHED}")), Some(child)),
        None => (Cow::Borrowed(line), None),
    }
}

impl<'a> StraceLine<'a> {
    /// Parses a line. Returns `None` if strace did not print it.
    pub fn parse(line: &'a str) -> Option<StraceLine<'a>> {
        let mut rest = line.trim();
        let mut process = None;
        if let Some(behind) = rest.strip_prefix("[pid") {
            let (inside, behind) = behind.split_once(']')?;
            process = Some(pid(inside.trim())?);
            rest = behind.trim_start();
        }
        let mut time = None;
        loop {
            let (word, behind) = rest.split_once(' ')?;
            if word.starts_with("(+") {
                // With both -r and -t, the other time is enough.
                rest = behind.split_once(')')?.1.trim_start();
                continue;
            }
            if process.is_none() && time.is_none() && pid(word).is_some() {
                process = pid(word);
            } else if time.is_none() && word.starts_with(|first: char| first.is_ascii_digit()) {
                time = Some(Time::parse(word)?);
            } else {
                break;
            }
            rest = behind.trim_start();
        }
        Some(StraceLine { process, time, body: Body::parse(rest)? })
    }
}

/// Parses `4711` or `4711<cat>` (`--decode-pids=comm`).
fn pid(word: &str) -> Option<u32> {
    let digits = word.split_once('<').map_or(word, |(digits, _)| digits);
    let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    u32::try_from(number).ok().filter(|_| number < PID_LIMIT)
}

impl Time {
    fn parse(word: &str) -> Option<Time> {
        let mut parts = word.split(':');
        let last = nanoseconds(parts.next_back()?)?;
        let (hours, minutes) = (parts.next(), parts.next());
        match (hours, minutes, parts.next()) {
            (None, None, None) if last >= EPOCH * 1_000_000_000 => Some(Time::Epoch(last)),
            (None, None, None) => Some(Time::Since(last)),
            (Some(hours), Some(minutes), None) => {
                let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
                let is_time = hours < 24 && minutes < 60 && last <= 60_999_999_999;
                is_time.then(|| Time::Day((hours * 60 + minutes) * 60_000_000_000 + last))
            }
            _ => None,
        }
    }
}

impl<'a> Body<'a> {
    fn parse(text: &'a str) -> Option<Body<'a>> {
        if let Some(behind) = text.strip_prefix("<... ") {
            let (name, rest) = behind.split_once(" resumed>")?;
            return is_name(name).then_some(Body::Resumed(name, rest));
        }
        if text.starts_with("+++ ") && text.ends_with(" +++") {
            return Some(Body::Ended);
        }
        if text.starts_with("--- ") && text.ends_with(" ---") {
            return Some(Body::Remark);
        }
        if text.starts_with("strace: ") || text.starts_with("Process ") {
            return Some(Body::Remark);
        }
        let (name, _) = text.split_once('(')?;
        if !is_name(name) {
            return None;
        }
        match text.strip_suffix(UNFINISHED) {
            Some(begun) => Some(Body::Unfinished(begun.trim_end())),
            None => text.contains(" = ").then_some(Body::Call(text)),
        }
    }
}

fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
    first && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// A complete call with its result.
#[derive(Debug, PartialEq, Eq)]
pub struct Syscall<'a> {
    /// Name of the call, as in section 2 of the manual.
    pub name: &'a str,
    /// Arguments, as printed.
    pub arguments: Vec<&'a str>,
    /// Result of the call.
    pub result: CallResult<'a>,
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult<'a> {
    /// Returned number. If it is a descriptor, also strace's annotation, where printed.
    Value(u64, Option<&'a str>),
    /// The call failed.
    Failed,
    /// The call did not return.
    None,
}

impl<'a> Syscall<'a> {
    /// Parses a complete call. Returns `None` if the text has no complete argument list and result.
    pub fn parse(text: &'a str) -> Option<Syscall<'a>> {
        let (name, rest) = text.split_once('(')?;
        let (arguments, behind) = arguments(rest)?;
        let result = behind.trim_start().strip_prefix('=')?.trim_start();
        let result = if result.starts_with('?') {
            CallResult::None
        } else if result.starts_with('-') {
            CallResult::Failed
        } else {
            CallResult::Value(number(result)?, annotation(result))
        };
        Some(Syscall { name, arguments, result })
    }

    /// Returns the argument at the index `place`, from 0, or an empty text if the call has fewer arguments.
    pub fn argument(&self, place: usize) -> &'a str {
        self.arguments.get(place).copied().unwrap_or("")
    }
}

/// Splits the arguments up to the closing parenthesis of the call. Returns them with the text behind it.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let bytes = text.as_bytes();
    let (mut found, mut begin, mut depth, mut at) = (Vec::new(), 0, 0_u32, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = quoted_end(bytes, at)?,
            b'/' if bytes.get(at + 1) == Some(&b'*') => at += text[at..].find("*/")? + 1,
            b'<' if is_annotated(&text[begin..at]) && bytes.get(at + 1) != Some(&b'<') => {
                at += annotation_end(&text[at..])?
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth > 0 => depth -= 1,
            b')' => {
                found.push(text[begin..at].trim());
                return Some((found, &text[at + 1..]));
            }
            b',' if depth == 0 => {
                found.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the index of the quote that closes the quotation opened at `at`.
fn quoted_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += 1;
        match bytes.get(at)? {
            b'\\' => at += 1,
            b'"' => return Some(at),
            _ => {}
        }
    }
}

/// Returns true if a `<` after this text begins the annotation of a descriptor.
fn is_annotated(before: &str) -> bool {
    before.ends_with(|last: char| last.is_ascii_digit()) || before.ends_with("AT_FDCWD")
}

/// Returns the index of the bracket that closes the annotation `<...`. In names, strace prints brackets as
/// \74 and \76.
fn annotation_end(text: &str) -> Option<usize> {
    // The name of a socket, such as TCP:[10.0.0.1:1->10.0.0.2:80], contains a bracket of its own.
    let inside = &text[1..];
    let is_socket = inside.starts_with(|first: char| first.is_ascii_uppercase()) && inside.contains(":[");
    if is_socket {
        return inside.find("]>").map(|at| at + 2);
    }
    let mut depth = 0_u32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if depth == 1 => return Some(at),
            b'>' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Parses the number at the beginning of a text: decimal, or hexadecimal (0x1f).
pub fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let end = digits.bytes().position(|byte| !(byte as char).is_digit(radix)).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], radix).ok()
}

/// Returns the annotation of a descriptor: `/data/a` for `3</data/a>`.
pub fn annotation(text: &str) -> Option<&str> {
    let at = text.find('<')?;
    let digits = &text[..at];
    let is_descriptor = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_descriptor && digits != "AT_FDCWD" {
        return None;
    }
    let end = annotation_end(&text[at..])?;
    Some(&text[at + 1..at + end])
}

/// Returns the contents of a quoted argument. Bytes that are not UTF-8 are replaced.
pub fn unquoted(argument: &str) -> Option<String> {
    let inside = argument.strip_prefix('"')?;
    let end = quoted_end(argument.as_bytes(), 0)?;
    Some(unescaped(&inside[..end - 1]))
}

/// Replaces C's escape sequences by the bytes that they stand for.
pub fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (radix, most) = match rest.next() {
            Some(b'x') => (16, 2),
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(next) = rest.next_if(|next| (b'0'..=b'7').contains(next)) else { break };
                    value = value * 8 + u32::from(next - b'0');
                }
                bytes.push((value & 0xff) as u8);
                continue;
            }
            Some(letter) => {
                bytes.push(match letter {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'v' => 11,
                    b'f' => 12,
                    other => other,
                });
                continue;
            }
            None => break,
        };
        let mut value = 0;
        for _ in 0..most {
            let Some(next) = rest.next_if(|next| (*next as char).is_digit(radix)) else { break };
            value = value * radix + (next as char).to_digit(radix).unwrap_or(0);
        }
        bytes.push((value & 0xff) as u8);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
