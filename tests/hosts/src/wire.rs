//! A wire: two virtual Ethernet devices, each in a host, with addresses and neighbours that need no asking.
//!
//! Invariant: the devices are made inside of the hosts and go with them. Called by [`crate::Hosts`].

use crate::host::Host;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One end of a wire.
#[derive(Clone, Debug)]
pub struct Port {
    /// The device's name in its host.
    pub interface: String,
    /// Its Ethernet address.
    pub mac: String,
    /// Its address of version 4.
    pub address: IpAddr,
    /// Its address of version 6.
    pub address6: IpAddr,
}

impl Port {
    fn new(wire: u8, end: u8) -> Port {
        Port {
            interface: format!("wire{wire}"),
            mac: format!("02:00:00:00:{wire:02x}:{end:02x}"),
            address: Ipv4Addr::new(10, 77, wire, end).into(),
            address6: Ipv6Addr::new(0xfd77, u16::from(wire), 0, 0, 0, 0, 0, u16::from(end)).into(),
        }
    }
}

/// Lays wire number `wire` from `one` to `other`.
pub(crate) fn join(one: &mut Host, other: &mut Host, wire: u8, mtu: u32) -> Result<(), String> {
    let (near, far) = (Port::new(wire, 1), Port::new(wire, 2));
    let (near_name, far_name) = (&near.interface, &far.interface);
    one.try_ip(&format!(
        "link add {near_name} address {} mtu {mtu} type veth peer name {far_name} address {} mtu {mtu} netns {}",
        near.mac,
        far.mac,
        other.path()
    ))?;
    for (host, here, there) in [(&*one, &near, &far), (&*other, &far, &near)] {
        let name = &here.interface;
        host.try_ip(&format!("address add {}/24 dev {name}", here.address))?;
        // Without looking for duplicates, which takes seconds.
        host.try_ip(&format!("address add {}/64 dev {name} nodad", here.address6))?;
        host.try_ip(&format!("link set {name} up"))?;
        for address in [there.address, there.address6] {
            host.try_ip(&format!(
                "neighbour replace {address} lladdr {} dev {name} nud permanent",
                there.mac
            ))?;
        }
    }
    one.ports.push(near);
    other.ports.push(far);
    Ok(())
}
