//! The mark of a pool that holds an index. It distinguishes a pool whose root words were lost by
//! the medium, which is damage, from a pool without an index.
//!
//! The mark lies in a different sector than the root words. An index sets it when it is opened,
//! after its kind word was set and before anything can be stored. So a creator that dies in between
//! leaves an index without a mark, and the next client to open it, unless it may only read, sets the
//! mark.

use crate::{IndexError, Result};
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Pinned;

/// Verifies that a pool holds the index of this kind, by the kind word at `at` and the mark, which
/// were read together. Sets the mark if it is not set.
///
/// # Errors
/// [`IndexError::NoIndex`]; [`IndexError::Corrupt`] if the pool has held an index; those of the
/// fabric.
pub(crate) async fn verify<F: Fabric>(
    client: &mut Pinned<'_, F>,
    (expected, kind): (&'static str, u64),
    (at, found): (GlobalAddr, u64),
    mark: u64,
) -> Result<()> {
    if found == 0 && mark != 0 {
        return Err(IndexError::corrupt(at, "the root words of its index are gone"));
    }
    if found != kind {
        return Err(IndexError::NoIndex { expected, found });
    }
    if mark == 0 && !client.pool().reads_only() {
        let addr = client.pool().index_mark();
        client.cas(addr, 0, kind).await?;
    }
    Ok(())
}
