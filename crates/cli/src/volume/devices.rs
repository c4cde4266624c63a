//! `bywash volume devices`, `adopt`, `relabel`, `forget`: devices of a store, and the labels that identify
//! them.

use super::VolumeAccess;
use crate::error::Failure;
use bywash_device::Spec;
use bywash_quantity::Bytes;
use bywash_server::identity;
use bywash_volume::{Blocks, Store};
use serde::Serialize;
use std::io::{self, Write};

/// A device in the list.
#[derive(Serialize)]
struct DeviceRow {
    name: String,
    bytes: u64,
    free: u64,
    /// Identity from the device's label, or of a memory device.
    id: Option<String>,
}

pub(super) fn list(place: &VolumeAccess, json: bool) -> Result<(), Failure> {
    let devices = match place {
        VolumeAccess::Server(client) => {
            let devices = client.status()?.devices.into_iter();
            let told = devices.map(|device| DeviceRow {
                name: device.name,
                bytes: device.bytes,
                free: device.free,
                id: device.id,
            });
            told.collect()
        }
        VolumeAccess::Store(store) => devices_in_store(store)?,
    };
    let mut out = io::stdout().lock();
    if json {
        let text = serde_json::to_string_pretty(&devices).map_err(|error| Failure::Output(error.into()))?;
        return writeln!(out, "{text}").map_err(Failure::Output);
    }
    let mut text = format!("{:<16} {:>10} {:>10} {}\n", "device", "size", "free", "identity");
    for DeviceRow { name, bytes, free, id } in devices {
        let (bytes, free) = (Bytes(bytes).to_string(), Bytes(free).to_string());
        text += &format!("{name:<16} {bytes:>10} {free:>10} {}\n", id.as_deref().unwrap_or("none"));
    }
    out.write_all(text.as_bytes()).map_err(Failure::Output)
}

fn devices_in_store(store: &Store) -> Result<Vec<DeviceRow>, Failure> {
    let told = |device: bywash_volume::Device| {
        let bytes = |blocks: Blocks| device.block.bytes(blocks).map_or(u64::MAX, |bytes| bytes.0);
        let free = bytes(Blocks(device.free.0.saturating_add(device.to_clear.0)));
        let id = device.identity.id().map(|id| id.to_string());
        DeviceRow { bytes: bytes(device.blocks), free, id, name: device.name }
    };
    Ok(store.devices()?.into_iter().map(told).collect())
}

pub(super) fn adopt(store: &Store, device: &Spec, lose: Option<&str>) -> Result<(), Failure> {
    let id = identity::adopt(store, device, lose)?;
    say(&format!("device {} has the label {id}", device.name))
}

pub(super) fn relabel(
    store: &Store,
    device: &Spec,
    to: Option<&str>,
    is_vouched: bool,
) -> Result<(), Failure> {
    let id = identity::relabel(store, device, to, is_vouched)?;
    say(&format!("device {} has the label {id}", to.unwrap_or(&device.name)))
}

pub(super) fn forget(store: &Store, name: &str, with_volumes: bool) -> Result<(), Failure> {
    if !with_volumes {
        return Ok(store.forget_device(name)?);
    }
    for volume in store.forget_device_with_volumes(name)? {
        say(&format!("volume {volume} is forgotten"))?;
    }
    Ok(())
}

fn say(line: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}").map_err(Failure::Output)
}
