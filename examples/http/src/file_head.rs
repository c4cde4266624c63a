//! A file in one version, as the header of a response tells it.

use crate::content_type::content_type;
use crate::folder::Version;
use crate::preconditions::Validators;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use std::time::SystemTime;

/// File in one version, and the fields of a response that tell it.
#[derive(Debug)]
pub struct FileHead {
    /// Version of the file.
    pub version: Version,
    /// True if the version was settled when the head was made ([`Version::is_settled`]).
    pub is_settled: bool,
    modified_at: SystemTime,
    tag_text: String,
    content_type: HeaderValue,
    tag: HeaderValue,
    modified: HeaderValue,
    length: HeaderValue,
}

impl FileHead {
    /// Returns the head of the file `name`, which has this version now.
    pub fn new(name: &str, version: Version) -> FileHead {
        let (tag_text, modified_at) = (version.tag(), version.modified());
        let value = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""));
        FileHead {
            version,
            is_settled: !tag_text.starts_with('W'),
            modified_at,
            content_type: HeaderValue::from_static(content_type(name)),
            tag: value(&tag_text),
            modified: value(&httpdate::fmt_http_date(modified_at)),
            length: HeaderValue::from(version.bytes),
            tag_text,
        }
    }

    /// Returns the length, in bytes.
    pub fn bytes(&self) -> u64 {
        self.version.bytes
    }

    /// Returns what conditional requests compare.
    pub fn validators(&self) -> Validators<'_> {
        Validators { tag: &self.tag_text, modified: self.modified_at }
    }

    /// Adds the fields that tell the version.
    pub fn identify(&self, headers: &mut HeaderMap) {
        headers.insert(header::ETAG, self.tag.clone());
        headers.insert(header::LAST_MODIFIED, self.modified.clone());
    }

    /// Adds the fields of a response with the whole file.
    pub fn describe(&self, headers: &mut HeaderMap) {
        headers.reserve(8);
        headers.insert(header::CONTENT_TYPE, self.content_type.clone());
        headers.insert(header::CONTENT_LENGTH, self.length.clone());
        self.identify(headers);
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    }

    /// Adds the fields of a response with a part of the file.
    pub fn describe_range(&self, headers: &mut HeaderMap, range: &std::ops::Range<u64>) {
        self.describe(headers);
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        let range = format!("bytes {}-{}/{}", range.start, range.end - 1, self.bytes());
        set(headers, header::CONTENT_RANGE, range);
    }
}

/// Sets a field of a header to a text of visible ASCII; other texts are left out.
pub fn set(headers: &mut HeaderMap, name: header::HeaderName, text: String) {
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(text)) {
        headers.insert(name, value);
    }
}
