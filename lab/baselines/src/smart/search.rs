//! Search and multi-get (SMART, section 4.4).

use super::Smart;
use super::descent::{Descent, Purpose, SmartEnd};
use super::in_place::Settled;
use super::leaf::Read;
use super::shared::{Operation, Shared};
use darter_fabric::{Batch, Fabric, OpKind, ReadId};
use darter_index::radix::search;
use darter_index::{IndexError, Result};
use darter_pool::Client;

impl Shared {
    /// Returns the value at the end of a search.
    fn value_at(&self, end: SmartEnd, done: &Batch) -> Result<Option<Vec<u8>>> {
        let SmartEnd::Leaf { leaf, read, is_key: true } = end else { return Ok(None) };
        match self.format.parse(leaf.addr, done.words(read))? {
            Read::Pair(pair) => pair
                .value
                .map(|value| Some(value.to_vec()))
                .ok_or(IndexError::LostInWrite { addr: leaf.addr }),
            _ => Ok(None),
        }
    }
}

impl<F: Fabric> Smart<F> {
    /// Begins an operation with root and cache of its epoch or a later one.
    pub(super) async fn begin<'a>(
        &'a self,
        client: &'a mut Client<F>,
        kind: OpKind,
    ) -> Result<Operation<'a, F>> {
        let mut operation = Operation::pin(&*self.shared, client, kind).await?;
        self.shared.view(&mut operation.client).await?;
        Ok(operation)
    }

    /// Returns the value of a key by a separate search of this client.
    pub(super) async fn search(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut over = 0;
        loop {
            let mut operation = self.begin(client, OpKind::Get).await?;
            let mut descent = Descent::new(key, Purpose::Read);
            let (end, done) = operation.run(&mut descent).await?;
            let leaf = match end {
                SmartEnd::Torn { leaf } => {
                    operation.client.recycle(done);
                    leaf
                }
                end => {
                    let value = self.shared.value_at(end, &done);
                    operation.client.recycle(done);
                    operation.turn_reverse_pointer(&mut descent).await?;
                    return value;
                }
            };
            if let Settled::Busy(holder) = operation.settle(leaf, std::mem::take(&mut over)).await? {
                drop(operation);
                over = self.await_holder(client, holder).await?;
            }
        }
    }

    /// Returns the values of several keys, in their order, with shared round trips. Keys whose
    /// leaves are being written are searched for again, one by one.
    pub(super) async fn values_of(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut operation = self.begin(client, OpKind::MultiGet).await?;
        let mut torn = Vec::new();
        let descents = keys.iter().map(|key| Descent::new(key, Purpose::Read));
        let values = search::run_all(&mut operation.client, &*self.shared, descents, |number, end, done| {
            if let SmartEnd::Torn { .. } = end {
                torn.push(number);
                return Ok(None);
            }
            self.shared.value_at(end, done)
        });
        let mut values = values.await?;
        drop(operation);
        torn.retain(|&at| at < values.len());
        for at in torn {
            values[at] = self.search(client, keys[at]).await?;
        }
        Ok(values)
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Runs a descent to its end; the final words are left in the batch.
    pub(super) async fn run(&mut self, descent: &mut Descent<'_>) -> Result<(SmartEnd, Batch)> {
        search::run(&mut self.client, self.shared, descent).await
    }

    /// Returns the key of the leaf where a descent ended, and its word 0.
    pub(super) fn key_at(&self, end: SmartEnd, read: ReadId, done: &Batch) -> Result<(Vec<u8>, u64)> {
        if let SmartEnd::Leaf { leaf, .. } = end
            && let Read::Pair(pair) = self.shared.format.parse(leaf.addr, done.words(read))?
        {
            return Ok((pair.key.to_vec(), done.words(read)[0]));
        }
        Err(IndexError::corrupt(self.shared.words.root, "a search ended without a leaf"))
    }

    /// Updates the reverse pointer of the leaf where a search ended, if a client died before it
    /// did. Rare.
    async fn turn_reverse_pointer(&mut self, descent: &mut Descent<'_>) -> Result<()> {
        if let Some((addr, old, new)) = descent.take_repair() {
            self.client.post(|batch| _ = batch.cas(addr, old, new)).await?;
        }
        Ok(())
    }
}
