//! Key lookup by models: a state machine that returns the READs to post next, so that many keys
//! share their round trips.
//!
//! The models predict some leaves, which are all read at once, up to their keys. One more READ
//! brings the value or proves that there is none ([`super::look`]). If the key is after all of
//! these leaves, a leaf has split: its right neighbour is tried once, and the sub-model is read
//! again in the same batch. If that fails too, the lookup becomes a call.

use super::super::descriptor::Descriptor;
use super::super::leaf::{HEAD_WORDS, Head, Header, Pointer};
use super::super::model::{Entry, Leaves, RouteStep, SubModel, model_key};
use super::look::{Verdict, blob_value, has_not_moved, is_still, judge, record_value, without};
use super::tree::Way;
use super::view::{Models, Sight, is_within};
use darter_fabric::{Batch, Fabric, ReadId};
use darter_index::Result;
use darter_pool::Client;
use smallvec::{SmallVec, smallvec};

/// READs of leaves before a call.
const LOOKS_MAX: u32 = 5;
/// READs of malformed model words before a call.
const TORN_MAX: u32 = 2;

/// A leaf that may hold the key.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    number: u32,
    /// An incarnation that the leaf has had. If it is `None`, the header is read first.
    known: Option<u32>,
    /// The entry that led to the leaf, and its position.
    entry: Option<(u32, Entry)>,
}

/// A pointer, and the leaf that held it in an incarnation.
#[derive(Clone, Copy, Debug)]
struct Place {
    pointer: Pointer,
    number: u32,
    incarnation: u32,
}

/// What to read next.
#[derive(Debug)]
enum State {
    Route,
    /// Leaves up to their keys, and the sub-model if it has probably changed.
    Look(SmallVec<[Candidate; 4]>, bool),
    Slot(u32, usize, Header),
    /// Blobs that may hold the key, with the incarnations of their leaves, and the state that
    /// follows if none does.
    Blobs(SmallVec<[Place; 2]>, Box<State>),
    /// The header, to prove an absence.
    Header(u32, Header),
    Value(Option<Vec<u8>>),
    Call,
}

/// A lookup of one key in progress.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    key: &'a [u8],
    index: &'a Descriptor,
    models: &'a Models,
    sight: &'a Sight,
    route: Way<'a>,
    leaves: Option<Leaves>,
    state: State,
    looks: u32,
    torn: u32,
    has_tried_sibling: bool,
}

/// READs of a lookup in a batch.
pub(super) type Reads = SmallVec<[ReadId; 4]>;

impl<'a> Lookup<'a> {
    pub(super) fn new(index: &'a Descriptor, models: &'a Models, sight: &'a Sight, key: &'a [u8]) -> Self {
        let route = sight.way(models, model_key(key), (0, 0));
        let state = State::Route;
        let (looks, torn, has_tried_sibling) = (0, 0, false);
        Self { key, index, models, sight, route, leaves: None, state, looks, torn, has_tried_sibling }
    }

    /// Returns whether the lookup has found the key's value or proved its absence.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.state, State::Value(_))
    }

    /// Returns the key's value if one was found.
    pub(super) fn into_value(self) -> Option<Vec<u8>> {
        if let State::Value(value) = self.state { value } else { None }
    }

    /// Returns the sub-model that is responsible for the key.
    pub(super) fn submodel(&self) -> Option<u32> {
        self.route.submodel()
    }

    /// Adds the next READs; none once the lookup is complete.
    pub(super) fn post<F: Fabric>(&mut self, client: &Client<F>, batch: &mut Batch) -> Reads {
        if matches!(self.state, State::Route) {
            match self.route.step() {
                RouteStep::Leaves(leaves) => {
                    self.look_at(client, &leaves.entries);
                    self.leaves = Some(leaves);
                }
                RouteStep::Children(entries) => self.look_at(client, &entries),
                step => match self.models.place(client, self.index, &step) {
                    Some((addr, words)) => return smallvec![batch.read(addr, words)],
                    None => self.state = State::Call,
                },
            }
        }
        let (index, layout) = (self.index, self.index.layout);
        match &self.state {
            State::Look(candidates, rereads) => {
                let mut reads = Reads::new();
                for candidate in candidates {
                    let addr = index.leaf(candidate.number);
                    if candidate.known.is_none() {
                        reads.push(batch.read(addr, 1));
                    }
                    reads.push(batch.read(addr, HEAD_WORDS));
                }
                let submodel = self.route.submodel().filter(|_| *rereads);
                if let Some(addr) = submodel.and_then(|submodel| self.models.submodel_at(submodel)) {
                    reads.push(batch.read(addr, SubModel::WORDS));
                }
                reads
            }
            State::Slot(number, slot, _) => {
                let addr = index.leaf(*number).plus(layout.record_at(*slot) as u64 * 8);
                smallvec![batch.read(addr, layout.record_words())]
            }
            State::Blobs(places, _) => {
                let mut reads = Reads::new();
                for Place { pointer, number, .. } in places {
                    reads.push(batch.read(pointer.addr(), pointer.words()));
                    reads.push(batch.read(index.leaf(*number), 1));
                }
                reads
            }
            State::Header(number, _) => smallvec![batch.read(index.leaf(*number), 1)],
            State::Route | State::Value(_) | State::Call => Reads::new(),
        }
    }

    /// Proceeds to the predicted leaves that can exist.
    fn look_at<F: Fabric>(&mut self, client: &Client<F>, entries: &[(u32, Entry)]) {
        let words = self.index.layout.words();
        let is_one = |entry: &Entry| entry.is_valid() && is_leaf(client, self.index, entry.number(), words);
        let known = entries.iter().filter(|(_, entry)| is_one(entry));
        let candidates: SmallVec<[Candidate; 4]> = known
            .map(|&(position, entry)| Candidate {
                number: entry.number(),
                known: Some(entry.incarnation()),
                entry: Some((position, entry)),
            })
            .collect();
        if candidates.is_empty() { self.give_up() } else { self.state = State::Look(candidates, false) }
    }

    /// Leaves the key to a call: the sub-model led to the wrong leaves.
    fn give_up(&mut self) {
        if let Some(submodel) = self.route.submodel() {
            self.sight.cache.forget_submodel(self.models.view, submodel);
        }
        self.state = State::Call;
    }

    /// Reads a leaf again, about which more is known now. If it has changed a few times or stays
    /// torn, the lookup becomes a call: the server waits for the leaf's lock and repairs what a
    /// dead server left half done.
    fn again(&mut self, number: u32, known: Option<u32>) {
        if self.looks < LOOKS_MAX {
            self.state = State::Look(smallvec![Candidate { number, known, entry: None }], false);
        } else {
            self.state = State::Call;
        }
    }

    /// Processes the words that were read.
    ///
    /// # Errors
    /// A damaged index.
    pub(super) fn absorb<F: Fabric>(
        &mut self,
        client: &Client<F>,
        done: &Batch,
        reads: &[ReadId],
    ) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Route) {
            State::Route => {
                let is_model = reads.first().is_some_and(|&read| self.route.absorb(done.words(read)).is_ok());
                self.torn += u32::from(!is_model);
                if self.torn >= TORN_MAX {
                    self.state = State::Call;
                }
            }
            State::Look(candidates, rereads) => self.judge_all(client, done, reads, &candidates, rereads),
            State::Slot(number, _, header) => {
                let key = self.key.try_into().map_or(0, u64::from_be_bytes);
                match reads.first().and_then(|&read| record_value(done.words(read), key, header)) {
                    Some(value) => self.state = State::Value(Some(value)),
                    None => self.again(number, Some(header.incarnation)),
                }
            }
            State::Blobs(places, otherwise) => {
                self.state = *otherwise;
                for (place, reads) in places.iter().zip(reads.chunks_exact(2)) {
                    let value = blob_value(place.pointer.addr(), done.words(reads[0]), self.key)?;
                    if value.is_some() {
                        let header = Header::from_word(done.words(reads[1])[0]);
                        if has_not_moved(header, place.incarnation) {
                            self.state = State::Value(value);
                        } else {
                            let known = Some(header.incarnation).filter(|_| !header.is_moving());
                            self.again(place.number, known);
                        }
                        return Ok(());
                    }
                }
            }
            State::Header(number, header) => {
                if reads.first().is_some_and(|&read| is_still(header, done.words(read)[0])) {
                    self.state = State::Value(None);
                } else {
                    self.again(number, Some(header.incarnation));
                }
            }
            end @ (State::Value(_) | State::Call) => self.state = end,
        }
        Ok(())
    }

    /// Judges leaves that were read up to their keys.
    fn judge_all<F: Fabric>(
        &mut self,
        client: &Client<F>,
        done: &Batch,
        reads: &[ReadId],
        candidates: &[Candidate],
        rereads: bool,
    ) {
        self.looks += 1;
        let mut words = reads.iter().map(|&read| done.words(read));
        let (mut next, mut sibling, mut blobs) = (None, 0, SmallVec::new());
        for candidate in candidates {
            let header = candidate.known.is_none().then(|| words.next()).flatten();
            let header = header.map(|words| Header::from_word(words[0])).filter(|header| !header.is_moving());
            let known = candidate.known.or(header.map(|header| header.incarnation));
            let head = words.next().and_then(|words| Head::parse(self.index.layout, words));
            let Some(head) = head else { continue };
            self.renew(candidate, &head);
            let mut verdict = judge(self.index, &head, self.key, known);
            if let Verdict::Blobs(pointers) = verdict {
                let Header { incarnation, .. } = head.header;
                let number = candidate.number;
                blobs.extend(pointers.into_iter().map(|pointer| Place { pointer, number, incarnation }));
                verdict = without(&head, self.key, known);
            }
            let Some((rank, state)) = follow(candidate.number, head.header, &verdict) else {
                if head.is_below(self.key) == Some(true) {
                    sibling = head.header.next;
                }
                continue;
            };
            if next.as_ref().is_none_or(|&(best, _)| rank < best) {
                next = Some((rank, state));
            }
        }
        if let Some(words) = words.next().filter(|_| rereads) {
            self.learn_again(words);
        }
        match next {
            Some((_, State::Look(..))) if self.looks >= LOOKS_MAX => self.state = State::Call,
            Some((_, state)) => self.state = state,
            None => self.try_sibling(client, sibling),
        }
        if !blobs.is_empty() {
            let otherwise = std::mem::replace(&mut self.state, State::Call);
            self.state = State::Blobs(blobs, Box::new(otherwise));
        }
    }

    /// Proceeds to the right neighbour of a leaf that has split, and reads the sub-model, which may
    /// have been trained again.
    fn try_sibling<F: Fabric>(&mut self, client: &Client<F>, sibling: u32) {
        let is_one = is_leaf(client, self.index, sibling, self.index.layout.words());
        if self.has_tried_sibling || !is_one {
            self.give_up();
            return;
        }
        self.has_tried_sibling = true;
        let submodel = self.route.submodel().and_then(|submodel| self.models.submodel_at(submodel));
        let rereads = submodel.is_some_and(|addr| is_within(client, addr, SubModel::WORDS));
        let candidate = Candidate { number: sibling, known: None, entry: None };
        self.state = State::Look(smallvec![candidate], rereads);
    }

    fn learn_again(&self, words: &[u64]) {
        let model = words.try_into().ok().and_then(SubModel::from_words);
        if let (Some(model), Some(submodel)) = (model, self.route.submodel()) {
            self.sight.cache.learn_submodel(self.models.view, submodel, model);
        }
    }

    /// Updates the entry of a leaf that holds the key but has another incarnation than the entry.
    fn renew(&self, candidate: &Candidate, head: &Head) {
        let Some((position, entry)) = candidate.entry else { return };
        let Header { incarnation, count, .. } = head.header;
        let has_moved = entry.incarnation() != incarnation && !head.header.is_moving();
        if has_moved && head.holds(self.key) == Some(true) {
            let entry = Entry::new(candidate.number, incarnation, count);
            self.route.renew(&self.sight.cache, self.models.view, self.leaves.as_ref(), (position, entry));
        }
    }
}

/// Returns the state that follows a verdict on a leaf, with its rank: the most promising verdict
/// has the lowest. `None` if the leaf does not hold the key.
fn follow(number: u32, header: Header, verdict: &Verdict) -> Option<(u32, State)> {
    let again = |known| State::Look(smallvec![Candidate { number, known, entry: None }], false);
    Some(match verdict {
        Verdict::Slot(slot) => (0, State::Slot(number, *slot, header)),
        Verdict::Absent => (1, State::Header(number, header)),
        Verdict::Unproven => (2, again(Some(header.incarnation))),
        Verdict::Moving => (3, again(None)),
        Verdict::Blobs(_) | Verdict::Elsewhere => return None,
    })
}

/// Returns whether a leaf with this number can exist.
pub(crate) fn is_leaf<F: Fabric>(client: &Client<F>, index: &Descriptor, number: u32, words: usize) -> bool {
    number != 0 && is_within(client, index.leaf(number), words)
}
