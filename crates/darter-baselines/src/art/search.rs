//! Search and multi-get.

use super::Art;
use super::descent::{Descent, End, Purpose};
use darter_fabric::{Batch, Fabric, OpKind};
use darter_index::IndexError;
use darter_index::check_key;
use darter_index::radix::leaf;
use darter_pool::Client;

/// Keys that share the round trips of one multi-get; longer lists go in several.
const MULTI_GET_WIDTH: usize = 256;

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
    /// Runs a descent to its end, leaf words left in the returned batch. The caller is pinned.
    pub(super) async fn descend<'k>(
        &self,
        client: &mut Client<F>,
        key: &'k [u8],
        purpose: Purpose,
    ) -> Result<(Descent<'k>, End, Batch), IndexError> {
        self.shared.refresh(client).await?;
        let mut descent = Descent::new(&self.shared, client.epoch(), key, purpose)?;
        loop {
            let mut batch = client.batch();
            descent.post(&self.shared, &mut batch);
            let done = client.submit(batch).await?;
            match descent.absorb(&self.shared, &done)? {
                Some(end) => return Ok((descent, end, done)),
                None => client.recycle(done),
            }
        }
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
        let mut walking = Vec::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            walking.push((at, Descent::new(shared, client.epoch(), key, Purpose::Read)?));
        }
        while !walking.is_empty() {
            let mut batch = client.batch();
            for (_, descent) in &mut walking {
                descent.post(shared, &mut batch);
            }
            let done = client.submit(batch).await?;
            let mut next = Vec::with_capacity(walking.len());
            for (at, mut descent) in walking {
                match descent.absorb(shared, &done)? {
                    Some(end) => values[at] = value_at(end, &done)?,
                    None => next.push((at, descent)),
                }
            }
            walking = next;
            client.recycle(done);
        }
        Ok(values)
    }
}
