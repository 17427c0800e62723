//! Sealing: making a run of slots immutable, one CAS each, in one doorbell batch (docs/dart.md,
//! type switch).
//!
//! Tree slots and express entries keep their seal in the same bit. A sealed word never changes
//! again, so once all are sealed, any client can copy them, and all copies are equal.

use crate::Result;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Client;

/// The seal's bit in slots and entries.
pub const SEAL: u64 = 1 << 55;

/// Seals those words at `base` that `seals` selects by position and content. Afterwards `words`
/// holds their final content.
///
/// `words` must be their content as read before; words that have changed since cost another round
/// trip.
///
/// # Errors
/// Those of the fabric.
pub async fn seal_all<F: Fabric>(
    client: &mut Client<F>,
    base: GlobalAddr,
    words: &mut [u64],
    seals: impl Fn(usize, u64) -> bool,
) -> Result<()> {
    seal_by(client, base, words, SEAL, |words, at| seals(at, words[at])).await
}

/// The same for the words at some positions.
///
/// # Errors
/// Those of the fabric.
pub(crate) async fn seal_at<F: Fabric>(
    client: &mut Client<F>,
    base: GlobalAddr,
    words: &mut [u64],
    positions: impl Iterator<Item = usize> + Clone + Send,
) -> Result<()> {
    seal_some(client, base, words, (SEAL, positions), |_, _| true).await
}

/// As [`seal_all`] with another bit as the seal; `seals` gets all words and a position.
///
/// # Errors
/// Those of the fabric.
pub async fn seal_by<F: Fabric>(
    client: &mut Client<F>,
    base: GlobalAddr,
    words: &mut [u64],
    seal: u64,
    seals: impl Fn(&[u64], usize) -> bool,
) -> Result<()> {
    let all = 0..words.len();
    seal_some(client, base, words, (seal, all), seals).await
}

async fn seal_some<F: Fabric>(
    client: &mut Client<F>,
    base: GlobalAddr,
    words: &mut [u64],
    (seal, positions): (u64, impl Iterator<Item = usize> + Clone),
    seals: impl Fn(&[u64], usize) -> bool,
) -> Result<()> {
    loop {
        let mut batch = client.batch();
        let mut tries = Vec::with_capacity(positions.size_hint().0);
        for at in positions.clone() {
            let word = words[at];
            if word & seal == 0 && seals(words, at) {
                tries.push((at, batch.cas(base.plus(at as u64 * 8), word, word | seal)));
            }
        }
        if tries.is_empty() {
            client.recycle(batch);
            return Ok(());
        }
        let done = client.submit(batch).await?;
        for (at, cas) in tries {
            words[at] = if done.swapped(cas) { words[at] | seal } else { done.found(cas) };
        }
        client.recycle(done);
    }
}
