//! The arm of a disk: how long it takes to a track, and who is next.

use super::time::Time;

/// An arm, and how it moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arm {
    /// To move at all.
    pub seek: Time,
    /// To move by one track.
    pub track: Time,
    /// One turn of the disk; on the average half of one is waited for.
    pub turn: Time,
    /// Whether it goes on in its direction as long as somebody waits there.
    pub is_elevator: bool,
    at: u32,
    is_upward: bool,
}

impl Arm {
    /// One that is at the first track and serves who came first.
    pub fn new(seek: Time, track: Time, turn: Time) -> Arm {
        Arm { seek, track, turn, is_elevator: false, at: 0, is_upward: true }
    }

    /// One that serves who is next in its direction.
    pub fn elevator(self) -> Arm {
        Arm { is_elevator: true, ..self }
    }

    /// Moves to `track`; `turned` is the share of a turn until the first byte comes by.
    pub(super) fn reach(&mut self, track: u32, turned: f64) -> Time {
        let distance = track.abs_diff(self.at);
        if distance > 0 {
            self.is_upward = track > self.at;
        }
        self.at = track;
        let turned = Time((self.turn.0 as f64 * turned).round() as u64);
        self.seek + Time(self.track.0 * u64::from(distance)) + turned
    }

    /// Which of the waiting `tracks` is next: the nearest in its direction, or the nearest the other way; among equals
    /// who came first. `None` if nobody waits.
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
