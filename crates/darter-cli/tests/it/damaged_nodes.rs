//! Memory nodes that are killed and restarted with damaged files: a node refuses to start and names
//! a file, or serves all acknowledged writes.
//!
//! `DARTER_DAMAGES` sets the number of damages. A different `DARTER_DAMAGE_SEED` damages other
//! places.

use crate::damage::{HANGS_AFTER, SECTOR_BYTES};
use crate::scene::{finish, program};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Default number of cases: each kind of damage once.
const DAMAGES: usize = WAYS.len();

/// A way to damage the file of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Bit,
    ZeroedSector,
    RandomSector,
    SwappedSectors,
    Cut,
    Emptied,
    Missing,
    OtherNodes,
}

const WAYS: [Way; 8] = [
    Way::Bit,
    Way::ZeroedSector,
    Way::RandomSector,
    Way::SwappedSectors,
    Way::Cut,
    Way::Emptied,
    Way::Missing,
    Way::OtherNodes,
];

/// A process that serves until it is dropped.
struct Node {
    child: Child,
    /// Its URL; empty if it does not serve.
    url: String,
}

impl Node {
    /// Starts a node with this log, which writes its messages to a file.
    fn start(log: &Path, messages: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_darter"));
        command.args(["memnode", "--listen", "127.0.0.1:0", "--size", "16M", "--durability", "log"]);
        command.args(["--segment-bytes", "1M", "--checkpoint-bytes", "1M", "--log"]).arg(log);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(messages).unwrap());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(lines.next().map_or(String::new(), Result::unwrap)));
        let Ok(line) = receiver.recv_timeout(HANGS_AFTER) else {
            let _ = child.kill();
            panic!("a node neither serves nor ends: {}", fs::read_to_string(messages).unwrap());
        };
        let url = if line.is_empty() { line } else { format!("{line}?durability=log") };
        Self { child, url }
    }

    fn scan(&self) -> (i32, String, String) {
        let mut command = program();
        command.args(["scan", "--pool", &self.url]).timeout(HANGS_AFTER);
        let answer = finish(&mut command);
        (answer.code, answer.out, answer.err)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates the log of a node that is killed. Returns its contents, as printed by `scan`.
fn killed(log: &Path, name: &str, pairs: usize) -> String {
    let messages = log.with_extension("messages");
    let node = Node::start(log, &messages);
    assert!(!node.url.is_empty(), "{}", fs::read_to_string(&messages).unwrap());
    let mut create = program();
    finish(create.args(["pool", "create", "--pool", &node.url])).code(0);
    let put = |n: usize| {
        let value = format!("{n}").repeat(if n.is_multiple_of(3) { 2000 } else { n % 40 + 1 });
        format!("put {name}:{:05} {value}\n", n * 7919 % 10_007)
    };
    let del = |n: usize| format!("del {name}:{:05}\n", n * 7919 % 10_007);
    let changes: String = (0..pairs).map(put).chain((0..pairs).step_by(7).map(del)).collect();
    let mut shell = program();
    finish(shell.args(["shell", "--pool", &node.url]).write_stdin(changes)).code(0);
    let (code, held, err) = node.scan();
    assert!(code == 0 && held.lines().count() > pairs / 2, "{err}");
    // There are enough records for a checkpoint.
    let has_image = || files(log).keys().any(|name| name.starts_with("image"));
    while !has_image() {
        thread::sleep(Duration::from_millis(20));
    }
    held
}

/// Returns the files of a directory.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

/// Damages one file of a log. Returns the file, and the place.
fn damage(
    way: Way,
    sound: &BTreeMap<String, Vec<u8>>,
    others: &BTreeMap<String, Vec<u8>>,
    log: &Path,
    dice: &mut Pcg64Mcg,
) -> (String, usize) {
    let used = |bytes: &[u8]| (0..bytes.len()).filter(|&at| bytes[at] != 0).collect::<Vec<_>>();
    let candidates: Vec<_> = sound.iter().map(|(name, bytes)| (name, bytes, used(bytes))).collect();
    let candidates: Vec<_> = candidates.iter().filter(|(.., used)| !used.is_empty()).collect();
    let (name, bytes, used) = candidates[dice.random_range(0..candidates.len())];
    let at = used[dice.random_range(0..used.len())];
    let path = log.join(name);
    let sector = |at: usize| {
        at / SECTOR_BYTES * SECTOR_BYTES..bytes.len().min(at / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES)
    };
    let mut damaged = (*bytes).clone();
    match way {
        Way::Bit => damaged[at] ^= 1 << dice.random_range(0..8),
        Way::ZeroedSector => damaged[sector(at)].fill(0),
        Way::RandomSector => damaged[sector(at)].fill_with(|| dice.random::<u8>()),
        Way::SwappedSectors => {
            let (one, other) = (sector(at), sector(used[dice.random_range(0..used.len())]));
            let length = one.len().min(other.len());
            damaged[one.start..one.start + length].copy_from_slice(&bytes[other.start..other.start + length]);
            damaged[other.start..other.start + length].copy_from_slice(&bytes[one.start..one.start + length]);
        }
        Way::Cut => damaged.truncate(at),
        Way::Emptied => damaged.clear(),
        Way::Missing => {
            fs::remove_file(path).unwrap();
            return ((*name).clone(), at);
        }
        Way::OtherNodes => {
            let kind = |name: &str| name.split('-').next().map(str::to_owned);
            let other = others.iter().find(|(other, _)| kind(other) == kind(name));
            damaged.clone_from(other.unwrap_or_else(|| others.first_key_value().unwrap()).1);
        }
    }
    fs::write(path, damaged).unwrap();
    ((*name).clone(), at)
}

#[test]
fn a_node_with_damaged_files_names_one_or_serves_all() {
    let set = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (damages, seed) = (set("DARTER_DAMAGES", DAMAGES), set("DARTER_DAMAGE_SEED", 0));
    let scene = tempfile::tempdir().unwrap();
    let [log, other, sound_log] = ["log", "other", "sound"].map(|name| scene.path().join(name));
    let right = killed(&sound_log, "a", 600);
    killed(&other, "b", 600);
    let (sound, others) = (files(&sound_log), files(&other));
    let (mut dice, mut faults, mut refused) = (Pcg64Mcg::seed_from_u64(seed as u64), Vec::new(), 0);
    for way in WAYS.into_iter().cycle().take(damages) {
        let _ = fs::remove_dir_all(&log);
        fs::create_dir(&log).unwrap();
        for (name, bytes) in &sound {
            fs::write(log.join(name), bytes).unwrap();
        }
        let (name, at) = damage(way, &sound, &others, &log, &mut dice);
        let what = format!("{way:?}, {name} at {at:#x}");
        let messages = scene.path().join("messages");
        let mut node = Node::start(&log, &messages);
        let said = || fs::read_to_string(&messages).unwrap();
        if node.url.is_empty() {
            refused += 1;
            let code = node.child.wait().unwrap().code();
            let names_one = sound.keys().any(|name| said().contains(name));
            if code != Some(1) || !names_one || said().contains("panicked") {
                faults.push(format!("{what}: exit {code:?}: {}", said()));
            }
            continue;
        }
        let (code, out, err) = node.scan();
        if code != 0 || out != right || said().contains("panicked") {
            faults.push(format!("{what}: scan: exit {code}, {} bytes of {}: {err}", out.len(), right.len()));
        }
    }
    eprintln!("{damages} logs damaged, {refused} refused, {} faults", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(refused > 0);
}
