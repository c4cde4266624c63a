//! Reservations of load-reserved, which stores break.

/// Length of the aligned line that a load-reserved reserves, in bytes.
pub const LINE_BYTES: u64 = 64;

/// Reservation that a load-reserved has made; the hart keeps it until its store-conditional.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// Address of the load-reserved.
    pub address: u64,
    /// Number that no other reservation of the memory has.
    pub ticket: u64,
}

/// Unbroken reservations of a memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    /// Line address and ticket of each, oldest first.
    unbroken: Vec<(u64, u64)>,
    /// Ticket of the latest reservation.
    last_ticket: u64,
}

impl Reservations {
    /// Greatest number of unbroken reservations. One more breaks the oldest: that is as a store-conditional
    /// that fails for no reason, which the specification permits (chapter 8.2).
    const LIMIT: usize = 64;

    /// Makes a reservation.
    pub fn reserve(&mut self, address: u64) -> Reservation {
        if self.unbroken.len() == Self::LIMIT {
            self.unbroken.remove(0);
        }
        self.last_ticket += 1;
        self.unbroken.push((line(address), self.last_ticket));
        Reservation { address, ticket: self.last_ticket }
    }

    /// Returns whether a reservation is unbroken.
    pub fn holds(&self, reservation: Reservation) -> bool {
        self.unbroken.iter().any(|&(_, ticket)| ticket == reservation.ticket)
    }

    /// Ends a reservation.
    pub fn release(&mut self, reservation: Reservation) {
        self.unbroken.retain(|&(_, ticket)| ticket != reservation.ticket);
    }

    /// Breaks the reservations of lines between two addresses.
    pub fn break_range(&mut self, start: u64, end: u64) {
        self.unbroken.retain(|&(line, _)| line >= end || line + LINE_BYTES <= start);
    }

    /// Returns whether a line between two addresses is reserved.
    pub fn any_in(&self, start: u64, end: u64) -> bool {
        self.unbroken.iter().any(|&(line, _)| (start..end).contains(&line))
    }
}

/// Returns the address of the line that has an address.
fn line(address: u64) -> u64 {
    address & !(LINE_BYTES - 1)
}
