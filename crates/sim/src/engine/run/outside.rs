//! A run that somebody else drives: jobs that are added while it runs, and events that are executed one at a time.

use super::super::coherence::Coherence;
use super::super::net::{Net, Registers, Script};
use super::super::time::Time;
use super::{NOBODY, Run, RunResult};
use std::ops::Deref;

impl<N: Deref<Target = Net>, C: Coherence> Run<N, C> {
    /// Adds a job from outside, which begins at `at`, no earlier than the present. The script is one of
    /// [`Net::entry`].
    pub fn submit(&mut self, at: Time, script: Script, registers: Registers) {
        debug_assert!(at >= self.now, "a job in the past");
        let job = self.make(script.0, NOBODY, registers);
        self.queue.push(at.max(self.now), job);
    }

    /// Adds a job like [`Run::submit`], but lets it begin now: `at` becomes the present. Nothing may be going to happen
    /// before, and the caller adds no job that begins earlier.
    pub fn begin(&mut self, at: Time, script: Script, registers: Registers) {
        debug_assert!(at >= self.now && self.queue.first().is_none_or(|(next, _)| next >= at));
        let job = self.make(script.0, NOBODY, registers);
        self.now = at.max(self.now);
        // The first operation is the one that the event of the beginning would have ended.
        self.jobs[job as usize].at += 1;
        self.ready.push_back(job);
        self.settle(false);
    }

    /// Returns the time of the latest event.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the time of the next event, or `None` if nothing is going to happen.
    pub fn next_event(&self) -> Option<Time> {
        self.queue.first().map(|(at, _)| at)
    }

    /// Executes the next event, if there is one.
    pub fn step(&mut self) {
        if let Some((at, job)) = self.queue.first() {
            self.now = at;
            self.events += 1;
            self.happen(job);
        }
    }

    /// Takes the note that a job has left by [`crate::engine::Op::Note`], the earliest first.
    pub fn take_note(&mut self) -> Option<u32> {
        self.notes.pop_front()
    }

    /// Returns the caches, if there are any.
    pub fn caches(&mut self) -> Option<&mut C> {
        self.caches.as_mut()
    }

    /// Ends a run whose events the caller has executed, at the time `at`, and returns the measurements from its
    /// beginning.
    pub fn end(mut self, at: Time) -> RunResult {
        self.now = self.now.max(at);
        self.outcome(true)
    }
}
