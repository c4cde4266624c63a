//! Relay in which no frame leaves the kernel: a program on each of the two devices sends the protocol's
//! frames out by the other device, and this process only watches.
//!
//! ```text
//!     source  ───►  from | onwards: counted, addressed to the sink, port rewritten  | to  ───►  sink
//!             ◄───       | back: counted, addressed to who sent last                |     ◄───
//! ```
//!
//! Two virtual Ethernet pairs are joined by the kernel's generic redirect. Their native redirect needs the
//! far end of the outgoing pair, on another host, to poll (NAPI: a program there, or GRO), and drops
//! everything without that.
//!
//! No packet socket of this host, and so no tcpdump, sees the redirected frames.
//!
//! Invariant: other frames pass both devices as before, and no program stays attached when the relay ends,
//! however the process ends. A frame that the outgoing device does not accept is lost, and the device counts
//! it. Called by [`crate::datagram::open_relay`].

use super::bpf::{self, Link, Map, MapKind, Mode};
use super::program::{COUNTERS, FrameMatch, Program, RedirectTarget};
use super::{attach, refused};
use crate::control::Control;
use crate::datagram::accounting::{Ledger, Relayed};
use crate::datagram::engine::Engine;
use crate::datagram::ether::device::{Device, Drops};
use crate::datagram::options::{EthOptions, RelayOptions};
use crate::error::Error;
use crate::mac::Mac;
use crate::movers::Mover;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Keys of the counters of both directions, and their number.
const ONWARDS: u32 = 0;
const BACK: u32 = 1;
const DIRECTIONS: u32 = 2;
/// Interval between checks of the counters.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between reads of the devices' drop counters.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// A pair of programs on two devices.
pub(crate) struct Redirect {
    /// Attachments of the programs; `None` once they are detached.
    links: Option<[Link; 2]>,
    counters: Map,
    /// Map that the programs name by its address, and that must live as long.
    _source: Map,
    drops: [Drops; 2],
    fell_back: Option<String>,
}

impl Redirect {
    /// Attaches both programs, which redirect frames from then on.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the kernel or a device refuses, so that another engine may be used;
    /// [`Error::Usage`] or [`Error::Io`] if a device does not exist or cannot be inspected.
    pub(crate) fn open(from: &EthOptions, to: &EthOptions, options: RelayOptions) -> Result<Redirect, Error> {
        let (here, there) = (format!("eth-listen:{}", from.interface), format!("eth:{}", to.interface));
        let sink = super::super::goal(to, &there)?;
        let (left, right) =
            (Device::inspect(&from.interface, &here)?, Device::inspect(&to.interface, &there)?);
        fits(&left, &right, options)?;
        let map = |kind, bytes, entries| {
            Map::new(kind, bytes, entries).map_err(|error| refused(Mover::XdpRedirect, "make a map", error))
        };
        let counters = map(MapKind::PerCpuArray, size_of::<[u64; COUNTERS]>(), DIRECTIONS)?;
        let source = map(MapKind::Array, size_of::<u64>(), 1)?;
        let leave = |device: &Device, port, direction| RedirectTarget {
            device: device.index,
            from: device.mac,
            port,
            counters: counters.number(),
            direction,
            source: source.number(),
        };
        let onwards =
            Program::onwards(&ours(&left, from.port, from.mac), &leave(&right, to.port, ONWARDS), sink);
        let back = Program::back(&ours(&right, to.port, None), &leave(&left, from.port, BACK));
        let is_asked_for = [from.engine, to.engine].contains(&Some(Engine::XdpRedirect));
        let modes = modes(&left, &right, is_asked_for);
        let drops = [Drops::new(&left)?, Drops::new(&right)?];
        // The reverse direction is attached first, so that every forwarded frame can be answered.
        let (back, _) = attach(Mover::XdpRedirect, &load(&back)?, &right, modes)?;
        let (onwards, mode) = attach(Mover::XdpRedirect, &load(&onwards)?, &left, modes)?;
        let fell_back = (mode == Mode::Generic && modes[0] == Mode::Native)
            .then(|| format!("the driver of {} calls no programs itself; the kernel does", left.name));
        Ok(Redirect { links: Some([onwards, back]), counters, _source: source, drops, fell_back })
    }

    /// Watches the counters until the flow is cancelled or no frame has been redirected for the idle time.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the flow is cancelled; [`Error::Io`] if the counters cannot be read.
    pub(crate) fn run(
        mut self,
        options: RelayOptions,
        control: &Control,
        ledger: &Ledger,
    ) -> Result<(), Error> {
        let (mut last, mut heard, mut published) = (Relayed::default(), None::<Instant>, Instant::now());
        let result = loop {
            let relayed = self.relayed()?;
            let now = Instant::now();
            control.add_moved(relayed.bytes - last.bytes);
            if relayed.packets != last.packets {
                heard = Some(now);
            }
            last = relayed;
            if now >= published + PUBLISH_EVERY {
                published = now;
                self.publish(relayed, ledger);
            }
            let until = heard.zip(options.idle).map(|(heard, idle)| heard + idle);
            if until.is_some_and(|until| until <= now) {
                break Ok(());
            }
            let next = until.map_or(now + CHECK_INTERVAL, |until| until.min(now + CHECK_INTERVAL));
            if let Err(error) = control.sleep_until(next) {
                break Err(error);
            }
        };
        // The counters are final once the programs are detached.
        self.links = None;
        let relayed = self.relayed()?;
        control.add_moved(relayed.bytes - last.bytes);
        self.publish(relayed, ledger);
        result
    }

    /// Returns the frames that the programs have counted.
    fn relayed(&self) -> Result<Relayed, Error> {
        let failed = |error: Errno| Error::io("read what was redirected", error);
        let [packets, bytes] = self.counters.sum::<COUNTERS>(ONWARDS).map_err(failed)?;
        let [packets_back, _] = self.counters.sum::<COUNTERS>(BACK).map_err(failed)?;
        Ok(Relayed { packets, bytes, runs: packets, packets_back, refused: 0, unfit: 0 })
    }

    fn publish(&self, relayed: Relayed, ledger: &Ledger) {
        let [incoming, outgoing] = &self.drops;
        let (kernel_drops, refused) = (incoming.received(), outgoing.sent());
        let mut account = ledger.open();
        account.engine = Some(Engine::XdpRedirect);
        account.fell_back = self.fell_back.clone();
        account.kernel_drops = kernel_drops;
        account.relayed = Some(Relayed { refused, ..relayed });
    }
}

fn ours(device: &Device, port: u16, from: Option<Mac>) -> FrameMatch {
    FrameMatch { port, here: device.mac, from }
}

fn load(program: &Program) -> Result<OwnedFd, Error> {
    bpf::load(program).map_err(|error| refused(Mover::XdpRedirect, "load a program", error))
}

/// Checks that the relay can work without looking at each frame.
///
/// # Errors
/// [`Error::Unfit`] with the reason if it cannot.
fn fits(left: &Device, right: &Device, options: RelayOptions) -> Result<(), Error> {
    let unfit = |reason: String| Err(Error::Unfit { mover: Mover::XdpRedirect, reason });
    if options.limit.is_some() {
        return unfit("the kernel passes frames on before they are counted, and there is a limit".into());
    }
    if left.index == right.index {
        return unfit(format!("both ends are at {}, where there is place for one program", left.name));
    }
    if right.mtu < left.mtu {
        return unfit(format!(
            "frames of {} may have {} bytes, and {} takes {}: longer ones would be lost unseen",
            left.name, left.mtu, right.name, right.mtu
        ));
    }
    Ok(())
}

/// Returns the hooks to try for the programs, best first. A driver may take its device down for a moment to
/// install a program, so the driver's hook is used only if the user forces this mover.
fn modes(left: &Device, right: &Device, is_asked_for: bool) -> &'static [Mode] {
    match left.is_veth || right.is_veth || !is_asked_for {
        true => &[Mode::Generic],
        false => &[Mode::Native, Mode::Generic],
    }
}
