//! Datagrams and frames between hosts that are network namespaces of this machine, with and without one in
//! the middle.

use super::{BackgroundChild, noise, run, wait_for};
use crate::place::{TestFolder, stderr, stdout};
use bywash_support::hosts::{Host, Hosts, MTU};
use serde_json::Value;
use std::fs;

/// Slow enough for a receiver that other programs keep from its processor for a while: nobody sends again
/// what is lost.
const RATE: &str = "5M";
const BYTES: usize = 3 << 20;

/// `bywash flow` in a host beside the test.
fn flow_in(host: &Host, place: &TestFolder, words: &[&str]) -> BackgroundChild {
    host.run(|| BackgroundChild::flow(place, words))
}

/// Waits until somebody in `host` has a socket of this kind (proc_pid_net(5)) at a port of the internet.
pub(super) fn wait_for_socket(host: &Host, table: &str, port: u16) {
    let wanted = format!(":{port:04X} ");
    wait_for("somebody receives", || sockets(host, table).lines().any(|line| line.contains(&wanted)));
}

/// Waits until so many sockets of Ethernet in `host` receive our type. A socket that is not bound yet has no
/// type, and loses what comes.
pub(super) fn wait_for_frames(host: &Host, receivers: usize) {
    let receives = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The type, and whether it runs.
        fields.get(3) == Some(&"0a0a") && fields.get(5) == Some(&"1")
    };
    wait_for("somebody receives frames", || {
        sockets(host, "packet").lines().filter(receives).count() == receivers
    });
}

fn sockets(host: &Host, table: &str) -> String {
    host.run(|| fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap())
}

fn told(beside: BackgroundChild) -> Value {
    serde_json::from_str(&stdout(&beside.succeeds())).unwrap()
}

fn same(place: &TestFolder) {
    run(place.command("cmp").args(["from", "to"]));
}

#[test]
fn a_file_between_two_hosts_by_datagrams_that_are_counted() {
    let (hosts, place) = (Hosts::two(MTU), TestFolder::new());
    place.file("from", noise(BYTES));
    let last = format!("{}:7301", hosts.last().address());
    let receiver = flow_in(hosts.last(), &place, &["--json", &format!("udp-listen:{last},sequenced"), "to"]);
    wait_for_socket(hosts.last(), "udp", 7301);
    let sender = flow_in(
        hosts.first(),
        &place,
        &["--json", "--rate", "auto", "from", &format!("udp:{last},sequenced")],
    );
    let (sent, received) = (told(sender), told(receiver));
    same(&place);
    let [sent, received] = [sent, received].map(|told| told["pieces"][0]["datagrams"][0].clone());
    assert_eq!((&received["lost"], &received["whole"]), (&Value::from(0), &Value::from(true)));
    assert_eq!(sent["packets_sent"], received["packets_received"]);
    assert!(sent["probing"]["rate_chosen"].as_u64().unwrap() > 0);
}

#[test]
fn a_file_through_a_host_that_passes_datagrams_on() {
    let (hosts, place) = (Hosts::three(MTU), TestFolder::new());
    place.file("from", noise(BYTES));
    let (middle, last) =
        (format!("{}:7301", hosts.middle().address()), format!("{}:7301", hosts.last().address()));
    let receiver = flow_in(hosts.last(), &place, &[&format!("udp-listen:{last},sequenced"), "to"]);
    wait_for_socket(hosts.last(), "udp", 7301);
    let relay =
        flow_in(hosts.middle(), &place, &["--json", &format!("udp-listen:{middle}"), &format!("udp:{last}")]);
    wait_for_socket(hosts.middle(), "udp", 7301);
    flow_in(hosts.first(), &place, &["--rate", RATE, "from", &format!("udp:{middle},sequenced")]).succeeds();
    receiver.succeeds();
    same(&place);
    relay.signal("TERM");
    let passed = relay.finish();
    assert_eq!(passed.status.code(), Some(143));
    let passed: Value = serde_json::from_str(&stdout(&passed)).unwrap();
    let packets = passed["pieces"][0]["datagrams"][0]["relayed"]["packets"].as_u64().unwrap();
    assert!(packets > BYTES as u64 / u64::from(MTU), "{passed}");
}

#[test]
fn a_file_by_frames_of_our_own_type() {
    let (hosts, place) = (Hosts::three(MTU), TestFolder::new());
    place.file("from", noise(BYTES));
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    let (first, last) = (hosts.first().port(), hosts.last().port());
    for via in ["ring", "batch"] {
        let listen = format!("eth-listen:{},port=5", last.interface);
        let receiver = flow_in(hosts.last(), &place, &["--via", via, &listen, "to"]);
        wait_for_frames(hosts.last(), 1);
        let (from, to) = (
            format!("eth-listen:{},port=5", left.interface),
            format!("eth:{},to={},port=5", right.interface, last.mac),
        );
        let relay = flow_in(hosts.middle(), &place, &["--via", via, &from, &to]);
        wait_for_frames(hosts.middle(), 2);
        let to = format!("eth:{},to={},port=5", first.interface, left.mac);
        flow_in(hosts.first(), &place, &["--via", via, "--rate", RATE, "from", &to]).succeeds();
        receiver.succeeds();
        same(&place);
        fs::remove_file(place.path().join("to")).unwrap();
        relay.signal("TERM");
        assert_eq!(relay.finish().status.code(), Some(143), "{via}");
    }
}

#[test]
fn a_neighbour_on_ethernet_is_named_by_its_address() {
    let (hosts, place) = (Hosts::two(MTU), TestFolder::new());
    // As much as a receive buffer holds, so that nothing is lost on a busy machine.
    place.file("from", noise(100_000));
    let (here, there) = (hosts.first().port(), hosts.last().port());
    let listen = format!("eth-listen:{},from={},port=5", there.interface, here.address);
    let receiver = flow_in(hosts.last(), &place, &[&listen, "to"]);
    wait_for_frames(hosts.last(), 1);
    let to = format!("eth:{},to={},port=5", here.interface, there.address);
    flow_in(hosts.first(), &place, &["--rate", RATE, "from", &to]).succeeds();
    receiver.succeeds();
    same(&place);
    hosts.first().ip(&format!("neighbour del {} dev {}", there.address, here.interface));
    for (interface, said) in [(&*here.interface, "`ping -c 1 -I "), ("nowhere", "there is no network device")]
    {
        let to = format!("eth:{interface},to={},port=5", there.address);
        let refused = flow_in(hosts.first(), &place, &["from", &to]).finish();
        assert_eq!(refused.status.code(), Some(125));
        assert!(stderr(&refused).contains(said), "{}", stderr(&refused));
    }
}

#[test]
fn what_does_not_come_is_said_and_named_as_missing() {
    let (hosts, place) = (Hosts::three(MTU), TestFolder::new());
    place.file("from", noise(BYTES));
    let (middle, last) =
        (format!("{}:7301", hosts.middle().address()), format!("{}:7301", hosts.last().address()));
    let receiver = flow_in(hosts.last(), &place, &[&format!("udp-listen:{last},sequenced,idle=1"), "to"]);
    wait_for_socket(hosts.last(), "udp", 7301);
    let relay = flow_in(hosts.middle(), &place, &[&format!("udp-listen:{middle}"), &format!("udp:{last}")]);
    wait_for_socket(hosts.middle(), "udp", 7301);
    let sender =
        flow_in(hosts.first(), &place, &["--rate", "2M", "from", &format!("udp:{middle},sequenced")]);
    wait_for("something arrives", || {
        hosts.last().run(|| fs::read_to_string("/proc/thread-self/net/snmp").unwrap()).lines().any(|line| {
            line.strip_prefix("Udp: ")
                .and_then(|line| line.split(' ').next()?.parse::<u64>().ok())
                .is_some_and(|came| came > 50)
        })
    });
    // The relay dies in the middle.
    drop(relay);
    let received = receiver.finish();
    assert_eq!(received.status.code(), Some(1));
    assert!(!place.path().join("to").exists(), "what is not whole has the name of what is");
    assert!(!sender.finish().status.success());
}
