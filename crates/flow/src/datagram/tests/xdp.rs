//! AF_XDP and redirected frames: what arrives, what else passes, and that no program stays attached.

use super::passing::{NONE, SLOW, through};
use super::*;
use crate::datagram::engine::Engine;
use crate::datagram::options::Rate;
use bywash_support::hosts::{Hosts, MTU};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

const BOTH: [Engine; 2] = [Engine::Xdp, Engine::XdpRedirect];
/// Name of the variable in which a child process finds the devices to join.
const DEVICES: &str = "BYWASH_TEST_DEVICES";

/// Returns both endpoints of a relay in the middle, with an engine.
fn ends(hosts: &Hosts, engine: Option<Engine>, ports: (u16, u16)) -> (DatagramEndpoint, DatagramEndpoint) {
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    let from = EthOptions { engine, ..eth(left, ports.0) };
    let to = EthOptions { engine, ..eth_to(right, hosts.last().port(), ports.1) };
    (DatagramEndpoint::Eth(from), DatagramEndpoint::Eth(to))
}

/// Returns the number of XDP programs at a host's devices, as `ip` shows them.
fn programs(host: &Host) -> usize {
    let said = host.run(|| Command::new("ip").args(["-details", "link"]).output()).unwrap().stdout;
    String::from_utf8(said).unwrap().matches("prog/xdp").count()
}

/// Checks that UDP datagrams of the first host reach the middle one, which needs ARP.
fn others_pass(hosts: &Hosts) {
    let (here, there) = (hosts.first().port(), &hosts.middle().ports()[0]);
    hosts.first().ip(&format!("neighbour del {} dev {}", there.address, here.interface));
    let server = hosts.middle().run(|| UdpSocket::bind((there.address, 7400)).unwrap());
    let client = hosts.first().run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    server.set_read_timeout(Some(SOON)).unwrap();
    client.send_to(b"not ours", (there.address, 7400)).unwrap();
    let mut room = [0; 20];
    let came = arrival(&server, &mut room).0;
    assert_eq!(&room[..came], b"not ours");
}

#[test]
fn relays_pass_on_every_byte_to_the_same_port_and_another_and_leave_nothing_behind() {
    let hosts = Hosts::three(MTU);
    let left = &hosts.middle().ports()[0];
    for engine in BOTH {
        for onwards in [41, 0x1042] {
            let (from, to) = ends(&hosts, Some(engine), (41, onwards));
            let sender =
                DatagramEndpoint::Eth(EthOptions { rate: SLOW, ..eth_to(hosts.first().port(), left, 41) });
            let receiver = DatagramEndpoint::Eth(eth(hosts.last().port(), onwards));
            let [sent, relayed, received] = through(&hosts, &sender, (&from, &to), &receiver);
            let counts = relayed.relayed.unwrap();
            assert_eq!(relayed.engine, Some(engine));
            // The data, at least one end mark and one acknowledgement of the report, each with its header.
            let controls = counts.packets - sent.packets_sent;
            assert!((2..100).contains(&controls), "{counts:?}");
            assert_eq!(counts.bytes, sent.bytes_sent + 32 * counts.packets, "{counts:?}");
            assert!(counts.packets_back > 0, "{counts:?}");
            assert_eq!((counts.refused, counts.unfit, relayed.kernel_drops), (0, 0, 0));
            assert_eq!((received.foreign, received.lost), (0, 0));
            assert_eq!(programs(hosts.middle()), 0);
        }
    }
}

#[test]
fn what_is_not_ours_goes_where_it_went() {
    let hosts = Hosts::three(MTU);
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    for engine in BOTH {
        let (from, to) = ends(&hosts, Some(engine), (43, 43));
        let relay = pass_on(hosts.middle(), &from, &to, NONE);
        assert_eq!(programs(hosts.middle()), 2);
        others_pass(&hosts);
        // Another port, another sender's frames for another host, and another flow in the same host.
        let here = hosts.first().port();
        let stray = DatagramEndpoint::Eth(EthOptions { mac: Some(mac(right)), rate: SLOW, ..eth(here, 43) });
        let mut output = hosts.first().run(|| open_output(&stray, Ledger::default())).unwrap();
        output.put(&data(20_000, 43), &Control::new().unwrap()).unwrap();
        let receiver = receive(hosts.middle(), &DatagramEndpoint::Eth(eth(left, 44)));
        let sender = EthOptions { rate: SLOW, ..eth_to(here, left, 44) };
        let data = data(100_000, 44);
        send(hosts.first(), &DatagramEndpoint::Eth(sender), &data).result.unwrap();
        assert_same(&receiver.end().data, &data);
        assert_eq!(relay.stop().account.relayed.unwrap_or_default().packets, 0, "{engine:?}");
        others_pass(&hosts);
    }
}

#[test]
fn the_rate_is_found_through_the_kernel() {
    let hosts = Hosts::three(MTU);
    let left = &hosts.middle().ports()[0];
    for engine in BOTH {
        let (from, to) = ends(&hosts, Some(engine), (45, 46));
        let sender =
            DatagramEndpoint::Eth(EthOptions { rate: Rate::Auto, ..eth_to(hosts.first().port(), left, 45) });
        let receiver = DatagramEndpoint::Eth(eth(hosts.last().port(), 46));
        let [sent, relayed, received] = through(&hosts, &sender, (&from, &to), &receiver);
        assert!(sent.probing.unwrap().rate_chosen > 0);
        assert_eq!((received.lost, relayed.engine), (0, Some(engine)));
    }
}

#[test]
fn without_a_wish_frames_stay_in_the_kernel_until_nothing_comes() {
    let hosts = Hosts::three(MTU);
    let left = &hosts.middle().ports()[0];
    let idle = RelayOptions { idle: Some(Duration::from_millis(300)), limit: None };
    let (from, to) = ends(&hosts, None, (47, 47));
    let relay = pass_on(hosts.middle(), &from, &to, idle);
    let receiver = receive(hosts.last(), &DatagramEndpoint::Eth(eth(hosts.last().port(), 47)));
    let sender = EthOptions { rate: SLOW, ..eth_to(hosts.first().port(), left, 47) };
    let data = data(300_000, 47);
    send(hosts.first(), &DatagramEndpoint::Eth(sender), &data).result.unwrap();
    assert_same(&receiver.end().data, &data);
    let relay = relay.end();
    relay.result.unwrap();
    assert_eq!((relay.account.engine, relay.account.fell_back), (Some(Engine::XdpRedirect), None));
}

#[test]
fn a_limit_another_program_and_a_missing_right_leave_it_to_another_engine() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let hosts = Hosts::three(MTU);
    let first = {
        let (from, to) = ends(&hosts, Some(Engine::XdpRedirect), (48, 48));
        pass_on(hosts.middle(), &from, &to, NONE)
    };
    let limited = RelayOptions { limit: Some(1000), ..NONE };
    let refused = |engine, options| {
        let (from, to) = ends(&hosts, engine, (49, 49));
        hosts.middle().run(|| open_relay(&from, &to, options, Ledger::default())).err().unwrap().to_string()
    };
    let error = refused(Some(Engine::XdpRedirect), NONE);
    assert!(error.contains("another program is attached to wire2"), "{error}");
    let error = refused(Some(Engine::Xdp), NONE);
    assert!(error.contains("another program is attached to wire1"), "{error}");
    let (from, to) = ends(&hosts, None, (49, 49));
    let account = pass_on(hosts.middle(), &from, &to, NONE).stop().account;
    assert_eq!(account.engine, Some(Engine::Ring));
    let why = account.fell_back.unwrap();
    assert!(why.contains("xdp-redirect: another program"), "{why}");
    assert_eq!(programs(hosts.middle()), 2, "what was there stays");
    first.stop();

    let error = refused(Some(Engine::XdpRedirect), limited);
    assert!(error.contains("there is a limit"), "{error}");
    let account = pass_on(hosts.middle(), &from, &to, limited).stop().account;
    assert!(account.engine == Some(Engine::Ring) && account.fell_back.unwrap().contains("limit"));

    let opened = hosts.middle().run(|| {
        let some = CapabilitySet::NET_RAW | CapabilitySet::NET_ADMIN;
        // The namespace is that of this thread, which ends here.
        set_capabilities(None, CapabilitySets { effective: some, permitted: some, inheritable: some })
            .unwrap();
        let ledger = Ledger::default();
        (open_relay(&from, &to, NONE, ledger.clone()).unwrap(), ledger)
    });
    let control = Control::new().unwrap();
    control.cancel();
    assert!(matches!((opened.0)(&control), Err(Error::Cancelled)));
    let why = opened.1.read().fell_back.unwrap();
    assert!(why.contains("CAP_BPF"), "{why}");
}

#[test]
fn devices_that_cannot_be_joined_are_refused() {
    let hosts = Hosts::three(MTU);
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    let engine = Some(Engine::XdpRedirect);
    let refused = |from: &EthOptions, to: &EthOptions| {
        let (from, to) = (DatagramEndpoint::Eth(from.clone()), DatagramEndpoint::Eth(to.clone()));
        hosts.middle().run(|| open_relay(&from, &to, NONE, Ledger::default())).err().unwrap().to_string()
    };
    let from = EthOptions { engine, ..eth(left, 50) };
    let to = EthOptions { engine, ..eth_to(left, hosts.first().port(), 51) };
    let error = refused(&from, &to);
    assert!(error.contains("both ends are at wire1"), "{error}");
    hosts.middle().ip("link set wire2 mtu 1400");
    let error = refused(&from, &EthOptions { engine, ..eth_to(right, hosts.last().port(), 51) });
    assert!(error.contains("may have 1500 bytes, and wire2 takes 1400"), "{error}");
    hosts.middle().ip("link set wire1 mtu 9000");
    let listen = DatagramEndpoint::Eth(EthOptions { engine: Some(Engine::Xdp), ..from.clone() });
    let error = hosts.middle().run(|| open_input(&listen, Ledger::default())).err().unwrap().to_string();
    assert!(error.contains("the MTU of wire1 is 9000"), "{error}");
    let single = DatagramEndpoint::Eth(from);
    let error = hosts.middle().run(|| open_input(&single, Ledger::default())).err().unwrap().to_string();
    assert!(error.contains("between two Ethernet devices"), "{error}");
}

#[test]
fn every_queue_of_a_device_is_served() {
    let hosts = Hosts::two(MTU);
    let (here, there) = (hosts.first().port(), hosts.last().port());
    let (one, other) = ("02:00:00:00:07:01", "02:00:00:00:07:02");
    hosts.last().ip(&format!(
        "link add left7 address {one} numrxqueues 2 numtxqueues 2 type veth peer name right7 address {other} numrxqueues 2 numtxqueues 2"
    ));
    hosts.last().ip("link set left7 up");
    hosts.last().ip("link set right7 up");
    let device =
        |port: &Port, name: &str, mac: &str| Port { interface: name.into(), mac: mac.into(), ..port.clone() };
    let (left, right) = (device(here, "left7", one), device(there, "right7", other));
    let listen = EthOptions { engine: Some(Engine::Xdp), ..eth(&right, 52) };
    let receiver = receive(hosts.last(), &DatagramEndpoint::Eth(listen));
    let sender = EthOptions { rate: SLOW, ..eth_to(&left, &right, 52) };
    let data = data(3_000_000, 52);
    send(hosts.last(), &DatagramEndpoint::Eth(sender), &data).result.unwrap();
    let received = receiver.end();
    received.result.unwrap();
    assert_same(&received.data, &data);
}

#[test]
fn programs_go_with_a_process_that_is_killed() {
    let hosts = Hosts::three(MTU);
    let [left, right] = hosts.middle().ports() else { panic!("two ports") };
    for engine in ["xdp", "xdp-redirect"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "datagram::tests::xdp::a_child_that_joins_two_devices", "--ignored"]);
        child.args(["--nocapture", "--test-threads", "1"]).stdout(Stdio::piped());
        child.env(DEVICES, format!("{} {} {} {engine}", left.interface, right.interface, right.mac));
        let mut child = hosts.middle().spawn(&mut child);
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap().contains("joined")), "the child did not begin");
        assert_eq!(programs(hosts.middle()), 2);
        child.kill().unwrap();
        child.wait().unwrap();
        let until = Instant::now() + SOON;
        while programs(hosts.middle()) > 0 {
            assert!(Instant::now() < until, "{engine}: a program stays behind");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
#[ignore = "the child of another test"]
fn a_child_that_joins_two_devices() {
    let Ok(devices) = std::env::var(DEVICES) else { return };
    let words: Vec<&str> = devices.split(' ').collect();
    let [left, right, sink, engine] = words[..] else { panic!("{devices}") };
    let engine = if engine == "xdp" { Engine::Xdp } else { Engine::XdpRedirect };
    let end = |interface: &str, mac| {
        let (interface, engine) = (interface.into(), Some(engine));
        DatagramEndpoint::Eth(EthOptions { interface, engine, port: 53, mac, ..EthOptions::default() })
    };
    let (from, to) = (end(left, None), end(right, Some(sink.parse().unwrap())));
    let relay = open_relay(&from, &to, NONE, Ledger::default()).unwrap();
    println!("joined");
    let _ = relay(&Control::new().unwrap());
}
