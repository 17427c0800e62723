//! x
#![allow(clippy::unwrap_used)]
mod explore;
mod families;
mod hinted;
mod judge;
mod memory;
mod rebuild;
mod routed;
mod scenario;
mod scenarios;
mod state;
mod step;
mod turn;

#[test]
fn holds() {
    for scenario in scenarios::small() {
        let now = std::time::Instant::now();
        let out = explore::explore(&scenario, None, 3_000_000);
        println!("{}: {} states depth {} complete {} {:?}", scenario.name, out.states, out.depth, out.complete, now.elapsed());
        if let Some((what, trace)) = out.violation {
            println!("{what}");
            for line in trace { println!("  {line}"); }
        }
    }
}
use scenario::Flaw::*;
#[test]
fn flaws() {
    for flaw in [HiUnchecked, BornNotCompared, EarlyCopy, GuardNotSealed, GuardSealedFirst, SealedTrusted, PlanFree, FirstPartFirst, ForeignTomb, LeafWithoutGuard, WrongLeafBelieved, WrongLeafCopied, UndoMissing, UndoOverwrites, NoGrace, HintedAbsence] {
        let mut found = vec![];
        for scenario in scenarios::small() {
            let out = explore::explore(&scenario, Some(flaw), 1_000_000);
            if let Some((what, trace)) = out.violation { found.push((scenario.name, out.states, trace.len(), what)); }
        }
        println!("{flaw:?}: {} {:?}", found.len(), found);
    }
}

#[test]
#[ignore]
fn fam() {
    for start in families::starts() {
        for (what, list) in [("pairs", families::pairs(&start).collect::<Vec<_>>()), ("triples", families::triples(&start).collect())] {
            let now = std::time::Instant::now();
            let (mut n, mut states, mut most) = (0, 0, 0);
            for scenario in list {
                let out = explore::explore(&scenario, None, 5_000_000);
                n += 1; states += out.states; most = most.max(out.states);
                if let Some((what, trace)) = out.violation {
                    println!("{} {:?}: {what}", scenario.name, scenario.clients);
                    for line in trace { println!("  {line}"); }
                    return;
                }
                assert!(out.complete);
            }
            println!("{} {what}: {n} scenarios {states} states, most {most} {:?}", start.name, now.elapsed());
        }
    }
}
