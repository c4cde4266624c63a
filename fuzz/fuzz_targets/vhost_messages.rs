//! A disk exported by vhost-user, and a frontend that sends anything, with descriptors of every kind.
//!
//! The export lives as long as the process, and serves a frontend that keeps to the protocol after each
//! input.
//!
//! Failures that this looks for: memory is mapped that can be taken away; the export blocks on a descriptor;
//! a request is outside the disk or the guest's memory; the next frontend is not served; descriptors and
//! mappings are left behind.

#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use bywash_fuzz::disk::{
    AVAILABLE, Disk, EVENT_INDEX, FEATURES, FRONTEND, GUEST_BYTES, TABLE, USED, message,
};
use bywash_fuzz::{Kind, Steps, Value, settled};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(8);
const STEPS_MAX: usize = 24;

/// Number in a message: a valid one, or any.
#[derive(Clone, Copy, Debug)]
struct Number(Option<u8>, Value);

impl<'a> Arbitrary<'a> for Number {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Number> {
        Ok(match input.arbitrary::<u8>()? {
            fits @ 0..200 => Number(Some(fits), Value::default()),
            _ => Number(None, input.arbitrary()?),
        })
    }
}

impl Number {
    /// Returns one of `those`, or any number.
    fn of(self, those: &[u64]) -> u64 {
        self.0.map_or(self.1.get(), |which| those[usize::from(which) % those.len()])
    }
}

#[derive(Debug)]
enum Step {
    /// All messages that start a ring.
    Start(bool),
    Features(Number),
    ProtocolFeatures(Number),
    Memory {
        regions: Vec<[Number; 4]>,
        says: Number,
        kinds: Vec<Kind>,
    },
    Address([Number; 6]),
    /// A message about a ring, with a payload of eight bytes.
    Ring {
        request: u8,
        ring: Number,
        value: Number,
        kinds: Vec<Kind>,
    },
    Record {
        wanted: [Number; 4],
        gives: bool,
        kinds: Vec<Kind>,
    },
    Configuration([Number; 3]),
    Kick,
    /// Any message with any payload.
    Other {
        request: u8,
        flags: u8,
        size: Option<u16>,
        bytes: Vec<u8>,
        kinds: Vec<Kind>,
    },
    Bytes(Vec<u8>, Vec<Kind>),
}

fn kinds(input: &mut Unstructured<'_>) -> Result<Vec<Kind>> {
    // Mostly one descriptor, as the message takes.
    Ok(match input.arbitrary::<u8>()? {
        0..200 => vec![input.arbitrary()?],
        _ => input.arbitrary()?,
    })
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Step> {
        Ok(match input.arbitrary::<u8>()? % 24 {
            0..3 => Step::Start(input.arbitrary()?),
            3 => Step::Features(input.arbitrary()?),
            4 => Step::ProtocolFeatures(input.arbitrary()?),
            5..8 => Step::Memory {
                regions: vec![input.arbitrary()?],
                says: Number(Some(0), Value::default()),
                kinds: vec![input.arbitrary()?],
            },
            8 => Step::Memory {
                regions: input.arbitrary()?,
                says: input.arbitrary()?,
                kinds: input.arbitrary()?,
            },
            9..11 => Step::Address(input.arbitrary()?),
            11..17 => Step::Ring {
                request: input.arbitrary()?,
                ring: input.arbitrary()?,
                value: input.arbitrary()?,
                kinds: kinds(input)?,
            },
            17..19 => {
                Step::Record { wanted: input.arbitrary()?, gives: input.arbitrary()?, kinds: kinds(input)? }
            }
            19 => Step::Configuration(input.arbitrary()?),
            20 => Step::Kick,
            21..23 => Step::Other {
                request: input.arbitrary()?,
                flags: input.arbitrary()?,
                size: input.arbitrary()?,
                bytes: input.arbitrary()?,
                kinds: input.arbitrary()?,
            },
            _ => Step::Bytes(input.arbitrary()?, input.arbitrary()?),
        })
    }
}

fn passed(kinds: &[Kind]) -> Vec<RawFd> {
    kinds.iter().take(40).map(|kind| kind.descriptor()).collect()
}

const SIZES: [u64; 4] = [GUEST_BYTES as u64, 1 << 14, 4096, 0];

impl Step {
    fn take(self, disk: &Disk, frontend: &bywash_fuzz::disk::Frontend) {
        match self {
            Step::Start(has_events) => disk.start_ring(frontend, if has_events { EVENT_INDEX } else { 0 }),
            Step::Features(features) => {
                let those = [FEATURES, FEATURES | EVENT_INDEX, 1 << 32, 0];
                frontend.say(message::SET_FEATURES, &[features.of(&those)], &[]);
            }
            Step::ProtocolFeatures(features) => {
                let those = [1 << 9, 1 << 9 | 1 << 12 | 1 << 3 | 1, 0];
                frontend.say(message::SET_PROTOCOL_FEATURES, &[features.of(&those)], &[]);
            }
            Step::Memory { regions, says, kinds } => {
                let count = says.of(&[regions.len() as u64]);
                let mut words = vec![count & 0xffff_ffff];
                for [guest, bytes, user, offset] in regions.iter().take(40) {
                    words.push(guest.of(&[0, 1 << 14, 1 << 16, u64::MAX - 4095]));
                    words.push(bytes.of(&SIZES));
                    words.push(user.of(&[FRONTEND, FRONTEND + (1 << 14), u64::MAX - 4095]));
                    words.push(offset.of(&[0, 4096, 1 << 14]));
                }
                frontend.say(message::SET_MEM_TABLE, &words, &passed(&kinds));
            }
            Step::Address([ring, flags, table, used, available, log]) => {
                let at = |number: Number, place: u64| {
                    number.of(&[FRONTEND + place, FRONTEND, FRONTEND + place + 2])
                };
                let first = ring.of(&[0, 1]) & 0xffff_ffff | flags.of(&[0, 1]) << 32;
                let words = [first, at(table, TABLE), at(used, USED), at(available, AVAILABLE), log.of(&[0])];
                frontend.say(message::SET_VRING_ADDR, &words, &[]);
            }
            Step::Ring { request, ring, value, kinds } => {
                let request = [8, 10, 11, 12, 13, 14, 18][usize::from(request) % 7];
                let has_file = (12..15).contains(&request);
                let word = match has_file {
                    true => ring.of(&[0, 1, 0x100, 0x101]),
                    false => ring.of(&[0, 1]) & 0xffff_ffff | value.of(&[64, 1, 0, 1024, 65535]) << 32,
                };
                frontend.say(request, &[word], &if has_file { passed(&kinds) } else { vec![] });
            }
            Step::Record { wanted: [bytes, offset, rings, entries], gives, kinds } => {
                let (rings, entries) = (rings.of(&[1, 2]) & 0xffff, entries.of(&[64, 1024]) & 0xffff);
                let words = [bytes.of(&SIZES), offset.of(&[0, 4096]), rings | entries << 16];
                let request = if gives { message::SET_INFLIGHT_FD } else { message::GET_INFLIGHT_FD };
                let payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(20).collect();
                frontend.say_bytes(request, 1, 20, &payload, &if gives { passed(&kinds) } else { vec![] });
            }
            Step::Configuration([offset, size, flags]) => {
                let size = size.of(&[8, 60, 256]).min(1000) as usize;
                let mut bytes: Vec<u8> = (offset.of(&[0, 8]) as u32).to_le_bytes().to_vec();
                bytes.extend((size as u32).to_le_bytes());
                bytes.extend((flags.of(&[0, 1]) as u32).to_le_bytes());
                bytes.resize(12 + size, 0);
                frontend.say_bytes(message::GET_CONFIG, 1, bytes.len() as u32, &bytes, &[]);
            }
            Step::Kick => disk.kick(),
            Step::Other { request, flags, size, bytes, kinds } => {
                let size = size.map_or(bytes.len() as u32, u32::from);
                frontend.say_bytes((request % 48).into(), flags.into(), size, &bytes, &passed(&kinds));
            }
            Step::Bytes(bytes, kinds) => {
                frontend.send(&bytes, &passed(&kinds));
            }
        }
    }
}

thread_local! {
    static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) };
}

fuzz_target!(|steps: Steps<Step>| settled(LIMIT, || DISK.with_borrow_mut(|disk| {
    let disk = disk.get_or_insert_with(Disk::start);
    let frontend = disk.connect();
    for step in steps.into_iter().take(STEPS_MAX) {
        step.take(disk, &frontend);
    }
    frontend.end();
    disk.check();
})));
