//! A table of bounded length that forgets what has not been used lately: the CLOCK algorithm.
//!
//! Entries stand in a circle, round which a hand moves. A use marks the entry. Eviction moves the hand: a marked entry
//! loses its mark and stays, the first one without a mark goes. A new entry has no mark, so that files that are read
//! once do not displace those that are read again.

use hashbrown::HashMap;
use std::borrow::Borrow;
use std::hash::Hash;

/// Table from keys to values with at most a given number of entries.
#[derive(Debug)]
pub struct Clock<K, V> {
    index: HashMap<K, usize>,
    slots: Vec<Option<Slot<K, V>>>,
    unused: Vec<usize>,
    hand: usize,
    entries_max: usize,
}

#[derive(Debug)]
struct Slot<K, V> {
    key: K,
    value: V,
    is_used: bool,
}

impl<K: Eq + Hash + Clone, V> Clock<K, V> {
    /// Makes an empty table for at most `entries_max` entries, of which there is at least one.
    pub fn new(entries_max: usize) -> Clock<K, V> {
        let entries_max = entries_max.max(1);
        Clock { index: HashMap::new(), slots: Vec::new(), unused: Vec::new(), hand: 0, entries_max }
    }

    fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the value of a key, and marks its entry as used.
    pub fn get<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let slot = self.slots[*self.index.get(key)?].as_mut()?;
        slot.is_used = true;
        Some(&mut slot.value)
    }

    /// Sets the value of a key. Returns false, without a change, if the table is full and no entry may go.
    pub fn insert(&mut self, key: K, value: V, may_go: impl Fn(&V) -> bool) -> bool {
        if let Some(present) = self.get(&key) {
            *present = value;
            return true;
        }
        if self.len() == self.entries_max && self.evict(may_go).is_none() {
            return false;
        }
        let slot = Some(Slot { key: key.clone(), value, is_used: false });
        let index = match self.unused.pop() {
            Some(index) => {
                self.slots[index] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.index.insert(key, index);
        true
    }

    /// Returns all values. Their entries are not used by that.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.slots.iter_mut().flatten().map(|slot| &mut slot.value)
    }

    /// Removes the value of a key, and returns it.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let index = self.index.remove(key)?;
        self.unused.push(index);
        self.slots[index].take().map(|slot| slot.value)
    }

    /// Removes the entry that the hand finds, and returns its value: one that has not been used since the hand last
    /// passed, and that may go. `None` if none may go, after two turns of the hand.
    pub fn evict(&mut self, may_go: impl Fn(&V) -> bool) -> Option<V> {
        for _ in 0..2 * self.slots.len() {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(slot) = &mut self.slots[at] else { continue };
            if std::mem::take(&mut slot.is_used) || !may_go(&slot.value) {
                continue;
            }
            let slot = self.slots[at].take()?;
            self.index.remove(&slot.key);
            self.unused.push(at);
            return Some(slot.value);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays() {
        let mut clock = Clock::new(3);
        for key in [1, 2, 3] {
            assert!(clock.insert(key, key * 10, |_| true));
        }
        assert_eq!(clock.get(&1), Some(&mut 10));
        assert!(clock.insert(4, 40, |_| true));
        assert_eq!(clock.len(), 3);
        assert_eq!(clock.get(&1), Some(&mut 10));
        assert_eq!(clock.get(&2), None);
    }

    #[test]
    fn what_may_not_go_stays() {
        let mut clock = Clock::new(2);
        assert!(clock.insert(1, 10, |_| true));
        assert!(clock.insert(2, 20, |_| true));
        assert!(!clock.insert(3, 30, |_| false));
        assert!(clock.insert(3, 30, |value| *value == 20));
        assert_eq!(clock.get(&1), Some(&mut 10));
        assert_eq!(clock.remove(&2), None);
        assert_eq!(clock.remove(&3), Some(30));
        assert_eq!(clock.len(), 1);
    }

    #[test]
    fn a_table_behaves_as_a_map_that_forgets() {
        // A small generator of random numbers (xorshift), always with the same seed.
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (mut clock, mut map) = (Clock::new(20), HashMap::new());
        for round in 0..20_000 {
            let key = next(40);
            match next(4) {
                0 => {
                    assert!(clock.insert(key, round, |_| true));
                    map.insert(key, round);
                }
                1 => assert!(clock.remove(&key).is_none_or(|value| map.remove(&key) == Some(value))),
                2 => {
                    if let Some(value) = clock.evict(|value| value % 2 == 0) {
                        assert_eq!(value % 2, 0);
                    }
                }
                _ => assert!(clock.get(&key).is_none_or(|value| map.get(&key) == Some(value))),
            }
            assert!(clock.len() <= 20 && clock.slots.len() <= 20);
            assert_eq!(clock.len() + clock.unused.len(), clock.slots.len());
        }
    }
}
