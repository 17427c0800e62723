//! Damage of every kind to the files of a log: recovery restores everything acknowledged, or names
//! the damaged file.
//!
//! `DARTER_DAMAGES` sets the number of flipped bits; a fiftieth of it is the number of damaged
//! sectors for each of four kinds, of truncated files, and of removed files. A different
//! `DARTER_DAMAGE_SEED` damages other places.

use super::manifest::{MANIFEST, Manifest, SessionFacts};
use super::medium::Medium;
use super::power_tests::{Bytes, REGION_BYTES, WORKLOAD, run};
use super::power_tests::{LogStep, LogStep::*};
use super::recovery::recover;
use super::simulated::SimulatedDisk;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const SECTOR_BYTES: usize = 512;
/// Default number of damages.
const DAMAGES: usize = 400;
/// Number of flipped bits per damaged sector.
const BITS_PER_SECTOR: usize = 50;

/// Workloads that end in the middle of a segment, with one record in the last batch or several,
/// before the first checkpoint or after one, crashed or stopped.
pub(super) const WORKLOADS: [&[LogStep]; 4] = [
    WORKLOAD,
    &[Write(1), Commit, Add, Commit, Write(2), Add, Commit],
    &[Enter(5), Write(1), Commit, Checkpoint(1), Add, Write(2), Commit, Write(3), Commit],
    &[Enter(5), Enter(6), Write(1), Commit, Checkpoint(0), Write(2), Commit, Stop],
];

/// A way to damage a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Bit,
    ZeroedSector,
    RandomSector,
    OtherSector,
    SwappedSectors,
    Cut,
    Removed,
}

/// The numbers of recoveries, by result.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    cases: usize,
    /// All data was restored.
    harmless: usize,
    /// Recovery named a file.
    refused: usize,
    /// Any other result.
    wrong: usize,
}

/// The result of a recovery: the memory, the sessions, and the log's end.
pub(super) type Found = (Vec<u8>, SessionFacts, u64);

/// Recovers a medium. Returns its contents, or the error.
pub(super) fn found(medium: &Arc<SimulatedDisk>) -> Result<Found, String> {
    let mut memory = Bytes::new();
    let manifest = match Manifest::find(medium) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => return Err(format!("no {MANIFEST}")),
        Err(error) => return Err(format!("{MANIFEST}: {error}")),
    };
    if manifest.region_bytes != REGION_BYTES {
        return Err(format!("{MANIFEST}: of a region of another size"));
    }
    let recovered = recover(medium, manifest, &mut memory).map_err(|error| error.to_string())?;
    Ok((memory.into_bytes(), recovered.sessions, recovered.position))
}

/// Damages a file of a medium. Returns the place.
fn damage(
    kind: Kind,
    medium: &Arc<SimulatedDisk>,
    used: &[(String, Vec<usize>)],
    dice: &mut Pcg64Mcg,
) -> String {
    let (name, bytes) = &used[dice.random_range(0..used.len())];
    let at = bytes[dice.random_range(0..bytes.len())];
    let first = at / SECTOR_BYTES * SECTOR_BYTES;
    let (other_name, other) = &used[dice.random_range(0..used.len())];
    let other = other[dice.random_range(0..other.len())] / SECTOR_BYTES * SECTOR_BYTES;
    let others: Vec<u8> = medium.content(other_name).into_iter().skip(other).take(SECTOR_BYTES).collect();
    let bit = dice.random_range(0..8);
    let noise: Vec<u8> = (0..SECTOR_BYTES).map(|_| dice.random::<u8>()).collect();
    if kind == Kind::Removed {
        medium.remove(name).unwrap();
        return name.clone();
    }
    let own = bytes[dice.random_range(0..bytes.len())] / SECTOR_BYTES * SECTOR_BYTES;
    medium.tamper(name, |content| {
        let sector = first..(first + SECTOR_BYTES).min(content.len());
        match kind {
            Kind::Bit => content[at] ^= 1 << bit,
            Kind::ZeroedSector => content[sector].fill(0),
            Kind::RandomSector => content[sector.clone()].copy_from_slice(&noise[..sector.len()]),
            Kind::OtherSector => {
                let room = &mut content[sector];
                let count = room.len().min(others.len());
                room[..count].copy_from_slice(&others[..count]);
            }
            Kind::SwappedSectors => {
                let count = sector.len().min(content.len() - own);
                let (mine, theirs) =
                    (content[first..first + count].to_vec(), content[own..own + count].to_vec());
                content[first..first + count].copy_from_slice(&theirs);
                content[own..own + count].copy_from_slice(&mine);
            }
            Kind::Cut => content.truncate(if bit == 0 { 0 } else { at }),
            Kind::Removed => {}
        }
    });
    match kind {
        Kind::Bit => format!("{name}, byte {at:#x}, bit {bit}"),
        Kind::OtherSector => format!("{name}, sector at {first:#x} from {other_name}, {other:#x}"),
        Kind::SwappedSectors => format!("{name}, sectors at {first:#x} and {own:#x}"),
        Kind::Cut => format!("{name}, cut at {at:#x}, or at 0"),
        Kind::ZeroedSector | Kind::RandomSector | Kind::Removed => format!("{name}, sector at {first:#x}"),
    }
}

#[test]
fn damage_to_a_log_is_named_or_makes_no_difference() {
    let set = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (damages, seed) = (set("DARTER_DAMAGES", DAMAGES), set("DARTER_DAMAGE_SEED", 0));
    let mut tallies = BTreeMap::<Kind, Tally>::new();
    for (number, workload) in WORKLOADS.into_iter().enumerate() {
        let sound = Arc::new(SimulatedDisk::default());
        let machine = run(&sound, workload).unwrap();
        let right = found(&sound.copy(None, None)).unwrap();
        assert_eq!(machine.newest_acknowledged(), &right.0);
        let used: Vec<(String, Vec<usize>)> = sound
            .names()
            .unwrap()
            .into_iter()
            .map(|name| {
                let content = sound.content(&name);
                let used = (0..content.len()).filter(|&at| content[at] != 0).collect();
                (name, used)
            })
            .filter(|(_, used): &(String, Vec<usize>)| !used.is_empty())
            .collect();
        let mut dice = Pcg64Mcg::seed_from_u64((seed * WORKLOADS.len() + number) as u64);
        let sectors = damages.div_ceil(BITS_PER_SECTOR);
        let kinds = [
            (Kind::Bit, damages),
            (Kind::ZeroedSector, sectors),
            (Kind::RandomSector, sectors),
            (Kind::OtherSector, sectors),
            (Kind::SwappedSectors, sectors),
            (Kind::Cut, sectors),
            (Kind::Removed, sectors),
        ];
        for (kind, cases) in kinds {
            for _ in 0..cases.div_ceil(WORKLOADS.len()) {
                let medium = sound.copy(None, None);
                let place = damage(kind, &medium, &used, &mut dice);
                let tally = tallies.entry(kind).or_default();
                tally.cases += 1;
                match found(&medium) {
                    Ok(found) if found == right => tally.harmless += 1,
                    Err(error) if used.iter().any(|(name, _)| error.contains(name)) => tally.refused += 1,
                    other => {
                        tally.wrong += 1;
                        let what = other.map(|(_, sessions, position)| (sessions, position));
                        eprintln!("workload {number}, {kind:?}, {place}: {what:?}");
                    }
                }
            }
        }
    }
    for (kind, tally) in &tallies {
        eprintln!("log: {kind:?}: {tally:?}");
    }
    assert!(tallies.values().all(|tally| tally.wrong == 0), "{tallies:#?}");
}
