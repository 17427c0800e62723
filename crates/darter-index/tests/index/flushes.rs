//! What operations of DART flush on persistent memory, if the fabric makes all writes durable.

use crate::common::{TestFabric, over};
use darter_fabric::decorate::Delay;
use darter_fabric::local::Persistence;
use darter_fabric::{Local, block_on};
use darter_index::{Condition, Dart, DartOptions, OrderedIndex, PutOutcome};
use darter_pool::{Client, Pool, PoolOptions};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

const KEYS: u64 = 1000;
/// A leaf with a key of 8 bytes and a value of this size takes more than one line and less than
/// three.
const VALUE_BYTES: usize = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The line at this address, as a line number.
    Flush(usize),
    Fence,
}

#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<Event>>);

impl Recorder {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Persistence for Recorder {
    fn flush(&self, line: &[AtomicU64]) {
        self.0.lock().unwrap().push(Event::Flush(line.as_ptr().addr() / 64));
    }

    fn fence(&self) {
        self.0.lock().unwrap().push(Event::Fence);
    }
}

fn loaded() -> (Arc<Recorder>, Dart<TestFabric>, Client<TestFabric>) {
    let recorder = Arc::new(Recorder::default());
    let memory = Local::memory_flushed(16 << 20, 2, Arc::clone(&recorder) as _).unwrap();
    let fabric = over(memory, Delay::default());
    let secret = PoolOptions { secret: Some([1, 2, 3, 4]), ..PoolOptions::default() };
    let pool = block_on(Pool::create(fabric, &secret)).unwrap();
    let mut client = pool.client().unwrap();
    let dart = block_on(Dart::open_or_create(&mut client, DartOptions::default())).unwrap();
    for number in 0..KEYS {
        let key = key(number);
        let put = dart.put(&mut client, &key, &[7; VALUE_BYTES], Condition::Always);
        assert_eq!(block_on(put).unwrap(), PutOutcome::Inserted);
    }
    (recorder, dart, client)
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

#[test]
fn an_update_flushes_the_lines_of_leaf_and_slot_and_fences_twice() {
    let (recorder, dart, mut client) = loaded();
    let mut as_wanted = 0;
    for number in 0..KEYS {
        recorder.take();
        let key = key(number);
        let put = dart.put(&mut client, &key, &[9; VALUE_BYTES], Condition::Present);
        assert_eq!(block_on(put).unwrap(), PutOutcome::Replaced);
        let events = recorder.take();
        // The allocator's and the epoch's verbs are only a few among a thousand.
        let is_wanted = match events[..] {
            [Event::Flush(leaf), Event::Flush(second), Event::Fence, Event::Flush(slot), Event::Fence] => {
                second == leaf + 1 && slot != leaf && slot != second
            }
            _ => false,
        };
        as_wanted += u64::from(is_wanted);
    }
    assert!(as_wanted > KEYS * 9 / 10, "{as_wanted} of {KEYS}");
}

#[test]
fn a_search_that_meets_nobodys_writes_flushes_nothing() {
    let (recorder, dart, mut client) = loaded();
    recorder.take();
    let mut flushed = 0;
    for number in 0..2 * KEYS {
        let found = block_on(dart.get(&mut client, &key(number))).unwrap();
        assert_eq!(found.is_some(), number < KEYS);
        flushed += u64::from(!recorder.take().is_empty());
    }
    assert!(flushed < 20, "{flushed} searches flushed, more than epochs account for");
}
