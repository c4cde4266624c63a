//! The control thread: who connects, what they ask.

use crate::bell::Bell;
use crate::control::House;
use crate::control::administrator::{Administrator, Job};
use crate::control::connection::{Connection, Known, Passed, State};
use crate::control::descriptors::{self, Taken};
use crate::control::granting;
use crate::control::notices::Notices;
use crate::control::registry;
use crate::control::report::{describe, status};
use crate::core::Joining;
use crate::core::order::{Gone, Order, Reply};
use crate::helpers::{CLOSING_LIMIT, Foreign};
use crate::limits::CLIENTS_MAX;
use bywash_channel::{Server, ServerOptions};
use bywash_device::{File, PassedOptions};
use bywash_link::{Error, Front, HugePages, Listener, Messages, Packet};
use bywash_protocol::report::Volume;
use bywash_protocol::{Answer, Ask, Code, MESSAGE_BYTES_MAX, Refused, VERSION};
use bywash_sync::Ordering::Relaxed;
use bywash_volume::{Access, GrantNumber};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// So long may a client take to say hello, and so long for its channel.
const GREETING: Duration = Duration::from_secs(10);
/// Connections of a user that have not said hello.
const GREETINGS_MAX: u32 = 64;
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
    /// A helper has received a client's message, which has descriptors.
    Received { connection: u64, packet: Result<Option<Foreign<Packet>>, Error> },
    /// A file that a client has passed was opened, or not.
    Passed { connection: u64, device: Result<Foreign<Box<bywash_device::File>>, bywash_device::Error> },
    /// A channel was made, or not.
    Channel { connection: u64, outcome: Result<Foreign<Box<Server>>, Error> },
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
    /// Clients that have left and of which something is under way.
    leaving: HashMap<u64, Leaving>,
    ticked: Instant,
    stopping: bool,
}

/// A client that has left.
struct Leaving {
    uid: u32,
    since: Instant,
    /// Bytes of memory and files that it still has here.
    memory: u64,
    files: u32,
}

/// What all clients of a user have together.
#[derive(Clone, Copy, Default)]
struct Total {
    clients: u32,
    /// Of these, clients that have not said hello.
    greeting: u32,
    memory: u64,
    files: u32,
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
        Control::with(house, listener, Administrator::start)
    }

    /// One whose caller does what else would be done by other threads: see [`Control::step`].
    #[cfg(feature = "testing")]
    pub(crate) fn stepped(house: Arc<House>, listener: Listener) -> std::io::Result<Control> {
        Control::with(house, listener, |_, _| Ok(Administrator::without_thread()))
    }

    fn with(
        house: Arc<House>,
        listener: Listener,
        administrator: impl FnOnce(Arc<House>, Post) -> std::io::Result<Administrator>,
    ) -> std::io::Result<Control> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let bell = Arc::new(Bell::new()?);
        let flags = epoll::EventFlags::IN;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), flags)?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), flags)?;
        let (sender, events) = mpsc::channel();
        let post = Post { sender, bell: bell.clone() };
        let administrator = administrator(house.clone(), post.clone())?;
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
            self.round(&mut heard, &TICK);
        }
        self.administrator.stop();
    }

    /// Waits until there is something to do, `limit` at most, and does it.
    fn round(&mut self, heard: &mut Vec<epoll::Event>, limit: &Timespec) {
        heard.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(heard), Some(limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            // Of an epoll of one's own nothing else is ever said.
            Err(error) => tracing::error!("cannot sleep: {error}"),
        }
        for event in heard {
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

    /// Does what there is to do for this thread and the administrator's.
    #[cfg(feature = "testing")]
    pub(crate) fn step(&mut self) {
        self.round(&mut Vec::with_capacity(EVENTS), &Timespec { tv_sec: 0, tv_nsec: 0 });
        self.administrator.do_waiting(&self.house, &self.post);
    }

    /// Connections that are there, and clients that are leaving.
    #[cfg(feature = "testing")]
    pub(crate) fn clients(&self) -> usize {
        self.connections.len() + self.leaving.len()
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
        let messages = Messages::over(socket, MESSAGE_BYTES_MAX);
        let connection = Connection::new(messages, GREETING, self.house.helpers.clone());
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => return tracing::warn!("{error}"),
        };
        let uid = connection.credentials.uid;
        if let Err(message) = self.check_newcomer(uid) {
            self.house.clients_refused.fetch_add(1, Relaxed);
            // It may be gone already.
            let _ = connection.answer(&Answer::Refused(Refused::new(Code::Limit, message)), &[]);
            return;
        }
        self.connected += 1;
        let (number, data) = (self.connected, epoll::EventData::new_u64(self.connected));
        match epoll::add(&self.epoll, &**connection.messages, data, epoll::EventFlags::IN) {
            Ok(()) => drop(self.connections.insert(number, connection)),
            Err(error) => tracing::warn!("cannot hear a client: {error}"),
        }
    }

    /// Refuses a connection of a user, with the reason.
    fn check_newcomer(&self, uid: u32) -> Result<(), String> {
        let Total { clients, greeting, .. } = self.total(uid);
        let most = self.house.limits.of(uid).clients;
        if clients >= most {
            return Err(format!("{clients} clients of user {uid} are here, of {most} that may be"));
        }
        if greeting >= GREETINGS_MAX {
            return Err(format!(
                "{greeting} connections of user {uid} have not said hello, as many as may be; say it, or close some"
            ));
        }
        if self.connections.len() + self.leaving.len() >= CLIENTS_MAX {
            return Err(format!("{CLIENTS_MAX} clients of all users are here, as many as may be"));
        }
        self.check_descriptors(uid, descriptors::OF_CONNECTION)?;
        self.house.helpers.check(uid)
    }

    /// Refuses a user descriptors of this process that would be those of others.
    fn check_descriptors(&self, uid: u32, more: u64) -> Result<(), String> {
        let mut taken = Taken::default();
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
        descriptors::check(uid, taken, more)
    }

    /// What a user's clients have, with those that have left and have not gone yet: who has left still has its memory, as
    /// long as a device may use it. Mostly that is over at once, and is not counted until then.
    fn total(&self, uid: u32) -> Total {
        let mut total = Total::default();
        for connection in self.connections.values().filter(|connection| connection.credentials.uid == uid) {
            total.clients += 1;
            match &connection.state {
                State::Known(known) => {
                    total.memory += known.memory;
                    // There are not so many files.
                    total.files += known.devices.len() as u32;
                }
                State::New(_) => total.greeting += 1,
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

    /// Refuses a file more than a user's clients may pass.
    fn check_files(&self, number: u64) -> Result<(), Refused> {
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let uid = connection.credentials.uid;
        let most = self.house.limits.of(uid).descriptors;
        if self.total(uid).files >= most {
            let message = format!(
                "the clients of user {uid} have passed {most} files, as many as all of them may; close one first"
            );
            return Err(Refused::new(Code::Limit, message));
        }
        let refused = |message| Refused::new(Code::Limit, message);
        self.check_descriptors(uid, descriptors::OF_FILE).map_err(refused)
    }

    /// Refuses a channel with whose memory a user's clients would have more than they may.
    fn check_memory(&self, number: u64, memory: u64) -> Result<(), Refused> {
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let uid = connection.credentials.uid;
        let (has, most) = (self.total(uid).memory, self.house.limits.of(uid).arena);
        // Its rings may come on top of the largest arena.
        if has > 0 && has.saturating_add(memory) > most {
            let message = format!(
                "the channel has {memory} bytes, and the clients of user {uid} have {has} already, of {most} that all of \
                 them may have; ask for a smaller arena, or close another"
            );
            return Err(Refused::new(Code::Limit, message));
        }
        Ok(())
    }

    /// Takes a client's next message.
    fn hear(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.is_waiting {
            // Then only its end is heard.
            return self.let_go(number);
        }
        match connection.messages.front() {
            Ok(Front::Empty) => {}
            Ok(Front::Plain) => {
                let packet = connection.messages.try_receive();
                let (uid, helpers) = (connection.credentials.uid, self.house.helpers.clone());
                self.received(
                    number,
                    packet.map(|some| some.map(|packet| Foreign::new(packet, uid, helpers))),
                );
            }
            Ok(Front::Descriptors) => self.have_received(number),
            Err(error) => self.throw_out(number, &error.to_string()),
        }
    }

    /// Has a helper receive a client's next message.
    fn have_received(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (uid, messages) = (connection.credentials.uid, Arc::clone(&connection.messages));
        if let Err(message) = self.check_descriptors(uid, descriptors::OF_MESSAGE) {
            self.answer(number, &Answer::Refused(Refused::new(Code::Limit, message)), &[]);
            return self.let_go(number);
        }
        let (helpers, post) = (self.house.helpers.clone(), self.post.clone());
        self.listen(number, false);
        self.house.helpers.give(uid, CLOSING_LIMIT, move || {
            let packet = messages.try_receive();
            drop(messages);
            let packet = packet.map(|some| some.map(|packet| Foreign::new(packet, uid, helpers)));
            post.send(Event::Received { connection: number, packet });
        });
    }

    /// Carries out what a message asks.
    fn received(&mut self, number: u64, packet: Result<Option<Foreign<Packet>>, Error>) {
        let mut packet = match packet {
            Ok(Some(packet)) => packet,
            Ok(None) => return,
            Err(Error::Closed) => return self.let_go(number),
            Err(error) => return self.throw_out(number, &error.to_string()),
        };
        let ask = match Ask::of_bytes(&packet.bytes) {
            Ok(ask) => ask,
            Err(error) => return self.throw_out(number, &error.to_string()),
        };
        let Some(connection) = self.connections.get(&number) else { return };
        let descriptors = packet.take().map(|packet| packet.descriptors).unwrap_or_default();
        let descriptors = Foreign::new(descriptors, connection.credentials.uid, self.house.helpers.clone());
        let outcome = self.carry_out(number, ask, descriptors);
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
        if let Err(error) = epoll::modify(&self.epoll, &**connection.messages, data, flags) {
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
        let _ = epoll::delete(&self.epoll, &**connection.messages);
        let State::Known(known) = &connection.state else { return };
        let (post, uid, key) = (self.post.clone(), connection.credentials.uid, known.key);
        let devices: Vec<_> = known.devices.values().copied().collect();
        let house = self.house.clone();
        let reply = Reply::new(move |gone: Option<Gone>| {
            if let Some(gone) = &gone {
                house.users.add(uid, &gone.counts);
            }
            for device in devices {
                granting::drop_device(&house, uid, device);
            }
            house.helpers.give(uid, CLOSING_LIMIT, move || {
                drop(gone);
                post.send(Event::Gone { client: number });
            });
        });
        // A core that has stopped has nothing of it any more.
        if self.house.orders.send(Order::Leave { client: key, reply }).is_ok() {
            // There are not so many files.
            let (memory, files) = (known.memory, known.devices.len() as u32);
            self.leaving.insert(number, Leaving { uid, since: Instant::now(), memory, files });
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
                let fits = self.check_files(number);
                let Some(connection) = self.connections.get_mut(&number) else { return };
                if let Err(refused) = fits {
                    return self.answer(number, &Answer::Refused(refused), &[]);
                }
                let answer = granting::open_passed(&self.house, connection, device);
                self.answer(number, &answer.unwrap_or_else(Answer::Refused), &[]);
            }
            Event::Received { connection, packet } => {
                self.listen(connection, true);
                self.received(connection, packet);
            }
            Event::Channel { connection: number, outcome } => {
                self.listen(number, true);
                let house = self.house.clone();
                let memory = outcome.as_ref().map_or(0, |channel| channel.memories().bytes() as u64);
                let fits = self.check_memory(number, memory);
                let Some(known) = self.connections.get_mut(&number).and_then(Connection::known) else {
                    return;
                };
                let answer = match outcome {
                    Ok(_) if fits.is_err() => {
                        known.has_channel = false;
                        fits.map_or_else(Answer::Refused, |()| Answer::Done {})
                    }
                    Ok(channel) => {
                        known.memory = memory;
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
                let uid = self.connections.get(&number).map_or(0, |connection| connection.credentials.uid);
                if let Some(known) = self.connections.get_mut(&number).and_then(Connection::known)
                    && let Some(device) = known.devices.remove(&grant)
                {
                    granting::drop_device(&self.house, uid, device);
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

    fn carry_out(&mut self, number: u64, ask: Ask, mut descriptors: Passed) -> Result<Outcome, Refused> {
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
                let uid = connection.credentials.uid;
                let options = PassedOptions { holder: Some(connection.holder()), ..PassedOptions::default() };
                self.check_files(number)?;
                let house = &self.house;
                let (helpers, post) = (house.helpers.clone(), self.post.clone());
                self.house.helpers.give(uid, GREETING, move || {
                    // Its file system may let wait.
                    let descriptor = descriptors.take().and_then(|mut all| all.pop());
                    let device = descriptor.map(|one| File::passed(one, &options).map(Box::new));
                    let Some(device) = device else { return };
                    let device = device.map(|device| Foreign::new(device, uid, helpers));
                    post.send(Event::Passed { connection: number, device });
                });
                Ok(Outcome::Later)
            }
            Ask::Close { grant } => self.close(number, GrantNumber::from_word(grant)),
            Ask::Channel {} => self.greet(number, descriptors),
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
        let uid = credentials.uid;
        let client = Joining { number, uid, limits: limits.schedule, grants_max: limits.grants };
        let key = self.house.orders.ask(|reply| Order::Join { client, reply })?;
        let key = key.map_err(|error| Refused::new(Code::Limit, error))?;
        let page = notices.descriptor().try_clone_to_owned();
        let page = page.map_err(|error| failed(Error::io("pass a page on", error)))?;
        connection.let_descriptors_in().map_err(failed)?;
        let known = Known { key, limits, has_channel: false, memory: 0, devices: HashMap::new() };
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
    fn greet(&mut self, number: u64, mut socket: Passed) -> Result<Outcome, Refused> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(Outcome::Later) };
        let uid = connection.credentials.uid;
        if connection.known().is_some_and(|known| known.has_channel) {
            let message = "the client has its channel already; a connection more has one more";
            return Err(Refused::new(Code::Limit, message));
        }
        let refused = |message| Refused::new(Code::Limit, message);
        self.check_descriptors(uid, descriptors::OF_CHANNEL).map_err(refused)?;
        let connection = self.connections.get_mut(&number);
        let Some(known) = connection.and_then(Connection::known) else { return Ok(Outcome::Later) };
        let options = ServerOptions::new()
            .depth_max(known.limits.depth)
            .arena_bytes_max(usize::try_from(known.limits.arena).unwrap_or(usize::MAX))
            .greeting_limit(GREETING);
        known.has_channel = true;
        let (helpers, post) = (self.house.helpers.clone(), self.post.clone());
        self.house.helpers.give(uid, 2 * GREETING, move || {
            let Some(socket) = socket.take().and_then(|mut all| all.pop()) else { return };
            let outcome = channel_over(socket, &options).map(|channel| Foreign::new(channel, uid, helpers));
            post.send(Event::Channel { connection: number, outcome });
        });
        Ok(Outcome::Later)
    }
}

/// Makes a channel over what a client has passed, if that is a socket over which one can be.
fn channel_over(socket: OwnedFd, options: &ServerOptions) -> Result<Box<Server>, Error> {
    let is_one = sockopt::socket_domain(&socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(&socket) == Ok(SocketType::SEQPACKET);
    match is_one {
        true => Server::over(socket, options).map(Box::new),
        false => Err(Error::Misfit("it goes over a Unix socket of sequenced packets".into())),
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
