//! Ownership of a container that Python refers to, and the lifetime of its views.
//!
//! Python has no moves: a name still refers to a container that was shipped, and a memoryview or a NumPy
//! array may refer to its bytes. So each object has a slot, and shipping or freeing takes the container out
//! of the slot. Views are counted. Invariant: while views exist, the container stays in its slot and its
//! bytes stay in place, and no code here makes a reference to it; all access to the bytes uses the one
//! address that the views share.
//!
//! A lock guards the slot, because copies are made while other threads run Python. No Python code may run
//! while the lock is held: an object that Python makes or drops can start the garbage collector, which may
//! come back to this slot.

use crate::errors::{ContainerError, Unavailable};
use bywash_container::{Container, Error, Mapped, Received, Shipment};
use bywash_link::ProcessGeneration;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{mem, ptr, slice};

/// Access to a container's bytes that its path allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The container was allocated here; the program fills it.
    Fill,
    /// The container was received on a checked path; its bytes can be copied out.
    Copy,
    /// The container was received on a forward path; its bytes cannot be read.
    Never,
    /// The container was received on a trusted or sealed path; its bytes can be read in place.
    Look,
    /// Like `Look`, and the bytes can be written in place if the other end has agreed as well.
    Write,
}

/// Slot for a container, which is taken out when the container is shipped or freed.
pub(crate) struct ContainerSlot {
    slot: Mutex<Slot>,
    access: Access,
    maker: ProcessGeneration,
}

struct Slot {
    state: State,
    /// Number of views in use.
    exports: usize,
    /// The shared view; present while `exports` is not 0.
    view: Option<View>,
}

enum State {
    /// The container, boxed so that views stay valid when the slot moves.
    Here(Box<Shipment>),
    Gone(Unavailable),
}

/// Address and size that all views of a container share.
struct View {
    at: *mut u8,
    length: usize,
    capacity: usize,
    writable: bool,
    /// Keeps sealed memory mapped while the view exists.
    _mapped: Option<Mapped<'static>>,
}

// SAFETY: the address points to bytes of the container, which may itself move to other threads.
unsafe impl Send for View {}

/// Address and length of a view's bytes.
pub(crate) struct ViewAddress {
    pub(crate) at: *mut u8,
    pub(crate) length: usize,
    pub(crate) writable: bool,
}

const CHECKED: &str = "the path is a checked one, so that the peer could change them meanwhile; copy them out by \
                       tobytes() or copy_to(), or make the path with class_='trusted' or 'sealed'";
const FORWARD: &str = "the path is a forward one, on which nothing is looked at; ship it on";

impl ContainerSlot {
    pub(crate) fn new(shipment: Shipment, access: Access) -> ContainerSlot {
        let state = State::Here(Box::new(shipment));
        ContainerSlot {
            slot: Mutex::new(Slot { state, exports: 0, view: None }),
            access,
            maker: ProcessGeneration::current(),
        }
    }

    /// Locks the slot. The lock is never poisoned in practice: a panic under it ends the program.
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_process(&self) -> Result<(), ContainerError> {
        if self.maker.is_here() { Ok(()) } else { Err(Error::Forked.into()) }
    }

    /// Returns the number of bytes that the container holds.
    pub(crate) fn length(&self) -> Result<usize, ContainerError> {
        let slot = self.slot();
        match &slot.view {
            Some(view) => Ok(view.length),
            None => Ok(slot.shipment()?.len()),
        }
    }

    /// Returns descriptor, offset and length of the container's memory.
    pub(crate) fn memory(&self) -> Result<(RawFd, usize, usize), ContainerError> {
        self.check_process()?;
        let slot = self.slot();
        let memory = slot.shipment()?.memory()?;
        Ok((memory.descriptor.as_raw_fd(), memory.offset, memory.length))
    }

    /// Returns the address of the bytes and counts a view. The bytes stay in place until
    /// [`ContainerSlot::release`] was called once for each call of this function.
    pub(crate) fn export(&self) -> Result<ViewAddress, ContainerError> {
        self.check_process()?;
        let mut slot = self.slot();
        if slot.view.is_none() {
            let view = View::new(slot.cargo_mut()?, self.access)?;
            slot.view = Some(view);
        }
        slot.exports += 1;
        let Some(View { at, length, writable, .. }) = slot.view else { unreachable!("it was made above") };
        Ok(ViewAddress { at, length, writable })
    }

    /// Ends a view that [`ContainerSlot::export`] began.
    pub(crate) fn release(&self) {
        let mut slot = self.slot();
        slot.exports -= 1;
        if slot.exports == 0 && self.maker.is_here() {
            slot.view = None;
        }
    }

    /// Calls `change` with a container that is being filled. `what` names the operation in errors.
    pub(crate) fn with_container<R>(
        &self,
        what: &'static str,
        change: impl FnOnce(&mut Container) -> R,
    ) -> Result<R, ContainerError> {
        self.check_process()?;
        let mut slot = self.slot();
        slot.check_unseen(what)?;
        match slot.cargo_mut()? {
            Shipment::Own(container) => Ok(change(container)),
            Shipment::Received(_) => Err(Error::NotMapped(
                "the container was sealed by a ship that did not find room; ship it again, or free it",
            )
            .into()),
        }
    }

    /// Returns the size of the container's memory, in bytes.
    pub(crate) fn capacity(&self) -> Result<usize, ContainerError> {
        let slot = self.slot();
        match &slot.view {
            Some(view) => Ok(view.capacity),
            None => Ok(capacity_of(slot.shipment()?)),
        }
    }

    /// Copies at most `room` bytes out of the container and returns the number copied. If a view exists, `to`
    /// may overlap the container's bytes.
    ///
    /// # Safety
    /// `to` must be writable for `room` bytes during the call.
    pub(crate) unsafe fn copy_to(&self, to: *mut u8, room: usize) -> Result<usize, ContainerError> {
        self.check_process()?;
        let slot = self.slot();
        if let Some(view) = &slot.view {
            let bytes = room.min(view.length);
            // SAFETY: the view's bytes stay while the lock is held; the caller keeps `to` writable.
            unsafe { ptr::copy(view.at, to, bytes) };
            return Ok(bytes);
        }
        let shipment = slot.shipment()?;
        if matches!(shipment, Shipment::Received(_)) && self.access == Access::Never {
            return Err(Error::NotMapped(FORWARD).into());
        }
        if room == 0 {
            // `to` may dangle when `room` is 0.
            return Ok(0);
        }
        // SAFETY: the caller keeps `to` writable for `room` bytes. No view exists, so `to` does not overlap
        // the container's bytes.
        let to = unsafe { slice::from_raw_parts_mut(to, room) };
        match shipment {
            Shipment::Received(received) => Ok(received.copy_to(to)?),
            Shipment::Own(container) => {
                let bytes = room.min(container.len());
                to[..bytes].copy_from_slice(&container[..bytes]);
                Ok(bytes)
            }
        }
    }

    /// Takes the container out of the slot, to ship it.
    pub(crate) fn take(&self) -> Result<Box<Shipment>, ContainerError> {
        self.check_process()?;
        self.slot().take("shipped", Unavailable::Shipping)
    }

    /// Marks the container as shipped.
    pub(crate) fn shipped(&self) {
        self.slot().state = State::Gone(Unavailable::Shipped);
    }

    /// Puts back a container that was not shipped. `None` marks the container as lost.
    pub(crate) fn put_back(&self, shipment: Option<Box<Shipment>>) {
        self.slot().state = shipment.map_or(State::Gone(Unavailable::Lost), State::Here);
    }

    /// Frees the memory now. Does nothing if the container was shipped, freed or lost before.
    pub(crate) fn free(&self) -> Result<(), ContainerError> {
        if !self.maker.is_here() {
            return Ok(());
        }
        let taken = self.slot().take("freed", Unavailable::Freed);
        match taken {
            Ok(_) | Err(ContainerError::Gone(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Returns the state of the container as text, for debugging.
    pub(crate) fn describe(&self) -> String {
        let slot = self.slot();
        match (&slot.view, &slot.state) {
            (Some(view), _) => format!("{} bytes, {} view(s)", view.length, slot.exports),
            (None, State::Here(shipment)) => format!("{} bytes", shipment.len()),
            (None, State::Gone(Unavailable::Shipping | Unavailable::Shipped)) => "shipped".into(),
            (None, State::Gone(Unavailable::Freed)) => "freed".into(),
            (None, State::Gone(Unavailable::Lost)) => "lost".into(),
        }
    }
}

fn capacity_of(shipment: &Shipment) -> usize {
    match shipment {
        Shipment::Own(container) => container.capacity(),
        Shipment::Received(received) => received.len(),
    }
}

impl Drop for ContainerSlot {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            // The container belongs to the parent process and must not be freed here; see
            // [`ProcessGeneration`].
            let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
            mem::forget(slot.view.take());
            mem::forget(mem::replace(&mut slot.state, State::Gone(Unavailable::Lost)));
        }
    }
}

impl Slot {
    /// Returns the container, or the reason that it is not available.
    fn shipment(&self) -> Result<&Shipment, ContainerError> {
        match &self.state {
            State::Here(shipment) => Ok(shipment),
            State::Gone(gone) => Err(ContainerError::Gone(*gone)),
        }
    }

    fn cargo_mut(&mut self) -> Result<&mut Shipment, ContainerError> {
        match &mut self.state {
            State::Here(shipment) => Ok(shipment),
            State::Gone(gone) => Err(ContainerError::Gone(*gone)),
        }
    }

    fn check_unseen(&self, what: &'static str) -> Result<(), ContainerError> {
        if self.exports == 0 { Ok(()) } else { Err(ContainerError::Viewed(what, self.exports)) }
    }

    fn take(&mut self, what: &'static str, why: Unavailable) -> Result<Box<Shipment>, ContainerError> {
        self.check_unseen(what)?;
        if let State::Gone(gone) = self.state {
            return Err(ContainerError::Gone(gone));
        }
        match mem::replace(&mut self.state, State::Gone(why)) {
            State::Here(shipment) => Ok(shipment),
            State::Gone(_) => unreachable!("this was looked at above"),
        }
    }
}

impl View {
    fn new(shipment: &mut Shipment, access: Access) -> Result<View, Error> {
        let capacity = capacity_of(shipment);
        let view = |bytes: &mut [u8], writable| View {
            at: bytes.as_mut_ptr(),
            length: bytes.len(),
            capacity,
            writable,
            _mapped: None,
        };
        match (shipment, access) {
            (Shipment::Own(container), Access::Fill | Access::Write) => Ok(view(container, true)),
            (Shipment::Own(container), _) => Ok(view(container, false)),
            (_, Access::Copy) => Err(Error::NotMapped(CHECKED)),
            (_, Access::Never) => Err(Error::NotMapped(FORWARD)),
            (Shipment::Received(received), _) => {
                if access == Access::Write
                    && let Ok(bytes) = received.map_mut()
                {
                    return Ok(view(bytes, true));
                }
                View::to_read(received)
            }
        }
    }

    fn to_read(received: &Received) -> Result<View, Error> {
        let mapped = received.map()?;
        // SAFETY: the mapping borrows from a boxed container that is neither moved nor dropped while a view
        // exists.
        let mapped = unsafe { mem::transmute::<Mapped<'_>, Mapped<'static>>(mapped) };
        let (at, length) = (mapped.as_ptr().cast_mut(), mapped.len());
        Ok(View { at, length, capacity: length, writable: false, _mapped: Some(mapped) })
    }
}
