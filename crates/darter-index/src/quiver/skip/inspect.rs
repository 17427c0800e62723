//! The skip table in checks and counts.

use super::entry::{self, ENTRY_WORDS};
use super::table::DESCRIPTOR_BYTES;
use crate::quiver::operation::Operation;
use crate::{CheckReport, EstStats, Result};
use darter_fabric::Fabric;

impl<F: Fabric> Operation<'_, F> {
    /// Verifies the current skip table, marks it as reached, and counts its entries. The node of an
    /// entry may be gone, so no entry is wrong.
    pub(in crate::quiver) async fn inspect_table(
        &mut self,
        report: &mut CheckReport,
    ) -> Result<Option<EstStats>> {
        let (descriptor, table) = match self.current_table().await {
            Ok((_, Some(found))) => found,
            Ok((_, None)) => return Ok(None),
            Err(error) => return report.unreadable("skip table", error).map(|()| None),
        };
        if !report.reach(descriptor, DESCRIPTOR_BYTES, "skip table") {
            return Ok(None);
        }
        let mut entries = 0;
        for &segment in &table.segments {
            if !report.reach(segment, table.size.segment_bytes(), "segment of the skip table") {
                continue;
            }
            let words = match self.client.read(segment, table.size.segment_words()).await {
                Ok(words) => words,
                Err(error) => {
                    report.unreadable(format!("segment of the skip table at {segment}"), error)?;
                    continue;
                }
            };
            let places = words.chunks_exact(ENTRY_WORDS);
            entries += places.filter(|words| entry::is_entry(&self.shared.keys, words)).count() as u64;
        }
        Ok(Some(EstStats {
            prefix_list: table.list.bytes(),
            directory_entries: table.segments.len() as u64,
            segments: table.segments.len() as u64,
            entries,
            slots: (table.size.words() / ENTRY_WORDS) as u64,
            bytes: table.bytes(),
        }))
    }
}
