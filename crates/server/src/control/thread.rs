//! The control thread: accepts connections, receives control messages, and carries out or delegates what they
//! ask for.

use crate::bell::Bell;
use crate::control::SharedState;
use crate::control::administrator::{AdminRequest, Administrator};
use crate::control::connection::{Connection, Established, HandshakeState, PassedDescriptors};
use crate::control::descriptors::{self, DescriptorUse};
use crate::control::direct;
use crate::control::event::{Event, EventSender};
use crate::control::granting;
use crate::control::refusal::refusal_from;
use crate::control::registry;
use crate::control::report::{status, volume_reports};
use crate::control::revocation_page::RevocationPage;
use crate::core::order::{ClientRemains, CoreOrder, NewClient, OnDone};
use crate::helpers::{CLOSING_LIMIT, DropByHelper};
use crate::limits::CLIENTS_MAX;
use bywash_channel::{Server, ServerOptions};
use bywash_device::{File, PassedOptions};
use bywash_link::{Error, HugePages, Listener, Messages, NextMessage, Packet};
use bywash_protocol::report::Volume;
use bywash_protocol::{ControlReply, ControlRequest, MESSAGE_BYTES_MAX, Refusal, RefusalKind, VERSION};
use bywash_sync::Ordering::Relaxed;
use bywash_volume::{Access, GrantNumber};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// Greatest time for a client's hello message, and for the handshake of its channel.
const GREETING: Duration = Duration::from_secs(10);
/// Greatest number of a user's connections that have not sent a hello message.
const GREETINGS_MAX: u32 = 64;
/// Time after which a client that has left, but has requests in flight, counts against its user's limits
/// again.
const LEAVING: Duration = Duration::from_millis(100);
/// Size of the send buffer of a client's socket, in bytes of kernel accounting: room for about four of the
/// longest replies or some dozens of short ones.
const ANSWERS_BYTES: usize = 16 << 10;
/// Greatest length of the name that a client gives itself, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Greatest number of readiness events that one round handles.
const EVENTS: usize = 64;
/// Greatest time that a round sleeps: connections without a hello message are checked about once a second.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Event numbers of the listening socket and the bell; every other number is a connection's.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

/// State of the control thread.
pub(crate) struct ControlThread {
    shared: Arc<SharedState>,
    listener: Listener,
    epoll: OwnedFd,
    events: Receiver<Event>,
    post: EventSender,
    bell: Arc<Bell>,
    administrator: Administrator,
    /// Connections by their numbers, which are also the clients' numbers and never reused.
    connections: HashMap<u64, Connection>,
    connected: u64,
    /// Clients that have left and still have requests in flight or memory mapped.
    leaving: HashMap<u64, LeavingClient>,
    ticked: Instant,
    stopping: bool,
}

/// A client that has left and is not drained yet.
struct LeavingClient {
    uid: u32,
    since: Instant,
    /// Size in bytes of the client's memory, and number of files, that are still open here.
    memory: u64,
    files: u32,
}

/// Sums over all clients of a user.
#[derive(Clone, Copy, Default)]
struct UserTotals {
    clients: u32,
    /// Number of those clients that have not sent a hello message.
    greeting: u32,
    memory: u64,
    files: u32,
}

/// Outcome of a control message: a reply now or later.
enum ReplyTime {
    Now(ControlReply, Vec<OwnedFd>),
    /// Another thread sends the reply as an event.
    Later,
}

impl From<ControlReply> for ReplyTime {
    fn from(answer: ControlReply) -> ReplyTime {
        ReplyTime::Now(answer, Vec::new())
    }
}

impl ControlThread {
    pub(crate) fn new(shared: Arc<SharedState>, listener: Listener) -> std::io::Result<ControlThread> {
        ControlThread::with(shared, listener, Administrator::start)
    }

    /// Creates a control without threads, which its caller steps: see [`ControlThread::step`].
    #[cfg(feature = "testing")]
    pub(crate) fn stepped(shared: Arc<SharedState>, listener: Listener) -> std::io::Result<ControlThread> {
        ControlThread::with(shared, listener, |_, _| Ok(Administrator::without_thread()))
    }

    fn with(
        shared: Arc<SharedState>,
        listener: Listener,
        administrator: impl FnOnce(Arc<SharedState>, EventSender) -> std::io::Result<Administrator>,
    ) -> std::io::Result<ControlThread> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(Bell::new()?);
        let flags = epoll::EventFlags::IN;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), flags)?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), flags)?;
        let (sender, events) = mpsc::channel();
        let post = EventSender::new(sender, bell.clone());
        let administrator = administrator(shared.clone(), post.clone())?;
        Ok(ControlThread {
            shared,
            listener,
            epoll,
            events,
            post,
            bell,
            administrator,
            connections: HashMap::new(),
            connected: 0,
            leaving: HashMap::new(),
            ticked: Instant::now(),
            stopping: false,
        })
    }

    /// Returns a handle for sending events to this thread.
    pub(crate) fn post(&self) -> EventSender {
        self.post.clone()
    }

    /// Serves clients until an [`Event::Stop`] arrives.
    pub(crate) fn run(mut self) {
        let mut heard = Vec::with_capacity(EVENTS);
        while !self.stopping {
            self.round(&mut heard, &TICK);
        }
        self.administrator.stop();
        self.shared.direct.stop();
    }

    /// Sleeps until there is something to do, at most `limit`, and does it.
    fn round(&mut self, heard: &mut Vec<epoll::Event>, limit: &Timespec) {
        heard.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(heard), Some(limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            // A valid epoll descriptor and buffer leave no other error.
            Err(error) => tracing::error!("cannot sleep: {error}"),
        }
        for event in heard {
            match event.data.u64() {
                LISTENER => self.accept(),
                BELL => self.bell.drain(),
                number => self.handle_readable(number),
            }
        }
        while let Ok(event) = self.events.try_recv() {
            self.handle_event(event);
        }
        if self.ticked.elapsed() > Duration::from_secs(1) {
            self.ticked = Instant::now();
            self.disconnect_silent();
        }
    }

    /// Carries out all that is ready for this thread and the administrator's thread.
    #[cfg(feature = "testing")]
    pub(crate) fn step(&mut self) {
        self.round(&mut Vec::with_capacity(EVENTS), &Timespec { tv_sec: 0, tv_nsec: 0 });
        self.administrator.do_waiting(&self.shared, &self.post);
    }

    /// Returns the number of connections and of clients that have left but are not drained.
    #[cfg(feature = "testing")]
    pub(crate) fn clients(&self) -> usize {
        self.connections.len() + self.leaving.len()
    }

    /// Accepts one connection. Further ones wait for the next round, so that connected clients are served in
    /// between.
    fn accept(&mut self) {
        let socket = match self.listener.try_accept() {
            Ok(Some(socket)) => socket,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!("{error}");
                // The process may have run out of descriptors: an immediate retry would spin.
                thread::sleep(Duration::from_millis(10));
                return;
            }
        };
        // Descriptors in replies that a client does not receive stay open in this process, so their number
        // must be bounded.
        if let Err(error) = rustix::net::sockopt::set_socket_send_buffer_size(&socket, ANSWERS_BYTES) {
            return tracing::warn!("cannot bound what waits for a client: {error}");
        }
        let messages = Messages::over(socket, MESSAGE_BYTES_MAX);
        let connection = Connection::new(messages, GREETING, self.shared.helpers.clone());
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => return tracing::warn!("{error}"),
        };
        let uid = connection.credentials.uid;
        if let Err(message) = self.check_newcomer(uid) {
            self.shared.clients_refused.fetch_add(1, Relaxed);
            // The send fails if the client has closed its connection already.
            let _ = connection.answer(&ControlReply::Refused(Refusal::new(RefusalKind::Limit, message)), &[]);
            return;
        }
        self.connected += 1;
        let (number, data) = (self.connected, epoll::EventData::new_u64(self.connected));
        match epoll::add(&self.epoll, &**connection.messages, data, epoll::EventFlags::IN) {
            Ok(()) => drop(self.connections.insert(number, connection)),
            Err(error) => tracing::warn!("cannot hear a client: {error}"),
        }
    }

    /// Refuses a new connection of a user if a limit is reached, with the reason.
    fn check_newcomer(&self, uid: u32) -> Result<(), String> {
        let UserTotals { clients, greeting, .. } = self.total(uid);
        let most = self.shared.limits.for_user(uid).clients;
        if clients >= most {
            return Err(format!("{clients} clients of user {uid} are connected, and {most} may be"));
        }
        if greeting >= GREETINGS_MAX {
            return Err(format!(
                "{greeting} connections of user {uid} have not sent hello, the greatest number; send it, or close some"
            ));
        }
        if self.connections.len() + self.leaving.len() >= CLIENTS_MAX {
            return Err(format!("{CLIENTS_MAX} clients of all users are connected, the greatest number"));
        }
        self.check_descriptors(uid, descriptors::OF_CONNECTION)?;
        self.shared.helpers.check(uid)
    }

    /// Refuses a user `more` descriptors if they belong to the shares of others: see [`descriptors::check`].
    fn check_descriptors(&self, uid: u32, more: u64) -> Result<(), String> {
        let mut taken = DescriptorUse::default();
        for connection in self.connections.values() {
            let has = connection.descriptors();
            taken.all += has;
            taken.of_user += if connection.credentials.uid == uid { has } else { 0 };
        }
        for left in self.leaving.values() {
            let files = u64::from(left.files) * descriptors::OF_FILE;
            let has = descriptors::OF_CONNECTION + descriptors::OF_CHANNEL + files;
            taken.all += has;
            taken.of_user += if left.uid == uid { has } else { 0 };
        }
        let devices = self.shared.registry.lock().devices.len();
        descriptors::check(descriptors::own(self.shared.cores.count(), devices), uid, taken, more)
    }

    /// Sums up what a user's clients hold. Clients that have left are included if they are not drained after
    /// [`LEAVING`]: their memory stays mapped as long as a device may use it. Most are drained at once.
    fn total(&self, uid: u32) -> UserTotals {
        let mut total = UserTotals::default();
        for connection in self.connections.values().filter(|connection| connection.credentials.uid == uid) {
            total.clients += 1;
            match &connection.state {
                HandshakeState::Known(known) => {
                    total.memory += known.memory;
                    // The number of passed files is limited far below 2^32.
                    total.files += known.devices.len() as u32;
                }
                HandshakeState::New(_) => total.greeting += 1,
            }
        }
        let left = self.leaving.values().filter(|left| left.uid == uid);
        for left in left.filter(|left| left.since.elapsed() > LEAVING) {
            total.clients += 1;
            total.memory += left.memory;
            total.files += left.files;
        }
        total
    }

    /// Refuses another passed file if the user's clients have reached their limit of files or descriptors.
    fn check_files(&self, number: u64) -> Result<(), Refusal> {
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let uid = connection.credentials.uid;
        let most = self.shared.limits.for_user(uid).descriptors;
        if self.total(uid).files >= most {
            let message = format!(
                "the clients of user {uid} have passed {most} files, the greatest number; close one first"
            );
            return Err(Refusal::new(RefusalKind::Limit, message));
        }
        let refused = |message| Refusal::new(RefusalKind::Limit, message);
        self.check_descriptors(uid, descriptors::OF_FILE).map_err(refused)
    }

    /// Refuses a channel if its memory would exceed the limit of the user's clients.
    fn check_memory(&self, number: u64, memory: u64) -> Result<(), Refusal> {
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let uid = connection.credentials.uid;
        let (has, most) = (self.total(uid).memory, self.shared.limits.for_user(uid).arena);
        // The first channel is always allowed: its rings may exceed the limit that its arena keeps.
        if has > 0 && has.saturating_add(memory) > most {
            let message = format!(
                "the channel has {memory} bytes, and the clients of user {uid} have {has} already, of {most} that all of \
                 them may have; ask for a smaller arena, or close another"
            );
            return Err(Refusal::new(RefusalKind::Limit, message));
        }
        Ok(())
    }

    /// Handles readiness of a client's socket: takes the next message, or has a helper receive it.
    fn handle_readable(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.is_waiting {
            // While a reply is outstanding epoll reports only the end of the connection.
            return self.remove_client(number);
        }
        match connection.messages.peek() {
            Ok(NextMessage::Empty) => {}
            Ok(NextMessage::Plain) => {
                let packet = connection.messages.try_receive();
                let (uid, helpers) = (connection.credentials.uid, self.shared.helpers.clone());
                self.handle_message(
                    number,
                    packet.map(|some| some.map(|packet| DropByHelper::new(packet, uid, helpers))),
                );
            }
            Ok(NextMessage::Descriptors) => self.have_received(number),
            Err(error) => self.throw_out(number, &error.to_string()),
        }
    }

    /// Has a helper receive a client's next message, which has descriptors attached.
    fn have_received(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (uid, messages) = (connection.credentials.uid, Arc::clone(&connection.messages));
        if let Err(message) = self.check_descriptors(uid, descriptors::OF_MESSAGE) {
            self.answer(number, &ControlReply::Refused(Refusal::new(RefusalKind::Limit, message)), &[]);
            return self.remove_client(number);
        }
        let (helpers, post) = (self.shared.helpers.clone(), self.post.clone());
        self.set_receiving(number, false);
        self.shared.helpers.spawn(uid, CLOSING_LIMIT, move || {
            let packet = messages.try_receive();
            drop(messages);
            let packet = packet.map(|some| some.map(|packet| DropByHelper::new(packet, uid, helpers)));
            post.send(Event::Received { connection: number, packet });
        });
    }

    /// Handles a received message: carries it out and replies, or waits for another thread's reply.
    fn handle_message(&mut self, number: u64, packet: Result<Option<DropByHelper<Packet>>, Error>) {
        let mut packet = match packet {
            Ok(Some(packet)) => packet,
            Ok(None) => return,
            Err(Error::Closed) => return self.remove_client(number),
            Err(error) => return self.throw_out(number, &error.to_string()),
        };
        let ask = match ControlRequest::from_bytes(&packet.bytes) {
            Ok(ask) => ask,
            Err(error) => return self.throw_out(number, &error.to_string()),
        };
        let Some(connection) = self.connections.get(&number) else { return };
        let descriptors = packet.take().map(|packet| packet.descriptors).unwrap_or_default();
        let descriptors =
            DropByHelper::new(descriptors, connection.credentials.uid, self.shared.helpers.clone());
        let outcome = self.carry_out(number, ask, descriptors);
        match outcome {
            Ok(ReplyTime::Now(answer, descriptors)) => self.answer(number, &answer, &descriptors),
            Ok(ReplyTime::Later) => self.set_receiving(number, false),
            Err(refused) => self.answer(number, &ControlReply::Refused(refused), &[]),
        }
    }

    /// Enables or disables receiving a client's messages; they are not received while a reply is outstanding.
    fn set_receiving(&mut self, number: u64, listen: bool) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.is_waiting = !listen;
        // The end of the connection (EPOLLHUP) is reported in any case.
        let flags = if listen { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(number);
        if let Err(error) = epoll::modify(&self.epoll, &**connection.messages, data, flags) {
            tracing::error!("cannot hear a client: {error}");
        }
    }

    fn answer(&mut self, number: u64, answer: &ControlReply, descriptors: &[OwnedFd]) {
        let Some(connection) = self.connections.get(&number) else { return };
        if matches!(answer, ControlReply::Refused(_)) {
            self.shared.asks_refused.fetch_add(1, Relaxed);
        }
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        match connection.answer(answer, &descriptors) {
            Ok(()) => {}
            Err(Error::Closed) => self.remove_client(number),
            Err(error) => self.throw_out(number, &format!("it does not take its answers: {error}")),
        }
    }

    /// Disconnects a client that broke the protocol, after a refusal with the reason.
    fn throw_out(&mut self, number: u64, what: &str) {
        self.shared.clients_refused.fetch_add(1, Relaxed);
        if let Some(connection) = self.connections.get(&number) {
            let refused = Refusal::new(RefusalKind::Malformed, what);
            // The send fails if the client has closed its connection already.
            let _ = connection.answer(&ControlReply::Refused(refused), &[]);
        }
        self.remove_client(number);
    }

    /// Removes a client that has disconnected or must be, and has the core release what the client holds.
    fn remove_client(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        // A helper may close the socket much later. Until then, an end that a child of the client still holds
        // must not wake this thread.
        let _ = epoll::delete(&self.epoll, &**connection.messages);
        let HandshakeState::Known(known) = &connection.state else { return };
        let (post, uid, key) = (self.post.clone(), connection.credentials.uid, known.key);
        let devices: Vec<_> = known.devices.values().copied().collect();
        let shared = self.shared.clone();
        let reply = OnDone::new(move |gone: Option<ClientRemains>| {
            if let Some(gone) = &gone {
                shared.users.add(uid, &gone.counts);
            }
            for device in devices {
                granting::drop_device(&shared, uid, key.core, device);
            }
            shared.helpers.spawn(uid, CLOSING_LIMIT, move || {
                drop(gone);
                post.send(Event::Gone { client: number });
            });
        });
        // The send fails only if the core has stopped, which then holds nothing of the client.
        if self.shared.cores.send(key.core, CoreOrder::Leave { client: key, reply }).is_ok() {
            // The number of passed files is limited far below 2^32.
            let (memory, files) = (known.memory, known.devices.len() as u32);
            self.leaving.insert(number, LeavingClient { uid, since: Instant::now(), memory, files });
        }
    }

    fn disconnect_silent(&mut self) {
        let now = Instant::now();
        let silent =
            |connection: &Connection| matches!(connection.state, HandshakeState::New(until) if until < now);
        let silent = self.connections.iter().filter(|(_, connection)| silent(connection));
        for number in silent.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.throw_out(number, "it has not said hello in time");
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Answered { connection, answer } => {
                self.set_receiving(connection, true);
                self.answer(connection, &answer, &[]);
            }
            Event::Passed { connection: number, device } => {
                self.set_receiving(number, true);
                let fits = self.check_files(number);
                let Some(connection) = self.connections.get_mut(&number) else { return };
                if let Err(refused) = fits {
                    return self.answer(number, &ControlReply::Refused(refused), &[]);
                }
                let answer = granting::open_passed(&self.shared, connection, device);
                self.answer(number, &answer.unwrap_or_else(ControlReply::Refused), &[]);
            }
            Event::Received { connection, packet } => {
                self.set_receiving(connection, true);
                self.handle_message(connection, packet);
            }
            Event::Channel { connection: number, outcome } => {
                self.set_receiving(number, true);
                let shared = self.shared.clone();
                let memory = outcome.as_ref().map_or(0, |channel| channel.buffer_access().bytes() as u64);
                let fits = self.check_memory(number, memory);
                let Some(known) = self.connections.get_mut(&number).and_then(Connection::known) else {
                    return;
                };
                let answer = match outcome {
                    Ok(_) if fits.is_err() => {
                        known.has_channel = false;
                        fits.map_or_else(ControlReply::Refused, |()| ControlReply::Done {})
                    }
                    Ok(channel) => {
                        known.memory = memory;
                        let depth = channel.depth() as u32;
                        let serve = CoreOrder::Serve { client: known.key, channel, depth };
                        match shared.cores.send(known.key.core, serve) {
                            Ok(()) => ControlReply::Done {},
                            Err(stopped) => ControlReply::Refused(stopped.into()),
                        }
                    }
                    Err(error) => {
                        known.has_channel = false;
                        ControlReply::Refused(Refusal::new(
                            RefusalKind::Unfit,
                            format!("there is no channel: {error}"),
                        ))
                    }
                };
                self.answer(number, &answer, &[]);
            }
            Event::HandedOver { connection, outcome } => {
                self.set_receiving(connection, true);
                let (answer, descriptors) =
                    outcome.unwrap_or_else(|refused| (ControlReply::Refused(refused), Vec::new()));
                self.answer(connection, &answer, &descriptors);
            }
            Event::Closed { connection: number, grant } => {
                let held = {
                    let mut everybody = self.shared.registry.lock();
                    everybody.forget(number, grant);
                    everybody.held_directly(number)
                };
                if let Some(device) =
                    held.into_iter().find_map(|(held, device)| (held == grant).then_some(device))
                {
                    // The reply follows when nobody has the hardware any more.
                    let job = direct::Job::TakeBack { device, reply: Some((number, self.post.clone())) };
                    return direct::post(&self.shared, job);
                }
                let uid = self.connections.get(&number).map_or(0, |connection| connection.credentials.uid);
                if let Some(known) = self.connections.get_mut(&number).and_then(Connection::known)
                    && let Some(device) = known.devices.remove(&grant)
                {
                    granting::drop_device(&self.shared, uid, known.key.core, device);
                }
                self.set_receiving(number, true);
                self.answer(number, &ControlReply::Done {}, &[]);
            }
            Event::Gone { client } => {
                self.leaving.remove(&client);
                let held = {
                    let mut everybody = self.shared.registry.lock();
                    everybody.clients.remove(&client);
                    everybody.held_directly(client)
                };
                for (_, device) in held {
                    direct::post(&self.shared, direct::Job::TakeBack { device, reply: None });
                }
            }
            Event::Stop => self.stopping = true,
        }
    }

    fn carry_out(
        &mut self,
        number: u64,
        ask: ControlRequest,
        mut descriptors: PassedDescriptors,
    ) -> Result<ReplyTime, Refusal> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(ReplyTime::Later) };
        let shared = &self.shared;
        let malformed = |what: &str| Refusal::new(RefusalKind::Malformed, what);
        let wanted =
            usize::from(matches!(ask, ControlRequest::OpenDescriptor {} | ControlRequest::SetUpChannel {}));
        if descriptors.len() != wanted {
            let count = descriptors.len();
            return Err(malformed(&format!("{count} descriptors came with this, and {wanted} should have")));
        }
        if matches!(connection.state, HandshakeState::New(_)) != matches!(ask, ControlRequest::Hello { .. }) {
            return Err(malformed("hello is said once, and first"));
        }
        if ask.is_for_administrators() {
            if !connection.is_administrator() {
                let message =
                    "only root and the user who runs the server may change volumes, exports and devices";
                return Err(Refusal::new(RefusalKind::Denied, message));
            }
            return self
                .administrator
                .give(AdminRequest { connection: number, ask })
                .map(|()| ReplyTime::Later);
        }
        match ask {
            ControlRequest::Hello { version, name } => self.welcome(number, version, name),
            ControlRequest::Open { volume, access } => {
                granting::open(shared, connection, &volume, access).map(Into::into)
            }
            ControlRequest::OpenDirect { volume, access } => {
                let ask = direct::GrantRequest::new(shared, connection, volume, access)?;
                direct::post(shared, direct::Job::Grant { connection: number, ask, post: self.post.clone() });
                Ok(ReplyTime::Later)
            }
            ControlRequest::OpenDescriptor {} => {
                let uid = connection.credentials.uid;
                let options = PassedOptions { holder: Some(connection.holder()), ..PassedOptions::default() };
                self.check_files(number)?;
                let shared = &self.shared;
                let (helpers, post) = (shared.helpers.clone(), self.post.clone());
                self.shared.helpers.spawn(uid, GREETING, move || {
                    // Inspecting the file may block in its file system.
                    let descriptor = descriptors.take().and_then(|mut all| all.pop());
                    let device = descriptor.map(|one| File::passed(one, &options).map(Box::new));
                    let Some(device) = device else { return };
                    let device = device.map(|device| DropByHelper::new(device, uid, helpers));
                    post.send(Event::Passed { connection: number, device });
                });
                Ok(ReplyTime::Later)
            }
            ControlRequest::Close { grant } => self.close(number, GrantNumber::from_word(grant)),
            ControlRequest::SetUpChannel {} => self.set_up_channel(number, descriptors),
            ControlRequest::Map { grant, from } => {
                let (answer, descriptors) = granting::map(shared, connection, grant, from)?;
                Ok(ReplyTime::Now(answer, descriptors))
            }
            ControlRequest::Volumes {} => report(&volumes(shared, connection)?),
            ControlRequest::Status {} => {
                if !connection.is_administrator() {
                    let message = "only root and the user who runs the server may see what all clients do";
                    return Err(Refusal::new(RefusalKind::Denied, message));
                }
                report(&status(shared)?)
            }
            _ => Err(malformed("that cannot be asked")),
        }
    }

    fn welcome(&mut self, number: u64, version: u32, mut name: String) -> Result<ReplyTime, Refusal> {
        if version != VERSION {
            let message = format!("the client speaks version {version}, and the server version {VERSION}");
            return Err(Refusal::new(RefusalKind::Version, message));
        }
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let what = format!("a name has {NAME_BYTES_MAX} bytes at most, and no control characters");
            return Err(Refusal::new(RefusalKind::Malformed, what));
        }
        name.shrink_to_fit();
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(ReplyTime::Later) };
        let credentials = connection.credentials;
        let limits = *self.shared.limits.for_user(credentials.uid);
        let failed = |error: Error| Refusal::new(RefusalKind::Failed, error);
        let notices = Arc::new(RevocationPage::new(limits.grants).map_err(failed)?);
        let uid = credentials.uid;
        let client = NewClient { number, uid, limits: limits.schedule, grants_max: limits.grants };
        let core = self.shared.cores.least_loaded();
        let key = self.shared.cores.ask(core, |reply| CoreOrder::Join { client, reply })?;
        let key = key.map_err(|error| Refusal::new(RefusalKind::Limit, error))?;
        let page = notices.descriptor().try_clone_to_owned();
        let page = page.map_err(|error| failed(Error::io("pass a page on", error)))?;
        connection.allow_descriptors().map_err(failed)?;
        let known = Established { key, limits, has_channel: false, memory: 0, devices: HashMap::new() };
        connection.state = HandshakeState::Known(known);
        let share = limits.schedule.share;
        let client = registry::Client { key, name, credentials, share, notices, grants: Default::default() };
        self.shared.registry.lock().clients.insert(number, client);
        let welcome = ControlReply::Welcome {
            version: VERSION,
            client: number,
            depth_max: limits.depth,
            arena_bytes_max: limits.arena,
            grants_max: limits.grants,
        };
        Ok(ReplyTime::Now(welcome, vec![page]))
    }

    fn close(&mut self, number: u64, grant: GrantNumber) -> Result<ReplyTime, Refusal> {
        let known = self.connections.get_mut(&number).and_then(Connection::known);
        let Some(known) = known else { return Ok(ReplyTime::Later) };
        let post = self.post.clone();
        let reply = OnDone::new(move |outcome: Result<(), bywash_volume::GrantError>| {
            post.send(match outcome {
                Ok(()) => Event::Closed { connection: number, grant: grant.to_word() },
                Err(refusal) => {
                    let answer = ControlReply::Refused(Refusal::new(RefusalKind::Missing, refusal));
                    Event::Answered { connection: number, answer }
                }
            });
        });
        let order = CoreOrder::Revoke { client: known.key, grant, reply };
        self.shared.cores.send(known.key.core, order)?;
        Ok(ReplyTime::Later)
    }

    /// Has a helper set up a channel, because the client may delay the handshake.
    fn set_up_channel(&mut self, number: u64, mut socket: PassedDescriptors) -> Result<ReplyTime, Refusal> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(ReplyTime::Later) };
        let uid = connection.credentials.uid;
        if connection.known().is_some_and(|known| known.has_channel) {
            let message = "the client has its channel already; a connection more has one more";
            return Err(Refusal::new(RefusalKind::Limit, message));
        }
        let refused = |message| Refusal::new(RefusalKind::Limit, message);
        self.check_descriptors(uid, descriptors::OF_CHANNEL).map_err(refused)?;
        let connection = self.connections.get_mut(&number);
        let Some(known) = connection.and_then(Connection::known) else { return Ok(ReplyTime::Later) };
        let options = ServerOptions::new()
            .depth_max(known.limits.depth)
            .arena_bytes_max(usize::try_from(known.limits.arena).unwrap_or(usize::MAX))
            .handshake_timeout(GREETING);
        known.has_channel = true;
        let (helpers, post) = (self.shared.helpers.clone(), self.post.clone());
        self.shared.helpers.spawn(uid, 2 * GREETING, move || {
            let Some(socket) = socket.take().and_then(|mut all| all.pop()) else { return };
            let outcome =
                channel_over(socket, &options).map(|channel| DropByHelper::new(channel, uid, helpers));
            post.send(Event::Channel { connection: number, outcome });
        });
        Ok(ReplyTime::Later)
    }
}

/// Sets up a channel over a descriptor that a client has passed, if the descriptor is a Unix socket of
/// sequenced packets.
fn channel_over(socket: OwnedFd, options: &ServerOptions) -> Result<Box<Server>, Error> {
    let is_one = sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(&socket) == Ok(SocketType::SEQPACKET);
    match is_one {
        true => Server::over(socket, options).map(Box::new),
        false => Err(Error::Incompatible("it goes over a Unix socket of sequenced packets".into())),
    }
}

/// Returns the volumes that a client may read or write; an administrator sees all.
fn volumes(shared: &SharedState, connection: &Connection) -> Result<Vec<Volume>, Refusal> {
    let user = connection.user();
    let is_seen = |volume: &bywash_volume::Volume| {
        connection.is_administrator()
            || [Access::Read, Access::Write]
                .into_iter()
                .any(|access| volume.ownership.decide(&user, access).is_ok())
    };
    volume_reports(&shared.store, is_seen).map_err(refusal_from)
}

/// Creates a reply with a report as JSON in a sealed memory file.
fn report(what: &impl serde::Serialize) -> Result<ReplyTime, Refusal> {
    let failed = |error: &dyn std::fmt::Display| Refusal::new(RefusalKind::Failed, error);
    let text = serde_json::to_vec(what).map_err(|error| failed(&error))?;
    let file = bywash_link::MemoryFile::create("bywash-report", text.len(), HugePages::No)
        .map_err(|error| failed(&error))?;
    rustix::io::pwrite(file.descriptor(), &text, 0).map_err(|error| failed(&error))?;
    file.seal().map_err(|error| failed(&error))?;
    let descriptor = file.descriptor().try_clone_to_owned().map_err(|error| failed(&error))?;
    Ok(ReplyTime::Now(ControlReply::Report {}, vec![descriptor]))
}
