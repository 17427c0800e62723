//! Search and multi-get.

use super::Art;
use super::descent::{ArtEnd, Descent, Purpose};
use super::shared::Operation;
use darter_fabric::{Batch, Fabric, OpKind};
use darter_index::Result;
use darter_index::check_key;
use darter_index::radix::leaf;
use darter_index::radix::search;
use darter_pool::Client;

/// Returns the value at the end of a search.
fn value_at(end: ArtEnd, done: &Batch) -> Result<Option<Vec<u8>>> {
    match end {
        ArtEnd::Leaf { at, read, is_key: true } => {
            Ok(Some(leaf::parse_again(at.slot.addr(), done.words(read))?.value.to_vec()))
        }
        _ => Ok(None),
    }
}

impl<F: Fabric> Art<F> {
    pub(super) async fn get_value(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Get).await?;
        let (_, end, done) = operation.descend(key, Purpose::Read).await?;
        let value = value_at(end, &done)?;
        operation.client.recycle(done);
        Ok(value)
    }

    pub(super) async fn values_of(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut operation = Operation::pin(&*self.shared, client, OpKind::MultiGet).await?;
        let shared = &*self.shared;
        shared.refresh(&mut operation.client).await?;
        let epoch = operation.client.epoch();
        let descents = keys.iter().map(|key| Descent::new(shared, epoch, key, Purpose::Read));
        let descents = descents.collect::<Result<Vec<_>, _>>()?;
        let values = search::run_all(&mut operation.client, shared, descents.into_iter(), |_, end, done| {
            value_at(end, done)
        });
        values.await
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Runs a descent to its end; the leaf's words are left in the returned batch.
    pub(super) async fn descend<'k>(
        &mut self,
        key: &'k [u8],
        purpose: Purpose,
    ) -> Result<(Descent<'k>, ArtEnd, Batch)> {
        self.shared.refresh(&mut self.client).await?;
        let mut descent = Descent::new(self.shared, self.client.epoch(), key, purpose)?;
        let (end, done) = search::run(&mut self.client, self.shared, &mut descent).await?;
        Ok((descent, end, done))
    }
}
