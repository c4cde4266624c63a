//! Responses as clients receive them: in parts, each of which is compared with what is right.

use super::request::{Body, Form, Request};

/// Longest head of a response, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Difference between a response and what is right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The head is not HTTP/1.1, or has what clients do not understand.
    #[error("the head of its response has {0}: {1:?}")]
    Head(&'static str, String),
    /// The status is another.
    #[error("its response has the status {found} instead of {expected}")]
    Status {
        /// Status of the response.
        found: u16,
        /// Status that is right.
        expected: u16,
    },
    /// The length of the body is another.
    #[error("its response has a body of {found} bytes instead of {expected}")]
    Length {
        /// Number of bytes of the response.
        found: u64,
        /// Number of bytes that is right.
        expected: u64,
    },
    /// A byte of the body is another.
    #[error("byte {offset} of its response's body is {found:#04x} instead of {expected:#04x}")]
    Byte {
        /// Offset in the body.
        offset: u64,
        /// Byte of the response.
        found: u8,
        /// Byte that is right.
        expected: u8,
    },
    /// Bytes follow the response.
    #[error("{0} bytes follow its response")]
    More(usize),
    /// The connection ended before the response did.
    #[error(
        "the program ended the connection after {body} bytes of its response's body ({head} of its head)"
    )]
    Ended {
        /// Number of bytes of the head.
        head: usize,
        /// Number of bytes of the body.
        body: u64,
    },
}

/// Response that is being received.
#[derive(Clone, Debug, Default)]
pub(super) struct Response {
    /// Bytes of the head; with its end once that has come.
    head: Vec<u8>,
    /// True once the head is complete, and at once if there is none.
    has_head: bool,
    /// Status; 0 without HTTP.
    status: u16,
    /// Number of bytes of the body that have come.
    body: u64,
    /// Number of bytes that the body will have; `None` if it lasts until the connection's end.
    length: Option<u64>,
    /// True if the program ends the connection behind the response.
    is_last: bool,
}

impl Response {
    /// Makes a response of which nothing has come.
    pub fn new(request: &Request) -> Response {
        let is_raw = request.form == Form::Raw;
        let length = request.body.length().filter(|_| is_raw);
        Response { has_head: is_raw, length, ..Response::default() }
    }

    /// Returns the status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns whether the program ends the connection behind the response.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Takes received bytes, and returns how many of them belong to the body.
    ///
    /// # Errors
    ///
    /// [`Mismatch`]: the response is not right.
    pub fn take(&mut self, request: &Request, bytes: &[u8]) -> Result<u64, Mismatch> {
        let mut rest = bytes;
        if let Form::Http { status, is_head } = request.form {
            while !self.has_head && !rest.is_empty() {
                rest = self.take_head(rest)?;
                if self.has_head {
                    self.parse_head(request, status, is_head)?;
                }
            }
        }
        self.take_body(request, rest)?;
        Ok(rest.len() as u64)
    }

    /// Returns whether all of the response has come.
    pub fn is_complete(&self) -> bool {
        self.has_head && self.length == Some(self.body)
    }

    /// Takes note of the connection's end.
    ///
    /// # Errors
    ///
    /// [`Mismatch::Ended`] and [`Mismatch::Length`]: the response was not complete.
    pub fn end(&mut self, request: &Request) -> Result<(), Mismatch> {
        if !self.has_head || self.length.is_some_and(|length| self.body < length) {
            return Err(Mismatch::Ended { head: self.head.len(), body: self.body });
        }
        check_length(request, self.body)?;
        (self.length, self.is_last) = (Some(self.body), true);
        Ok(())
    }

    /// Takes bytes of the head, and returns those behind it.
    fn take_head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Mismatch> {
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let from = before.saturating_sub(3);
        let end = self.head[from..].windows(4).position(|part| part == b"\r\n\r\n").map(|at| from + at + 4);
        self.head.truncate(end.unwrap_or(self.head.len()));
        if self.head.len() > HEAD_BYTES_MAX {
            return Err(self.wrong("no end", 0));
        }
        self.has_head = end.is_some();
        Ok(&bytes[self.head.len() - before..])
    }

    /// Parses the complete head; an informational one (1xx) is forgotten.
    fn parse_head(&mut self, request: &Request, expected: u16, is_head: bool) -> Result<(), Mismatch> {
        let text = String::from_utf8_lossy(&self.head).into_owned();
        let mut lines = text.split("\r\n").take_while(|line| !line.is_empty()).enumerate();
        let line = lines.next().map_or("", |(_, line)| line);
        let version = line.split(' ').next().unwrap_or_default();
        let status = line.get(9..12).and_then(|digits| digits.parse().ok());
        let Some(status) = status.filter(|_| version == "HTTP/1.1" || version == "HTTP/1.0") else {
            return Err(self.wrong("no status line of HTTP/1.1", 0));
        };
        if (100..200).contains(&status) {
            *self = Response::default();
            return Ok(());
        }
        self.status = status;
        let mut length = None;
        self.is_last = version == "HTTP/1.0";
        for (number, line) in lines {
            let Some((name, value)) = line.split_once(':') else {
                return Err(self.wrong("a field without a name", number));
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" if length.is_some() => {
                    return Err(self.wrong("two lengths", number));
                }
                "content-length" => match value.parse::<u64>() {
                    Ok(value) => length = Some(value),
                    Err(_) => return Err(self.wrong("a length that is no number", number)),
                },
                "transfer-encoding" => {
                    return Err(self.wrong("an encoding that these clients do not understand", number));
                }
                "connection" => self.is_last = value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        if status != expected {
            return Err(Mismatch::Status { found: status, expected });
        }
        if let Some(length) = length {
            check_length(request, length)?;
        }
        let is_empty = is_head || status == 204 || status == 304;
        self.length = if is_empty { Some(0) } else { length };
        Ok(())
    }

    /// Compares bytes of the body.
    fn take_body(&mut self, request: &Request, bytes: &[u8]) -> Result<(), Mismatch> {
        let left = self.length.map_or(u64::MAX, |length| length - self.body);
        if bytes.len() as u64 > left {
            return Err(Mismatch::More(bytes.len() - left as usize));
        }
        if let Body::Bytes(expected) = &request.body {
            let rest = &expected[(self.body as usize).min(expected.len())..];
            let count = rest.len().min(bytes.len());
            // Equal bytes, as nearly all are, are compared in one go.
            if rest[..count] != bytes[..count]
                && let Some(at) = (0..count).find(|&at| rest[at] != bytes[at])
            {
                let (found, expected) = (bytes[at], rest[at]);
                return Err(Mismatch::Byte { offset: self.body + at as u64, found, expected });
            }
        }
        self.body += bytes.len() as u64;
        if self.length.is_none() && request.body.length().is_some_and(|length| self.body > length) {
            return check_length(request, self.body);
        }
        Ok(())
    }

    /// Makes the difference of a head with something wrong in one of its lines.
    fn wrong(&self, thing: &'static str, line: usize) -> Mismatch {
        let text = String::from_utf8_lossy(&self.head);
        let line = text.split("\r\n").nth(line).unwrap_or_default();
        Mismatch::Head(thing, line.chars().take(100).collect())
    }
}

/// Compares the length of a body.
fn check_length(request: &Request, found: u64) -> Result<(), Mismatch> {
    match request.body.length() {
        Some(expected) if expected != found => Err(Mismatch::Length { found, expected }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a response in parts of each size, then the connection's end if it is not complete; returns the difference,
    /// which must be the same for all sizes.
    fn receive(request: &Request, text: &str) -> Result<(u16, bool), Mismatch> {
        let results = [1, 2, 7, text.len().max(1)].map(|size| {
            let mut response = Response::new(request);
            for part in text.as_bytes().chunks(size) {
                response.take(request, part)?;
            }
            if !response.is_complete() {
                response.end(request)?;
            }
            Ok((response.status(), response.is_last()))
        });
        // What follows a response is counted by parts.
        let is_more = |result: &Result<_, Mismatch>| matches!(result, Err(Mismatch::More(_)));
        assert!(results.iter().all(|result| *result == results[3] || is_more(result)), "{results:?}");
        results[3].clone()
    }

    #[test]
    fn right_responses_are_taken_in_any_parts() {
        let get = Request::get("/").body(Body::bytes(*b"hello"));
        let kept = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(receive(&get, kept), Ok((200, false)));
        let closed = "HTTP/1.1 200 OK\r\ncontent-length:5\r\nConnection: Close\r\n\r\nhello";
        assert_eq!(receive(&get, closed), Ok((200, true)));
        assert_eq!(receive(&get, "HTTP/1.0 200\r\n\r\nhello"), Ok((200, true)), "until the end");
        assert_eq!(receive(&get, &format!("HTTP/1.1 100 Continue\r\n\r\n{kept}")), Ok((200, false)));
        let head = Request::head("/").body(Body::Length(5));
        assert_eq!(receive(&head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), Ok((200, false)));
        let missing = Request::get("/x").status(404);
        assert_eq!(
            receive(&missing, "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno"),
            Ok((404, false))
        );
        assert_eq!(receive(&Request::raw("echo", *b"ab", Body::bytes(*b"ab")), "ab"), Ok((0, false)));
        assert_eq!(receive(&Request::raw("all", *b"", Body::Any), "some"), Ok((0, true)));
    }

    #[test]
    fn differences_are_named() {
        let get = Request::get("/").body(Body::bytes(*b"hello"));
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        for (text, difference) in [
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status 404 instead of 200"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "4 bytes instead of 5"),
            ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "no number: \"Content-Length: x\""),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "do not understand: \"Transfer"),
            ("HTTP/1.1 200 OK\r\nthing\r\n\r\n", "without a name: \"thing\""),
            ("hello\r\n\r\n", "no status line of HTTP/1.1: \"hello\""),
            (&format!("{head}hallo"), "byte 1 of its response's body is 0x61 instead of 0x65"),
            (&format!("{head}hell"), "after 4 bytes of its response's body (38 of its head)"),
            ("HTTP/1.1 20", "after 0 bytes of its response's body (11 of its head)"),
            (&format!("{head}hellos"), "1 bytes follow"),
            ("HTTP/1.1 200 OK\r\n\r\nhellos", "6 bytes instead of 5"),
            ("HTTP/1.1 200 OK\r\n\r\nhell", "4 bytes instead of 5"),
        ] {
            let found = receive(&get, text).unwrap_err().to_string();
            assert!(found.contains(difference), "{text:?}: {found}");
        }
        let echo = Request::raw("echo", *b"ab", Body::bytes(*b"ab"));
        assert!(matches!(receive(&echo, "a"), Err(Mismatch::Ended { head: 0, body: 1 })));
        assert!(matches!(receive(&echo, "ax"), Err(Mismatch::Byte { offset: 1, .. })));
        let endless = "x".repeat(HEAD_BYTES_MAX + 1);
        assert!(matches!(receive(&get, &endless), Err(Mismatch::Head("no end", _))));
    }
}
