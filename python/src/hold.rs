//! Ownership of a container by a Python object, and the lifetime of views into its memory.
//!
//! Python has no moves: a name still refers to an object whose container was shipped, and a memoryview or a NumPy array
//! may point into the container. Therefore each object has a slot that the container is taken out of when it is shipped
//! or freed. Views are counted, and while a view exists the container cannot be taken: its bytes stay in place, and this
//! module makes no Rust reference to them. All accesses use the one address that the views share.
//!
//! The slot is behind a lock, for copies that are made while other threads run Python. No Python code is called while
//! the lock is held: creating or dropping a Python object can start the garbage collector, which may access this very
//! slot.

use crate::errors::{Gone, Refused};
use bywash_container::{Cargo, Container, Error, Mapped, Received};
use bywash_link::Maker;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{mem, ptr, slice};

/// Access to the bytes of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It was allocated here, and is filled.
    Fill,
    /// It was received on a checked path: it can be copied out.
    Copy,
    /// It was received on a forward path.
    Never,
    /// It was received on a trusted or sealed path: it can be looked at.
    Look,
    /// As `Look`, and written if the other end has agreed as well.
    Write,
}

/// A container, as long as it is there.
pub(crate) struct Hold {
    slot: Mutex<Slot>,
    access: Access,
    maker: Maker,
}

struct Slot {
    state: State,
    /// Views that are in use.
    exports: usize,
    /// There is one while `exports` is not 0.
    view: Option<View>,
}

enum State {
    /// In a box, so that views stay valid whatever is done with the slot.
    Here(Box<Cargo>),
    Gone(Gone),
}

/// Address and count shared by all views of a container.
struct View {
    at: *mut u8,
    length: usize,
    capacity: usize,
    writable: bool,
    /// Sealed memory is mapped as long as this is here.
    _mapped: Option<Mapped<'static>>,
}

// SAFETY: the address is that of bytes of the container, which may itself go to other threads.
unsafe impl Send for View {}

/// Address and length of the bytes of a view.
pub(crate) struct Place {
    pub(crate) at: *mut u8,
    pub(crate) length: usize,
    pub(crate) writable: bool,
}

const CHECKED: &str = "the path is a checked one, so that the peer could change them meanwhile; copy them out by \
                       tobytes() or copy_to(), or make the path with class_='trusted' or 'sealed'";
const FORWARD: &str = "the path is a forward one, on which nothing is looked at; ship it on";

impl Hold {
    pub(crate) fn new(cargo: Cargo, access: Access) -> Hold {
        let state = State::Here(Box::new(cargo));
        Hold { slot: Mutex::new(Slot { state, exports: 0, view: None }), access, maker: Maker::this() }
    }

    /// A panic while it was locked would have ended the program.
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_process(&self) -> Result<(), Refused> {
        if self.maker.is_here() { Ok(()) } else { Err(Error::Forked.into()) }
    }

    /// Bytes.
    pub(crate) fn length(&self) -> Result<usize, Refused> {
        let slot = self.slot();
        match &slot.view {
            Some(view) => Ok(view.length),
            None => Ok(slot.cargo()?.len()),
        }
    }

    /// Makes the bytes visible. They stay where they are until [`Hold::release`] was called as often.
    pub(crate) fn export(&self) -> Result<Place, Refused> {
        self.check_process()?;
        let mut slot = self.slot();
        if slot.view.is_none() {
            let view = View::of(slot.cargo_mut()?, self.access)?;
            slot.view = Some(view);
        }
        slot.exports += 1;
        let Some(View { at, length, writable, .. }) = slot.view else { unreachable!("it was made above") };
        Ok(Place { at, length, writable })
    }

    /// Ends what [`Hold::export`] began.
    pub(crate) fn release(&self) {
        let mut slot = self.slot();
        slot.exports -= 1;
        if slot.exports == 0 && self.maker.is_here() {
            slot.view = None;
        }
    }

    /// Does something with a container that is being filled.
    pub(crate) fn fill<R>(
        &self,
        what: &'static str,
        change: impl FnOnce(&mut Container) -> R,
    ) -> Result<R, Refused> {
        self.check_process()?;
        let mut slot = self.slot();
        slot.check_unseen(what)?;
        match slot.cargo_mut()? {
            Cargo::Own(container) => Ok(change(container)),
            Cargo::Received(_) => Err(Error::NotMapped(
                "the container was sealed by a ship that did not find room; ship it again, or free it",
            )
            .into()),
        }
    }

    /// Bytes that it could hold.
    pub(crate) fn capacity(&self) -> Result<usize, Refused> {
        let slot = self.slot();
        match &slot.view {
            Some(view) => Ok(view.capacity),
            None => Ok(capacity_of(slot.cargo()?)),
        }
    }

    /// Copies as much as fits; answers how much. Where the bytes can be seen, `to` may be a view of them.
    ///
    /// # Safety
    /// `to` leads to as many bytes, which may be written.
    pub(crate) unsafe fn copy_to(&self, to: *mut u8, room: usize) -> Result<usize, Refused> {
        self.check_process()?;
        let slot = self.slot();
        if let Some(view) = &slot.view {
            let bytes = room.min(view.length);
            // SAFETY: the view's bytes stay while the lock is held; `to` is what the caller promises.
            unsafe { ptr::copy(view.at, to, bytes) };
            return Ok(bytes);
        }
        let cargo = slot.cargo()?;
        if matches!(cargo, Cargo::Received(_)) && self.access == Access::Never {
            return Err(Error::NotMapped(FORWARD).into());
        }
        if room == 0 {
            // `to` may lead nowhere.
            return Ok(0);
        }
        // SAFETY: what the caller promises; nothing leads to the container's bytes, since there is no view.
        let to = unsafe { slice::from_raw_parts_mut(to, room) };
        match cargo {
            Cargo::Received(received) => Ok(received.copy_to(to)?),
            Cargo::Own(container) => {
                let bytes = room.min(container.len());
                to[..bytes].copy_from_slice(&container[..bytes]);
                Ok(bytes)
            }
        }
    }

    /// Takes the container out, to be shipped.
    pub(crate) fn take(&self) -> Result<Box<Cargo>, Refused> {
        self.check_process()?;
        self.slot().take("shipped", Gone::Shipping)
    }

    /// It was shipped.
    pub(crate) fn shipped(&self) {
        self.slot().state = State::Gone(Gone::Shipped);
    }

    /// It was not shipped. None: it is lost.
    pub(crate) fn put_back(&self, cargo: Option<Box<Cargo>>) {
        self.slot().state = cargo.map_or(State::Gone(Gone::Lost), State::Here);
    }

    /// Gives the memory back now. What has gone already is left alone.
    pub(crate) fn free(&self) -> Result<(), Refused> {
        if !self.maker.is_here() {
            return Ok(());
        }
        let taken = self.slot().take("freed", Gone::Freed);
        match taken {
            Ok(_) | Err(Refused::Gone(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Describes the state of the container, for debugging.
    pub(crate) fn describe(&self) -> String {
        let slot = self.slot();
        match (&slot.view, &slot.state) {
            (Some(view), _) => format!("{} bytes, {} view(s)", view.length, slot.exports),
            (None, State::Here(cargo)) => format!("{} bytes", cargo.len()),
            (None, State::Gone(Gone::Shipping | Gone::Shipped)) => "shipped".into(),
            (None, State::Gone(Gone::Freed)) => "freed".into(),
            (None, State::Gone(Gone::Lost)) => "lost".into(),
        }
    }
}

fn capacity_of(cargo: &Cargo) -> usize {
    match cargo {
        Cargo::Own(container) => container.capacity(),
        Cargo::Received(received) => received.len(),
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            // It is the parent's; see `fork`.
            let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
            mem::forget(slot.view.take());
            mem::forget(mem::replace(&mut slot.state, State::Gone(Gone::Lost)));
        }
    }
}

impl Slot {
    /// The container, of which there is no view.
    fn cargo(&self) -> Result<&Cargo, Refused> {
        match &self.state {
            State::Here(cargo) => Ok(cargo),
            State::Gone(gone) => Err(Refused::Gone(*gone)),
        }
    }

    fn cargo_mut(&mut self) -> Result<&mut Cargo, Refused> {
        match &mut self.state {
            State::Here(cargo) => Ok(cargo),
            State::Gone(gone) => Err(Refused::Gone(*gone)),
        }
    }

    fn check_unseen(&self, what: &'static str) -> Result<(), Refused> {
        if self.exports == 0 { Ok(()) } else { Err(Refused::Viewed(what, self.exports)) }
    }

    fn take(&mut self, what: &'static str, why: Gone) -> Result<Box<Cargo>, Refused> {
        self.check_unseen(what)?;
        if let State::Gone(gone) = self.state {
            return Err(Refused::Gone(gone));
        }
        match mem::replace(&mut self.state, State::Gone(why)) {
            State::Here(cargo) => Ok(cargo),
            State::Gone(_) => unreachable!("this was looked at above"),
        }
    }
}

impl View {
    fn of(cargo: &mut Cargo, access: Access) -> Result<View, Error> {
        let capacity = capacity_of(cargo);
        let view = |bytes: &mut [u8], writable| View {
            at: bytes.as_mut_ptr(),
            length: bytes.len(),
            capacity,
            writable,
            _mapped: None,
        };
        match (cargo, access) {
            (Cargo::Own(container), Access::Fill | Access::Write) => Ok(view(container, true)),
            (Cargo::Own(container), _) => Ok(view(container, false)),
            (_, Access::Copy) => Err(Error::NotMapped(CHECKED)),
            (_, Access::Never) => Err(Error::NotMapped(FORWARD)),
            (Cargo::Received(received), _) => {
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
        // SAFETY: what it borrows from is in a box that is neither moved nor dropped while there is a view.
        let mapped = unsafe { mem::transmute::<Mapped<'_>, Mapped<'static>>(mapped) };
        let (at, length) = (mapped.as_ptr().cast_mut(), mapped.len());
        Ok(View { at, length, capacity: length, writable: false, _mapped: Some(mapped) })
    }
}
