//! The stress's logs: errors of torn and damaged ones, and detection of a wrong result in one.

use darter::{IndexKind, PoolUrl, Store};
use darter_check::elle::{End, Step};
use darter_check::history::{Action, Outcome};
use darter_check::stress::collect::Collected;
use darter_check::stress::judge::judge;
use darter_check::stress::keys::{KeySet, UNKNOWN_VALUE};
use darter_check::stress::log::{Call, Entry, LogError, LogWriter, RECORD_BYTES, Record, Refusal};
use darter_check::stress::log_reader;
use darter_check::stress::worker::{WorkerConfig, serve};
use darter_check::stress::{Site, SubjectKind};
use darter_fabric::decorate::Jitter;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

const KEYS: u32 = 4;

/// Writes a log with every kind of record; the last operation has no end. Returns its bytes too.
fn sample(directory: &Path) -> (PathBuf, Vec<u8>) {
    let path = directory.join("sample.log");
    let mut log = LogWriter::create(path.clone(), 7).unwrap();
    log.begin(Call::Insert, 1, 100, 0).unwrap();
    log.end(1, Entry::End(Outcome::Inserted)).unwrap();
    log.begin(Call::MultiGet, 0, 0, 0).unwrap();
    log.end_reads(&[(1, Some(100)), (3, None)]).unwrap();
    log.begin(Call::Replace, 2, 101, 100).unwrap();
    log.end(2, Entry::Failed(Refusal::OutOfSpace)).unwrap();
    log.begin(Call::Delete, 1, 0, 0).unwrap();
    drop(log);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 8 * RECORD_BYTES);
    (path, bytes)
}

fn read(path: &Path) -> Result<Collected, LogError> {
    let mut collected = Collected::new(KEYS);
    log_reader::read(path, &mut collected).map(|()| collected)
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _) = sample(directory.path());
    let collected = read(&path).unwrap();
    assert_eq!(
        (collected.operations(), collected.pending, collected.out_of_space, collected.torn),
        (4, 1, 1, 0)
    );
    assert_eq!(collected.calls(Call::MultiGet), 1);
    let histories = collected.histories();
    assert_eq!(histories.iter().map(Vec::len).collect::<Vec<_>>(), [0, 3, 0, 1]);
    let [insert, get, delete] = histories[1][..] else { panic!("{histories:?}") };
    assert_eq!((insert.client, insert.action), (7, Action::Insert(100)));
    assert!(insert.returned.unwrap().0 <= get.invoked);
    assert_eq!(get.returned.unwrap().1, Outcome::Found(Some(100)));
    assert_eq!((delete.action, delete.returned), (Action::Delete, None));
    // The operation found no space, so it changed nothing and does not belong to the history.
    assert_eq!(histories[2], []);
    assert!(read(&directory.path().join("absent.log")).unwrap().operations() == 0);
}

/// The elements that a transaction found count only if its last record is there: a kill can cut
/// them short.
#[test]
fn transactions_are_read_as_they_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("transactions.log");
    let mut log = LogWriter::create(path.clone(), 7).unwrap();
    // Of generation 5: an append to the second of four lists, which found two elements in the
    // first; one that was rolled back; one whose end was cut short; a transfer that found too much.
    log.begin(Call::Append, 0, 100, 2 << 32 | 5).unwrap();
    log.end_reads(&[(0, Some(8)), (0, Some(9)), (1, None)]).unwrap();
    log.end(0, Entry::End(Outcome::Replaced)).unwrap();
    log.begin(Call::Append, 0, 101, 1 << 32 | 5).unwrap();
    log.end(0, Entry::End(Outcome::Refused)).unwrap();
    log.begin(Call::Transfer, 0, 0, 0).unwrap();
    log.end(0, Entry::End(Outcome::Found(Some(8001)))).unwrap();
    log.begin(Call::Append, 0, 102, 1 << 32 | 5).unwrap();
    log.end_reads(&[(0, Some(8))]).unwrap();
    drop(log);
    let collected = read(&path).unwrap();
    assert_eq!((collected.operations(), collected.histories().iter().flatten().count()), (4, 0));
    let [committed, rolled_back, cut] = &collected.appends[..] else { panic!("{:?}", collected.appends) };
    let read = |list, elements: &[u64]| Step::Read { list, elements: elements.to_vec() };
    assert_eq!(committed.steps, [read(21, &[]), read(20, &[8, 9]), Step::Append { list: 21, element: 100 }]);
    assert!(matches!((committed.end, rolled_back.end), (End::Committed(_), End::Aborted(_))));
    assert_eq!(cut.end, End::Unknown);
    assert!(collected.wrong_sums[0].contains("8001"), "{:?}", collected.wrong_sums);
}

/// Single operations on lists are transactions of one operation; a scan is one for each list.
#[test]
fn single_operations_on_lists_are_read_as_transactions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lists.log");
    let mut log = LogWriter::create(path.clone(), 7).unwrap();
    log.begin(Call::ListPut, 0, 100, 2 << 32 | 5).unwrap();
    log.end(0, Entry::End(Outcome::Replaced)).unwrap();
    log.begin(Call::ListReplace, 0, 101, 2 << 32 | 5).unwrap();
    log.end_reads(&[(1, Some(100))]).unwrap();
    log.end(0, Entry::End(Outcome::Replaced)).unwrap();
    log.begin(Call::ListScan, 0, 0, 5).unwrap();
    log.end_reads(&[(0, None), (1, Some(100)), (1, Some(101))]).unwrap();
    log.end(0, Entry::End(Outcome::Replaced)).unwrap();
    log.begin(Call::ListPut, 0, 102, 1 << 32 | 5).unwrap();
    log.end(0, Entry::Failed(Refusal::OutOfSpace)).unwrap();
    drop(log);
    let collected = read(&path).unwrap();
    let [put, replace, scanned @ .., failed] = &collected.appends[..] else { panic!() };
    let read = |list, elements: &[u64]| Step::Read { list, elements: elements.to_vec() };
    assert_eq!(put.steps, [Step::Put { list: 21, element: 100 }]);
    assert_eq!(replace.steps, [read(21, &[100]), Step::Append { list: 21, element: 101 }]);
    let scanned: Vec<_> = scanned.iter().map(|one| (&one.steps[..], one.end == scanned[0].end)).collect();
    assert_eq!(scanned, [(&[read(21, &[100, 101])][..], true), (&[read(20, &[])][..], true)]);
    assert!(matches!((put.end, failed.end), (End::Committed(_), End::Aborted(_))));
}

/// A log cut to any length is a valid prefix.
#[test]
fn a_torn_log_loses_its_last_record_only() {
    let directory = tempfile::tempdir().unwrap();
    let (path, bytes) = sample(directory.path());
    for length in 0..=bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let collected = read(&path).unwrap();
        assert_eq!(collected.torn, u64::from(length % RECORD_BYTES != 0), "{length} bytes");
        let begun = [0, 1, 1, 2, 2, 2, 3, 3, 4][length / RECORD_BYTES];
        assert_eq!(collected.operations(), begun, "{length} bytes");
    }
    // The file was extended, but the bytes were not written yet.
    let last = bytes.len() - RECORD_BYTES;
    fs::write(&path, [&bytes[..last], &[0; RECORD_BYTES]].concat()).unwrap();
    let collected = read(&path).unwrap();
    assert_eq!((collected.operations(), collected.torn), (3, 1));
}

#[test]
fn a_damaged_log_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let (path, bytes) = sample(directory.path());
    let damaged = |bytes: &[u8], record: u64, word: &str| {
        fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(error, LogError::Damaged { record: found, .. } if found == record), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    // Any flipped bit of a record other than the last.
    for bit in 0..RECORD_BYTES * 8 {
        let mut bytes = bytes.clone();
        bytes[2 * RECORD_BYTES + bit / 8] ^= 1 << (bit % 8);
        damaged(&bytes, 2, "not a valid record");
    }
    let records: Vec<[u8; RECORD_BYTES]> = bytes.as_chunks().0.to_vec();
    let without = |index: usize| {
        records.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, r)| *r).collect::<Vec<_>>()
    };
    damaged(without(0).as_flattened(), 0, "did not begin");
    damaged(without(1).as_flattened(), 1, "in the middle");
    damaged(without(2).as_flattened(), 2, "another operation");
    let mut swapped = records.clone();
    swapped.swap(1, 0);
    damaged(swapped.as_flattened(), 0, "did not begin");
    let mut twice = records.clone();
    twice.insert(2, records[1]);
    damaged(twice.as_flattened(), 2, "twice");
    let changed = |index: usize, record: u64, word: &str, change: &dyn Fn(&mut Record)| {
        let mut record_there = Record::from_bytes(&records[index]).unwrap();
        change(&mut record_there);
        let mut records = records.clone();
        records[index] = record_there.to_bytes();
        damaged(records.as_flattened(), record, word);
    };
    changed(1, 1, "another kind", &|record| record.entry = Entry::End(Outcome::Deleted(true)));
    changed(1, 1, "another key", &|record| record.key = 2);
    changed(1, 1, "does not exist", &|record| record.key = KEYS);
    changed(1, 1, "another operation", &|record| record.client = 8);
    changed(2, 2, "missing", &|record| record.sequence = 3);
    changed(2, 2, "older", &|record| record.time = 0);
}

/// The threads of two processes work for a while and are checked; then each of their logs is
/// falsified.
#[test]
fn a_falsified_outcome_is_a_violation() {
    let directory = tempfile::tempdir().unwrap();
    let pool = PoolUrl::file(directory.path().join("pool"));
    let options = Store::options().index(IndexKind::Dart).block_bytes(256 << 10);
    drop(options.open(pool.clone().sized(64 << 20, 1)).unwrap());
    let configs = [1, 2].map(|life| WorkerConfig {
        pool: Site::plain(pool.clone(), SubjectKind::Dart),
        logs: directory.path().to_owned(),
        life,
        slot: 0,
        threads: 2,
        keys: KEYS,
        seed: 5,
        coordinator: std::process::id(),
        jitter: Jitter { share: 0.05, longest: Duration::from_millis(2), seed: 3 },
        large_values: false,
        transactions: false,
    });
    let logs: Vec<PathBuf> =
        configs.iter().flat_map(|config| (0..config.threads).map(|thread| config.log(thread))).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers = configs.each_ref().map(|config| scope.spawn(|| serve(config, &stop).unwrap()));
        // Enough for each thread to have results.
        let is_long = |log: &PathBuf| fs::metadata(log).is_ok_and(|log| log.len() > 64 << 10);
        while !logs.iter().all(is_long) && !workers.iter().any(ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let keys = KeySet::new(KEYS);
    let judged = || {
        let mut collected = Collected::new(KEYS);
        for path in &logs {
            log_reader::read(path, &mut collected).unwrap();
        }
        assert!(collected.operations() > 400);
        judge(&keys, &collected, &BTreeMap::new())
    };
    let judgement = judged();
    assert!(judgement.failures.is_empty(), "{}", judgement.failures[0].excerpt());
    for (path, lie) in logs.iter().zip([UNKNOWN_VALUE, UNKNOWN_VALUE - 1, 12345, 0]) {
        let bytes = fs::read(path).unwrap();
        let mut records: Vec<[u8; RECORD_BYTES]> = bytes.as_chunks().0.to_vec();
        let is_search = |record: &Record| matches!(record.entry, Entry::End(Outcome::Found(_)));
        let searched = |bytes| Record::from_bytes(bytes).filter(is_search);
        let at = records.iter().rposition(|bytes| searched(bytes).is_some()).unwrap();
        let mut record = searched(&records[at]).unwrap();
        record.entry = Entry::End(Outcome::Found(Some(lie)));
        records[at] = record.to_bytes();
        fs::write(path, records.as_flattened()).unwrap();
        let judgement = judged();
        let [failure] = &judgement.failures[..] else { panic!("{} failures", judgement.failures.len()) };
        assert!(failure.is_violation);
        assert_eq!(failure.rank, record.key);
        let told = format!("found {lie}");
        assert!(
            failure.excerpt().lines().any(|line| line.trim_start().starts_with('!') && line.contains(&told))
        );
        fs::write(path, bytes).unwrap();
    }
}
