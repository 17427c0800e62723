//! Search and multi-get.

use super::Art;
use super::descent::{Descent, End, Purpose};
use darter_fabric::{Batch, Fabric, OpKind};
use darter_index::IndexError;
use darter_index::check_key;
use darter_index::radix::leaf;
use darter_index::radix::search::{self, MULTI_GET_WIDTH};
use darter_pool::{Client, Pinned};

/// The value that a search ended at.
fn value_at(end: End, done: &Batch) -> Result<Option<Vec<u8>>, IndexError> {
    match end {
        End::Leaf { at, read, is_key: true } => {
            Ok(Some(leaf::parse(at.slot.addr(), done.words(read))?.value.to_vec()))
        }
        _ => Ok(None),
    }
}

impl<F: Fabric> Art<F> {
    /// Runs a descent to its end, leaf words left in the returned batch.
    pub(super) async fn descend<'k>(
        &self,
        client: &mut Pinned<'_, F>,
        key: &'k [u8],
        purpose: Purpose,
    ) -> Result<(Descent<'k>, End, Batch), IndexError> {
        self.shared.refresh(client).await?;
        let mut descent = Descent::new(&self.shared, client.epoch(), key, purpose)?;
        let (end, done) = search::run(client, &*self.shared, &mut descent).await?;
        Ok((descent, end, done))
    }

    pub(super) async fn get_value(
        &self,
        client: &mut Client<F>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, IndexError> {
        check_key(key)?;
        let mut client = client.pin(OpKind::Get).await?;
        let (_, end, done) = self.descend(&mut client, key, Purpose::Read).await?;
        let value = value_at(end, &done)?;
        client.recycle(done);
        Ok(value)
    }

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
            values.extend(self.multi_get_chunk(client, chunk).await?);
        }
        Ok(values)
    }

    async fn multi_get_chunk(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, IndexError> {
        let mut client = client.pin(OpKind::MultiGet).await?;
        let shared = &*self.shared;
        shared.refresh(&mut client).await?;
        let mut values = vec![None; keys.len()];
        let epoch = client.epoch();
        let descents = keys.iter().map(|key| Descent::new(shared, epoch, key, Purpose::Read));
        let descents = descents.collect::<Result<Vec<_>, _>>()?;
        search::run_all(&mut client, shared, descents.into_iter(), |number, end, done| {
            values[number] = value_at(end, done)?;
            Ok(())
        })
        .await?;
        Ok(values)
    }
}
