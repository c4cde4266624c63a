//! Passes datagrams on from one port to another, and what comes back the other way.
//!
//! ```text
//!     source  ───►  from | relay | to  ───►  sink
//!             ◄───                     ◄───            to whoever sent last
//! ```
//!
//! Invariant: a datagram stays a datagram, and a row of them that the kernel joined leaves as a row that the
//! kernel cuts. Nothing is kept: what cannot go onwards at once holds up what comes, in the socket's buffer,
//! and is dropped and counted there. Called by the flow whose two ends are datagram ends. A row costs one
//! receive and one send a batch, and no copy at user level unless its headers change.

use super::accounting::{Ledger, Relayed};
use super::name::Name;
use super::options::RelayOptions;
use super::port::Port;
use super::run::Run;
use super::translate::Translation;
use crate::control::Control;
use crate::error::Error;
use rustix::event::{PollFlags, epoll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How often answers are looked for while data comes without a pause.
const BACK_EVERY: Duration = Duration::from_millis(1);
/// How often the account is written while data comes without a pause.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// Both ports, and what was done.
struct Relay<'a> {
    from: &'a mut dyn Port,
    to: &'a mut dyn Port,
    translation: Translation,
    counts: Relayed,
    /// Who sent last, and gets the answers.
    source: Option<Name>,
    heard: Option<Instant>,
    looked_back: Instant,
    control: &'a Control,
}

/// Passes on what comes at `from` until the flow is cancelled, nothing came for too long, or the limit is
/// reached.
///
/// # Errors
/// The kernel's, by the name of the port. That nobody listens at the other side is counted, not an error: it
/// may come.
pub(crate) fn relay(
    from: &mut dyn Port,
    to: &mut dyn Port,
    translation: Translation,
    options: RelayOptions,
    control: &Control,
    ledger: &Ledger,
) -> Result<(), Error> {
    let either = watch(from, to)?;
    let now = Instant::now();
    let counts = Relayed::default();
    let mut relay =
        Relay { from, to, translation, counts, source: None, heard: None, looked_back: now, control };
    let result = relay.run(options, &either, ledger);
    relay.end();
    relay.publish(ledger);
    result
}

impl Relay<'_> {
    fn run(&mut self, options: RelayOptions, either: &OwnedFd, ledger: &Ledger) -> Result<(), Error> {
        let mut published = Instant::now();
        loop {
            self.control.check()?;
            let onwards = self.onwards()?;
            let now = Instant::now();
            if onwards {
                self.heard = Some(now);
            }
            if options.limit.is_some_and(|limit| self.counts.bytes >= limit) {
                return Ok(());
            }
            let mut back = false;
            if !onwards || now > self.looked_back + BACK_EVERY {
                self.looked_back = now;
                back = self.back()?;
            }
            if now > published + PUBLISH_EVERY {
                published = now;
                self.publish(ledger);
            }
            let until = self.heard.zip(options.idle).map(|(heard, idle)| heard + idle);
            if !onwards && !back && !self.control.wait(either.as_fd(), PollFlags::IN, until)? {
                return Ok(());
            }
        }
    }

    /// Passes on what has come; whether anything had.
    fn onwards(&mut self) -> Result<bool, Error> {
        let Relay { from, to, translation, counts, source, control, .. } = self;
        let (mut result, mut last) = (Ok(()), None);
        let before = counts.bytes;
        let came = from.receive(&mut |runs| {
            last = runs.last().and_then(Run::sender).copied();
            let sent = translation.onwards(runs, &mut counts.unfit, &mut |runs| {
                let (packets, bytes) = totals(runs);
                match to.send(runs, None, control) {
                    Ok(()) => {
                        counts.packets += packets;
                        counts.bytes += bytes;
                        counts.runs += runs.len() as u64;
                        Ok(())
                    }
                    Err(error) if may_pass(&error) => {
                        counts.refused += packets;
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            });
            if let (Ok(()), Err(error)) = (&result, sent) {
                result = Err(error);
            }
        })?;
        *source = last.or(*source);
        control.add_moved(counts.bytes - before);
        result.map(|()| came)
    }

    /// Passes back what has come from the other side; whether anything had.
    fn back(&mut self) -> Result<bool, Error> {
        let Relay { from, to, translation, counts, source, control, .. } = self;
        let mut result = Ok(());
        let came = to.receive(&mut |runs| {
            let Some(source) = source.as_ref() else { return };
            let sent = translation.back(runs, &mut counts.unfit, &mut |runs| {
                from.send(runs, Some(source), control)?;
                counts.packets_back += totals(runs).0;
                Ok(())
            });
            if let Err(error) = sent
                && !may_pass(&error)
            {
                result = Err(error);
            }
        });
        match came {
            Ok(came) => result.map(|()| came),
            // What ICMP said of a datagram that has gone onwards.
            Err(error) if may_pass(&error) => {
                counts.refused += 1;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Says the end to who counts packets that were numbered here.
    fn end(&mut self) {
        let Relay { to, translation, control, .. } = self;
        // Nobody is there to hear of an error: the flow has ended.
        let _ = translation.end(&mut |runs| to.send(runs, None, control));
    }

    fn publish(&mut self, ledger: &Ledger) {
        let (health, ways) = (self.from.health(), self.to.ways());
        let mut account = ledger.open();
        account.engine = Some(ways.engine);
        account.fell_back = ways.fell_back;
        account.kernel_drops = health.drops;
        account.receive_buffer = health.buffer;
        account.relayed = Some(self.counts);
    }
}

/// Datagrams and bytes of runs.
fn totals(runs: &[Run<'_>]) -> (u64, u64) {
    runs.iter()
        .fold((0, 0), |(packets, bytes), run| (packets + run.count() as u64, bytes + run.bytes() as u64))
}

/// Whether the other side may be better in a moment: nobody listens there yet, or there is no way just now.
fn may_pass(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    let passing = [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::NETDOWN, Errno::NOBUFS];
    passing.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
        || source.kind() == io::ErrorKind::ConnectionRefused
}

/// A descriptor that is readable when either port is.
fn watch(from: &dyn Port, to: &dyn Port) -> Result<OwnedFd, Error> {
    let failed = |error: Errno| Error::io(format!("watch {} and {}", from.label(), to.label()), error);
    let either = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    for port in [from, to] {
        epoll::add(&either, port.descriptor(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(failed)?;
    }
    Ok(either)
}
