//! Objects allocated for a change that nobody can see yet.
//!
//! A writer allocates, writes, and links with one CAS. Until the CAS has won, all of it can be given back; afterwards none
//! may. [`Drafts`] keeps the list in between. It frees nothing on drop: a cancelled operation's verbs may still land, its
//! CAS among them, so what it had allocated is left to the sweep (rule R6).

use crate::IndexError;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::{AllocKind, Client};
use smallvec::SmallVec;

/// Unpublished objects of one operation.
#[derive(Debug, Default)]
pub(crate) struct Drafts {
    objects: SmallVec<[(GlobalAddr, u64, AllocKind); 4]>,
}

impl Drafts {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Allocates an object, preferably on memory node `node`.
    #[inline]
    pub(crate) async fn alloc<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        node: u8,
        bytes: u64,
        kind: AllocKind,
    ) -> Result<GlobalAddr, IndexError> {
        let addr = match client.try_alloc(node, bytes, kind) {
            Some(addr) => addr,
            None => client.alloc(node, bytes, kind).await?,
        };
        self.objects.push((addr, bytes, kind));
        Ok(addr)
    }

    /// The change was published: the objects belong to the index now.
    pub(crate) fn keep(&mut self) {
        self.objects.clear();
    }

    /// The change was not published, and no CAS that could publish it is in flight.
    pub(crate) fn discard<F: Fabric>(&mut self, client: &mut Client<F>) {
        for (addr, bytes, kind) in self.objects.drain(..) {
            client.free_unpublished(addr, bytes, kind);
        }
    }
}
