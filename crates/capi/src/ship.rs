//! Shipping: what is given away, and what comes back if that fails.
//!
//! A handle that is given is taken out of its table first, so that no other thread finds it while it is on
//! its way, and zeroed. If the ship fails, what is in it is kept under a new handle, which takes the old
//! one's place in the caller's variable.

use crate::container::CONTAINERS;
use crate::error::bywash_error::{BYWASH_ERROR_ARGUMENT, BYWASH_ERROR_PIECES};
use crate::error::{Failure, answer};
use crate::handles::{bywash_container, bywash_message, bywash_path, consume_live};
use crate::message::{BYWASH_PIECES_MAX, MESSAGES, StoredMessage};
use crate::path::{limit, path};
use ::bywash_container::{Credentials, Path, Shipment};
use std::ffi::c_int;

/// Container or message to be shipped; the other handle is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct bywash_shipment {
    /// A container of the path on which it is shipped.
    pub container: bywash_container,
    /// A message received on any path, all pieces of which are shipped.
    pub message: bywash_message,
}

/// A handle that is to be given away.
#[derive(Clone, Copy)]
enum PieceSlot {
    Container(*mut bywash_container),
    Message(*mut bywash_message),
}

/// Container or message taken out of the C program's variable.
struct TakenPieces {
    place: PieceSlot,
    origin: Option<Credentials>,
    pieces: usize,
}

type NotShipped<C> = (Failure, C);

fn ship_one(path: &Path, shipment: Shipment, timeout_ns: i64) -> Result<(), NotShipped<Box<Shipment>>> {
    let shipped = match limit(timeout_ns) {
        None => path.ship(shipment),
        Some(limit) => path.ship_within(shipment, limit),
    };
    shipped.map_err(|refused| (refused.error.into(), refused.shipment))
}

fn ship_list(path: &Path, shipment: Vec<Shipment>, timeout_ns: i64) -> Result<(), NotShipped<Vec<Shipment>>> {
    let shipped = match limit(timeout_ns) {
        None => path.ship_all(shipment),
        Some(limit) => path.ship_all_within(shipment, limit),
    };
    shipped.map_err(|refused| (refused.error.into(), refused.shipment))
}

/// Takes what is at a place, behind what was taken already.
///
/// # Safety
/// The place leads to a handle that this thread may write.
unsafe fn take(place: PieceSlot, shipment: &mut Vec<Shipment>) -> Result<TakenPieces, Failure> {
    match place {
        PieceSlot::Container(at) => {
            // SAFETY: the caller keeps the contract in this function's Safety section.
            shipment.push(unsafe { consume_live(&CONTAINERS, at) }?);
            Ok(TakenPieces { place, origin: None, pieces: 1 })
        }
        PieceSlot::Message(at) => {
            // SAFETY: the caller keeps the contract in this function's Safety section.
            let held = unsafe { consume_live(&MESSAGES, at) }?;
            let origin = Some(held.origin);
            let before = shipment.len();
            shipment.push(held.first);
            shipment.extend(held.rest);
            Ok(TakenPieces { place, origin, pieces: shipment.len() - before })
        }
    }
}

/// Keeps what came back under new handles. What finds no room in a table is freed.
///
/// # Safety
/// Each pointer to a handle is valid for reads and writes, as for [`take`].
unsafe fn restore(taken: Vec<TakenPieces>, shipment: Vec<Shipment>) {
    if taken.iter().map(|taken| taken.pieces).sum::<usize>() != shipment.len() {
        // Sealed memory that could not be mapped again is gone, and nobody knows which; the rest goes too.
        return;
    }
    let mut shipment = shipment.into_iter();
    for TakenPieces { place, origin, pieces } in taken {
        let mut own = shipment.by_ref().take(pieces);
        match (place, origin) {
            (PieceSlot::Message(at), Some(origin)) => {
                let handle =
                    StoredMessage::from_shipments(origin, own).and_then(|held| MESSAGES.insert(held).ok());
                // SAFETY: the caller keeps the contract in this function's Safety section.
                handle.into_iter().for_each(|handle| unsafe { at.write(handle) });
            }
            (PieceSlot::Container(at), _) => {
                let handle = own.next().and_then(|shipment| CONTAINERS.insert(shipment).ok());
                // SAFETY: the caller keeps the contract in this function's Safety section.
                handle.into_iter().for_each(|handle| unsafe { at.write(handle) });
            }
            (PieceSlot::Message(_), None) => unreachable!("`take` notes the origin of each message"),
        }
    }
}

/// Ships the containers and messages that several handles of the caller name, as one message.
///
/// # Safety
/// Each pointer to a handle is valid for reads and writes, as for [`take`].
unsafe fn ship_places(
    path: &Path,
    places: impl Iterator<Item = Result<PieceSlot, Failure>>,
    timeout_ns: i64,
) -> Result<(), Failure> {
    let (mut taken, mut shipment) = (Vec::new(), Vec::new());
    for place in places {
        // SAFETY: the caller keeps the contract in this function's Safety section.
        match place.and_then(|place| unsafe { take(place, &mut shipment) }) {
            Ok(one) => taken.push(one),
            Err(failure) => {
                // SAFETY: the caller keeps the contract in this function's Safety section.
                unsafe { restore(taken, shipment) };
                return Err(failure);
            }
        }
    }
    ship_list(path, shipment, timeout_ns).map_err(|(failure, shipment)| {
        // SAFETY: the caller keeps the contract in this function's Safety section.
        unsafe { restore(taken, shipment) };
        failure
    })
}

/// Looks at a list that C gives before it is read.
fn check_list<T>(list: *mut T, count: usize) -> Result<(), Failure> {
    if list.is_null() {
        return Err(Failure::null(c"the list of containers to ship is null"));
    }
    if count == 0 || count > BYWASH_PIECES_MAX {
        let text = format!(
            "a message of {count} containers cannot be shipped; a message has 1 to {BYWASH_PIECES_MAX}"
        );
        return Err(Failure::new(BYWASH_ERROR_PIECES, text));
    }
    Ok(())
}

/// Ships a container, and waits up to `timeout_ns` nanoseconds for a free ring entry (negative: for ever; 0:
/// not at all). The container then belongs to the peer: the handle becomes zero, and the program must not
/// touch the bytes any more. On failure the program keeps the container, under a new handle that replaces the
/// old one; call bywash_container_map() again for the address.
///
/// BYWASH_ERROR_UNFIT: the container was allocated on another path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_ship(
    path: bywash_path,
    container: *mut bywash_container,
    timeout_ns: i64,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(self::path(path).and_then(|path| unsafe {
        let shipment = consume_live(&CONTAINERS, container)?;
        ship_one(&path, shipment, timeout_ns).map_err(|(failure, shipment)| {
            restore(
                vec![TakenPieces { place: PieceSlot::Container(container), origin: None, pieces: 1 }],
                vec![*shipment],
            );
            failure
        })
    }))
}

/// Ships `count` containers as one message, all or none; see bywash_ship().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_ship_several(
    path: bywash_path,
    containers: *mut bywash_container,
    count: usize,
    timeout_ns: i64,
) -> c_int {
    answer(self::path(path).and_then(|path| {
        check_list(containers, count)?;
        let places = (0..count).map(|number| Ok(PieceSlot::Container(containers.wrapping_add(number))));
        // SAFETY: the caller's array of so many handles.
        unsafe { ship_places(&path, places, timeout_ns) }
    }))
}

/// Ships `count` containers and received messages as one message, all or none; see bywash_ship(). For
/// instance, a program can put a header of its own in front of a received message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_ship_cargo(
    path: bywash_path,
    shipment: *mut bywash_shipment,
    count: usize,
    timeout_ns: i64,
) -> c_int {
    answer(self::path(path).and_then(|path| {
        check_list(shipment, count)?;
        let places = (0..count).map(|number| {
            let one = shipment.wrapping_add(number);
            // SAFETY: valid by the header's rule for pointers, with as many elements as the count says.
            let (container, message) = unsafe { (&raw mut (*one).container, &raw mut (*one).message) };
            // SAFETY: the header's rule: the caller keeps its pointers valid until the call returns.
            match unsafe { (container.read().id, message.read().id) } {
                (_, 0) => Ok(PieceSlot::Container(container)),
                (0, _) => Ok(PieceSlot::Message(message)),
                _ => Err(Failure::fixed(
                    BYWASH_ERROR_ARGUMENT,
                    c"a container and a message are given in one place; leave one of them zero",
                )),
            }
        });
        // SAFETY: valid by the header's rule for pointers, with as many elements as the count says.
        unsafe { ship_places(&path, places, timeout_ns) }
    }))
}

/// Ships a received message on, over any path, mapped or not. The message then belongs to the next peer: the
/// handle becomes zero, and mapped pieces must not be used any more. When the next peer frees the message,
/// its containers return to their owner. On failure the program keeps the message under a new handle, with
/// nothing mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bywash_forward(
    path: bywash_path,
    message: *mut bywash_message,
    timeout_ns: i64,
) -> c_int {
    // SAFETY: the header's rule: a pointer is null or valid, here to a variable of the caller.
    answer(self::path(path).and_then(|path| unsafe {
        let StoredMessage { origin, first, rest, .. } = consume_live(&MESSAGES, message)?;
        let pieces = 1 + rest.len();
        let back = |(failure, shipment)| {
            restore(
                vec![TakenPieces { place: PieceSlot::Message(message), origin: Some(origin), pieces }],
                shipment,
            );
            failure
        };
        if rest.is_empty() {
            return ship_one(&path, first, timeout_ns)
                .map_err(|(failure, shipment)| back((failure, vec![*shipment])));
        }
        ship_list(&path, std::iter::once(first).chain(rest).collect(), timeout_ns).map_err(back)
    }))
}
