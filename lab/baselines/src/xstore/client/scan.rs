//! Scans by models: two round trips for the predicted leaves, and one for each other leaf.
//!
//! One READ brings a leaf up to its keys; another brings its records or blobs and, after them, its
//! header, which must be identical in every bit. Then all words read were the leaf's at one moment
//! (rules X6 and X7, for each of its keys). The leaves' bounds tile the range, no matter how the
//! leaves were found. While the records of some leaves are read, the next leaves are read too:
//! those of the next table, or the right neighbour of a leaf that has split. A leaf that changes in
//! between is read again. If the models lead nowhere, calls continue the scan.

use super::super::descriptor::Descriptor;
use super::super::leaf::{Bound as LeafBound, HEAD_WORDS, Head, Header, Pointer, SLOTS};
use super::super::model::{Entry, RouteStep, last_below, model_key};
use super::look::record_value;
use super::lookup::is_leaf;
use super::tree::Way;
use super::view::{Models, Sight};
use darter_fabric::{Batch, Fabric, ReadId};
use darter_index::radix::leaf as pair;
use darter_index::{KeyValue, Result, ScanRange};
use darter_pool::Pinned;
use std::collections::VecDeque;
use std::ops::Bound;

/// Number of leaves predicted at a time.
const FORESEEN_MAX: u32 = 32;
/// Bytes of records and blobs in a round trip, if it reads more than one leaf.
const BYTES_MAX: u64 = 1 << 20;
/// Round trips under one pin.
const ROUNDS_MAX: u32 = 64;
/// Neighbours followed, or READs of models rejected, without progress to another leaf.
const ASTRAY_MAX: u32 = 4;

/// The position of a scan: at keys from this one up, or below it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cursor {
    From(Vec<u8>),
    To(Bound<Vec<u8>>),
}

/// The position of a leaf relative to the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The leaf has the keys at the cursor.
    Here,
    /// The scan has passed the leaf.
    Passed,
    /// There are other leaves in between.
    Ahead,
    /// The leaf's words are not enough to decide.
    Unknown,
}

impl Cursor {
    fn of(range: &ScanRange) -> Self {
        match (&range.from, range.reverse) {
            (_, true) => Self::To(range.to.clone()),
            (Bound::Unbounded, _) => Self::From(Vec::new()),
            (Bound::Included(key) | Bound::Excluded(key), _) => Self::From(key.clone()),
        }
    }

    /// Returns the model key that leads to the leaf at the cursor.
    fn model_key(&self) -> u64 {
        match self {
            Self::From(key) | Self::To(Bound::Included(key)) => model_key(key),
            Self::To(Bound::Excluded(key)) => last_below(Some(key)),
            Self::To(Bound::Unbounded) => u64::MAX,
        }
    }

    fn side(&self, head: &Head) -> Side {
        match self {
            Self::From(key) => match (head.holds(key), head.is_below(key)) {
                (Some(true), _) => Side::Here,
                (Some(false), Some(true)) => Side::Passed,
                (Some(false), Some(false)) => Side::Ahead,
                _ => Side::Unknown,
            },
            Self::To(to) => {
                let (LeafBound::Short(low), LeafBound::Short(_) | LeafBound::None) = (&head.low, &head.high)
                else {
                    return Side::Unknown;
                };
                let high = if let LeafBound::Short(high) = &head.high { Some(high) } else { None };
                let (is_passed, is_ahead) = match to {
                    Bound::Unbounded => (false, high.is_some()),
                    Bound::Included(key) => (low > key, high.is_some_and(|high| high <= key)),
                    Bound::Excluded(key) => (low >= key, high.is_some_and(|high| high < key)),
                };
                if is_passed {
                    Side::Passed
                } else if is_ahead {
                    Side::Ahead
                } else {
                    Side::Here
                }
            }
        }
    }

    /// Returns whether the scan has not passed a key yet.
    fn has(&self, key: &[u8]) -> bool {
        match self {
            Self::From(from) => key >= &from[..],
            Self::To(Bound::Included(to)) => key <= &to[..],
            Self::To(Bound::Excluded(to)) => key < &to[..],
            Self::To(Bound::Unbounded) => true,
        }
    }

    /// Returns the cursor after a leaf, and whether the scan is over; `None` if the leaf's words
    /// are not enough to decide.
    fn behind(&self, head: &Head) -> Option<(Self, bool)> {
        match (self, &head.low, &head.high) {
            (Self::From(_), _, LeafBound::Short(high)) => Some((Self::From(high.clone()), false)),
            (Self::From(_), _, LeafBound::None) => Some((self.clone(), true)),
            (Self::To(_), LeafBound::Short(low), _) => {
                Some((Self::To(Bound::Excluded(low.clone())), low.is_empty()))
            }
            _ => None,
        }
    }

    /// Returns whether all keys at the cursor are outside a range.
    fn is_out(&self, range: &ScanRange) -> bool {
        match (self, &range.from, &range.to) {
            (Self::From(key), _, Bound::Included(to)) => key > to,
            (Self::From(key), _, Bound::Excluded(to)) => key >= to,
            (Self::To(Bound::Excluded(key)), Bound::Included(from) | Bound::Excluded(from), _) => key <= from,
            _ => false,
        }
    }

    /// Narrows a range to the part from the cursor on. An excluded lower bound stays excluded.
    fn narrow(self, range: &mut ScanRange) {
        match self {
            Self::From(key) if range.from == Bound::Excluded(key.clone()) => {}
            Self::From(key) => range.from = Bound::Included(key),
            Self::To(to) => range.to = to,
        }
    }
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanEnd {
    /// All pairs have been read.
    Over,
    /// The scan continues with the rest of the range.
    Open,
    /// The same, but because a leaf has changed.
    Changed,
    /// The models lead no further: calls continue the scan.
    Astray,
}

/// A leaf whose keys have been read and whose records have not.
#[derive(Debug)]
struct Pending {
    number: u32,
    head: Head,
    /// Number of its keys that are certainly in the range.
    counted: usize,
    /// The cursor before it.
    at: Cursor,
}

/// READs of a pending leaf.
struct Posted {
    bodies: Vec<ReadId>,
    header: ReadId,
}

/// A scan in progress.
pub(super) struct Walk<'a> {
    index: &'a Descriptor,
    models: &'a Models,
    sight: &'a Sight,
    range: &'a ScanRange,
    limit: usize,
    pub(super) pairs: Vec<KeyValue>,
    /// After the last leaf whose keys are known.
    cursor: Cursor,
    is_last: bool,
    /// Keys in pending leaves that are certainly in the range.
    expected: usize,
    pending: VecDeque<Pending>,
    route: Option<Way<'a>>,
    /// Leaves to read next.
    next: Vec<u32>,
    /// Leaves already read that come after those in `next`.
    ahead: VecDeque<Met>,
    /// The leaf after the last one visited, in the direction of the cursor.
    sibling: u32,
    astray: u32,
    /// Where the scan continues.
    reached: Option<Cursor>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        index: &'a Descriptor,
        models: &'a Models,
        sight: &'a Sight,
        range: &'a ScanRange,
        limit: usize,
    ) -> Self {
        let cursor = Cursor::of(range);
        Self {
            index,
            models,
            sight,
            range,
            limit,
            pairs: Vec::new(),
            is_last: limit == 0 || cursor.is_out(range),
            cursor,
            expected: 0,
            pending: VecDeque::new(),
            route: None,
            next: Vec::new(),
            ahead: VecDeque::new(),
            sibling: 0,
            astray: 0,
            reached: None,
        }
    }

    /// Narrows the range to the part not scanned yet.
    pub(super) fn narrow(&self, range: &mut ScanRange) {
        if let Some(reached) = self.reached.clone() {
            reached.narrow(range);
        }
    }

    /// Walks for at most the round trips of one pin.
    ///
    /// # Errors
    /// A damaged index; errors of the fabric.
    pub(super) async fn run<F: Fabric>(&mut self, client: &mut Pinned<'_, F>) -> Result<ScanEnd> {
        for _ in 0..ROUNDS_MAX {
            self.foresee(client);
            let mut batch = client.batch();
            let model = self.post_model(client, &mut batch);
            let next = std::mem::take(&mut self.next);
            let heads: Vec<_> = next.into_iter().map(|number| self.post_head(&mut batch, number)).collect();
            let posted = self.post_pending(&mut batch);
            if batch.is_empty() {
                client.recycle(batch);
                return Ok(if self.is_last { ScanEnd::Over } else { ScanEnd::Astray });
            }
            let done = client.submit(batch).await?;
            let outcome = self.absorb_pending(&done, &posted);
            if let Some(read) = model
                && let Some(route) = &mut self.route
            {
                let is_model = route.absorb(done.words(read)).is_ok();
                self.astray += u32::from(!is_model);
            }
            self.absorb_heads(&done, &heads);
            client.recycle(done);
            if !outcome? {
                return Ok(ScanEnd::Changed);
            }
            if self.pairs.len() >= self.limit || self.is_last && self.pending.is_empty() {
                return Ok(ScanEnd::Over);
            }
        }
        Ok(ScanEnd::Open)
    }

    /// Returns whether no more leaves are needed, as far as is known.
    fn is_enough(&self) -> bool {
        self.is_last || self.pairs.len().saturating_add(self.expected) >= self.limit
    }

    /// Determines which leaves come next, if that needs no READ.
    fn foresee<F: Fabric>(&mut self, client: &Pinned<'_, F>) {
        if self.is_enough() || self.astray >= ASTRAY_MAX {
            self.next.clear();
            return;
        }
        if self.astray > 0 && self.sibling != 0 {
            self.follow(client);
        }
        if !self.next.is_empty() {
            return;
        }
        self.ahead.clear();
        let is_reverse = self.range.reverse;
        let route = self.route.get_or_insert_with(|| {
            let left = self.limit - self.pairs.len() - self.expected;
            // Leaves are at least half full unless pairs are deleted.
            let more = left.div_ceil(SLOTS / 2).min(FORESEEN_MAX as usize) as u32;
            let more = if is_reverse { (more + 1, 0) } else { (0, more) };
            self.sight.way(self.models, self.cursor.model_key(), more)
        });
        match route.step() {
            RouteStep::Leaves(leaves) => self.foresee_all(client, &leaves.entries),
            RouteStep::Children(entries) => self.foresee_all(client, &entries),
            RouteStep::Call => {
                self.route = None;
                self.follow(client);
            }
            RouteStep::Top | RouteStep::SubModel(_) | RouteStep::Entries(..) | RouteStep::Inner(_) => {}
        }
    }

    /// Sets the leaves that come next.
    fn foresee_all<F: Fabric>(&mut self, client: &Pinned<'_, F>, entries: &[(u32, Entry)]) {
        self.route = None;
        let words = self.index.layout.words();
        let known = entries.iter().map(|&(_, entry)| entry).filter(|entry| entry.is_valid());
        let known = known.filter(|entry| is_leaf(client, self.index, entry.number(), words));
        self.next.extend(known.map(Entry::number));
        if self.range.reverse {
            self.next.reverse();
        }
        if self.next.is_empty() {
            self.follow(client);
        }
    }

    /// Proceeds to the neighbour of the last leaf if there is one.
    fn follow<F: Fabric>(&mut self, client: &Pinned<'_, F>) {
        if is_leaf(client, self.index, self.sibling, self.index.layout.words()) {
            self.next.push(std::mem::take(&mut self.sibling));
        }
    }

    /// Adds the READ of models that the route needs.
    fn post_model<F: Fabric>(&mut self, client: &Pinned<'_, F>, batch: &mut Batch) -> Option<ReadId> {
        if !self.next.is_empty() || self.astray >= ASTRAY_MAX {
            return None;
        }
        let step = self.route.as_ref()?.step();
        let (addr, words) = self.models.place(client, self.index, &step)?;
        Some(batch.read(addr, words))
    }

    /// Adds READs of a leaf's header, to know its incarnation first, and of the leaf up to its
    /// keys.
    fn post_head(&self, batch: &mut Batch, number: u32) -> Reading {
        let addr = self.index.leaf(number);
        Reading { number, header: batch.read(addr, 1), head: batch.read(addr, HEAD_WORDS) }
    }

    /// Adds the READs of the records or blobs of pending leaves and of their headers.
    fn post_pending(&self, batch: &mut Batch) -> Vec<Posted> {
        let (layout, mut bytes, mut posted) = (self.index.layout, 0, Vec::new());
        for Pending { number, head, .. } in &self.pending {
            let (addr, count) = (self.index.leaf(*number), head.counted().len());
            let mut bodies = Vec::new();
            let pointers = head.counted().iter().filter_map(|&word| Pointer::from_word(word));
            bytes += if layout.is_inline() {
                (count * layout.record_words() * 8) as u64
            } else {
                pointers.clone().map(Pointer::bytes).sum()
            };
            if bytes > BYTES_MAX && !posted.is_empty() {
                break;
            }
            if !layout.is_inline() {
                bodies.extend(pointers.map(|pointer| batch.read(pointer.addr(), pointer.words())));
            } else if count > 0 {
                let from = addr.plus(layout.record_at(0) as u64 * 8);
                bodies.push(batch.read(from, count * layout.record_words()));
            }
            posted.push(Posted { bodies, header: batch.read(addr, 1) });
        }
        posted
    }

    /// Processes records. Returns false if a leaf has changed since its keys were read.
    fn absorb_pending(&mut self, done: &Batch, posted: &[Posted]) -> Result<bool> {
        for reads in posted {
            let Some(leaf) = self.pending.pop_front() else { break };
            self.reached = Some(leaf.at.clone());
            let is_same = done.words(reads.header)[0] == leaf.head.header.word();
            let pairs = if is_same { self.pairs_of(done, &leaf.head, &reads.bodies)? } else { None };
            let Some(mut pairs) = pairs else { return Ok(false) };
            // A leaf that has replaced others may begin before the cursor or end after it.
            pairs.retain(|(key, _)| self.range.contains(key) && leaf.at.has(key));
            pairs.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            if self.range.reverse {
                pairs.reverse();
            }
            self.expected = self.expected.saturating_sub(leaf.counted);
            pairs.truncate(self.limit - self.pairs.len());
            self.pairs.extend(pairs);
            self.reached = leaf.at.behind(&leaf.head).map(|(behind, _)| behind);
        }
        Ok(true)
    }

    /// Returns the pairs of a leaf; `None` if any is torn.
    fn pairs_of(&self, done: &Batch, head: &Head, bodies: &[ReadId]) -> Result<Option<Vec<KeyValue>>> {
        let mut pairs = Vec::with_capacity(head.counted().len());
        if self.index.layout.is_inline() {
            let words = bodies.first().map_or(&[][..], |&read| done.words(read));
            let records = words.chunks_exact(self.index.layout.record_words());
            for (&key, record) in head.counted().iter().zip(records) {
                let Some(value) = record_value(record, key, head.header) else { return Ok(None) };
                pairs.push((key.to_be_bytes().to_vec(), value));
            }
        } else {
            let pointers = head.counted().iter().filter_map(|&word| Pointer::from_word(word));
            for (pointer, &read) in pointers.zip(bodies) {
                let held = pair::parse(pointer.addr(), done.words(read))?;
                pairs.push((held.key.to_vec(), held.value.to_vec()));
            }
        }
        Ok((pairs.len() == head.counted().len()).then_some(pairs))
    }

    /// Returns how many keys of a leaf are certainly in the range. For a leaf with pointers at an
    /// end of the range this is unknown.
    fn counted(&self, head: &Head) -> usize {
        let keys = head.counted();
        if self.index.layout.is_inline() {
            return keys.iter().filter(|key| self.range.contains(&key.to_be_bytes())).count();
        }
        let begin = if self.range.reverse { &self.range.to } else { &self.range.from };
        let is_inner = *begin == Bound::Unbounded || self.reached.is_some() || !self.pending.is_empty();
        if is_inner && !self.is_last { keys.len() } else { 0 }
    }

    /// Processes leaves up to their keys.
    fn absorb_heads(&mut self, done: &Batch, readings: &[Reading]) {
        let before = self.pending.len();
        let met = readings.iter().filter_map(|reading| {
            let first = Header::from_word(done.words(reading.header)[0]);
            let head = Head::parse(self.index.layout, done.words(reading.head))?;
            let is_still = !first.is_moving() && first.incarnation == head.header.incarnation;
            Some(Met { number: reading.number, head, is_still })
        });
        let mut met: VecDeque<Met> = met.collect();
        met.append(&mut self.ahead);
        let is_lost = !self.take_in(met);
        self.astray = match (is_lost, self.pending.len() > before) {
            (true, _) => ASTRAY_MAX,
            (false, true) => 0,
            (false, false) => self.astray + u32::from(!readings.is_empty()),
        };
    }

    /// Adds leaves in order while no other leaf can be between them. Returns false if the words of
    /// a leaf are not enough to determine its position.
    fn take_in(&mut self, mut met: VecDeque<Met>) -> bool {
        while let Some(Met { number, head, is_still }) = met.pop_front() {
            if self.is_last {
                break;
            }
            match self.cursor.side(&head) {
                // Its left neighbour holds its keys, if any.
                _ if head.header.is_going() => {}
                _ if !is_still => {
                    self.next.push(number);
                    self.ahead = met;
                    break;
                }
                Side::Here => {
                    let Some((behind, is_last)) = self.cursor.behind(&head) else { return false };
                    let at = std::mem::replace(&mut self.cursor, behind);
                    self.is_last = is_last || self.cursor.is_out(self.range);
                    self.sibling = if self.range.reverse { 0 } else { head.header.next };
                    let counted = self.counted(&head);
                    self.expected += counted;
                    self.pending.push_back(Pending { number, head, counted, at });
                }
                Side::Passed if self.range.reverse => {}
                Side::Passed => self.sibling = head.header.next,
                Side::Ahead => {
                    let sibling = if self.range.reverse { head.header.next } else { self.sibling };
                    self.next.extend(Some(sibling).filter(|&sibling| sibling != 0));
                    met.push_front(Met { number, head, is_still });
                    self.ahead = met;
                    break;
                }
                Side::Unknown => return false,
            }
        }
        true
    }
}

/// A leaf up to its keys.
struct Met {
    number: u32,
    head: Head,
    /// Whether its incarnation was known before it was read.
    is_still: bool,
}

/// READs of a leaf up to its keys.
struct Reading {
    number: u32,
    header: ReadId,
    head: ReadId,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leaf that has replaced its neighbour holds keys that a scan has passed.
    #[test]
    fn what_a_scan_has_passed_is_not_to_come() {
        let key = |byte: u8| vec![byte; 8];
        let came = |cursor: &Cursor| [1, 3, 5].map(|byte| cursor.has(&key(byte)));
        assert_eq!(came(&Cursor::From(key(3))), [false, true, true]);
        assert_eq!(came(&Cursor::To(Bound::Excluded(key(3)))), [true, false, false]);
        assert_eq!(came(&Cursor::To(Bound::Included(key(3)))), [true, true, false]);
        assert_eq!(came(&Cursor::To(Bound::Unbounded)), [true; 3]);
    }

    /// A scan that restarts at its first leaf because that leaf changed has not visited any key
    /// yet.
    #[test]
    fn what_is_left_of_a_range_does_not_begin_with_a_key_that_it_excludes() {
        let key = |byte: u8| vec![byte; 8];
        let (from, to) = (Bound::Excluded(key(1)), Bound::Included(key(9)));
        for reverse in [false, true] {
            let whole = ScanRange { from: from.clone(), to: to.clone(), reverse };
            let mut left = whole.clone();
            Cursor::of(&whole).narrow(&mut left);
            assert_eq!(left, whole);
        }
        let mut left = ScanRange { from, to: to.clone(), reverse: false };
        Cursor::From(key(3)).narrow(&mut left);
        assert_eq!(left, ScanRange { from: Bound::Included(key(3)), to, reverse: false });
    }
}
