//! From a request to its response.

use crate::body::{Body, Worker};
use crate::cache::{File, ReadError, Reader};
use crate::folder::file_name;
use crate::memory::MEMORY_TIMEOUT;
use crate::preconditions::Part;
use bytes::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use tokio::time::Instant;

/// Returns the response to a request. The contents of the request, if it has any, are not looked at.
pub async fn respond<T>(worker: &Arc<Worker>, request: &Request<T>) -> Response<Body> {
    let response = match refusal(request) {
        Some(status) => page(status),
        None => match find(worker, request).await {
            Ok(response) => response,
            Err(status) => page(status),
        },
    };
    worker.counters.requests.add(1);
    if response.status().as_u16() >= 400 {
        worker.counters.errors.add(1);
    }
    match *request.method() {
        Method::HEAD => without_contents(response),
        _ => response,
    }
}

/// Returns the status of a request that no file can be the response to.
fn refusal<T>(request: &Request<T>) -> Option<StatusCode> {
    let has_host = request.version() < Version::HTTP_11 || request.headers().contains_key(header::HOST);
    match *request.method() {
        _ if !has_host => Some(StatusCode::BAD_REQUEST),
        Method::GET | Method::HEAD => None,
        _ => Some(StatusCode::METHOD_NOT_ALLOWED),
    }
}

async fn find<T>(worker: &Arc<Worker>, request: &Request<T>) -> Result<Response<Body>, StatusCode> {
    let mut name = file_name(request.uri().path()).ok_or(StatusCode::BAD_REQUEST)?;
    if name.is_empty() || name.ends_with('/') {
        name.push_str(INDEX);
    }
    for _ in 0..CHANGES_MAX {
        let Some(reader) = worker.cache.find(&name).await.map_err(|error| status_of(&error))? else {
            return Ok(elsewhere(&name));
        };
        match file(worker, request, reader).await {
            Err(ReadError::Changed) => worker.cache.forget(&name),
            Err(ReadError::NoMemory) => return Err(StatusCode::SERVICE_UNAVAILABLE),
            Err(ReadError::Io(error)) => return Err(status_of(&error)),
            Err(ReadError::Arena(_)) => return Err(StatusCode::INTERNAL_SERVER_ERROR),
            Ok(response) => return Ok(response),
        }
    }
    // It changes all the time.
    Err(StatusCode::SERVICE_UNAVAILABLE)
}

fn status_of(error: &io::Error) -> StatusCode {
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

/// Returns the response with a file, once the first part of its contents is in memory.
async fn file<T>(
    worker: &Arc<Worker>,
    request: &Request<T>,
    reader: Reader,
) -> Result<Response<Body>, ReadError> {
    let (method, headers) = (request.method(), request.headers());
    let found = reader.file.clone();
    let validators = found.validators();
    match validators.refusal(method, headers) {
        Some(StatusCode::NOT_MODIFIED) => {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response.headers_mut().insert(header::ETAG, found.tag.clone());
            response.headers_mut().insert(header::LAST_MODIFIED, found.modified.clone());
            return Ok(response);
        }
        Some(status) => return Ok(page(status)),
        None => {}
    }
    let (status, range) = match validators.part(method, headers, found.bytes()) {
        Part::Unsatisfiable => {
            let mut response = page(StatusCode::RANGE_NOT_SATISFIABLE);
            set(response.headers_mut(), header::CONTENT_RANGE, format!("bytes */{}", found.bytes()));
            return Ok(response);
        }
        Part::Whole => (StatusCode::OK, 0..found.bytes()),
        Part::Range(range) => (StatusCode::PARTIAL_CONTENT, range),
    };
    let body = match *method {
        Method::HEAD => empty(),
        _ => contents(worker, reader, range.clone()).await?,
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    describe(headers, &found);
    if status == StatusCode::PARTIAL_CONTENT {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        let range = format!("bytes {}-{}/{}", range.start, range.end - 1, found.bytes());
        set(headers, header::CONTENT_RANGE, range);
    }
    Ok(response)
}

fn describe(headers: &mut HeaderMap, file: &File) {
    headers.reserve(8);
    headers.insert(header::CONTENT_TYPE, file.content_type.clone());
    headers.insert(header::CONTENT_LENGTH, file.length.clone());
    headers.insert(header::ETAG, file.tag.clone());
    headers.insert(header::LAST_MODIFIED, file.modified.clone());
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
}

async fn contents(worker: &Arc<Worker>, reader: Reader, range: Range<u64>) -> Result<Body, ReadError> {
    if range.is_empty() {
        return Ok(empty());
    }
    let deadline = Instant::now() + MEMORY_TIMEOUT;
    let index = range.start / worker.cache.part_bytes();
    let first = worker.cache.part(&reader, index, deadline, &worker.counters).await?;
    Ok(Body::new(worker, reader, range, first))
}

/// Returns the page of a status.
pub fn page(status: StatusCode) -> Response<Body> {
    let text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><title>{status}</title></head><body><h1>{status}</h1></body></html>\n"
    );
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(Body::Rest(text.into()));
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

/// Returns the response for a folder without a slash behind its name: relative links of its page need the slash.
fn elsewhere(name: &str) -> Response<Body> {
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

fn set(headers: &mut HeaderMap, name: header::HeaderName, text: String) {
    // The texts of this module are visible ASCII, which is always a value.
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(text)) {
        headers.insert(name, value);
    }
}

fn without_contents(response: Response<Body>) -> Response<Body> {
    response.map(|_| empty())
}

fn empty() -> Body {
    Body::Rest(Bytes::new())
}

/// File that is served for a folder.
const INDEX: &str = "index.html";
/// Greatest number of versions of a file that a request tries to begin with.
const CHANGES_MAX: usize = 3;
