//! Forwards datagrams from one port to another, and answers in the other direction.
//!
//! ```text
//!     source  ───►  from | relay | to  ───►  sink
//!             ◄───                     ◄───            to whoever sent last
//! ```
//!
//! Invariant: a datagram stays a datagram, and a run that the kernel joined is sent as a run that the kernel
//! splits. Nothing is queued here: datagrams that cannot be sent stop receiving, so that later ones wait in
//! the socket's buffer, and are dropped and counted there. Called by [`crate::run`] for flows between two
//! datagram endpoints. A run costs one receive and one send for each batch, and no copy at user level unless
//! headers change.

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

/// Interval between checks for answers while data arrives without a pause.
const BACK_EVERY: Duration = Duration::from_millis(1);
/// Interval between updates of the counters while data arrives without a pause.
const PUBLISH_EVERY: Duration = Duration::from_millis(100);

/// State of a relay.
struct Relay<'a> {
    from: &'a mut dyn Port,
    to: &'a mut dyn Port,
    translation: Translation,
    counts: Relayed,
    /// Last sender, which gets the answers.
    source: Option<Name>,
    heard: Option<Instant>,
    looked_back: Instant,
    control: &'a Control,
}

/// Forwards datagrams that arrive at `from` until the flow is cancelled, the idle time has passed, or the
/// limit is reached.
///
/// # Errors
/// [`Error::Io`] with the name of the port, if a system call fails. A sink without a listener is counted and
/// is no error, since the listener may start later.
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

    /// Forwards the available datagrams. Returns true if there were any.
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

    /// Forwards the available answers. Returns true if there were any.
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
            // ICMP reported that a forwarded datagram was refused.
            Err(error) if may_pass(&error) => {
                counts.refused += 1;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the end mark if the relay has numbered the packets.
    fn end(&mut self) {
        let Relay { to, translation, control, .. } = self;
        // The error is ignored, since the flow has ended.
        let _ = translation.end(&mut |runs| to.send(runs, None, control));
    }

    fn publish(&mut self, ledger: &Ledger) {
        let (health, ways) = (self.from.health(), self.to.engine_state());
        let mut account = ledger.open();
        account.engine = Some(ways.engine);
        account.fell_back = ways.fell_back;
        account.kernel_drops = health.drops;
        account.receive_buffer = health.buffer;
        account.relayed = Some(self.counts);
    }
}

/// Returns the number of datagrams and of bytes in runs.
fn totals(runs: &[Run<'_>]) -> (u64, u64) {
    runs.iter()
        .fold((0, 0), |(packets, bytes), run| (packets + run.count() as u64, bytes + run.bytes() as u64))
}

/// Returns true for errors that may be temporary: no listener yet, or no route.
fn may_pass(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    let passing = [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::NETUNREACH, Errno::NETDOWN, Errno::NOBUFS];
    passing.iter().any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
        || source.kind() == io::ErrorKind::ConnectionRefused
}

/// Creates a descriptor that is readable when one of the ports is.
fn watch(from: &dyn Port, to: &dyn Port) -> Result<OwnedFd, Error> {
    let failed = |error: Errno| Error::io(format!("watch {} and {}", from.label(), to.label()), error);
    let either = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    for port in [from, to] {
        epoll::add(&either, port.descriptor(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(failed)?;
    }
    Ok(either)
}
