//! Changes by administrators: volumes and their permissions, exports, devices. A thread of its own carries them out one after
//! the other.
//!
//! A change that takes rights away has these steps: close the volume, revoke its grants, wait until no
//! request by them is in flight, replace the memory of chunks that clients may have mapped, and only then
//! change the store. So after the reply nobody reads or writes by the old rights, and no client can reach
//! free blocks.

use crate::control::clearing::{clear_some, replace_chunk};
use crate::control::event::{Event, EventSender};
use crate::control::refusal::refusal_from;
use crate::control::revocation_page::RevocationPage;
use crate::control::{DeviceFacts, SharedState};
use crate::control::{devices, direct, snapshots};
use crate::core::order::{CoreOrder, CoreStopped, OnDone};
use bywash_device::ReplacedContents;
use bywash_protocol::{ControlReply, ControlRequest, Refusal, RefusalKind};
use bywash_volume::{Blocks, Bytes, Error, Extent, Mode, Ownership, Volume};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Greatest number of messages that wait for the administrator's thread.
const WAITING_MAX: usize = 64;
/// Greatest time to wait for requests in flight by revoked grants.
const DRAINING_LIMIT: Duration = Duration::from_secs(60);

/// A message of an administrator, and the connection that sent it.
pub(crate) struct AdminRequest {
    pub(crate) connection: u64,
    pub(crate) ask: ControlRequest,
}

/// Handle of the administrator's thread, which takes messages and carries them out.
pub(crate) struct Administrator {
    jobs: SyncSender<AdminRequest>,
    thread: Thread,
}

/// Thread that carries the messages out.
enum Thread {
    Own(JoinHandle<()>),
    /// The control thread carries them out: see [`Administrator::do_waiting`].
    #[cfg(feature = "testing")]
    Callers(Receiver<AdminRequest>),
}

impl Administrator {
    pub(crate) fn start(shared: Arc<SharedState>, post: EventSender) -> std::io::Result<Administrator> {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let thread = thread::Builder::new()
            .name("administrator".into())
            .spawn(move || waiting.iter().for_each(|job| do_job(&shared, &post, job)))?;
        Ok(Administrator { jobs, thread: Thread::Own(thread) })
    }

    /// Creates an administrator without a thread of its own.
    #[cfg(feature = "testing")]
    pub(crate) fn without_thread() -> Administrator {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        Administrator { jobs, thread: Thread::Callers(waiting) }
    }

    /// Carries out all waiting messages on the caller's thread, if there is no thread of its own.
    #[cfg(feature = "testing")]
    pub(crate) fn do_waiting(&self, shared: &SharedState, post: &EventSender) {
        let Thread::Callers(waiting) = &self.thread else { return };
        waiting.try_iter().for_each(|job| do_job(shared, post, job));
    }

    /// Queues a message. The outcome is sent as [`Event::Answered`].
    pub(crate) fn give(&self, job: AdminRequest) -> Result<(), Refusal> {
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => {
                Refusal::new(RefusalKind::Limit, "too many changes wait already; try again")
            }
            TrySendError::Disconnected(_) => Refusal::new(RefusalKind::Failed, "the server stops"),
        })
    }

    /// Waits until all queued messages are carried out, and ends the thread.
    pub(crate) fn stop(self) {
        drop(self.jobs);
        match self.thread {
            // The join fails only if the thread panicked, and the panic was reported then.
            Thread::Own(thread) => drop(thread.join()),
            #[cfg(feature = "testing")]
            Thread::Callers(_) => {}
        }
    }
}

fn do_job(shared: &SharedState, post: &EventSender, AdminRequest { connection, ask }: AdminRequest) {
    let answer = match carry_out(shared, ask) {
        Ok(()) => ControlReply::Done {},
        Err(refused) => ControlReply::Refused(refused),
    };
    post.send(Event::Answered { connection, answer });
}

fn carry_out(shared: &SharedState, ask: ControlRequest) -> Result<(), Refusal> {
    // No hardware changes hands meanwhile.
    let _order = shared.direct.order();
    match ask {
        ControlRequest::Create { volume, device, bytes, owner, group, mode, is_thin } => {
            let mode = Mode::new(mode).map_err(refusal_from)?;
            let ownership = Ownership { owner, group, mode, read_only: false };
            let facts = device_of(shared, &device)?;
            if is_thin {
                let made = shared.store.create_thin(&volume, &device, Bytes(bytes), ownership);
                return made.map(drop).map_err(refusal_from);
            }
            with_cleared_blocks(shared, &device, &facts, || {
                shared.store.create(&volume, &device, Bytes(bytes), ownership)
            })
            .map(drop)
        }
        ControlRequest::Resize { volume, bytes } => {
            let (found, _) = shared.store.get(&volume).map_err(refusal_from)?;
            let facts = device_of(shared, &found.device)?;
            if bytes >= found.size().0 {
                // Existing grants keep their old size; a client that wants the new size opens the volume
                // again.
                let resize = || shared.store.resize(&volume, Bytes(bytes));
                with_cleared_blocks(shared, &found.device, &facts, resize)?;
            } else {
                change_revoked(shared, &volume, |_| shared.store.resize(&volume, Bytes(bytes)).map(drop))?;
            }
            shared.exports.resized(&volume);
            Ok(())
        }
        ControlRequest::Rename { volume, to } => {
            let renamed = shared.store.rename(&volume, &to).map_err(refusal_from)?;
            shared.registry.lock().rename(renamed.id, &to);
            Ok(())
        }
        ControlRequest::SetOwnership { volume, owner, group, mode, read_only } => {
            let mode = mode.map(Mode::new).transpose().map_err(refusal_from)?;
            change_revoked(shared, &volume, |_| {
                let edit = |ownership: &mut Ownership| {
                    ownership.owner = owner.unwrap_or(ownership.owner);
                    ownership.group = group.unwrap_or(ownership.group);
                    ownership.mode = mode.unwrap_or(ownership.mode);
                    ownership.read_only = read_only.unwrap_or(ownership.read_only);
                };
                shared.store.set_ownership(&volume, edit).map(drop)
            })
        }
        ControlRequest::Remove { volume } => match shared.store.get(&volume) {
            // Volumes of a lost memory device cannot be opened, so no grants need to be revoked.
            Err(Error::VolumeLost { .. }) => shared.store.remove(&volume).map_err(refusal_from),
            _ => change_revoked(shared, &volume, |_| shared.store.remove(&volume)),
        },
        ControlRequest::Snapshot { volume, name } => snapshots::snapshot(shared, &volume, &name),
        ControlRequest::Clone { snapshot, name } => {
            shared.store.clone_snapshot(&snapshot, &name).map(drop).map_err(refusal_from)
        }
        ControlRequest::Rollback { volume, snapshot } => {
            let rollback = |_: &Volume| shared.store.rollback(&volume, &snapshot).map(drop);
            change_revoked_if(shared, &volume, snapshots::check_unwritten, rollback)?;
            shared.exports.resized(&volume);
            Ok(())
        }
        ControlRequest::Revoke { volume } => change_revoked(shared, &volume, |_| Ok(())),
        ControlRequest::Export { volume, protocol, address } => {
            shared.exports.exporter()?.export(&volume, protocol, &address)
        }
        ControlRequest::Unexport { volume, only } => {
            let only = only.as_ref().map(|(protocol, address)| (*protocol, address.as_str()));
            shared.exports.exporter()?.unexport(&volume, only)
        }
        ControlRequest::AddDevice { device } => devices::add(shared, &device),
        ControlRequest::DropDevice { device } => devices::drop_device(shared, &device),
        _ => Err(Refusal::new(RefusalKind::Malformed, "that is nothing for an administrator")),
    }
}

/// Returns a device of the server. It stays as long as this thread does not drop it itself.
fn device_of(shared: &SharedState, device: &str) -> Result<DeviceFacts, Refusal> {
    shared.registry.lock().device(device).cloned()
}

/// Revokes all grants of a volume, and changes it while nobody can open it.
fn change_revoked(
    shared: &SharedState,
    name: &str,
    change: impl FnOnce(&Volume) -> Result<(), Error>,
) -> Result<(), Refusal> {
    change_revoked_if(shared, name, |_, _| Ok(()), change)
}

/// Like [`change_revoked`], but first calls `check` with descriptions of the clients that may write the volume, and changes
/// nothing if that refuses.
fn change_revoked_if(
    shared: &SharedState,
    name: &str,
    check: impl FnOnce(&Volume, Vec<String>) -> Result<(), Refusal>,
    change: impl FnOnce(&Volume) -> Result<(), Error>,
) -> Result<(), Refusal> {
    let (found, extents) = shared.store.get(name).map_err(refusal_from)?;
    let mut everybody = shared.registry.lock();
    check(&found, everybody.writers_of(found.id))?;
    let holders = everybody.close(found.id);
    drop(everybody);
    let outcome =
        revoke_grants(shared, &found, &extents, holders).and_then(|()| change(&found).map_err(refusal_from));
    shared.registry.lock().open(found.id);
    outcome
}

/// Revokes grants. Afterwards nobody reads or writes by them, over a channel or in mapped chunks.
fn revoke_grants(
    shared: &SharedState,
    found: &Volume,
    extents: &[Extent],
    holders: Vec<crate::control::registry::GrantHolder>,
) -> Result<(), Refusal> {
    let (sender, drained) = channel();
    for holder in &holders {
        holder.notices.revoke(holder.grant);
        let sender = sender.clone();
        let reply = OnDone::new(move |outcome| {
            // The send fails only if the receiver has timed out and no longer waits.
            let _ = sender.send(outcome);
        });
        let order = CoreOrder::Revoke { client: holder.client, grant: holder.grant, reply };
        shared.cores.send(holder.client.core, order)?;
    }
    drop(sender);
    RevocationPage::wait_visible();
    wait_for(shared, &drained, holders.len(), &found.name)?;
    let mut everybody = shared.registry.lock();
    for holder in &holders {
        everybody.forget(holder.client.number, holder.grant.to_word());
    }
    drop(everybody);
    direct::take_back(shared, &found.device)?;
    let mut everybody = shared.registry.lock();
    let facts = everybody.devices.get(&found.device).filter(|facts| facts.chunk_bytes.is_some());
    let Some(number) = facts.map(|facts| facts.number) else { return Ok(()) };
    let chunks = |extent: &Extent| extent.start.0 as usize..(extent.start.0 + extent.length.0) as usize;
    let chunks: Vec<Range<usize>> = extents.iter().map(chunks).collect();
    let given = everybody.take_mapped(number, &chunks);
    drop(everybody);
    let mut given = given.into_iter();
    while let Some(chunk) = given.next() {
        if let Err(refused) = replace_chunk(shared, chunk, ReplacedContents::Copied) {
            // A client that has one of the remaining chunks mapped still shares it: they must be replaced
            // later, too.
            let mut everybody = shared.registry.lock();
            given.for_each(|left| everybody.note_mapped(left.device, left.number..left.number + 1));
            return Err(refused);
        }
    }
    Ok(())
}

/// Waits until `count` grants are drained or were closed by their clients, up to [`DRAINING_LIMIT`].
fn wait_for<T>(shared: &SharedState, drained: &Receiver<T>, count: usize, name: &str) -> Result<(), Refusal> {
    let end = Instant::now() + DRAINING_LIMIT;
    for _ in 0..count {
        match shared.cores.wait(drained, Some(end)) {
            Ok(_) => {}
            // The core has stopped and dropped the replies, so it is unknown what is in flight.
            Err(RecvTimeoutError::Disconnected) => return Err(CoreStopped.into()),
            Err(RecvTimeoutError::Timeout) => {
                let message = format!(
                    "grants of volume '{name}' were revoked, but requests by them are still in flight on a device \
                     that does not answer; try again when it does"
                );
                return Err(Refusal::new(RefusalKind::Failed, message));
            }
        }
    }
    Ok(())
}

/// Carries out a change that allocates blocks. If too few blocks are cleared, clears used ones first.
fn with_cleared_blocks<T>(
    shared: &SharedState,
    device: &str,
    facts: &DeviceFacts,
    take: impl Fn() -> Result<T, Error>,
) -> Result<T, Refusal> {
    loop {
        match take() {
            Err(Error::Full { asked, free, to_clear, .. })
                if to_clear.0 > 0 && asked.0 <= free.0.saturating_add(to_clear.0) =>
            {
                clear_some(shared, device, facts, Blocks(u64::MAX))?;
            }
            outcome => return outcome.map_err(refusal_from),
        }
    }
}
