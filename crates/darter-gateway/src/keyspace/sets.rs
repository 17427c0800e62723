//! Changes of sets. The members of a small set lie in its head, and each change of them is one
//! change of the head. Those of a large set are elements of a generation, as the fields of a hash
//! are. A small set whose members no longer fit becomes large: all members are written into a
//! generation (`drafts.rs`), and then the head is replaced if it is still the same.

use super::aggregate::{Aggregate, check_name};
use super::packed::Packed;
use super::{Change, Draft, Head, Keyspace, Kind, Retries};
use crate::fault::{Fault, WRONG_TYPE};
use crate::turns;

/// The end of an attempt to change a small set.
enum Attempt<R> {
    /// It was small or absent, and was changed.
    Done(R),
    /// There is no room for the new members in the head.
    Outgrown,
    /// It is large, and was not changed.
    Large(Aggregate),
}

/// Members that were removed at random.
pub(crate) enum Popped {
    /// All of them.
    Done(Vec<Vec<u8>>),
    /// None so far: the set is large.
    Large(Aggregate),
}

/// The members of a set's head.
enum Members<'h> {
    Small(Packed<'h>, Option<u64>),
    Large(Aggregate),
}

/// Returns the members of a set; an absent set has none.
fn members<'h>(key: &[u8], head: Option<Head<'h>>) -> Result<Members<'h>, Fault> {
    let Some(head) = head else { return Ok(Members::Small(Packed::NONE, None)) };
    if head.kind != Kind::Set {
        return Err(WRONG_TYPE);
    }
    match Aggregate::of(key, &head) {
        Some(set) => Ok(Members::Large(set)),
        None => Ok(Members::Small(Packed::parse(head.body)?, head.expiry)),
    }
}

/// Returns names in ascending order, each once.
pub(crate) fn in_order<'n>(names: impl Iterator<Item = &'n [u8]>) -> Vec<&'n [u8]> {
    let mut names: Vec<&[u8]> = names.collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl Keyspace {
    /// Changes a set that is small or absent, as `decide` says: it gets the members, and writes the
    /// new ones after the beginning of a record.
    async fn change_small<R: Send>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Packed<'_>, &mut Vec<u8>) -> Change<Attempt<R>> + Send,
    ) -> Result<Attempt<R>, Fault> {
        let change = self.change_unless_kept(key, Some(Kind::Set), |head, record| {
            let (packed, expiry) = match members(key, head)? {
                Members::Small(packed, expiry) => (packed, expiry),
                Members::Large(set) => return Ok(Change::Keep(Attempt::Large(set))),
            };
            Head::begin_packed(record, Kind::Set, expiry);
            let start = record.len();
            Ok(match decide(packed, record) {
                Change::Put(result) if record.len() == start => Change::Remove(result),
                change => change,
            })
        });
        change.await
    }

    /// Adds members, in ascending order and each once. Returns the number of new ones; `None` if
    /// others could see some of them without the rest, and `in_parts` does not allow that.
    ///
    /// # Errors
    /// The store's errors, [`WRONG_TYPE`], and an error if a name is too long.
    pub(crate) async fn add_members(
        &mut self,
        key: &[u8],
        names: &[&[u8]],
        in_parts: bool,
    ) -> Result<Option<usize>, Fault> {
        names.iter().try_for_each(|name| check_name(Kind::Set, key, name))?;
        let mut retries = Retries::default();
        loop {
            let attempt = self.change_small(key, |packed, record| match packed.with(names, record) {
                None => Change::Keep(Attempt::Outgrown),
                Some(0) => Change::Keep(Attempt::Done(0)),
                Some(added) => Change::Put(Attempt::Done(added)),
            });
            let added = match attempt.await? {
                Attempt::Done(added) => Some(added),
                Attempt::Outgrown => Box::pin(self.add_and_convert(key, names)).await?,
                Attempt::Large(_) if names.len() > 1 && !in_parts => return Ok(None),
                Attempt::Large(set) => self.add_to_large(&set, names).await?,
            };
            if added.is_some() {
                return Ok(added);
            }
            retries.again().await?;
        }
    }

    /// Adds members to a large set. Returns the number of new ones, unless the set has ended.
    async fn add_to_large(&mut self, set: &Aggregate, names: &[&[u8]]) -> Result<Option<usize>, Fault> {
        self.read_elements(set, names.iter().copied()).await?;
        let mut added = 0;
        for name in names {
            added += usize::from(self.set_field(set, name, b"", true).await?);
            turns::worked().await;
        }
        // Members that were there need no confirmation.
        Ok((added == 0 || self.confirm(set).await?).then_some(added))
    }

    /// Adds members to a set that was small or absent and becomes large. Returns the number of new
    /// ones, unless the set has changed.
    async fn add_and_convert(&mut self, key: &[u8], names: &[&[u8]]) -> Result<Option<usize>, Fault> {
        let before = self.look(key, |head| -> Result<_, Fault> {
            Ok(match members(key, head)? {
                Members::Small(..) => Some(head.map(|head| (head.expiry, head.body.to_vec()))),
                Members::Large(_) => None,
            })
        });
        let Some(before) = before.await?? else { return Ok(None) };
        let (expiry, body) = before.clone().unwrap_or_default();
        let (mut all, mut added) = (Vec::with_capacity(names.len()), 0);
        Packed::parse(&body)?.merge(names, |name, is_new| {
            added += usize::from(is_new);
            all.push(name.to_vec());
            true
        });
        let mut draft = Draft::new(Kind::Set, key, expiry)?;
        for name in &all {
            if let Err(fault) = self.draft_member(&mut draft, name).await {
                self.discard_draft(draft).await?;
                return Err(fault);
            }
            turns::copied(name.len()).await;
        }
        let is_same = |head: Option<&Head<'_>>| match (head, &before) {
            (None, None) => true,
            (Some(head), Some((expiry, body))) => {
                head.kind == Kind::Set && head.is_packed && head.expiry == *expiry && head.body == body
            }
            _ => false,
        };
        Ok(self.publish_draft(draft, is_same).await?.then_some(added))
    }

    /// Removes members, in ascending order and each once. Returns the number of those that existed;
    /// `None` if others could see some of them without the rest, and `in_parts` does not allow that.
    ///
    /// # Errors
    /// As for [`Keyspace::add_members`].
    pub(crate) async fn remove_members(
        &mut self,
        key: &[u8],
        names: &[&[u8]],
        in_parts: bool,
    ) -> Result<Option<usize>, Fault> {
        names.iter().try_for_each(|name| check_name(Kind::Set, key, name))?;
        let attempt = self.change_small(key, |packed, record| match packed.without(names, record) {
            0 => Change::Keep(Attempt::Done(0)),
            removed => Change::Put(Attempt::Done(removed)),
        });
        let set = match attempt.await? {
            Attempt::Done(removed) => return Ok(Some(removed)),
            Attempt::Outgrown => return Ok(Some(0)),
            Attempt::Large(_) if names.len() > 1 && !in_parts => return Ok(None),
            Attempt::Large(set) => set,
        };
        self.read_elements(&set, names.iter().copied()).await?;
        let mut removed = 0;
        for name in names {
            removed += usize::from(self.remove_field(&set, name).await?);
            turns::worked().await;
        }
        Ok(Some(removed))
    }

    /// Removes the members that `choose` returns from a set, if it is small.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(crate) async fn pop_small(
        &mut self,
        key: &[u8],
        mut choose: impl FnMut(Packed<'_>) -> Vec<Vec<u8>> + Send,
    ) -> Result<Popped, Fault> {
        let attempt = self.change_small(key, |packed, record| {
            let chosen = choose(packed);
            packed.without(&in_order(chosen.iter().map(Vec::as_slice)), record);
            let is_kept = chosen.is_empty();
            let done = Attempt::Done(chosen);
            if is_kept { Change::Keep(done) } else { Change::Put(done) }
        });
        Ok(match attempt.await? {
            Attempt::Done(popped) => Popped::Done(popped),
            Attempt::Outgrown => Popped::Done(Vec::new()),
            Attempt::Large(set) => Popped::Large(set),
        })
    }
}
