//! Damage of all kinds in a small pool: every operation returns a correct result or an error, and a
//! check reports all damage that an operation refuses.
//!
//! `DARTER_DAMAGES` sets how many bits are flipped. One sector is damaged for every fifty bits,
//! each in three ways. Runs with another `DARTER_DAMAGE_SEED` damage other pools in other places.

use super::damaged::{Memory, image, memory_with};
use super::{Bench, Model, Tested};
use darter_fabric::{Fabric, block_on};
use darter_index::{CheckReport, Condition, IndexError, OrderedIndex, ScanRange};
use darter_pool::{Client, Pool};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::ops::Bound;

/// One memory node of 8 MiB.
const MEMORY: Memory = Memory { nodes: 1, node_words: (8 << 20) / 8 };
const SECTOR_WORDS: usize = 64;
/// Default number of damages.
const DAMAGES: u64 = 400;
/// Bits that are flipped for each sector that is damaged.
const BITS_PER_SECTOR: u64 = 50;
/// Maximum number of cases that are printed.
const SHOWN: usize = 12;

/// A way to damage memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Bit,
    ZeroedSector,
    RandomSector,
    OtherSector,
}

/// How the operations on damaged memory ended.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    cases: u64,
    /// No operation was affected.
    harmless: u64,
    /// Some operation failed, and no result was wrong.
    refused: u64,
    /// Some result was wrong.
    wrong: u64,
    /// Some operation failed, and a check found nothing.
    unreported: u64,
}

/// A pool and its contents.
struct Sound {
    words: Vec<u64>,
    model: Model,
    /// Keys that are not in the pool.
    absent: Vec<Vec<u8>>,
}

/// How one case ended.
#[derive(Default)]
struct Verdict {
    wrong: Vec<String>,
    failed: Option<String>,
    is_reported: bool,
}

impl Verdict {
    fn judge<R: PartialEq>(&mut self, what: impl Fn() -> String, found: Result<R, IndexError>, right: &R) {
        match found {
            Ok(found) if found == *right => {}
            Ok(_) => self.wrong.push(what()),
            Err(error) => {
                self.failed.get_or_insert_with(|| format!("{}: {error}", what()));
            }
        }
    }
}

/// Key number `n` of one of several families, and its value. Long values are in leaves.
fn pair(n: u64) -> (Vec<u8>, Vec<u8>) {
    let key = match n % 8 {
        0..=3 => format!("user:{:05}", n.wrapping_mul(7919) % 10_007),
        4 => format!("a/prefix/that/all/keys/share/{n:04}"),
        5 => format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        6 => format!("user:{:05}/tail/{n}", n.wrapping_mul(7919) % 10_007),
        _ => format!("z{}", "y".repeat((n % 40) as usize)),
    };
    let bytes = if n.is_multiple_of(23) { 300 + (n % 7) as usize * 40 } else { (n % 29) as usize };
    (key.into_bytes(), format!("{n:>bytes$}").into_bytes())
}

/// A pool that was loaded, changed by puts and deletes, and closed.
fn sound<T: Tested>(seed: u64) -> Sound {
    let mut bench = Bench::<T>::small(MEMORY.nodes, MEMORY.node_words as u64 * 8, seed);
    let mut model: Model = (0..500).map(pair).collect();
    let loaded = model.clone().into_iter();
    block_on(bench.index.bulk_load(&mut bench.client, loaded)).unwrap();
    for n in (500..700).chain((0..500).step_by(9)) {
        let (key, mut value) = pair(n);
        value.extend_from_slice(b" anew");
        block_on(bench.index.put(&mut bench.client, &key, &value, Condition::Always)).unwrap();
        model.insert(key, value);
    }
    for n in (0..700).filter(|n| n % 13 == 4 || n % 32 == 3) {
        let (key, _) = pair(n);
        block_on(bench.index.delete(&mut bench.client, &key)).unwrap();
        model.remove(&key);
    }
    block_on(T::adjust(&bench.index, &mut bench.client)).unwrap();
    let absent = (0..700).filter(|n| n % 5 == 0).flat_map(|n| {
        let (key, _) = pair(n);
        let mut other = key.clone();
        let middle = other.len() / 2;
        other[middle] ^= 1;
        [[&key[..], b"0"].concat(), key[..key.len() - 1].to_vec(), other, key]
    });
    let absent = absent.filter(|key| !model.contains_key(key)).collect();
    let Bench { client, index, pool } = bench;
    let fabric = pool.fabric().clone();
    drop((client, index));
    block_on(pool.close()).unwrap();
    Sound { words: image(&fabric, MEMORY), model, absent }
}

/// Reads everything in every way, and runs a check.
async fn read_all<T: Tested, F: Fabric>(fabric: F, sound: &Sound) -> Verdict {
    let mut verdict = Verdict { is_reported: true, ..Verdict::default() };
    let opened = async {
        let pool = Pool::open(fabric).await.map_err(|error| error.to_string())?;
        let mut client = pool.client().map_err(|error| error.to_string())?;
        match T::Index::<F>::open(&mut client, T::options()).await {
            Ok(index) => Ok((index, client)),
            // The error for which `open_or_create` creates an index.
            Err(IndexError::NoIndex { found: 0, .. }) => Err(String::new()),
            Err(error) => Err(error.to_string()),
        }
    };
    let (index, mut client) = match opened.await {
        Ok(opened) => opened,
        Err(error) if error.is_empty() => {
            verdict.wrong.push("open: no index".to_owned());
            return verdict;
        }
        Err(error) => {
            verdict.failed = Some(error);
            return verdict;
        }
    };
    scan_all(&index, &mut client, sound, &mut verdict).await;
    for _ in 0..2 {
        for (key, value) in &sound.model {
            let found = index.get(&mut client, key).await;
            verdict.judge(|| format!("get {}", key.escape_ascii()), found, &Some(value.clone()));
        }
        for key in &sound.absent {
            let found = index.get(&mut client, key).await;
            verdict.judge(|| format!("get absent {}", key.escape_ascii()), found, &None);
        }
    }
    scan_all(&index, &mut client, sound, &mut verdict).await;
    if let Ok(CheckReport { violations, .. }) = index.check(&mut client).await {
        verdict.is_reported = !violations.is_empty();
    }
    verdict
}

async fn scan_all<F: Fabric>(
    index: &impl OrderedIndex<F>,
    client: &mut Client<F>,
    sound: &Sound,
    verdict: &mut Verdict,
) {
    let middle = sound.model.keys().nth(sound.model.len() / 3).cloned().unwrap_or_default();
    let ranges = [
        ScanRange::all(),
        ScanRange::all().reversed(),
        ScanRange::prefix(b"user:0"),
        ScanRange::prefix(b"a/prefix/").reversed(),
        ScanRange::prefix(b"zyyy"),
        ScanRange { from: Bound::Included(middle.clone()), ..ScanRange::all() },
        ScanRange { to: Bound::Excluded(middle), ..ScanRange::all() }.reversed(),
    ];
    for range in &ranges {
        for limit in [usize::MAX, 20] {
            let right: Vec<_> = {
                let inside = sound.model.iter().filter(|(key, _)| range.contains(key));
                let pairs = inside.map(|(key, value)| (key.clone(), value.clone()));
                if range.reverse { pairs.rev().take(limit).collect() } else { pairs.take(limit).collect() }
            };
            let found = index.scan(client, range, limit).await;
            verdict.judge(|| format!("scan {range:?} of {limit}"), found, &right);
        }
    }
}

/// Damages a copy of the words. Returns a description of the place.
fn damage(kind: Kind, words: &mut [u64], used: &[usize], dice: &mut Pcg64Mcg) -> String {
    let word = used[dice.random_range(0..used.len())];
    let first = word / SECTOR_WORDS * SECTOR_WORDS;
    let sector = first..first + SECTOR_WORDS;
    match kind {
        Kind::Bit => {
            let bit = dice.random_range(0..64_u64);
            words[word] ^= 1 << bit;
            return format!("byte {:#x}, bit {bit}: was {:#018x}", word * 8, words[word] ^ 1 << bit);
        }
        Kind::ZeroedSector => words[sector].fill(0),
        Kind::RandomSector => words[sector].fill_with(|| dice.random::<u64>()),
        Kind::OtherSector => {
            let other = used[dice.random_range(0..used.len())] / SECTOR_WORDS * SECTOR_WORDS;
            words.copy_within(other..other + SECTOR_WORDS, first);
            return format!("sector at {:#x} from {:#x}", first * 8, other * 8);
        }
    }
    format!("sector at {:#x}", first * 8)
}

/// Damages a pool of an index in every way.
pub(crate) fn damage_is_an_error_or_makes_no_difference<T: Tested>() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let damages = number("DARTER_DAMAGES", DAMAGES);
    let first = number("DARTER_DAMAGE_SEED", 0) * 4;
    let mut tallies = BTreeMap::<Kind, Tally>::new();
    let mut shown = 0;
    for seed in first..first + 4 {
        let sound = sound::<T>(seed);
        let used: Vec<usize> = (0..sound.words.len()).filter(|&word| sound.words[word] != 0).collect();
        let verdict = block_on(read_all::<T, _>(memory_with(&sound.words, MEMORY), &sound));
        assert!(
            verdict.wrong.is_empty() && verdict.failed.is_none(),
            "{:?} {:?}",
            verdict.wrong,
            verdict.failed
        );
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let sectors = damages.div_ceil(BITS_PER_SECTOR);
        let kinds = [
            (Kind::Bit, damages),
            (Kind::ZeroedSector, sectors),
            (Kind::RandomSector, sectors),
            (Kind::OtherSector, sectors),
        ];
        for (kind, cases) in kinds.map(|(kind, cases)| (kind, cases.div_ceil(4))) {
            for _ in 0..cases {
                let mut words = sound.words.clone();
                let place = damage(kind, &mut words, &used, &mut dice);
                let verdict = block_on(read_all::<T, _>(memory_with(&words, MEMORY), &sound));
                let tally = tallies.entry(kind).or_default();
                let is_unreported = verdict.failed.is_some() && !verdict.is_reported;
                tally.cases += 1;
                tally.wrong += u64::from(!verdict.wrong.is_empty());
                tally.unreported += u64::from(is_unreported);
                tally.refused += u64::from(verdict.wrong.is_empty() && verdict.failed.is_some());
                tally.harmless += u64::from(verdict.wrong.is_empty() && verdict.failed.is_none());
                if (is_unreported || !verdict.wrong.is_empty()) && shown < SHOWN {
                    shown += 1;
                    let Verdict { wrong, failed, is_reported } = verdict;
                    let first = wrong.first();
                    eprintln!(
                        "seed {seed}, {kind:?}, {place}: {} wrong, first {first:?}; failed {failed:?}, reported {is_reported}",
                        wrong.len()
                    );
                }
            }
        }
    }
    for (kind, tally) in &tallies {
        eprintln!("{}: {kind:?}: {tally:?}", T::Index::<super::TestFabric>::NAME);
    }
    assert!(tallies.values().all(|tally| tally.wrong == 0 && tally.unreported == 0), "{tallies:#?}");
}
