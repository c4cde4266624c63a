//! Spaces against a simple model: a table of pages with their permissions and bytes, driven side by side.

#![allow(clippy::unwrap_used)] // helpers of the tests

use std::collections::BTreeMap;

use bywash_cpu::memory::{
    ADDRESS_LIMIT, Access, AccessKind, AtomicOperation, Cause, Fault, MapError, Memory, PAGE_BYTES,
    Permissions, Space, Width,
};
use proptest::prelude::*;

/// Number of pages that the operations use, from [`FIRST`] on.
const PAGES: u64 = 12;
/// Number of the first page. The page 1024 pages further shares its entry in the table of recent pages.
const FIRST: u64 = 1000;

/// Operation on both.
#[derive(Clone, Debug)]
enum Step {
    Map(u64, u64, u8),
    Unmap(u64, u64),
    Protect(u64, u64, u8),
    Discard(u64, u64),
    Load(u64, Width),
    Store(u64, Width, u64),
    Add(u64, Width, u64),
    Fetch(u64),
    Read(u64, usize),
    Write(u64, Vec<u8>),
    Reserve(u64),
}

/// Page of the model.
#[derive(Clone)]
struct Page {
    permissions: u8,
    bytes: Vec<u8>,
}

/// Memory that is obviously right.
#[derive(Default)]
struct Model {
    pages: BTreeMap<u64, Page>,
}

impl Model {
    /// Returns the cause for which an access is refused, with the first address.
    fn refusal(&self, address: u64, length: u64, access: AccessKind, needed: u8) -> Option<Fault> {
        (address..address + length).find_map(|at| match self.pages.get(&(at / PAGE_BYTES)) {
            None => Some(Fault { address: at, access, cause: Cause::Unmapped }),
            Some(page) if page.permissions & needed != needed => {
                Some(Fault { address: at, access, cause: Cause::Permission })
            }
            Some(_) => None,
        })
    }

    fn byte(&mut self, address: u64) -> &mut u8 {
        let page = self.pages.get_mut(&(address / PAGE_BYTES)).unwrap();
        &mut page.bytes[(address % PAGE_BYTES) as usize]
    }

    fn read(&mut self, address: u64, length: u64) -> Vec<u8> {
        (address..address + length).map(|at| *self.byte(at)).collect()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        for (at, &byte) in (address..).zip(bytes) {
            *self.byte(at) = byte;
        }
    }
}

fn permissions(bits: u8) -> Permissions {
    let bit = |bit: Permissions| if bits & bit.bits() != 0 { bit } else { Permissions::NONE };
    bit(Permissions::READ) | bit(Permissions::WRITE) | bit(Permissions::EXECUTE)
}

fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

/// Addresses: near the limits of pages, and some of the page that shares an entry with the first.
fn address() -> impl Strategy<Value = u64> {
    (prop_oneof![9 => 0..PAGES, 1 => Just(1024)], prop_oneof![0..16_u64, PAGE_BYTES - 16..PAGE_BYTES])
        .prop_map(|(page, offset)| (FIRST + page) * PAGE_BYTES + offset)
}

fn width() -> impl Strategy<Value = Width> {
    prop_oneof![Just(Width::Byte), Just(Width::Half), Just(Width::Word), Just(Width::Double)]
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..PAGES, 1..5_u64).prop_map(|(page, count)| (FIRST + page, count))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (range(), 0..8_u8).prop_map(|((page, count), bits)| Step::Map(page, count, bits | 1)),
        1 => range().prop_map(|(page, count)| Step::Unmap(page, count)),
        2 => (range(), 0..8_u8).prop_map(|((page, count), bits)| Step::Protect(page, count, bits)),
        1 => range().prop_map(|(page, count)| Step::Discard(page, count)),
        8 => (address(), width()).prop_map(|(address, width)| Step::Load(address, width)),
        8 => (address(), width(), any::<u64>()).prop_map(|(address, width, value)| Step::Store(address, width, value)),
        2 => (address(), width(), any::<u64>()).prop_map(|(address, width, value)| Step::Add(address, width, value)),
        3 => address().prop_map(|address| Step::Fetch(address & !1)),
        1 => (address(), 0..9000_usize).prop_map(|(address, length)| Step::Read(address, length)),
        1 => (address(), prop::collection::vec(any::<u8>(), 0..64)).prop_map(|(address, bytes)| Step::Write(address, bytes)),
        2 => address().prop_map(|address| Step::Reserve(address & !7)),
    ]
}

/// Does a step on both and compares.
fn compare(space: &mut Space, model: &mut Model, step: &Step) {
    let is_whole =
        |model: &Model, page: u64, count: u64| (page..page + count).find(|at| !model.pages.contains_key(at));
    match *step {
        Step::Map(page, count, bits) => {
            space.map(page * PAGE_BYTES, count * PAGE_BYTES, permissions(bits)).unwrap();
            for at in page..page + count {
                model.pages.insert(at, Page { permissions: bits, bytes: vec![0; PAGE_BYTES as usize] });
            }
        }
        Step::Unmap(page, count) => {
            space.unmap(page * PAGE_BYTES, count * PAGE_BYTES).unwrap();
            model.pages.retain(|at, _| !(page..page + count).contains(at));
        }
        Step::Protect(page, count, bits) => {
            let found = space.protect(page * PAGE_BYTES, count * PAGE_BYTES, permissions(bits));
            match is_whole(model, page, count) {
                Some(at) => assert_eq!(found, Err(MapError::Unmapped(at * PAGE_BYTES))),
                None => {
                    assert_eq!(found, Ok(()));
                    model.pages.range_mut(page..page + count).for_each(|(_, page)| page.permissions = bits);
                }
            }
        }
        Step::Discard(page, count) => {
            let found = space.discard(page * PAGE_BYTES, count * PAGE_BYTES);
            assert_eq!(found.is_err(), is_whole(model, page, count).is_some());
            if found.is_ok() {
                model.pages.range_mut(page..page + count).for_each(|(_, page)| page.bytes.fill(0));
            }
        }
        Step::Load(address, width) => {
            let found = space.load(Access { address, width, position: 0 });
            match model.refusal(address, width.bytes(), AccessKind::Load, 1) {
                Some(fault) => assert_eq!(found, Err(fault)),
                None => assert_eq!(found, Ok(number(&model.read(address, width.bytes())))),
            }
        }
        Step::Store(address, width, value) => {
            let found = space.store(Access { address, width, position: 0 }, value);
            match model.refusal(address, width.bytes(), AccessKind::Store, 2) {
                Some(fault) => assert_eq!(found, Err(fault)),
                None => {
                    assert_eq!(found, Ok(()));
                    model.write(address, &value.to_le_bytes()[..width.bytes() as usize]);
                }
            }
        }
        Step::Add(address, width, value) => {
            let found = space.atomic(Access { address, width, position: 0 }, AtomicOperation::Add, value);
            if !address.is_multiple_of(width.bytes()) {
                let fault = Fault { address, access: AccessKind::Store, cause: Cause::Misaligned };
                assert_eq!(found, Err(fault));
            } else if let Some(fault) = model.refusal(address, width.bytes(), AccessKind::Store, 3) {
                assert_eq!(found, Err(fault));
            } else {
                let old = number(&model.read(address, width.bytes()));
                assert_eq!(found, Ok(old));
                model.write(address, &old.wrapping_add(value).to_le_bytes()[..width.bytes() as usize]);
            }
        }
        Step::Fetch(address) => {
            let version = space.code_version();
            let found = space.fetch(address);
            assert_eq!(space.code_version(), version, "a fetch makes nothing outdated");
            match model.refusal(address, 2, AccessKind::Fetch, 4) {
                Some(fault) => assert_eq!(found, Err(fault)),
                None => {
                    assert_eq!(found.map(u64::from), Ok(number(&model.read(address, 2))));
                    // A store to the page makes what was fetched outdated.
                    let access = Access { address, width: Width::Byte, position: 0 };
                    let byte = *model.byte(address);
                    if space.store(access, byte.into()).is_ok() {
                        assert_ne!(space.code_version(), version, "a store to code is noticed");
                    }
                }
            }
        }
        Step::Read(address, length) => {
            let mut bytes = vec![0; length];
            let found = space.read(address, &mut bytes);
            match model.refusal(address, length as u64, AccessKind::Load, 1) {
                Some(fault) => assert_eq!(found, Err(fault)),
                None => {
                    assert_eq!(found, Ok(()));
                    assert_eq!(bytes, model.read(address, length as u64));
                }
            }
        }
        Step::Write(address, ref bytes) => {
            let found = space.write(address, bytes);
            let refusal = model.refusal(address, bytes.len() as u64, AccessKind::Store, 2);
            assert_eq!(found, refusal.map_or(Ok(()), Err));
            let end = refusal.map_or(bytes.len(), |fault| (fault.address - address) as usize);
            model.write(address, &bytes[..end]);
        }
        Step::Reserve(address) => {
            let access = Access { address, width: Width::Double, position: 0 };
            if let Ok((value, reservation)) = space.load_reserved(access) {
                let is_writable = model.refusal(address, 8, AccessKind::Store, 2).is_none();
                let byte = Access { width: Width::Byte, ..access };
                let (first, second) = (space.load_reserved(access).unwrap().1, value ^ 1);
                if is_writable {
                    // A store to the line breaks both reservations; without one, a conditional store breaks the other.
                    if value & 1 == 0 {
                        space.store(byte, value).unwrap();
                        assert_eq!(space.store_conditional(access, Some(reservation), second), Ok(false));
                        assert_eq!(space.store_conditional(access, Some(first), second), Ok(false));
                    } else {
                        assert_eq!(space.store_conditional(access, Some(reservation), second), Ok(true));
                        assert_eq!(space.store_conditional(access, Some(first), value), Ok(false));
                        model.write(address, &second.to_le_bytes());
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn spaces_do_as_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut space = Space::new(1 << 24);
        let mut model = Model::default();
        for step in &steps {
            compare(&mut space, &mut model, step);
        }
        for page in FIRST..FIRST + PAGES + 4 {
            let found = space.permissions(page * PAGE_BYTES).map(Permissions::bits);
            prop_assert_eq!(found, model.pages.get(&page).map(|page| page.permissions));
        }
    }
}

/// Misaligned addresses of a page without a mapping once equalled the tag of an empty entry, so that stores there
/// changed another page.
#[test]
fn unmapped_addresses_are_refused_at_any_alignment() {
    let mut space = Space::new(1 << 20);
    space.map(FIRST * PAGE_BYTES, PAGE_BYTES, Permissions::READ | Permissions::WRITE).unwrap();
    space.write(FIRST * PAGE_BYTES, &[7; PAGE_BYTES as usize]).unwrap();
    let ends =
        [0, PAGE_BYTES - 16, (FIRST + 1) * PAGE_BYTES, ADDRESS_LIMIT - 16, ADDRESS_LIMIT, u64::MAX - 15];
    for address in ends.into_iter().flat_map(|first| (0..16).map(move |more| first + more)) {
        for width in [Width::Byte, Width::Half, Width::Word, Width::Double] {
            let access = Access { address, width, position: 0 };
            let (loaded, stored) = (space.load(access), space.store(access, u64::MAX));
            assert!(matches!(loaded, Err(Fault { cause: Cause::Unmapped, .. })), "{access:x?}: {loaded:x?}");
            assert!(matches!(stored, Err(Fault { cause: Cause::Unmapped, .. })), "{access:x?}: {stored:x?}");
        }
    }
    let mut bytes = [0; PAGE_BYTES as usize];
    space.read(FIRST * PAGE_BYTES, &mut bytes).unwrap();
    assert_eq!(bytes, [7; PAGE_BYTES as usize]);
}

#[test]
fn free_ranges_are_found_from_above() {
    let mut space = Space::new(1 << 20);
    let page = PAGE_BYTES;
    assert_eq!(space.highest_free(2 * page, page, 10 * page), Some(8 * page));
    space.map(8 * page, page, Permissions::READ).unwrap();
    assert_eq!(space.highest_free(2 * page, page, 10 * page), Some(6 * page));
    assert_eq!(space.highest_free(page, page, 10 * page), Some(9 * page));
    space.map(2 * page, page, Permissions::READ).unwrap();
    assert_eq!(space.highest_free(5 * page, page, 10 * page), Some(3 * page));
    assert_eq!(space.highest_free(6 * page, page, 10 * page), None);
    assert!(space.is_free(3 * page, 5 * page));
    assert!(!space.is_free(3 * page, 6 * page));
    assert!(!space.is_free(2 * page, page));
}

#[test]
fn limits_are_kept() {
    let mut space = Space::new(2 * PAGE_BYTES);
    space.map(PAGE_BYTES, 3 * PAGE_BYTES, Permissions::READ | Permissions::WRITE).unwrap();
    let mut load =
        |page: u64| space.load(Access { address: page * PAGE_BYTES, width: Width::Byte, position: 0 });
    assert_eq!((load(1), load(2)), (Ok(0), Ok(0)));
    let fault = Fault { address: 3 * PAGE_BYTES, access: AccessKind::Load, cause: Cause::OutOfMemory };
    assert_eq!(load(3), Err(fault));
    assert_eq!(space.bytes_in_use(), 2 * PAGE_BYTES);
    space.unmap(PAGE_BYTES, PAGE_BYTES).unwrap();
    assert_eq!(space.bytes_in_use(), PAGE_BYTES);
    assert_eq!(space.map(0, 100, Permissions::READ), Err(MapError::Range { start: 0, length: 100 }));
    assert!(space.map(u64::MAX - 4095, PAGE_BYTES, Permissions::READ).is_err());
    assert!(space.map(0, 0, Permissions::READ).is_err());
    let mut count = 0;
    let error = loop {
        let page = 10 + 2 * count;
        match space.map(page * PAGE_BYTES, PAGE_BYTES, Permissions::READ) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 70_000, "mappings are limited");
    };
    assert_eq!(error, MapError::TooMany);
}
