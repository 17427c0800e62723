//! Batches on memory whose flushes and fences are recorded, with the state at each of them.

use super::*;
use crate::local::{FileOptions, Local};
use crate::{Batch, Durability, Endpoint, Fabric, FabricError, GlobalAddr, block_on};
use crate::{SUPERBLOCK_MAGIC, SUPERBLOCK_NODE_BYTES_WORD, SUPERBLOCK_NODES_WORD};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

const NODE_BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The line that begins at this word of the pool.
    Flush(usize),
    Fence,
}

type Hook = Box<dyn FnMut(Event) + Send>;

/// Keeps the lines that were flushed and fenced, as a medium does.
#[derive(Default)]
struct Recorder {
    /// The address of the pool's first word.
    base: Mutex<usize>,
    events: Mutex<Vec<Event>>,
    /// Lines that were flushed and not fenced, and lines on the medium.
    pending: Mutex<BTreeMap<usize, Vec<u64>>>,
    medium: Mutex<BTreeMap<usize, Vec<u64>>>,
    /// Runs at each event, before it has any effect.
    hook: Mutex<Option<Hook>>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

impl Recorder {
    fn record(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        // Events caused by the hook are recorded, but do not run the hook.
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(event);
            *self.hook.lock().unwrap() = Some(hook);
        }
    }

    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }
}

impl Persistence for Recorder {
    fn flush(&self, line: &[AtomicU64]) {
        assert_eq!((line.len(), line.as_ptr().addr() % 64), (LINE_WORDS, 0));
        let word = (line.as_ptr().addr() - *self.base.lock().unwrap()) / 8;
        self.record(Event::Flush(word));
        let held = line.iter().map(|word| word.load(Ordering::Acquire)).collect();
        self.pending.lock().unwrap().insert(word, held);
    }

    fn fence(&self) {
        self.record(Event::Fence);
        self.medium.lock().unwrap().append(&mut self.pending.lock().unwrap());
    }
}

fn pool() -> (Local, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let pool = Local::memory_flushed(NODE_BYTES, 2, Arc::clone(&recorder) as _).unwrap();
    *recorder.base.lock().unwrap() = all_words(&pool).as_ptr().addr();
    (pool, recorder)
}

fn all_words(pool: &Local) -> &[AtomicU64] {
    pool.pool.regions.mapping().words()
}

fn counters(pool: &Local) -> Counters<'_> {
    pool.pool.flushing.as_ref().unwrap().counters(pool.pool.regions.mapping())
}

fn at(word: usize) -> GlobalAddr {
    GlobalAddr::new(0, word as u64 * 8)
}

fn submit(pool: &Local, fill: impl FnOnce(&mut Batch)) -> Result<Batch, FabricError> {
    let mut endpoint = pool.endpoint().unwrap();
    let mut batch = endpoint.batch();
    fill(&mut batch);
    block_on(endpoint.submit(batch))
}

/// Submits a batch; returns each event with the value of a word at that time, and the number of
/// raised counters of the first lines.
fn watched(word: usize, fill: impl FnOnce(&mut Batch)) -> Vec<(Event, u64, usize)> {
    let (pool, recorder) = pool();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (there, told) = (pool.clone(), Arc::clone(&seen));
    *recorder.hook.lock().unwrap() = Some(Box::new(move |event| {
        let raised = (0..64).filter(|&line| counters(&there).is_raised(line)).count();
        told.lock().unwrap().push((event, all_words(&there)[word].load(Ordering::SeqCst), raised));
    }));
    submit(&pool, fill).unwrap();
    *recorder.hook.lock().unwrap() = None;
    assert!((0..64).all(|line| !counters(&pool).is_raised(line)), "all counters are lowered at the end");
    std::mem::take(&mut *seen.lock().unwrap())
}

#[test]
fn a_cas_executes_when_the_writes_before_it_are_fenced() {
    let events = watched(7, |batch| {
        batch.write(at(68), &[9; 12]);
        batch.cas(at(7), 0, 42);
    });
    let wanted = [
        (Event::Flush(64), 0, 2),
        (Event::Flush(72), 0, 2),
        (Event::Fence, 0, 2),
        (Event::Flush(0), 42, 1),
        (Event::Fence, 42, 1),
    ];
    assert_eq!(events, wanted);
}

#[test]
fn a_faa_executes_when_the_writes_before_it_are_fenced() {
    let events = watched(7, |batch| {
        batch.write(at(64), &[9]);
        batch.faa(at(7), 5);
    });
    let wanted =
        [(Event::Flush(64), 0, 1), (Event::Fence, 0, 1), (Event::Flush(0), 5, 1), (Event::Fence, 5, 1)];
    assert_eq!(events, wanted);
}

#[test]
fn writes_reach_the_medium_in_posting_order() {
    let events = watched(128, |batch| {
        batch.write(at(64), &[9; 8]);
        batch.write(at(128), &[7]);
        batch.read(at(64), 1);
    });
    let posted = [(Event::Flush(64), 0, 1), (Event::Fence, 0, 1), (Event::Flush(128), 7, 1)];
    assert_eq!(events[..3], posted);
    assert_eq!(events.last(), Some(&(Event::Fence, 7, 1)));
}

#[test]
fn a_fenced_verb_executes_when_all_before_it_is_fenced() {
    let after = |is_fenced: bool| {
        let events = watched(128, |batch| {
            batch.cas(at(64), 0, 9);
            if is_fenced {
                batch.fence();
            }
            batch.faa(at(128), 7);
        });
        events.iter().filter(|(event, ..)| *event == Event::Fence).map(|event| event.1).collect::<Vec<_>>()
    };
    assert_eq!(after(true), [0, 7]);
    assert_eq!(after(false), [7], "a CAS need not be on the medium before the next verb");
}

#[test]
fn a_reader_without_concurrent_writes_flushes_nothing() {
    let (pool, recorder) = pool();
    submit(&pool, |batch| {
        batch.write(at(0), &[1; 100]);
    })
    .unwrap();
    recorder.take();
    let done = submit(&pool, |batch| {
        batch.read(at(0), 100);
        batch.cas(at(3), 77, 78);
    });
    done.unwrap();
    assert_eq!(recorder.take(), []);
}

#[test]
fn volatile_words_are_not_flushed_by_anyone() {
    let (pool, recorder) = pool();
    submit(&pool, |batch| {
        batch.volatile().write(at(0), &[7]);
        batch.volatile().cas(at(0), 7, 8);
        batch.volatile().cas(at(0), 7, 9);
        batch.volatile().faa(at(0), 1);
    })
    .unwrap();
    submit(&pool, |batch| _ = batch.read(at(0), 8)).unwrap();
    assert_eq!(recorder.take(), []);
    assert_eq!(all_words(&pool)[0].load(Ordering::Acquire), 9);
    // The batch's other words are flushed, before a fenced verb is executed.
    let seen = watched(64, |batch| {
        batch.write(at(8), &[1]);
        batch.fence().volatile().write(at(64), &[5]);
    });
    assert_eq!(
        seen.iter().map(|(event, held, _)| (*event, *held)).collect::<Vec<_>>(),
        [(Event::Flush(8), 0), (Event::Fence, 0)]
    );
}

#[test]
fn the_count_of_a_dead_writer_costs_flushes_and_nothing_else() {
    let (pool, recorder) = pool();
    // The writer was killed after its store.
    counters(&pool).raise(8..9);
    all_words(&pool)[64].store(5, Ordering::Release);
    for _ in 0..2 {
        let mut id = None;
        let done = submit(&pool, |batch| id = Some(batch.read(at(56), 24))).unwrap();
        assert_eq!(done.words(id.unwrap())[8], 5);
        assert_eq!(recorder.take(), [Event::Flush(64), Event::Fence]);
        assert_eq!(recorder.medium.lock().unwrap()[&64][0], 5);
    }
    let mut id = None;
    let done = submit(&pool, |batch| id = Some(batch.cas(at(64), 4, 6))).unwrap();
    assert!(!done.swapped(id.unwrap()));
    assert_eq!(recorder.take(), [Event::Flush(64), Event::Fence], "a CAS that failed has seen a word");
    submit(&pool, |batch| {
        batch.cas(at(64), 5, 6);
    })
    .unwrap();
    assert_eq!(recorder.take(), [Event::Flush(64), Event::Fence]);
}

#[test]
fn a_reader_during_a_write_flushes_first() {
    for (is_cas, when) in [(false, Event::Flush(64)), (false, Event::Fence), (true, Event::Fence)] {
        let (pool, recorder) = pool();
        let (other, told) = (pool.clone(), Arc::clone(&recorder));
        let reads = Arc::new(Mutex::new(Vec::new()));
        let done = Arc::clone(&reads);
        *recorder.hook.lock().unwrap() = Some(Box::new(move |event| {
            if event != when {
                return;
            }
            told.take();
            let mut id = None;
            let read = submit(&other, |batch| id = Some(batch.read(at(64), 1))).unwrap();
            let durable = told.medium.lock().unwrap().get(&64).map(|line| line[0]);
            done.lock().unwrap().push((read.words(id.unwrap())[0], durable, told.take()));
        }));
        submit(&pool, |batch| {
            if is_cas {
                batch.cas(at(64), 0, 9);
            } else {
                batch.write(at(64), &[9]);
            }
        })
        .unwrap();
        *recorder.hook.lock().unwrap() = None;
        let flushed = vec![Event::Flush(64), Event::Fence];
        assert_eq!(*reads.lock().unwrap(), [(9, Some(9), flushed)], "{is_cas} {when:?}");
    }
}

#[test]
fn a_batch_that_fails_leaves_nothing_unflushed() {
    let (pool, recorder) = pool();
    let failed = submit(&pool, |batch| {
        batch.write(at(64), &[9]);
        batch.read(at(NODE_BYTES as usize), 1);
    });
    assert!(failed.unwrap_err().is_bad_address());
    assert_eq!(recorder.take(), [Event::Flush(64), Event::Fence]);
    assert!(!counters(&pool).is_raised(8));
}

#[test]
fn everything_written_is_on_the_medium_after_each_batch() {
    let (pool, recorder) = pool();
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for value in 1..500 {
        submit(&pool, |batch| {
            for _ in 0..=next(4) {
                let (node, word) = (next(2) as u8, next(200));
                let addr = GlobalAddr::new(node, word as u64 * 8);
                match next(4) {
                    0 => drop(batch.read(addr, next(30) + 1)),
                    1 => batch.write(addr, &vec![value; next(30) + 1]),
                    2 => drop(batch.cas(addr, 0, value)),
                    _ => drop(batch.faa(addr, value)),
                }
            }
        })
        .unwrap();
        let medium = recorder.medium.lock().unwrap();
        for (at, line) in all_words(&pool)[..2 * NODE_BYTES as usize / 8].chunks(LINE_WORDS).enumerate() {
            let held: Vec<u64> = line.iter().map(|word| word.load(Ordering::Relaxed)).collect();
            let durable = medium.get(&(at * LINE_WORDS));
            assert!(durable.map_or_else(|| held == [0; LINE_WORDS], |line| *line == held), "line {at}");
        }
    }
}

#[test]
fn many_at_once_lower_all_that_they_raise() {
    let (pool, _) = pool();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for at_word in 0..200 {
                    submit(&pool, |batch| {
                        batch.write(at(at_word % 20 + 8), &[1; 30]);
                        batch.faa(at(0), 1);
                        batch.read(at(0), 64);
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(all_words(&pool)[0].load(Ordering::Relaxed), 600);
    assert!((0..64).all(|line| !counters(&pool).is_raised(line)));
}

#[test]
fn a_flushed_pool_says_so() {
    let (flushed, _) = pool();
    assert_eq!(flushed.capabilities().durability, Durability::OnCompletion);
    assert_eq!(Local::memory(NODE_BYTES, 1).unwrap().capabilities().durability, Durability::Never);
    assert_eq!(flushed.endpoint().unwrap().peek(at(0)), None, "a peek does not flush the word that it reads");
}

#[cfg(feature = "tcp")]
#[test]
fn frames_are_refused_as_they_are_not_flushed() {
    let (pool, _) = pool();
    let endpoint = pool.endpoint().unwrap();
    let refused = endpoint.store_words(0, &[0; 8]).unwrap_err().to_string();
    assert!(refused.contains("cannot be served"), "{refused}");
    assert!(endpoint.copy_words(0, &mut [0; 8]).is_err());
    assert!(pool.check_pinnable().is_err());
}

/// Creates a file that begins like a pool of one node, with words after its region.
fn file_with(path: &Path, behind: Option<u64>) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(NODE_BYTES + TABLE_BYTES as u64).unwrap();
    let word = |at: u64, value: u64| file.write_all_at(&value.to_le_bytes(), at).unwrap();
    word(0, SUPERBLOCK_MAGIC);
    word(SUPERBLOCK_NODES_WORD as u64 * 8, 1);
    word(SUPERBLOCK_NODE_BYTES_WORD as u64 * 8, NODE_BYTES);
    word(NODE_BYTES, behind.unwrap_or(0));
}

#[test]
#[cfg_attr(miri, ignore)] // Miri cannot map files
fn a_file_of_flushing_clients_is_not_opened_without_flushing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    file_with(&path, None);
    Local::file_open(&path).unwrap();
    file_with(&path, Some(MARK));
    for refused in [Local::file_open(&path), Local::file_snapshot(&path)] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("`?durability=flush`"), "{refused}");
    }
}

#[test]
#[cfg_attr(any(miri, not(target_arch = "x86_64")), ignore)] // no flushes, or no mapped files
fn an_ordinary_file_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let named = |refused: Result<Local, FabricError>| {
        let refused = refused.unwrap_err().to_string();
        for way in ["-o dax", "DAX device", "--durability log"] {
            assert!(refused.contains(way), "{refused}");
        }
    };
    let options = FileOptions { flush: true, overwrite: true, ..FileOptions::default() };
    named(Local::file_create_with(&path, NODE_BYTES, 1, &options));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "nothing was created");
    file_with(&path, Some(MARK));
    named(Local::file_open_flushed(&path));
    named(Local::file_create_with(&path, NODE_BYTES, 1, &options));
    let left = std::fs::metadata(&path).unwrap().len();
    assert_eq!(left, NODE_BYTES + TABLE_BYTES as u64, "nothing was emptied");
}
