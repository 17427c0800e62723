//! Small whole runs of `bench`: every index, the other datasets, peers.

use clap::Parser;
use darter_bench::{BenchError, Setting, WorkloadReport};
use darter_lab_bench::{LabBenchArgs, VARIANTS, run_bench};

#[derive(Debug, clap::Parser)]
struct Program {
    #[command(flatten)]
    bench: LabBenchArgs,
}

/// Runs `bench` with these words. Returns reports and output.
fn bench(words: &str) -> Result<(Vec<WorkloadReport>, String), BenchError> {
    let words = std::iter::once("bench").chain(words.split_whitespace());
    let args = Program::try_parse_from(words).expect("arguments that parse").bench;
    let mut out = Vec::new();
    let reports = run_bench(&args, &Setting::default(), &mut out)?;
    Ok((reports, String::from_utf8(out).expect("UTF-8")))
}

#[test]
fn every_workload_runs_on_the_other_datasets() {
    for dataset in ["email", "clustered"] {
        let words = format!("--records 20000 --ops 5000 --dataset {dataset}");
        let (reports, out) = bench(&words).unwrap();
        assert_eq!(reports.len(), 7);
        for report in &reports {
            assert_eq!(report.not_found, 0, "{dataset} {}", report.workload);
            assert_eq!(report.ops, if report.workload == "load" { 20_000 } else { 5000 });
        }
        assert!(out.contains("round trips") && out.contains(dataset), "{out}");
    }
}

#[test]
fn arguments_of_the_laboratory_are_checked_too() {
    for (words, what) in [
        ("--rounds 0", "--rounds"),
        ("--processes 2 --workload c --pool file:/p --index xstore", "--processes"),
    ] {
        let error = bench(words).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(what), "{words}: {error}");
    }
}

#[cfg(feature = "peers")]
#[test]
fn peers_run_the_same_operations() {
    let (reports, out) =
        bench("--peers --records 5000 --ops 2000 --workload a,c,e --threads 1,2 --rounds 2").unwrap();
    assert_eq!(reports.len(), 3 * 2 * 8);
    assert!(reports.iter().all(|report| report.ops_per_s > 0.0));
    let names = ["dart", "congee", "masstree", "bf-tree", "crossbeam-skiplist", "scc TreeIndex"];
    for name in names.into_iter().chain(["RwLock<BTreeMap>", "READ"]) {
        assert!(out.contains(name), "{name}");
    }
    for words in ["--peers --value-size 8", "--peers --check", "--peers --workload load"] {
        assert!(bench(words).unwrap_err().is_usage(), "{words}");
    }
}

/// congee, which takes integers only, is left out, and masstree if a workload scans.
#[cfg(feature = "peers")]
#[test]
fn peers_run_on_byte_keys() {
    for (workloads, has_masstree) in [("a,e", false), ("a,d", true)] {
        let words = format!("--peers --dataset email --records 5000 --ops 2000 --workload {workloads}");
        let (reports, out) = bench(&words).unwrap();
        assert_eq!(reports.len(), 2 * (6 + usize::from(has_masstree)));
        assert!(reports.iter().all(|report| report.not_found == 0 && report.ops_per_s > 0.0));
        assert!(out.contains("masstree") == has_masstree && !out.contains("congee"), "{out}");
    }
}

#[cfg(not(feature = "peers"))]
#[test]
fn peers_say_how_to_get_them() {
    assert!(bench("--peers").unwrap_err().to_string().contains("--features peers"));
}

/// Every index by name, and every kind of pool in this process.
#[test]
fn every_index_runs_on_every_kind_of_pool() {
    let small = "--records 500 --ops 100 --workload load,a,d,e --check";
    for variant in VARIANTS {
        let (reports, out) =
            bench(&format!("--index {} {small}", variant.name)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(reports.len(), 5, "{}", variant.name);
        assert!(reports.iter().all(|report| report.index == variant.name), "{out}");
        assert!(out.starts_with(&format!("{}: ", variant.name)), "{out}");
        let has_list = reports[1].prefix_list.is_some();
        assert_eq!(has_list, variant.name == "dart", "{}", variant.name);
    }
    let directory = tempfile::tempdir().unwrap();
    let pool = format!("file:{}?size=64M&nodes=2", directory.path().join("pool").display());
    let on_file = format!("--index sherman --workload c --records 2000 --ops 500 --pool {pool}");
    assert_eq!(bench(&on_file).unwrap().0[0].pool, pool);
    let other = pool.replace("/pool?", "/other?");
    let served = format!("--index xstore --workload a --records 2000 --ops 500 --pool {other}");
    assert_eq!(bench(&served).unwrap().0[0].pool, other);
    // The pool keeps its keys, and cannot be used twice.
    let again = bench(&on_file).unwrap_err();
    assert!(again.is_usage() && again.to_string().contains("holds keys already"), "{again}");
    let modelled = Program::try_parse_from(["bench", "--pool", "model:preset=dart"]).unwrap_err();
    assert!(modelled.to_string().contains("darter-lab compare"), "{modelled}");
}
