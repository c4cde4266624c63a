//! Use of a device by the users of one core, between two exchanges with other cores ([`super::exchange`]).
//!
//! Called by [`super::ByUser`] for each command that is submitted or completed, if the device is one of several cores.

use super::ClientKey;
use super::window::CommandCosts;

/// Use by each user, by the index of the user's key.
#[derive(Clone, Debug, Default)]
pub(super) struct LocalUses(Vec<LocalUse>);

/// Use of the device by one user.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalUse {
    user: Option<ClientKey>,
    /// Cost that the user may have in flight on this core.
    pub(super) limit: i64,
    pub(super) in_flight: i64,
    /// Cost of the user's costliest recent command; it decays with each command.
    pub(super) costliest: i64,
    /// Cost and number of the commands that have completed since the last exchange.
    pub(super) completed: (i64, u32),
    pub(super) was_held: bool,
}

impl Default for LocalUse {
    fn default() -> LocalUse {
        LocalUse {
            user: None,
            limit: i64::MAX,
            in_flight: 0,
            costliest: 0,
            completed: (0, 0),
            was_held: false,
        }
    }
}

impl LocalUses {
    /// Returns the use by a user. A user who had the same index before has left.
    pub(super) fn of(&mut self, user: ClientKey) -> &mut LocalUse {
        let index = user.index();
        if self.0.len() <= index {
            self.0.resize(index + 1, LocalUse::default());
        }
        let place = &mut self.0[index];
        if place.user != Some(user) {
            *place = LocalUse { user: Some(user), ..LocalUse::default() };
        }
        place
    }

    /// Notes that commands of a user were submitted. Returns true if the user is to be held.
    pub(super) fn submitted(&mut self, user: ClientKey, commands: CommandCosts) -> bool {
        let known = self.of(user);
        known.in_flight += commands.cost;
        known.costliest = commands.costliest_with(known.costliest);
        known.is_held()
    }

    /// Notes that commands of a user have completed. Returns true if the user is to be held.
    pub(super) fn completed(&mut self, user: ClientKey, commands: CommandCosts) -> bool {
        let (CommandCosts { cost, commands, .. }, known) = (commands, self.of(user));
        // A user whose entry was replaced meanwhile has less in flight than completes.
        known.in_flight = (known.in_flight - cost).max(0);
        known.completed = (known.completed.0 + cost, known.completed.1 + commands);
        known.is_held()
    }
}

impl LocalUse {
    /// Returns true if the user's part of the window is full. A user with nothing in flight is never held.
    pub(super) fn is_held(&mut self) -> bool {
        let is_held = self.in_flight >= self.limit;
        self.was_held |= is_held;
        is_held
    }
}
