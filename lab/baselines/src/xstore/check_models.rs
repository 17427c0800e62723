//! The check of the memory of a range's models: root, segments and slabs do not overlap. Their
//! content consists of hints, from which nothing is concluded.

use super::XStore;
use super::descriptor::Descriptor;
use super::leaf::address;
use super::root::{ModelsWord, ROOT_WORDS, Root, SLAB_HEAD_WORDS, parse_slab, slabs_of};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::{CheckReport, NodeTypeStats, Result};
use darter_pool::Pinned;

/// Adds the nodes of a range to those of the same type in previous ranges.
pub(super) fn add_nodes(report: &mut CheckReport, more: NodeTypeStats) {
    let nodes = &mut report.stats.nodes;
    match nodes.iter_mut().find(|nodes| nodes.name == more.name) {
        Some(nodes) => {
            nodes.count += more.count;
            nodes.bytes += more.bytes;
            nodes.children += more.children;
        }
        None => nodes.push(more),
    }
}

impl<F: Fabric> XStore<F> {
    /// Walks the objects of the models.
    pub(super) async fn inspect_models(
        &self,
        client: &mut Pinned<'_, F>,
        range: &Descriptor,
        report: &mut CheckReport,
    ) -> Result<()> {
        let [word] = client.read_words(range.models()).await?;
        let ModelsWord { root: number, .. } = ModelsWord::from_word(word);
        if number == 0 {
            return Ok(());
        }
        let addr = address(range.node, number);
        let Some(root) = self.read_root(client, report, addr).await? else { return Ok(()) };
        let mut bytes = (Root::room(root.submodels) as u64 * 8).next_multiple_of(64);
        report.reach(addr, bytes, "root of the models");
        for (at, &segment) in root.segments.iter().enumerate() {
            let words = Root::segment_words(root.submodels, at);
            let segment_bytes = (words as u64 * 8).next_multiple_of(64);
            bytes += segment_bytes;
            report.reach(segment, segment_bytes, "segment of sub-models");
        }
        add_nodes(
            report,
            NodeTypeStats { name: "sub-model", count: root.submodels.into(), bytes, children: 0 },
        );
        report.stats.index_bytes += bytes;
        self.inspect_slabs(client, report, addr).await
    }

    async fn read_root(
        &self,
        client: &mut Pinned<'_, F>,
        report: &mut CheckReport,
        addr: GlobalAddr,
    ) -> Result<Option<Root>> {
        let read = async {
            let mut words = client.read(addr, ROOT_WORDS).await?;
            if let Some(room) = Root::count(&words).map(Root::room).filter(|&room| room > ROOT_WORDS) {
                words = client.read(addr, room).await?;
            }
            Ok::<_, darter_fabric::FabricError>(Root::parse(&words))
        };
        match read.await {
            Ok(Some(root)) => return Ok(Some(root)),
            Ok(None) => report.violation(format!("root of the models at {addr}: not a root")),
            Err(error) => report.unreadable(format_args!("root of the models at {addr}"), error)?,
        }
        Ok(None)
    }

    async fn inspect_slabs(
        &self,
        client: &mut Pinned<'_, F>,
        report: &mut CheckReport,
        root: GlobalAddr,
    ) -> Result<()> {
        let (mut count, mut total) = (0, 0);
        let [first] = client.read_words(slabs_of(root)).await?;
        let mut next = GlobalAddr::from_bits(first);
        while !next.is_null() {
            let addr = next;
            let head = match client.read(addr, SLAB_HEAD_WORDS).await {
                Ok(words) => parse_slab(&words),
                Err(error) => {
                    report.unreadable(format_args!("slab at {addr}"), error)?;
                    break;
                }
            };
            let Some((bytes, behind)) = head.filter(|&(bytes, _)| bytes <= client.pool().object_bytes_max())
            else {
                report.violation(format!("slab of tables at {addr}: not a slab"));
                break;
            };
            if !report.reach(addr, bytes, "slab of tables") {
                break;
            }
            (count, total, next) = (count + 1, total + bytes, behind);
        }
        add_nodes(report, NodeTypeStats { name: "slab", count, bytes: total, children: 0 });
        report.stats.index_bytes += total;
        Ok(())
    }
}
