//! The READs of a descent in each round trip, and the use of their results.

use super::{Descent, Lead, PageSearchEnd, Stage};
use crate::Result;
use crate::quiver::nibble::nibbles;
use crate::quiver::node;
use crate::quiver::page;
use crate::quiver::shared::Shared;
use crate::quiver::word::Word;
use crate::radix::leaf;
use crate::radix::search::Search;
use darter_fabric::Batch;

impl Search<Shared> for Descent<'_> {
    type End = PageSearchEnd;

    fn post(&mut self, shared: &Shared, batch: &mut Batch) -> Result<()> {
        if let Some(guide) = &mut self.guide {
            guide.post(batch);
        }
        match &mut self.stage {
            Stage::RootWord(read) => {
                *read = Some([shared.words.root, shared.words.skip].map(|word| batch.read(word, 1)));
            }
            Stage::Skip => {
                if let Some(guide) = &mut self.guide {
                    guide.look_up(batch);
                }
            }
            Stage::Node { read, .. } => *read = Some(batch.read(self.node.addr, node::NODE_WORDS)),
            Stage::Head { page, words, read, foreseen } => {
                *read = Some(batch.read(page.addr, *words));
                if let (Some((rank, record)), Some(Lead { hint, .. })) = (foreseen, &self.lead) {
                    let at = hint.page.addr.plus(hint.shape.record_at(*rank) as u64 * 8);
                    *record = Some(batch.read(at, hint.shape.record_words));
                }
                if let Some(beside) = &mut self.beside {
                    beside.post(batch);
                }
            }
            Stage::Probe(probe) => {
                if let Some((rank, read)) = &mut probe.record_read {
                    *read = Some(batch.read(probe.head.record_addr(*rank), probe.head.shape.record_words));
                }
                for (at, read) in &mut probe.leaves {
                    if let Some((addr, class, _)) = probe.head.delta[*at].leaf_object() {
                        *read = Some(batch.read(addr, leaf::class_words(class)));
                    }
                }
            }
            Stage::RecordLeaf(probe) => {
                let word = probe.record.as_ref().map_or(Word(0), |(_, record)| Word(record[0]));
                if let Some((addr, class, _)) = word.leaf_object() {
                    probe.record_leaf = Some(batch.read(addr, leaf::class_words(class)));
                }
            }
            Stage::Record { rank, reads } => {
                if let Some(Lead { hint, remembered }) = &self.lead {
                    let at = hint.page.addr.plus(hint.shape.record_at(*rank) as u64 * 8);
                    let record = batch.read(at, hint.shape.record_words);
                    // A remembered page proves itself; a copy in a node may be of another page.
                    let is_copy = remembered.is_none();
                    *reads = Some((record, is_copy.then(|| batch.read(hint.page.addr, page::FIXED_WORDS))));
                }
            }
            Stage::Hot { hot, reads } => {
                if let Some(Lead { hint, .. }) = &self.lead {
                    *reads = super::hot::post(hint, *hot, batch);
                }
            }
            Stage::Leaf { leaf, reads, .. } => {
                if let Some(Lead { hint, .. }) = &self.lead {
                    let value = batch.read(leaf.addr, leaf::class_words(leaf.class));
                    *reads = Some((value, batch.read(hint.page.addr, page::FIXED_WORDS)));
                }
            }
        }
        Ok(())
    }

    fn absorb(&mut self, shared: &Shared, done: &Batch) -> Result<Option<PageSearchEnd>> {
        let end = self.absorb_stage(shared, done)?;
        if let Some(PageSearchEnd::Page(found)) = &end {
            self.learn_hot_delta(shared, found);
        }
        Ok(end)
    }
}

impl Descent<'_> {
    fn absorb_stage(&mut self, shared: &Shared, done: &Batch) -> Result<Option<PageSearchEnd>> {
        if let Some(guide) = &mut self.guide {
            guide.absorb_table((&shared.skip, &shared.keys), done, self.epoch)?;
        }
        let stage = std::mem::replace(&mut self.stage, Stage::RootWord(None));
        match stage {
            Stage::RootWord(Some(reads)) => {
                let [root, skip] = reads.map(|read| done.words(read)[0]);
                self.absorb_root_word(shared, root, skip)
            }
            Stage::Skip => {
                if let Some(guide) = &mut self.guide {
                    guide.absorb((&shared.keys, shared.cache.forgotten()), nibbles(self.key.bytes()), done);
                }
                self.enter_root(shared);
                Ok(None)
            }
            Stage::Node { read: Some(read), hint } => self.absorb_node(shared, done.words(read), hint),
            Stage::Head { page, read: Some(read), foreseen, .. } => {
                let Some(head) = self.absorb_head(shared, page, done.words(read))? else { return Ok(None) };
                let is_as_known = self.lead.as_ref().is_some_and(|lead| lead.hint.shape == head.shape);
                let foreseen = foreseen.filter(|_| is_as_known);
                self.seen = self.seen.take().filter(|_| is_as_known);
                let foreseen = foreseen.and_then(|(rank, read)| Some((rank, done.words(read?).into())));
                let beside = self.beside.take().filter(|_| is_as_known);
                let beside = beside.and_then(|beside| beside.leaf(done));
                match self.probe(shared, head, foreseen, beside)? {
                    None => self.absorb_beside(shared, beside),
                    end => Ok(end),
                }
            }
            Stage::Probe(probe) => self.absorb_probe(shared, probe, done),
            Stage::RecordLeaf(probe) => {
                let Some(read) = probe.record_leaf else { return self.elsewhere(probe).map(Some) };
                self.absorb_record_leaf(shared, probe, done.words(read))
            }
            Stage::Record { rank, reads: Some((record, head)) } => {
                let head = head.map(|head| done.words(head));
                Ok(self.absorb_record(shared, rank, (record, done.words(record)), head))
            }
            Stage::Leaf { leaf, reads: Some((value, head)) } => {
                self.absorb_leaf(shared, leaf, done.words(value), done.words(head))
            }
            Stage::Hot { hot, reads: Some(reads) } => self.absorb_hot(shared, hot, reads, done),
            _ => {
                self.restart(shared);
                Ok(None)
            }
        }
    }
}
