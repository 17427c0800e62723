//! Small whole runs on the real store: every workload, exact repeatability, the check at the end,
//! clear refusals.

use clap::Parser;
use darter_bench::{BenchArgs, BenchError, Setting, WorkloadReport, run};
use std::io::Write;

#[derive(Debug, clap::Parser)]
struct Program {
    #[command(flatten)]
    bench: BenchArgs,
}

/// Runs `bench` with these words. Returns reports and output.
fn bench(words: &str) -> Result<(Vec<WorkloadReport>, String), BenchError> {
    let words = std::iter::once("bench").chain(words.split_whitespace());
    let args = Program::try_parse_from(words).expect("arguments that parse").bench;
    let mut out = Vec::new();
    let reports = run(&args, &Setting::default(), &mut out)?;
    Ok((reports, String::from_utf8(out).expect("UTF-8")))
}

/// Returns a file of `keys` keys of different lengths.
fn file_of_keys(keys: u32) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for n in 0..keys {
        writeln!(file, "key number {n}").expect("room on the disk");
    }
    file
}

#[test]
fn every_workload_runs_on_every_dataset() {
    for dataset in ["randint", "dense"] {
        let words = format!("--records 20000 --ops 5000 --verbs --dataset {dataset}");
        let (reports, out) = bench(&words).unwrap();
        assert_eq!(reports.len(), 7);
        for report in &reports {
            assert_eq!(report.not_found, 0, "{dataset} {}", report.workload);
            assert_eq!(report.ops, if report.workload == "load" { 20_000 } else { 5000 });
            assert!(report.round_trips_per_op.unwrap() > 0.5 && report.index_bytes.unwrap() > 0);
        }
        assert!(out.contains("round trips") && out.contains(dataset), "{out}");
    }
}

#[test]
fn json_is_one_object_per_workload_and_line() {
    let (reports, out) =
        bench("--index dart --records 5000 --ops 1000 --json --workload a,c --threads 1,2 --seed 7").unwrap();
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((reports.len(), lines.len()), (4, 4));
    let named: Vec<_> =
        lines.iter().map(|line| (line["workload"].as_str(), line["threads"].as_u64())).collect();
    assert_eq!(named, [("a", 1), ("a", 2), ("c", 1), ("c", 2)].map(|(w, t)| (Some(w), Some(t))));
    for line in lines {
        assert_eq!((line["index"].as_str(), line["seed"].as_u64()), (Some("dart"), Some(7)));
        assert!(line["prefix_list"].is_array() && line["kinds"]["get"]["round_trips_per_op"].is_number());
    }
}

#[test]
fn counts_on_one_thread_are_repeatable() {
    let keys = file_of_keys(30_000);
    let words =
        format!("--records 20000 --ops 10000 --dataset file:{} --value-size 20", keys.path().display());
    let counts = || bench(&words).unwrap().0;
    for (one, other) in counts().iter().zip(counts()) {
        assert_eq!((one.ops, one.kv_bytes, one.records), (other.ops, other.kv_bytes, other.records));
        assert_eq!(one.prefix_list, other.prefix_list);
        assert!(one.kinds.keys().eq(other.kinds.keys()));
        for (kind, cost) in &one.kinds {
            assert_eq!(cost.ops, other.kinds[kind].ops);
        }
        // The epoch of the pool moves by time, which costs a few round trips in thousands of operations.
        let are_close = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => (one - other).abs() < 0.002,
            (one, other) => one == other,
        };
        assert!(are_close(one.round_trips_per_op, other.round_trips_per_op), "{one:?}\n{other:?}");
        assert!(are_close(one.verbs_per_op, other.verbs_per_op), "{one:?}\n{other:?}");
    }
}

#[test]
fn deleting_everything_leaves_nothing() {
    let (reports, out) = bench("--records 20000 --ops 5000 --workload d,a --threads 2 --check").unwrap();
    let last = reports.last().unwrap();
    let check = last.check.as_ref().unwrap();
    assert_eq!((last.workload.as_str(), last.not_found), ("delete", 0));
    assert_eq!((check.leaked_bytes, check.violations.len()), (0, 0));
    assert!(check.pool_used_bytes_after <= check.pool_used_bytes_full);
    assert!(out.contains("0 bytes leaked"), "{out}");
}

#[test]
fn a_file_of_keys_serves() {
    let file = file_of_keys(3000);
    let dataset = format!("--dataset file:{}", file.path().display());
    let (reports, _) = bench(&format!("{dataset} --workload c,d --ops 1000")).unwrap();
    assert!(reports.iter().all(|report| report.not_found == 0));
    let error = bench(&format!("{dataset} --workload d --records 3000 --ops 1000")).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("--records"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_as_usage() {
    for (words, what) in [
        ("--records 1M --pool mem:16M", "larger pool"),
        ("--workload a,load", "--workload"),
        ("--dataset file:/nonexistent", "/nonexistent"),
        ("--threads 0", "--threads"),
        ("--processes 2 --workload c", "--processes"),
    ] {
        let error = bench(words).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(what), "{words}: {error}");
    }
}

#[test]
fn a_pool_with_keys_in_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let words = format!(
        "--records 1000 --ops 100 --workload c --pool file:{}/pool?size=64M",
        folder.path().display()
    );
    bench(&words).unwrap();
    let error = bench(&words).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("empty"), "{error}");
}

/// The table grows by a row when a workload ends.
#[test]
fn rows_come_as_workloads_end() {
    let (_, out) = bench("--index dart --records 2000 --ops 500 --workload load,c").unwrap();
    let rows: Vec<&str> = out.lines().filter(|line| line.starts_with("| ")).take(3).collect();
    assert!(
        rows[0].contains("round trips") && rows[1].starts_with("| LOAD") && rows[2].starts_with("| C "),
        "{out}"
    );
    assert!(out.find("| C ").unwrap() < out.find("prefix list").unwrap(), "{out}");
}

#[test]
fn a_run_that_is_ended_says_so() {
    let args = Program::try_parse_from(["bench", "--records", "2000", "--ops", "500"]).unwrap().bench;
    let setting = Setting::default();
    setting.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(run(&args, &setting, &mut Vec::new()), Err(BenchError::Interrupted)));
}
