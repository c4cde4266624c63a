//! Paths: connection to a peer, allocation, shipping and receiving.

use crate::container::Container;
use crate::errors::{ContainerError, OrRaise, closed, exception};
use crate::hold::{Access, ContainerSlot};
use crate::message::{Message, Received};
use crate::options::parse_options;
use crate::records;
use crate::waiting::{Attempt, Deadline, in_own_thread, in_slices};
use bywash_container::{Error, Shipment};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One end of a path to another program; both ends can ship and receive.
///
/// ``Path.connect(name, ...)``, ``Path.over(socket, ...)`` and ``Listener.accept(...)`` make a path. They
/// take these keywords:
///
/// class_
///     ``"checked"`` (default): received bytes are copied out before they are used, since the peer could
///     change them meanwhile. ``"trusted"``: received bytes are read in place. By this keyword you promise
///     that the peer writes to no container between shipping it and getting it back. A peer that uses only
///     this library keeps the promise; a peer that others may have written or broken into does not, and then
///     the bytes that you read change under your eyes. ``"sealed"`` (both ends): each container is memory of
///     its own that nobody can write any more; no promise is needed, and each container costs some system
///     calls. ``"forward"``: received containers can only be shipped on.
/// writable
///     With ``"trusted"``, at both ends: the receiver of a container may write to it in place. By this
///     keyword you also promise that the peer writes only to containers that it owns.
/// arena_bytes
///     Size of this end's arena in bytes, for all containers that it has allocated or shipped at a time;
///     default 16 MiB. 0: this end ships only containers that it received.
/// huge_pages
///     Use of 2 MiB pages: ``"no"`` (default; pages are allocated at the first use), ``"collapse"`` (all
///     pages are allocated at once, and collapsed to huge pages where the kernel can), ``"reserved"``.
/// depth, containers_out_max
///     Greatest number of messages in flight, and of containers that the peer can hold, at a time: powers of
///     two; default 256 and 1024.
/// wait
///     ``"adaptive"`` (default) spins where this has paid, for 100 us at most, then sleeps; ``"spin"``;
///     ``"sleep"``.
/// peer_arena_bytes_max
///     Greatest size of the peer's arena, in bytes; default 64 MiB.
/// handshake_timeout
///     Timeout of the peer's handshake in seconds; default 10.
///
/// Several threads may use a path. Calls that wait let other threads run, and end within some 50 ms with the
/// exception that a signal handler raises (Ctrl-C). A ``timeout`` is in seconds; None waits without end.
/// ``for message in path`` receives until the peer closes.
#[pyclass(frozen, module = "bywash")]
pub(crate) struct Path {
    path: Mutex<Option<Arc<bywash_container::Path>>>,
    access: Access,
    class: &'static str,
}

impl Path {
    pub(crate) fn new(path: bywash_container::Path, access: Access, class: &'static str) -> Path {
        let path = Mutex::new(Some(Arc::new(path)));
        Path { path, access, class }
    }

    fn open(&self) -> PyResult<Arc<bywash_container::Path>> {
        let path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        path.clone().ok_or_else(|| closed("path"))
    }

    /// Waits for `attempt` in slices. The wait also ends when another thread closes the path.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        limit: Deadline,
        mut attempt: impl FnMut(&bywash_container::Path, Duration) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        in_slices(py, limit, |slice| match self.open() {
            Ok(path) => Attempt::Done(attempt(&path, slice)),
            Err(gone) => Attempt::Abandoned(gone),
        })
    }

    fn wrap(&self, py: Python<'_>, message: bywash_container::Message) -> PyResult<Message> {
        Message::new(py, message, self.access)
    }

    fn receive_until(&self, py: Python<'_>, limit: Deadline) -> PyResult<Message> {
        let there = self.open()?.try_receive().or_raise(py)?;
        let message = match there {
            Some(message) => message,
            None => self.wait(py, limit, |path, slice| path.receive_within(slice))?,
        };
        self.wrap(py, message)
    }

    fn ship_one(&self, py: Python<'_>, hold: &ContainerSlot, limit: Deadline) -> PyResult<()> {
        let mut shipment = Some(hold.take().or_raise(py)?);
        let shipped = self.wait(py, limit, |path, slice| {
            let Some(whole) = shipment.take() else { unreachable!("what is not shipped comes back") };
            path.ship_within(*whole, slice).map_err(|refused| {
                shipment = Some(refused.shipment);
                refused.error
            })
        });
        match shipped {
            Ok(()) => hold.shipped(),
            Err(_) => hold.put_back(shipment),
        }
        shipped
    }

    fn ship_several(&self, py: Python<'_>, holds: &[&ContainerSlot], limit: Deadline) -> PyResult<()> {
        let mut shipment = take_all(holds).or_raise(py)?;
        let shipped = self.wait(py, limit, |path, slice| {
            let all = std::mem::take(&mut shipment);
            path.ship_all_within(all, slice).map_err(|refused| {
                shipment = refused.shipment;
                refused.error
            })
        });
        match shipped {
            Ok(()) => holds.iter().for_each(|hold| hold.shipped()),
            Err(_) => put_all_back(holds, shipment),
        }
        shipped
    }
}

/// Takes the containers out of all holds, or out of none if one of them refuses.
fn take_all(holds: &[&ContainerSlot]) -> Result<Vec<Shipment>, ContainerError> {
    let mut shipment = Vec::with_capacity(holds.len());
    for hold in holds {
        match hold.take() {
            Ok(whole) => shipment.push(*whole),
            Err(refused) => {
                put_all_back(&holds[..shipment.len()], shipment);
                return Err(refused);
            }
        }
    }
    Ok(shipment)
}

/// Puts the containers of a failed ship back into their holds. If `shipment` is shorter than `holds`, sealed
/// memory could not be mapped again; the missing containers are unknown, so all are marked as lost.
fn put_all_back(holds: &[&ContainerSlot], shipment: Vec<Shipment>) {
    let is_whole = holds.len() == shipment.len();
    let mut shipment = shipment.into_iter();
    holds.iter().for_each(|hold| hold.put_back(shipment.next().filter(|_| is_whole).map(Box::new)));
}

/// A container to ship, referenced while it is shipped.
enum Piece<'py> {
    Container(Bound<'py, Container>),
    Received(Bound<'py, Received>),
}

impl Piece<'_> {
    fn hold(&self) -> &ContainerSlot {
        match self {
            Piece::Container(container) => &container.get().hold,
            Piece::Received(received) => &received.get().hold,
        }
    }
}

fn collect<'py>(shipment: &Bound<'py, PyTuple>) -> PyResult<Vec<Piece<'py>>> {
    let mut pieces = Vec::with_capacity(shipment.len());
    for one in shipment {
        if let Ok(container) = one.cast::<Container>() {
            pieces.push(Piece::Container(container.clone()));
        } else if let Ok(received) = one.cast::<Received>() {
            pieces.push(Piece::Received(received.clone()));
        } else if let Ok(message) = one.cast::<Message>() {
            pieces.extend(message.get().pieces(shipment.py())?.into_iter().map(Piece::Received));
        } else {
            let text = format!(
                "a {} cannot be shipped; allocate a container, fill it and ship that",
                one.get_type().name()?
            );
            return Err(PyTypeError::new_err(text));
        }
    }
    Ok(pieces)
}

/// Takes ownership of a descriptor from Python: of a socket object, which is detached, or of a number.
fn take_descriptor(socket: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    let number: c_int = match socket.extract() {
        Ok(number) => number,
        Err(_) if socket.hasattr("detach")? => socket.call_method0("detach")?.extract()?,
        Err(_) => {
            return Err(PyTypeError::new_err("a path goes over a socket or the number of a descriptor"));
        }
    };
    let is_open = number >= 0 && {
        // SAFETY: the descriptor is borrowed only to ask the kernel if the number is open.
        rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).is_ok()
    };
    if !is_open {
        return Err(PyValueError::new_err(format!("descriptor {number} is not open")));
    }
    // SAFETY: the descriptor is open, and the caller has given it away, as `Path.over` documents.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[pymethods]
impl Path {
    /// Makes a path to the process that listens at ``name``; keywords: see the class.
    #[staticmethod]
    #[pyo3(signature = (name, **options), text_signature = "(name, *, class_='checked', **options)")]
    fn connect(py: Python<'_>, name: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Path> {
        let chosen = parse_options(py, options)?;
        let options = chosen.options;
        let path = in_own_thread(py, move || bywash_container::Path::connect(name, &options))?;
        Ok(Path::new(path, chosen.access, chosen.class))
    }

    /// Makes a path over a socket of ``socket_pair`` or an inherited socket; keywords: see the class.
    ///
    /// Waits until the other end does the same, in its own process. ``socket`` is a ``socket.socket``, which
    /// is detached, or the number of a descriptor, which the path owns from here on.
    #[staticmethod]
    #[pyo3(signature = (socket, **options), text_signature = "(socket, *, class_='checked', **options)")]
    fn over(
        py: Python<'_>,
        socket: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Path> {
        let chosen = parse_options(py, options)?;
        let socket = take_descriptor(socket)?;
        let options = chosen.options;
        let path = in_own_thread(py, move || bywash_container::Path::over(socket, &options))?;
        Ok(Path::new(path, chosen.access, chosen.class))
    }

    /// Allocates a container of ``nbytes`` bytes, and waits for room in the arena.
    #[pyo3(signature = (nbytes, timeout=None))]
    fn alloc(&self, py: Python<'_>, nbytes: usize, timeout: Option<f64>) -> PyResult<Container> {
        let limit = Deadline::after(timeout)?;
        let there = self.open()?.try_alloc(nbytes).or_raise(py)?;
        let made = match there {
            Some(container) => container,
            None => self.wait(py, limit, |path, slice| path.alloc_within(nbytes, slice))?,
        };
        Ok(Container::new(made))
    }

    /// Like ``alloc``, but without waiting: returns None when the arena is full.
    fn try_alloc(&self, py: Python<'_>, nbytes: usize) -> PyResult<Option<Container>> {
        Ok(self.open()?.try_alloc(nbytes).or_raise(py)?.map(Container::new))
    }

    /// Ships containers as one message, and waits for room. Takes containers of this path, received
    /// containers, and messages, whose containers are all shipped. The containers belong to the peer then. If
    /// the call fails, nothing is shipped and all containers stay here.
    #[pyo3(signature = (*shipment, timeout=None))]
    fn ship(&self, py: Python<'_>, shipment: &Bound<'_, PyTuple>, timeout: Option<f64>) -> PyResult<()> {
        let limit = Deadline::after(timeout)?;
        let pieces = collect(shipment)?;
        match &pieces[..] {
            [one] => self.ship_one(py, one.hold(), limit),
            _ => {
                let holds: Vec<&ContainerSlot> = pieces.iter().map(Piece::hold).collect();
                self.ship_several(py, &holds, limit)
            }
        }
    }

    /// Receives the next message, and waits for it.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        self.receive_until(py, Deadline::after(timeout)?)
    }

    /// Like ``receive``, but without waiting: returns None when no message is there.
    fn try_receive(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let there = self.open()?.try_receive().or_raise(py)?;
        there.map(|message| self.wrap(py, message)).transpose()
    }

    /// Prepares ``fileno()`` for an event loop; call this when ``try_receive`` has returned None. False:
    /// ``fileno()`` becomes readable when the peer ships a message or is gone. True: something has arrived
    /// already, call ``try_receive`` again. The next call of ``arm`` clears
    /// the notification.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.open()?.arm().or_raise(py)
    }

    /// Returns the path's descriptor: wait for it to become readable, and do nothing else with it.
    fn fileno(&self) -> PyResult<c_int> {
        Ok(self.open()?.as_fd().as_raw_fd())
    }

    /// Credentials of the peer: process, user, group, as the kernel reports them.
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        records::credentials(py, self.open()?.peer())
    }

    /// Returns the counters of this end.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        records::stats(py, self.open()?.stats())
    }

    /// Closes this end. The peer receives the messages shipped before, and then ``Closed``. Containers and
    /// messages that this program owns stay valid.
    fn close(&self) {
        let path = self.path.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(path);
    }

    /// True if this end was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open().is_err()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, _why: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        match self.receive_until(py, Deadline::after(None)?) {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.get_type(py).is(exception(py, &Error::Closed).get_type(py)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn __repr__(&self) -> String {
        match self.open() {
            Ok(path) => format!("<bywash.Path: {}, to process {}>", self.class, path.peer().pid),
            Err(_) => "<bywash.Path: closed>".into(),
        }
    }
}
