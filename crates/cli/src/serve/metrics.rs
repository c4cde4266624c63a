//! `--metrics`: the HTTP endpoint at which a server publishes its metrics.
//!
//! The metrics name users and volumes, which `bywash serve status` shows to administrators only. So by
//! default they are served at a Unix socket of the server's user, or at a network address to clients that
//! bear a token.

use super::prometheus;
use crate::cli::addresses::MetricsArg;
use crate::error::Failure;
use crate::http::{Content, Listener, Service};
use bywash_link::SocketFile;
use bywash_server::StatusHandle;
use std::borrow::Cow;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Least size of a token, in bytes: a shorter one could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Endpoint of the metrics, open until this is dropped.
pub struct StatusReport {
    /// Name of the socket, which is dropped, and so removed, before the socket itself.
    _name: Option<SocketFile>,
    /// Socket or address, as text for people.
    pub place: String,
    pub listener: Listener,
    pub service: Arc<Service>,
}

impl StatusReport {
    pub fn failed(&self, source: io::Error) -> Failure {
        Failure::Metrics { place: self.place.clone(), source }
    }
}

/// Opens the endpoint.
///
/// # Errors
/// [`Failure::Metrics`] if the socket or address cannot be bound, [`Failure::Read`] if the token's file
/// cannot be read, [`Failure::Description`] if other users can reach the token or it is unfit.
pub fn start(argument: &MetricsArg, watch: StatusHandle) -> Result<StatusReport, Failure> {
    let site = move |path: &str| match path {
        "/metrics" => {
            let status = watch.status().ok_or("the server stops\n")?;
            let bytes = Cow::Owned(prometheus::text(&status).into_bytes());
            Ok(Content { kind: prometheus::CONTENT_TYPE, bytes })
        }
        _ => Err("there is only /metrics\n"),
    };
    match argument {
        MetricsArg::Unix(socket) => {
            let place = format!("{}, under /metrics", socket.path.display());
            let failed = |source| Failure::Metrics { place: place.clone(), source };
            let (listener, name) = socket.listen().map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            Ok(StatusReport {
                _name: Some(name),
                place,
                listener: Listener::Unix(listener),
                service: Service::new(Box::new(site), None),
            })
        }
        MetricsArg::Tcp { address, token } => {
            let failed = |source| Failure::Metrics { place: address.to_string(), source };
            let token = token.as_deref().map(read_token).transpose()?;
            let listener = TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let place = format!("http://{}/metrics", listener.local_addr().map_err(failed)?);
            Ok(StatusReport {
                _name: None,
                place,
                listener: Listener::Tcp(listener),
                service: Service::new(Box::new(site), token),
            })
        }
    }
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let failed = |source| Failure::Read { path: path.to_owned(), source };
    let unfit = |reason: String| Failure::Description { path: path.to_owned(), reason };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o007 != 0 {
        let reason = format!("everybody can reach this token (mode {:03o}); chmod o= it", mode & 0o777);
        return Err(unfit(reason));
    }
    let token = fs::read_to_string(path).map_err(failed)?.trim().to_owned();
    if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let reason = format!("a token has {TOKEN_BYTES_MIN} or more letters, digits and signs, in one line");
        return Err(unfit(reason));
    }
    Ok(token)
}
