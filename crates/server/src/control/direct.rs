//! Direct grants: the hardware behind a device is handed to one client, which then needs neither the server nor the
//! kernel for its I/O, and is taken back when the grant ends.
//!
//! ```text
//!             Grant: the device leaves the core and is closed; descriptors for the client
//!          ┌────────────────────────────────────────────────────────────────────────────────┐
//!       served                                                                             held
//!          ▲                                                                                │ close, end of the client,
//!          │ opened again, at once or in one of the next attempts                           ▼ revocation
//!          └───────────────────────────────────────────────────────────────────────────── missing
//! ```
//!
//! While a device is held or missing, the core has a device in its place that refuses every command, so that grants,
//! their numbers and their revocation are the same as those of other volumes. A thread hands over and takes back, since
//! both wait for the hardware. The administrator's thread takes back when it revokes.
//!
//! Invariant: [`Direct::order`] is held while hardware changes hands. A volume is granted directly only if it is all of
//! its device but the labels, nobody else has a grant of the device, and its client may read and write it and, unless the
//! hardware limits its holder to this device, is trusted. Hardware whose taking back has failed is never handed to anybody again before it has succeeded.

use crate::control::connection::Connection;
use crate::control::devices::{hand_to_cores, release};
use crate::control::event::{Event, EventSender};
use crate::control::hardware::{Hardware, Holder};
use crate::control::refusal::refusal_from;
use crate::control::registry::HeldGrant;
use crate::control::{DeviceFacts, SharedState};
use crate::core::cores::FIRST;
use crate::core::order::{ClientKey, CoreOrder};
use bywash_device::{
    Command, CommandError, Completion, Device, Geometry, Grantable, QueueFull, flush_exclusive,
};
use bywash_link::Credentials;
use bywash_protocol::{Access, ControlReply, GrantInfo, Refusal, RefusalKind};
use bywash_volume::{Extent, Grant, Ownership, User, Volume};
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Interval between two attempts to open hardware that is missing.
const RETRY: Duration = Duration::from_millis(200);
/// Greatest number of commands in flight of a device that refuses every command.
const REFUSED_MAX: usize = 64;

/// Task of the thread.
pub(crate) enum Job {
    /// Grants a volume directly to a client. The outcome is sent as [`Event::HandedOver`].
    Grant { connection: u64, ask: GrantRequest, post: EventSender },
    /// Takes the hardware of a device back, whose grant has ended; then replies to the connection.
    TakeBack { device: String, reply: Option<(u64, EventSender)> },
    /// Looks for hardware that is missing.
    Look,
    /// Ends the thread.
    Stop,
}

/// The thread that hands hardware over and takes it back, which runs from its first job on.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    /// At most one job for each connection, and one for each device, wait here.
    thread: Mutex<Option<(Sender<Job>, JoinHandle<()>)>>,
    order: Mutex<()>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a job")
    }
}

impl Direct {
    /// Waits until no hardware changes hands; none does before the result is dropped.
    pub(crate) fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all jobs are done, and ends the thread.
    pub(crate) fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((jobs, thread)) = thread else { return };
        // Both fail only if the thread panicked, and the panic was reported then.
        let _ = jobs.send(Job::Stop);
        let _ = thread.join();
    }
}

/// Gives the thread a job; starts it if it does not run.
pub(crate) fn post(shared: &Arc<SharedState>, job: Job) {
    let mut thread = shared.direct.thread.lock().unwrap_or_else(PoisonError::into_inner);
    if thread.is_none() {
        let (jobs, waiting) = channel();
        let with = shared.clone();
        let started = thread::Builder::new().name("direct".into()).spawn(move || run(&with, &waiting));
        match started {
            Ok(handle) => *thread = Some((jobs, handle)),
            Err(error) => return fail(job, &format!("cannot start a thread: {error}")),
        }
    }
    if let Some((jobs, _)) = &*thread {
        // The send fails only if the thread panicked, and the panic was reported then.
        let _ = jobs.send(job);
    }
}

/// Replies to the client of a job that cannot be done.
fn fail(job: Job, why: &str) {
    let refused = || Refusal::new(RefusalKind::Failed, why);
    match job {
        Job::Grant { connection, post, .. } => {
            post.send(Event::HandedOver { connection, outcome: Err(refused()) })
        }
        Job::TakeBack { reply: Some((connection, post)), .. } => {
            post.send(Event::Answered { connection, answer: ControlReply::Refused(refused()) });
        }
        Job::TakeBack { .. } | Job::Look | Job::Stop => {}
    }
}

fn run(shared: &Arc<SharedState>, jobs: &Receiver<Job>) {
    loop {
        let job = match is_any_missing(shared) {
            true => jobs.recv_timeout(RETRY),
            false => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match job {
            Ok(Job::Grant { connection, ask, post }) => {
                let _order = shared.direct.order();
                post.send(Event::HandedOver { connection, outcome: grant(shared, &ask) });
            }
            Ok(Job::TakeBack { device, reply }) => {
                let outcome = {
                    let _order = shared.direct.order();
                    take_back(shared, &device)
                };
                let Some((connection, post)) = reply else { continue };
                let answer = outcome.map_or_else(ControlReply::Refused, |()| ControlReply::Done {});
                post.send(Event::Answered { connection, answer });
            }
            Ok(Job::Look) => {}
            Err(RecvTimeoutError::Timeout) => look_for_missing(shared),
            Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A client's request for the hardware behind a volume.
pub(crate) struct GrantRequest {
    client: ClientKey,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    volume: String,
    access: Access,
}

impl GrantRequest {
    /// Makes a request, if the volume's device has hardware that can be handed over.
    pub(crate) fn new(
        shared: &SharedState,
        connection: &mut Connection,
        volume: String,
        access: Access,
    ) -> Result<GrantRequest, Refusal> {
        let (found, _) = shared.store.get(&volume).map_err(refusal_from)?;
        let everybody = shared.registry.lock();
        let has_hardware = everybody.devices.get(&found.device).is_some_and(|facts| facts.hardware.is_some());
        drop(everybody);
        if !has_hardware || connection.credentials.pid == std::process::id() {
            return Err(unfit(&volume, "there is no hardware behind it that can be handed over"));
        }
        let Credentials { uid, gid, .. } = connection.credentials;
        let groups = connection.groups.clone();
        let known = connection.known();
        let client = known.map(|known| known.key).ok_or_else(|| unfit(&volume, "say hello first"))?;
        Ok(GrantRequest { client, uid, gid, groups, volume, access })
    }

    fn user(&self) -> User<'_> {
        User { uid: self.uid, gid: self.gid, groups: &self.groups }
    }
}

fn unfit(volume: &str, why: &str) -> Refusal {
    Refusal::new(RefusalKind::Unfit, format!("volume '{volume}' cannot be granted directly: {why}"))
}

/// Checks that a client may ask for the hardware behind a volume; else tells the reason.
pub(crate) fn check(
    shared: &SharedState,
    connection: &Connection,
    found: &Volume,
    extents: &[Extent],
    facts: &DeviceFacts,
) -> Result<(), String> {
    if connection.credentials.pid == std::process::id() {
        return Err("exports of the server go through the channel".into());
    }
    check_user(shared, &connection.user(), &found.ownership, facts)?;
    offset_of(shared, found, extents).map(drop)
}

/// Checks a user's rights to the hardware of a device, with a volume of this ownership on it.
fn check_user(
    shared: &SharedState,
    user: &User<'_>,
    ownership: &Ownership,
    facts: &DeviceFacts,
) -> Result<(), String> {
    let Some(hardware) = &facts.hardware else {
        return Err("there is no hardware behind it that can be handed over".into());
    };
    if let Some(hazard) = hardware.grantable.hazard()
        && !shared.limits.for_user(user.uid).trusted
    {
        return Err(format!(
            "whoever has the hardware could harm others by it ({hazard}), and user {} is not trusted (`trusted = true` in the \
             file of --limits)",
            user.uid
        ));
    }
    // Hardware is not handed over for reading only.
    match ownership.decide(user, Access::ReadWrite) {
        Err(denied) => Err(denied.to_string()),
        Ok(_) if facts.read_only => Err("its device may only be read".into()),
        Ok(_) => Ok(()),
    }
}

/// Returns the offset of a volume in its device, if the volume is all of the device but the labels.
fn offset_of(shared: &SharedState, found: &Volume, extents: &[Extent]) -> Result<u64, String> {
    let device = shared.store.device(&found.device).map_err(|error| error.to_string())?;
    let (reserved, all) = (device.reserved.0, device.blocks.0);
    match extents {
        [only] if found.cluster.is_none() && only.start.0 == reserved && only.length.0 == all - reserved => {
            Ok(found.spans(extents).next().map_or(0, |span| span.start.0))
        }
        _ => Err(format!("it is not all of device '{}', and a direct grant is one of all", found.device)),
    }
}

/// Grants a volume directly. The caller holds [`Direct::order`].
fn grant(shared: &Arc<SharedState>, ask: &GrantRequest) -> Result<(ControlReply, Vec<OwnedFd>), Refusal> {
    let name = &ask.volume;
    let (found, facts, grantable, offset) = {
        let mut everybody = shared.registry.lock();
        let (found, extents) = shared.store.get(name).map_err(refusal_from)?;
        let facts = everybody.device(&found.device)?.clone();
        found
            .ownership
            .decide(&ask.user(), ask.access)
            .map_err(|denied| Refusal::new(RefusalKind::Denied, format!("volume '{name}': {denied}")))?;
        check_user(shared, &ask.user(), &found.ownership, &facts).map_err(|why| unfit(name, &why))?;
        let offset = offset_of(shared, &found, &extents).map_err(|why| unfit(name, &why))?;
        let obstacle = facts.hardware.as_ref().and_then(|hardware| hardware.obstacle(&found.device));
        let users = everybody.users_of(facts.number);
        let obstacle =
            obstacle.or_else(|| (!users.is_empty()).then(|| format!("it is in use: {}", users[0])));
        if let Some(obstacle) = obstacle {
            let message = format!("volume '{name}' cannot be granted directly now: {obstacle}");
            return Err(Refusal::new(RefusalKind::Limit, message));
        }
        let hardware = everybody.devices.get_mut(&found.device).and_then(|facts| facts.hardware.as_mut());
        let Some(hardware) = hardware else { return Err(unfit(name, "its hardware is gone")) };
        hardware.holder = Holder::Nobody;
        let grantable = hardware.grantable.clone();
        (found, facts, grantable, offset)
    };
    let device = &found.device;
    let mut closing = match release(shared, device, &facts) {
        Ok(closing) => closing,
        Err(refused) => {
            set_holder(shared, device, Holder::Missing { is_cut_off: false, why: refused.message.clone() });
            return Err(refused);
        }
    };
    let (geometry, flushed) = (closing[FIRST].geometry(), flush_exclusive(&mut *closing[FIRST]));
    drop(closing);
    let placeholder =
        HandedOver::new(geometry, format!("handed to client {}", ask.client.number), &*grantable);
    add_device(shared, device, Box::new(placeholder))?;
    if let Err(error) = flushed {
        restore(shared, device, &*grantable);
        let message = format!("device '{device}' fails, and what was not flushed may be lost: {error}");
        return Err(Refusal::new(RefusalKind::Failed, message));
    }
    let granted = grantable
        .hand_over()
        .map_err(|error| Refusal::new(RefusalKind::Failed, format!("{}: {error}", grantable.description())))
        .and_then(|handed| Ok((register(shared, ask, &found)?, handed)));
    let (number, handed) = match granted {
        Ok(granted) => granted,
        Err(refused) => {
            restore(shared, device, &*grantable);
            return Err(refused);
        }
    };
    let info = GrantInfo {
        grant: number,
        bytes: found.size().0,
        block: facts.block,
        access: ask.access,
        device: device.clone(),
        unmappable_reason: None,
        is_volatile: false,
        can_be_direct: true,
    };
    let (address, namespace) = (handed.address, handed.namespace);
    let needs_trust = grantable.hazard().is_some();
    let reply = ControlReply::GrantedDirect { grant: info, address, namespace, offset, needs_trust };
    Ok((reply, handed.descriptors))
}

/// Gives a client a grant of a volume whose hardware it gets, and registers it as the holder.
fn register(shared: &SharedState, ask: &GrantRequest, found: &Volume) -> Result<u64, Refusal> {
    let gone = || Refusal::new(RefusalKind::Missing, "the client has left");
    let facts = shared.registry.lock().device(&found.device)?.clone();
    let (_, extents) = shared.store.get(&found.name).map_err(refusal_from)?;
    let grant = Grant::new(facts.number, ask.access, found.spans(&extents)).map_err(refusal_from)?;
    let client = ask.client;
    let number =
        shared.cores.ask(client.core, |reply| CoreOrder::Grant { client, grant, thin: None, reply })?;
    let number = number.map_err(refusal_from)?.to_word();
    let mut everybody = shared.registry.lock();
    // A client that leaves from now on is found as the holder, when it is removed from the registry.
    let client = everybody.clients.get_mut(&ask.client.number).ok_or_else(gone)?;
    let volume = Some((found.id, found.name.clone()));
    let (device, bytes) = (facts.number, found.size().0);
    let held = HeldGrant { volume, device, access: ask.access, bytes, chunks: Vec::new(), is_mapped: false };
    client.grants.insert(number, held);
    let hardware = everybody.devices.get_mut(&found.device).and_then(|facts| facts.hardware.as_mut());
    if let Some(hardware) = hardware {
        hardware.holder = Holder::Client { client: ask.client.number, grant: number };
    }
    Ok(number)
}

/// Takes the hardware of a device back if a client has it. Afterwards the client reaches nothing by it. The caller holds
/// [`Direct::order`].
pub(crate) fn take_back(shared: &SharedState, name: &str) -> Result<(), Refusal> {
    let hardware = shared.registry.lock().devices.get(name).and_then(|facts| facts.hardware.clone());
    let Some(Hardware { grantable, holder: Holder::Client { .. } }) = hardware else { return Ok(()) };
    set_holder(shared, name, Holder::Nobody);
    restore(shared, name, &*grantable);
    let hardware = shared.registry.lock().devices.get(name).and_then(|facts| facts.hardware.clone());
    match hardware.map(|hardware| hardware.holder) {
        Some(Holder::Missing { is_cut_off: false, why }) => {
            let message = format!(
                "the hardware of device '{name}' could not be taken back, and may still be used: {why}"
            );
            Err(Refusal::new(RefusalKind::Failed, message))
        }
        _ => Ok(()),
    }
}

/// Cuts hardware off from whoever has it, and has the core serve its device again; both later if that is impossible now.
fn restore(shared: &SharedState, name: &str, grantable: &dyn Grantable) {
    let missing = |is_cut_off, error: &dyn std::fmt::Display| {
        let why = format!("{}: {error}", grantable.description());
        Holder::Missing { is_cut_off, why }
    };
    let holder = match grantable.revoke() {
        Err(error) => {
            tracing::error!("the hardware of device '{name}' cannot be taken back: {error}");
            missing(false, &error)
        }
        Ok(()) => match grantable.open() {
            Err(error) => missing(true, &error),
            Ok(device) => match serve_again(shared, name, device) {
                Ok(()) => Holder::Core,
                Err(refused) => missing(true, &refused.message),
            },
        },
    };
    let is_missing = matches!(holder, Holder::Missing { .. });
    set_holder(shared, name, holder);
    if is_missing {
        let thread = shared.direct.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((jobs, _)) = &*thread {
            // The send fails only if the thread panicked, and the panic was reported then.
            let _ = jobs.send(Job::Look);
        }
    }
}

/// Replaces the core's device that refuses commands by an open one.
fn serve_again(shared: &SharedState, name: &str, device: Box<dyn Device>) -> Result<(), Refusal> {
    let facts = shared.registry.lock().device(name)?.clone();
    // A device that the core does not release goes on refusing commands, under a number that nobody knows any more.
    let released = release(shared, name, &facts);
    add_device(shared, name, device)?;
    drop(released);
    Ok(())
}

/// Hands the cores a device under a name that the registry knows.
fn add_device(shared: &SharedState, name: &str, device: Box<dyn Device>) -> Result<(), Refusal> {
    let failed = |error| Refusal::new(RefusalKind::Failed, format!("device '{name}': {error}"));
    let (number, _) = hand_to_cores(shared, name, device).map_err(failed)?;
    if let Some(facts) = shared.registry.lock().devices.get_mut(name) {
        facts.number = number;
    }
    Ok(())
}

fn set_holder(shared: &SharedState, name: &str, holder: Holder) {
    let mut everybody = shared.registry.lock();
    if let Some(hardware) = everybody.devices.get_mut(name).and_then(|facts| facts.hardware.as_mut()) {
        hardware.holder = holder;
    }
}

fn is_any_missing(shared: &SharedState) -> bool {
    let is_missing = |facts: &DeviceFacts| {
        let holder = facts.hardware.as_ref().map(|hardware| &hardware.holder);
        matches!(holder, Some(Holder::Missing { .. }))
    };
    shared.registry.lock().devices.values().any(is_missing)
}

/// Tries to open all hardware that is missing.
fn look_for_missing(shared: &SharedState) {
    let _order = shared.direct.order();
    let missing = |(name, facts): (&String, &DeviceFacts)| match &facts.hardware {
        Some(Hardware { grantable, holder: Holder::Missing { .. } }) => {
            Some((name.clone(), grantable.clone()))
        }
        _ => None,
    };
    let all: Vec<_> = shared.registry.lock().devices.iter().filter_map(missing).collect();
    for (name, grantable) in all {
        restore(shared, &name, &*grantable);
    }
}

/// Device in place of one whose hardware was handed over: it refuses every command.
struct HandedOver {
    geometry: Geometry,
    finished: VecDeque<Completion>,
    description: String,
}

impl HandedOver {
    fn new(geometry: Geometry, to: String, grantable: &dyn Grantable) -> HandedOver {
        let description = format!("{to}: {}", grantable.description());
        HandedOver { geometry, finished: VecDeque::with_capacity(REFUSED_MAX), description }
    }
}

impl Device for HandedOver {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit<'a>(&mut self, command: Command<'a>) -> Result<(), QueueFull<'a>> {
        if self.finished.len() >= REFUSED_MAX {
            return Err(QueueFull(command));
        }
        self.finished.push_back(command.done(Err(CommandError::Io(rustix::io::Errno::BUSY.raw_os_error()))));
        Ok(())
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let count = self.finished.len();
        self.finished.drain(..).for_each(done);
        count
    }

    fn arm(&mut self) -> bool {
        !self.finished.is_empty()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn depth(&self) -> usize {
        REFUSED_MAX
    }

    fn in_flight(&self) -> usize {
        self.finished.len()
    }

    fn description(&self) -> String {
        self.description.clone()
    }
}
