//! One line of what strace prints, taken apart (strace(1), "DESCRIPTION").
//!
//! ```text
//! [pid  4711] 12:34:56.789012 pread64(3</data/a>, "..."..., 4096, 8192) = 4096 <0.000017>
//!  process    time            call   arguments, quoted as in C          result  how long
//! ```
//!
//! Process, time, what a descriptor is (`-y`), and how long it took (`-T`) may be missing.

use super::super::imported::nanoseconds;
use std::borrow::Cow;

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Whose, if it says.
    pub process: Option<u32>,
    /// When, if it says.
    pub time: Option<Time>,
    /// What.
    pub body: Body<'a>,
}

/// Nanoseconds, since when depends on what strace was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// `-ttt`: since 1970.
    Epoch(u64),
    /// `-t`, `-tt`: since midnight.
    Day(u64),
    /// `-r`: since the line before.
    Since(u64),
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A call from its name on, perhaps whole.
    Call(&'a str),
    /// A call that another process interrupted in print, without the words that say so.
    Unfinished(&'a str),
    /// The rest of it.
    Resumed(&'a str, &'a str),
    /// The process has ended.
    Ended,
    /// A signal, or a word of strace's own.
    Remark,
}

/// A pid is below this (PID_MAX_LIMIT); what is larger and has no point is a time in seconds.
const PID_LIMIT: u64 = 1 << 22;
/// Seconds since 1970 are more than this since 1973, and pauses are shorter.
const EPOCH: u64 = 100_000_000;

/// Behind a call that another process interrupted in print.
pub const UNFINISHED: &str = "<unfinished ...>";

/// Takes `strace: Process 4711 attached` off a line; what is before it is a call that strace had begun to print, now as it
/// would be if another process had interrupted it.
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

impl<'a> Line<'a> {
    /// Takes a line apart; nothing if strace did not print it.
    pub fn parse(line: &'a str) -> Option<Line<'a>> {
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
                // -r beside -t: the time is told already.
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
        Some(Line { process, time, body: Body::parse(rest)? })
    }
}

/// `4711`, or `4711<cat>` (`--decode-pids=comm`).
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

/// A call with its result.
#[derive(Debug, PartialEq, Eq)]
pub struct Syscall<'a> {
    /// As it is called in section 2.
    pub name: &'a str,
    /// As they are printed.
    pub arguments: Vec<&'a str>,
    /// What it answered.
    pub result: Outcome<'a>,
}

/// What a call answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// A number, and which file it is, if it is a descriptor and strace says so.
    Value(u64, Option<&'a str>),
    /// An error.
    Failed,
    /// It did not come back.
    None,
}

impl<'a> Syscall<'a> {
    /// Takes a whole call apart.
    pub fn parse(text: &'a str) -> Option<Syscall<'a>> {
        let (name, rest) = text.split_once('(')?;
        let (arguments, behind) = arguments(rest)?;
        let result = behind.trim_start().strip_prefix('=')?.trim_start();
        let result = if result.starts_with('?') {
            Outcome::None
        } else if result.starts_with('-') {
            Outcome::Failed
        } else {
            Outcome::Value(number(result)?, annotation(result))
        };
        Some(Syscall { name, arguments, result })
    }

    /// The argument of that place, from 0 on; nothing if there are fewer.
    pub fn argument(&self, place: usize) -> &'a str {
        self.arguments.get(place).copied().unwrap_or("")
    }
}

/// Arguments up to the parenthesis that closes the call, and what is behind it.
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

/// Where the quote that opens at `at` closes.
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

/// Whether a `<` behind this text says what a descriptor is.
fn is_annotated(before: &str) -> bool {
    before.ends_with(|last: char| last.is_ascii_digit()) || before.ends_with("AT_FDCWD")
}

/// Where, in `<...`, the bracket closes. strace writes brackets in names as \74 and \76.
fn annotation_end(text: &str) -> Option<usize> {
    // TCP:[10.0.0.1:1->10.0.0.2:80] has one of its own.
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

/// The number that a text begins with: decimal, or hexadecimal (0x1f).
pub fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let end = digits.bytes().position(|byte| !(byte as char).is_digit(radix)).unwrap_or(digits.len());
    u64::from_str_radix(&digits[..end], radix).ok()
}

/// What is said of a descriptor: `3</data/a>`.
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

/// The text of a quoted argument; what is no UTF-8 is replaced.
pub fn unquoted(argument: &str) -> Option<String> {
    let inside = argument.strip_prefix('"')?;
    let end = quoted_end(argument.as_bytes(), 0)?;
    Some(unescaped(&inside[..end - 1]))
}

/// With C's escapes replaced by what they stand for.
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
