//! Reading a pool of which memory nodes cannot be reached ([`Store::salvage`]).
//!
//! ```no_run
//! use darter::salvage::Salvaged;
//!
//! # fn main() -> Result<(), darter::Error> {
//! let store = darter::Store::open("tcp://10.0.0.5:7411,10.0.0.6:7411")?;
//! for found in store.salvage(..) {
//!     match found? {
//!         Salvaged::Pair(key, value) => println!("{} = {}", key.escape_ascii(), value.escape_ascii()),
//!         Salvaged::Gap(gap) => eprintln!("keys from {} are missing", gap.from.escape_ascii()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use crate::error::Error;
use crate::key_range::KeyRange;
use crate::key_space::KeySpace;
use crate::link::{Link, Repeat, attempted};
use crate::membership::Membership;
use crate::store::Store;
use darter_fabric::block_on;
pub use darter_index::Gap;
use darter_index::{LostNodes, OrderedIndex, ScanRange};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

/// A pair, or keys that cannot be read.
///
/// ```
/// use darter::salvage::Salvaged;
///
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// store.put("pear", "green")?;
/// for found in store.salvage(..) {
///     match found? {
///         Salvaged::Pair(key, value) => assert_eq!((&*key, &*value), (&b"pear"[..], &b"green"[..])),
///         Salvaged::Gap(gap) => panic!("all nodes can be reached: {gap:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Salvaged {
    /// A key with its value.
    Pair(Vec<u8>, Vec<u8>),
    /// Keys that cannot be read, because a memory node cannot be reached. A gap may reach over pairs
    /// before and after it only if it says how many keys are missing ([`Gap::keys`]).
    Gap(Gap),
}

/// An iterator over the pairs of a range that can be read, and over the keys that cannot. It ends after an
/// error.
///
/// Pairs come in key order. The gaps of a part of the index come after its pairs. While other processes
/// change keys, each pair is as it was at some moment of the iteration.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// store.put_many(&[("fig", "blue"), ("pear", "green")])?;
/// let mut found: darter::salvage::Salvage = store.salvage("g"..);
/// assert!(found.next().is_some() && found.next().is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is read until it is iterated"]
pub struct Salvage {
    membership: Arc<Membership>,
    space: KeySpace,
    /// The places to read.
    range: ScanRange,
    /// The place from which the next step reads; `None` if the last one is done.
    next: Option<Vec<u8>>,
    /// The nodes that could not be reached so far.
    lost: LostNodes,
    link: Option<Link>,
    found: VecDeque<Salvaged>,
}

impl std::fmt::Debug for Salvage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Salvage")
            .field("range", &self.range)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Reads all pairs of a range that can be read although memory nodes cannot be reached, and reports
    /// the keys that cannot. Changes nothing. For pools of Quiver.
    ///
    /// ```
    /// use darter::salvage::Salvaged;
    ///
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let found = store.salvage(..).collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(found, [Salvaged::Pair(b"pear".to_vec(), b"green".to_vec())], "all nodes are there");
    /// # Ok(())
    /// # }
    /// ```
    pub fn salvage(&self, range: impl KeyRange) -> Salvage {
        Salvage::new(self.membership(), KeySpace::Program, &range.into_scan_range())
    }
}

impl Salvage {
    pub(crate) fn new(membership: &Arc<Membership>, space: KeySpace, range: &ScanRange) -> Self {
        let range = ScanRange { reverse: false, ..space.range(range) };
        Self {
            membership: Arc::clone(membership),
            space,
            next: Some(first_of(&range)),
            range,
            lost: LostNodes::NONE,
            link: None,
            found: VecDeque::new(),
        }
    }

    /// Reads the next part of the range.
    fn step(&mut self, from: &[u8]) -> Result<(), Error> {
        if self.link.is_none() {
            self.link = Some(Link::open(&self.membership)?);
        }
        let Self { link: Some(link), lost, .. } = self else { return Ok(()) };
        let step = block_on(async {
            loop {
                link.open.pool.absent_nodes().into_iter().for_each(|node| lost.add(node));
                let known = *lost;
                let salvaged = async {
                    attempted!(
                        link,
                        Repeat::Always,
                        link.open.index.salvage(&mut link.client, known, from).await
                    )
                };
                match salvaged.await {
                    Ok(step) => return Ok(step),
                    // That it is away was not known before.
                    Err(error) => match error.absent_node().filter(|&node| !known.contains(node)) {
                        Some(node) => lost.add(node),
                        None => return Err(error),
                    },
                }
            }
        })?;
        self.accept(step);
        Ok(())
    }

    /// Takes the result of a step.
    fn accept(&mut self, step: darter_index::Salvaged) {
        for (place, value) in step.pairs {
            if self.range.contains(&place) {
                let key = self.space.key(&place).to_vec();
                self.found.push_back(Salvaged::Pair(key, value));
            }
        }
        for gap in step.gaps {
            self.found.extend(self.within(gap).map(Salvaged::Gap));
        }
        self.next = step.next.filter(|next| !is_behind(&self.range, next));
    }

    /// The part of a gap of places that is in the range, as keys.
    fn within(&self, gap: Gap) -> Option<Gap> {
        let from = gap.from.max(first_of(&self.range));
        let until = match (gap.until, end_of(&self.range)) {
            (Some(until), Some(end)) => Some(until.min(end)),
            (until, end) => until.or(end),
        };
        if until.as_ref().is_some_and(|until| *until <= from) {
            return None;
        }
        let until = until.and_then(|until| self.space.bound(&until));
        Some(Gap { from: self.space.bound(&from)?, until, keys: gap.keys })
    }
}

impl Iterator for Salvage {
    type Item = Result<Salvaged, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Some(Ok(found));
            }
            let from = self.next.take()?;
            if let Err(error) = self.step(&from) {
                return Some(Err(error));
            }
        }
    }
}

impl std::iter::FusedIterator for Salvage {}

/// The first place of a range.
fn first_of(range: &ScanRange) -> Vec<u8> {
    match &range.from {
        Bound::Included(from) => from.clone(),
        Bound::Excluded(from) => [from, &[0][..]].concat(),
        Bound::Unbounded => Vec::new(),
    }
}

/// The first place behind a range; `None` if there is none.
fn end_of(range: &ScanRange) -> Option<Vec<u8>> {
    match &range.to {
        Bound::Included(to) => Some([to, &[0][..]].concat()),
        Bound::Excluded(to) => Some(to.clone()),
        Bound::Unbounded => None,
    }
}

/// Whether a place and all greater ones are behind a range.
fn is_behind(range: &ScanRange, place: &[u8]) -> bool {
    end_of(range).is_some_and(|end| place >= &end[..])
}
