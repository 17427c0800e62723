//! Which clients track which keys, and which prefixes of keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Bytes that count for a key besides its own.
const KEY_BYTES: usize = 128;
/// Bytes that count for a client that tracks a key.
const ITEM_BYTES: usize = 16;

/// A client that tracks keys, by number.
pub(super) type Token = u64;

/// The clients that track single keys.
#[derive(Debug, Default)]
pub(super) struct Table {
    keys: HashMap<Arc<[u8]>, Entry>,
    /// All keys, so that one can be drawn.
    order: Vec<Arc<[u8]>>,
    items: usize,
    bytes: usize,
    /// The position of the key that is examined next.
    next: usize,
}

#[derive(Debug)]
struct Entry {
    /// The position of the key in the list of all.
    place: usize,
    clients: BTreeSet<Token>,
}

impl Table {
    /// Lets a client track a key. Returns false if it does already.
    pub(super) fn insert(&mut self, key: &[u8], client: Token) -> bool {
        let is_new = if let Some(entry) = self.keys.get_mut(key) {
            entry.clients.insert(client)
        } else {
            let (key, clients) = (Arc::<[u8]>::from(key), BTreeSet::from([client]));
            self.bytes += key.len() + KEY_BYTES;
            self.keys.insert(Arc::clone(&key), Entry { place: self.order.len(), clients });
            self.order.push(key);
            true
        };
        if is_new {
            self.items += 1;
            self.bytes += ITEM_BYTES;
        }
        is_new
    }

    /// Removes a key. Returns the clients that have tracked it.
    pub(super) fn take(&mut self, key: &[u8]) -> BTreeSet<Token> {
        let Some((key, Entry { place, clients })) = self.keys.remove_entry(key) else {
            return BTreeSet::new();
        };
        self.order.swap_remove(place);
        if let Some(moved) = self.order.get(place)
            && let Some(entry) = self.keys.get_mut(moved)
        {
            entry.place = place;
        }
        self.items -= clients.len();
        self.bytes -= key.len() + KEY_BYTES + clients.len() * ITEM_BYTES;
        clients
    }

    /// Returns a key, drawn by a random number.
    pub(super) fn draw(&self, random: u64) -> Option<Arc<[u8]>> {
        let place = random.checked_rem(self.order.len() as u64)?;
        self.order.get(place as usize).cloned()
    }

    /// Removes the clients that a predicate does not select from some keys, and keys that no other client
    /// tracks. The next call continues with other keys. Returns how many clients were removed, of all
    /// keys together.
    pub(super) fn purge(&mut self, keys: usize, is_kept: impl Fn(Token) -> bool) -> usize {
        let before = self.items;
        if keys >= self.order.len() {
            self.next = 0;
        }
        for _ in 0..keys.min(self.order.len()) {
            self.next = if self.next < self.order.len() { self.next } else { 0 };
            let Some(key) = self.order.get(self.next).cloned() else { break };
            let Some(Entry { clients, .. }) = self.keys.get_mut(&key) else { break };
            let count = clients.len();
            clients.retain(|client| is_kept(*client));
            let (gone, is_empty) = (count - clients.len(), clients.is_empty());
            self.items -= gone;
            self.bytes -= gone * ITEM_BYTES;
            if is_empty {
                self.take(&key);
            } else {
                self.next += 1;
            }
        }
        before - self.items
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the number of clients that track a key, of all keys together.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Returns the bytes that it holds.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The clients that track all keys with a prefix.
#[derive(Debug, Default)]
pub(super) struct Prefixes(BTreeMap<Vec<u8>, BTreeSet<Token>>);

impl Prefixes {
    /// Lets a client track the keys with a prefix.
    pub(super) fn insert(&mut self, prefix: &[u8], client: Token) {
        self.0.entry(prefix.to_vec()).or_default().insert(client);
    }

    /// Ends that.
    pub(super) fn remove(&mut self, prefix: &[u8], client: Token) {
        if let Some(clients) = self.0.get_mut(prefix) {
            clients.remove(&client);
            if clients.is_empty() {
                self.0.remove(prefix);
            }
        }
    }

    /// Returns the number of prefixes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the clients that track keys with prefixes of a key, and these prefixes, the longest
    /// first. It takes a search for each of them, and for each other length that prefixes have in common
    /// with the key.
    pub(super) fn of<'p>(&'p self, key: &[u8]) -> Vec<(&'p [u8], &'p BTreeSet<Token>)> {
        let (mut found, mut end) = (Vec::new(), Some(key.len()));
        while let Some(length) = end {
            let up_to = (Bound::Unbounded, Bound::Included(&key[..length]));
            let Some((prefix, clients)) = self.0.range::<[u8], _>(up_to).next_back() else { break };
            let common = prefix.iter().zip(key).take_while(|(one, other)| one == other).count();
            if common == prefix.len() {
                found.push((&prefix[..], clients));
                end = common.checked_sub(1);
            } else {
                end = Some(common);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn the_table_has_the_keys_and_clients_that_were_added() {
        let (mut table, mut model) = (Table::default(), BTreeMap::<Vec<u8>, BTreeSet<Token>>::new());
        let mut dice = Pcg64Mcg::seed_from_u64(1);
        for _ in 0..10_000 {
            let (key, client) =
                (format!("k{}", dice.random_range(0..40)).into_bytes(), dice.random_range(0..5));
            match dice.random_range(0..20) {
                0 => {
                    let items = model.values().filter(|clients| clients.contains(&client)).count();
                    assert_eq!(table.purge(usize::MAX, |token| token != client), items);
                    for clients in model.values_mut() {
                        clients.remove(&client);
                    }
                    model.retain(|_, clients| !clients.is_empty());
                }
                1..8 => assert_eq!(table.take(&key), model.remove(&key).unwrap_or_default()),
                8 => {
                    let drawn = table.draw(dice.random_range(0..u64::MAX));
                    assert_eq!(drawn.is_none(), model.is_empty());
                    assert!(drawn.is_none_or(|key| model.contains_key(&key[..])));
                }
                _ => {
                    table.insert(&key, client);
                    model.entry(key).or_default().insert(client);
                }
            }
            let items: usize = model.values().map(BTreeSet::len).sum();
            assert_eq!((table.len(), table.items(), table.order.len()), (model.len(), items, model.len()));
            let bytes = model.keys().map(|key| key.len() + KEY_BYTES).sum::<usize>() + items * ITEM_BYTES;
            assert_eq!(table.bytes(), bytes);
        }
    }

    #[test]
    fn all_prefixes_of_a_key_are_found() {
        let mut dice = Pcg64Mcg::seed_from_u64(2);
        let mut word = |most: usize| -> Vec<u8> {
            (0..dice.random_range(0..=most)).map(|_| [b'a', b'b', 0, 255][dice.random_range(0..4)]).collect()
        };
        for _ in 0..300 {
            let (mut prefixes, mut all) = (Prefixes::default(), BTreeSet::new());
            for _ in 0..20 {
                let prefix = word(4);
                prefixes.insert(&prefix, 1);
                all.insert(prefix);
            }
            for _ in 0..20 {
                let key = word(6);
                let found: Vec<&[u8]> = prefixes.of(&key).into_iter().map(|(prefix, _)| prefix).collect();
                let expected: Vec<&Vec<u8>> =
                    all.iter().filter(|prefix| key.starts_with(prefix)).rev().collect();
                assert_eq!(found, expected);
            }
            for prefix in &all {
                prefixes.remove(prefix, 1);
            }
            assert_eq!(prefixes.len(), 0);
        }
    }
}
