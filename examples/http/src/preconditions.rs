//! Conditional requests (RFC 9110, section 13) and ranges (section 14).

use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Method, StatusCode};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// Part of a file that a response has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole file.
    Whole,
    /// Bytes from the first offset up to, and without, the second one.
    Range(Range<u64>),
    /// No byte: the requested range begins behind the end of the file.
    Unsatisfiable,
}

/// Validators of a file's version.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// Entity tag, with its quotes, and `W/` before it if it is a weak one.
    pub tag: &'a str,
    /// Time of the last change, in whole seconds.
    pub modified: SystemTime,
}

impl Validators<'_> {
    /// Returns the status that ends the request if a condition of its header is not met (section 13.2.2).
    pub fn refusal(&self, method: &Method, headers: &HeaderMap) -> Option<StatusCode> {
        let is_newer = |name: HeaderName| date(headers, name).map(|date| self.modified > date);
        let met = match tags(headers, header::IF_MATCH) {
            Some(tags) => self.is_among(&tags, true),
            None => is_newer(header::IF_UNMODIFIED_SINCE) != Some(true),
        };
        if !met {
            return Some(StatusCode::PRECONDITION_FAILED);
        }
        let has_it = match tags(headers, header::IF_NONE_MATCH) {
            Some(tags) => self.is_among(&tags, false),
            None => is_newer(header::IF_MODIFIED_SINCE) == Some(false),
        };
        match has_it {
            true if method == Method::GET || method == Method::HEAD => Some(StatusCode::NOT_MODIFIED),
            true => Some(StatusCode::PRECONDITION_FAILED),
            false => None,
        }
    }

    /// Returns the part of a file of `bytes` bytes that the header asks for. Several ranges, and what is no range of
    /// bytes, are ignored, as a server may (section 14.2).
    pub fn part(&self, method: &Method, headers: &HeaderMap, bytes: u64) -> Part {
        let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
        match range {
            Some(range) if method == Method::GET && self.allows_range(headers) => part(range, bytes),
            _ => Part::Whole,
        }
    }

    /// Returns true if `If-Range` is absent or names this version (section 13.1.5).
    fn allows_range(&self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get(header::IF_RANGE) else { return true };
        let Ok(value) = value.to_str() else { return false };
        match httpdate::parse_http_date(value) {
            // A time is a strong validator only if the file cannot have changed twice within its second, which a weak
            // tag does not say.
            Ok(date) => date == self.modified && !self.tag.starts_with(WEAK),
            Err(_) => self.is_among(&[value.trim()], true),
        }
    }

    /// Compares the tag with others: by the strong or the weak comparison (section 8.8.3.2).
    fn is_among(&self, tags: &[&str], is_strong: bool) -> bool {
        let opaque = |tag| str::strip_prefix(tag, WEAK).unwrap_or(tag);
        tags.iter().any(|tag| match is_strong {
            _ if *tag == "*" => true,
            true => *tag == self.tag && !tag.starts_with(WEAK),
            false => opaque(tag) == opaque(self.tag),
        })
    }
}

/// Prefix of a weak tag.
const WEAK: &str = "W/";

/// Returns the tags of all fields of a name. Those that this server makes have no comma.
fn tags(headers: &HeaderMap, name: HeaderName) -> Option<Vec<&str>> {
    headers.contains_key(&name).then(|| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim).collect()
    })
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok().filter(|date| *date >= UNIX_EPOCH)
}

fn part(range: &str, bytes: u64) -> Part {
    let Some((first, last)) = range
        .split_once('=')
        .filter(|(unit, _)| unit.trim().eq_ignore_ascii_case("bytes"))
        .and_then(|(_, set)| set.trim().split_once('-'))
    else {
        return Part::Whole;
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(first) || !is_number(last) || (first.is_empty() && last.is_empty()) {
        return Part::Whole;
    }
    // More digits than a number can have are beyond the end of every file.
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    let range = match (first, last) {
        ("", suffix) => bytes - number(suffix).min(bytes)..bytes,
        (first, "") => number(first)..bytes,
        (first, last) if number(first) > number(last) => return Part::Whole,
        (first, last) => number(first)..number(last).saturating_add(1).min(bytes),
    };
    if range.is_empty() { Part::Unsatisfiable } else { Part::Range(range) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    fn header(fields: &[(HeaderName, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn validators(tag: &str) -> Validators<'_> {
        Validators { tag, modified: UNIX_EPOCH + Duration::from_secs(784_111_777) }
    }

    #[test]
    fn conditions_decide_in_the_order_of_the_specification() {
        use header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
        let refusal = |fields: &[(HeaderName, &str)]| {
            validators("\"a\"").refusal(&Method::GET, &header(fields)).map(|status| status.as_u16())
        };
        assert_eq!(refusal(&[]), None);
        assert_eq!(refusal(&[(IF_NONE_MATCH, "\"b\", W/\"a\"")]), Some(304));
        assert_eq!(refusal(&[(IF_NONE_MATCH, "*")]), Some(304));
        assert_eq!(refusal(&[(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, LATER)]), None);
        assert_eq!(refusal(&[(IF_MODIFIED_SINCE, MODIFIED)]), Some(304));
        assert_eq!(refusal(&[(IF_MODIFIED_SINCE, EARLIER)]), None);
        assert_eq!(refusal(&[(IF_MODIFIED_SINCE, "yesterday")]), None);
        assert_eq!(refusal(&[(IF_MATCH, "\"b\"")]), Some(412));
        assert_eq!(refusal(&[(IF_MATCH, "W/\"a\"")]), Some(412));
        assert_eq!(refusal(&[(IF_MATCH, "\"a\""), (IF_UNMODIFIED_SINCE, EARLIER)]), None);
        assert_eq!(refusal(&[(IF_UNMODIFIED_SINCE, EARLIER)]), Some(412));
        assert_eq!(refusal(&[(IF_UNMODIFIED_SINCE, MODIFIED)]), None);
    }

    #[test]
    fn ranges_are_read() {
        let read = |range: &str| match part(range, 100) {
            Part::Whole => "whole".to_owned(),
            Part::Range(range) => format!("{}-{}", range.start, range.end),
            Part::Unsatisfiable => "none".to_owned(),
        };
        let cases = [
            ("bytes=0-0", "0-1"),
            ("Bytes=10-", "10-100"),
            ("bytes=-10", "90-100"),
            ("bytes=-1000", "0-100"),
            ("bytes=90-1000", "90-100"),
            ("bytes=0-99999999999999999999999", "0-100"),
            ("bytes=100-", "none"),
            ("bytes=99999999999999999999999-", "none"),
            ("bytes=-0", "none"),
            ("bytes=5-4", "whole"),
            ("bytes=0-1,5-6", "whole"),
            ("bytes=-", "whole"),
            ("bytes=+1-2", "whole"),
            ("lines=0-1", "whole"),
        ];
        for (range, expected) in cases {
            assert_eq!(read(range), expected, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), Part::Unsatisfiable);
    }

    #[test]
    fn a_range_needs_the_version_that_it_names() {
        use header::{IF_RANGE, RANGE};
        let part = |tag: &str, value: &str| {
            validators(tag).part(&Method::GET, &header(&[(RANGE, "bytes=1-2"), (IF_RANGE, value)]), 9)
        };
        assert_eq!(part("\"a\"", "\"a\""), Part::Range(1..3));
        assert_eq!(part("\"a\"", "\"b\""), Part::Whole);
        assert_eq!(part("W/\"a\"", "W/\"a\""), Part::Whole);
        assert_eq!(part("\"a\"", MODIFIED), Part::Range(1..3));
        assert_eq!(part("\"a\"", LATER), Part::Whole);
        assert_eq!(part("W/\"a\"", MODIFIED), Part::Whole);
        let fields = header(&[(RANGE, "bytes=1-2")]);
        assert_eq!(validators("\"a\"").part(&Method::HEAD, &fields, 9), Part::Whole);
    }
}
