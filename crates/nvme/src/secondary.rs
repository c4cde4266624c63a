//! Secondary controllers of a primary one: which namespaces they can have, and the order in which one is made ready for
//! a holder or taken away from it (Base Specification 2.0, section 8.26 "Virtualization Enhancements").
//!
//! ```text
//!   ready:       offline ──► queues and interrupts assigned ──► namespace attached ──► online
//!   taken away:  offline ──► namespace detached
//! ```
//!
//! Invariant: a namespace that is given to a secondary controller is attached to no other controller. A controller that
//! was taken away is offline, and has no namespace: the holder of its registers can enable it again after a mere reset,
//! but not after that. Called by the virtual functions.

use crate::error::Error;
use crate::identify::{IDENTIFY_BYTES, active_namespaces};
use crate::kernel::AdminQueue;
use crate::virtualization::{
    AdminCommand, PrimaryCapabilities, Resource, SecondaryController, can_attach, controllers,
    one_controller, secondary_controllers,
};

/// Least number of pairs of queues of a controller: the admin queues, and one pair for I/O.
const QUEUES_MIN: u16 = 2;

/// A primary controller, by its admin queue.
#[derive(Debug)]
pub(crate) struct Primary<Q: AdminQueue>(pub(crate) Q);

impl<Q: AdminQueue> Primary<Q> {
    fn read(&self, command: &AdminCommand) -> Result<Box<[u8; IDENTIFY_BYTES]>, Error> {
        let mut page = Box::new([0; IDENTIFY_BYTES]);
        self.0.carry_out(command, &mut page)?;
        Ok(page)
    }

    fn carry_out(&self, command: &AdminCommand) -> Result<(), Error> {
        self.read(command).map(drop)
    }

    /// Checks that the controller can attach namespaces and rule secondary controllers.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it cannot; else the same as [`AdminQueue::carry_out`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        let can_attach = can_attach(&*self.read(&AdminCommand::identify_controller())?);
        match can_attach && self.secondaries().is_ok_and(|secondaries| !secondaries.is_empty()) {
            true => Ok(()),
            false => Err(unsupported(
                "it cannot attach namespaces to virtual functions: serve it without vfs=".into(),
            )),
        }
    }

    /// Returns the secondary controllers.
    ///
    /// # Errors
    /// Same as [`AdminQueue::carry_out`].
    pub(crate) fn secondaries(&self) -> Result<Vec<SecondaryController>, Error> {
        Ok(secondary_controllers(&*self.read(&AdminCommand::secondary_controllers())?))
    }

    /// Returns the flexible resources.
    ///
    /// # Errors
    /// Same as [`AdminQueue::carry_out`].
    pub(crate) fn capabilities(&self) -> Result<PrimaryCapabilities, Error> {
        Ok(PrimaryCapabilities::read(&*self.read(&AdminCommand::primary_capabilities())?))
    }

    fn controllers_of(&self, namespace: u32) -> Result<Vec<u16>, Error> {
        Ok(controllers(&*self.read(&AdminCommand::attached_controllers(namespace))?))
    }

    /// Takes all secondary controllers away from whoever has them: they are offline then, and have no namespace. Returns
    /// the namespaces that no other controller has, in ascending order.
    ///
    /// # Errors
    /// Same as [`AdminQueue::carry_out`].
    pub(crate) fn take_all_away(&self) -> Result<Vec<u32>, Error> {
        let secondaries = self.secondaries()?;
        for secondary in secondaries.iter().filter(|secondary| secondary.is_online) {
            self.carry_out(&AdminCommand::set_online(secondary.identifier, false))?;
        }
        let mut free = Vec::new();
        for namespace in active_namespaces(&*self.read(&AdminCommand::allocated_namespaces())?) {
            let mut is_free = true;
            for controller in self.controllers_of(namespace)? {
                match secondaries.iter().any(|secondary| secondary.identifier == controller) {
                    true => self.attach(namespace, controller, false)?,
                    false => is_free = false,
                }
            }
            if is_free {
                free.push(namespace);
            }
        }
        Ok(free)
    }

    /// Has the primary controller keep no flexible resources. Returns true if it has to be reset before they can be
    /// assigned.
    ///
    /// # Errors
    /// Same as [`AdminQueue::carry_out`].
    pub(crate) fn release_flexible(&self) -> Result<bool, Error> {
        let capabilities = self.capabilities()?;
        let mut has_to_be_reset = false;
        for (resource, flexible) in
            [(Resource::Queues, capabilities.queues), (Resource::Interrupts, capabilities.interrupts)]
        {
            if flexible.of_primary > 0 {
                self.carry_out(&AdminCommand::keep_flexible(resource, 0))?;
                has_to_be_reset = true;
            }
        }
        Ok(has_to_be_reset)
    }

    /// Makes a secondary controller, one of `count`, ready for a holder: with its share of queues and interrupts, with
    /// `namespace` alone, and online. Its virtual function is enabled.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there are too few queues or interrupts; else the same as [`AdminQueue::carry_out`].
    pub(crate) fn make_ready(&self, controller: u16, namespace: u32, count: u16) -> Result<(), Error> {
        let capabilities = self.capabilities()?;
        let (queues, interrupts) = (capabilities.queues.share(count), capabilities.interrupts.share(count));
        if queues < QUEUES_MIN || interrupts == 0 {
            return Err(unsupported(format!(
                "its {} flexible queues and {} flexible interrupts are too few for {count} functions, each of which needs \
                 {QUEUES_MIN} queues and an interrupt: give a smaller vfs=",
                capabilities.queues.total, capabilities.interrupts.total
            )));
        }
        self.take_away(controller, namespace)?;
        self.carry_out(&AdminCommand::assign(controller, Resource::Queues, queues))?;
        self.carry_out(&AdminCommand::assign(controller, Resource::Interrupts, interrupts))?;
        self.attach(namespace, controller, true)?;
        self.carry_out(&AdminCommand::set_online(controller, true))
    }

    /// Takes a secondary controller away from its holder, and checks that it is offline and has no namespace.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the controller is not what it was told to be; else the same as [`AdminQueue::carry_out`].
    pub(crate) fn take_away(&self, controller: u16, namespace: u32) -> Result<(), Error> {
        self.carry_out(&AdminCommand::set_online(controller, false))?;
        for attached in self.controllers_of(namespace)? {
            if attached != controller {
                return Err(unsupported(format!(
                    "namespace {namespace} is attached to controller {attached}, too"
                )));
            }
            self.attach(namespace, controller, false)?;
        }
        let is_offline =
            |secondary: &SecondaryController| secondary.identifier != controller || !secondary.is_online;
        if !self.secondaries()?.iter().all(is_offline) || !self.controllers_of(namespace)?.is_empty() {
            return Err(unsupported(format!(
                "secondary controller {controller} was told to be offline and without a namespace, and is not"
            )));
        }
        Ok(())
    }

    fn attach(&self, namespace: u32, controller: u16, attaches: bool) -> Result<(), Error> {
        self.0.carry_out(&AdminCommand::attachment(namespace, attaches), &mut one_controller(controller))
    }
}

fn unsupported(reason: String) -> Error {
    Error::Unsupported { reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Primary controller with secondary controllers 1 and 2, namespaces 1 to 3, and controller 0, the primary one, which
    /// has namespace 3. It refuses what the specification says that it refuses.
    struct Fake(Mutex<FakeState>);

    struct FakeState {
        online: [bool; 2],
        queues: [u32; 2],
        interrupts: [u32; 2],
        attached: [Vec<u16>; 3],
        of_primary: u16,
        /// True if the controller says that it did what it was told, and does not.
        lies: bool,
    }

    fn fake() -> Primary<Fake> {
        Primary(Fake(Mutex::new(FakeState {
            online: [false; 2],
            queues: [0; 2],
            interrupts: [0; 2],
            attached: [vec![], vec![], vec![0]],
            of_primary: 0,
            lies: false,
        })))
    }

    impl AdminQueue for Fake {
        fn carry_out(&self, command: &AdminCommand, page: &mut [u8; IDENTIFY_BYTES]) -> Result<(), Error> {
            let refused = |why: &str| Err(Error::Admin { command: command.name, status: why.into() });
            let mut state = self.0.lock().unwrap();
            let [ten, eleven] = command.arguments;
            let namespace = (command.namespace as usize).wrapping_sub(1);
            match (command.opcode, ten & 0xff) {
                (0x06, 0x01) => page[256] = 1 << 3,
                (0x06, 0x10) => [page[0], page[4], page[8]] = [1, 2, 3],
                (0x06, 0x12) => {
                    let list = &state.attached[namespace];
                    page[0] = list.len() as u8;
                    list.iter().enumerate().for_each(|(at, id)| page[2 + 2 * at] = *id as u8);
                }
                (0x06, 0x14) => {
                    [page[32], page[40], page[44]] = [5, state.of_primary as u8, 2];
                    [page[64], page[76]] = [4, 4];
                }
                (0x06, 0x15) => {
                    page[0] = 2;
                    for at in 0..2 {
                        let entry = 32 * (at + 1);
                        [page[entry], page[entry + 4], page[entry + 8]] =
                            [at as u8 + 1, u8::from(state.online[at]), at as u8 + 1];
                    }
                }
                (0x15, select) => {
                    let controller = u16::from_le_bytes([page[2], page[3]]);
                    let list = &mut state.attached[namespace];
                    match (select, list.contains(&controller)) {
                        (0, false) => list.push(controller),
                        (1, true) => list.retain(|other| *other != controller),
                        _ => return refused("Namespace Already Attached, or Not Attached"),
                    }
                }
                (0x1c, 0x01) => state.of_primary = 0,
                (0x1c, action) => {
                    let at = (ten >> 16) as usize - 1;
                    match action {
                        _ if state.lies => {}
                        7 => state.online[at] = false,
                        8 if state.online[at] => return refused("Invalid Secondary Controller State"),
                        8 if ten >> 8 & 7 == 0 => state.queues[at] = eleven,
                        8 => state.interrupts[at] = eleven,
                        9 if state.queues[at] < 2 || state.interrupts[at] == 0 => {
                            return refused("Invalid Secondary Controller State");
                        }
                        9 => state.online[at] = true,
                        _ => return refused("Invalid Field in Command"),
                    }
                }
                _ => return refused("Invalid Command Opcode"),
            }
            Ok(())
        }
    }

    #[test]
    fn a_controller_is_made_ready_and_taken_away_in_every_state() {
        let primary = fake();
        primary.check().unwrap();
        assert_eq!(primary.take_all_away().unwrap(), [1, 2]);
        assert!(!primary.release_flexible().unwrap());
        for _ in 0..2 {
            primary.make_ready(2, 1, 2).unwrap();
            let state = primary.0.0.lock().unwrap();
            assert_eq!((state.online, state.queues, state.interrupts), ([false, true], [0, 2], [0, 2]));
            assert_eq!(state.attached, [vec![2], vec![], vec![0]]);
        }
        for _ in 0..2 {
            primary.take_away(2, 1).unwrap();
            let state = primary.0.0.lock().unwrap();
            assert_eq!((state.online, &state.attached[0]), ([false; 2], &vec![]));
        }
        primary.make_ready(1, 2, 2).unwrap();
        assert_eq!(primary.take_all_away().unwrap(), [1, 2], "all of an earlier server's");
        assert_eq!(primary.0.0.lock().unwrap().online, [false; 2]);
    }

    #[test]
    fn what_does_not_hold_is_refused() {
        let primary = fake();
        let error = primary.make_ready(1, 3, 2).unwrap_err().to_string();
        assert!(error.contains("namespace 3 is attached to controller 0, too"), "{error}");
        let error = primary.make_ready(1, 1, 3).unwrap_err().to_string();
        assert!(
            error.contains("5 flexible queues and 4 flexible interrupts are too few for 3 functions"),
            "{error}"
        );
        primary.make_ready(1, 1, 2).unwrap();
        primary.0.0.lock().unwrap().lies = true;
        let error = primary.take_away(1, 1).unwrap_err().to_string();
        assert!(error.contains("told to be offline and without a namespace, and is not"), "{error}");
        primary.0.0.lock().unwrap().of_primary = 2;
        assert!(primary.release_flexible().unwrap());
    }
}
