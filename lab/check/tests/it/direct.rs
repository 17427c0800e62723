//! Searches, scans and writes by loads, with other clients' operations between any two loads.
//!
//! An operation of one client is interrupted before one of its loads by several whole operations of
//! another. Its result must be that of one moment: before the first of them, between two, or after
//! the last. Pages of two or three records make most of them split, fold or collapse something.

use darter_fabric::local::hook;
use darter_fabric::{Local, block_on};
use darter_index::{Condition, OrderedIndex, PutOutcome, Quiver, QuiverOptions, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs for each seed.
const RUNS: u64 = 60;
/// Operations before the interrupted ones.
const BEFORE: usize = 40;
/// Most loads of an operation before which it is interrupted.
const LOADS: usize = 400;

#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, Vec<u8>),
    Insert(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

impl Change {
    fn drawn(dice: &mut Pcg64Mcg) -> Self {
        let key = drawn_key(dice);
        let length = if dice.random_ratio(1, 8) { 400 } else { dice.random_range(0..20) };
        let value = vec![dice.random(); length];
        match dice.random_range(0..5) {
            0 | 1 => Self::Put(key, value),
            2 => Self::Insert(key, value),
            _ => Self::Delete(key),
        }
    }

    /// Applies it to a state. Returns whether it changes or replaces anything.
    fn apply(&self, state: &mut State) -> bool {
        match self {
            Self::Put(key, value) => state.insert(key.clone(), value.clone()).is_some(),
            Self::Insert(key, value) => {
                let is_absent = !state.contains_key(key);
                if is_absent {
                    state.insert(key.clone(), value.clone());
                }
                is_absent
            }
            Self::Delete(key) => state.remove(key).is_some(),
        }
    }

    /// The same in the index.
    fn run(&self, index: &Quiver<Local>, client: &mut Client<Local>) -> bool {
        match self {
            Self::Put(key, value) => {
                block_on(index.put(client, key, value, Condition::Always)).unwrap() == PutOutcome::Replaced
            }
            Self::Insert(key, value) => {
                block_on(index.put(client, key, value, Condition::Absent)).unwrap() == PutOutcome::Inserted
            }
            Self::Delete(key) => block_on(index.delete(client, key)).unwrap(),
        }
    }
}

/// Few different keys, of several depths; some are prefixes of others.
fn drawn_key(dice: &mut Pcg64Mcg) -> Vec<u8> {
    let length = dice.random_range(0..4);
    let mut key: Vec<u8> = (0..length).map(|_| [0x11, 0x12, 0x1f, 0xf0][dice.random_range(0..4)]).collect();
    if dice.random_ratio(1, 4) {
        key.extend_from_slice(b"a long path that nodes skip");
        key.push(dice.random_range(0..3));
    }
    key
}

/// Two processes' clients of one index.
struct Clients {
    index: Quiver<Local>,
    own: Client<Local>,
    others: Rc<RefCell<(Quiver<Local>, Client<Local>)>>,
    state: State,
}

fn clients(seed: u64, is_stored: bool) -> Clients {
    let memory = if is_stored { Local::memory_as_medium(16 << 20, 2) } else { Local::memory(16 << 20, 2) };
    let options = PoolOptions { secret: Some([seed, 2, 3, 4]), ..PoolOptions::default() };
    let pool = block_on(Pool::create(memory.unwrap(), &options)).unwrap();
    let (mut own, mut other) = (pool.client().unwrap(), pool.client().unwrap());
    let options = QuiverOptions { page_records: 3, page_delta: 2, direct: true, ..QuiverOptions::default() };
    let index = block_on(Quiver::open_or_create(&mut own, options)).unwrap();
    let theirs = block_on(Quiver::open(&mut other, options)).unwrap();
    Clients { index, own, others: Rc::new(RefCell::new((theirs, other))), state: State::new() }
}

impl Clients {
    /// Runs `operation` with these changes before its load number `at`. Returns its result, and
    /// whether it came to that load.
    fn interrupted<R>(
        &mut self,
        at: usize,
        changes: &[Change],
        operation: impl FnOnce(&Quiver<Local>, &mut Client<Local>) -> R,
    ) -> (R, bool) {
        let (others, changes, loads) = (Rc::clone(&self.others), changes.to_vec(), Cell::new(0));
        let has_come = Rc::new(Cell::new(false));
        let comes = Rc::clone(&has_come);
        hook::set(Some(Box::new(move || {
            if loads.replace(loads.get() + 1) == at {
                comes.set(true);
                let (index, client) = &mut *others.borrow_mut();
                for change in &changes {
                    change.run(index, client);
                }
            }
        })));
        let result = operation(&self.index, &mut self.own);
        hook::set(None);
        (result, has_come.get())
    }

    /// The states before, between and after these changes.
    fn states(&self, changes: &[Change], has_come: bool) -> Vec<State> {
        let mut states = vec![self.state.clone()];
        for change in changes.iter().filter(|_| has_come) {
            let mut next = states[states.len() - 1].clone();
            change.apply(&mut next);
            states.push(next);
        }
        states
    }

    fn content(&mut self) -> State {
        block_on(self.index.scan(&mut self.own, &ScanRange::all(), usize::MAX)).unwrap().into_iter().collect()
    }

    fn is_sound(&mut self) {
        let report = block_on(self.index.check(&mut self.own)).unwrap();
        assert!(report.violations.is_empty(), "{:?}", report.violations);
    }
}

fn apply_all(changes: &[Change], state: &mut State) {
    for change in changes {
        change.apply(state);
    }
}

/// Draws changes, some of which are of one key.
fn drawn_changes(dice: &mut Pcg64Mcg) -> Vec<Change> {
    (0..dice.random_range(1..10)).map(|_| Change::drawn(dice)).collect()
}

fn run(seed: u64, is_stored: bool) {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut clients = clients(seed, is_stored);
    for _ in 0..BEFORE {
        let change = Change::drawn(&mut dice);
        let expected = change.apply(&mut clients.state);
        assert_eq!(change.run(&clients.index, &mut clients.own), expected, "{change:?}");
    }
    for _ in 0..RUNS {
        let (changes, at) = (drawn_changes(&mut dice), dice.random_range(0..LOADS));
        match dice.random_range(0..3) {
            0 => {
                let key = drawn_key(&mut dice);
                let at = at % 60;
                let get =
                    |index: &Quiver<Local>, client: &mut Client<Local>| block_on(index.get(client, &key));
                let (found, has_come) = clients.interrupted(at, &changes, get);
                let (found, states) = (found.unwrap(), clients.states(&changes, has_come));
                let is_right = states.iter().any(|state| state.get(&key) == found.as_ref());
                assert!(is_right, "seed {seed}: get {key:?} found {found:?}; {changes:?} before load {at}");
                clients.state = states[states.len() - 1].clone();
            }
            1 => {
                let is_reversed: bool = dice.random();
                let range = ScanRange { reverse: is_reversed, ..ScanRange::all() };
                let scan = |index: &Quiver<Local>, client: &mut Client<Local>| {
                    block_on(index.scan(client, &range, usize::MAX))
                };
                let (found, has_come) = clients.interrupted(at, &changes, scan);
                let (mut found, states) = (found.unwrap(), clients.states(&changes, has_come));
                if is_reversed {
                    found.reverse();
                }
                assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "seed {seed}: {found:?}");
                let found: State = found.into_iter().collect();
                for key in states.iter().flat_map(State::keys).chain(found.keys()) {
                    let is_right = states.iter().any(|state| state.get(key) == found.get(key));
                    assert!(
                        is_right,
                        "seed {seed}: scan found {key:?}: {:?}; {changes:?} before load {at}",
                        found.get(key)
                    );
                }
                clients.state = states[states.len() - 1].clone();
            }
            _ => {
                let own = Change::drawn(&mut dice);
                let at = at % 60;
                let change = |index: &Quiver<Local>, client: &mut Client<Local>| own.run(index, client);
                let (outcome, has_come) = clients.interrupted(at, &changes, change);
                let ends: Vec<State> = (0..=if has_come { changes.len() } else { 0 })
                    .filter_map(|moment| {
                        let mut state = clients.state.clone();
                        apply_all(&changes[..moment], &mut state);
                        let is_same = own.apply(&mut state) == outcome;
                        let later = if has_come { &changes[moment..] } else { &[] };
                        apply_all(later, &mut state);
                        is_same.then_some(state)
                    })
                    .collect();
                let content = clients.content();
                assert!(
                    ends.contains(&content),
                    "seed {seed}: {own:?} returned {outcome}, left {content:?}; {changes:?} before load {at}"
                );
                clients.state = content;
            }
        }
        assert_eq!(clients.content(), clients.state, "seed {seed}");
    }
    clients.is_sound();
}

#[test]
fn direct_operations_are_of_one_moment() {
    for seed in 0..150 {
        run(seed, seed % 3 == 0);
    }
}
