//! Searches, scans and writes by loads, with another client's round trips between any two loads.
//!
//! An operation of one client is interrupted before its loads by several operations of another: by
//! whole operations, or by single round trips, so that it also loads what an unfinished split, fold
//! or collapse has written so far. Its result must be that of one moment: before the first of them,
//! between two, or after the last. Pages of two or three records make most of them replace a page.

use darter_fabric::decorate::{Delay, Delaying};
use darter_fabric::local::hook;
use darter_fabric::{Fabric, Local, block_on};
use darter_index::{Condition, OrderedIndex, PutOutcome, Quiver, QuiverOptions, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Indexes.
const SEEDS: u64 = 600;
/// Interrupted operations of each.
const RUNS: u64 = 60;
/// Operations before the interrupted ones.
const BEFORE: usize = 40;
/// Loads of a scan before which it is interrupted first.
const LOADS: usize = 400;
/// The same for a get and a change.
const LOADS_OF_ONE_KEY: usize = 60;

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

    /// A change of the same key as one of `others`, most of the time.
    fn drawn_like(others: &[Self], dice: &mut Pcg64Mcg) -> Self {
        let mut own = Self::drawn(dice);
        if !others.is_empty() && dice.random_ratio(3, 4) {
            let other = others[dice.random_range(0..others.len())].key().to_vec();
            match &mut own {
                Self::Put(key, _) | Self::Insert(key, _) | Self::Delete(key) => *key = other,
            }
        }
        own
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Put(key, _) | Self::Insert(key, _) | Self::Delete(key) => key,
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
    async fn run<F: Fabric>(&self, index: &Quiver<F>, client: &mut Client<F>) -> bool {
        match self {
            Self::Put(key, value) => {
                index.put(client, key, value, Condition::Always).await.unwrap() == PutOutcome::Replaced
            }
            Self::Insert(key, value) => {
                index.put(client, key, value, Condition::Absent).await.unwrap() == PutOutcome::Inserted
            }
            Self::Delete(key) => index.delete(client, key).await.unwrap(),
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
    /// The other's, which is pending before each round trip.
    other: Option<Other>,
    state: State,
}

type Other = (Quiver<Delaying<Local>>, Client<Delaying<Local>>);

fn clients(seed: u64, is_stored: bool) -> Clients {
    let memory = if is_stored { Local::memory_as_medium(16 << 20, 2) } else { Local::memory(16 << 20, 2) };
    let memory = memory.unwrap();
    let options = PoolOptions { secret: Some([seed, 2, 3, 4]), ..PoolOptions::default() };
    let mut own = block_on(Pool::create(memory.clone(), &options)).unwrap().client().unwrap();
    let slow = Delaying::new(memory, Delay { pending_before: 1, ..Delay::default() });
    let mut other = block_on(Pool::open(slow)).unwrap().client().unwrap();
    let options = QuiverOptions { page_records: 3, page_delta: 2, direct: true, ..QuiverOptions::default() };
    let index = block_on(Quiver::open_or_create(&mut own, options)).unwrap();
    let theirs = block_on(Quiver::open(&mut other, options)).unwrap();
    Clients { index, own, other: Some((theirs, other)), state: State::new() }
}

/// How the changes of the other client proceed.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// Each is made as a whole, before its load.
    Whole,
    /// From the first one's load on, up to two round trips are made before each load.
    RoundTrips,
}

/// Changes that another client makes.
struct Making {
    future: Pin<Box<dyn Future<Output = Other>>>,
    progress: Rc<Progress>,
}

#[derive(Default)]
struct Progress {
    begun: Cell<usize>,
    ended: Cell<usize>,
    /// Whether no further change is to begin.
    is_over: Cell<bool>,
}

impl Making {
    fn new((index, mut client): Other, changes: Vec<Change>) -> Self {
        let progress = Rc::new(Progress::default());
        let own = Rc::clone(&progress);
        let future = Box::pin(async move {
            for change in changes {
                if own.is_over.get() {
                    break;
                }
                own.begun.set(own.begun.get() + 1);
                change.run(&index, &mut client).await;
                own.ended.set(own.ended.get() + 1);
                // A poll ends with the change.
                let mut is_polled = false;
                std::future::poll_fn(|_| {
                    if std::mem::replace(&mut is_polled, true) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            }
            (index, client)
        });
        Self { future, progress }
    }

    fn poll(&mut self) -> Poll<Other> {
        self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}

impl Clients {
    /// Runs `operation` while the other client makes changes. Returns its result, and the number of
    /// changes that began before it ended; all of them have ended then.
    fn interrupted<R>(
        &mut self,
        changes: &[(usize, Change)],
        (pace, mut dice): (Pace, Pcg64Mcg),
        operation: impl FnOnce(&Quiver<Local>, &mut Client<Local>) -> R,
    ) -> (R, usize) {
        let at: Vec<usize> = changes.iter().map(|(at, _)| *at).collect();
        let all = changes.iter().map(|(_, change)| change.clone()).collect();
        let making = Rc::new(RefCell::new(Making::new(self.other.take().unwrap(), all)));
        let progress = Rc::clone(&making.borrow().progress);
        let made = Rc::new(RefCell::new(None));
        let (count, end, maker, loads) =
            (Rc::clone(&progress), Rc::clone(&made), Rc::clone(&making), Cell::new(0));
        hook::set(Some(Box::new(move || {
            let load = loads.replace(loads.get() + 1);
            let is_due = |next: usize| at.get(next).is_some_and(|at| *at <= load);
            let step = || {
                if end.borrow().is_none()
                    && let Poll::Ready(other) = maker.borrow_mut().poll()
                {
                    end.replace(Some(other));
                }
            };
            match pace {
                Pace::Whole => {
                    while is_due(count.ended.get()) {
                        step();
                    }
                }
                Pace::RoundTrips if is_due(0) => (0..dice.random_range(0..3)).for_each(|_| step()),
                Pace::RoundTrips => {}
            }
        })));
        let result = operation(&self.index, &mut self.own);
        hook::set(None);
        progress.is_over.set(true);
        let mut other = made.take();
        while other.is_none() {
            if let Poll::Ready(ended) = making.borrow_mut().poll() {
                other = Some(ended);
            }
        }
        self.other = other;
        (result, progress.begun.get())
    }

    /// The states before, between and after changes.
    fn states(&self, changes: &[Change]) -> Vec<State> {
        let mut states = vec![self.state.clone()];
        for change in changes {
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

/// Draws changes, most of which are of keys of earlier ones, each with the load before which it is
/// made: the first before one of `loads` loads, and each before the same load as the previous one,
/// or a few loads later.
fn drawn_changes(loads: usize, dice: &mut Pcg64Mcg) -> Vec<(usize, Change)> {
    let (mut at, mut changes, mut drawn) = (dice.random_range(0..loads), Vec::new(), Vec::new());
    for _ in 0..dice.random_range(1..10) {
        let change = Change::drawn_like(&changes, dice);
        changes.push(change.clone());
        drawn.push((at, change));
        at += dice.random_range(0..3);
    }
    drawn
}

fn run(seed: u64, is_stored: bool) {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut clients = clients(seed, is_stored);
    for _ in 0..BEFORE {
        let change = Change::drawn(&mut dice);
        let expected = change.apply(&mut clients.state);
        assert_eq!(block_on(change.run(&clients.index, &mut clients.own)), expected, "{change:?}");
    }
    for _ in 0..RUNS {
        let which = dice.random_range(0..3);
        let pace = if dice.random() { Pace::Whole } else { Pace::RoundTrips };
        let pace = (pace, Pcg64Mcg::seed_from_u64(dice.random()));
        let drawn = drawn_changes(if which == 0 { LOADS } else { LOADS_OF_ONE_KEY }, &mut dice);
        let all: Vec<Change> = drawn.iter().map(|(_, change)| change.clone()).collect();
        let own = Change::drawn_like(&all, &mut dice);
        let (changes, content) = match which {
            0 => {
                let range = ScanRange { reverse: dice.random(), ..ScanRange::all() };
                let scan = |index: &Quiver<Local>, client: &mut Client<Local>| {
                    block_on(index.scan(client, &range, usize::MAX)).unwrap()
                };
                let (mut found, made) = clients.interrupted(&drawn, pace, scan);
                if range.reverse {
                    found.reverse();
                }
                assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "seed {seed}: {found:?}");
                let (found, states) = (found.into_iter().collect::<State>(), clients.states(&all[..made]));
                for key in states.iter().flat_map(State::keys).chain(found.keys()) {
                    let is_right = states.iter().any(|state| state.get(key) == found.get(key));
                    assert!(is_right, "seed {seed}: a scan found {key:?}: {:?}; {drawn:?}", found.get(key));
                }
                (&all[..made], states[states.len() - 1].clone())
            }
            1 => {
                let get = |index: &Quiver<Local>, client: &mut Client<Local>| {
                    block_on(index.get(client, own.key())).unwrap()
                };
                let (found, made) = clients.interrupted(&drawn, pace, get);
                let states = clients.states(&all[..made]);
                let is_right = states.iter().any(|state| state.get(own.key()) == found.as_ref());
                assert!(is_right, "seed {seed}: get {:?} found {found:?}; {drawn:?}", own.key());
                (&all[..made], states[states.len() - 1].clone())
            }
            _ => {
                let change =
                    |index: &Quiver<Local>, client: &mut Client<Local>| block_on(own.run(index, client));
                let (outcome, made) = clients.interrupted(&drawn, pace, change);
                let ends = (0..=made).filter_map(|moment| {
                    let mut state = clients.state.clone();
                    apply_all(&all[..moment], &mut state);
                    let is_same = own.apply(&mut state) == outcome;
                    apply_all(&all[moment..made], &mut state);
                    is_same.then_some(state)
                });
                let (ends, content) = (ends.collect::<Vec<State>>(), clients.content());
                let is_right = ends.contains(&content);
                assert!(is_right, "seed {seed}: {own:?} returned {outcome}, left {content:?}; {drawn:?}");
                (&all[..made], content)
            }
        };
        clients.state = content;
        assert_eq!(clients.content(), clients.state, "seed {seed}");
        // A key in a wrong place is found by a change, or a change puts another pair next to it.
        for change in changes.iter().rev() {
            let expected = change.apply(&mut clients.state);
            assert_eq!(
                block_on(change.run(&clients.index, &mut clients.own)),
                expected,
                "seed {seed}: {change:?}"
            );
        }
        clients.is_sound();
    }
    // Each waits until the other has freed its memory.
    let other = clients.other.take();
    std::thread::spawn(move || drop(other));
}

#[test]
fn direct_operations_are_of_one_moment() {
    for seed in 0..SEEDS {
        run(seed, seed % 3 == 0);
    }
}
