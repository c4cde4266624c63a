//! `bywash volume`: volumes of a running server, or of a store that no server has open.

mod devices;

use crate::cli::addresses::{NbdAddress, UblkDisk, VhostUserAddress};
use crate::cli::volume::{VolumeArgs, VolumeCommand};
use crate::error::Failure;
use crate::standard;
use bywash_client::{Client, ExportProtocol, NewVolume, Permissions, report};
use bywash_quantity::Bytes;
use bywash_server::volume_reports;
use bywash_volume::{Mode, Ownership, Store};
use std::io::{self, Write};

/// Carries out the command line and returns the exit status.
///
/// # Errors
/// [`Failure::NoServer`] or [`Failure::Read`] if the server or the store is missing, [`Failure::Client`] or
/// [`Failure::Volumes`] if it refuses or fails, [`Failure::NeedsServer`] or [`Failure::NeedsStore`] if the
/// command needs the other one, [`Failure::NoSuch`] for an unknown user or group, and [`Failure::Output`].
pub fn main(arguments: &VolumeArgs) -> Result<i32, Failure> {
    let place = match &arguments.policy {
        // A missing store is created only to adopt a first device.
        Some(path) if matches!(arguments.command, VolumeCommand::Adopt { .. }) => {
            VolumeAccess::Store(Store::open(path)?)
        }
        Some(path) => {
            std::fs::metadata(path).map_err(|source| Failure::Read { path: path.clone(), source })?;
            VolumeAccess::Store(Store::open(path)?)
        }
        None => VolumeAccess::Server(crate::serve::connect(&arguments.socket, "bywash volume")?),
    };
    carry_out(&place, &arguments.command)?;
    Ok(0)
}

/// Server or store whose volumes are changed.
enum VolumeAccess {
    Server(Client),
    Store(Store),
}

fn carry_out(place: &VolumeAccess, command: &VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create { name, device, size, owner, group, mode, thin } => {
            let owner = owner.as_deref().map_or_else(|| Ok(uzers::get_current_uid()), user)?;
            let group = group.as_deref().map_or_else(|| Ok(uzers::get_current_gid()), self::group)?;
            match place {
                VolumeAccess::Server(client) => {
                    let volume = NewVolume::new(name, device, size.bytes());
                    client.create(volume.owner(owner).group(group).mode(*mode).thin(*thin))?;
                }
                VolumeAccess::Store(store) => {
                    let ownership = Ownership { owner, group, mode: Mode::new(*mode)?, read_only: false };
                    let size = bywash_volume::Bytes(size.bytes());
                    match thin {
                        true => store.create_thin(name, device, size, ownership)?,
                        false => store.create(name, device, size, ownership)?,
                    };
                }
            }
            return tell_rounded(place, name, size.bytes());
        }
        VolumeCommand::List { json } => return list(&volumes(place)?, *json),
        VolumeCommand::Resize { name, size } => {
            match place {
                VolumeAccess::Server(client) => client.resize(name, size.bytes())?,
                VolumeAccess::Store(store) => drop(store.resize(name, bywash_volume::Bytes(size.bytes()))?),
            }
            return tell_rounded(place, name, size.bytes());
        }
        VolumeCommand::Rename { name, to } => match place {
            VolumeAccess::Server(client) => client.rename(name, to)?,
            VolumeAccess::Store(store) => drop(store.rename(name, to)?),
        },
        VolumeCommand::Permit { name, owner, group, mode, read_only } => {
            let owner = owner.as_deref().map(user).transpose()?;
            let group = group.as_deref().map(self::group).transpose()?;
            match place {
                VolumeAccess::Server(client) => {
                    let permissions = Permissions::default().owner(owner).group(group);
                    let permissions = permissions.mode(*mode).read_only(*read_only);
                    client.permit(name, permissions)?;
                }
                VolumeAccess::Store(store) => {
                    let mode = mode.map(Mode::new).transpose()?;
                    store.set_ownership(name, |ownership| {
                        ownership.owner = owner.unwrap_or(ownership.owner);
                        ownership.group = group.unwrap_or(ownership.group);
                        ownership.mode = mode.unwrap_or(ownership.mode);
                        ownership.read_only = read_only.unwrap_or(ownership.read_only);
                    })?;
                }
            }
        }
        VolumeCommand::Snapshot { volume, name } => {
            // What a server that has ended has not flushed would not be in the snapshot after a crash.
            place.server("taking a snapshot")?.snapshot(volume, name)?;
        }
        VolumeCommand::Clone { snapshot, name } => match place {
            VolumeAccess::Server(client) => client.clone_snapshot(snapshot, name)?,
            VolumeAccess::Store(store) => drop(store.clone_snapshot(snapshot, name)?),
        },
        VolumeCommand::Rollback { volume, snapshot } => match place {
            VolumeAccess::Server(client) => client.rollback(volume, snapshot)?,
            VolumeAccess::Store(store) => drop(store.rollback(volume, snapshot)?),
        },
        VolumeCommand::Revoke { name } => place.server("taking grants back")?.revoke(name)?,
        VolumeCommand::Remove { name } => match place {
            VolumeAccess::Server(client) => client.remove(name)?,
            VolumeAccess::Store(store) => store.remove(name)?,
        },
        VolumeCommand::Export { name, at } => {
            let client = place.server("exporting a volume")?;
            // The parser of the command line requires an address.
            if let Some((protocol, address)) = address(at.nbd.as_ref(), at.vhost_user.as_ref(), at.ublk)? {
                client.export(name, protocol, &address)?;
            }
        }
        VolumeCommand::Unexport { name, at } => {
            let client = place.server("ending an export")?;
            let only = address(at.nbd.as_ref(), at.vhost_user.as_ref(), at.ublk)?;
            client.unexport(name, only.as_ref().map(|(protocol, address)| (*protocol, address.as_str())))?;
        }
        VolumeCommand::Devices { json } => return devices::list(place, *json),
        VolumeCommand::Adopt { device, force } => {
            return devices::adopt(place.store("adopting a device")?, device, force.as_deref());
        }
        VolumeCommand::Relabel { device, to, force } => {
            return devices::relabel(place.store("writing a label")?, device, to.as_deref(), *force);
        }
        VolumeCommand::Forget { name, volumes } => {
            return devices::forget(place.store("forgetting a device")?, name, *volumes);
        }
    }
    Ok(())
}

impl VolumeAccess {
    fn server(&self, what: &'static str) -> Result<&Client, Failure> {
        match self {
            VolumeAccess::Server(client) => Ok(client),
            VolumeAccess::Store(_) => Err(Failure::NeedsServer(what)),
        }
    }

    fn store(&self, what: &'static str) -> Result<&Store, Failure> {
        match self {
            VolumeAccess::Store(store) => Ok(store),
            VolumeAccess::Server(_) => Err(Failure::NeedsStore(what)),
        }
    }
}

/// Returns the address of an export as the server reads it, with absolute paths.
fn address(
    nbd: Option<&NbdAddress>,
    vhost_user: Option<&VhostUserAddress>,
    ublk: Option<UblkDisk>,
) -> Result<Option<(ExportProtocol, String)>, Failure> {
    let nbd = nbd.map(|address| Ok((ExportProtocol::Nbd, address.clone().absolute()?.to_string())));
    let vhost_user =
        || vhost_user.map(|at| Ok((ExportProtocol::VhostUser, at.clone().absolute()?.to_string())));
    let ublk = || ublk.map(|disk| Ok((ExportProtocol::Ublk, disk.to_string())));
    nbd.or_else(vhost_user).or_else(ublk).transpose().map_err(Failure::Path)
}

/// Prints the size of a volume if it was rounded up from the requested size.
fn tell_rounded(place: &VolumeAccess, name: &str, asked: u64) -> Result<(), Failure> {
    // The volume may have been removed meanwhile.
    let Some(volume) = volumes(place)?.into_iter().find(|volume| volume.name == name) else { return Ok(()) };
    if volume.bytes != asked {
        let (device, bytes) = (&volume.device, volume.bytes);
        let units = if volume.cluster.is_some() { "clusters" } else { "blocks" };
        standard::say(format_args!(
            "bywash: volume '{name}' has {bytes} bytes: {asked} rounded up to whole {units} of device '{device}'"
        ));
    }
    Ok(())
}

fn volumes(place: &VolumeAccess) -> Result<Vec<report::Volume>, Failure> {
    let store = match place {
        VolumeAccess::Server(client) => return Ok(client.volumes()?),
        VolumeAccess::Store(store) => store,
    };
    Ok(volume_reports(store, |_| true)?)
}

fn list(volumes: &[report::Volume], json: bool) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if json {
        let text = serde_json::to_string_pretty(volumes).map_err(|error| Failure::Output(error.into()))?;
        return writeln!(out, "{text}").map_err(Failure::Output);
    }
    let line = |columns: [&str; 9]| {
        let [name, device, size, allocated, shared, extents, owner, group, mode] = columns;
        format!(
            "{name:<24} {device:<16} {size:>10} {allocated:>10} {shared:>10} {extents:>7} {owner:<12} {group:<12} {mode}\n"
        )
    };
    let head = ["volume", "device", "size", "allocated", "shared", "extents", "owner", "group", "mode"];
    let mut text = line(head);
    for volume in volumes {
        let owner = uzers::get_user_by_uid(volume.owner);
        let owner = owner.map_or(volume.owner.to_string(), |user| user.name().to_string_lossy().into());
        let group = uzers::get_group_by_gid(volume.group);
        let group = group.map_or(volume.group.to_string(), |group| group.name().to_string_lossy().into());
        // An invalid mode, which no server sends, is shown in octal.
        let mode = Mode::new(volume.mode).map_or(format!("{:o}", volume.mode), |mode| mode.to_string());
        let mode = if volume.read_only { format!("{mode} read-only") } else { mode };
        let mode = if volume.is_gone { format!("{mode} gone") } else { mode };
        let kind = match (volume.is_snapshot, &volume.origin) {
            (true, Some(origin)) => format!(" snapshot of {origin}"),
            (true, None) => " snapshot".into(),
            (false, Some(origin)) => format!(" thin, clone of {origin}"),
            (false, None) if volume.cluster.is_some() => " thin".into(),
            (false, None) => String::new(),
        };
        let mode = mode + &kind;
        let bytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| Bytes(bytes).to_string());
        let (allocated, shared) = (bytes(volume.allocated), bytes(volume.shared));
        let (size, extents) = (Bytes(volume.bytes).to_string(), volume.extents.to_string());
        let (name, device) = (&volume.name, &volume.device);
        text += &line([name, device, &size, &allocated, &shared, &extents, &owner, &group, &mode]);
    }
    out.write_all(text.as_bytes()).map_err(Failure::Output)
}

fn user(name: &str) -> Result<u32, Failure> {
    let number = name.parse().ok().or_else(|| uzers::get_user_by_name(name).map(|user| user.uid()));
    number.ok_or_else(|| Failure::NoSuch { what: "user", name: name.to_owned() })
}

fn group(name: &str) -> Result<u32, Failure> {
    let number = name.parse().ok().or_else(|| uzers::get_group_by_name(name).map(|group| group.gid()));
    number.ok_or_else(|| Failure::NoSuch { what: "group", name: name.to_owned() })
}
