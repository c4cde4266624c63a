//! A controller: reset, enabling, its admin commands, events and aborts (Base Specification 2.0, section 3.5 "Controller
//! Initialization").
//!
//! ```text
//!    ┌────────────┐ CSTS.RDY = 0  ┌──────────┐ CSTS.RDY = 1  ┌───────────────────────────────┐ last step ┌───────┐
//!    │ disabling  │ ────────────► │ enabling │ ────────────► │ setting up: Identify, queues, │ ────────► │ ready │
//!    │ CC.EN = 0  │  admin queue  │ CC.EN = 1│               │ events; one command at a time │           └───┬───┘
//!    └────────────┘               └──────────┘               └───────────────────────────────┘               │
//!       ▲     └────────── too late ─────┴──────── too late, refused ──────┴─► failed: cut off from memory     │
//!       └──────────────────── a command that does not complete, CSTS.CFS ────────────────────────────────────┘
//! ```
//!
//! No call waits: [`Controller::advance`] makes one step if it can be made, so that a reset goes on beside whatever else
//! its thread does; only opening a device waits. Invariant: once [`ResetStep::Stopped`] was returned, the controller carries out
//! none of the commands that were in flight, and accesses none of their memory. The I/O queues belong to the device, which takes them when the controller is ready for the
//! first time. Called by the device.

use crate::command::Command;
use crate::completion::{Entry, StatusField};
use crate::data::DataPointer;
use crate::dma::{DmaMemory, PAGE};
use crate::error::Error;
use crate::event::{Event, ResetReason};
use crate::function::Function;
use crate::identify::{
    ControllerIdentity, IDENTIFY_BYTES, NamespaceIdentity, NvmLimits, active_namespaces, structure,
};
use crate::queue::{QueuePair, ShadowDoorbells};
use crate::registers::{
    ACQ, AQA, ASQ, CAP, CC, CSTS, Capabilities, ENABLED, SHUTDOWN, Status, admin_queue_attributes,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Number of entries of the admin queues: more than the driver has admin commands in flight.
const ADMIN_ENTRIES: u16 = 16;
/// Greatest time that an admin command may take.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Greatest time that a shutdown may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Greatest number of resets in a row without a completed command in between.
const RESETS_MAX: u32 = 3;
/// Greatest number of events that are kept until they are taken; the oldest are dropped.
const EVENTS_MAX: usize = 16;

/// Identifiers of admin commands; at most one command of each is in flight.
const SETUP: u16 = 0;
const EVENT: u16 = 1;
const ABORT: u16 = 2;
const LOG: u16 = 3;
const ASKED: u16 = 4;

/// Settings of a controller, from the options of its device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Number of the namespace; `None` for the only one.
    pub(crate) namespace: Option<u32>,
    /// Greatest number of pairs of I/O queues.
    pub(crate) queues: u16,
    /// Greatest number of commands in flight in all queues together.
    pub(crate) depth: usize,
    /// True if completions cause interrupts.
    pub(crate) interrupts: bool,
    /// True if the completions of each pair of queues cause an interrupt of their own, false if they all cause the same.
    pub(crate) vectors: bool,
    /// True if shadow doorbells are used where the controller has them.
    pub(crate) shadow_doorbells: bool,
}

/// Properties of a controller and its namespace, known once it has been ready.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) controller: ControllerIdentity,
    pub(crate) limits: NvmLimits,
    pub(crate) namespace: NamespaceIdentity,
}

/// Step of setting up an enabled controller: an admin command, or several for the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Controller,
    Limits,
    ActiveNamespaces,
    Namespace(u32),
    ShadowDoorbells,
    Queues,
    CompletionQueue(usize),
    SubmissionQueue(usize),
    Events,
}

#[derive(Debug)]
enum State {
    Disabling { until: Duration },
    Enabling { until: Duration },
    SettingUp { step: Step, until: Duration },
    Ready,
    Failed(Error),
}

/// Step of a reset that matters for commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetStep {
    /// The commands that were in flight when the reset began will not be carried out any more.
    Stopped,
    /// The controller is ready again, with the same queues, which are empty.
    Ready,
}

/// Pair of I/O queues, as the controller is told of it.
#[derive(Clone, Copy, Debug)]
struct QueueLayout {
    number: u16,
    entries: u16,
    completion_entries: u16,
    /// Controller's addresses of the submission queue and of the completion queue.
    addresses: (u64, u64),
}

/// Result of requesting the end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AbortSent {
    /// The controller has been told.
    Yes,
    /// Another Abort command is in flight.
    Busy,
}

/// A controller and its queues.
pub(crate) struct Controller<F: Function> {
    function: Arc<F>,
    capabilities: Capabilities,
    settings: Settings,
    state: State,
    admin: QueuePair<F>,
    /// Two pages: the data of Identify, and that of Get Log Page.
    pages: DmaMemory<F>,
    shadow: Option<Arc<ShadowDoorbells<F>>>,
    /// I/O queues, until the device takes them.
    queues: Vec<QueuePair<F>>,
    layouts: Vec<QueueLayout>,
    /// Identity of the controller, once it is known.
    controller: Option<ControllerIdentity>,
    limits: NvmLimits,
    namespace: Option<NamespaceIdentity>,
    events: VecDeque<Event>,
    abort_until: Option<Duration>,
    resets: u32,
    resets_in_a_row: u32,
    is_down: bool,
}

impl<F: Function> Controller<F> {
    /// Begins to reset and enable the controller of `function`.
    ///
    /// # Errors
    /// [`Error::Removed`] if the function is not there, [`Error::Unsupported`] if the controller has no NVM commands or
    /// no pages of 4096 bytes, [`Error::Io`] if memory cannot be allocated or mapped.
    pub(crate) fn new(function: &Arc<F>, settings: Settings) -> Result<Controller<F>, Error> {
        if Status(function.read32(CSTS)).is_removed() {
            return Err(Error::Removed);
        }
        let capabilities = Capabilities(function.read64(CAP));
        if !capabilities.has_nvm_commands() {
            return Err(Error::Unsupported { reason: "it does not support the NVM command set".into() });
        }
        if capabilities.page_min() > PAGE as u64 {
            let reason = format!(
                "its pages have at least {} bytes, and the driver's have {PAGE}",
                capabilities.page_min()
            );
            return Err(Error::Unsupported { reason });
        }
        let doorbells = (capabilities.submission_doorbell(0), capabilities.completion_doorbell(0));
        let mut controller = Controller {
            function: function.clone(),
            capabilities,
            settings,
            state: State::Ready,
            admin: QueuePair::new(function, 0, (ADMIN_ENTRIES, ADMIN_ENTRIES), doorbells)?,
            pages: DmaMemory::new(function, 2 * PAGE)?,
            shadow: None,
            queues: Vec::new(),
            layouts: Vec::new(),
            controller: None,
            limits: NvmLimits::NONE,
            namespace: None,
            events: VecDeque::with_capacity(EVENTS_MAX),
            abort_until: None,
            resets: 0,
            resets_in_a_row: 0,
            is_down: false,
        };
        controller.disable();
        Ok(controller)
    }

    /// Waits until the controller is ready. `queues` are its I/O queues, if they were taken.
    ///
    /// # Errors
    /// The reason why it cannot be used: see [`Error`].
    pub(crate) fn wait_until_ready(&mut self, queues: &mut [QueuePair<F>]) -> Result<Identity, Error> {
        loop {
            self.advance(queues);
            match (&self.state, &self.controller, self.namespace) {
                (State::Ready, Some(controller), Some(namespace)) => {
                    return Ok(Identity { controller: controller.clone(), limits: self.limits, namespace });
                }
                (State::Failed(_), ..) => {
                    let failed = State::Failed(Error::Removed);
                    let State::Failed(error) = std::mem::replace(&mut self.state, failed) else { continue };
                    return Err(error);
                }
                _ => self.function.pause(),
            }
        }
    }

    /// Returns true if I/O commands can be submitted.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Returns the reason why the controller cannot be used any more.
    pub(crate) fn failure(&self) -> Option<&Error> {
        match &self.state {
            State::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the number of resets since the controller was opened.
    pub(crate) fn resets(&self) -> u32 {
        self.resets
    }

    /// Returns true if I/O queues use shadow doorbells.
    pub(crate) fn has_shadow_doorbells(&self) -> bool {
        self.shadow.is_some()
    }

    /// Takes the oldest event that nobody has taken yet.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Keeps an event.
    pub(crate) fn note(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Notes that a command completed, so that the controller is not given up.
    #[inline]
    pub(crate) fn note_progress(&mut self) {
        self.resets_in_a_row = 0;
    }

    /// Makes the next step of a reset, if it can be made, and returns it if it matters for commands. `queues` are the I/O
    /// queues, if they were taken: they are emptied when the controller has stopped.
    pub(crate) fn advance(&mut self, queues: &mut [QueuePair<F>]) -> Option<ResetStep> {
        if matches!(self.state, State::Ready | State::Failed(_)) {
            return None;
        }
        let status = Status(self.function.read32(CSTS));
        if status.is_removed() {
            self.fail(Error::Removed);
            return None;
        }
        let now = self.function.now();
        let seconds = self.capabilities.timeout().as_secs().max(1);
        match self.state {
            State::Disabling { .. } if !status.is_ready() => {
                queues.iter_mut().for_each(QueuePair::clear);
                self.enable();
                return Some(ResetStep::Stopped);
            }
            State::Disabling { until } if now > until => {
                self.fail(Error::Timeout { what: "stop", seconds });
            }
            State::Enabling { .. } if status.is_ready() => self.begin(Step::Controller),
            State::Enabling { until } if now > until => {
                self.fail(Error::Timeout { what: "become ready", seconds });
            }
            State::SettingUp { .. } if status.is_fatal() => self.reset(ResetReason::Fatal),
            State::SettingUp { step, until } => self.set_up(step, now > until),
            _ => {}
        }
        if !self.is_ready() {
            return None;
        }
        self.choose_doorbells(queues);
        Some(ResetStep::Ready)
    }

    /// Resets the controller. Commands in flight are lost once [`Controller::advance`] has returned
    /// [`ResetStep::Stopped`].
    pub(crate) fn reset(&mut self, reason: ResetReason) {
        self.resets += 1;
        self.resets_in_a_row += 1;
        self.note(Event::Reset(reason));
        if self.resets_in_a_row > RESETS_MAX {
            return self.fail(Error::Broken { resets: RESETS_MAX });
        }
        self.disable();
    }

    fn disable(&mut self) {
        self.function.write32(CC, 0);
        self.abort_until = None;
        self.state = State::Disabling { until: self.function.now() + self.capabilities.timeout() };
    }

    fn enable(&mut self) {
        self.admin.clear();
        let (submissions, completions) = self.admin.addresses();
        self.function.write32(AQA, admin_queue_attributes(ADMIN_ENTRIES));
        self.function.write64(ASQ, submissions);
        self.function.write64(ACQ, completions);
        self.function.write32(CC, ENABLED);
        self.state = State::Enabling { until: self.function.now() + self.capabilities.timeout() };
    }

    /// Gives the controller up: it is stopped if possible, and cut off from all memory in any case.
    pub(crate) fn fail(&mut self, error: Error) {
        if !matches!(error, Error::Removed) {
            self.function.write32(CC, 0);
        }
        self.function.cut_off();
        self.state = State::Failed(error);
    }

    /// Begins a step, or the first one after it that is necessary.
    fn begin(&mut self, first: Step) {
        let mut next = Some(first);
        while let Some(step) = next {
            match self.command(step) {
                Ok(Some(command)) => {
                    self.submit_admin(&command);
                    self.state = State::SettingUp { step, until: self.function.now() + ADMIN_TIMEOUT };
                    return;
                }
                Ok(None) => next = self.following(step),
                Err(error) => return self.fail(error),
            }
        }
        self.request_event();
        self.state = State::Ready;
    }

    fn submit_admin(&mut self, command: &Command) {
        // There is room: at most one command of each of the five identifiers is in flight.
        self.admin.push(command);
        self.admin.ring(&self.function);
    }

    fn request_event(&mut self) {
        self.submit_admin(&Command::event_request(EVENT));
    }

    /// Returns the command of a step, or `None` if the step is not necessary.
    fn command(&mut self, step: Step) -> Result<Option<Command>, Error> {
        let page = DataPointer { words: [self.pages.address(0), 0], is_sgl: false };
        let identify = |namespace, structure| Some(Command::identify(SETUP, namespace, structure).data(page));
        Ok(match step {
            Step::Controller => identify(0, structure::CONTROLLER),
            Step::Limits => identify(0, structure::NVM_LIMITS),
            Step::ActiveNamespaces => identify(0, structure::ACTIVE_NAMESPACES),
            Step::Namespace(number) => identify(number, structure::NAMESPACE),
            Step::ShadowDoorbells => self.offer_shadow_doorbells()?,
            Step::Queues => Some(Command::number_of_queues(SETUP, self.settings.queues)),
            Step::CompletionQueue(index) => {
                let queue = self.layouts[index];
                let (address, vector) =
                    (queue.addresses.1, if self.settings.vectors { index as u16 } else { 0 });
                Some(Command::create_completion_queue(
                    SETUP,
                    queue.number,
                    queue.completion_entries,
                    address,
                    self.settings.interrupts.then_some(vector),
                ))
            }
            Step::SubmissionQueue(index) => {
                let queue = self.layouts[index];
                Some(Command::create_submission_queue(SETUP, queue.number, queue.entries, queue.addresses.0))
            }
            Step::Events => Some(Command::select_events(SETUP)),
        })
    }

    fn offer_shadow_doorbells(&mut self) -> Result<Option<Command>, Error> {
        let is_offered = self.controller.as_ref().is_some_and(|controller| controller.has_doorbell_buffers);
        if !is_offered || !self.settings.shadow_doorbells {
            return Ok(None);
        }
        let shadow = match &self.shadow {
            Some(shadow) => shadow.clone(),
            None => Arc::new(ShadowDoorbells {
                values: DmaMemory::new(&self.function, PAGE)?,
                events: DmaMemory::new(&self.function, PAGE)?,
            }),
        };
        shadow.values.zero(0, PAGE);
        shadow.events.zero(0, PAGE);
        let command = Command::doorbell_buffers(SETUP, shadow.values.address(0), shadow.events.address(0));
        self.shadow = Some(shadow);
        Ok(Some(command))
    }

    /// Returns the step after one that is done or not necessary.
    fn following(&self, step: Step) -> Option<Step> {
        match (step, self.settings.namespace) {
            (Step::Controller, _) => Some(Step::Limits),
            (Step::Limits, None) => Some(Step::ActiveNamespaces),
            (Step::Limits, Some(number)) => Some(Step::Namespace(number)),
            // Not reached: its completion names the next step.
            (Step::ActiveNamespaces, _) => None,
            (Step::Namespace(_), _) => Some(Step::ShadowDoorbells),
            (Step::ShadowDoorbells, _) => Some(Step::Queues),
            (Step::Queues, _) => Some(Step::CompletionQueue(0)),
            (Step::CompletionQueue(index), _) => Some(Step::SubmissionQueue(index)),
            (Step::SubmissionQueue(index), _) if index + 1 < self.layouts.len() => {
                Some(Step::CompletionQueue(index + 1))
            }
            (Step::SubmissionQueue(_), _) => Some(Step::Events),
            (Step::Events, _) => None,
        }
    }

    fn set_up(&mut self, step: Step, is_late: bool) {
        let Some(entry) = self.next_admin() else {
            if is_late {
                self.fail(Error::Timeout {
                    what: "carry out an admin command",
                    seconds: ADMIN_TIMEOUT.as_secs(),
                });
            }
            return;
        };
        if entry.identifier != SETUP {
            return;
        }
        match self.done(step, &entry) {
            Ok(Some(next)) => self.begin(next),
            Ok(None) => {
                self.request_event();
                self.state = State::Ready;
            }
            Err(error) => self.fail(error),
        }
    }

    fn next_admin(&mut self) -> Option<Entry> {
        let entry = self.admin.pop()?;
        self.admin.free(&self.function);
        Some(entry)
    }

    /// Takes the completion of a step's command, and returns the next step.
    fn done(&mut self, step: Step, entry: &Entry) -> Result<Option<Step>, Error> {
        let failed = |command| Error::Admin { command, status: entry.status.to_string() };
        let is_done = entry.status.is_success();
        let data = self.pages.read_bytes::<IDENTIFY_BYTES>(0);
        let page_min = self.capabilities.page_min();
        match step {
            Step::Controller if is_done => self.identified(ControllerIdentity::read(&data, page_min)?)?,
            Step::Namespace(number) if is_done => {
                self.identified_namespace(NamespaceIdentity::read(&data, number)?)?
            }
            // Controllers before version 2.0 do not have this structure, and few report events of all kinds.
            Step::Limits => {
                self.limits = if is_done { NvmLimits::read(&data, page_min) } else { NvmLimits::NONE }
            }
            Step::Events => {}
            Step::ActiveNamespaces if is_done => {
                return Ok(Some(Step::Namespace(only(&active_namespaces(&data))?)));
            }
            // The doorbells are registers then.
            Step::ShadowDoorbells if !is_done => self.shadow = None,
            Step::ShadowDoorbells => {}
            Step::Queues if is_done => self.make_queues(entry.value)?,
            Step::CompletionQueue(_) | Step::SubmissionQueue(_) if is_done => {}
            Step::Controller | Step::ActiveNamespaces => return Err(failed("Identify")),
            Step::Namespace(number) if entry.status.is_same(StatusField::INVALID_NAMESPACE) => {
                return Err(Error::Unsupported { reason: format!("it has no namespace {number}") });
            }
            Step::Namespace(_) => return Err(failed("Identify")),
            Step::Queues => return Err(failed("Set Features (Number of Queues)")),
            Step::CompletionQueue(_) => return Err(failed("Create I/O Completion Queue")),
            Step::SubmissionQueue(_) => return Err(failed("Create I/O Submission Queue")),
        }
        Ok(self.following(step))
    }

    /// Keeps the controller's identity; after a reset it has to be the same.
    fn identified(&mut self, read: ControllerIdentity) -> Result<(), Error> {
        if self.controller.as_ref().is_some_and(|known| known.serial != read.serial) {
            return Err(Error::Unsupported {
                reason: format!("after a reset it is another one, with serial number {}", read.serial),
            });
        }
        self.controller = Some(read);
        Ok(())
    }

    /// Keeps the namespace's identity; after a reset the blocks have to be as large, and no fewer.
    fn identified_namespace(&mut self, read: NamespaceIdentity) -> Result<(), Error> {
        let is_other = |known: &NamespaceIdentity| known.block != read.block || known.blocks > read.blocks;
        if let Some(known) = self.namespace {
            if is_other(&known) {
                let (blocks, block, number) = (read.blocks, read.block, read.number);
                let reason = format!(
                    "after a reset namespace {number} is another one, of {blocks} blocks of {block} bytes"
                );
                return Err(Error::Unsupported { reason });
            }
            return Ok(());
        }
        self.namespace = Some(read);
        Ok(())
    }

    /// Makes as many pairs of queues as wanted and granted; `granted` is the value of the completed Set Features:
    /// zero-based numbers of submission queues (15:0) and of completion queues (31:16). After a reset they are the same.
    fn make_queues(&mut self, granted: u32) -> Result<(), Error> {
        let granted = (granted & 0xffff).min(granted >> 16) + 1;
        if self.layouts.is_empty() {
            let reachable = |number: u16| {
                self.capabilities.completion_doorbell(number) + 4 <= self.function.register_bytes()
            };
            let most = u32::from(self.settings.queues).min(granted) as u16;
            let count = (1..=most).take_while(|number| reachable(*number)).count() as u16;
            if count == 0 {
                return Err(Error::Unsupported {
                    reason: "the doorbells of its I/O queues cannot be mapped".into(),
                });
            }
            // One entry more than commands, since a full queue has an empty entry.
            let entries = self.settings.depth.div_ceil(usize::from(count)) + 1;
            let most = (self.capabilities.queue_entries_max() as usize).min(usize::from(u16::MAX));
            let entries = entries.min(most);
            // Twice as many, so that the controller gets entries back for many completions at a time.
            let entries = (entries as u16, (2 * entries).min(most) as u16);
            for number in 1..=count {
                let doorbells = (
                    self.capabilities.submission_doorbell(number),
                    self.capabilities.completion_doorbell(number),
                );
                let queue = QueuePair::new(&self.function, number, entries, doorbells)?;
                self.layouts.push(QueueLayout {
                    number,
                    entries: queue.entries,
                    completion_entries: queue.completion_entries,
                    addresses: queue.addresses(),
                });
                self.queues.push(queue);
            }
        } else if granted < self.layouts.len() as u32 {
            return Err(Error::Unsupported {
                reason: format!("after a reset it grants only {granted} queues"),
            });
        }
        Ok(())
    }

    /// Gives the I/O queues to the device, when the controller is ready for the first time.
    pub(crate) fn take_queues(&mut self) -> Vec<QueuePair<F>> {
        let mut queues = std::mem::take(&mut self.queues);
        self.choose_doorbells(&mut queues);
        queues
    }

    /// Has queues, which are empty, use the doorbells that the controller has since it was last reset: registers or words of
    /// memory.
    pub(crate) fn choose_doorbells(&self, queues: &mut [QueuePair<F>]) {
        if let Some(shadow) = &self.shadow {
            for queue in queues {
                queue.use_shadow(shadow, self.capabilities.doorbell_stride());
            }
        }
    }

    /// Takes completions of admin commands of a ready controller: events, log pages, aborts.
    pub(crate) fn poll_admin(&mut self) {
        while let Some(entry) = self.next_admin() {
            self.take_admin(&entry);
        }
    }

    fn take_admin(&mut self, entry: &Entry) {
        match entry.identifier {
            EVENT if entry.status.is_success() => {
                self.note(Event::from_completion(entry.value));
                // The controller reports no more events of this kind until the log page was read.
                let page = (entry.value >> 16) as u8;
                let data = DataPointer { words: [self.pages.address(PAGE), 0], is_sgl: false };
                self.submit_admin(&Command::log_page(LOG, page, 512).data(data));
            }
            // Not repeated at once: a controller that refuses would refuse again, for ever.
            EVENT => {}
            LOG => self.request_event(),
            ABORT => self.abort_until = None,
            _ => {}
        }
    }

    /// Copies the page that the last command of [`Controller::carry_out`] had as its data.
    pub(crate) fn page(&self) -> Box<[u8; IDENTIFY_BYTES]> {
        self.pages.read_bytes(0)
    }

    /// Has the controller, which is ready, carry out the admin command that `make` makes from an identifier, with a page of
    /// zeros as its data, and waits for its status. Returns `None` if the command does not complete in time: no other command
    /// may be carried out then.
    pub(crate) fn carry_out(&mut self, make: impl FnOnce(u16) -> Command) -> Option<StatusField> {
        self.pages.zero(0, PAGE);
        let page = DataPointer { words: [self.pages.address(0), 0], is_sgl: false };
        self.submit_admin(&make(ASKED).data(page));
        let until = self.function.now() + ADMIN_TIMEOUT;
        while self.function.now() <= until && !Status(self.function.read32(CSTS)).is_removed() {
            while let Some(entry) = self.next_admin() {
                if entry.identifier == ASKED {
                    return Some(entry.status);
                }
                self.take_admin(&entry);
            }
            self.function.pause();
        }
        None
    }

    /// Requests the end of command `identifier` of queue `queue`. The command completes in any case, aborted or not.
    pub(crate) fn abort(&mut self, queue: u16, identifier: u16, timeout: Duration) -> AbortSent {
        if self.abort_until.is_some() {
            return AbortSent::Busy;
        }
        self.abort_until = Some(self.function.now() + timeout);
        self.submit_admin(&Command::abort(ABORT, queue, identifier));
        AbortSent::Yes
    }

    /// Looks at the state of a ready controller. Fails it if it was removed, and returns the reason if it has to be reset.
    pub(crate) fn check(&mut self, now: Duration) -> Option<ResetReason> {
        let status = Status(self.function.read32(CSTS));
        if status.is_removed() {
            self.fail(Error::Removed);
            None
        } else if status.is_fatal() {
            Some(ResetReason::Fatal)
        } else {
            self.abort_until.is_some_and(|until| now > until).then_some(ResetReason::Timeout)
        }
    }

    /// Begins to reset a ready controller, nothing of which is in flight, so that it gets other I/O queues: `queues` pairs at
    /// most, with an interrupt of its own for each if `vectors`.
    pub(crate) fn begin_anew(&mut self, queues: u16, vectors: bool) {
        (self.settings.queues, self.settings.vectors) = (queues, vectors);
        self.layouts.clear();
        self.disable();
    }

    /// Returns true if an admin command has completed.
    pub(crate) fn has_admin_completion(&self) -> bool {
        self.admin.has_completion()
    }

    /// Shuts the controller down: announces it, so that caches are written, and stops the controller. Waits for at most
    /// some seconds; then the function is cut off from memory.
    pub(crate) fn shut_down(&mut self) {
        if self.is_down || self.failure().is_some() {
            return;
        }
        self.is_down = true;
        let function = self.function.clone();
        let wait_for = |is_done: fn(Status) -> bool, limit: Duration| {
            let until = function.now() + limit;
            loop {
                let status = Status(function.read32(CSTS));
                if is_done(status) || status.is_removed() || function.now() > until {
                    return;
                }
                function.pause();
            }
        };
        if self.is_ready() {
            self.function.write32(CC, ENABLED | SHUTDOWN);
            wait_for(Status::is_shut_down, SHUTDOWN_TIMEOUT);
        }
        self.function.write32(CC, 0);
        wait_for(|status| !status.is_ready(), self.capabilities.timeout());
        self.function.cut_off();
    }
}

impl<F: Function> Drop for Controller<F> {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Returns the namespace if there is exactly one.
fn only(active: &[u32]) -> Result<u32, Error> {
    match active {
        [only] => Ok(*only),
        [] => Err(Error::Unsupported { reason: "it has no active namespace".into() }),
        several => {
            let list: Vec<String> = several.iter().take(16).map(u32::to_string).collect();
            Err(Error::Unsupported {
                reason: format!("it has {} active namespaces ({}): name one", several.len(), list.join(", ")),
            })
        }
    }
}
