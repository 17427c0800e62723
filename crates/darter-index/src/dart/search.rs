//! Search and multi-get (paper, section 4.1).

use super::Dart;
use super::descent::{Descent, DescentEnd, Purpose, View};
use super::leaf;
use super::shared::Shared;
use crate::Result;
use crate::ordered::check_key;
use crate::radix::search;
use darter_fabric::{Fabric, OpKind};
use darter_pool::Client;
use std::sync::atomic::Ordering;

impl Shared {
    /// Counts a sampled search for [`Dart::wants_adjust`] and [`Dart::samples`].
    fn note_sample(&self, descent: &Descent<'_>) {
        self.sampling.note(descent.nodes_read);
        self.sampled_express.fetch_add(u64::from(descent.is_express()), Ordering::Relaxed);
    }
}

impl<F: Fabric> Dart<F> {
    /// Finds a key and passes its value to `f` in place, without a copy.
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
        let mut client = client.pin(OpKind::Get).await?;
        let shared = &*self.shared;
        let table = shared.view(&mut client).await?;
        let sample = shared.samples();
        let mut descent = Descent::new(shared, &table, key, Purpose::Read { sample }, usize::MAX);
        let view = View { shared, table: &table };
        let (end, done) = search::run(&mut client, &view, &mut descent).await?;
        let result = match end {
            DescentEnd::Leaf { at, read, is_key: true } => {
                Some(f(leaf::parse_again(at.slot.addr(), done.words(read))?.value))
            }
            _ => None,
        };
        client.recycle(done);
        if sample {
            shared.note_sample(&descent);
        }
        Ok(result)
    }

    /// Returns the values of several keys, in their order, reading them in the same round trips.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`](crate::IndexError::Corrupt).
    pub(super) async fn values_of(
        &self,
        client: &mut Client<F>,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let mut client = client.pin(OpKind::MultiGet).await?;
        let shared = &*self.shared;
        let table = shared.view(&mut client).await?;
        let descents = keys.iter().map(|key| {
            let purpose = Purpose::Read { sample: shared.samples() };
            Descent::new(shared, &table, key, purpose, usize::MAX)
        });
        let view = View { shared, table: &table };
        search::run_all(&mut client, &view, descents, |_, end, done| {
            let DescentEnd::Leaf { at, read, is_key: true } = end else { return Ok(None) };
            Ok(Some(leaf::parse_again(at.slot.addr(), done.words(read))?.value.to_vec()))
        })
        .await
    }
}
