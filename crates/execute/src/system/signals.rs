//! Calls on signals, and their delivery.

use bywash_cpu::Register;

use super::{Caller, End, Failure, Served, Stop, System};
use crate::errno::Errno;
use crate::machine::{Path, ThreadId, Work};
use crate::signal::{
    self, Action, AlternateStack, Effect, Information, NO_DEFER, RESET, RESTART, SIGNALS, bit, blockable,
    number,
};
use crate::thread::{Key, PROCESS, State};

/// Causes of signals that a thread sends: kill(2), and tgkill(2).
const BY_KILL: i32 = 0;
/// Cause of a signal sent to a certain thread.
const BY_TGKILL: i32 = -6;
/// Greatest number of signals that are delivered in a row, so that handlers of all may begin.
const DELIVERIES_LIMIT: u32 = 2 * SIGNALS;

impl System {
    /// Serves kill(2): to the program itself.
    pub(super) fn kill(&mut self, caller: &Caller) -> Served {
        let signal = checked_signal(caller.arguments[1])?;
        match caller.arguments[0] as i32 {
            -1..=1 => {}
            target if target == -(PROCESS as i32) => {}
            _ => return Err(Errno::ESRCH.into()),
        }
        if signal != 0 {
            self.send_to_process(Information::sent(signal, BY_KILL));
        }
        Ok(0)
    }

    /// Serves tkill(2).
    pub(super) fn tkill(&mut self, caller: &Caller) -> Served {
        self.send(caller.arguments[0], caller.arguments[1])
    }

    /// Serves tgkill(2).
    pub(super) fn tgkill(&mut self, caller: &Caller) -> Served {
        if caller.arguments[0] as u32 != PROCESS {
            return Err(Errno::ESRCH.into());
        }
        self.send(caller.arguments[1], caller.arguments[2])
    }

    /// Serves rt_sigaction(2).
    pub(super) fn rt_sigaction(&mut self, caller: &Caller) -> Served {
        let [signal, new, old, length, ..] = caller.arguments;
        let signal = checked_signal(signal)?;
        if signal == 0 || length != 8 || new != 0 && (signal == number::KILL || signal == number::STOP) {
            return Err(Errno::EINVAL.into());
        }
        let before = self.signals.action(signal);
        if new != 0 {
            let [handler, flags, mask] = self.memory.words(new)?;
            self.signals.set_action(signal, Action { handler, flags, mask: blockable(mask) });
        }
        if old != 0 {
            self.memory.set_words(old, &[before.handler, before.flags, before.mask])?;
        }
        Ok(0)
    }

    /// Serves rt_sigprocmask(2).
    pub(super) fn rt_sigprocmask(&mut self, caller: &Caller) -> Served {
        let [change, new, old, length, ..] = caller.arguments;
        if length != 8 {
            return Err(Errno::EINVAL.into());
        }
        let set = if new == 0 { None } else { Some(self.memory.words::<1>(new)?[0]) };
        let signals = &mut self.threads.get_mut(caller.thread).ok_or(Errno::ESRCH)?.signals;
        let before = signals.mask;
        if let Some(set) = set {
            signals.mask = blockable(match change {
                0 => before | set,
                1 => before & !set,
                2 => set,
                _ => return Err(Errno::EINVAL.into()),
            });
        }
        if old != 0 {
            self.memory.set_words(old, &[before])?;
        }
        Ok(0)
    }

    /// Serves rt_sigpending(2).
    pub(super) fn rt_sigpending(&mut self, caller: &Caller) -> Served {
        let signals = &self.threads.get(caller.thread).ok_or(Errno::ESRCH)?.signals;
        let set = (signals.pending.set() | self.signals.pending.set()) & signals.mask;
        self.memory.set_words(caller.arguments[0], &[set])?;
        Ok(0)
    }

    /// Serves rt_sigsuspend(2).
    pub(super) fn rt_sigsuspend(&mut self, caller: &Caller) -> Served {
        self.replace_mask(caller, caller.arguments[0], caller.arguments[1])?;
        Err(Stop::Block(Vec::new()))
    }

    /// Serves rt_sigtimedwait(2).
    pub(super) fn rt_sigtimedwait(&mut self, caller: &Caller) -> Served {
        let [set, information, timeout, length, ..] = caller.arguments;
        if length != 8 {
            return Err(Errno::EINVAL.into());
        }
        let set = self.memory.words::<1>(set)?[0];
        let wait = if timeout == 0 { None } else { Some(self.time_at(timeout)?.duration()) };
        let thread = self.threads.get_mut(caller.thread).ok_or(Errno::ESRCH)?;
        if let Some(taken) = thread.signals.pending.take(set).or_else(|| self.signals.pending.take(set)) {
            if information != 0 {
                let mut bytes = [0_u8; 128];
                bytes[..4].copy_from_slice(&taken.signal.to_le_bytes());
                bytes[8..12].copy_from_slice(&taken.code.to_le_bytes());
                bytes[16..20].copy_from_slice(&PROCESS.to_le_bytes());
                self.memory.write(information, &bytes)?;
            }
            return Ok(taken.signal.into());
        }
        match self.deadline(caller, wait)? {
            Some(deadline) if deadline <= caller.now => Err(Errno::EAGAIN.into()),
            _ => Err(Stop::Block(Vec::new())),
        }
    }

    /// Serves rt_sigreturn(2): the return from a handler.
    pub(super) fn rt_sigreturn(&mut self, caller: &Caller) -> Served {
        let thread = self.threads.get_mut(caller.thread).ok_or(Errno::ESRCH)?;
        if signal::end(&mut thread.hart, &mut thread.signals, &mut self.memory).is_err() {
            let text =
                format!("the frame of a signal handler is lost, in {}", self.function_of(caller.thread));
            self.force_signal(
                caller.thread,
                Information { signal: number::SEGV, code: 128, address: 0 },
                text,
            );
            return Err(Stop::End);
        }
        self.work.push(Work::Path(Path::Signal));
        Err(Stop::Restored)
    }

    /// Serves sigaltstack(2).
    pub(super) fn sigaltstack(&mut self, caller: &Caller) -> Served {
        const DISABLED: u32 = 2;
        const ON_STACK: u64 = 1;
        const BYTES_MIN: u64 = 2048;

        let [new, old, ..] = caller.arguments;
        let thread = self.threads.get(caller.thread).ok_or(Errno::ESRCH)?;
        let before = thread.signals.stack;
        let is_on_it = before.contains(thread.hart.x(Register::R2));
        if new != 0 {
            let [start, flags, length] = self.memory.words(new)?;
            if is_on_it {
                return Err(Errno::EPERM.into());
            }
            let flags = flags as u32;
            let stack = match flags {
                DISABLED => AlternateStack::default(),
                0 if length < BYTES_MIN => return Err(Errno::ENOMEM.into()),
                0 => AlternateStack { start, flags, length },
                _ => return Err(Errno::EINVAL.into()),
            };
            self.threads.get_mut(caller.thread).ok_or(Errno::ESRCH)?.signals.stack = stack;
        }
        if old != 0 {
            let flags = if is_on_it { ON_STACK } else { before.flags.into() };
            self.memory.set_words(old, &[before.start, flags, before.length])?;
        }
        Ok(0)
    }

    /// Sends a signal to a thread by number.
    fn send(&mut self, thread: u64, signal: u64) -> Served {
        let signal = checked_signal(signal)?;
        let id = ThreadId(thread as u32);
        self.threads.get(id).ok_or(Errno::ESRCH)?;
        if signal != 0 {
            self.send_to_thread(id, Information::sent(signal, BY_TGKILL));
        }
        Ok(0)
    }

    /// Replaces a thread's mask for the duration of a call. A call that goes on keeps it.
    pub(super) fn replace_mask(&mut self, caller: &Caller, set: u64, length: u64) -> Result<(), Stop> {
        if set == 0 {
            return Ok(());
        }
        if length != 8 {
            return Err(Errno::EINVAL.into());
        }
        let mask = blockable(self.memory.words::<1>(set)?[0]);
        let signals = &mut self.threads.get_mut(caller.thread).ok_or(Errno::ESRCH)?.signals;
        if signals.saved_mask.is_none() {
            signals.saved_mask = Some(signals.mask);
            signals.mask = mask;
        }
        Ok(())
    }

    /// Sends a signal to a thread; one that it does not block interrupts its call.
    pub(super) fn send_to_thread(&mut self, id: ThreadId, information: Information) {
        if self.signals.effect(information.signal) == Effect::Ignore
            && !self.is_blocked_by(id, information.signal)
        {
            return;
        }
        let Some(thread) = self.threads.get_mut(id) else { return };
        // Beyond the limit a signal is lost, as under Linux.
        let _ = thread.signals.pending.add(information);
        self.interrupt_wait(id);
    }

    /// Sends a signal to the process; a thread that does not block it gets it.
    pub(super) fn send_to_process(&mut self, information: Information) {
        let ids: Vec<ThreadId> = self.threads.ids().collect();
        let receiver = ids.into_iter().find(|&id| !self.is_blocked_by(id, information.signal));
        if self.signals.effect(information.signal) == Effect::Ignore && receiver.is_some() {
            return;
        }
        let _ = self.signals.pending.add(information);
        if let Some(id) = receiver {
            self.interrupt_wait(id);
        } else {
            // A thread may wait for just this signal (rt_sigtimedwait).
            let ids: Vec<ThreadId> = self.threads.ids().collect();
            ids.into_iter().for_each(|id| self.interrupt_wait(id));
        }
    }

    /// Delivers a signal that cannot be postponed: a handler runs, or the program ends.
    pub(super) fn force_signal(&mut self, id: ThreadId, information: Information, text: String) {
        let is_blocked = self.is_blocked_by(id, information.signal);
        match self.signals.effect(information.signal) {
            Effect::Handle(action) if !is_blocked => self.begin_handler(id, information, action, &text),
            _ => self.end_by(information.signal, text),
        }
    }

    /// Ends the program by a signal.
    fn end_by(&mut self, signal: u32, message: String) {
        self.end = Some(End::Killed { signal, message });
    }

    /// Delivers the signals that a thread does not block, before it goes on.
    pub(super) fn deliver_signals(&mut self, id: ThreadId) {
        for _ in 0..DELIVERIES_LIMIT {
            let Some(thread) = self.threads.get_mut(id) else { return };
            let open = !thread.signals.mask;
            let taken = thread.signals.pending.take(open).or_else(|| self.signals.pending.take(open));
            let Some(information) = taken else { break };
            let name = information.signal;
            match self.signals.effect(name) {
                Effect::Ignore => {}
                Effect::End => {
                    let text = format!("signal {name} was sent, in {}", self.function_of(id));
                    return self.end_by(name, text);
                }
                Effect::Stop => {
                    self.failure = Some(Failure::Unsupported {
                        name: "kill",
                        function: self.function_of(id),
                        form: "to stop itself",
                        hint: "nobody could continue it",
                    });
                    return;
                }
                Effect::Handle(action) => {
                    let text = format!("there is no stack for the handler of signal {name}");
                    self.begin_handler(id, information, action, &text);
                }
            }
        }
        if let Some(thread) = self.threads.get_mut(id)
            && let Some(mask) = thread.signals.saved_mask.take()
        {
            thread.signals.mask = mask;
        }
    }

    /// Interrupts the call in which a thread would block, if it has a signal to deliver. Returns false if it has
    /// none.
    pub(super) fn interrupt(&mut self, caller: &Caller) -> bool {
        let Some(thread) = self.threads.get_mut(caller.thread) else { return false };
        let open = !thread.signals.mask;
        let pending = (thread.signals.pending.set() | self.signals.pending.set()) & open;
        // Ignored signals interrupt nothing.
        let first = (1..=SIGNALS)
            .find(|&signal| pending & bit(signal) != 0 && self.signals.effect(signal) != Effect::Ignore);
        let Some(signal) = first else { return false };
        self.futexes.leave(caller.thread);
        let progress = thread.call.as_ref().map_or(0, |call| call.progress);
        let may_restart = self.signals.action(signal).flags & RESTART != 0 && is_restarted(caller);
        if progress > 0 && is_restarted(caller) {
            self.finish(caller, progress);
        } else if may_restart {
            // The registers are as they were, and the thread is back at its call.
            thread.hart.pc = thread.hart.pc.wrapping_sub(4);
            thread.call = None;
            self.deliver_signals(caller.thread);
        } else {
            self.finish(caller, Errno::EINTR.value());
        }
        true
    }

    /// Lets a handler begin.
    fn begin_handler(&mut self, id: ThreadId, information: Information, action: Action, text: &str) {
        let Some(thread) = self.threads.get_mut(id) else { return };
        let mask = thread.signals.saved_mask.take().unwrap_or(thread.signals.mask);
        let begun =
            signal::begin(&mut thread.hart, &thread.signals, &mut self.memory, information, action, mask);
        if begun.is_err() {
            return self.end_by(number::SEGV, format!("no room on the stack for a signal handler: {text}"));
        }
        let own = if action.flags & NO_DEFER == 0 { bit(information.signal) } else { 0 };
        thread.signals.mask = blockable(thread.signals.mask | action.mask | own);
        if action.flags & RESET != 0 {
            self.signals.set_action(information.signal, Action { handler: 0, ..action });
        }
        self.work.push(Work::Path(Path::Signal));
    }

    /// Lets a blocked thread look at its signals, unless it waits for a device.
    fn interrupt_wait(&mut self, id: ThreadId) {
        let Some(thread) = self.threads.get(id) else { return };
        let State::Blocked(keys) = &thread.state else { return };
        if !keys.iter().any(|key| matches!(key, Key::Completion(_) | Key::Device)) {
            self.threads.wake_thread(id);
        }
    }

    /// Returns whether a thread blocks a signal.
    fn is_blocked_by(&self, id: ThreadId, signal: u32) -> bool {
        self.threads.get(id).is_some_and(|thread| thread.signals.mask & bit(signal) != 0)
    }
}

/// Returns a signal's number; 0 checks only.
fn checked_signal(signal: u64) -> Result<u32, Errno> {
    if signal as u32 <= SIGNALS { Ok(signal as u32) } else { Err(Errno::EINVAL) }
}

/// Returns whether a call is repeated after a handler whose action says so (signal(7)); all others end with EINTR.
fn is_restarted(caller: &Caller) -> bool {
    match caller.number {
        // A futex is waited for again unless the wait has a timeout.
        98 => caller.arguments[3] == 0,
        // fcntl, flock, read to pwritev, sendfile, fsync, connect, accept, sendto, recvfrom, sendmsg, recvmsg.
        25 | 32 | 63..=71 | 82..=84 | 202 | 203 | 206 | 207 | 211 | 212 | 242 => true,
        _ => false,
    }
}
