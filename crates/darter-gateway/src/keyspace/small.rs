//! Changes of the elements of hashes, sets and sorted sets. The elements of a small key lie in its
//! head, and each change of them is one change of the head. Those of a large key are the elements of a
//! generation. A small key whose elements no longer fit becomes large: all elements are written into a
//! generation (`drafts.rs`), and then the head is replaced if it is still the same.

use super::aggregate::{Aggregate, check_name};
use super::order::{record_of_score, score_of_record};
use super::packed::{Decide, Packed, Tally, order_of, push};
use super::timed_change::{self, By};
use super::timed_record;
use super::{Change, Draft, Head, Keyspace, Kind, Rescored, Retries, check_key};
use crate::fault::{Fault, WRONG_TYPE};
use crate::turns;

/// Most fields of a large hash that are written again in a transaction, when the first of them gets an
/// expiry time.
const REWRITTEN_MAX: usize = 10_000;

/// The end of an attempt to change a small key.
enum Attempt<R> {
    /// It was small or absent, and was changed.
    Done(R),
    /// There is no room for the new elements in the head.
    Outgrown,
    /// It is large, and was not changed.
    Large(Aggregate),
}

/// Elements that were removed from a small key.
pub(crate) enum Taken {
    /// Their names and records.
    Done(Vec<(Vec<u8>, Vec<u8>)>),
    /// None: the key is large.
    Large(Aggregate),
}

/// The elements that a head has or names.
enum Elements<'h> {
    Small(Packed<'h>, Option<u64>),
    Large(Aggregate),
}

/// Returns the elements of a key, which must have a type; an absent key has none.
fn elements<'h>(key: &[u8], kind: Kind, head: Option<Head<'h>>) -> Result<Elements<'h>, Fault> {
    let Some(head) = head else { return Ok(Elements::Small(Packed::none(kind), None)) };
    if head.kind.seen() != kind {
        return Err(WRONG_TYPE);
    }
    match Aggregate::of(key, &head) {
        Some(aggregate) => Ok(Elements::Large(aggregate)),
        None => Ok(Elements::Small(Packed::parse(head.kind, head.body)?, head.expiry)),
    }
}

impl Keyspace {
    /// Changes a key that is small or absent, as `decide` says: it gets the elements, with the
    /// fields' expiry times if `makes_timed` is set, and writes the new ones after the beginning of a
    /// record.
    async fn change_small<R: Send>(
        &mut self,
        key: &[u8],
        kind: Kind,
        makes_timed: bool,
        mut decide: impl FnMut(Packed<'_>, &mut Vec<u8>) -> Result<Change<Attempt<R>>, Fault> + Send,
    ) -> Result<Attempt<R>, Fault> {
        let now = self.now;
        let change = self.change_unless_kept(key, Some(kind), |head, record| {
            let (packed, expiry) = match elements(key, kind, head)? {
                Elements::Small(packed, expiry) => (packed, expiry),
                Elements::Large(aggregate) => return Ok(Change::Keep(Attempt::Large(aggregate))),
            };
            let to = timed_change::made(makes_timed, packed.kind());
            let living = timed_change::living(packed, to, now);
            Head::begin_packed(record, to, expiry);
            let start = record.len();
            Ok(match decide(Packed::of_valid(to, &living), record)? {
                Change::Put(result) if record.len() == start => Change::Remove(result),
                change => change,
            })
        });
        change.await
    }

    /// Adds elements, or changes their records, as `decide` says. Returns `None` if others could see
    /// some of the changes without the rest, and `in_parts` does not allow that.
    ///
    /// # Errors
    /// The store's errors, those of `decide`, [`WRONG_TYPE`], and an error if a name is too long.
    pub(crate) async fn add_elements(
        &mut self,
        (key, kind): (&[u8], Kind),
        names: &[&[u8]],
        in_parts: bool,
        decide: &mut Decide<'_>,
    ) -> Result<Option<Tally>, Fault> {
        self.put_elements((key, kind), names, in_parts, &mut By::Values(decide, false)).await
    }

    /// Does the same with the fields of a hash, which keep their expiry times.
    ///
    /// # Errors
    /// As for [`Keyspace::add_elements`].
    pub(crate) async fn change_values(
        &mut self,
        key: &[u8],
        names: &[&[u8]],
        in_parts: bool,
        decide: &mut Decide<'_>,
    ) -> Result<Option<Tally>, Fault> {
        self.put_elements((key, Kind::Hash), names, in_parts, &mut By::Values(decide, true)).await
    }

    /// Does the same with the fields of a hash and their expiry times: records are those of a
    /// [`timed_record::Field`]. A field that ends before the time of the command is removed.
    ///
    /// # Errors
    /// As for [`Keyspace::add_elements`].
    pub(crate) async fn change_fields(
        &mut self,
        key: &[u8],
        names: &[&[u8]],
        in_parts: bool,
        decide: &mut Decide<'_>,
    ) -> Result<Option<Tally>, Fault> {
        self.put_elements((key, Kind::Hash), names, in_parts, &mut By::Records(decide)).await
    }

    async fn put_elements(
        &mut self,
        (key, kind): (&[u8], Kind),
        names: &[&[u8]],
        in_parts: bool,
        by: &mut By<'_, '_>,
    ) -> Result<Option<Tally>, Fault> {
        check_key(key)?;
        names.iter().try_for_each(|name| check_name(kind, key, name))?;
        let (order, mut retries) = (order_of(names), Retries::default());
        loop {
            let (now, makes_timed) = (self.now, matches!(by, By::Records(_)));
            let attempt = self.change_small(key, kind, makes_timed, |packed, record| {
                let (start, kind) = (record.len(), packed.kind());
                let keep = |element: (&[u8], &[u8])| {
                    timed_record::is_over(kind, element.1, now) || push(record, start, kind, element)
                };
                let mut decide =
                    |at: usize, old: Option<&[u8]>, new: &mut Vec<u8>| by.decide(kind, now, at, old, new);
                Ok(match packed.with(names, &order, &mut decide, keep)? {
                    None => Change::Keep(Attempt::Outgrown),
                    Some(tally) if tally.is_none() => Change::Keep(Attempt::Done(tally)),
                    Some(tally) => Change::Put(Attempt::Done(tally)),
                })
            });
            let tally = match attempt.await? {
                Attempt::Done(tally) => Some(tally),
                Attempt::Outgrown => Box::pin(self.add_and_convert((key, kind), names, &order, by)).await?,
                Attempt::Large(_) if names.len() > 1 && !in_parts => return Ok(None),
                Attempt::Large(hash) if timed_change::made(makes_timed, hash.kind()) != hash.kind() => {
                    if !in_parts
                        && Box::pin(self.count_elements(key, REWRITTEN_MAX + 1)).await? <= REWRITTEN_MAX
                    {
                        return Ok(None);
                    }
                    Box::pin(self.make_timed(&hash)).await?;
                    None
                }
                Attempt::Large(aggregate) => Box::pin(self.add_to_large(&aggregate, names, by)).await?,
            };
            if tally.is_some() {
                return Ok(tally);
            }
            retries.again().await?;
        }
    }

    /// Does the same with a large key. Returns `None` if its generation has ended.
    async fn add_to_large(
        &mut self,
        aggregate: &Aggregate,
        names: &[&[u8]],
        by: &mut By<'_, '_>,
    ) -> Result<Option<Tally>, Fault> {
        let (kind, now) = (aggregate.kind(), self.now);
        self.read_elements(aggregate, names.iter().copied()).await?;
        let mut tally = Tally::default();
        for (at, name) in names.iter().enumerate() {
            let mut bytes = 0;
            let put = self.put_element(aggregate, name, |old, new| {
                let is_put = by.decide(kind, now, at, old, new);
                bytes = new.len();
                is_put
            });
            if let Some(is_new) = put.await? {
                tally.note(is_new);
            }
            turns::copied(bytes).await;
        }
        // What has not changed needs no confirmation.
        Ok((tally.is_none() || self.confirm(aggregate).await?).then_some(tally))
    }

    /// Changes an element of a large key if `decide` writes a new record and returns true. Returns
    /// whether the element is new; `None` if it was not changed.
    async fn put_element(
        &mut self,
        aggregate: &Aggregate,
        name: &[u8],
        mut decide: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> Result<bool, Fault> + Send,
    ) -> Result<Option<bool>, Fault> {
        if aggregate.kind() != Kind::SortedSet {
            return self.change_field(aggregate, name, decide).await;
        }
        let rescored = self.rescore(aggregate, name, |was| {
            let (old, mut new) = (was.map(record_of_score), Vec::new());
            let is_put = decide(old.as_ref().map(<[u8; _]>::as_slice), &mut new)?;
            Ok(score_of_record(&new).filter(|_| is_put))
        });
        let Rescored { was, decided } = rescored.await?;
        Ok(decided.map(|_| was.is_none()))
    }

    /// Changes a key that was small or absent and becomes large. Returns `None` if it has changed in
    /// between.
    async fn add_and_convert(
        &mut self,
        (key, kind): (&[u8], Kind),
        names: &[&[u8]],
        order: &[usize],
        by: &mut By<'_, '_>,
    ) -> Result<Option<Tally>, Fault> {
        let now = self.now;
        let before = self.look(key, |head| -> Result<_, Fault> {
            Ok(match elements(key, kind, head)? {
                Elements::Small(..) => Some(head.map(|head| (head.kind, head.expiry, head.body.to_vec()))),
                Elements::Large(_) => None,
            })
        });
        let Some(before) = before.await?? else { return Ok(None) };
        let (old, expiry, body) = before.clone().unwrap_or((kind, None, Vec::new()));
        let kind = timed_change::made(matches!(by, By::Records(_)), old);
        let (living, mut all) = (timed_change::living(Packed::parse(old, &body)?, kind, now), Vec::new());
        let mut decide =
            |at: usize, old: Option<&[u8]>, new: &mut Vec<u8>| by.decide(kind, now, at, old, new);
        let tally = Packed::of_valid(kind, &living).with(names, order, &mut decide, |(name, record)| {
            if !timed_record::is_over(kind, record, now) {
                all.push((name.to_vec(), record.to_vec()));
            }
            true
        });
        let Some(tally) = tally?.filter(|tally| !tally.is_none()) else { return Ok(Some(Tally::default())) };
        let mut draft = Draft::new(kind, key, expiry)?;
        for (name, record) in &all {
            if let Err(fault) = self.draft_element(&mut draft, name, record).await {
                self.discard_draft(draft).await?;
                return Err(fault);
            }
            turns::copied(name.len() + record.len()).await;
        }
        let is_same = |head: Option<&Head<'_>>| match (head, &before) {
            (None, None) => true,
            (Some(head), Some((kind, expiry, body))) => {
                head.kind == *kind && head.is_packed && head.expiry == *expiry && head.body == body
            }
            _ => false,
        };
        Ok(self.publish_draft(draft, is_same).await?.then_some(tally))
    }

    /// Removes elements. Returns the number of those that existed; `None` if others could see some of
    /// them without the rest, and `in_parts` does not allow that.
    ///
    /// # Errors
    /// The store's errors, [`WRONG_TYPE`], and an error if a name is too long.
    pub(crate) async fn remove_elements(
        &mut self,
        (key, kind): (&[u8], Kind),
        names: &[&[u8]],
        in_parts: bool,
    ) -> Result<Option<usize>, Fault> {
        check_key(key)?;
        names.iter().try_for_each(|name| check_name(kind, key, name))?;
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        let attempt = self.change_small(key, kind, false, |packed, record| {
            let removed = packed.without(|name| sorted.binary_search(&name).is_ok(), record);
            let done = Attempt::Done(removed);
            Ok(if removed == 0 { Change::Keep(done) } else { Change::Put(done) })
        });
        let aggregate = match attempt.await? {
            Attempt::Done(removed) => return Ok(Some(removed)),
            Attempt::Outgrown => return Ok(Some(0)),
            Attempt::Large(_) if names.len() > 1 && !in_parts => return Ok(None),
            Attempt::Large(aggregate) => aggregate,
        };
        self.read_elements(&aggregate, names.iter().copied()).await?;
        let mut removed = 0;
        for name in names {
            let is_removed = match kind {
                Kind::SortedSet => self.remove_member(&aggregate, name, |_| true).await?.is_some(),
                _ => self.remove_field(&aggregate, name).await?,
            };
            removed += usize::from(is_removed);
            turns::worked().await;
        }
        Ok(Some(removed))
    }

    /// Removes the elements that `choose` returns from a key, if it is small, and returns them in the
    /// same order.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(crate) async fn take_from_small(
        &mut self,
        (key, kind): (&[u8], Kind),
        mut choose: impl FnMut(Packed<'_>) -> Vec<(Vec<u8>, Vec<u8>)> + Send,
    ) -> Result<Taken, Fault> {
        let attempt = self.change_small(key, kind, false, |packed, record| {
            let chosen = choose(packed);
            let mut names: Vec<&[u8]> = chosen.iter().map(|(name, _)| &name[..]).collect();
            names.sort_unstable();
            let removed = packed.without(|name| names.binary_search(&name).is_ok(), record);
            let done = Attempt::Done(chosen);
            Ok(if removed == 0 { Change::Keep(done) } else { Change::Put(done) })
        });
        Ok(match attempt.await? {
            Attempt::Done(taken) => Taken::Done(taken),
            Attempt::Outgrown => Taken::Done(Vec::new()),
            Attempt::Large(aggregate) => Taken::Large(aggregate),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::{Store, block_on};
    use std::sync::Arc;

    const KINDS: [Kind; 3] = [Kind::Hash, Kind::Set, Kind::SortedSet];

    /// Returns the round trips of a command.
    fn round_trips(keys: &mut Keyspace, command: impl AsyncFnOnce(&mut Keyspace)) -> u64 {
        let before = keys.counters().total().round_trips;
        block_on(command(keys));
        keys.counters().total().round_trips - before
    }

    async fn add(keys: &mut Keyspace, key: (&[u8], Kind), names: &[&[u8]]) {
        let mut set = |_: usize, _: Option<&[u8]>, new: &mut Vec<u8>| {
            match key.1 {
                Kind::Hash => new.extend_from_slice(b"value"),
                Kind::SortedSet => {
                    new.extend_from_slice(&record_of_score(f64::from(darter_fabric::random_word() as u8)));
                }
                _ => {}
            }
            Ok(true)
        };
        keys.add_elements(key, names, true, &mut set).await.unwrap();
    }

    async fn read_all(keys: &mut Keyspace, (key, kind): (&[u8], Kind)) {
        let found = keys.find(key, kind).await.unwrap().unwrap();
        keys.walk_elements(&mut found.elements(), usize::MAX, |_, _| {}).await.unwrap();
        assert!(keys.stands(&found).await.unwrap());
    }

    /// `cargo test -p darter-gateway --lib round_trips_of_one_record -- --nocapture` prints the numbers.
    #[test]
    fn small_keys_take_the_round_trips_of_one_record() {
        // With a random secret, a page's map confuses two keys now and then, which costs round trips.
        let store = Store::options().direct(false).secret([1, 2, 3, 4]).open("mem:64M").unwrap();
        let mut keys = Keyspace::new(store, Arc::default());
        // What a client reads for the first time is not in its cache.
        for _ in 0..2 {
            block_on(keys.set(b"string", b"value", None)).unwrap();
        }
        for kind in KINDS {
            // Now and then a command also moves the epoch, or asks for a block of memory. The least of some counts is without that.
            let counted = [false, true].map(|is_large| {
                let counts = [(); 5].map(|()| counts(&mut keys, kind, is_large));
                counts
                    .into_iter()
                    .reduce(|least, counts| std::array::from_fn(|i| least[i].min(counts[i])))
                    .unwrap()
            });
            println!("{kind:?}, small and large: one, all, add, change, add three, remove: {counted:?}");
            let [one, all, changes @ ..] = counted[0];
            assert_eq!((one, all), (1, 1));
            // A put of one record takes as many.
            assert!(changes.iter().all(|count| *count <= 3), "{changes:?}");
        }
    }

    /// The round trips of reading one element, of reading all, and of four changes of a new key, which is removed at the end.
    fn counts(keys: &mut Keyspace, kind: Kind, is_large: bool) -> [u64; 6] {
        let name = [b"small", b"large"][usize::from(is_large)];
        let key = (&name[..], kind);
        if is_large {
            block_on(keys.open(key.0, kind)).unwrap();
        }
        block_on(add(keys, key, &[b"one", b"two", b"three"]));
        let counts = [
            round_trips(keys, async |keys| {
                assert!(keys.element_of(key, b"one").await.unwrap().is_some());
            }),
            round_trips(keys, async |keys| read_all(keys, key).await),
            round_trips(keys, async |keys| add(keys, key, &[b"new"]).await),
            round_trips(keys, async |keys| add(keys, key, &[b"one"]).await),
            round_trips(keys, async |keys| add(keys, key, &[b"two", b"four", b"five"]).await),
            round_trips(keys, async |keys| {
                assert_eq!(keys.remove_elements(key, &[b"one"], true).await.unwrap(), Some(1));
            }),
        ];
        assert!(block_on(keys.remove(key.0)).unwrap());
        counts
    }
}
