//! Search and multi-get (paper, section 4.1).

use super::Dart;
use super::descent::{Descent, End, Purpose};
use super::leaf;
use super::shared::Shared;
use crate::IndexError;
use crate::ordered::check_key;
use darter_fabric::{Fabric, OpKind, mutant};
use darter_pool::Client;
use std::sync::atomic::Ordering;

/// Keys that share the round trips of one multi-get; longer lists go in several.
const MULTI_GET_WIDTH: usize = 256;

impl Shared {
    /// Counts a sampled search for [`Dart::wants_adjust`] and [`Dart::samples`].
    fn note_sample(&self, descent: &Descent<'_>) {
        self.sampled.fetch_add(1, Ordering::Relaxed);
        self.sampled_express.fetch_add(u64::from(descent.is_express()), Ordering::Relaxed);
        self.sampled_extra.fetch_add(u64::from(descent.nodes_read.saturating_sub(1)), Ordering::Relaxed);
    }
}

impl<F: Fabric> Dart<F> {
    /// Finds a key and hands its value to `f` where it lies, without a copy.
    ///
    /// # Errors
    /// [`IndexError::KeyTooLong`], and those of the fabric.
    pub async fn get_with<R>(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>, IndexError> {
        check_key(key)?;
        let mut client = client.pin(OpKind::Get).await?;
        let shared = &*self.shared;
        let table = shared.view(&mut client).await?;
        let sample = shared.samples();
        let mut descent = Descent::new(shared, &table, key, Purpose::Read { sample }, usize::MAX);
        loop {
            let mut batch = client.batch();
            descent.post(shared, &table, &mut batch);
            let done = client.submit(batch).await?;
            let end = descent.absorb(shared, &table, &done)?;
            let result = match end {
                None => {
                    client.recycle(done);
                    continue;
                }
                Some(End::Leaf { at, read, is_key: true }) => {
                    Some(f(leaf::parse(at.slot.addr(), done.words(read))?.value))
                }
                Some(_) => None,
            };
            client.recycle(done);
            if sample {
                shared.note_sample(&descent);
            }
            return Ok(result);
        }
    }

    /// The values of several keys, in their order; up to 256 of them share each round trip.
    ///
    /// # Errors
    /// Those of [`Dart::get_with`].
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
        let table = if mutant!("multi-get-takes-the-view-unchecked") {
            shared.table()
        } else {
            shared.view(&mut client).await?
        };
        let mut values = vec![None; keys.len()];
        let mut walking: Vec<(usize, Descent<'_>)> = keys
            .iter()
            .enumerate()
            .map(|(at, key)| {
                let purpose = Purpose::Read { sample: shared.samples() };
                (at, Descent::new(shared, &table, key, purpose, usize::MAX))
            })
            .collect();
        while !walking.is_empty() {
            let mut batch = client.batch();
            for (_, descent) in &mut walking {
                descent.post(shared, &table, &mut batch);
            }
            let done = client.submit(batch).await?;
            let mut failed = None;
            walking.retain_mut(|(at, descent)| {
                let absorbed = descent.absorb(shared, &table, &done).and_then(|end| match end {
                    Some(End::Leaf { at, read, is_key: true }) => {
                        Ok((true, Some(leaf::parse(at.slot.addr(), done.words(read))?.value.to_vec())))
                    }
                    end => Ok((end.is_some(), None)),
                });
                match absorbed {
                    Ok((ended, value)) => {
                        values[*at] = value;
                        !ended
                    }
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
            });
            client.recycle(done);
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(values)
    }
}
