//! Intents for new keys in new pages: for keys that have no page, and for several keys of one page,
//! which a page with all of them replaces.
//!
//! Otherwise the keys of one page would all go to its first unused delta slot, and one of them would
//! win it in each round. A page is replaced only if the new one need not be cut (`rebuild`), so a
//! full page first takes a single key, which makes it large enough to be cut.

use super::install::Written;
use super::{Installed, Own};
use crate::checker::note;
use crate::quiver::descent::{Lookup, NodeAt, PageSearchEnd};
use crate::quiver::operation::Operation;
use crate::quiver::pair::Pair;
use crate::quiver::parent_slot::ParentSlot;
use crate::quiver::rebuild::Old;
use crate::quiver::situations;
use crate::quiver::word::Print;
use crate::quiver::write::Attempt;
use crate::radix::prefix_hash::HashKeys;
use crate::{Access, Result};
use darter_fabric::{Fabric, GlobalAddr};
use std::collections::BTreeMap;

/// New keys of one page that cost about as many round trips in its delta slots, one after the
/// other, as the page's replacement.
const FEW: usize = 3;

/// Keys, by number, and where the searches for them ended.
type Ends = Vec<(usize, PageSearchEnd)>;

/// The target of a new page.
enum Target {
    /// A slot without a page.
    Vacancy(ParentSlot),
    /// A path that the key leaves before this child of a slot. One key gets a page; the others find
    /// it later.
    Path(ParentSlot, NodeAt),
    /// A page, with its words.
    Page(Old, Vec<u64>),
}

impl<F: Fabric> Operation<'_, F> {
    /// Installs the intents of new keys that have no page, or of which several belong in the same
    /// page, and removes them from `ends`. Adds the keys whose places have to be found again to `later`. Returns false if
    /// there is a conflict.
    pub(super) async fn install_new(
        &mut self,
        own: &mut Own<'_>,
        ends: &mut Ends,
        later: &mut Vec<usize>,
    ) -> Result<bool> {
        let mut groups: BTreeMap<GlobalAddr, Ends> = BTreeMap::new();
        for (number, end) in std::mem::take(ends) {
            match place_of_new(&end) {
                Some(place) => groups.entry(place).or_default().push((number, end)),
                None => ends.push((number, end)),
            }
        }
        for mut group in groups.into_values() {
            let few = match group[0].1 {
                PageSearchEnd::Page(_) => FEW.min(self.shared.geometry.delta),
                _ => 0,
            };
            if group.len() <= few {
                ends.append(&mut group);
            } else if !Box::pin(self.install_group(own, group, ends, later)).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The same for keys of one page.
    async fn install_group(
        &mut self,
        own: &mut Own<'_>,
        mut group: Ends,
        ends: &mut Ends,
        later: &mut Vec<usize>,
    ) -> Result<bool> {
        let mut numbers: Vec<usize> = group.iter().map(|(number, _)| *number).collect();
        if numbers.iter().any(|&number| own.accesses[number].read.flatten().is_some()) {
            note(situations::TRANSACTION_CONFLICT);
            return Ok(false);
        }
        let records = self.shared.geometry.records;
        let (home, room, target) = match &group[0].1 {
            &PageSearchEnd::Vacant { parent } => (parent.node.addr.node(), records, Target::Vacancy(parent)),
            &PageSearchEnd::Diverged { parent, child } => {
                (parent.node.addr.node(), 1, Target::Path(parent, child))
            }
            PageSearchEnd::Page(found) => {
                let page = found.head.page;
                let read = match found.from {
                    Some(from) => Some((from, page, self.read_page(page).await?)),
                    None => self.read_page_of(own.accesses[numbers[0]].key, Some(page)).await?,
                };
                let Some((parent, page, (shape, words))) = read else {
                    later.append(&mut numbers);
                    return Ok(true);
                };
                let old = self.old_page(parent, page, shape, &words).await?;
                let is_sealed = shape.has_seal(&words);
                let room = if is_sealed { 0 } else { old.room(records) };
                if room == 0 {
                    let first = if is_sealed || old.len() > records {
                        self.replace(old, words).await?;
                        0
                    } else {
                        // One more pair, and the page is cut.
                        ends.push(group.swap_remove(0));
                        1
                    };
                    later.extend(numbers.drain(first..));
                    return Ok(true);
                }
                (page.addr.node(), room, Target::Page(old, words))
            }
            _ => return Ok(true),
        };
        later.extend(numbers.drain(room.min(numbers.len())..));
        self.install_together(own, numbers, home, target, later).await
    }

    /// Makes the intents of some keys, and a page with them. Returns false if another client has
    /// aborted the transaction.
    async fn install_together(
        &mut self,
        own: &mut Own<'_>,
        numbers: Vec<usize>,
        home: u8,
        target: Target,
        later: &mut Vec<usize>,
    ) -> Result<bool> {
        let mut made = Vec::with_capacity(numbers.len());
        let written = self.make_intents(own, &numbers, home, &mut made).await;
        if !matches!(written, Ok(true)) {
            self.give_back_all(&made);
            return written;
        }
        let pairs = made.iter().map(|installed| installed.pair(self.shared.keys, own.accesses)).collect();
        match self.link_new(pairs, target).await {
            Ok(true) => own.installed.append(&mut made),
            Ok(false) => {
                self.give_back_all(&made);
                later.extend(numbers);
            }
            Err(error) => {
                // After another error, the new page may be linked.
                if error.is_out_of_space() {
                    self.give_back_all(&made);
                }
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Links a page with some pairs. Returns false if another client was faster.
    async fn link_new(&mut self, mut pairs: Vec<Pair>, target: Target) -> Result<bool> {
        let attempt = match target {
            Target::Page(old, words) => return self.replace_adding(old, words, &pairs).await,
            Target::Vacancy(parent) => self.fill_vacancy(&pairs, parent).await?,
            Target::Path(parent, child) => {
                let Some(pair) = pairs.pop() else { return Ok(false) };
                self.part_path(pair, parent, child).await?
            }
        };
        Ok(matches!(attempt, Attempt::Done(_)))
    }

    fn give_back_all(&mut self, made: &[Installed]) {
        for installed in made {
            self.give_back(installed);
        }
    }

    /// Makes and writes the intents of some absent keys. Returns false if another client has aborted
    /// the transaction.
    async fn make_intents(
        &mut self,
        own: &mut Own<'_>,
        numbers: &[usize],
        home: u8,
        made: &mut Vec<Installed>,
    ) -> Result<bool> {
        let mut all = Vec::new();
        for &number in numbers {
            let (installed, writes) = self.make_intent(own, number, None, home).await?;
            made.push(installed);
            all.extend(writes);
        }
        self.write_unlinked(own, all).await
    }

    /// Writes intents and leaves before a page that names them is linked: one round trip. Returns
    /// false if another client has aborted the transaction.
    async fn write_unlinked(&mut self, own: &mut Own<'_>, writes: Vec<Written>) -> Result<bool> {
        let mut batch = self.client.batch();
        let bump = own.at.filter(|_| own.is_written).map(|at| own.bump(at, &mut batch));
        own.post(&mut batch, &writes);
        let done = self.client.submit(batch).await?;
        let is_alive = bump.is_none_or(|bump| own.has_bumped(&done, bump));
        self.client.recycle(done);
        Ok(is_alive)
    }
}

impl Installed {
    /// The key with its intent, for a new page.
    fn pair(&self, keys: HashKeys, accesses: &[Access<'_>]) -> Pair {
        let key = accesses[self.number].key;
        Pair { key: key.into(), print: Print::new(keys, key), image: None, leaf: Some(self.intent) }
    }
}

/// The page of an absent key, or the slot that will point to it.
fn place_of_new(end: &PageSearchEnd) -> Option<GlobalAddr> {
    match end {
        PageSearchEnd::Page(found) if matches!(found.spot, Lookup::Absent { .. }) => {
            Some(found.head.page.addr)
        }
        PageSearchEnd::Vacant { parent } | PageSearchEnd::Diverged { parent, .. } => Some(parent.at.addr),
        _ => None,
    }
}
