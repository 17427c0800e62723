//! Memory nodes with a log: what survives a stop and a crash, which sessions are admitted
//! afterwards, and which errors operators and clients get if the log cannot be used.

use crate::support::{Node, connect, connect_as, get, greet, greeted, hear, until, value};
use darter_fabric::wire::{self, Control, Refusal, ReplyHead, RequestHead};
use darter_fabric::{
    Batch, Durability, Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Membership, Suspect, Tcp,
    TcpOptions, block_on,
};
use darter_memnode::{Health, LogOptions, MemNode, MemNodeError, MemNodeOptions, Region, serve_metrics};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const BYTES: u64 = 1 << 20;

/// Small files, so that a test has several.
fn options() -> LogOptions {
    LogOptions { segment_bytes: 64 << 10, checkpoint_bytes: 128 << 10, ..LogOptions::default() }
}

fn region(directory: &Path) -> Result<Region, MemNodeError> {
    Region::memory(BYTES)?.logged(directory, options())
}

fn node(directory: &Path, address: &str) -> Node {
    Node::start(region(directory).unwrap(), address, MemNodeOptions::default())
}

/// A node with a slow disk: if a reply is sent before its sync, the data is missing from a copy of
/// the directory.
fn slow(directory: &Path) -> Node {
    let slow = LogOptions { loses_unsynced: Some(Duration::from_millis(200)), ..options() };
    let region = Region::memory(BYTES).unwrap().logged(directory, slow).unwrap();
    Node::start(region, "127.0.0.1:0", MemNodeOptions::default())
}

/// Returns a copy of the directory, which is at least the state after a power failure now.
fn copied(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn submit(fabric: &Tcp, fill: impl FnOnce(&mut Batch)) -> Result<Batch, FabricError> {
    let mut endpoint = fabric.endpoint().unwrap();
    let mut batch = endpoint.batch();
    fill(&mut batch);
    block_on(endpoint.submit(batch))
}

fn write(fabric: &Tcp, offset: u64, words: &[u64]) -> Result<(), FabricError> {
    let fill = |batch: &mut Batch| batch.write(GlobalAddr::new(0, offset), words);
    submit(fabric, fill).map(drop)
}

fn read(fabric: &Tcp, offset: u64, words: usize) -> Vec<u64> {
    let mut at = None;
    let done = submit(fabric, |batch| at = Some(batch.read(GlobalAddr::new(0, offset), words))).unwrap();
    done.words(at.unwrap()).to_vec()
}

#[test]
fn acknowledged_writes_outlive_a_node_that_stops() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = node(directory.path(), "127.0.0.1:0");
    let fabric = connect(&[&first], b"").unwrap();
    let id = fabric.remote_nodes().node_id(0);
    for round in 0..200 {
        write(&fabric, 64 * round, &[round + 1; 200]).unwrap();
        submit(&fabric, |batch| {
            batch.faa(GlobalAddr::new(0, BYTES - 8), 1);
            batch.cas(GlobalAddr::new(0, BYTES - 16), round, round + 1);
        })
        .unwrap();
    }
    let before = read(&fabric, 0, BYTES as usize / 8);
    first.end();
    let address = first.address.to_string();
    let second = node(directory.path(), &address);
    // An orderly stop ends no session.
    until("the session goes on", || submit(&fabric, |_| {}).is_ok() && write(&fabric, 0, &[1]).is_ok());
    assert_eq!(read(&fabric, 0, BYTES as usize / 8), before);
    assert_eq!(fabric.remote_nodes().node_id(0), id);
    assert_eq!(&before[before.len() - 2..], [200, 200]);
    drop(second);
}

#[test]
fn sessions_of_before_a_crash_are_shut_out() {
    let directory = tempfile::tempdir().unwrap();
    let first = slow(directory.path());
    let fabric = connect(&[&first], b"").unwrap();
    let held = fabric.claim(0).unwrap();
    write(&fabric, 4096, &[7; 8]).unwrap();
    // A session that never connected here, fenced because its lease has ended.
    let suspect = Suspect { slot: 1, holder: 99, lapsed: true };
    assert_eq!(fabric.fence(suspect).unwrap(), FenceOutcome::Fenced);
    let crashed = copied(directory.path());
    let mut second = node(crashed.path(), "127.0.0.1:0");
    // Each receives the reason.
    for (session, why) in [(held.holder(), Refusal::Forgotten), (99, Refusal::Fenced)] {
        let mut stream = TcpStream::connect(second.address).unwrap();
        assert_eq!(greet(&mut stream, session), why as u32, "{session}");
    }
    let newcomer = connect(&[&second], b"").unwrap();
    assert_eq!(read(&newcomer, 4096, 8), [7; 8]);
    let suspect = Suspect { slot: 0, holder: held.holder(), lapsed: false };
    assert_eq!(
        newcomer.fence(suspect).unwrap(),
        FenceOutcome::Fenced,
        "known to be dead, whatever its lease"
    );
    // After an orderly stop, the sessions from before the crash are still refused.
    second.end();
    let third = node(crashed.path(), "127.0.0.1:0");
    let mut stream = TcpStream::connect(third.address).unwrap();
    assert_eq!(greet(&mut stream, held.holder()), Refusal::Fenced as u32);
}

#[test]
fn a_value_that_was_read_survives_without_a_reply_to_its_writer() {
    let directory = tempfile::tempdir().unwrap();
    let first = slow(directory.path());
    let (writer, reader) = (connect(&[&first], b"").unwrap(), connect(&[&first], b"").unwrap());
    let crashed = std::thread::scope(|scope| {
        scope.spawn(|| write(&writer, 512, &[7]).unwrap());
        until("the word is seen", || read(&reader, 512, 1) == [7]);
        copied(directory.path())
    });
    let second = node(crashed.path(), "127.0.0.1:0");
    assert_eq!(read(&connect(&[&second], b"").unwrap(), 512, 1), [7]);
}

/// Each kind of file is damaged while the node serves. The node finds it, and writes what the files
/// should have from its memory.
#[test]
fn damage_to_the_medium_of_a_node_that_serves_is_found_and_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let fast = LogOptions { scrub_rate: 1 << 30, ..options() };
    let region = Region::memory(BYTES).unwrap().logged(directory.path(), fast).unwrap();
    let node = Node::start(region, "127.0.0.1:0", MemNodeOptions::default());
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let count =
        |metric: &str| value(&get(port.address(), "/metrics"), &format!("darter_memnode_{metric}_total"));
    let tcp = connect(&[&node], b"").unwrap();
    let mut round = 0;
    let mut write_some = || {
        round += 1;
        (0..64).for_each(|at| write(&tcp, at * 1024, &[round + at; 64]).unwrap());
    };
    until("there is a checkpoint", || {
        write_some();
        count("checkpoints") > 0
    });
    for prefix in ["image-", "segment-", "checkpoint"] {
        let (before, scrubs) = (count("log_damages"), count("log_scrubs"));
        until("the medium is sound", || count("log_scrubs") > scrubs + 1);
        assert_eq!(count("log_damages"), before, "damage where there is none");
        // Of the images one is not in use, and of the segments those before the checkpoint.
        until("the damage is found", || {
            for entry in std::fs::read_dir(directory.path()).unwrap() {
                let path = entry.unwrap().path();
                if path.file_name().unwrap().to_string_lossy().starts_with(prefix) {
                    flip(&path, if prefix == "image-" { 1 << 10 } else { 4096 + 100 });
                }
            }
            write_some();
            std::thread::sleep(Duration::from_millis(100));
            count("log_damages") > before
        });
        let scrubs = count("log_scrubs");
        until("it is repaired", || count("log_scrubs") > scrubs);
    }
    let before = read(&tcp, 0, BYTES as usize / 8);
    let copy = copied(directory.path());
    let again = self::node(copy.path(), "127.0.0.1:0");
    assert_eq!(read(&connect(&[&again], b"").unwrap(), 0, BYTES as usize / 8), before);
}

/// Changes one bit of a file, if it is long enough. The node may replace the file at any time.
fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let Ok(file) = std::fs::OpenOptions::new().read(true).write(true).open(path) else { return };
    let at = at.min(file.metadata().map_or(0, |metadata| metadata.len().saturating_sub(1)));
    let mut byte = [0];
    if file.read_exact_at(&mut byte, at).is_ok() {
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }
}

#[test]
fn checkpoints_bound_the_log_and_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let first = node(directory.path(), "127.0.0.1:0");
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&first.metrics)).unwrap();
    let fabric = connect(&[&first], b"").unwrap();
    let made = || value(&get(port.address(), "/metrics"), "darter_memnode_checkpoints_total");
    let mut round = 0;
    until("several checkpoints are made", || {
        for _ in 0..100 {
            round += 1;
            write(&fabric, round * 192 % (BYTES - 4096), &[round; 32]).unwrap();
        }
        made() >= 4
    });
    let before = read(&fabric, 0, BYTES as usize / 8);
    let segments = std::fs::read_dir(directory.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("segment-"));
    assert!(segments.count() < 12);
    let crashed = copied(directory.path());
    let second = node(crashed.path(), "127.0.0.1:0");
    assert_eq!(read(&connect(&[&second], b"").unwrap(), 0, BYTES as usize / 8), before);
    let page = get(port.address(), "/metrics");
    assert!(value(&page, "darter_memnode_log_syncs_total") > 0);
    assert!(value(&page, "darter_memnode_log_released_total") >= round);
    assert_eq!(value(&page, "darter_memnode_failed_checkpoints_total"), 0);
    assert_eq!(value(&page, "darter_memnode_log_held_bytes"), 0);
}

#[test]
fn a_log_that_cannot_be_used_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let mut held = node(directory.path(), "127.0.0.1:0");
    let error = region(directory.path()).unwrap_err().to_string();
    assert!(error.contains("it is open in another process"), "{error}");
    write(&connect(&[&held], b"").unwrap(), 64, &[1]).unwrap();
    held.end();
    let larger = Region::memory(2 * BYTES).unwrap().logged(directory.path(), options());
    let error = larger.unwrap_err().to_string();
    assert!(error.contains("a region of 1M"), "{error}");
    let with_device = MemNodeOptions { device: Some("rxe0".parse().unwrap()), ..MemNodeOptions::default() };
    let error = MemNode::bind("127.0.0.1:0".parse().unwrap(), region(directory.path()).unwrap(), with_device);
    assert!(error.unwrap_err().to_string().contains("bypass the log"));
    let file = directory.path().join("file");
    let error = Region::file(&file, BYTES).unwrap().logged(directory.path(), options()).unwrap_err();
    assert!(error.to_string().contains("a region in a file"), "{error}");
    std::fs::write(directory.path().join("checkpoint"), b"nonsense").unwrap();
    let error = region(directory.path()).unwrap_err().to_string();
    assert!(error.contains("checkpoint") && error.contains("restore"), "{error}");
    std::fs::remove_file(directory.path().join("checkpoint")).unwrap();
    let error = region(directory.path()).unwrap_err().to_string();
    assert!(error.contains("is missing"), "{error}");
}

#[test]
fn a_node_whose_log_fails_says_so_and_acknowledges_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut first = node(&path, "127.0.0.1:0");
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&first.metrics)).unwrap();
    let fabric = connect(&[&first], b"").unwrap();
    let mut other = greeted(&first, 5);
    write(&fabric, 64, &[1]).unwrap();
    assert_eq!(get(port.address(), "/healthz").lines().last(), Some("serving"));
    // The next segment cannot be created.
    std::fs::remove_dir_all(&path).unwrap();
    let mut told = None;
    for round in 0..64 {
        if let Err(error) = write(&fabric, 4096, &[round; 512]) {
            told = Some(error);
            break;
        }
    }
    let told = told.expect("a segment is full");
    assert!(matches!(told, FabricError::NotDurable(_)), "{told:?}");
    assert!(told.to_string().contains("cannot write the log: "), "{told}");
    assert_eq!(first.metrics.health(), Health::LogFailed);
    assert!(get(port.address(), "/healthz").contains("503"));
    // Other clients get the error too, for every request, and no client is admitted.
    let head = RequestHead { kind: 5, reserved: 0, verbs: 0, bytes: 16, id: 9 };
    other
        .write_all(&[wire::as_bytes(&head), wire::as_bytes(&Control { number: 0, flag: 0 })].concat())
        .unwrap();
    let reply: ReplyHead = hear(&mut other);
    assert_eq!((reply.refusal, reply.id), (Refusal::NotDurable as u8, 9));
    let mut text = vec![0; reply.bytes as usize];
    other.read_exact(&mut text).unwrap();
    assert!(String::from_utf8(text).unwrap().contains("restart the node"));
    assert!(matches!(connect(&[&first], b""), Err(FabricError::NotDurable(_))));
    first.stop.ask();
    assert!(first.ended().is_err());
}

#[test]
fn a_pool_that_must_be_durable_takes_durable_nodes_only() {
    let directory = tempfile::tempdir().unwrap();
    let (logged, plain) = (node(directory.path(), "127.0.0.1:0"), Node::small(MemNodeOptions::default()));
    let must = || TcpOptions { must_be_durable: true, ..TcpOptions::default() };
    let fabric = connect_as(&[&logged], must()).unwrap();
    let promised = |fabric: &Tcp| (fabric.capabilities().durability, fabric.capabilities().persistent);
    assert_eq!(promised(&fabric), (Durability::OnCompletion, true));
    let error = connect_as(&[&logged, &plain], must()).unwrap_err().to_string();
    assert!(error.contains(&plain.address.to_string()) && error.contains("is not durable"), "{error}");
    assert!(fabric.remote_nodes().add_node(1, &plain.address.to_string()).is_err());
    let mixed = connect(&[&logged, &plain], b"").unwrap();
    assert_eq!(promised(&mixed), (Durability::Never, false));
}

#[test]
fn a_node_whose_disk_is_slow_takes_no_more_than_it_may_hold() {
    const FRAMES: u64 = 400;
    const WORDS: usize = 512;
    let directory = tempfile::tempdir().unwrap();
    let bound = LogOptions { queue_bytes_max: 16 << 10, ..LogOptions::default() };
    let region = Region::memory(BYTES).unwrap().logged(directory.path(), bound).unwrap();
    let node = Node::start(region, "127.0.0.1:0", MemNodeOptions::default());
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let mut stream = greeted(&node, 5);
    let mut frames = Vec::new();
    for id in 0..FRAMES {
        let mut batch = Batch::new();
        batch.write(GlobalAddr::new(0, 4096 * (id % 16)), &[id; WORDS]);
        let mut verbs = Vec::new();
        let (list, data) = batch.parts_mut();
        for verb in list {
            wire::put_verb(&mut verbs, verb, data);
        }
        let head = RequestHead { kind: 1, reserved: 0, verbs: 1, bytes: verbs.len() as u32, id };
        frames.extend_from_slice(wire::as_bytes(&head));
        frames.extend(verbs);
    }
    std::thread::scope(|scope| {
        let mut reader = stream.try_clone().unwrap();
        scope.spawn(move || stream.write_all(&frames).unwrap());
        for id in 0..FRAMES {
            let reply: ReplyHead = hear(&mut reader);
            assert_eq!((reply.refusal, reply.bytes, reply.id), (0, 0, id));
        }
    });
    // No sync serves more than the maximum waiting and one frame.
    let syncs = value(&get(port.address(), "/metrics"), "darter_memnode_log_syncs_total");
    assert!(syncs >= FRAMES / 6, "{syncs} syncs for {FRAMES} frames of 4 KiB");
}
