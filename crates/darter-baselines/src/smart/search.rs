//! Search and multi-get (SMART, section 4.4).

use super::Smart;
use super::descent::{Descent, End, Purpose};
use super::in_place::Settled;
use super::leaf::Read;
use darter_fabric::{Batch, Fabric, OpKind, ReadId};
use darter_index::IndexError;
use darter_index::check_key;
use darter_index::radix::search::{self, MULTI_GET_WIDTH};
use darter_pool::{Client, Pinned};

impl<F: Fabric> Smart<F> {
    /// The value of a key, by a search of this client's own.
    pub(super) async fn search(
        &self,
        client: &mut Client<F>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, IndexError> {
        let mut over = 0;
        loop {
            let mut pinned = client.pin(OpKind::Get).await?;
            self.shared.view(&mut pinned).await?;
            let mut descent = Descent::new(key, Purpose::Read);
            let (end, done) = self.run(&mut pinned, &mut descent).await?;
            let leaf = match end {
                End::Torn { leaf } => {
                    pinned.recycle(done);
                    leaf
                }
                end => {
                    let value = self.value_at(end, &done);
                    pinned.recycle(done);
                    self.turn_reverse_pointer(&mut pinned, &mut descent).await?;
                    return value;
                }
            };
            if let Settled::Busy(holder) = self.settle(&mut pinned, leaf, std::mem::take(&mut over)).await? {
                drop(pinned);
                over = self.await_holder(client, holder).await?;
            }
        }
    }

    /// Runs a descent to its end; the words it ended with are left in the batch.
    pub(super) async fn run(
        &self,
        client: &mut Pinned<'_, F>,
        descent: &mut Descent<'_>,
    ) -> Result<(End, Batch), IndexError> {
        search::run(client, &*self.shared, descent).await
    }

    /// The value where a search ended.
    fn value_at(&self, end: End, done: &Batch) -> Result<Option<Vec<u8>>, IndexError> {
        let End::Leaf { leaf, read, is_key: true } = end else { return Ok(None) };
        match self.shared.format.parse(leaf.addr, done.words(read))? {
            Read::Pair(pair) => pair
                .value
                .map(|value| Some(value.to_vec()))
                .ok_or(IndexError::LostInWrite { addr: leaf.addr }),
            _ => Ok(None),
        }
    }

    /// The key of the leaf where a descent ended, and its word 0.
    pub(super) fn key_at(&self, end: End, read: ReadId, done: &Batch) -> Result<(Vec<u8>, u64), IndexError> {
        if let End::Leaf { leaf, .. } = end
            && let Read::Pair(pair) = self.shared.format.parse(leaf.addr, done.words(read))?
        {
            return Ok((pair.key.to_vec(), done.words(read)[0]));
        }
        Err(IndexError::Corrupt { addr: self.shared.words.root, what: "a search that ended at no leaf" })
    }

    /// Turns the reverse pointer of the leaf where a search ended, when a client died before it
    /// did. Rare.
    async fn turn_reverse_pointer(
        &self,
        client: &mut Pinned<'_, F>,
        descent: &mut Descent<'_>,
    ) -> Result<(), IndexError> {
        if let Some((addr, old, new)) = descent.take_repair() {
            let mut batch = client.batch();
            batch.cas(addr, old, new);
            let done = client.submit(batch).await?;
            client.recycle(done);
        }
        Ok(())
    }

    /// The values of several keys, in their order; up to 256 of them share each round trip.
    pub(super) async fn multi_get_values(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, IndexError> {
        for key in keys {
            check_key(key)?;
        }
        let mut values = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(MULTI_GET_WIDTH) {
            let (mut found, torn) = self.multi_get_chunk(client, chunk).await?;
            for at in torn {
                found[at] = self.search(client, chunk[at]).await?;
            }
            values.append(&mut found);
        }
        Ok(values)
    }

    /// The values of a chunk, and which keys have to be asked for alone since their leaves are
    /// being written.
    async fn multi_get_chunk(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> Result<(Vec<Option<Vec<u8>>>, Vec<usize>), IndexError> {
        let mut client = client.pin(OpKind::MultiGet).await?;
        self.shared.view(&mut client).await?;
        let (mut values, mut torn) = (vec![None; keys.len()], Vec::new());
        let descents = keys.iter().map(|key| Descent::new(key, Purpose::Read));
        search::run_all(&mut client, &*self.shared, descents, |number, end, done| {
            match end {
                End::Torn { .. } => torn.push(number),
                end => values[number] = self.value_at(end, done)?,
            }
            Ok(())
        })
        .await?;
        Ok((values, torn))
    }
}
