//! Lines of waiting jobs, linked through the jobs themselves.

use super::super::arm::Arm;
use super::super::net::Register;
use super::{Job, NOBODY};

/// Jobs that wait, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingLine {
    /// First job; `NOBODY` if none waits.
    pub head: u32,
    /// Last job; `NOBODY` if none waits.
    tail: u32,
}

/// Line in which nobody waits.
pub(super) const EMPTY: WaitingLine = WaitingLine { head: NOBODY, tail: NOBODY };

/// Appends a job to a line.
pub(super) fn append(line: &mut WaitingLine, job: u32, jobs: &mut [Job]) {
    let last = std::mem::replace(&mut line.tail, job);
    if last == NOBODY {
        line.head = job;
    } else {
        jobs[last as usize].next = job;
    }
    jobs[job as usize].next = NOBODY;
}

/// Removes the first job of a line that is not empty.
pub(super) fn take_first(line: &mut WaitingLine, jobs: &[Job]) -> u32 {
    let first = line.head;
    line.head = jobs[first as usize].next;
    if line.head == NOBODY {
        line.tail = NOBODY;
    }
    first
}

/// Removes the job that the arm serves next from a line that is not empty.
pub(super) fn take_by_arm(line: &mut WaitingLine, arm: &Arm, jobs: &mut [Job]) -> u32 {
    let links = std::iter::successors(Some(line.head), |job| {
        Some(jobs[*job as usize].next).filter(|next| *next != NOBODY)
    });
    let waiting: Vec<u32> = links.collect();
    let track = |job: &u32| jobs[*job as usize].registers.picks[Register::Other as usize];
    // The line is not empty, so `next` finds a job.
    let number = arm.next(waiting.iter().map(track)).unwrap_or(0);
    if number == 0 {
        return take_first(line, jobs);
    }
    let (before, taken) = (waiting[number - 1], waiting[number]);
    jobs[before as usize].next = jobs[taken as usize].next;
    if line.tail == taken {
        line.tail = before;
    }
    taken
}
