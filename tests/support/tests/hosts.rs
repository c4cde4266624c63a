//! Tests that hosts reach each other where they should, and only there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use bywash_support::hosts::{Host, Hosts, MTU};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

fn bound(host: &Host, address: IpAddr) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((address, 0)).unwrap());
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket
}

/// Returns true if a datagram from `from` arrives at `to` within 300 ms.
fn reaches(from: &UdpSocket, to: &UdpSocket) -> bool {
    let address: SocketAddr = to.local_addr().unwrap();
    from.send_to(b"hello", address).is_ok() && to.recv(&mut [0; 16]).is_ok_and(|length| length == 5)
}

#[test]
fn two_hosts_reach_each_other_by_both_versions() {
    let hosts = Hosts::two(MTU);
    let (one, other) = (hosts.first(), hosts.last());
    for (here, there) in [(one.address(), other.address()), (one.port().address6, other.port().address6)] {
        let (here, there) = (bound(one, here), bound(other, there));
        assert!(reaches(&here, &there) && reaches(&there, &here));
    }
}

#[test]
fn the_middle_of_three_reaches_both_and_forwards_nothing() {
    let hosts = Hosts::three(MTU);
    let first = bound(hosts.first(), hosts.first().address());
    let last = bound(hosts.last(), hosts.last().address());
    let [left, right] = hosts.middle().ports() else { panic!("a middle host has two ports") };
    assert!(reaches(&first, &bound(hosts.middle(), left.address)));
    assert!(reaches(&bound(hosts.middle(), right.address), &last));
    hosts.first().ip(&format!("route add 10.77.2.0/24 via {}", left.address));
    assert!(!reaches(&first, &last));
}

#[test]
fn hosts_that_are_alive_at_once_do_not_meet() {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let hosts = Hosts::two(9000);
                let (here, there) = (
                    bound(hosts.first(), hosts.first().address()),
                    bound(hosts.last(), hosts.last().address()),
                );
                assert!(reaches(&here, &there));
            });
        }
    });
}

#[test]
fn programs_run_in_a_host() {
    let hosts = Hosts::two(1400);
    let output =
        hosts.last().run(|| Command::new("ip").args(["-o", "link", "show", "wire1"]).output().unwrap());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("mtu 1400") && text.contains(&hosts.last().port().mac), "{text}");
    assert!(hosts.first().spawn(&mut Command::new("true")).wait().unwrap().success());
}

#[test]
#[should_panic(expected = "as it should")]
fn a_panic_in_a_host_comes_out() {
    Hosts::two(MTU).first().run(|| panic!("as it should"));
}
