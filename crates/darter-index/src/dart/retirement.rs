//! What happens to a node between its unlinking and the reuse of its memory (rule R3).
//!
//! The pool keeps the graces; this file says what is done between the first and the second: a node's express entries are
//! scrubbed, a replaced express skip table is taken apart. What must be known for that travels with the retired object as a
//! note, so that another client of the process can do it when the retirer is gone.

use super::Dart;
use super::est::SEGMENT_BYTES;
use super::est::scrub::{Retired, scrub, scrub_everywhere, segments};
use super::est::table::{DESCRIPTOR_BYTES, Table};
use super::holes::Hole;
use super::situations;
use crate::IndexError;
use crate::situations::note;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::{AllocKind, Client, Unlinked};
use std::collections::HashSet;
use std::sync::Arc;

const NOTE_NODE: u8 = 0;
const NOTE_TABLE: u8 = 1;
const NOTE_NAMELESS: u8 = 2;

/// Bit of the "next table" root word that says its table is about to become current.
pub(super) const COMMITTED: u64 = 1 << 63;

/// The note of a retired node: its prefix.
pub(super) fn node_note(prefix: &[u8]) -> Box<[u8]> {
    std::iter::once(NOTE_NODE).chain(prefix.iter().copied()).collect()
}

/// The note of a retired node whose prefix nobody knows: its entries are sought in the whole table.
pub(super) fn nameless_note() -> Box<[u8]> {
    Box::new([NOTE_NAMELESS])
}

/// The note of a replaced table's descriptor.
pub(super) fn table_note() -> Box<[u8]> {
    Box::new([NOTE_TABLE])
}

impl<F: Fabric> Dart<F> {
    /// Scrubs and passes on whatever has waited its first grace. Cheap when nothing has.
    ///
    /// # Errors
    /// Those of the fabric; what was not scrubbed waits another first grace.
    pub(super) async fn scrub_graced(&self, client: &mut Client<F>) -> Result<(), IndexError> {
        let graced = client.take_graced();
        if graced.is_empty() {
            return Ok(());
        }
        let mut client = client.pin(OpKind::Maintain).await?;
        self.shared.view(&mut client).await?;
        let (nodes, tables): (Vec<Unlinked>, Vec<Unlinked>) =
            graced.into_iter().partition(|object| object.note.first() != Some(&NOTE_TABLE));
        let skips = self.shared.holes.has(Hole::SkipScrub);
        match if skips { Ok(()) } else { self.scrub_nodes(&mut client, &nodes).await } {
            Ok(()) => {
                for object in nodes {
                    client.retire(object.addr, object.bytes, object.kind);
                }
            }
            Err(error) => {
                for object in nodes.into_iter().chain(tables) {
                    client.unlink(object.addr, object.bytes, object.kind, object.note);
                }
                return Err(error);
            }
        }
        for object in tables {
            self.take_apart(&mut client, object.addr).await?;
        }
        Ok(())
    }

    async fn scrub_nodes(&self, client: &mut Client<F>, nodes: &[Unlinked]) -> Result<(), IndexError> {
        if nodes.is_empty() {
            return Ok(());
        }
        let (named, nameless): (Vec<&Unlinked>, Vec<&Unlinked>) =
            nodes.iter().partition(|object| object.note.first() == Some(&NOTE_NODE));
        let retired: Vec<Retired> = named
            .iter()
            .map(|object| Retired { addr: object.addr, prefix: object.note[1..].to_vec() })
            .collect();
        let nameless: HashSet<GlobalAddr> = nameless.iter().map(|object| object.addr).collect();
        let (keys, version) = (&self.shared.keys, self.shared.words.version);
        for table in self.live_tables(client).await? {
            scrub(client, &table, keys, version, &retired).await?;
            if !nameless.is_empty() {
                scrub_everywhere(client, &table, keys, version, |addr| nameless.contains(&addr)).await?;
            }
        }
        Ok(())
    }

    /// Every table that an operation could take a hint from in a later epoch: the current one, and one being built.
    pub(super) async fn live_tables(&self, client: &mut Client<F>) -> Result<Vec<Arc<Table>>, IndexError> {
        let words = &self.shared.words;
        let mut batch = client.batch();
        // In this order: a table that becomes current between the two reads is seen by the second.
        let next = batch.read(words.est_next, 1);
        let current = batch.read(words.est, 1);
        let version = batch.read(words.version, 1);
        let done = client.submit(batch).await?;
        let next = GlobalAddr::from_bits(done.words(next)[0] & !COMMITTED);
        let current = GlobalAddr::from_bits(done.words(current)[0]);
        let version = done.words(version)[0];
        client.recycle(done);
        let known = arc_swap::Guard::into_inner(self.shared.table());
        let mut tables = Vec::with_capacity(2);
        tables.push(if known.descriptor == current {
            known
        } else {
            Arc::new(Table::load(client, current, version).await?)
        });
        if !next.is_null() && next != current {
            tables.push(Arc::new(Table::load(client, next, version).await?));
        }
        Ok(tables)
    }

    /// Retires all of a table that nobody uses any more.
    async fn take_apart(&self, client: &mut Client<F>, descriptor: GlobalAddr) -> Result<(), IndexError> {
        let table = Table::load(client, descriptor, 0).await?;
        note(situations::TABLE_RETIRED);
        for entry in segments(client, &table).await? {
            client.retire(entry.segment(), SEGMENT_BYTES, AllocKind::Inner);
        }
        client.retire(table.directory_addr, 8 << table.bits, AllocKind::Inner);
        client.retire(descriptor, DESCRIPTOR_BYTES, AllocKind::Inner);
        Ok(())
    }
}
