//! The control thread: who connects, what they ask.

use crate::bell::Bell;
use crate::control::House;
use crate::control::administrator::{Administrator, Job};
use crate::control::aside::{Aside, Task};
use crate::control::connection::{Connection, Known, State};
use crate::control::granting;
use crate::control::notices::Notices;
use crate::control::registry;
use crate::control::report::{describe, status};
use crate::core::Joining;
use crate::core::order::{Order, Reply};
use crate::limits::CLIENTS_MAX;
use bywash_channel::{Server, ServerOptions};
use bywash_device::{File, PassedOptions};
use bywash_link::{Error, HugePages, Listener, Messages};
use bywash_protocol::report::Volume;
use bywash_protocol::{Answer, Ask, Code, MESSAGE_BYTES_MAX, Refused, VERSION};
use bywash_sync::Ordering::Relaxed;
use bywash_volume::{Access, GrantNumber};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// So long may a client take to say hello, and so long for its channel.
const GREETING: Duration = Duration::from_secs(10);
/// Who takes longer to leave is counted as if he were here.
const LEAVING: Duration = Duration::from_millis(100);
/// Of answers that a client has not taken, as the kernel counts: some four of the longest, some dozens of short ones.
const ANSWERS_BYTES: usize = 16 << 10;
/// Longest name that a client gives itself.
const NAME_BYTES_MAX: usize = 64;
/// Heard at a time.
const EVENTS: usize = 64;
/// Between two looks at who has said nothing.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Not of a connection.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

/// What others have found out.
pub(crate) enum Event {
    /// What a client is to be answered.
    Answered { connection: u64, answer: Answer },
    /// A file that a client has passed was opened, or not.
    Passed { connection: u64, device: Result<Box<bywash_device::File>, bywash_device::Error> },
    /// A channel was made, or not.
    Channel { connection: u64, outcome: Result<Box<Server>, Error> },
    /// A thread aside has ended.
    AsideEnded { uid: u32 },
    /// A grant that a client has closed is drained.
    Closed { connection: u64, grant: u64 },
    /// Nothing of a client is under way any more.
    Gone { client: u64 },
    /// To stop.
    Stop,
}

/// Where events go.
#[derive(Clone)]
pub(crate) struct Post {
    sender: Sender<Event>,
    bell: Arc<Bell>,
}

impl Post {
    pub(crate) fn send(&self, event: Event) {
        // Who has stopped needs to hear nothing.
        if self.sender.send(event).is_ok() {
            self.bell.ring();
        }
    }
}

/// The control thread's own.
pub(crate) struct Control {
    house: Arc<House>,
    listener: Listener,
    epoll: OwnedFd,
    events: Receiver<Event>,
    post: Post,
    bell: Arc<Bell>,
    administrator: Administrator,
    /// By their numbers, which are the clients' and are used once.
    connections: HashMap<u64, Connection>,
    connected: u64,
    /// Clients that have left and of which something is under way: whose they were, and when they left.
    leaving: HashMap<u64, (u32, Instant)>,
    aside: Aside,
    ticked: Instant,
    stopping: bool,
}

/// What a client is to hear.
enum Outcome {
    Now(Answer, Vec<OwnedFd>),
    /// Somebody else will say.
    Later,
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Outcome {
        Outcome::Now(answer, Vec::new())
    }
}

impl Control {
    pub(crate) fn new(house: Arc<House>, listener: Listener) -> std::io::Result<Control> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(Bell::new()?);
        let flags = epoll::EventFlags::IN;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), flags)?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), flags)?;
        let (sender, events) = mpsc::channel();
        let post = Post { sender, bell: bell.clone() };
        let administrator = Administrator::start(house.clone(), post.clone())?;
        Ok(Control {
            house,
            listener,
            epoll,
            events,
            post,
            bell,
            administrator,
            connections: HashMap::new(),
            connected: 0,
            leaving: HashMap::new(),
            aside: Aside::default(),
            ticked: Instant::now(),
            stopping: false,
        })
    }

    /// Where the thread is told to stop.
    pub(crate) fn post(&self) -> Post {
        self.post.clone()
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut heard = Vec::with_capacity(EVENTS);
        while !self.stopping {
            heard.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut heard), Some(&TICK)) {
                Ok(_) | Err(Errno::INTR) => {}
                // Of an epoll of one's own nothing else is ever said.
                Err(error) => tracing::error!("cannot sleep: {error}"),
            }
            for event in &heard {
                match event.data.u64() {
                    LISTENER => self.let_in(),
                    BELL => self.bell.quiet(),
                    number => self.hear(number),
                }
            }
            while let Ok(event) = self.events.try_recv() {
                self.take(event);
            }
            if self.ticked.elapsed() > Duration::from_secs(1) {
                self.ticked = Instant::now();
                self.turn_out_the_silent();
            }
        }
        self.administrator.stop();
    }

    /// Lets one in who waits at the door; the next one has its turn behind those who are heard.
    fn let_in(&mut self) {
        let socket = match self.listener.try_accept() {
            Ok(Some(socket)) => socket,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!("{error}");
                // Descriptors may be used up: not again at once.
                thread::sleep(Duration::from_millis(10));
                return;
            }
        };
        // Descriptors of answers that nobody takes are this process's until then: there are not to be many of them.
        if let Err(error) = rustix::net::sockopt::set_socket_send_buffer_size(&socket, ANSWERS_BYTES) {
            return tracing::warn!("cannot bound what waits for a client: {error}");
        }
        let connection = Connection::new(Messages::over(socket, MESSAGE_BYTES_MAX), GREETING);
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => return tracing::warn!("{error}"),
        };
        let uid = connection.credentials.uid;
        // Who has left still has its memory, as long as a device may use it. Mostly that is over at once.
        let (here, left) = (self.connections.values(), self.leaving.values());
        let late = left.filter(|(_, when)| when.elapsed() > LEAVING).map(|(uid, _)| *uid);
        let all: Vec<u32> = here.map(|other| other.credentials.uid).chain(late).collect();
        let of_user = all.iter().filter(|other| **other == uid).count();
        let most = self.house.limits.of(uid).clients as usize;
        if all.len() >= CLIENTS_MAX || of_user >= most {
            self.house.clients_refused.fetch_add(1, Relaxed);
            let message = format!("{of_user} clients of user {uid} are here, of {most} that may be");
            // It may be gone already.
            let _ = connection.answer(&Answer::Refused(Refused::new(Code::Limit, message)), &[]);
            return;
        }
        self.connected += 1;
        let (number, data) = (self.connected, epoll::EventData::new_u64(self.connected));
        match epoll::add(&self.epoll, &connection.messages, data, epoll::EventFlags::IN) {
            Ok(()) => drop(self.connections.insert(number, connection)),
            Err(error) => tracing::warn!("cannot hear a client: {error}"),
        }
    }

    /// Takes a client's next message.
    fn hear(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.is_waiting {
            // Then only its end is heard.
            return self.let_go(number);
        }
        let packet = match connection.messages.try_receive() {
            Ok(Some(packet)) => packet,
            Ok(None) => return,
            Err(Error::Closed) => return self.let_go(number),
            Err(error) => return self.throw_out(number, &error.to_string()),
        };
        let ask = match Ask::of_bytes(&packet.bytes) {
            Ok(ask) => ask,
            Err(error) => return self.throw_out(number, &error.to_string()),
        };
        let outcome = self.carry_out(number, ask, packet.descriptors);
        match outcome {
            Ok(Outcome::Now(answer, descriptors)) => self.answer(number, &answer, &descriptors),
            Ok(Outcome::Later) => self.listen(number, false),
            Err(refused) => self.answer(number, &Answer::Refused(refused), &[]),
        }
    }

    /// Whether a client's messages are heard; who waits for an answer is not.
    fn listen(&mut self, number: u64, listen: bool) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.is_waiting = !listen;
        // Its end is heard in any case.
        let flags = if listen { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(number);
        if let Err(error) = epoll::modify(&self.epoll, &connection.messages, data, flags) {
            tracing::error!("cannot hear a client: {error}");
        }
    }

    fn answer(&mut self, number: u64, answer: &Answer, descriptors: &[OwnedFd]) {
        let Some(connection) = self.connections.get(&number) else { return };
        if matches!(answer, Answer::Refused(_)) {
            self.house.asks_refused.fetch_add(1, Relaxed);
        }
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        match connection.answer(answer, &descriptors) {
            Ok(()) => {}
            Err(Error::Closed) => self.let_go(number),
            Err(error) => self.throw_out(number, &format!("it does not take its answers: {error}")),
        }
    }

    /// A client broke the protocol.
    fn throw_out(&mut self, number: u64, what: &str) {
        self.house.clients_refused.fetch_add(1, Relaxed);
        if let Some(connection) = self.connections.get(&number) {
            let refused = Refused::new(Code::Malformed, what);
            // It may be gone already.
            let _ = connection.answer(&Answer::Refused(refused), &[]);
        }
        self.let_go(number);
    }

    /// A client is gone, or is to be: what it had is taken from it.
    fn let_go(&mut self, number: u64) {
        let Some(connection) = self.connections.remove(&number) else { return };
        // It goes with the descriptor; a child of the client's may still hold the other end.
        let _ = epoll::delete(&self.epoll, &connection.messages);
        let State::Known(known) = connection.state else { return };
        let post = self.post.clone();
        let devices: Vec<_> = known.devices.into_values().collect();
        let house = self.house.clone();
        let reply = Reply::new(move |gone| {
            for device in devices {
                granting::drop_device(&house, device);
            }
            house.dropper.run(move || {
                drop(gone);
                post.send(Event::Gone { client: number });
            });
        });
        // A core that has stopped has nothing of it any more.
        if self.house.orders.send(Order::Leave { client: known.key, reply }).is_ok() {
            self.leaving.insert(number, (connection.credentials.uid, Instant::now()));
        }
    }

    fn turn_out_the_silent(&mut self) {
        let now = Instant::now();
        let silent = |connection: &Connection| matches!(connection.state, State::New(until) if until < now);
        let silent = self.connections.iter().filter(|(_, connection)| silent(connection));
        for number in silent.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.throw_out(number, "it has not said hello in time");
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Answered { connection, answer } => {
                self.listen(connection, true);
                self.answer(connection, &answer, &[]);
            }
            Event::Passed { connection: number, device } => {
                self.listen(number, true);
                let Some(connection) = self.connections.get_mut(&number) else { return };
                let answer = granting::open_passed(&self.house, connection, device.map(|device| *device));
                self.answer(number, &answer.unwrap_or_else(Answer::Refused), &[]);
            }
            Event::AsideEnded { uid } => self.aside.note_end(uid, &self.post),
            Event::Channel { connection: number, outcome } => {
                self.listen(number, true);
                let house = self.house.clone();
                let Some(known) = self.connections.get_mut(&number).and_then(Connection::known) else {
                    return;
                };
                let answer = match outcome {
                    Ok(channel) => {
                        let depth = channel.depth() as u32;
                        match house.orders.send(Order::Serve { client: known.key, channel, depth }) {
                            Ok(()) => Answer::Done {},
                            Err(stopped) => Answer::Refused(stopped.into()),
                        }
                    }
                    Err(error) => {
                        known.has_channel = false;
                        Answer::Refused(Refused::new(Code::Unfit, format!("there is no channel: {error}")))
                    }
                };
                self.answer(number, &answer, &[]);
            }
            Event::Closed { connection: number, grant } => {
                self.house.registry.lock().forget(number, grant);
                if let Some(known) = self.connections.get_mut(&number).and_then(Connection::known)
                    && let Some(device) = known.devices.remove(&grant)
                {
                    granting::drop_device(&self.house, device);
                }
                self.listen(number, true);
                self.answer(number, &Answer::Done {}, &[]);
            }
            Event::Gone { client } => {
                self.leaving.remove(&client);
                self.house.registry.lock().clients.remove(&client);
            }
            Event::Stop => self.stopping = true,
        }
    }

    fn carry_out(
        &mut self,
        number: u64,
        ask: Ask,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<Outcome, Refused> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(Outcome::Later) };
        let house = &self.house;
        let malformed = |what: &str| Refused::new(Code::Malformed, what);
        let wanted = usize::from(matches!(ask, Ask::OpenDescriptor {} | Ask::Channel {}));
        if descriptors.len() != wanted {
            let count = descriptors.len();
            return Err(malformed(&format!("{count} descriptors came with this, and {wanted} should have")));
        }
        if matches!(connection.state, State::New(_)) != matches!(ask, Ask::Hello { .. }) {
            return Err(malformed("hello is said once, and first"));
        }
        if ask.is_for_administrators() {
            if !connection.is_administrator() {
                let message = "only root and the user who runs the server may change volumes";
                return Err(Refused::new(Code::Denied, message));
            }
            return self.administrator.give(Job { connection: number, ask }).map(|()| Outcome::Later);
        }
        match ask {
            Ask::Hello { version, name } => self.welcome(number, version, name),
            Ask::Open { volume, access } => {
                granting::open(house, connection, &volume, access).map(Into::into)
            }
            Ask::OpenDescriptor {} => {
                let descriptor = descriptors.pop().ok_or_else(|| malformed("no descriptor came"))?;
                granting::may_pass(connection)?;
                // Its file system may let wait.
                let uid = connection.credentials.uid;
                let told = move |device| Event::Passed { connection: number, device };
                let no_thread = |source| bywash_device::Error::Io { what: "make a thread".into(), source };
                self.aside.give(
                    uid,
                    &self.post,
                    Task {
                        act: Box::new(move || {
                            told(File::passed(descriptor, &PassedOptions::default()).map(Box::new))
                        }),
                        fail: Box::new(move |error| told(Err(no_thread(error)))),
                    },
                );
                Ok(Outcome::Later)
            }
            Ask::Close { grant } => self.close(number, GrantNumber::from_word(grant)),
            Ask::Channel {} => {
                let socket = descriptors.pop().ok_or_else(|| malformed("no descriptor came"))?;
                self.greet(number, socket)
            }
            Ask::Map { grant, from } => {
                let (answer, descriptors) = granting::map(house, connection, grant, from)?;
                Ok(Outcome::Now(answer, descriptors))
            }
            Ask::Volumes {} => report(&volumes(house, connection)?),
            Ask::Status {} => {
                if !connection.is_administrator() {
                    let message = "only root and the user who runs the server may see what all clients do";
                    return Err(Refused::new(Code::Denied, message));
                }
                report(&status(house)?)
            }
            _ => Err(malformed("that cannot be asked")),
        }
    }

    fn welcome(&mut self, number: u64, version: u32, mut name: String) -> Result<Outcome, Refused> {
        if version != VERSION {
            let message = format!("the client speaks version {version}, and the server version {VERSION}");
            return Err(Refused::new(Code::Version, message));
        }
        if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let what = format!("a name has {NAME_BYTES_MAX} bytes at most, and no control characters");
            return Err(Refused::new(Code::Malformed, what));
        }
        name.shrink_to_fit();
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(Outcome::Later) };
        let credentials = connection.credentials;
        let limits = *self.house.limits.of(credentials.uid);
        let failed = |error: Error| Refused::new(Code::Failed, error);
        let notices = Arc::new(Notices::new(limits.grants).map_err(failed)?);
        let client = Joining { number, limits: limits.schedule, grants_max: limits.grants };
        let key = self.house.orders.ask(|reply| Order::Join { client, reply })?;
        let key = key.map_err(|error| Refused::new(Code::Limit, error))?;
        let page = notices.descriptor().try_clone_to_owned();
        let page = page.map_err(|error| failed(Error::io("pass a page on", error)))?;
        let known = Known { key, limits, has_channel: false, devices: HashMap::new() };
        connection.state = State::Known(known);
        let share = limits.schedule.share;
        let client = registry::Client { key, name, credentials, share, notices, grants: Default::default() };
        self.house.registry.lock().clients.insert(number, client);
        let welcome = Answer::Welcome {
            version: VERSION,
            client: number,
            depth_max: limits.depth,
            arena_bytes_max: limits.arena,
            grants_max: limits.grants,
        };
        Ok(Outcome::Now(welcome, vec![page]))
    }

    fn close(&mut self, number: u64, grant: GrantNumber) -> Result<Outcome, Refused> {
        let known = self.connections.get_mut(&number).and_then(Connection::known);
        let Some(known) = known else { return Ok(Outcome::Later) };
        let post = self.post.clone();
        let reply = Reply::new(move |outcome: Result<(), bywash_volume::Refusal>| {
            post.send(match outcome {
                Ok(()) => Event::Closed { connection: number, grant: grant.to_word() },
                Err(refusal) => {
                    let answer = Answer::Refused(Refused::new(Code::Missing, refusal));
                    Event::Answered { connection: number, answer }
                }
            });
        });
        self.house.orders.send(Order::Revoke { client: known.key, grant, reply })?;
        Ok(Outcome::Later)
    }

    /// Has a channel made, aside: the client may take its time.
    fn greet(&mut self, number: u64, socket: OwnedFd) -> Result<Outcome, Refused> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(Outcome::Later) };
        let uid = connection.credentials.uid;
        let Some(known) = connection.known() else { return Ok(Outcome::Later) };
        if known.has_channel {
            let message = "the client has its channel already; a connection more has one more";
            return Err(Refused::new(Code::Limit, message));
        }
        let options = ServerOptions::new()
            .depth_max(known.limits.depth)
            .arena_bytes_max(usize::try_from(known.limits.arena).unwrap_or(usize::MAX))
            .greeting_limit(GREETING);
        known.has_channel = true;
        let told = move |outcome| Event::Channel { connection: number, outcome };
        self.aside.give(
            uid,
            &self.post,
            Task {
                act: Box::new(move || told(Server::over(socket, &options).map(Box::new))),
                fail: Box::new(move |error| told(Err(Error::io("make a thread", error)))),
            },
        );
        Ok(Outcome::Later)
    }
}

/// Volumes that a client may open.
fn volumes(house: &House, connection: &Connection) -> Result<Vec<Volume>, Refused> {
    let all = house.store.list().map_err(granting::of_store)?;
    let person = connection.person();
    let is_seen = |volume: &bywash_volume::Volume| {
        connection.is_administrator()
            || [Access::Read, Access::Write]
                .into_iter()
                .any(|access| volume.ownership.decide(&person, access).is_ok())
    };
    Ok(all.into_iter().filter(is_seen).map(describe).collect())
}

/// A report, in a file of memory.
fn report(what: &impl serde::Serialize) -> Result<Outcome, Refused> {
    let failed = |error: &dyn std::fmt::Display| Refused::new(Code::Failed, error);
    let text = serde_json::to_vec(what).map_err(|error| failed(&error))?;
    let file = bywash_link::File::create("bywash-report", text.len(), HugePages::No)
        .map_err(|error| failed(&error))?;
    rustix::io::pwrite(file.descriptor(), &text, 0).map_err(|error| failed(&error))?;
    file.freeze().map_err(|error| failed(&error))?;
    let descriptor = file.descriptor().try_clone_to_owned().map_err(|error| failed(&error))?;
    Ok(Outcome::Now(Answer::Report {}, vec![descriptor]))
}
