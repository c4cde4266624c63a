//! A table of bounded length that forgets what has not been used lately: the CLOCK algorithm.
//!
//! Entries stand in a circle, round which a hand moves. A use marks the entry. Eviction moves the hand: a marked entry
//! loses its mark and stays, the first one without a mark goes. A new entry has no mark, so that files that are read
//! once do not displace those that are read again.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

/// Table from keys to values with at most a given number of entries.
#[derive(Debug)]
pub struct Clock<K, V> {
    hasher: DefaultHashBuilder,
    /// Numbers of the slots, by the hashes of their keys.
    index: HashTable<usize>,
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

impl<K, V> Slot<K, V> {
    /// Marks the entry as used, and returns its value.
    fn used(&mut self) -> &mut V {
        self.is_used = true;
        &mut self.value
    }
}

impl<K: Eq + Hash, V> Clock<K, V> {
    /// Makes an empty table for at most `entries_max` entries, of which there is at least one.
    pub fn new(entries_max: usize) -> Clock<K, V> {
        Clock {
            hasher: DefaultHashBuilder::default(),
            index: HashTable::new(),
            slots: Vec::new(),
            unused: Vec::new(),
            hand: 0,
            entries_max: entries_max.max(1),
        }
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
        let slot = self.find(self.hasher.hash_one(key), key)?;
        self.slots[slot].as_mut().map(Slot::used)
    }

    fn find<Q>(&self, hash: u64, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.index.find(hash, |slot| has_key(&self.slots, *slot, key)).copied()
    }

    /// Same as [`Clock::get`], if the entry is in the slot `slot`, where it was inserted; `None` if it is not.
    pub fn get_at<Q>(&mut self, slot: usize, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.slots.get_mut(slot)?.as_mut().filter(|slot| slot.key.borrow() == key).map(Slot::used)
    }

    /// Sets the value of a key. Returns the number of its slot; `None`, without a change, if the table is full and no entry
    /// may go.
    pub fn insert(&mut self, key: K, value: V, may_go: impl Fn(&V) -> bool) -> Option<usize> {
        let hash = self.hasher.hash_one(&key);
        if let Some(slot) = self.find(hash, &key) {
            self.slots[slot] = Some(Slot { key, value, is_used: true });
            return Some(slot);
        }
        if self.len() == self.entries_max && self.evict(may_go).is_none() {
            return None;
        }
        let slot = Some(Slot { key, value, is_used: false });
        let number = match self.unused.pop() {
            Some(number) => {
                self.slots[number] = slot;
                number
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash_of = |slot: &usize| slots[*slot].as_ref().map_or(0, |slot| hasher.hash_one(&slot.key));
        self.index.insert_unique(hash, number, hash_of);
        Some(number)
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
        let slots = &self.slots;
        let is_it = |slot: &usize| has_key(slots, *slot, key);
        let (slot, _) = self.index.find_entry(self.hasher.hash_one(key), is_it).ok()?.remove();
        self.unused.push(slot);
        self.slots[slot].take().map(|slot| slot.value)
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
            let hash = self.hasher.hash_one(&slot.key);
            if let Ok(entry) = self.index.find_entry(hash, |slot| *slot == at) {
                entry.remove();
            }
            self.unused.push(at);
            return self.slots[at].take().map(|slot| slot.value);
        }
        None
    }
}

/// Returns true if a slot has an entry with this key.
fn has_key<K: Borrow<Q>, V, Q: Eq + ?Sized>(slots: &[Option<Slot<K, V>>], slot: usize, key: &Q) -> bool {
    slots[slot].as_ref().is_some_and(|slot| slot.key.borrow() == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn what_is_used_stays() {
        let mut clock = Clock::new(3);
        for key in [1, 2, 3] {
            assert!(clock.insert(key, key * 10, |_| true).is_some());
        }
        assert_eq!(clock.get(&1), Some(&mut 10));
        assert_eq!(clock.insert(4, 40, |_| true), Some(1), "in the slot of the one that went");
        assert_eq!(clock.len(), 3);
        assert_eq!(clock.get(&1), Some(&mut 10));
        assert_eq!(clock.get(&2), None);
    }

    #[test]
    fn what_may_not_go_stays() {
        let mut clock = Clock::new(2);
        assert_eq!(clock.insert(1, 10, |_| true), Some(0));
        assert_eq!(clock.insert(2, 20, |_| true), Some(1));
        assert_eq!(clock.insert(3, 30, |_| false), None);
        assert_eq!(clock.insert(3, 30, |value| *value == 20), Some(1));
        assert_eq!(clock.get_at(1, &3), Some(&mut 30));
        assert!(clock.get_at(1, &2).is_none() && clock.get_at(7, &3).is_none());
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
                    let slot = clock.insert(key, round, |_| true).unwrap();
                    assert_eq!(clock.get_at(slot, &key), Some(&mut round.clone()));
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
