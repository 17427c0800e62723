//! Damage at every place of small logs: of a node that was killed or stopped, and after a power failure
//! in every operation. One bit of each byte is flipped, and each sector gets zeros, ones, noise, and all
//! bytes that it has had before, as if the medium had lost a write.
//!
//! Recovery restores everything that was acknowledged, or names the damaged file. After a power failure
//! it may also end before the last records that were acknowledged, if these are damaged, and nowhere
//! else: it cannot distinguish them from a torn tail (`docs/durability.md`).
//!
//! After power failures one damage in `DARTER_DAMAGE_SHARE` is tried, and all of them if it is 1.

use super::damage_tests::{Found, SECTOR_BYTES, WORKLOADS, found};
use super::medium::Medium;
use super::power_tests::{WORKLOAD, outcomes, run};
use super::simulated::SimulatedDisk;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fmt;
use std::sync::Arc;

/// One damage in this many is tried after each power failure.
const SHARE: usize = 10;
/// Power failures tried for each operation, if that many outcomes are possible.
const OUTCOMES: usize = 3;

/// A way to damage a file.
enum Way {
    /// A bit of the byte at a place.
    Bit(usize, u32),
    /// These bytes instead of a sector's, and where they come from.
    Sector(usize, Vec<u8>, &'static str),
    Removed,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bit(at, bit) => write!(f, "bit {bit} of byte {at:#x}"),
            Self::Sector(at, _, kind) => write!(f, "sector at {at:#x}: {kind}"),
            Self::Removed => f.write_str("removed"),
        }
    }
}

impl Way {
    fn apply(&self, medium: &Arc<SimulatedDisk>, name: &str) {
        match self {
            Self::Bit(at, bit) => medium.tamper(name, |content| content[*at] ^= 1 << bit),
            Self::Sector(at, bytes, _) => {
                medium.tamper(name, |content| content[*at..at + bytes.len()].copy_from_slice(bytes));
            }
            Self::Removed => medium.remove(name).unwrap(),
        }
    }
}

/// Returns all damages of the files of a medium, with the files.
fn damages(medium: &Arc<SimulatedDisk>, dice: &mut Pcg64Mcg) -> Vec<(String, Way)> {
    let mut all = Vec::new();
    for name in medium.names().unwrap() {
        let content = medium.content(&name);
        let mut add = |way| all.push((name.clone(), way));
        for (at, byte) in content.iter().enumerate() {
            // Of the zeros, one in each sector.
            if *byte != 0 || at % SECTOR_BYTES == 7 {
                add(Way::Bit(at, dice.random_range(0..8)));
            }
        }
        for first in (0..content.len()).step_by(SECTOR_BYTES) {
            let sector = first..content.len().min(first + SECTOR_BYTES);
            let mut noise = vec![0; sector.len()];
            dice.fill_bytes(&mut noise);
            add(Way::Sector(first, noise, "noise"));
            if content[sector.clone()].iter().any(|byte| *byte != 0) {
                add(Way::Sector(first, vec![0; sector.len()], "zeros"));
                add(Way::Sector(first, vec![0xff; sector.len()], "ones"));
            }
            for former in medium.former(&name, sector) {
                add(Way::Sector(first, former, "bytes from before"));
            }
        }
        add(Way::Removed);
    }
    all
}

/// The numbers of recoveries, by result.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Everything was restored.
    right: usize,
    /// Recovery named a file.
    named: usize,
    /// The last records were taken for a torn tail.
    cut_off: usize,
}

/// Recovers a damaged medium, and judges the result. `right` is the result without the damage. An earlier
/// state is right too if `is_late_enough` says so.
fn judge(
    medium: &Arc<SimulatedDisk>,
    right: &Found,
    is_late_enough: &dyn Fn(&[u8]) -> bool,
    tally: &mut Tally,
) -> Result<(), String> {
    let names = medium.names().unwrap();
    match found(medium) {
        Ok(found) if found == *right => tally.right += 1,
        Ok((memory, sessions, position)) => {
            if position > right.2 || !is_late_enough(&memory) {
                return Err(format!("recovered up to {position:#x} of {:#x}, {sessions:?}", right.2));
            }
            tally.cut_off += 1;
        }
        // A removed file is no longer among the names.
        Err(error) if error.contains("missing") || error.starts_with("no ") => tally.named += 1,
        Err(error) if names.iter().any(|name| error.contains(name)) => tally.named += 1,
        Err(error) => return Err(error),
    }
    Ok(())
}

#[test]
fn damage_anywhere_in_a_log_is_named_or_makes_no_difference() {
    let mut dice = Pcg64Mcg::seed_from_u64(1);
    for (number, workload) in WORKLOADS.into_iter().enumerate() {
        let sound = Arc::new(SimulatedDisk::default());
        let machine = run(&sound, workload).unwrap();
        let right = found(&sound).unwrap();
        assert_eq!(machine.newest_acknowledged(), &right.0);
        let mut tally = Tally::default();
        for (name, way) in damages(&sound, &mut dice) {
            let medium = sound.copy(None, None);
            way.apply(&medium, &name);
            let judged = judge(&medium, &right, &|_| false, &mut tally);
            judged.unwrap_or_else(|wrong| panic!("workload {number}, {name}, {way}: {wrong}"));
        }
        eprintln!("workload {number}: {tally:?}");
        assert!(tally.right > 20 && tally.named > 100, "workload {number}: {tally:?}");
    }
}

#[test]
fn damage_after_a_power_failure_takes_the_last_records_at_most() {
    let share = std::env::var("DARTER_DAMAGE_SHARE").map_or(SHARE, |text| text.parse().unwrap());
    let mut dice = Pcg64Mcg::seed_from_u64(2);
    let whole = Arc::new(SimulatedDisk::default());
    run(&whole, WORKLOAD).unwrap();
    let (mut tally, mut tried) = (Tally::default(), 0);
    for at in 0..=whole.operations() {
        let medium = SimulatedDisk::default().copy(Some(at), None);
        let machine = run(&medium, WORKLOAD);
        let outcomes = outcomes(&medium, &mut dice);
        for pick in 0..OUTCOMES.min(outcomes.len()) {
            // The first is that everything unsynced is lost.
            let outcome = if pick == 0 { 0 } else { dice.random_range(0..outcomes.len()) };
            let after = &outcomes[outcome];
            let Ok(right) = found(after) else {
                assert!(machine.is_none(), "operation {at}, outcome {outcome}");
                continue;
            };
            // A node that had not started has had no other state than zeros.
            let is_late_enough = |memory: &[u8]| match &machine {
                Some(machine) => machine.had(memory),
                None => memory.iter().all(|byte| *byte == 0),
            };
            for (name, way) in damages(after, &mut dice) {
                tried += 1;
                if tried % share != 0 {
                    continue;
                }
                let medium = after.copy(None, None);
                way.apply(&medium, &name);
                let judged = judge(&medium, &right, &is_late_enough, &mut tally);
                judged.unwrap_or_else(|wrong| {
                    panic!("operation {at}, outcome {outcome}, {name}, {way}: {wrong}")
                });
            }
        }
    }
    eprintln!("{tried} damages after power failures, one in {share} tried: {tally:?}");
    assert!(tally.right > 0 && tally.cut_off > 0 && tally.named > 1000, "{tally:?}");
}
