//! Bulk load: fills an empty index from strictly ascending keys, built bottom-up and stored in the
//! root word by one CAS.
//!
//! The open nodes of the last key's path are on a stack. Every open node that branches after the
//! place where the next key differs from the last is complete, and is written once.

use super::Wort;
use super::descent::SlotAt;
use super::header::Header;
use super::node::{self, Content, Format, Node, NodeType, Slot};
use super::publish::Change;
use super::shared::Operation;
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::writes::Writes;
use darter_index::radix::{drafts, leaf};
use darter_index::{IndexError, KeyValue, Result, check_key};
use darter_pool::size_class::class_bytes;
use darter_pool::{AllocKind, Client};

/// Consecutive objects on one memory node.
const RUN: u64 = 64;

/// A node whose last child is not known yet.
struct Open {
    branch: usize,
    children: Vec<Slot>,
}

/// A tree under construction.
struct Builder {
    format: Format,
    stack: Vec<Open>,
    /// Built, and not yet a child of an open node.
    loose: Option<Slot>,
    writes: Writes,
    /// Number of keys added.
    count: u64,
}

impl<F: Fabric> Wort<F> {
    /// Fills an empty index.
    pub(super) async fn load_sorted<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        // Before anything is written: an index that has keys is rejected at once.
        let [word] = client.pin(OpKind::Load).await?.read_words(self.shared.words.root).await?;
        if word != 0 {
            return Err(IndexError::NotEmpty);
        }
        let format = self.shared.format;
        let (stack, loose, writes) = (Vec::new(), None, Writes::default());
        let mut builder = Builder { format, stack, loose, writes, count: 0 };
        match builder.build(client, sorted).await {
            Ok(()) => {}
            Err(error) => {
                builder.give_back(client).await?;
                return Err(error);
            }
        }
        let Some(root) = builder.loose else { return Ok(0) };
        // After any other error it may be linked, though the reply was lost.
        match self.publish_root(client, root).await {
            Err(error @ IndexError::NotEmpty) => {
                builder.give_back(client).await?;
                Err(error)
            }
            published => published.map(|()| builder.count),
        }
    }

    async fn publish_root(&self, client: &mut Client<F>, root: Slot) -> Result<()> {
        let mut operation = Operation::pin(&*self.shared, client, OpKind::Load).await?;
        let mut lock = operation.lock().await?;
        let at = SlotAt { base: self.shared.words.root, at: 0, slot: Slot::EMPTY };
        let won = operation.publish(&Change::swing(at, root), &mut lock).await?;
        lock.end(&mut operation.client).await?;
        if won { Ok(()) } else { Err(IndexError::NotEmpty) }
    }
}

impl Builder {
    async fn build<F: Fabric, I>(&mut self, client: &mut Client<F>, sorted: I) -> Result<()>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        let mut previous: Option<Vec<u8>> = None;
        for (key, value) in sorted {
            check_key(&key)?;
            if let Some(previous) = &previous {
                if key <= *previous {
                    return Err(IndexError::NotSorted { at: self.count });
                }
                let parting = self.format.digits.common(previous, &key);
                self.close(client, previous, Some(parting)).await?;
            }
            let class = leaf::class_within(client.pool().object_bytes_max(), key.len(), value.len())?;
            let home = self.home(client);
            let addr = drafts::alloc(client, home, class_bytes(class), AllocKind::Leaf).await?;
            self.loose = Some(Slot::leaf(0, class, addr));
            self.writes.write(client, addr, &leaf::image(&key, &value)).await?;
            self.count += 1;
            previous = Some(key);
        }
        if let Some(previous) = &previous {
            self.close(client, previous, None).await?;
        }
        self.writes.flush(client).await
    }

    fn home<F: Fabric>(&self, client: &Client<F>) -> u8 {
        (self.count / RUN % u64::from(client.pool().nodes())) as u8
    }

    /// Attaches the loose child, the last of `key`'s path, and completes every open node that
    /// branches after the place where the next key differs from it; all of them if there is no next
    /// key.
    async fn close<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        key: &[u8],
        parting: Option<usize>,
    ) -> Result<()> {
        let digits = self.format.digits;
        while self.stack.last().is_some_and(|open| parting.is_none_or(|parting| open.branch > parting)) {
            self.attach(key);
            let above = self.stack.iter().rev().nth(1).map(|open| open.branch).max(parting);
            let Some(Open { branch, children }) = self.stack.last() else { break };
            let ty = NodeType::fit(self.format.types, node::beside_end(children));
            let header = Header::of_key(digits, above.map_or(0, |above| above + 1), *branch, key);
            let image = node::image(ty, header, children);
            let home = self.home(client);
            let addr = drafts::alloc(client, home, ty.bytes(), AllocKind::Inner).await?;
            self.stack.pop();
            self.loose = Some(Slot::node(0, ty, 0, addr));
            self.writes.write(client, addr, &image).await?;
        }
        if let Some(parting) = parting {
            if self.stack.last().is_none_or(|open| open.branch < parting) {
                self.stack.push(Open { branch: parting, children: Vec::new() });
            }
            self.attach(key);
        }
        Ok(())
    }

    /// Makes the loose child a child of the deepest open node.
    fn attach(&mut self, key: &[u8]) {
        if let (Some(open), Some(slot)) = (self.stack.last_mut(), self.loose.take()) {
            open.children.push(slot.moved(self.format.digits.edge(key, open.branch), 0));
        }
    }

    /// Frees everything built, none of which was ever visible. After an error of the fabric the
    /// rest is left to the sweep.
    async fn give_back<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<()> {
        if self.writes.may_be_lost() {
            return Ok(());
        }
        self.writes.flush(client).await?;
        let mut doomed: Vec<Slot> = self.stack.drain(..).flat_map(|open| open.children).collect();
        doomed.extend(self.loose.take());
        while let Some(slot) = doomed.pop() {
            match slot.content() {
                Content::Leaf { addr, class } => {
                    client.free_unpublished(addr, class_bytes(class), AllocKind::Leaf);
                }
                Content::Node { addr, ty, .. } => {
                    let words = client.read(addr, ty.words()).await?;
                    doomed.extend(Node::new(ty, &words).children().iter().map(|&(_, slot)| slot));
                    client.free_unpublished(addr, ty.bytes(), AllocKind::Inner);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
