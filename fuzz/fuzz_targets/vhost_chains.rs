//! A disk exported by vhost-user, and a guest that writes anything into its rings.
//!
//! The frontend keeps to the protocol. The guest writes descriptor chains, indirect tables and request
//! headers, valid and invalid ones, and continues to change them while the disk's own thread reads them.
//!
//! Failures that this looks for: a request is outside the disk or the guest's memory, or is in flight twice;
//! the disk never finishes a chain; the next guest is not served, or reads other bytes than it has written.

#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_fuzz::disk::{
    AVAILABLE, DATA, DISK_BYTES, Disk, ENTRIES, EVENT_INDEX, GUEST_BYTES, HEADS, STATES, TABLE, USED,
};
use bywash_fuzz::{Steps, Value, settled};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(8);
const STEPS_MAX: usize = 40;
/// Greatest number of times that a word is toggled while the disk reads it.
const FLIPS_MAX: u16 = 2000;

/// Address in the guest's memory: near one with a meaning, or any.
#[derive(Clone, Copy, Debug)]
enum Place {
    Near(u8, u8),
    Any(Value),
}

impl<'a> Arbitrary<'a> for Place {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Place> {
        Ok(match input.arbitrary::<u8>()? {
            near @ 0..230 => Place::Near(near, input.arbitrary()?),
            _ => Place::Any(input.arbitrary()?),
        })
    }
}

impl Place {
    fn get(self) -> u64 {
        const THOSE: [u64; 8] =
            [DATA, HEADS, DATA + 4096, STATES, TABLE, AVAILABLE, USED, GUEST_BYTES as u64 - 64];
        match self {
            Place::Near(which, more) => THOSE[usize::from(which) % 8] + u64::from(more / 2) * 4,
            Place::Any(value) => value.get(),
        }
    }
}

#[derive(Debug)]
enum Step {
    /// A whole request: its kind, its sector, its numbers of blocks and pieces, and whether its chain is in
    /// an indirect table.
    Request {
        kind: u8,
        sector: u16,
        blocks: u8,
        pieces: u8,
        indirect: bool,
    },
    Descriptor {
        table: bool,
        number: u8,
        at: Place,
        bytes: Value,
        flags: u8,
        next: u8,
    },
    Head {
        number: u8,
        kind: Value,
        sector: Value,
    },
    Offer(u8),
    Available(u16),
    Bytes(Place, Value),
    Kick,
    /// Notifies the disk, and then toggles bits of a word many times.
    Flip {
        at: Place,
        bits: Value,
        times: u16,
    },
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Step> {
        Ok(match input.arbitrary::<u8>()? % 24 {
            0..8 => Step::Request {
                kind: input.arbitrary()?,
                sector: input.arbitrary()?,
                blocks: input.arbitrary()?,
                pieces: input.arbitrary()?,
                indirect: input.arbitrary()?,
            },
            8..12 => Step::Descriptor {
                table: input.arbitrary()?,
                number: input.arbitrary()?,
                at: input.arbitrary()?,
                bytes: input.arbitrary()?,
                flags: input.arbitrary()?,
                next: input.arbitrary()?,
            },
            12 => Step::Head {
                number: input.arbitrary()?,
                kind: input.arbitrary()?,
                sector: input.arbitrary()?,
            },
            13..15 => Step::Offer(input.arbitrary()?),
            15 => Step::Available(input.arbitrary()?),
            16..18 => Step::Bytes(input.arbitrary()?, input.arbitrary()?),
            18..21 => Step::Kick,
            _ => Step::Flip { at: input.arbitrary()?, bits: input.arbitrary()?, times: input.arbitrary()? },
        })
    }
}

/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

struct Guest<'a> {
    disk: &'a Disk,
    /// Number of chains that were made available.
    offered: u16,
    /// Number of requests that were made. Each of the last seven has its own header and eight descriptors.
    made: u16,
}

impl Guest<'_> {
    fn request(&mut self, kind: u8, sector: u16, blocks: u8, pieces: u8, indirect: bool) {
        let number = self.made % 7;
        self.made += 1;
        let kind = [0u32, 1, 4, 8, 11, 13, 0, 1][usize::from(kind) % 8];
        let sectors = DISK_BYTES / 512;
        let head = HEADS + 32 * u64::from(number);
        self.disk.put(head, &[kind.to_le_bytes(), [0; 4]].concat());
        self.disk.put(head + 8, &(u64::from(sector) % (sectors + 2)).to_le_bytes());
        let data = DATA + 1024 * u64::from(number);
        let writes = if [0, 8].contains(&kind) { WRITE } else { 0 };
        let mut parts = vec![(head, 16, 0)];
        let bytes = u32::from(blocks % 5) * 512;
        let count = u32::from(pieces % 4 + 1);
        match kind {
            4 => {}
            8 => parts.push((data, 20, WRITE)),
            11 | 13 => {
                let range = [u64::from(sector) % (sectors + 2), u64::from(blocks % 9)];
                range
                    .iter()
                    .zip([data, data + 8])
                    .for_each(|(word, at)| self.disk.put(at, &word.to_le_bytes()));
                parts.push((data, 16, 0));
            }
            _ => {
                let each = bytes / count;
                parts.extend((0..count).map(|piece| {
                    let length = if piece + 1 == count { bytes - each * piece } else { each };
                    (data + u64::from(each * piece), length, writes)
                }));
            }
        }
        parts.push((STATES + u64::from(number), 1, WRITE));
        let first = 8 * number;
        // The request's own indirect table, after the headers.
        let table = if indirect { HEADS + 0x200 + 128 * u64::from(number) } else { TABLE };
        let base = if indirect { 0 } else { first };
        let last = parts.len() - 1;
        for (index, (at, bytes, flags)) in parts.into_iter().enumerate() {
            let place = base + index as u16;
            let flags = flags | if index < last { NEXT } else { 0 };
            self.disk.put_descriptor(table, place, (at, bytes, flags, place + 1));
        }
        if indirect {
            self.disk.put_descriptor(TABLE, first, (table, 16 * (last as u32 + 1), INDIRECT, 0));
        }
        self.offer(first);
    }

    fn offer(&mut self, first: u16) {
        self.disk.offer(self.offered, first);
        self.offered = self.offered.wrapping_add(1);
    }

    fn take(&mut self, step: Step) {
        let disk = self.disk;
        match step {
            Step::Request { kind, sector, blocks, pieces, indirect } => {
                self.request(kind, sector, blocks, pieces, indirect);
            }
            Step::Descriptor { table, number, at, bytes, flags, next } => {
                let table = if table { HEADS + 0x200 } else { TABLE };
                let descriptor = (at.get(), bytes.get() as u32, u16::from(flags % 8), u16::from(next));
                disk.put_descriptor(table, u16::from(number) % ENTRIES, descriptor);
            }
            Step::Head { number, kind, sector } => {
                let head = HEADS + 32 * u64::from(number % 8);
                disk.put(head, &kind.get().to_le_bytes());
                disk.put(head + 8, &sector.get().to_le_bytes());
            }
            Step::Offer(first) => self.offer(first.into()),
            Step::Available(index) => disk.put(AVAILABLE + 2, &index.to_le_bytes()),
            Step::Bytes(at, value) => disk.put(at.get(), &value.get().to_le_bytes()),
            Step::Kick => disk.kick(),
            Step::Flip { at, bits, times } => {
                disk.kick();
                let word = disk.words.at((at.get() / 8) as usize % disk.words.count);
                for _ in 0..times % FLIPS_MAX {
                    word.fetch_xor(bits.get(), std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    }
}

thread_local! {
    static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) };
}

fuzz_target!(|input: (bool, Steps<Step>)| settled(LIMIT, || DISK.with_borrow_mut(|disk| {
    let disk = disk.get_or_insert_with(Disk::start);
    let frontend = disk.connect();
    let (has_events, steps) = input;
    disk.start_ring(&frontend, if has_events { EVENT_INDEX } else { 0 });
    let mut guest = Guest { disk, offered: 0, made: 0 };
    for step in steps.into_iter().take(STEPS_MAX) {
        guest.take(step);
    }
    disk.kick();
    frontend.end();
    disk.check();
})));
