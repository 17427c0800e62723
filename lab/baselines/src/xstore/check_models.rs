//! The check of the models of a range: a walk of all their objects by READs.
//!
//! Root, segments and slabs overlap nothing; each sub-model is whole, its table lies in a slab, and
//! each of its entries leads to a leaf. The server may train meanwhile: what is read of a generation
//! that ends is no violation. Nodes of the image of the inner nodes lie in slabs, ascend, and lead to
//! leaves ([`image`]).

mod image;

use super::XStore;
use super::client::lookup::is_leaf;
use super::descriptor::Descriptor;
use super::leaf::{HEAD_WORDS, Head, address};
use super::model::{Entry, SubModel};
use super::root::{
    ModelsWord, ROOT_WORDS, Root, SEGMENT, SLAB_HEAD_BYTES, SLAB_HEAD_WORDS, parse_slab, slabs_of,
};
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::{CheckReport, NodeTypeStats, Result};
use darter_pool::Pinned;
use std::collections::{BTreeMap, HashSet};

/// Reads of a sub-model that is written meanwhile.
const TRIES: u32 = 20;

/// Counts nodes, with those of their type in the ranges before.
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

/// What was found of the models.
#[derive(Debug, Default)]
pub(super) struct Found {
    word: u64,
    /// The leaves that their entries lead to.
    numbers: HashSet<u32>,
}

impl<F: Fabric> XStore<F> {
    /// Walks the models; with `reads_all` the tables, too.
    pub(super) async fn inspect_models(
        &self,
        client: &mut Pinned<'_, F>,
        range: &Descriptor,
        report: &mut CheckReport,
        reads_all: bool,
    ) -> Result<Found> {
        let [word] = client.read_words(range.models()).await?;
        let mut found = Found { word, numbers: HashSet::new() };
        let ModelsWord { root: number, .. } = ModelsWord::from_word(word);
        if number == 0 {
            return Ok(found);
        }
        let addr = address(range.node, number);
        let Some(root) = self.read_root(client, report, addr).await? else {
            return Ok(found);
        };
        let mut bytes = (Root::room(root.submodels) as u64 * 8).next_multiple_of(64);
        report.reach(addr, bytes, "root of the models");
        let mut tables = HashSet::new();
        for (at, &segment) in root.segments.iter().enumerate() {
            let words = Root::segment_words(root.submodels, at);
            let segment_bytes = (words as u64 * 8).next_multiple_of(64);
            bytes += segment_bytes;
            if report.reach(segment, segment_bytes, "segment of sub-models") && reads_all {
                let submodels = self.read_submodels(client, report, (segment, words)).await?;
                tables.extend(
                    submodels
                        .iter()
                        .filter_map(SubModel::table)
                        .map(|table| (table.offset(), table.entries())),
                );
            }
        }
        add_nodes(
            report,
            NodeTypeStats { name: "sub-model", count: root.submodels.into(), bytes, children: 0 },
        );
        report.stats.index_bytes += bytes;
        let slabs = self.read_slabs(client, report, addr, reads_all).await?;
        if let Some(image) = root.image.filter(|_| reads_all) {
            image::inspect_image(report, &slabs, image, &mut found.numbers);
        }
        for (offset, entries) in tables {
            let slab = slabs.range(..=offset).next_back();
            let words = slab.and_then(|(from, words)| {
                let at = ((offset - from) / 8) as usize;
                words.get(at..at + entries as usize)
            });
            match words {
                None => report.violation(format!("table at {offset:#x}: it lies in no slab")),
                Some(words) => {
                    let entries = words.iter().map(|&word| Entry::from_word(word));
                    found
                        .numbers
                        .extend(entries.map(|entry| if entry.is_valid() { entry.number() } else { 0 }));
                }
            }
        }
        Ok(found)
    }

    /// Verifies that entries lead to leaves, once all leaves are known.
    pub(super) async fn inspect_entries(
        &self,
        client: &mut Pinned<'_, F>,
        range: &Descriptor,
        report: &mut CheckReport,
        (found, leaves): (&Found, &HashSet<u32>),
    ) -> Result<()> {
        let layout = range.layout;
        let mut strange = Vec::new();
        for &number in found.numbers.difference(leaves) {
            let addr = range.leaf(number);
            // A leaf may have gone since the tables were written, until their generation ends.
            let words = if is_leaf(client, range, number, HEAD_WORDS) {
                client.read(addr, HEAD_WORDS).await?
            } else {
                Vec::new()
            };
            if !Head::parse(layout, &words).is_some_and(|head| head.header.is_going()) {
                strange.push(number);
            }
        }
        if !strange.is_empty() {
            let [word] = client.read_words(range.models()).await?;
            if word == found.word {
                report.violation(format!("entries of tables lead to no leaf: {strange:?}"));
            }
        }
        Ok(())
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
            Ok(None) => report.violation(format!("root of the models at {addr}: it is none")),
            Err(error) => report.unreadable(format_args!("root of the models at {addr}"), error)?,
        }
        Ok(None)
    }

    /// The sub-models of a segment.
    async fn read_submodels(
        &self,
        client: &mut Pinned<'_, F>,
        report: &mut CheckReport,
        (addr, words): (GlobalAddr, usize),
    ) -> Result<Vec<SubModel>> {
        let whole = match client.read(addr, words).await {
            Ok(whole) => whole,
            Err(error) => {
                report.unreadable(format_args!("segment at {addr}"), error)?;
                return Ok(Vec::new());
            }
        };
        let mut models = Vec::with_capacity(words / SubModel::WORDS);
        for (at, words) in (0..u64::from(SEGMENT)).zip(whole.chunks_exact(SubModel::WORDS)) {
            let place = addr.plus(at * SubModel::WORDS as u64 * 8);
            let mut model = SubModel::from_words([words[0], words[1]]);
            for _ in 0..TRIES {
                if model.is_some() {
                    break;
                }
                crate::compute_node::yield_now().await;
                model = SubModel::from_words(client.read_words(place).await?);
            }
            match model {
                Some(model) => models.push(model),
                None => report.violation(format!("sub-model at {place}: its words do not belong together")),
            }
        }
        Ok(models)
    }

    /// The words of slabs behind their heads, by their offsets.
    async fn read_slabs(
        &self,
        client: &mut Pinned<'_, F>,
        report: &mut CheckReport,
        root: GlobalAddr,
        reads_all: bool,
    ) -> Result<BTreeMap<u64, Vec<u64>>> {
        let (mut slabs, mut count, mut total) = (BTreeMap::new(), 0, 0);
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
                report.violation(format!("slab of tables at {addr}: it is none"));
                break;
            };
            if !report.reach(addr, bytes, "slab of tables") {
                break;
            }
            (count, total, next) = (count + 1, total + bytes, behind);
            if reads_all {
                let from = addr.plus(SLAB_HEAD_BYTES);
                match client.read(from, ((bytes - SLAB_HEAD_BYTES) / 8) as usize).await {
                    Ok(words) => drop(slabs.insert(from.offset(), words)),
                    Err(error) => report.unreadable(format_args!("slab at {addr}"), error)?,
                }
            }
        }
        add_nodes(report, NodeTypeStats { name: "slab", count, bytes: total, children: 0 });
        report.stats.index_bytes += total;
        Ok(slabs)
    }
}
