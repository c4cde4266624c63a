//! From a request to its response: names, conditions, admission.

use crate::admission::{Refusal, Resource};
use crate::buffers::Buffers;
use crate::chunks::chunks;
use crate::options::ReadsFrom;
use crate::schedule::Schedule;
use crate::stream::{Body, Parts, Stream, StreamError};
use crate::worker::Worker;
use bytes::Bytes;
use bywash_example_http::{
    FileHead, Found, Part, Version, file_name, not_modified, page, redirect, refusal, status_of,
    unsatisfiable,
};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Returns the response to a request. The contents of the request, if it has any, are not looked at.
pub async fn respond<T>(worker: &Arc<Worker>, request: &Request<T>) -> Response<Body> {
    let response = match refusal(request) {
        Some(status) => page(status),
        None => find(worker, request).await.unwrap_or_else(|refused| refused.response()),
    };
    worker.counters().requests.add(1);
    if response.status().as_u16() >= 400 {
        worker.counters().errors.add(1);
    }
    match *request.method() {
        Method::HEAD => response.map(|_| Bytes::new().into()),
        _ => response,
    }
}

/// Reason why there is no file in a response.
enum Refused {
    Status(StatusCode),
    Rate(String),
    Admission(Refusal),
}

impl Refused {
    fn response(self) -> Response<Body> {
        let (status, text) = match self {
            Refused::Status(status) => return page(status),
            Refused::Rate(text) => (StatusCode::BAD_REQUEST, text),
            Refused::Admission(refusal) => (StatusCode::SERVICE_UNAVAILABLE, refusal.to_string()),
        };
        let mut response = page::<Body>(status);
        let text = format!("{text}\n");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        *response.body_mut() = Body::Rest(text.into());
        response
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        Refused::Status(status_of(&error))
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused::Admission(refusal)
    }
}

async fn find<T>(worker: &Arc<Worker>, request: &Request<T>) -> Result<Response<Body>, Refused> {
    let name = file_name(request.uri().path()).ok_or(Refused::Status(StatusCode::BAD_REQUEST))?;
    for _ in 0..CHANGES_MAX {
        let (file, version) = match open(worker, &name).await? {
            Found::File(file, version) => (file, version),
            Found::Folder if name.is_empty() || name.ends_with('/') => {
                return Err(Refused::Status(StatusCode::NOT_FOUND));
            }
            Found::Folder => return Ok(redirect(&name)),
        };
        let file = Arc::new(file);
        // Of two changes within a tick of the file system's clock the second leaves no trace.
        let head = FileHead::new(&name, version);
        if !head.is_settled {
            tokio::time::sleep(SETTLING).await;
            continue;
        }
        match contents(worker, request, &name, &head, file).await? {
            Err(StreamError::Changed) => {}
            Err(StreamError::Io(error)) => return Err(error.into()),
            Ok(response) => return Ok(response),
        }
    }
    // It changes all the time.
    Err(Refused::Status(StatusCode::SERVICE_UNAVAILABLE))
}

/// Opens a file, on another thread if the kernel has to ask a device.
async fn open(worker: &Worker, name: &str) -> io::Result<Found> {
    let folder = &worker.shared.folder;
    if let Some(found) = folder.open_cached(name)? {
        return Ok(found);
    }
    let (folder, name) = (folder.clone(), name.to_owned());
    // It fails only if the server is ending, or if the work panicked.
    tokio::task::spawn_blocking(move || folder.open_file(&name)).await.map_err(io::Error::other)?
}

async fn contents<T>(
    worker: &Arc<Worker>,
    request: &Request<T>,
    name: &str,
    head: &FileHead,
    file: Arc<OwnedFd>,
) -> Result<Result<Response<Body>, StreamError>, Refused> {
    let (method, headers) = (request.method(), request.headers());
    match head.validators().refusal(method, headers) {
        Some(StatusCode::NOT_MODIFIED) => return Ok(Ok(not_modified(head))),
        Some(status) => return Ok(Ok(page(status))),
        None => {}
    }
    let (status, range) = match head.validators().part(method, headers, head.bytes()) {
        Part::Unsatisfiable => return Ok(Ok(unsatisfiable(head))),
        Part::Whole => (StatusCode::OK, 0..head.bytes()),
        Part::Range(range) => (StatusCode::PARTIAL_CONTENT, range),
    };
    let body = match *method {
        Method::GET if !range.is_empty() => {
            let rate = worker.shared.rates.rate(name, request.uri().query()).map_err(Refused::Rate)?;
            let parts = admit(worker, file, head.version, range.clone(), rate)?;
            match Stream::begin(worker, parts).await {
                Ok(stream) => Body::Stream(Box::new(stream)),
                Err(error) => return Ok(Err(error)),
            }
        }
        _ => Bytes::new().into(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = match status {
        StatusCode::PARTIAL_CONTENT => head.range_fields(&range),
        _ => head.fields(),
    };
    Ok(Ok(response))
}

/// Takes all that a stream needs: its share of rates, then its containers.
fn admit(
    worker: &Arc<Worker>,
    file: Arc<OwnedFd>,
    version: Version,
    range: Range<u64>,
    rate: u64,
) -> Result<Parts, Refusal> {
    let shared = &worker.shared;
    if shared.options.reads == ReadsFrom::Disk {
        read_directly(&file);
    }
    let (chunk_bytes, count) = chunks(&range, rate, shared.options.period);
    let period = Schedule::period(rate, chunk_bytes);
    let counters = worker.counters();
    let count_refusal = |refusal: Refusal| {
        match refusal.resource {
            Resource::Memory => counters.no_memory.add(1),
            Resource::Disk => counters.no_disk.add(1),
            Resource::Processor => counters.no_processor.add(1),
            Resource::Network => counters.no_network.add(1),
        }
        refusal
    };
    let ticket = shared.admission.admit(rate, period, shared.started.elapsed()).map_err(count_refusal)?;
    // Containers never hold more than a range of memory.
    let bytes = chunk_bytes as usize;
    // An error is that of an arena which can never hold so much.
    let Ok(Some(buffers)) = Buffers::new(&shared.memory, count, bytes) else {
        let (size, used) = shared.memory.usage();
        return Err(count_refusal(Refusal::memory(count * bytes, used, size)));
    };
    counters.streams.add(1);
    Ok(Parts { file, version, range, rate, chunk_bytes, ticket, buffers })
}

/// Has the kernel read the file without its page cache, if the file system can.
fn read_directly(file: &OwnedFd) {
    if let Ok(flags) = fcntl_getfl(file) {
        // Refused by file systems that have nothing but a page cache, or that want other alignments.
        let _ = fcntl_setfl(file, flags | OFlags::DIRECT);
    }
}

/// Greatest number of versions of a file that a request tries to begin with.
const CHANGES_MAX: usize = 10;
/// Time after which a file that has just changed is looked at again.
const SETTLING: Duration = Duration::from_millis(50);
/// Time after which a refused client should try again, in seconds: a film may have ended, or a late chunk be forgotten.
const RETRY_SECONDS: &str = "5";
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_which_resource_and_when_to_try_again() {
        let refusal = Refusal::memory(1 << 20, 7, 8);
        let response = Refused::from(refusal).response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[header::RETRY_AFTER], "5");
        let Body::Rest(text) = response.into_body() else { panic!("a stream") };
        assert_eq!(
            text,
            "not enough memory for another stream: a stream needs 1048576 bytes, and 7 of 8 are in use\n"
        );
    }
}
