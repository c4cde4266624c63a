//! Adapters of this machine: cards, and drivers that compute on the processor.
//!
//! The Vulkan loader is looked for at run time. One connection to it serves the whole process.
//!
//! Unsafe code: the loading of the library, to see whether it is there.

#![allow(unsafe_code)]

use std::sync::{Arc, OnceLock};
use wgpu_core::global::Global;
use wgpu_core::id::AdapterId;
use wgpu_types::{
    AdapterInfo, Backends, DeviceType, Features, InstanceDescriptor, InstanceFlags, MemoryBudgetThresholds,
};

/// Library that finds the drivers.
const LOADER: &str = "libvulkan.so.1";

/// Adapter that can run kernels.
pub(super) struct Adapter {
    pub(super) global: Arc<Global>,
    pub(super) id: AdapterId,
    pub(super) info: AdapterInfo,
}

impl Adapter {
    /// Returns the name of the adapter and of its driver, for people.
    pub(super) fn description(&self) -> String {
        let AdapterInfo { name, driver, driver_info, backend, .. } = &self.info;
        let driver = [driver.as_str(), driver_info].join(" ");
        let driver =
            if driver.trim().is_empty() { String::new() } else { format!("driver {}, ", driver.trim()) };
        format!("{name} ({driver}{backend})")
    }

    /// Returns true if the driver computes on the processor.
    pub(super) fn uses_processor(&self) -> bool {
        self.info.device_type == DeviceType::Cpu
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.global.adapter_drop(self.id);
    }
}

/// Returns all adapters that can run kernels: first cards, then such that share the processor's memory, then others.
///
/// # Errors
/// Reason and remedy if there is none.
pub(super) fn all() -> Result<Vec<Adapter>, [&'static str; 2]> {
    let global = global().as_ref().map_err(|absence| *absence)?;
    let adapter = |id| Adapter { global: Arc::clone(global), id, info: global.adapter_get_info(id) };
    let mut adapters: Vec<Adapter> =
        global.enumerate_adapters(Backends::VULKAN, false).into_iter().map(adapter).collect();
    adapters.retain(|adapter| global.adapter_features(adapter.id).contains(Features::IMMEDIATES));
    adapters.sort_by_key(|adapter| preference(adapter.info.device_type));
    match adapters.is_empty() {
        true => Err(["no adapter", "install the Vulkan driver of a card, or mesa-vulkan-drivers"]),
        false => Ok(adapters),
    }
}

fn preference(kind: DeviceType) -> u32 {
    match kind {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    }
}

/// Returns the connection to the loader.
fn global() -> &'static Result<Arc<Global>, [&'static str; 2]> {
    static GLOBAL: OnceLock<Result<Arc<Global>, [&str; 2]>> = OnceLock::new();
    GLOBAL.get_or_init(|| {
        // SAFETY: the loader is made to be loaded by any process, and its initialisation does nothing else.
        unsafe { libloading::Library::new(LOADER) }
            .map_err(|_| ["no Vulkan loader libvulkan.so.1", "install libvulkan1 and a driver"])?;
        let descriptor = InstanceDescriptor {
            backends: Backends::VULKAN,
            // No layers that check the calls a second time, whatever build this is.
            flags: InstanceFlags::empty(),
            memory_budget_thresholds: MemoryBudgetThresholds::default(),
            ..InstanceDescriptor::new_without_display_handle()
        };
        Ok(Arc::new(Global::new("bywash", descriptor, None)))
    })
}
