//! Paths: how a Python program comes to a peer, and the six operations.

use crate::container::Container;
use crate::errors::{OrRaise, Refused, closed, exception};
use crate::hold::{Access, Hold};
use crate::message::{Message, Received};
use crate::options::chosen;
use crate::records;
use crate::waiting::{Attempt, Limit, beside, in_slices};
use bywash_container::{Cargo, Error};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One end of a path to another program: both ends can ship and receive.
///
/// ``Path.connect(name, ...)``, ``Path.over(socket, ...)`` and ``Listener.accept(...)`` make one. They take these
/// keywords:
///
/// class_
///     ``"checked"`` (default): what is received is copied out before it is believed, since the peer could change
///     it meanwhile. ``"trusted"``: it is looked at where it is. By saying so you promise that the peer writes
///     nothing that it has shipped until it has come back; a peer that uses this library and nothing else keeps
///     that, one that others may have written or broken into does not, and then what you look at changes under
///     your eyes. ``"sealed"`` (both ends): each container is memory of its own that nobody can write any more; no
///     promise is needed, and each costs some system calls. ``"forward"``: what is received is only shipped on.
/// writable
///     With ``"trusted"``, at both ends: who receives a container may write it in place. You also promise that the
///     peer writes nothing that it does not have.
/// arena_bytes
///     What this end can have out and in the making at a time; default 16 MiB, 0: it ships only what it received.
/// huge_pages
///     Pages of 2 MiB: ``"no"`` (default; memory is taken as it is used), ``"collapse"`` (all of it is taken at once,
///     and made into such pages where the kernel can), ``"reserved"``.
/// depth, containers_out_max
///     Messages on their way, and containers that the peer can have, at a time: powers of two; 256 and 1024.
/// wait
///     ``"adaptive"`` (default) spins where that has paid, for 100 us at most, then sleeps; ``"spin"``; ``"sleep"``.
/// peer_arena_bytes_max
///     Bytes that the peer's memory may have; default 64 MiB.
/// greeting_limit
///     Seconds that the peer may take to present itself; default 10.
///
/// Several threads may use a path. Calls that wait let other threads run, and end with the exception of a signal
/// handler (Ctrl-C) within some 50 ms. A ``timeout`` is in seconds; None waits for ever. ``for message in path``
/// receives until the peer closes.
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

    /// Waits; another thread that closes the path ends that as well.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        limit: Limit,
        mut attempt: impl FnMut(&bywash_container::Path, Duration) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        in_slices(py, limit, |slice| match self.open() {
            Ok(path) => Attempt::Done(attempt(&path, slice)),
            Err(gone) => Attempt::Over(gone),
        })
    }

    fn wrap(&self, py: Python<'_>, message: bywash_container::Message) -> PyResult<Message> {
        Message::new(py, message, self.access)
    }

    fn receive_until(&self, py: Python<'_>, limit: Limit) -> PyResult<Message> {
        let there = self.open()?.try_receive().or_raise(py)?;
        let message = match there {
            Some(message) => message,
            None => self.wait(py, limit, |path, slice| path.receive_within(slice))?,
        };
        self.wrap(py, message)
    }

    fn ship_one(&self, py: Python<'_>, hold: &Hold, limit: Limit) -> PyResult<()> {
        let mut cargo = Some(hold.take().or_raise(py)?);
        let shipped = self.wait(py, limit, |path, slice| {
            let Some(whole) = cargo.take() else { unreachable!("what is not shipped comes back") };
            path.ship_within(*whole, slice).map_err(|refused| {
                cargo = Some(refused.cargo);
                refused.error
            })
        });
        match shipped {
            Ok(()) => hold.shipped(),
            Err(_) => hold.put_back(cargo),
        }
        shipped
    }

    fn ship_several(&self, py: Python<'_>, holds: &[&Hold], limit: Limit) -> PyResult<()> {
        let mut cargo = take_all(holds).or_raise(py)?;
        let shipped = self.wait(py, limit, |path, slice| {
            let all = std::mem::take(&mut cargo);
            path.ship_all_within(all, slice).map_err(|refused| {
                cargo = refused.cargo;
                refused.error
            })
        });
        match shipped {
            Ok(()) => holds.iter().for_each(|hold| hold.shipped()),
            Err(_) => put_all_back(holds, cargo),
        }
        shipped
    }
}

/// Takes all, or none.
fn take_all(holds: &[&Hold]) -> Result<Vec<Cargo>, Refused> {
    let mut cargo = Vec::with_capacity(holds.len());
    for hold in holds {
        match hold.take() {
            Ok(whole) => cargo.push(*whole),
            Err(refused) => {
                put_all_back(&holds[..cargo.len()], cargo);
                return Err(refused);
            }
        }
    }
    Ok(cargo)
}

/// Returns containers to their objects after a failed ship. If one is missing, since sealed memory could not be mapped again,
/// the others are dropped too, because nobody knows which one it is.
fn put_all_back(holds: &[&Hold], cargo: Vec<Cargo>) {
    let is_whole = holds.len() == cargo.len();
    let mut cargo = cargo.into_iter();
    holds.iter().for_each(|hold| hold.put_back(cargo.next().filter(|_| is_whole).map(Box::new)));
}

/// Something that can be shipped, kept while that is done.
enum Piece<'py> {
    Container(Bound<'py, Container>),
    Received(Bound<'py, Received>),
}

impl Piece<'_> {
    fn hold(&self) -> &Hold {
        match self {
            Piece::Container(container) => &container.get().hold,
            Piece::Received(received) => &received.get().hold,
        }
    }
}

fn collect<'py>(cargo: &Bound<'py, PyTuple>) -> PyResult<Vec<Piece<'py>>> {
    let mut pieces = Vec::with_capacity(cargo.len());
    for one in cargo {
        if let Ok(container) = one.cast::<Container>() {
            pieces.push(Piece::Container(container.clone()));
        } else if let Ok(received) = one.cast::<Received>() {
            pieces.push(Piece::Received(received.clone()));
        } else if let Ok(message) = one.cast::<Message>() {
            pieces.extend(message.get().pieces(cargo.py())?.into_iter().map(Piece::Received));
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

/// Takes a descriptor over from Python.
fn take_descriptor(socket: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    let number: c_int = match socket.extract() {
        Ok(number) => number,
        Err(_) if socket.hasattr("detach")? => socket.call_method0("detach")?.extract()?,
        Err(_) => {
            return Err(PyTypeError::new_err("a path goes over a socket or the number of a descriptor"));
        }
    };
    let is_open = number >= 0 && {
        // SAFETY: borrowed for one question about the number.
        rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).is_ok()
    };
    if !is_open {
        return Err(PyValueError::new_err(format!("descriptor {number} is not open")));
    }
    // SAFETY: it is open, and was given away, as `Path.over` says.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[pymethods]
impl Path {
    /// Makes a path to whoever listens at ``name``; keywords as told at the class.
    #[staticmethod]
    #[pyo3(signature = (name, **options), text_signature = "(name, *, class_='checked', **options)")]
    fn connect(py: Python<'_>, name: PathBuf, options: Option<&Bound<'_, PyDict>>) -> PyResult<Path> {
        let chosen = chosen(py, options)?;
        let options = chosen.options;
        let path = beside(py, move || bywash_container::Path::connect(name, &options))?;
        Ok(Path::new(path, chosen.access, chosen.class))
    }

    /// Makes a path over a socket of ``socket_pair``, or one that was inherited; keywords as told at the class.
    ///
    /// It waits until the other end does the same, in its own process. ``socket`` is a ``socket.socket``, which is
    /// detached, or the number of a descriptor, which is the path's from here on.
    #[staticmethod]
    #[pyo3(signature = (socket, **options), text_signature = "(socket, *, class_='checked', **options)")]
    fn over(
        py: Python<'_>,
        socket: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Path> {
        let chosen = chosen(py, options)?;
        let socket = take_descriptor(socket)?;
        let options = chosen.options;
        let path = beside(py, move || bywash_container::Path::over(socket, &options))?;
        Ok(Path::new(path, chosen.access, chosen.class))
    }

    /// Allocates a container of ``nbytes``, waiting for room.
    #[pyo3(signature = (nbytes, timeout=None))]
    fn alloc(&self, py: Python<'_>, nbytes: usize, timeout: Option<f64>) -> PyResult<Container> {
        let limit = Limit::of(timeout)?;
        let there = self.open()?.try_alloc(nbytes).or_raise(py)?;
        let made = match there {
            Some(container) => container,
            None => self.wait(py, limit, |path, slice| path.alloc_within(nbytes, slice))?,
        };
        Ok(Container::new(made))
    }

    /// As ``alloc``, without waiting: None when the arena is used up.
    fn try_alloc(&self, py: Python<'_>, nbytes: usize) -> PyResult<Option<Container>> {
        Ok(self.open()?.try_alloc(nbytes).or_raise(py)?.map(Container::new))
    }

    /// Ships containers as one message, waiting for room: containers of this path, received ones, and messages,
    /// whose containers all go along. They are the peer's then. If it fails, nothing was shipped, and all stay.
    #[pyo3(signature = (*cargo, timeout=None))]
    fn ship(&self, py: Python<'_>, cargo: &Bound<'_, PyTuple>, timeout: Option<f64>) -> PyResult<()> {
        let limit = Limit::of(timeout)?;
        let pieces = collect(cargo)?;
        match &pieces[..] {
            [one] => self.ship_one(py, one.hold(), limit),
            _ => {
                let holds: Vec<&Hold> = pieces.iter().map(Piece::hold).collect();
                self.ship_several(py, &holds, limit)
            }
        }
    }

    /// Receives the next message, waiting for it.
    #[pyo3(signature = (timeout=None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        self.receive_until(py, Limit::of(timeout)?)
    }

    /// As ``receive``, without waiting: None when there is nothing.
    fn try_receive(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let there = self.open()?.try_receive().or_raise(py)?;
        there.map(|message| self.wrap(py, message)).transpose()
    }

    /// For event loops: call it when ``try_receive`` has answered None. False: from now on ``fileno()`` becomes
    /// readable when the peer ships something or is gone. True: something is there already, try again. What
    /// made the descriptor readable is taken away by the next call.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.open()?.arm().or_raise(py)
    }

    /// The path's descriptor: wait for it to become readable, and do nothing else with it.
    fn fileno(&self) -> PyResult<c_int> {
        Ok(self.open()?.as_fd().as_raw_fd())
    }

    /// Credentials of the peer, as the kernel states them: process, user, group.
    #[getter]
    fn peer<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        records::credentials(py, self.open()?.peer())
    }

    /// Returns the counters of this end.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        records::stats(py, self.open()?.stats())
    }

    /// Closes this end. The peer receives what was shipped before, and then ``Closed``. Containers and messages
    /// that are here stay what they are.
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
        match self.receive_until(py, Limit::of(None)?) {
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
