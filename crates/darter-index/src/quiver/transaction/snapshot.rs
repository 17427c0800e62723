//! Reads for transactions: keys with their versions, and the commit of a transaction that only reads.
//!
//! Such a commit reads the keys once more: if no version has changed since the transaction has read
//! them, all keys had these values between the two reads. Without versions from the transaction, or
//! if the epoch has moved since then, it reads them twice. It writes nothing, so it aborts no other
//! transaction.
//!
//! A key's word proves that its value has not changed only if the same word cannot come back: that
//! holds for INLINE, LEAF and INTENT in one epoch, but not for words without a value.

use crate::checker::note;
use crate::ordered::{MULTI_GET_WIDTH, check_key};
use crate::quiver::Quiver;
use crate::quiver::descent::{Found, Lookup, PageSearchEnd, Purpose};
use crate::quiver::intents::{intent_in, outcomes};
use crate::quiver::operation::Operation;
use crate::quiver::search::value_at;
use crate::quiver::situations;
use crate::quiver::word::State as Kind;
use crate::radix::search;
use crate::{Access, Commit, Result, Version, Versioned};
use darter_fabric::{Fabric, OpKind};
use darter_pool::{Client, MemberId};

/// Times that the keys are read before the transaction is committed as one that writes.
const READS_MAX: usize = 6;

impl<F: Fabric> Quiver<F> {
    /// Reads the first of some keys: [`crate::OrderedIndex::read_versions`].
    pub(in crate::quiver) async fn versions_of(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> Result<Vec<Versioned>> {
        let keys = &keys[..keys.len().min(MULTI_GET_WIDTH)];
        keys.iter().try_for_each(|key| check_key(key))?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let kind = if keys.len() == 1 { OpKind::Get } else { OpKind::MultiGet };
        let mut operation = Operation::begin(&self.shared, client, kind).await?;
        if let Some(read) = operation.collect(keys).await? {
            return Ok(read);
        }
        drop(operation);
        let values = self.values_of(client, keys).await?;
        Ok(values.into_iter().map(|value| (value, None)).collect())
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Commits a transaction that only reads. Returns `None` if it must be committed as one that
    /// writes: because a key is absent, a page is being replaced, or the keys change all the time.
    pub(super) async fn commit_reads(&mut self, accesses: &[Access<'_>]) -> Result<Option<Commit>> {
        let keys: Vec<&[u8]> = accesses.iter().map(|access| access.key).collect();
        let mut before: Option<Vec<Version>> = accesses.iter().map(|access| access.version).collect();
        for reads in 1..=READS_MAX {
            let mut versions = Vec::with_capacity(keys.len());
            while versions.len() < keys.len() {
                let Some(read) = self.collect(&keys[versions.len()..]).await? else { return Ok(None) };
                for (value, version) in read {
                    let access = &accesses[versions.len()];
                    if access.read.is_some_and(|read| read != value.as_deref()) {
                        note(situations::TRANSACTION_CONFLICT);
                        return Ok(Some(Commit::Conflict));
                    }
                    let Some(version) = version else { return Ok(None) };
                    versions.push(version);
                }
            }
            if before.is_some_and(|before| before == versions) {
                note(if reads == 1 { situations::VERSIONS_VERIFIED } else { situations::READS_VERIFIED });
                return Ok(Some(Commit::Done));
            }
            before = Some(versions);
        }
        Ok(None)
    }

    /// Reads the first of some keys, of at least one, with their versions. A key has none if its
    /// word may come back. Returns `None` if the place of a key is being replaced.
    async fn collect(&mut self, keys: &[&[u8]]) -> Result<Option<Vec<Versioned>>> {
        let (epoch, member) = (self.client.epoch(), self.client.pool().member());
        let descents: Vec<_> = keys.iter().map(|key| self.descent_for(key, Purpose::Write)).collect();
        let (mut versions, mut intents, mut is_settled) = (vec![None; keys.len()], Vec::new(), true);
        let values =
            search::run_all(&mut self.client, self.shared, descents.into_iter(), |number, end, _| {
                match &end {
                    PageSearchEnd::Page(found) if !found.head.is_sealed => {
                        versions[number] = version_of(found, epoch, member);
                        if intent_in(&found.spot)?.is_some() {
                            intents.push((number, end));
                            return Ok(None);
                        }
                    }
                    PageSearchEnd::Vacant { .. } | PageSearchEnd::Diverged { .. } => {}
                    _ => is_settled = false,
                }
                Ok(value_at(&end)?.map(<[u8]>::to_vec))
            });
        let values = values.await?;
        if !is_settled {
            return Ok(None);
        }
        let mut read: Vec<Versioned> = values.into_iter().zip(versions).collect();
        intents.retain(|(number, _)| *number < read.len());
        if !intents.is_empty() {
            for (number, state, value) in Box::pin(outcomes(&mut self.client, &intents)).await? {
                let version = read[number].1.map(|version| Version { state: Some(state as u8), ..version });
                read[number] = (value, version);
            }
        }
        Ok(Some(read))
    }
}

/// The version of a key, as its page was read; `None` if its word may come back.
fn version_of(found: &Found, epoch: u64, member: MemberId) -> Option<Version> {
    let (Lookup::Record { addr, word, .. } | Lookup::Delta { addr, word, .. }) = &found.spot else {
        return None;
    };
    let has_value = !word.is_sealed() && word.state() != Kind::Tomb;
    has_value.then_some(Version { place: *addr, word: word.0, state: None, epoch, member })
}
