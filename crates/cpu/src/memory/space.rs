//! Address space with flat memory: pages with permissions, allocated when they are first touched.
//!
//! An access looks in a table of the pages that were used last (a translation look-aside buffer, as
//! processors have it). If the page is in it and the access is aligned, it costs two comparisons. All else
//! takes the slow path. So do stores to pages whose instructions were decoded or whose lines are reserved:
//! they are not in the table for stores, and the slow path changes the code's version or breaks the
//! reservation.

use super::Memory;
use super::access::{Access, AccessKind, AtomicOperation, Cause, Fault, Width};
use super::pages::{PageEntry, PageTable};
use super::regions::{ADDRESS_LIMIT, MapError, PAGE_BYTES, Permissions, Regions};
use super::reservations::{Reservation, Reservations};

/// Number of pages in the table of recently used pages.
const RECENT: usize = 1024;
/// Tag of an entry without a page. Fast accesses compare a page's address and the lowest three bits at most, so no
/// address equals it: its bits between these are ones.
const NO_PAGE: u64 = u64::MAX;
/// Content of a page.
type Frame = [u8; PAGE_BYTES as usize];

/// Address space with flat memory.
///
/// ```
/// use bywash_cpu::memory::{Access, Memory, Permissions, Space, Width};
///
/// let mut space = Space::new(1 << 20);
/// space.map(0x1_0000, 0x2000, Permissions::READ | Permissions::WRITE)?;
/// let access = Access { address: 0x1_0ffe, width: Width::Word, position: 0 };
/// space.store(access, 0x1234_5678)?;
/// assert_eq!(space.load(access)?, 0x1234_5678);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Space {
    /// Addresses of recently loaded pages, by the lowest bits of their number.
    load_tags: [u64; RECENT],
    /// Addresses of recently stored pages, likewise.
    store_tags: [u64; RECENT],
    /// Frames of the pages in `load_tags` and `store_tags`.
    recent_frames: [u32; RECENT],
    /// Contents of the pages.
    frames: Vec<Frame>,
    /// Frames of unmapped pages.
    free_frames: Vec<u32>,
    /// Greatest number of frames in use.
    frame_limit: u32,
    /// Frame and permissions of each page that was touched.
    pages: PageTable,
    /// Mapped addresses.
    regions: Regions,
    /// Unbroken reservations.
    reservations: Reservations,
    /// Number that changes with decoded code.
    code_version: u64,
}

impl Space {
    /// Makes a space without mappings, whose pages have at most `limit` bytes in all.
    pub fn new(limit: u64) -> Space {
        Space {
            load_tags: [NO_PAGE; RECENT],
            store_tags: [NO_PAGE; RECENT],
            recent_frames: [0; RECENT],
            frames: Vec::new(),
            free_frames: Vec::new(),
            frame_limit: (limit / PAGE_BYTES).min(PageEntry::FRAME_LIMIT) as u32,
            pages: PageTable::new(ADDRESS_LIMIT / PAGE_BYTES),
            regions: Regions::default(),
            reservations: Reservations::default(),
            code_version: 0,
        }
    }

    /// Maps a range to pages of zeros. What was mapped there before is lost.
    ///
    /// # Errors
    ///
    /// [`MapError::Range`] and [`MapError::TooMany`].
    pub fn map(&mut self, start: u64, length: u64, permissions: Permissions) -> Result<(), MapError> {
        let end = range_end(start, length)?;
        self.regions.set(start, end, Some(permissions))?;
        self.drop_pages(start, end);
        Ok(())
    }

    /// Removes what is mapped in a range.
    ///
    /// # Errors
    ///
    /// [`MapError::Range`] and [`MapError::TooMany`].
    pub fn unmap(&mut self, start: u64, length: u64) -> Result<(), MapError> {
        let end = range_end(start, length)?;
        self.regions.set(start, end, None)?;
        self.drop_pages(start, end);
        Ok(())
    }

    /// Changes the permissions of a mapped range.
    ///
    /// # Errors
    ///
    /// [`MapError::Range`], [`MapError::TooMany`], and [`MapError::Unmapped`] if a page is not mapped;
    /// nothing has changed then.
    pub fn protect(&mut self, start: u64, length: u64, permissions: Permissions) -> Result<(), MapError> {
        let end = range_end(start, length)?;
        if let Some(address) = self.regions.first_unmapped(start, end) {
            return Err(MapError::Unmapped(address));
        }
        self.regions.set(start, end, Some(permissions))?;
        // Programs change the protection of their data often, which outdates no decoded code.
        let mut had_code = false;
        self.pages.update(start / PAGE_BYTES, end / PAGE_BYTES, |entry| {
            had_code |= entry.has_code();
            entry.with_permissions(permissions)
        });
        self.forget_recent();
        self.code_version += u64::from(had_code);
        Ok(())
    }

    /// Fills a mapped range with zeros and gives its pages back (`MADV_DONTNEED`).
    ///
    /// # Errors
    ///
    /// [`MapError::Range`], and [`MapError::Unmapped`] if a page is not mapped; nothing has changed then.
    pub fn discard(&mut self, start: u64, length: u64) -> Result<(), MapError> {
        let end = range_end(start, length)?;
        if let Some(address) = self.regions.first_unmapped(start, end) {
            return Err(MapError::Unmapped(address));
        }
        self.drop_pages(start, end);
        Ok(())
    }

    /// Returns the permissions of an address; `None` if it is not mapped.
    pub fn permissions(&self, address: u64) -> Option<Permissions> {
        self.regions.permissions(address)
    }

    /// Returns whether nothing is mapped in a range.
    pub fn is_free(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        end <= ADDRESS_LIMIT && self.regions.highest_free(length, start, end) == Some(start)
    }

    /// Returns the start of the highest free range of a length between two addresses, all multiples of
    /// [`PAGE_BYTES`].
    pub fn highest_free(&self, length: u64, lowest: u64, limit: u64) -> Option<u64> {
        self.regions.highest_free(length, lowest, limit.min(ADDRESS_LIMIT))
    }

    /// Copies bytes out of the memory, as a load does: each page must be readable.
    ///
    /// # Errors
    ///
    /// The first address that cannot be loaded; `bytes` has what is before it.
    pub fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.for_each_page(address, bytes.len(), |space, at, range| {
            let (frame, offset) = space.touch(at, AccessKind::Load, Permissions::READ)?;
            let length = range.len();
            bytes[range].copy_from_slice(&space.frames[frame][offset..offset + length]);
            Ok(())
        })
    }

    /// Copies bytes into the memory, as a store does: each page must be writable, and reservations are
    /// broken.
    ///
    /// # Errors
    ///
    /// The first address that cannot be stored to; the bytes before it have been stored.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.for_each_page(address, bytes.len(), |space, at, range| {
            let (frame, offset) = space.touch_for_store(at, range.len() as u64)?;
            let length = range.len();
            space.frames[frame][offset..offset + length].copy_from_slice(&bytes[range]);
            Ok(())
        })
    }

    /// Copies bytes into mapped memory whatever its permissions, as a loader does.
    ///
    /// # Errors
    ///
    /// The first address that is not mapped or whose page cannot be allocated; the bytes before it have been
    /// copied.
    pub fn initialise(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.code_version += 1;
        self.for_each_page(address, bytes.len(), |space, at, range| {
            let (frame, offset) = space.touch(at, AccessKind::Store, Permissions::NONE)?;
            space.reservations.break_range(at, at + range.len() as u64);
            let length = range.len();
            space.frames[frame][offset..offset + length].copy_from_slice(&bytes[range]);
            Ok(())
        })
    }

    /// Returns the memory that the pages occupy, in bytes.
    pub fn bytes_in_use(&self) -> u64 {
        (self.frames.len() - self.free_frames.len()) as u64 * PAGE_BYTES
    }

    /// Calls a function for the part of a range in each page, with its address and its part of the buffer.
    fn for_each_page(
        &mut self,
        address: u64,
        length: usize,
        mut call: impl FnMut(&mut Space, u64, std::ops::Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < length {
            let at = address.wrapping_add(done as u64);
            let part = (length - done).min((PAGE_BYTES - at % PAGE_BYTES) as usize);
            call(self, at, done..done + part)?;
            done += part;
        }
        Ok(())
    }

    /// Removes the frames of the pages in a range.
    fn drop_pages(&mut self, start: u64, end: u64) {
        let free_frames = &mut self.free_frames;
        let mut had_code = false;
        self.pages.update(start / PAGE_BYTES, end / PAGE_BYTES, |entry| {
            free_frames.extend(entry.frame());
            had_code |= entry.has_code();
            PageEntry::default()
        });
        self.reservations.break_range(start, end);
        self.forget_recent();
        self.code_version += u64::from(had_code);
    }

    /// Empties the table of recently used pages.
    fn forget_recent(&mut self) {
        self.load_tags.fill(NO_PAGE);
        self.store_tags.fill(NO_PAGE);
    }

    /// Returns the frame of an address and the offset in it. Allocates the frame if this is the first access
    /// to the page.
    fn touch(
        &mut self,
        address: u64,
        access: AccessKind,
        needed: Permissions,
    ) -> Result<(usize, usize), Fault> {
        let refuse = |cause| Err(Fault { address, access, cause });
        let page = address / PAGE_BYTES;
        let offset = (address % PAGE_BYTES) as usize;
        let entry = self.pages.get(page);
        if let Some(frame) = entry.frame() {
            return if entry.permits(needed) {
                Ok((frame as usize, offset))
            } else {
                refuse(Cause::Permission)
            };
        }
        let Some(permissions) = self.regions.permissions(address) else { return refuse(Cause::Unmapped) };
        let entry = PageEntry::new(0, permissions);
        if !entry.permits(needed) {
            return refuse(Cause::Permission);
        }
        let Some(frame) = self.allocate() else { return refuse(Cause::OutOfMemory) };
        self.pages.set(page, PageEntry::new(frame, permissions));
        Ok((frame as usize, offset))
    }

    /// Returns a frame of zeros; `None` at the limit.
    fn allocate(&mut self) -> Option<u32> {
        if let Some(frame) = self.free_frames.pop() {
            self.frames[frame as usize].fill(0);
            return Some(frame);
        }
        let frame = self.frames.len() as u32;
        if frame >= self.frame_limit {
            return None;
        }
        self.frames.push([0; PAGE_BYTES as usize]);
        Some(frame)
    }

    /// Does as [`Space::touch`] for a store of some bytes within a page: breaks reservations, and changes the
    /// code's version.
    fn touch_for_store(&mut self, address: u64, bytes: u64) -> Result<(usize, usize), Fault> {
        let found = self.touch(address, AccessKind::Store, Permissions::WRITE)?;
        let page = address / PAGE_BYTES;
        let mut entry = self.pages.get(page);
        if entry.has_code() {
            self.code_version += 1;
            entry = entry.with_code(false);
            self.pages.set(page, entry);
        }
        if entry.is_reserved() {
            self.reservations.break_range(address, address + bytes);
            let start = page * PAGE_BYTES;
            entry = entry.with_reserved(self.reservations.any_in(start, start + PAGE_BYTES));
            self.pages.set(page, entry);
        }
        Ok(found)
    }

    /// Loads what the table of recently used pages does not serve.
    #[cold]
    #[inline(never)]
    fn load_slowly(&mut self, address: u64, width: Width) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        let length = width.bytes() as usize;
        if address % PAGE_BYTES + width.bytes() <= PAGE_BYTES {
            let (frame, offset) = self.touch(address, AccessKind::Load, Permissions::READ)?;
            bytes[..length].copy_from_slice(&self.frames[frame][offset..offset + length]);
            self.remember(address, frame);
        } else {
            self.read(address, &mut bytes[..length])?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// Stores what the table of recently used pages does not serve.
    #[cold]
    #[inline(never)]
    fn store_slowly(&mut self, address: u64, width: Width, value: u64) -> Result<(), Fault> {
        let bytes = &value.to_le_bytes()[..width.bytes() as usize];
        if address % PAGE_BYTES + width.bytes() <= PAGE_BYTES {
            let (frame, offset) = self.touch_for_store(address, width.bytes())?;
            self.frames[frame][offset..offset + bytes.len()].copy_from_slice(bytes);
            self.remember(address, frame);
        } else {
            // Nothing may be stored if the second page refuses.
            self.touch(address, AccessKind::Store, Permissions::WRITE)?;
            let second = (address / PAGE_BYTES + 1) * PAGE_BYTES;
            self.touch(second, AccessKind::Store, Permissions::WRITE)?;
            self.write(address, bytes)?;
        }
        Ok(())
    }

    /// Enters a touched page into the table of recently used pages, for what needs no slow path.
    fn remember(&mut self, address: u64, frame: usize) {
        let page = address / PAGE_BYTES;
        let entry = self.pages.get(page);
        let slot = page as usize % RECENT;
        let tag = |is_fast| if is_fast { page * PAGE_BYTES } else { NO_PAGE };
        self.load_tags[slot] = tag(entry.permits(Permissions::READ));
        self.store_tags[slot] =
            tag(entry.permits(Permissions::WRITE) && !entry.has_code() && !entry.is_reserved());
        self.recent_frames[slot] = frame as u32;
    }

    /// Lets the next store to a page take the slow path.
    fn forget_store(&mut self, page: u64) {
        let slot = page as usize % RECENT;
        if self.store_tags[slot] == page * PAGE_BYTES {
            self.store_tags[slot] = NO_PAGE;
        }
    }
}

/// Loads through the table of recently used pages; the arguments after the width are its type and its bytes.
macro_rules! load_fast {
    ($space:ident, $address:ident, $width:expr, $type:ty, $bytes:literal) => {{
        let slot = ($address / PAGE_BYTES) as usize % RECENT;
        // One comparison for both: the page is in the table, and the address is aligned.
        if $space.load_tags[slot] == $address & (!(PAGE_BYTES - 1) | ($bytes - 1)) {
            if let Some(frame) = $space.frames.get($space.recent_frames[slot] as usize) {
                let offset = ($address % PAGE_BYTES & !($bytes - 1)) as usize;
                let mut bytes = [0; $bytes];
                bytes.copy_from_slice(&frame[offset..offset + $bytes]);
                return Ok(<$type>::from_le_bytes(bytes).into());
            }
        }
        $space.load_slowly($address, $width)
    }};
}

/// Stores through the table of recently used pages, likewise.
macro_rules! store_fast {
    ($space:ident, $address:ident, $value:ident, $width:expr, $type:ty, $bytes:literal) => {{
        let slot = ($address / PAGE_BYTES) as usize % RECENT;
        if $space.store_tags[slot] == $address & (!(PAGE_BYTES - 1) | ($bytes - 1)) {
            if let Some(frame) = $space.frames.get_mut($space.recent_frames[slot] as usize) {
                let offset = ($address % PAGE_BYTES & !($bytes - 1)) as usize;
                frame[offset..offset + $bytes].copy_from_slice(&($value as $type).to_le_bytes());
                return Ok(());
            }
        }
        $space.store_slowly($address, $width, $value)
    }};
}

impl Memory for Space {
    const IS_TIMED: bool = false;

    fn repeat(&mut self, _: super::Entry, _: u64) -> bool {
        true
    }

    fn fetch(&mut self, address: u64) -> Result<u16, Fault> {
        let (frame, offset) = self.touch(address, AccessKind::Fetch, Permissions::EXECUTE)?;
        let page = address / PAGE_BYTES;
        let entry = self.pages.get(page);
        if !entry.has_code() {
            self.pages.set(page, entry.with_code(true));
            self.forget_store(page);
        }
        let bytes = &self.frames[frame];
        // Instructions have even addresses, so that both bytes are in one page.
        Ok(u16::from_le_bytes([bytes[offset & !1], bytes[offset | 1]]))
    }

    #[inline(always)]
    fn load(&mut self, access: Access) -> Result<u64, Fault> {
        let address = access.address;
        match access.width {
            Width::Byte => load_fast!(self, address, Width::Byte, u8, 1),
            Width::Half => load_fast!(self, address, Width::Half, u16, 2),
            Width::Word => load_fast!(self, address, Width::Word, u32, 4),
            Width::Double => load_fast!(self, address, Width::Double, u64, 8),
        }
    }

    #[inline(always)]
    fn store(&mut self, access: Access, value: u64) -> Result<(), Fault> {
        let address = access.address;
        match access.width {
            Width::Byte => store_fast!(self, address, value, Width::Byte, u8, 1),
            Width::Half => store_fast!(self, address, value, Width::Half, u16, 2),
            Width::Word => store_fast!(self, address, value, Width::Word, u32, 4),
            Width::Double => store_fast!(self, address, value, Width::Double, u64, 8),
        }
    }

    fn atomic(&mut self, access: Access, operation: AtomicOperation, operand: u64) -> Result<u64, Fault> {
        require_aligned(access, AccessKind::Store)?;
        // Refused as a store even where the load would be refused, too, as the specification has it for
        // atomic operations.
        self.touch(access.address, AccessKind::Store, Permissions::READ | Permissions::WRITE)?;
        let old = self.load(access)?;
        self.store(access, operation.apply(access.width, old, operand))?;
        Ok(old)
    }

    fn load_reserved(&mut self, access: Access) -> Result<(u64, Reservation), Fault> {
        require_aligned(access, AccessKind::Load)?;
        let value = self.load(access)?;
        let page = access.address / PAGE_BYTES;
        self.pages.set(page, self.pages.get(page).with_reserved(true));
        self.forget_store(page);
        Ok((value, self.reservations.reserve(access.address)))
    }

    fn store_conditional(
        &mut self,
        access: Access,
        reservation: Option<Reservation>,
        value: u64,
    ) -> Result<bool, Fault> {
        require_aligned(access, AccessKind::Store)?;
        let Some(reservation) = reservation else { return Ok(false) };
        let holds = reservation.address == access.address && self.reservations.holds(reservation);
        self.reservations.release(reservation);
        if holds {
            self.store(access, value)?;
        }
        Ok(holds)
    }

    fn release(&mut self, reservation: Reservation) {
        self.reservations.release(reservation);
    }

    #[inline(always)]
    fn code_version(&self) -> u64 {
        self.code_version
    }
}

/// Refuses an atomic operation at an address that is no multiple of its width.
fn require_aligned(access: Access, kind: AccessKind) -> Result<(), Fault> {
    if access.address.is_multiple_of(access.width.bytes()) {
        return Ok(());
    }
    Err(Fault { address: access.address, access: kind, cause: Cause::Misaligned })
}

/// Returns the end of a range of whole pages.
fn range_end(start: u64, length: u64) -> Result<u64, MapError> {
    let error = MapError::Range { start, length };
    let end = start.checked_add(length).ok_or(error)?;
    let is_whole = start.is_multiple_of(PAGE_BYTES) && length.is_multiple_of(PAGE_BYTES);
    if is_whole && length != 0 && end <= ADDRESS_LIMIT { Ok(end) } else { Err(error) }
}
