//! Intents for several new keys of one page: the page is replaced by one that has them all.
//!
//! Otherwise all of the keys would go to the page's first unused delta slot, and one of them would
//! win it in each round. A page is replaced only if the new one need not be cut (`rebuild`), so a
//! full page first takes a single key, which makes it large enough to be cut.

use super::{Installed, Own};
use crate::Result;
use crate::checker::note;
use crate::quiver::descent::{Lookup, PageSearchEnd};
use crate::quiver::operation::Operation;
use crate::quiver::parent_slot::ParentSlot;
use crate::quiver::rebuild::Old;
use crate::quiver::situations;
use crate::quiver::write::Attempt;
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
    /// A page, with its words.
    Page(Old, Vec<u64>),
}

impl<F: Fabric> Operation<'_, F> {
    /// Installs the intents of new keys of which several belong in the same page, and removes them
    /// from `ends`. Adds the keys whose places have to be found again to `later`. Returns false if
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
                _ => 1,
            };
            if let PageSearchEnd::Diverged { .. } = group[0].1 {
                // The first key gets a page, and the others find it.
                later.extend(group.drain(1..).map(|(number, _)| number));
            }
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
            PageSearchEnd::Vacant { parent } => (parent.node.addr.node(), records, Target::Vacancy(*parent)),
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
        let pairs: Vec<_> = made.iter().map(|installed| installed.pair(own.accesses)).collect();
        let linked = match target {
            Target::Vacancy(parent) => {
                let attempt = self.fill_vacancy(&pairs, parent).await;
                attempt.map(|attempt| matches!(attempt, Attempt::Done(_)))
            }
            Target::Page(old, words) => self.replace_adding(old, words, &pairs).await,
        };
        match linked {
            Ok(true) => {
                note(situations::INTENTS_ADDED);
                own.installed.append(&mut made);
            }
            Ok(false) => {
                note(situations::INTENTS_NOT_ADDED);
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
