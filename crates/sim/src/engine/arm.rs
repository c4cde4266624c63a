//! The arm of a disk: positioning times, and the order in which waiting jobs are served. A run calls it for
//! each station that has an arm.

use super::time::Time;

/// Arm of a disk, with its positioning times and its position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arm {
    /// Fixed time of each access, also without a movement of the arm.
    pub seek: Time,
    /// Additional time per track of distance.
    pub track: Time,
    /// Duration of one rotation. The mean rotational delay is half of it.
    pub turn: Time,
    /// True if the arm keeps its direction as long as a job waits in that direction (elevator order).
    pub is_elevator: bool,
    at: u32,
    is_upward: bool,
}

impl Arm {
    /// Returns an arm at track 0 that serves jobs in the order of arrival.
    pub fn new(seek: Time, track: Time, turn: Time) -> Arm {
        Arm { seek, track, turn, is_elevator: false, at: 0, is_upward: true }
    }

    /// Returns the arm with elevator order.
    pub fn elevator(self) -> Arm {
        Arm { is_elevator: true, ..self }
    }

    /// Moves to `track` and returns the time that this takes. `turned` is the rotational delay as a share of
    /// a rotation.
    pub(super) fn reach(&mut self, track: u32, turned: f64) -> Time {
        let distance = track.abs_diff(self.at);
        if distance > 0 {
            self.is_upward = track > self.at;
        }
        self.at = track;
        let turned = Time((self.turn.0 as f64 * turned).round() as u64);
        self.seek + Time(self.track.0 * u64::from(distance)) + turned
    }

    /// Follows a transfer that goes on to `track`, and returns the time of the track switches.
    pub(super) fn follow(&mut self, track: u32) -> Time {
        let distance = track.abs_diff(self.at);
        self.at = track;
        Time(self.track.0 * u64::from(distance))
    }

    /// Returns the index of the next job, given the `tracks` of the waiting jobs: the nearest in the arm's
    /// direction, or else the nearest in the opposite direction. Among equals, the first comes first. Returns
    /// `None` if no job waits.
    pub(super) fn next(&self, tracks: impl Iterator<Item = u32>) -> Option<usize> {
        let cost = |track: u32| {
            let is_behind = if self.is_upward { track < self.at } else { track > self.at };
            (is_behind, track.abs_diff(self.at))
        };
        tracks.enumerate().min_by_key(|(number, track)| (cost(*track), *number)).map(|(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_is_counted_in_tracks() {
        let mut arm = Arm::new(Time(1000), Time(10), Time(400));
        assert_eq!(arm.reach(7, 0.5), Time(1000 + 70 + 200));
        assert_eq!(arm.reach(7, 0.0), Time(1000));
        assert_eq!(arm.reach(2, 0.0), Time(1050));
    }

    #[test]
    fn an_elevator_goes_on_in_its_direction() {
        let mut arm = Arm::new(Time(0), Time(1), Time(0)).elevator();
        arm.reach(50, 0.0);
        let mut waiting = vec![49, 60, 10, 55];
        let mut order = Vec::new();
        while let Some(next) = arm.next(waiting.iter().copied()) {
            let track = waiting.remove(next);
            arm.reach(track, 0.0);
            order.push(track);
        }
        assert_eq!(order, [55, 60, 49, 10]);
    }
}
