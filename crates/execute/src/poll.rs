//! Readiness of descriptors, and the sets of epoll(7).
//!
//! A set keeps the descriptors that may be ready, its candidates. A source that changes makes its descriptors
//! candidates; a wait looks at the readiness of each candidate. A level-triggered descriptor that is ready stays a
//! candidate, an edge-triggered one does not. So a wait costs as much as there are events, however many
//! descriptors are in the set.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::descriptor::DescriptionId;
use crate::errno::Errno;
use crate::thread::Source;

/// Bits of readiness (`poll.h`, `sys/epoll.h`).
#[allow(missing_docs)]
pub mod event {
    pub const IN: u32 = 1;
    pub const OUT: u32 = 4;
    pub const ERROR: u32 = 8;
    pub const HANG_UP: u32 = 0x10;
    pub const INVALID: u32 = 0x20;
    pub const READ_NORMAL: u32 = 0x40;
    pub const WRITE_NORMAL: u32 = 0x100;
    pub const READ_HANG_UP: u32 = 0x2000;
    pub const ONE_SHOT: u32 = 1 << 30;
    pub const EDGE: u32 = 1 << 31;
    /// Events that are reported whether they were requested or not.
    pub const ALWAYS: u32 = ERROR | HANG_UP;
}

/// Greatest number of descriptors in all sets.
pub const INTERESTS_LIMIT: usize = 65_536;

/// Descriptor in a set: its number, and the description that it referred to when it was added.
pub type Member = (i32, DescriptionId);

/// Events that a set reports of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Requested events and flags.
    pub events: u32,
    /// Value that the program gets with an event.
    pub data: u64,
    /// Source of the descriptor's events.
    pub source: Source,
    /// False once a one-shot event was reported.
    pub is_enabled: bool,
}

/// Set of descriptors.
#[derive(Clone, Debug, Default)]
struct Set {
    /// Members.
    interests: BTreeMap<Member, Interest>,
    /// Members that may be ready, the longest waiting first.
    candidates: VecDeque<Member>,
}

/// All sets of the process.
#[derive(Clone, Debug, Default)]
pub struct Epolls {
    /// Sets by their number.
    sets: BTreeMap<u64, Set>,
    /// Members of sets by their source.
    watchers: BTreeMap<Source, BTreeSet<(u64, Member)>>,
    /// Number of all members.
    count: usize,
    /// Number of the latest set.
    last: u64,
}

impl Epolls {
    /// Makes an empty set and returns its number.
    pub fn create(&mut self) -> u64 {
        self.last += 1;
        self.sets.insert(self.last, Set::default());
        self.last
    }

    /// Removes a set.
    pub fn remove_set(&mut self, set: u64) {
        let Some(removed) = self.sets.remove(&set) else { return };
        for (member, interest) in removed.interests {
            self.unwatch(set, member, interest.source);
        }
    }

    /// Adds a member.
    ///
    /// # Errors
    ///
    /// [`Errno::EEXIST`]; [`Errno::ENOSPC`] at [`INTERESTS_LIMIT`]; and [`Errno::ELOOP`] if sets would contain
    /// sets that contain sets.
    pub fn add(&mut self, set: u64, member: Member, interest: Interest) -> Result<(), Errno> {
        if self.sets.get(&set).is_some_and(|set| set.interests.contains_key(&member)) {
            return Err(Errno::EEXIST);
        }
        if self.count >= INTERESTS_LIMIT {
            return Err(Errno::ENOSPC);
        }
        if let Source::Epoll(inner) = interest.source {
            let holds_sets =
                |set: &Set| set.interests.values().any(|of| matches!(of.source, Source::Epoll(_)));
            let is_inside = self.watchers.contains_key(&Source::Epoll(set));
            if inner == set || is_inside || self.sets.get(&inner).is_some_and(holds_sets) {
                return Err(Errno::ELOOP);
            }
        }
        let Some(entry) = self.sets.get_mut(&set) else { return Err(Errno::EINVAL) };
        entry.interests.insert(member, interest);
        entry.candidates.push_back(member);
        self.watchers.entry(interest.source).or_default().insert((set, member));
        self.count += 1;
        Ok(())
    }

    /// Changes a member.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`]: it is not in the set.
    pub fn change(&mut self, set: u64, member: Member, events: u32, data: u64) -> Result<(), Errno> {
        let set = self.sets.get_mut(&set).ok_or(Errno::EINVAL)?;
        let interest = set.interests.get_mut(&member).ok_or(Errno::ENOENT)?;
        *interest = Interest { events, data, is_enabled: true, ..*interest };
        if !set.candidates.contains(&member) {
            set.candidates.push_back(member);
        }
        Ok(())
    }

    /// Removes a member.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`]: it is not in the set.
    pub fn remove(&mut self, set: u64, member: Member) -> Result<(), Errno> {
        let entry = self.sets.get_mut(&set).ok_or(Errno::EINVAL)?;
        let interest = entry.interests.remove(&member).ok_or(Errno::ENOENT)?;
        entry.candidates.retain(|&other| other != member);
        self.unwatch(set, member, interest.source);
        Ok(())
    }

    /// Removes a closed description from all sets.
    pub fn forget(&mut self, source: Source, description: DescriptionId) {
        let members: Vec<_> = self.watchers.get(&source).into_iter().flatten().copied().collect();
        for (set, member) in members.into_iter().filter(|(_, member)| member.1 == description) {
            // It is a member, as the watchers say.
            let _ = self.remove(set, member);
        }
    }

    /// Returns the sets that have members of a source.
    pub fn watching(&self, source: Source) -> Vec<u64> {
        self.watchers.get(&source).into_iter().flatten().map(|&(set, _)| set).collect()
    }

    /// Makes the members of a changed source candidates, and returns their sets.
    pub fn notify(&mut self, source: Source, events: u32) -> Vec<u64> {
        let mut sets = Vec::new();
        for (set, member) in self.watchers.get(&source).into_iter().flatten() {
            let Some(entry) = self.sets.get_mut(set) else { continue };
            let Some(interest) = entry.interests.get(member) else { continue };
            if !interest.is_enabled || events & (interest.events | event::ALWAYS) == 0 {
                continue;
            }
            if !entry.candidates.contains(member) {
                entry.candidates.push_back(*member);
            }
            if sets.last() != Some(set) {
                sets.push(*set);
            }
        }
        sets
    }

    /// Returns the candidates of a set.
    pub fn candidates(&self, set: u64) -> Vec<(Member, Interest)> {
        let Some(set) = self.sets.get(&set) else { return Vec::new() };
        let known = |member: &Member| set.interests.get(member).map(|&interest| (*member, interest));
        set.candidates.iter().filter_map(known).filter(|(_, interest)| interest.is_enabled).collect()
    }

    /// Takes note that a candidate was found not ready, or that its event is reported.
    pub fn settle(&mut self, set: u64, member: Member, is_reported: bool) {
        let Some(set) = self.sets.get_mut(&set) else { return };
        set.candidates.retain(|&other| other != member);
        let Some(interest) = set.interests.get_mut(&member) else { return };
        if is_reported && interest.events & event::ONE_SHOT != 0 {
            interest.is_enabled = false;
        } else if is_reported && interest.events & event::EDGE == 0 {
            set.candidates.push_back(member);
        }
    }

    /// Removes a member from the watchers of its source.
    fn unwatch(&mut self, set: u64, member: Member, source: Source) {
        self.count -= 1;
        if let Some(members) = self.watchers.get_mut(&source) {
            members.remove(&(set, member));
            if members.is_empty() {
                self.watchers.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interest(events: u32) -> Interest {
        Interest { events, data: 7, source: Source::Socket(1), is_enabled: true }
    }

    #[test]
    fn level_edge_and_one_shot_differ_after_a_report() {
        for (flags, is_left, is_notified) in
            [(0, true, true), (event::EDGE, false, true), (event::ONE_SHOT, false, false)]
        {
            let mut all = Epolls::default();
            let set = all.create();
            all.add(set, (3, 9), interest(event::IN | flags)).unwrap();
            assert_eq!(all.candidates(set).len(), 1);
            all.settle(set, (3, 9), true);
            assert_eq!(!all.candidates(set).is_empty(), is_left, "{flags:#x}");
            all.settle(set, (3, 9), false);
            assert_eq!(!all.notify(Source::Socket(1), event::IN).is_empty(), is_notified, "{flags:#x}");
            assert!(all.notify(Source::Socket(1), event::OUT).is_empty());
            all.change(set, (3, 9), event::IN, 8).unwrap();
            assert_eq!(all.candidates(set)[0].1.data, 8);
        }
    }

    #[test]
    fn a_closed_description_leaves_all_sets() {
        let mut all = Epolls::default();
        let sets = [all.create(), all.create()];
        for set in sets {
            all.add(set, (3, 9), interest(event::IN)).unwrap();
            assert_eq!(all.add(set, (3, 9), interest(event::IN)), Err(Errno::EEXIST));
        }
        all.forget(Source::Socket(1), 9);
        assert_eq!(all.remove(sets[0], (3, 9)), Err(Errno::ENOENT));
        assert_eq!(all.count, 0);
    }

    #[test]
    fn sets_contain_sets_but_no_deeper() {
        let mut all = Epolls::default();
        let sets = [all.create(), all.create(), all.create()];
        let inner = |set| Interest { source: Source::Epoll(set), ..interest(event::IN) };
        all.add(sets[0], (4, 1), inner(sets[1])).unwrap();
        assert_eq!(all.add(sets[1], (5, 2), inner(sets[2])), Err(Errno::ELOOP));
        assert_eq!(all.add(sets[2], (6, 3), inner(sets[0])), Err(Errno::ELOOP));
        assert_eq!(all.add(sets[2], (7, 4), inner(sets[2])), Err(Errno::ELOOP));
    }
}
