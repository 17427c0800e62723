//! Search and multi-get.

use super::descent::{Image, Lookup, PageSearchEnd, Purpose};
use super::fold::took_a_trip;
use super::intents::{intent_at, outcomes, states_of};
use super::operation::Operation;
use super::{Quiver, direct};
use crate::Result;
use crate::ordered::check_key;
use crate::radix::{leaf, search};
use darter_fabric::{Batch, Fabric, GlobalAddr, OpKind, turns};
use darter_pool::Client;
use std::pin::pin;

/// The value at the end of a descent; `None` if the key is absent.
pub(super) fn value_at(end: &PageSearchEnd) -> Result<Option<&[u8]>> {
    let image: Option<&Image> = match end {
        PageSearchEnd::Value(value) => value.as_ref(),
        PageSearchEnd::Page(found) => match &found.spot {
            Lookup::Record { value, .. } => value.as_ref(),
            Lookup::Delta { value, .. } => Some(value),
            Lookup::Absent { .. } => None,
        },
        _ => None,
    };
    image.map(|image| Ok(leaf::parse(GlobalAddr::NULL, image)?.value)).transpose()
}

/// The value at the end of a reader's descent, from its last batch; `None` if the key is absent.
fn value_in<'w>(end: &'w PageSearchEnd, done: &'w Batch) -> Result<Option<&'w [u8]>> {
    match end {
        PageSearchEnd::Standing(read, page) => {
            Ok(Some(leaf::parse_bound(*page, &done.words(*read)[1..])?.value))
        }
        PageSearchEnd::Hot(read) => Ok(Some(leaf::parse(GlobalAddr::NULL, done.words(*read))?.value)),
        end => value_at(end),
    }
}

impl<F: Fabric> Quiver<F> {
    /// Finds a key and passes its value to `f` without another copy.
    ///
    /// # Errors
    /// [`IndexError::KeyTooLong`](crate::IndexError::KeyTooLong), and those of the fabric.
    pub async fn get_with<R>(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>> {
        check_key(key)?;
        let mut operation = Operation::begin(&self.shared, client, OpKind::Get).await?;
        if let Some(loaded) = operation.loaded_value(key) {
            if loaded.is_moved_out {
                operation.has_read_a_leaf(key).await?;
            }
            let Some(value) = loaded.value()? else { return Ok(None) };
            turns::passed_over(value).await;
            return Ok(Some(f(value)));
        }
        let mut descent = operation.descent_for(key, Purpose::Read);
        let run = search::run(&mut operation.client, &*self.shared, &mut descent);
        let (end, done) = pin!(run).await?;
        self.shared.skip.note_search(descent.nodes_read);
        if took_a_trip(&end) {
            operation.has_read_a_leaf(key).await?;
        }
        if let Some(intent) = intent_at(&end)? {
            operation.client.recycle(done);
            let states = Box::pin(states_of(&mut operation.client, &[intent.status])).await?;
            return Ok(intent.value(states[0]).map(f));
        }
        let value = value_in(&end, &done)?;
        turns::passed_over(value.unwrap_or_default()).await;
        let value = value.map(f);
        operation.client.recycle(done);
        Ok(value)
    }

    /// Returns the values of several keys, in their order, in the same round trips.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    pub(super) async fn values_of(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut operation = Operation::begin(&self.shared, client, OpKind::MultiGet).await?;
        let loaded = operation.loaded_values(keys).await?;
        if !loaded.is_empty() {
            return Ok(loaded);
        }
        let (mut moved_out, mut intents) = (None, Vec::new());
        let descents: Vec<_> = keys.iter().map(|key| operation.descent_for(key, Purpose::Read)).collect();
        let descents = descents.into_iter();
        let values = search::run_all(&mut operation.client, &*self.shared, descents, |number, end, done| {
            moved_out = Some(number).filter(|_| took_a_trip(&end)).or(moved_out);
            if intent_at(&end)?.is_some() {
                intents.push((number, end));
                return Ok(None);
            }
            Ok(value_in(&end, done)?.map(<[u8]>::to_vec))
        });
        let mut values = values.await?;
        intents.retain(|(number, _)| *number < values.len());
        if !intents.is_empty() {
            for (number, _, value) in Box::pin(outcomes(&mut operation.client, &intents)).await? {
                values[number] = value;
            }
        }
        if let Some(number) = moved_out {
            operation.has_read_a_leaf(keys[number]).await?;
        }
        Ok(values)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// A key's value, if it can be loaded without verbs.
    #[inline]
    fn loaded_value(&self, key: &[u8]) -> Option<direct::LoadedValue> {
        direct::value_of(self.shared, self.memory()?, key).ok()
    }

    /// The values of the first of some keys, as far as they can be loaded without verbs: about 1 MiB
    /// at most.
    async fn loaded_values(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let (mut values, mut bytes) = (Vec::new(), 0);
        for key in keys {
            let Some(loaded) = self.loaded_value(key) else { break };
            if loaded.is_moved_out {
                self.has_read_a_leaf(key).await?;
            }
            let value = loaded.value()?.map(<[u8]>::to_vec);
            let length = value.as_ref().map_or(0, Vec::len);
            values.push(value);
            turns::worked(length).await;
            bytes += length;
            if bytes >= search::VALUES_BYTES {
                break;
            }
        }
        Ok(values)
    }
}
