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
    content_type: &'static str,
    tag_text: String,
    // The values of the three fields that each file has by itself lie in one piece of memory, so that a response about a
    // file that was not asked for lately waits for memory as seldom as possible.
    tag: HeaderValue,
    modified: HeaderValue,
    length: HeaderValue,
}

impl FileHead {
    /// Returns the head of the file `name`, which has this version now.
    pub fn new(name: &str, version: Version) -> FileHead {
        let (tag_text, modified_at) = (version.tag(), version.modified());
        let texts = [tag_text.clone(), httpdate::fmt_http_date(modified_at), version.bytes.to_string()];
        let mut rest = Bytes::from(texts.concat());
        let [tag, modified, length] = texts.map(|text| {
            // All three are visible ASCII.
            HeaderValue::from_maybe_shared(rest.split_to(text.len())).unwrap_or(HeaderValue::from_static(""))
        });
        FileHead {
            version,
            is_settled: !tag_text.starts_with('W'),
            modified_at,
            content_type: content_type(name),
            tag_text,
            tag,
            modified,
            length,
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

    /// Returns the fields that tell the version.
    pub fn version_fields(&self) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(FIELDS_MAX);
        fields.insert(header::ETAG, self.tag.clone());
        fields.insert(header::LAST_MODIFIED, self.modified.clone());
        fields
    }

    /// Returns the fields of a response with the whole file.
    pub fn fields(&self) -> HeaderMap {
        let mut fields = self.version_fields();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        fields.insert(header::CONTENT_LENGTH, self.length.clone());
        fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        fields
    }

    /// Returns the fields of a response with a part of the file.
    pub fn range_fields(&self, range: &std::ops::Range<u64>) -> HeaderMap {
        let mut fields = self.fields();
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        let range = format!("bytes {}-{}/{}", range.start, range.end - 1, self.bytes());
        set(&mut fields, header::CONTENT_RANGE, range);
        fields
    }
}

/// Sets a field of a header to a text of visible ASCII; other texts are left out.
pub fn set(headers: &mut HeaderMap, name: header::HeaderName, text: String) {
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(text)) {
        headers.insert(name, value);
    }
}

/// Greatest number of fields of a response with a part of a file.
const FIELDS_MAX: usize = 6;
