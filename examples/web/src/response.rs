//! From a request to its response.

use crate::body::{Body, Worker};
use crate::cache::{MEMORY_TIMEOUT, ReadError, Reader};
use bytes::Bytes;
use bywash_example_http::{Part, file_name, not_modified, page, redirect, refusal, status_of, unsatisfiable};
use hyper::{Method, Request, Response, StatusCode};
use std::ops::Range;
use std::sync::Arc;

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

async fn find<T>(worker: &Arc<Worker>, request: &Request<T>) -> Result<Response<Body>, StatusCode> {
    let mut name = file_name(request.uri().path()).ok_or(StatusCode::BAD_REQUEST)?;
    if name.is_empty() || name.ends_with('/') {
        name.push_str(INDEX);
    }
    for _ in 0..CHANGES_MAX {
        let Some(reader) = worker.cache.find(&name).await.map_err(|error| status_of(&error))? else {
            return Ok(redirect(&name));
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

/// Returns the response with a file, once the first part of its contents is in memory.
async fn file<T>(
    worker: &Arc<Worker>,
    request: &Request<T>,
    reader: Reader,
) -> Result<Response<Body>, ReadError> {
    let (method, headers) = (request.method(), request.headers());
    let found = reader.file.clone();
    let validators = found.head.validators();
    match validators.refusal(method, headers) {
        Some(StatusCode::NOT_MODIFIED) => return Ok(not_modified(&found.head)),
        Some(status) => return Ok(page(status)),
        None => {}
    }
    let (status, range) = match validators.part(method, headers, found.head.bytes()) {
        Part::Unsatisfiable => return Ok(unsatisfiable(&found.head)),
        Part::Whole => (StatusCode::OK, 0..found.head.bytes()),
        Part::Range(range) => (StatusCode::PARTIAL_CONTENT, range),
    };
    let body = match *method {
        Method::HEAD => empty(),
        _ => contents(worker, reader, range.clone()).await?,
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = match status {
        StatusCode::PARTIAL_CONTENT => found.head.range_fields(&range),
        _ => found.head.fields(),
    };
    Ok(response)
}

async fn contents(worker: &Arc<Worker>, reader: Reader, range: Range<u64>) -> Result<Body, ReadError> {
    if range.is_empty() {
        return Ok(empty());
    }
    let index = range.start / worker.cache.part_bytes();
    let first = worker.cache.part(&reader, index, MEMORY_TIMEOUT, &worker.counters).await?;
    Ok(Body::new(worker, reader, range, first))
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
