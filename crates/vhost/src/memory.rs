//! The memory of a guest, as its frontend passes it.
//!
//! Invariant: an access to the mapping never ends this process. A frontend that could shrink a file afterwards could do
//! that by SIGBUS, so of ordinary memory only what is sealed against shrinking is mapped (fcntl(2), F_SEAL_SHRINK), as in
//! `bywash_link`. Reserved huge pages can be taken out of a file under any seal that QEMU sets; their mapping is watched,
//! and missing pages are replaced (`faults`). Files of other file systems are refused, since an access could block.

#![expect(
    unsafe_code,
    reason = "segments of guest memory are addresses, which the owner of the mapping keeps mapped"
)]

use crate::faults::Watched;
use bywash_device::{MemoryOwner, Segment};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{
    ByteValued, Bytes, GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
    GuestRegionMmap, Permissions, VolatileMemory, VolatileSlice,
};

/// File system type that statfs(2) reports for memory in reserved huge pages.
const HUGETLBFS: i64 = 0x9584_58f6;

/// Mapping of all memory that a guest's addresses reach.
pub(crate) type Map = GuestMemoryMmap<()>;

/// A mapping, and the watch over those of its regions whose pages can vanish.
#[derive(Debug)]
pub(crate) struct WatchedMap {
    /// Dropped before the mapping, at whose addresses another one may be made.
    watched: Vec<Watched>,
    map: Map,
}

impl Deref for WatchedMap {
    type Target = Map;

    fn deref(&self) -> &Map {
        &self.map
    }
}

impl WatchedMap {
    /// Returns true if the frontend has taken pages away.
    pub(crate) fn is_broken(&self) -> bool {
        self.watched.iter().any(Watched::is_broken)
    }
}

/// The memory of one guest, with the translation of its frontend's addresses.
#[derive(Debug)]
pub(crate) struct Memory {
    map: Arc<WatchedMap>,
    places: Vec<RegionAddresses>,
}

/// Position of a region in the frontend's and in the guest's addresses. A frontend gives the addresses of
/// rings as its own.
#[derive(Clone, Copy, Debug)]
struct RegionAddresses {
    frontend: u64,
    guest: u64,
    bytes: u64,
}

impl Memory {
    /// Maps the regions that a frontend has passed, if each is safe to map and their sum is at most
    /// `bytes_max`.
    pub(crate) fn adopt(
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        bytes_max: u64,
    ) -> Result<Memory, String> {
        let mut mapped = Vec::with_capacity(regions.len());
        let mut places = Vec::with_capacity(regions.len());
        let (mut left, mut watched) = (bytes_max, Vec::new());
        for (region, file) in regions.iter().zip(files) {
            let (frontend, guest, bytes) = (region.user_addr, region.guest_phys_addr, region.memory_size);
            left = left.checked_sub(bytes).ok_or_else(|| {
                format!(
                    "its memory is larger than the {bytes_max} bytes that are allowed: give the guest less"
                )
            })?;
            let pages = check(&file, region.mmap_offset, bytes)?;
            let mapping =
                region.mmap_region(file).map_err(|error| format!("its memory cannot be mapped: {error}"))?;
            if let Pages::Huge(page) = pages {
                let start = mapping.as_ptr().addr();
                // Dropped in front of the mapping, also if one of the next regions is refused.
                watched.push(Watched::new(start, mapping.size(), page)?);
            }
            let region = GuestRegionMmap::new(mapping, GuestAddress(guest));
            mapped.push(Arc::new(region.ok_or("its memory goes past the last address")?));
            places.push(RegionAddresses { frontend, guest, bytes });
        }
        mapped.sort_by_key(|region| region.start_addr());
        // These clones keep regions that make no sense mapped as long as they are watched.
        let map = Map::from_arc_regions(mapped.clone())
            .map_err(|error| format!("its memory makes no sense: {error}"))?;
        Ok(Memory { map: Arc::new(WatchedMap { watched, map }), places })
    }

    pub(crate) fn map(&self) -> &Arc<WatchedMap> {
        &self.map
    }

    /// Returns the owner of the mapping.
    pub(crate) fn owner(&self) -> MemoryOwner {
        self.map.clone()
    }

    /// Translates an address of the frontend into one of the guest.
    pub(crate) fn translate(&self, address: u64) -> Option<u64> {
        self.places.iter().find_map(|place| {
            let offset = address.checked_sub(place.frontend).filter(|offset| *offset < place.bytes)?;
            place.guest.checked_add(offset)
        })
    }
}

// These functions first try one region that contains all of the bytes, which is nearly always the case:
// walking from region to region takes several times as long, and is only needed for bytes that lie in two.

/// Copies an object out of the guest's memory; `None` if the memory does not contain all of it.
#[inline]
pub(crate) fn read<T: ByteValued>(map: &Map, at: GuestAddress) -> Option<T> {
    match map.get_slice(at, size_of::<T>()).and_then(|slice| Ok(slice.get_ref::<T>(0)?.load())) {
        Ok(object) => Some(object),
        Err(_) => map.read_obj(at).ok(),
    }
}

/// Copies bytes out of the guest's memory; false if the memory does not contain all of them.
#[inline]
pub(crate) fn read_bytes(map: &Map, at: GuestAddress, bytes: &mut [u8]) -> bool {
    match map.get_slice(at, bytes.len()) {
        Ok(slice) => slice.copy_to(bytes) == bytes.len(),
        Err(_) => map.read_slice(bytes, at).is_ok(),
    }
}

/// Writes a byte to the guest's memory; false if the memory does not contain it.
#[inline]
pub(crate) fn write_byte(map: &Map, at: GuestAddress, byte: u8) -> bool {
    let Ok(place) = map.get_slice(at, 1) else { return false };
    place.copy_from(&[byte]);
    true
}

/// Returns true if the guest's memory contains the byte at `at`.
#[inline]
pub(crate) fn has_byte(map: &Map, at: GuestAddress) -> bool {
    map.get_slice(at, 1).is_ok()
}

/// Calls `each` for every contiguous segment of a range of the guest's memory, until `each` returns false.
/// Returns false then, or if the memory does not contain the whole range.
#[inline]
pub(crate) fn for_each_segment(
    map: &Map,
    at: GuestAddress,
    bytes: usize,
    access: Permissions,
    mut each: impl FnMut(Segment) -> bool,
) -> bool {
    // SAFETY: the map keeps the slice mapped; `Disk::carry_out` gives every command of these segments the map as its
    // owner. No reference points into guest memory, which is accessed through volatile slices only.
    let segment =
        |slice: &VolatileSlice<'_>| unsafe { Segment::new(slice.ptr_guard_mut().as_ptr(), slice.len()) };
    let mut take = |slice: &VolatileSlice<'_>| each(segment(slice));
    if let Ok(slice) = map.get_slice(at, bytes) {
        return take(&slice);
    }
    let Ok(mut slices) = GuestMemory::get_slices(map, at, bytes, access) else { return false };
    slices.all(|slice| slice.is_ok_and(|slice| take(&slice)))
}

/// Pages of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Ordinary ones, which cannot vanish.
    Lasting,
    /// Reserved huge pages of this size in bytes, which can.
    Huge(usize),
}

/// Checks that a file has `bytes` bytes from `offset` on, and can never lose them, or only as reserved huge pages.
pub(crate) fn check(file: &File, offset: u64, bytes: u64) -> Result<Pages, String> {
    const REMEDY: &str =
        "give QEMU -object memory-backend-memfd,share=on, whose seals are on if nothing else is said";
    let look = |error| format!("its memory cannot be looked at: {error}");
    let place = fstatfs(file).map_err(look)?;
    let pages = if place.f_type == HUGETLBFS {
        let page = place.f_bsize as u64;
        if page == 0 || !offset.is_multiple_of(page) || !bytes.is_multiple_of(page) {
            return Err(format!("its memory is no whole number of its huge pages of {page} bytes"));
        }
        Pages::Huge(page as usize)
    } else {
        let seals = fcntl_get_seals(file).map_err(|_| format!("its memory is no memfd: {REMEDY}"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(format!("its memory is not sealed against shrinking: {REMEDY}"));
        }
        Pages::Lasting
    };
    let has = fstat(file).map_err(look)?.st_size as u64;
    match offset.checked_add(bytes) {
        Some(end) if end <= has => Ok(pages),
        _ => Err(format!("its memory has {has} bytes, and should have {bytes} from {offset} on")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

    fn file(bytes: u64, seals: SealFlags) -> File {
        let file = File::from(memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    fn region(guest: u64, bytes: u64, frontend: u64) -> VhostUserMemoryRegion {
        VhostUserMemoryRegion::new(guest, bytes, frontend, 0)
    }

    #[test]
    fn only_memory_that_stays_is_taken() {
        let regions = [region(0, 8192, 0x1000)];
        Memory::adopt(&regions, vec![file(8192, SealFlags::SHRINK)], 8192).unwrap();
        for (files, bytes_max, why) in [
            (file(8192, SealFlags::GROW), 8192, "not sealed"),
            (file(4096, SealFlags::SHRINK), 8192, "has 4096 bytes"),
            (file(8192, SealFlags::SHRINK), 8191, "larger than the 8191"),
            (tempfile::tempfile().unwrap(), 8192, "no memfd"),
            (File::open("/dev/zero").unwrap(), 8192, "no memfd"),
        ] {
            let error = Memory::adopt(&regions, vec![files], bytes_max).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let two = || vec![file(8192, SealFlags::SHRINK), file(8192, SealFlags::SHRINK)];
        let overlapping = [region(0, 8192, 0), region(4096, 8192, 0x10000)];
        assert!(Memory::adopt(&overlapping, two(), 1 << 20).unwrap_err().contains("no sense"));
    }

    #[test]
    fn addresses_of_the_frontend_are_translated() {
        let regions = [region(0x10_0000, 4096, 0x7000), region(0, 4096, u64::MAX - 4096)];
        let files = vec![file(4096, SealFlags::SHRINK), file(4096, SealFlags::SHRINK)];
        let memory = Memory::adopt(&regions, files, 1 << 20).unwrap();
        for (address, guest) in [
            (0x7000, Some(0x10_0000)),
            (0x7fff, Some(0x10_0fff)),
            (0x8000, None),
            (0x6fff, None),
            (u64::MAX - 1, Some(4095)),
            (u64::MAX, None),
            (0, None),
        ] {
            assert_eq!(memory.translate(address), guest, "{address:#x}");
        }
    }
}
