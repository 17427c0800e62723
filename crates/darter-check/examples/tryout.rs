//! Scratch.
use darter_check::explore::*;
use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[1] == "sweep" {
        let subject = subject(&args[2]).unwrap();
        let faults = args[3].split(',').map(str::to_owned).collect();
        let scenarios = match args.get(4) {
            None => subject.scenarios().iter().collect(),
            Some(l) => l.split(',').map(|n| subject.scenario(n).unwrap()).collect(),
        };
        let start = Instant::now();
        let s =
            Sweep { subject, faults, scenarios, schedules: 1, seed: 1, holes: Holes::default(), threads: 2 }
                .run(&|_| {});
        println!("{} runs {:.1}s", s.runs, start.elapsed().as_secs_f64());
        if let Some(f) = s.finding {
            println!("{} {}\n{}\n{}", f.violation.kind, f.violation.text, f.plan, f.replay_line());
        }
        return;
    }
    if args[1] == "holes" {
        for index in subjects() {
            for (at, hole) in index.holes.iter().enumerate() {
                let start = Instant::now();
                let s = index.hunt(at, Holes::default().with(at), hole.budget, 2);
                let Some(f) = s.finding else {
                    println!("{} {}: NOT FOUND in {}", index.name, hole.name, s.runs);
                    continue;
                };
                let (mut plan, schedule) = parse_replay(&f.replay_line()).unwrap();
                let mut stages = Stages::default();
                let again = stages.replay(&plan, &schedule).violation.map(|v| v.kind);
                plan.holes = Holes::default();
                let mended = stages.replay(&plan, &schedule).violation;
                println!(
                    "{} {}: run {} {} again {:?} mended {:?} {:.1}s",
                    index.name,
                    hole.name,
                    f.run,
                    f.violation.kind,
                    again,
                    mended,
                    start.elapsed().as_secs_f64()
                );
            }
        }
        return;
    }
    if args[1] == "mutants" {
        // mutants INDEX RUNS SECONDS [filter]
        let runs: u64 = args[3].parse().unwrap();
        for m in darter_check::mutants::mutants() {
            let index = match m.area {
                "pool" | "tree" | "radix" | "skip table" => "dart",
                "ART" => "art",
                "SMART" => "smart",
                "Sherman" => "sherman",
                _ => continue,
            };
            if args[2] != "all" && args[2] != index {
                continue;
            }
            if args.get(4).is_some_and(|f| !m.name.contains(&f[..])) {
                continue;
            }
            let indexes: Vec<&'static str> = match m.area {
                "SMART" => vec!["smart", "smart-in-place"],
                "ART" => vec!["art", "art-hashed"],
                "Sherman" => vec!["sherman", "sherman-inline", "fg-plus"],
                _ => vec![index],
            };
            for index in indexes {
                let it = darter_check::mutants::Mutant {
                    found_by: darter_check::mutants::FoundBy::Explorer(index, runs),
                    ..*m
                };
                let start = Instant::now();
                let s = it.hunt(None, 2).unwrap();
                let (run, kind) = s.finding.as_ref().map_or((0, "-"), |f| (f.run, f.violation.kind));
                println!(
                    "{}\t{}\t{}\t{}\t{}\t{:.1}",
                    m.area,
                    m.name,
                    index,
                    run,
                    kind,
                    start.elapsed().as_secs_f64()
                );
                if kind != "-" {
                    break;
                }
            }
        }
        return;
    }
    if args[1] == "replay" {
        let (plan, schedule) = parse_replay(&std::fs::read_to_string(&args[2]).unwrap()).unwrap();
        let o = Stages::default().run(&plan, &mut Replay::traced(&schedule));
        let n = args.get(3).map_or(40, |n| n.parse().unwrap());
        for line in o.trace.iter().rev().take(n).rev() {
            println!("{line}");
        }
        println!("{:?}", o.violation);
        return;
    }
    let index = subject(&args[1]).unwrap();
    let runs: u64 = args[2].parse().unwrap();
    let faults: Vec<String> = match &args[3][..] {
        "all" => index.promises.survives.iter().map(|s| s.to_string()).collect(),
        "none" => vec![],
        list => list.split(',').map(str::to_owned).collect(),
    };
    let scenarios = match args.get(4).map(|s| &s[..]) {
        None | Some("all") => index.scenarios().iter().collect(),
        Some(list) => list.split(',').map(|n| index.scenario(n).unwrap()).collect(),
    };
    let seed = args.get(5).map_or(1, |s| s.parse().unwrap());
    let threads = args.get(6).map_or(2, |s| s.parse().unwrap());
    let plan = std::env::var("PLAN").ok().map(|p| p.parse().unwrap());
    let scheduler = match std::env::var("SCHED").as_deref() {
        Ok("late") => SchedulerKind::Late,
        Ok("pct") => SchedulerKind::Pct,
        Ok("random") => SchedulerKind::Random,
        _ => SchedulerKind::Mixed,
    };
    let settings = Settings {
        scheduler,
        plan,
        runs,
        clients: 4,
        seed,
        scenarios,
        faults,
        threads,
        ..Settings::of(index)
    };
    let start = Instant::now();
    let s = settings.explore(&|_| {});
    let took = start.elapsed().as_secs_f64();
    println!(
        "{} runs {:.0}/s  verbs {} steps {} pairs {}",
        s.runs,
        s.runs as f64 / took,
        s.verbs / s.runs,
        s.steps / s.runs,
        s.pairs
    );
    if args.get(7).is_some() {
        println!("{:?}", s.situations);
    }
    if let Some(f) = s.finding {
        println!("run {} {}: {}\n{}\n{}", f.run, f.violation.kind, f.violation.text, f.plan, f.replay_line());
    }
}
