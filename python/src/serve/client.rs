//! A connection to a device server.

use crate::container::contiguous;
use crate::errors::closed;
use crate::options::one_of;
use crate::serve::options::{Chosen, chosen};
use crate::serve::queue::Queue;
use crate::serve::volume::{Volume, check_apart};
use crate::serve::{ACCESSES, beside, bytes_of, call, copy_of_descriptor, room_of, writable};
use bywash_client::{Client as Connected, Error, NewVolume, Permissions, ReadPiece, WritePiece};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A connection to a device server, ``bywash serve``, whose volumes it opens.
///
/// ``Client.connect(socket, ...)`` makes one. It takes these keywords:
///
/// name
///     What the server's reports call the program, 64 bytes at most; default: the interpreter's file.
/// limit
///     Seconds that the server may take for every answer; default 10.
/// depth
///     Requests under way at a time, a power of two; default 256, or what the server allows.
/// arena_bytes
///     Bytes of the memory that data is copied through where a volume is not mapped; default 16 MiB, or what the server
///     allows.
/// wait
///     ``"adaptive"`` (default) spins where that has paid, for 100 us at most, then sleeps; ``"spin"``; ``"sleep"``.
/// reconnect
///     Seconds for which it is tried to connect again when the server has gone; what was not completed is asked again
///     then. None (default): ``ServerGone``.
/// choice
///     ``"automatic"`` (default): volumes are mapped where the medium is memory that can be, else their bytes go through
///     the channel to the server. ``"mapped"``: or not at all. ``"channel"``: never mapped.
/// trusted
///     Views of a queue's buffers (``Queue.alloc``) can be had. By saying so you promise that the server writes to none
///     of them but while a request with it is under way; else what you look at changes under your eyes.
///
/// Threads may share a client and its volumes. Calls that wait let other threads run, end within the limit, and with the
/// exception of a signal handler (Ctrl-C) within some 50 ms: what was asked may still be done then. The connection goes
/// with the client and the last of its volumes.
#[pyclass(frozen, module = "bywash.serve")]
pub(crate) struct Client {
    client: Mutex<Option<Connected>>,
    socket: PathBuf,
    chosen: Chosen,
}

impl Client {
    fn open(&self) -> PyResult<Connected> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.clone().ok_or_else(|| closed("client"))
    }

    /// Asks the server.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&Connected) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let client = self.open()?;
        beside(py, move || ask(&client))
    }

    fn report<'py, T: serde::Serialize + Send + 'static>(
        &self,
        py: Python<'py>,
        ask: impl FnOnce(&Connected) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>> {
        let told = self.ask(py, ask)?;
        // Numbers, strings and lists always have a JSON form.
        let json = serde_json::to_string(&told).unwrap_or_default();
        py.import("json")?.call_method1("loads", (json,))
    }
}

#[pymethods]
impl Client {
    /// Connects to the server that listens at ``socket``; keywords as told at the class.
    #[staticmethod]
    #[pyo3(signature = (socket, **options), text_signature = "(socket, *, choice='automatic', **options)")]
    fn connect(py: Python<'_>, socket: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Client> {
        let chosen = chosen(options)?;
        let (place, options) = (socket.clone(), chosen.options.clone());
        let client = beside(py, move || Connected::connect(place, options))?;
        Ok(Client { client: Mutex::new(Some(client)), socket, chosen })
    }

    /// Opens a volume by its name, for ``"read"``, ``"write"`` or ``"read-write"``.
    ///
    /// ``MissingError``, ``DeniedError``, or ``NotMappedError`` where it must be mapped and cannot be.
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

    /// Opens a regular file or a block device that the program has opened: a file object, or the number of a descriptor,
    /// which stays the program's. What may be done with the volume is what the descriptor's access mode is.
    fn open_descriptor(&self, py: Python<'_>, file: &Bound<'_, PyAny>) -> PyResult<Volume> {
        let file = copy_of_descriptor(file)?;
        self.ask(py, move |client| client.open_descriptor(file)).map(Volume::new)
    }

    /// A queue of requests that do not wait, over a connection of its own with the same keywords.
    fn queue(&self, py: Python<'_>) -> PyResult<Queue> {
        let made = self.ask(py, Connected::queue)?;
        Ok(Queue::new(made, self.chosen.limit, self.chosen.reconnects))
    }

    /// The volumes that this client may see: a list of dicts, as ``bywash volume list --json`` has them.
    fn volumes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.report(py, Connected::volumes)
    }

    /// Returns the status of the server: a dict, the same as ``bywash serve status --json`` prints.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.report(py, Connected::status)
    }

    /// Reads parts of several volumes by one request: ``(volume, offset, buffer)`` each, 1 to 32 of them; the buffers may
    /// not overlap. If something is wrong with one of them, nothing is read.
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
                // SAFETY: as for any call that reads into a buffer; they do not overlap.
                ReadPiece { volume, offset: *offset, to: unsafe { room_of(buffer) } }
            })
            .collect();
        call(py, || client.read_many(&mut pieces))
    }

    /// Writes to parts of several volumes by one request: ``(volume, offset, data)`` each, 1 to 32 of them. If something
    /// is wrong with one of them, nothing is written. With ``durable`` all of it is durable when this returns.
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
                // SAFETY: as for any call that writes what is in a buffer.
                WritePiece { volume, offset: *offset, from: unsafe { bytes_of(data) } }
            })
            .collect();
        call(py, || match durable {
            true => client.write_many_durable(&pieces),
            false => client.write_many(&pieces),
        })
    }

    /// Makes a volume of at least ``nbytes`` on a device. The owner and the group are the program's if nothing is said;
    /// of the mode the bits to read and to write count. Only the server's own user and root may do this, and what
    /// follows here.
    #[pyo3(signature = (name, device, nbytes, *, owner=None, group=None, mode=0o600))]
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
    ) -> PyResult<()> {
        let owner = owner.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let group = group.unwrap_or_else(|| rustix::process::getegid().as_raw());
        let volume = NewVolume { name, device, bytes: nbytes, owner, group, mode };
        self.ask(py, move |client| client.create(volume))
    }

    /// Makes a volume larger or smaller; the rights to a smaller one are taken back.
    fn resize(&self, py: Python<'_>, name: String, nbytes: u64) -> PyResult<()> {
        self.ask(py, move |client| client.resize(&name, nbytes))
    }

    /// Gives a volume another name.
    fn rename(&self, py: Python<'_>, name: String, to: String) -> PyResult<()> {
        self.ask(py, move |client| client.rename(&name, &to))
    }

    /// Changes who may do what with a volume, and takes all rights to it back. What is None stays as it is.
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
        let permissions = Permissions { owner, group, mode, read_only };
        self.ask(py, move |client| client.permit(&name, permissions))
    }

    /// Removes a volume: the rights to it are taken back, and its contents are cleared.
    fn remove(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.ask(py, move |client| client.remove(&name))
    }

    /// Takes back all rights to a volume, and waits until no request by them is under way.
    fn revoke(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.ask(py, move |client| client.revoke(&name))
    }

    /// The client's number, as reports name it.
    #[getter]
    fn number(&self, py: Python<'_>) -> PyResult<u64> {
        let client = self.open()?;
        Ok(py.detach(|| client.number()))
    }

    /// Number of times that the client has reconnected.
    #[getter]
    fn reconnects(&self) -> PyResult<u64> {
        Ok(self.open()?.reconnects())
    }

    /// Bytes of the arena that are not used again, since a device that did not answer in time may still write there.
    #[getter]
    fn lost_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        let client = self.open()?;
        Ok(py.detach(|| client.lost_bytes()))
    }

    /// Closes the client; volumes that it has opened stay open.
    fn close(&self, py: Python<'_>) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(client));
    }

    /// True if this object was closed.
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
