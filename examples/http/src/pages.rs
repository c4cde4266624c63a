//! Responses that are not the contents of a file: pages of a status, redirections, refusals.

use crate::file_head::{FileHead, set};
use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use std::io;

/// Returns the status of a request that no file can be the response to.
pub fn refusal<T>(request: &Request<T>) -> Option<StatusCode> {
    let has_host = request.version() < Version::HTTP_11 || request.headers().contains_key(header::HOST);
    match *request.method() {
        _ if !has_host => Some(StatusCode::BAD_REQUEST),
        Method::GET | Method::HEAD => None,
        _ => Some(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// Returns the status of the response if a file cannot be opened or read.
pub fn status_of(error: &io::Error) -> StatusCode {
    use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound, PermissionDenied, ResourceBusy};
    match error.kind() {
        NotFound | NotADirectory | InvalidFilename => StatusCode::NOT_FOUND,
        PermissionDenied => StatusCode::FORBIDDEN,
        ResourceBusy => StatusCode::SERVICE_UNAVAILABLE,
        _ if error.raw_os_error().is_some_and(is_out_of_descriptors) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn is_out_of_descriptors(error: i32) -> bool {
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].iter().any(|errno| errno.raw_os_error() == error)
}

/// Returns the page of a status.
pub fn page<B: From<Bytes>>(status: StatusCode) -> Response<B> {
    let text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><title>{status}</title></head><body><h1>{status}</h1></body></html>\n"
    );
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(B::from(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CONTENT_LENGTH, length);
    match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    response
}

/// Returns the response to a client that has this version of a file already.
pub fn not_modified<B: From<Bytes>>(file: &FileHead) -> Response<B> {
    let mut response = Response::new(B::from(Bytes::new()));
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    *response.headers_mut() = file.version_fields();
    response
}

/// Returns the response to a request for a range behind the end of a file.
pub fn unsatisfiable<B: From<Bytes>>(file: &FileHead) -> Response<B> {
    let mut response = page(StatusCode::RANGE_NOT_SATISFIABLE);
    set(response.headers_mut(), header::CONTENT_RANGE, format!("bytes */{}", file.bytes()));
    response
}

/// Returns the response for a folder without a slash behind its name: relative links of its page need the slash.
pub fn redirect<B: From<Bytes>>(name: &str) -> Response<B> {
    let mut location = String::from("/");
    for byte in name.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => location.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => location.push(char::from(byte)),
            _ => location.push_str(&format!("%{byte:02X}")),
        }
    }
    location.push('/');
    let mut response = page(StatusCode::MOVED_PERMANENTLY);
    set(response.headers_mut(), header::LOCATION, location);
    response
}
