//! Connections to a device server.

use crate::container::contiguous;
use crate::errors::closed;
use crate::options::one_of;
use crate::serve::options::{ClientOptions, parse_options};
use crate::serve::queue::Queue;
use crate::serve::volume::{Volume, check_apart};
use crate::serve::{ACCESSES, bytes_mut_of, bytes_of, call, copy_of_descriptor, in_own_thread, writable};
use bywash_client::{Client as Connected, Error, NewVolume, Permissions, ReadPiece, WritePiece};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A connection to a device server, ``bywash serve``, which opens volumes.
///
/// ``Client.connect(socket, ...)`` makes a client. It takes these keywords:
///
/// name
///     Name of the program in the server's reports, 64 bytes at most; default: the interpreter's file.
/// limit
///     Timeout of each request to the server, in seconds; default 10.
/// depth
///     Greatest number of requests in flight, a power of two; default 256, or the server's limit.
/// arena_bytes
///     Size in bytes of the memory that data is copied through where a volume is not mapped; default 16 MiB,
///     or the server's limit.
/// wait
///     ``"adaptive"`` (default) spins where this has paid, for 100 us at most, then sleeps; ``"spin"``;
///     ``"sleep"``.
/// reconnect
///     Time in seconds for which the client tries to connect again after the server has gone; requests that
///     were not completed are submitted again then. None (default): the calls raise ``ServerGone``.
/// choice
///     ``"automatic"`` (default): a volume is mapped where its medium is memory that can be mapped; otherwise
///     its bytes move through the channel to the server. ``"mapped"``: opening fails where a volume cannot be
///     mapped. ``"channel"``: no volume is mapped.
/// trusted
///     Allows views of a queue's buffers (``Queue.alloc``). By this keyword you promise that the server
///     writes to a buffer only while a request with it is in flight; otherwise the bytes that you read change
///     under your eyes.
///
/// Threads may share a client and its volumes. Calls that wait let other threads run, end within ``limit``,
/// and end within some 50 ms with the exception that a signal handler raises (Ctrl-C); the server may still
/// carry out the request then. The connection closes with the client and the last of its volumes.
#[pyclass(frozen, module = "bywash.serve")]
pub(crate) struct Client {
    client: Mutex<Option<Connected>>,
    socket: PathBuf,
    chosen: ClientOptions,
}

impl Client {
    fn open(&self) -> PyResult<Connected> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.clone().ok_or_else(|| closed("client"))
    }

    /// Sends a request to the server, in a thread of its own, and waits for the result.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&Connected) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let client = self.open()?;
        in_own_thread(py, move || ask(&client))
    }

    fn report<'py, T: serde::Serialize + Send + 'static>(
        &self,
        py: Python<'py>,
        ask: impl FnOnce(&Connected) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let told = self.ask(py, ask)?;
        // Numbers, strings and lists always have a JSON form, so serialisation cannot fail.
        let json = serde_json::to_string(&told).unwrap_or_default();
        py.import("json")?.call_method1("loads", (json,))
    }
}

#[pymethods]
impl Client {
    /// Connects to the server that listens at ``socket``; keywords: see the class.
    #[staticmethod]
    #[pyo3(signature = (socket, **options), text_signature = "(socket, *, choice='automatic', **options)")]
    fn connect(py: Python<'_>, socket: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Client> {
        let chosen = parse_options(options)?;
        let (place, options) = (socket.clone(), chosen.options.clone());
        let client = in_own_thread(py, move || Connected::connect(place, options))?;
        Ok(Client { client: Mutex::new(Some(client)), socket, chosen })
    }

    /// Opens a volume by its name, for ``"read"``, ``"write"`` or ``"read-write"``.
    ///
    /// Raises ``MissingError`` if no such volume exists, ``DeniedError`` if the access is not permitted, and
    /// ``NotMappedError`` if ``choice`` is ``"mapped"`` and the volume cannot be mapped.
    #[pyo3(name = "open", signature = (name, access=None), text_signature = "($self, name, access='read')")]
    fn open_volume(
        &self,
        py: Python<'_>,
        name: String,
        access: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Volume> {
        let access = access.map_or(Ok(ACCESSES[0].1), |access| one_of("access", access, &ACCESSES))?;
        self.ask(py, move |client| client.open(&name, access)).map(Volume::new)
    }

    /// Opens a regular file or block device that the program has opened, as a volume: a file object, or the
    /// number of a descriptor, which stays the program's. The access mode of the descriptor is the access to
    /// the volume.
    fn open_descriptor(&self, py: Python<'_>, file: &Bound<'_, PyAny>) -> PyResult<Volume> {
        let file = copy_of_descriptor(file)?;
        self.ask(py, move |client| client.open_descriptor(file)).map(Volume::new)
    }

    /// Makes a queue for requests that do not wait, over a connection of its own with the same keywords.
    fn queue(&self, py: Python<'_>) -> PyResult<Queue> {
        let made = self.ask(py, Connected::queue)?;
        Ok(Queue::new(made, self.chosen.limit, self.chosen.reconnects))
    }

    /// Returns the volumes that this client may see: a list of dicts, with the keys of ``bywash volume list
    /// --json``.
    fn volumes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.report(py, Connected::volumes)
    }

    /// Returns the state of the server: a dict, with the keys of ``bywash serve status --json``.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.report(py, Connected::status)
    }

    /// Reads ranges of several volumes by one request: 1 to 32 tuples ``(volume, offset, buffer)``. The
    /// buffers must not overlap. If one of the ranges is invalid, nothing is read.
    fn read_many(
        &self,
        py: Python<'_>,
        pieces: Vec<(PyRef<'_, Volume>, u64, Bound<'_, PyAny>)>,
    ) -> PyResult<()> {
        let client = self.open()?;
        let mut opened = Vec::with_capacity(pieces.len());
        for (volume, offset, buffer) in &pieces {
            opened.push((volume.open()?, *offset, writable(buffer)?));
        }
        check_apart(opened.iter().map(|piece| &piece.2))?;
        let mut pieces: Vec<ReadPiece<'_>> = opened
            .iter()
            .map(|(volume, offset, buffer)| {
                // SAFETY: each room is valid while `opened` holds its buffer, and `check_apart` has found
                // that none overlap.
                ReadPiece { volume, offset: *offset, to: unsafe { bytes_mut_of(buffer) } }
            })
            .collect();
        call(py, || client.read_many(&mut pieces))
    }

    /// Writes ranges of several volumes by one request: 1 to 32 tuples ``(volume, offset, data)``. If one of
    /// the ranges is invalid, nothing is written. With ``durable``, all data is durable when this returns.
    #[pyo3(signature = (pieces, durable=false))]
    fn write_many(
        &self,
        py: Python<'_>,
        pieces: Vec<(PyRef<'_, Volume>, u64, Bound<'_, PyAny>)>,
        durable: bool,
    ) -> PyResult<()> {
        let client = self.open()?;
        let mut opened = Vec::with_capacity(pieces.len());
        for (volume, offset, data) in &pieces {
            opened.push((volume.open()?, *offset, contiguous(data)?));
        }
        let pieces: Vec<WritePiece<'_>> = opened
            .iter()
            .map(|(volume, offset, data)| {
                // SAFETY: the bytes are valid while `opened` holds their buffer; a thread that writes to them
                // meanwhile mixes them up.
                WritePiece { volume, offset: *offset, from: unsafe { bytes_of(data) } }
            })
            .collect();
        call(py, || match durable {
            true => client.write_many_durable(&pieces),
            false => client.write_many(&pieces),
        })
    }

    /// Creates a volume of at least ``nbytes`` bytes on a device. The owner and the group default to those of
    /// the program; of the mode, only the read and write bits count. Only the server's own user and root may
    /// call this and the methods that follow, up to ``revoke``. A thin volume takes space on the device where it is
    /// first written.
    #[pyo3(signature = (name, device, nbytes, *, owner=None, group=None, mode=0o600, thin=false))]
    #[expect(clippy::too_many_arguments, reason = "keywords")]
    fn create(
        &self,
        py: Python<'_>,
        name: String,
        device: String,
        nbytes: u64,
        owner: Option<u32>,
        group: Option<u32>,
        mode: u16,
        thin: bool,
    ) -> PyResult<()> {
        let mut volume = NewVolume::new(name, device, nbytes).mode(mode).thin(thin);
        if let Some(owner) = owner {
            volume = volume.owner(owner);
        }
        if let Some(group) = group {
            volume = volume.group(group);
        }
        self.ask(py, move |client| client.create(volume))
    }

    /// Changes the size of a volume. Shrinking it revokes all grants to it.
    fn resize(&self, py: Python<'_>, name: String, nbytes: u64) -> PyResult<()> {
        self.ask(py, move |client| client.resize(&name, nbytes))
    }

    /// Renames a volume.
    fn rename(&self, py: Python<'_>, name: String, to: String) -> PyResult<()> {
        self.ask(py, move |client| client.rename(&name, &to))
    }

    /// Changes the owner, group, mode or read-only flag of a volume, and revokes all grants to it. An
    /// argument of None leaves its property as it is.
    #[pyo3(signature = (name, *, owner=None, group=None, mode=None, read_only=None))]
    fn permit(
        &self,
        py: Python<'_>,
        name: String,
        owner: Option<u32>,
        group: Option<u32>,
        mode: Option<u16>,
        read_only: Option<bool>,
    ) -> PyResult<()> {
        let permissions = Permissions::default().owner(owner).group(group).mode(mode).read_only(read_only);
        self.ask(py, move |client| client.permit(&name, permissions))
    }

    /// Takes a snapshot of a thin volume: a volume that nobody can write, with the contents of one instant. Every
    /// write that completed before this call is in it, and all of it is durable when this returns. It takes space
    /// only where the volume is written afterwards.
    fn snapshot(&self, py: Python<'_>, name: String, snapshot: String) -> PyResult<()> {
        self.ask(py, move |client| client.snapshot(&name, &snapshot))
    }

    /// Creates a thin volume with the contents, the owner, the group and the mode of a snapshot.
    fn clone_snapshot(&self, py: Python<'_>, snapshot: String, name: String) -> PyResult<()> {
        self.ask(py, move |client| client.clone_snapshot(&snapshot, &name))
    }

    /// Gives a thin volume the contents and the size that one of its snapshots has, and revokes all grants to it.
    /// Refused while a client has it open for writing.
    fn rollback(&self, py: Python<'_>, name: String, snapshot: String) -> PyResult<()> {
        self.ask(py, move |client| client.rollback(&name, &snapshot))
    }

    /// Removes a volume: revokes the grants to it and clears its contents, except what snapshots or clones have, too.
    fn remove(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.ask(py, move |client| client.remove(&name))
    }

    /// Revokes all grants to a volume, and waits until no request of theirs is in flight.
    fn revoke(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.ask(py, move |client| client.revoke(&name))
    }

    /// Number of the client in the server's reports.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<u64> {
        let client = self.open()?;
        Ok(py.detach(|| client.number()))
    }

    /// Number of times that the client has connected again.
    #[getter]
    fn reconnects(&self) -> PyResult<u64> {
        Ok(self.open()?.reconnects())
    }

    /// Number of bytes of the arena that are not reused, since a device that did not complete in time may
    /// still write there.
    #[getter]
    fn lost_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        let client = self.open()?;
        Ok(py.detach(|| client.lost_bytes()))
    }

    /// Closes the client. Volumes that it has opened stay open.
    fn close(&self, py: Python<'_>) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(client));
    }

    /// True if the client was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open().is_err()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, py: Python<'_>, _why: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { ", closed" } else { "" };
        format!("<bywash.serve.Client: {}{state}>", self.socket.display())
    }
}
