//! Conversion of Rust errors to exceptions of `bywash.errors`, with the same text.

use bywash_client::{Error as StorageError, RefusalKind};
use bywash_container::Error;
use bywash_display::Error as DisplayError;
use bywash_flow::Error as FlowError;
use bywash_model::describe::Error as DescriptionError;
use pyo3::exceptions::{PyBufferError, PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

/// Error for an operation on a container that Python refers to.
#[derive(Debug)]
pub(crate) enum ContainerError {
    /// The container no longer belongs to this program, or was freed.
    Gone(Unavailable),
    /// The container has views in use: the operation that was refused, and the number of views.
    Viewed(&'static str, usize),
    /// The container or path operation itself failed.
    Path(Error),
}

/// Reason that a container is not available any more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unavailable {
    Shipping,
    Shipped,
    Freed,
    Lost,
}

impl From<Error> for ContainerError {
    fn from(error: Error) -> ContainerError {
        ContainerError::Path(error)
    }
}

/// Extension of results that converts the error to an exception.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

impl<T> OrRaise<T> for Result<T, ContainerError> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|refused| match refused {
            ContainerError::Path(error) => exception(py, &error),
            ContainerError::Gone(gone) => PyValueError::new_err(gone.text()),
            ContainerError::Viewed(what, views) => PyBufferError::new_err(format!(
                "the container cannot be {what} while it is looked at through {views} view(s), such as a memoryview \
                 or a NumPy array; release or delete them first"
            )),
        })
    }
}

impl Unavailable {
    fn text(self) -> &'static str {
        match self {
            Unavailable::Shipping => "the container is being shipped by another thread",
            Unavailable::Shipped => {
                "the container was shipped: it is the peer's now; allocate or receive another"
            }
            Unavailable::Freed => "the container was freed; allocate or receive another",
            Unavailable::Lost => "the container was lost in a ship that failed; allocate another",
        }
    }
}

/// Returns the exception for an error of a container or path.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::TimedOut | Error::AllocTimedOut { .. } => "TimedOut",
        Error::Closed => "Closed",
        Error::PeerDied { .. } => "PeerDied",
        Error::Protocol { .. } => "ProtocolError",
        Error::Incompatible(_) => "MisfitError",
        Error::TooLarge { .. } => "TooLargeError",
        Error::ArenaFull { .. } | Error::Full { .. } => "NoRoomError",
        Error::MessageSize { .. } => "PiecesError",
        Error::NotMapped(_) => "NotMappedError",
        Error::WrongPath(_) => "UnfitError",
        Error::Forked => "ForkedError",
        Error::Option { .. } => "OptionError",
        Error::Io { .. } => "IoError",
        // A later kind of error that this package does not know yet.
        _ => "Error",
    };
    make(py, class, &error.to_string(), error).unwrap_or_else(|failure| failure)
}

fn make(py: Python<'_>, class: &str, text: &str, error: &Error) -> PyResult<PyErr> {
    let made = py.import("bywash.errors")?.getattr(class)?.call1((text,))?;
    match error {
        Error::PeerDied { pid } | Error::Protocol { pid, .. } => made.setattr("pid", pid)?,
        Error::Io { source, .. } => made.setattr("errno", source.raw_os_error())?,
        _ => {}
    }
    Ok(PyErr::from_value(made))
}

/// Returns the exception for an error of a flow. `report` says how far the flow came, if it was started.
pub(crate) fn flow_exception(py: Python<'_>, error: &FlowError, report: Option<Bound<'_, PyAny>>) -> PyErr {
    let class = match error {
        FlowError::Unfit { .. } => "UnfitError",
        FlowError::Io { .. } => "IoError",
        FlowError::Data(_) => "DataError",
        FlowError::Lost(_) => "LostError",
        FlowError::Program(_) => "ProgramError",
        FlowError::Cancelled => "Cancelled",
        // All other errors are requests that cannot be carried out.
        _ => "OptionError",
    };
    let made = || {
        let made = py.import("bywash.errors")?.getattr(class)?.call1((error.to_string(),))?;
        if let FlowError::Io { source, .. } = error {
            made.setattr("errno", source.raw_os_error())?;
        }
        if let Some(report) = report {
            made.setattr("report", report)?;
        }
        Ok(PyErr::from_value(made))
    };
    made().unwrap_or_else(|failure: PyErr| failure)
}

/// Returns the exception for an error of a device server or of its client.
pub(crate) fn storage_exception(py: Python<'_>, error: &StorageError) -> PyErr {
    use StorageError as E;
    let class = match error {
        E::TimedOut { .. } => "TimedOut",
        E::Gone { .. } => "ServerGone",
        E::ProtocolViolation { .. } => "ProtocolError",
        E::OutcomeUnknown => "UnknownError",
        E::Refused { refused, .. } => match refused.code {
            RefusalKind::Denied => "DeniedError",
            RefusalKind::Missing => "MissingError",
            _ => "RefusedError",
        },
        E::Denied { .. } => "DeniedError",
        E::NoGrant { .. } | E::Revoked { .. } => "RevokedError",
        E::OutOfBounds { .. } | E::Misaligned { .. } | E::LengthMismatch { .. } => "RangeError",
        E::Malformed { .. } | E::TooManyExtents { .. } => "RangeError",
        E::DeviceFailed { .. } | E::DeviceTimedOut { .. } | E::BufferLost => "DeviceError",
        E::NoSpace { .. } | E::NotSupported { .. } => "DeviceError",
        E::CompareFailed { .. } => "DiffersError",
        E::NotMapped { .. } => "NotMappedError",
        E::TooLarge { .. } => "TooLargeError",
        E::ArenaFull { .. } | E::Full { .. } => "NoRoomError",
        E::Busy => "BusyError",
        E::Idle => "IdleError",
        E::PieceCount { .. } => "PiecesError",
        E::Foreign { .. } => "UnfitError",
        E::Option { .. } => "OptionError",
        E::Interrupted => "Cancelled",
        E::Forked => "ForkedError",
        E::Io { .. } => "IoError",
        // A later kind of error that this package does not know yet.
        _ => "Error",
    };
    let made = || {
        let made = py.import("bywash.errors")?.getattr(class)?.call1((error.to_string(),))?;
        if let E::Io { source, .. } = error {
            made.setattr("errno", source.raw_os_error())?;
        }
        Ok(PyErr::from_value(made))
    };
    made().unwrap_or_else(|failure: PyErr| failure)
}

/// Returns the exception for an error of a surface.
pub(crate) fn display_exception(py: Python<'_>, error: DisplayError) -> PyErr {
    use DisplayError as E;
    let class = match &error {
        E::Memory(error) => return exception(py, error),
        E::NoDisplay(_) | E::Option { .. } => "OptionError",
        E::Connect { .. } | E::Io { .. } => "IoError",
        E::Unsupported { .. } | E::OtherSurface => "UnfitError",
        E::Gone { .. } => "DisplayGone",
        E::Refused { .. } => "RefusedError",
        E::NotReturned { .. } | E::Silent { .. } => "TimedOut",
        E::Closed => "Closed",
        E::AllTaken(_) => "NoRoomError",
        // A later kind of error that this package does not know yet.
        _ => "Error",
    };
    let made = || {
        let made = py.import("bywash.errors")?.getattr(class)?.call1((error.to_string(),))?;
        if let E::Connect { source, .. } | E::Io { source, .. } = &error {
            made.setattr("errno", source.raw_os_error())?;
        }
        Ok(PyErr::from_value(made))
    };
    made().unwrap_or_else(|failure: PyErr| failure)
}

/// Returns an `OptionError`, for an option with an invalid value.
pub(crate) fn option(py: Python<'_>, text: String) -> PyErr {
    from_text(py, "OptionError", text)
}

/// Returns a `DescriptionError`. `place` is the file that the description was read from.
pub(crate) fn description(py: Python<'_>, error: &DescriptionError, place: Option<&str>) -> PyErr {
    let place = place.map_or(String::new(), |place| format!("{place}: "));
    from_text(py, "DescriptionError", format!("{place}{error}"))
}

/// Returns the exception for `raised`, which ended a long computation. Ctrl-C becomes `Stopped` with the
/// `partial` result; any other exception stays as it is.
pub(crate) fn stopped(py: Python<'_>, raised: PyErr, partial: &Bound<'_, PyAny>) -> PyErr {
    if !raised.is_instance_of::<PyKeyboardInterrupt>(py) {
        return raised;
    }
    let made = || {
        let class = py.import("bywash.plan.stopped")?.getattr("Stopped")?;
        let made = class.call1(("stopped before the end; 'partial' has what there was",))?;
        made.setattr("partial", partial)?;
        Ok(PyErr::from_value(made))
    };
    let made = made().unwrap_or_else(|failure: PyErr| failure);
    made.set_cause(py, Some(raised));
    made
}

/// Returns an exception of the class `class` of `bywash.errors`.
pub(crate) fn from_text(py: Python<'_>, class: &str, text: String) -> PyErr {
    let made = || Ok(PyErr::from_value(py.import("bywash.errors")?.getattr(class)?.call1((text,))?));
    made().unwrap_or_else(|failure: PyErr| failure)
}

/// Returns the exception for a use of an object that this program has closed; `what` names its kind.
pub(crate) fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("the {what} was closed; make another one"))
}
