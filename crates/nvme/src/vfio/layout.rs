//! Structures and numbers of the kernel's VFIO interface (`linux/vfio.h`, Documentation/driver-api/vfio.rst). The crate
//! defines the few that it needs by itself, instead of depending on bindings of all.

/// Returns the number of VFIO's ioctl(2) request `index`: `_IO(';', 100 + index)`.
const fn request(index: libc::Ioctl) -> libc::Ioctl {
    ((b';' as libc::Ioctl) << 8) | (100 + index)
}

pub(super) const GET_API_VERSION: libc::Ioctl = request(0);
pub(super) const CHECK_EXTENSION: libc::Ioctl = request(1);
pub(super) const SET_IOMMU: libc::Ioctl = request(2);
pub(super) const GROUP_GET_STATUS: libc::Ioctl = request(3);
pub(super) const GROUP_SET_CONTAINER: libc::Ioctl = request(4);
pub(super) const GROUP_GET_DEVICE_FD: libc::Ioctl = request(6);
pub(super) const DEVICE_GET_REGION_INFO: libc::Ioctl = request(8);
pub(super) const DEVICE_GET_IRQ_INFO: libc::Ioctl = request(9);
pub(super) const DEVICE_SET_IRQS: libc::Ioctl = request(10);
pub(super) const DEVICE_RESET: libc::Ioctl = request(11);
pub(super) const IOMMU_GET_INFO: libc::Ioctl = request(12);
pub(super) const IOMMU_MAP_DMA: libc::Ioctl = request(13);
pub(super) const IOMMU_UNMAP_DMA: libc::Ioctl = request(14);

/// Version of the interface that the kernel has to offer.
pub(super) const API_VERSION: i32 = 0;
/// The model of an IOMMU in which every mapping is removed as it was made (VFIO_TYPE1v2_IOMMU).
pub(super) const TYPE1V2_IOMMU: libc::c_ulong = 3;
/// Flag of a group all of whose devices are bound to VFIO or to no driver.
pub(super) const GROUP_VIABLE: u32 = 1;

/// Number of the region of the first base address register, which has the controller's registers.
pub(super) const REGION_BAR0: u32 = 0;
/// Number of the region of the PCI configuration space.
pub(super) const REGION_CONFIG: u32 = 7;
/// Flag of a region that can be mapped.
pub(super) const REGION_MMAP: u32 = 1 << 2;

/// Number of the interrupts by MSI-X.
pub(super) const IRQ_MSIX: u32 = 2;
/// Number of the notification that the device is to be released.
pub(super) const IRQ_REQUEST: u32 = 4;
/// Flag of interrupts that can be signalled by an eventfd(2).
pub(super) const IRQ_EVENTFD: u32 = 1;
/// Flags of [`IrqSet`]: the data is an eventfd that an interrupt triggers.
pub(super) const IRQ_SET_TRIGGER_EVENTFD: u32 = 1 << 2 | 1 << 5;
/// Flags of [`IrqSet`] without data: with a count of 0, the interrupts are disabled.
pub(super) const IRQ_SET_TRIGGER_NONE: u32 = 1 | 1 << 5;

/// Flags of [`DmaMap`]: the device may read and write.
pub(super) const DMA_READ_WRITE: u32 = 1 | 1 << 1;
/// Flag of [`DmaUnmap`]: all memory is unmapped, and address and size are zeros.
pub(super) const DMA_UNMAP_ALL: u32 = 1 << 1;
/// Flag of [`IommuInfo`]: capabilities follow.
pub(super) const IOMMU_CAPABILITIES: u32 = 1 << 1;
/// Identifier of the capability that lists the usable addresses.
pub(super) const CAPABILITY_IOVA_RANGE: u16 = 1;

/// `struct vfio_group_status`.
#[repr(C)]
#[derive(Default)]
pub(super) struct GroupStatus {
    pub(super) argsz: u32,
    pub(super) flags: u32,
}

/// `struct vfio_region_info`, without capabilities.
#[repr(C)]
#[derive(Default)]
pub(super) struct RegionInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) cap_offset: u32,
    pub(super) size: u64,
    pub(super) offset: u64,
}

/// `struct vfio_irq_info`.
#[repr(C)]
#[derive(Default)]
pub(super) struct IrqInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) count: u32,
}

/// `struct vfio_irq_set`, followed by one eventfd.
#[repr(C)]
pub(super) struct IrqSet {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    pub(super) start: u32,
    pub(super) count: u32,
    /// Descriptors, of which the first `count` are read.
    pub(super) eventfds: [i32; IRQS_MAX],
}

/// Greatest number of interrupts that are set by one request.
pub(super) const IRQS_MAX: usize = 64;

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
pub(super) struct DmaMap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) vaddr: u64,
    pub(super) iova: u64,
    pub(super) size: u64,
}

/// `struct vfio_iommu_type1_dma_unmap`, without a bitmap.
#[repr(C)]
pub(super) struct DmaUnmap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) iova: u64,
    pub(super) size: u64,
}

/// Size of the buffer for [`IOMMU_GET_INFO`] and the capabilities that follow, in bytes.
pub(super) const IOMMU_INFO_BYTES: usize = 4096;

/// `struct vfio_iommu_type1_info`, with room for capabilities.
#[repr(C, align(8))]
pub(super) struct IommuInfo(pub(super) [u8; IOMMU_INFO_BYTES]);

impl IommuInfo {
    pub(super) fn new() -> IommuInfo {
        let mut info = IommuInfo([0; IOMMU_INFO_BYTES]);
        info.0[..4].copy_from_slice(&(IOMMU_INFO_BYTES as u32).to_ne_bytes());
        info
    }

    /// Returns the ranges of addresses that can be used, with inclusive ends; empty if the kernel does not list them.
    pub(super) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        if self.word32(4).unwrap_or(0) & IOMMU_CAPABILITIES == 0 {
            return ranges;
        }
        let mut at = self.word32(16).unwrap_or(0) as usize;
        // Each capability is further back than the one before, so the loop ends.
        let mut before = 0;
        while at > before {
            let Some(head) = self.word32(at) else { break };
            if head as u16 == CAPABILITY_IOVA_RANGE {
                let count = self.word32(at + 8).unwrap_or(0) as usize;
                let entry = |index: usize| {
                    Some((self.word64(at + 16 + 16 * index)?, self.word64(at + 24 + 16 * index)?))
                };
                ranges.extend((0..count.min(IOMMU_INFO_BYTES / 16)).filter_map(entry));
            }
            before = at;
            at = self.word32(at + 4).unwrap_or(0) as usize;
        }
        ranges
    }

    fn word32(&self, at: usize) -> Option<u32> {
        self.0.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn word64(&self, at: usize) -> Option<u64> {
        self.0.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_ne_bytes)
    }
}

const _: () =
    assert!(size_of::<GroupStatus>() == 8 && size_of::<RegionInfo>() == 32 && size_of::<IrqInfo>() == 16);
const _: () = assert!(
    size_of::<IrqSet>() == 20 + 4 * IRQS_MAX && size_of::<DmaMap>() == 32 && size_of::<DmaUnmap>() == 24
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_requests() {
        assert_eq!((GET_API_VERSION, IOMMU_UNMAP_DMA), (0x3b64, 0x3b72));
    }

    #[test]
    fn ranges_are_read_from_a_chain_of_capabilities() {
        let mut info = IommuInfo::new();
        let mut put = |at: usize, bytes: &[u8]| info.0[at..at + bytes.len()].copy_from_slice(bytes);
        put(4, &3u32.to_ne_bytes());
        put(16, &64u32.to_ne_bytes());
        // Another capability first.
        put(64, &2u16.to_ne_bytes());
        put(68, &128u32.to_ne_bytes());
        put(128, &1u16.to_ne_bytes());
        put(136, &2u32.to_ne_bytes());
        for (index, word) in [0u64, 0xfedf_ffff, 0xfef0_0000, 0x7f_ffff_ffff].into_iter().enumerate() {
            put(144 + 8 * index, &word.to_ne_bytes());
        }
        assert_eq!(info.ranges(), [(0, 0xfedf_ffff), (0xfef0_0000, 0x7f_ffff_ffff)]);
        // A chain that goes round ends.
        info.0[132..136].copy_from_slice(&64u32.to_ne_bytes());
        assert_eq!(info.ranges().len(), 2);
        info.0[4..8].fill(0);
        assert!(info.ranges().is_empty());
    }
}
