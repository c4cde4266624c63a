//! A wire: two virtual Ethernet devices, each in one host, with addresses and permanent neighbour entries.
//!
//! Invariant: the devices are made inside the hosts and disappear with them, and no packet sent through a new
//! wire is lost. Called by [`crate::hosts::Hosts`].

use crate::hosts::host::Host;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

/// Greatest time to wait until a device is ready.
const READY_MAX: Duration = Duration::from_secs(30);

/// One end of a wire.
#[derive(Clone, Debug)]
pub struct Port {
    /// The device's name in its host.
    pub interface: String,
    /// The device's Ethernet address.
    pub mac: String,
    /// The device's IPv4 address.
    pub address: IpAddr,
    /// The device's IPv6 address.
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

/// Makes wire number `wire` from `one` to `other`.
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
        // `nodad` skips the detection of duplicate addresses, which takes seconds.
        host.try_ip(&format!("address add {}/64 dev {name} nodad", here.address6))?;
        host.try_ip(&format!("link set {name} up"))?;
        for address in [there.address, there.address6] {
            host.try_ip(&format!(
                "neighbour replace {address} lladdr {} dev {name} nud permanent",
                there.mac
            ))?;
        }
    }
    carries(one, near_name)?;
    carries(other, far_name)?;
    one.ports.push(near);
    other.ports.push(far);
    Ok(())
}

/// Waits until a device accepts packets. The kernel gives a device its queue only when a kernel thread has
/// noticed that the other end of the wire is up, which takes a while on a busy machine. Until then the device
/// silently drops all packets.
fn carries(host: &Host, name: &str) -> Result<(), String> {
    let until = Instant::now() + READY_MAX;
    loop {
        let said = host.try_ip(&format!("-oneline link show dev {name}"))?;
        if said.contains(" state UP ") && !said.contains(" qdisc noop ") {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("the device {name} does not come up: {}", said.trim()));
        }
        thread::sleep(Duration::from_millis(1));
    }
}
