//! Small whole comparisons: every index in every workload, local and modelled, and the resulting
//! files.

use clap::Parser;
use darter_bench::BenchError;
use darter_lab_bench::{CompareArgs, Measurement, PaperArgs, Setting, VARIANTS, run_compare, run_paper};
use std::collections::HashSet;
use std::fs;

#[derive(Debug, clap::Parser)]
struct Compare {
    #[command(flatten)]
    args: CompareArgs,
}

#[derive(Debug, clap::Parser)]
struct Paper {
    #[command(flatten)]
    args: PaperArgs,
}

fn setting() -> Setting {
    Setting { command: "darter-lab compare --and <so> on".to_owned(), ..Setting::default() }
}

/// Runs `compare` with these words. Returns measurements and output.
fn compare(words: &str) -> Result<(Vec<Measurement>, String), BenchError> {
    let words = std::iter::once("compare").chain(words.split_whitespace());
    let args = Compare::try_parse_from(words).expect("arguments that parse").args;
    let mut out = Vec::new();
    let measurements = run_compare(&args, &setting(), &mut out)?;
    Ok((measurements, String::from_utf8(out).expect("UTF-8")))
}

/// The names of all indexes that keep everything stored in them.
fn every_index() -> String {
    let names = VARIANTS.iter().map(|variant| variant.name).filter(|name| !name.contains("unlocked"));
    names.collect::<Vec<_>>().join(",")
}

#[test]
fn every_index_runs_every_workload() {
    for (dataset, pool) in
        [("randint", "local"), ("email", "local"), ("randint", "model:preset=dart,threads=6")]
    {
        let words = format!(
            "--indexes {} --records 2000 --ops 500 --rounds 2 --dataset {dataset} --pool {pool}",
            every_index()
        );
        let (measurements, out) = compare(&words).unwrap();
        let indexes = every_index().split(',').count();
        assert_eq!(measurements.len(), 7 * indexes);
        for one in &measurements {
            let figures = &one.figures;
            assert!(figures.round_trips_per_op > 0.3 && figures.ops_per_s > 0.0, "{one:?}");
            assert!(
                figures.index_bytes + figures.kv_bytes > 0 && figures.p50_us <= figures.p99_us,
                "{one:?}"
            );
            assert_eq!(figures.modelled, pool.starts_with("model:"));
            assert_eq!(figures.modelled, !figures.bottleneck.is_empty());
            assert_eq!(figures.relative_to, "dart");
        }
        assert_eq!(out.contains("modelled"), pool.starts_with("model:"), "{out}");
    }
}

#[test]
fn sweep_has_a_row_for_each_point_and_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let words = format!(
        "--indexes dart,art --workloads load,c --records 2000 --ops 500 --rounds 1 --cache 64K,1M --theta uniform,0.99 \
         --csv {} --json {} --html {} --svg {}",
        path("rows.csv"),
        path("rows.json"),
        path("page.html"),
        path("plots")
    );
    let (measurements, _) = compare(&words).unwrap();
    // Two loads for each cache, without exponents; four searches for each cache.
    assert_eq!(measurements.len(), 2 * 2 + 2 * 2 * 2);
    let hashes: HashSet<_> = measurements.iter().map(|one| one.figures.hash.clone()).collect();
    assert_eq!(hashes.len(), measurements.len(), "two configurations have one hash");
    let rows = fs::read_to_string(path("rows.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + measurements.len());
    assert!(hashes.iter().all(|hash| rows.contains(hash)));
    let json: serde_json::Value = serde_json::from_slice(&fs::read(path("rows.json")).unwrap()).unwrap();
    for (row, one) in json.as_array().unwrap().iter().zip(&measurements) {
        assert_eq!(row["hash"], one.figures.hash);
        assert_eq!(row["index"], one.configuration.index);
        assert!((row["round_trips_per_op"].as_f64().unwrap() - one.figures.round_trips_per_op).abs() < 1e-9);
    }
    let page = fs::read_to_string(path("page.html")).unwrap();
    assert!(page.contains("darter-lab compare --and &lt;so&gt; on") && page.contains("<svg"));
    assert!(!page.contains("http") && !page.contains("<script"));
    assert!(fs::read_to_string(folder.path().join("plots/c-cache-round-trips.svg")).unwrap().contains("art"));
}

#[test]
fn counts_on_one_thread_and_times_of_a_model_repeat() {
    for pool in ["local", "model:preset=smart,threads=4,cn=2"] {
        let words = format!("--indexes dart,art --workloads a,c --records 2000 --ops 1000 --pool {pool}");
        let (one, _) = compare(&words).unwrap();
        let (other, _) = compare(&words).unwrap();
        for (one, other) in one.iter().zip(&other) {
            assert_eq!(one.configuration, other.configuration);
            let counts = |one: &Measurement| {
                [one.figures.round_trips_per_op, one.figures.verbs_per_op].map(f64::to_bits)
            };
            assert_eq!(counts(one), counts(other), "{one:?} {other:?}");
            if one.figures.modelled {
                assert_eq!(one.figures.ops_per_s.to_bits(), other.figures.ops_per_s.to_bits());
                assert_eq!(one.figures.p99_us.to_bits(), other.figures.p99_us.to_bits());
            }
        }
    }
}

/// Keys on three memory nodes cost the round trips that they cost on one; a scan may cross a bound.
#[test]
fn an_index_with_servers_costs_the_same_on_several_nodes() {
    let round_trips = |nodes: u32| {
        let words = format!(
            "--indexes xstore,xstore+server,xstore+whole --workloads c,a,e --records 6000 --ops 2000 --rounds 1 \
             --dataset dense --theta uniform --value-bytes 8 --cache 1M --memnodes {nodes}"
        );
        let (measurements, _) = compare(&words).unwrap();
        measurements.into_iter().map(|one| one.figures.round_trips_per_op).collect::<Vec<_>>()
    };
    let (one, three) = (round_trips(1), round_trips(3));
    assert_eq!(one.len(), 9);
    for (one, three) in one.iter().zip(&three) {
        assert!((one - three).abs() < one * 0.05, "{one} on one node, {three} on three");
    }
}

#[test]
fn what_cannot_be_is_refused_as_usage() {
    for (words, what) in [
        ("--indexes dart,dart", "--indexes"),
        ("--workloads a,load", "--workloads"),
        ("--records 0", "--records"),
        ("--ops 0", "--ops"),
        ("--threads 0", "--threads"),
        ("--in-flight 0", "--in-flight"),
        ("--rounds 0", "--rounds"),
        ("--memnodes 0", "--memnodes"),
        ("--memnodes 2 --pool model:preset=dart", "--memnodes"),
        ("--value-bytes 99999999", "--value-bytes"),
        ("--dataset file:/nonexistent", "/nonexistent"),
        ("--records 1000 --csv /nonexistent/rows.csv", "/nonexistent"),
        ("--indexes dart,xstore --pool tcp --memnodes 2", "--memnodes: over TCP xstore"),
    ] {
        let error =
            compare(&format!("--indexes dart {words}").replace("--indexes dart --indexes", "--indexes"))
                .unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(what), "{words}: {error}");
    }
    for words in ["--indexes nope", "--pool nowhere", "--pool model:cn=none", "--theta -1", "--cache 1X"] {
        let words = std::iter::once("compare").chain(words.split(' '));
        assert!(Compare::try_parse_from(words).is_err());
    }
}

#[test]
fn a_figure_leaves_its_files_and_says_how_far_apart_we_are() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("paper").display().to_string();
    let run = |words: &[&str]| {
        let words = [&["paper"][..], words, &["--out", &out, "--records", "3000", "--ops", "500"]].concat();
        let args = Paper::try_parse_from(words).expect("arguments that parse").args;
        let mut text = Vec::new();
        run_paper(&args, &setting(), &mut text).map(|()| String::from_utf8(text).expect("UTF-8"))
    };
    let text = run(&["dart-sec2.2,dart-fig11"]).unwrap();
    assert!(text.contains("14.4") && text.contains("apart") && text.contains("3000 records"), "{text}");
    for name in ["dart-sec2.2.csv", "dart-sec2.2-paper.csv", "dart-sec2.2.txt", "dart-fig11.html"] {
        assert!(fs::metadata(folder.path().join("paper").join(name)).unwrap().len() > 100, "{name}");
    }
    assert!(fs::read_dir(folder.path().join("paper/dart-fig11")).unwrap().count() > 3);
    let page = fs::read_to_string(folder.path().join("paper/dart-fig11.html")).unwrap();
    assert!(page.contains("modelled") && page.contains("1.21"));
    let list = run(&["list"]).unwrap();
    assert!(
        list.contains("dart-fig7") && list.contains("smart-fig11") && list.contains("sherman-fig2"),
        "{list}"
    );
    assert!(list.contains("wort-fig11") && list.contains("the traces are not public"), "{list}");
    assert!(run(&["dart-fig99"]).unwrap_err().is_usage());
    assert!(run(&["xstore-fig13"]).unwrap_err().is_usage());
    assert!(run(&["dart-fig9"]).unwrap_err().to_string().contains("128 bytes"));
}

/// Figures of WORT count cache lines exactly, so the counts are the same in every run.
#[test]
fn figures_of_lines_leave_the_same_files_in_every_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = |out: &str, words: &[&str]| {
        let out = folder.path().join(out).display().to_string();
        let words = [&["paper"][..], words, &["--out", &out]].concat();
        let args = Paper::try_parse_from(words).expect("arguments that parse").args;
        let mut text = Vec::new();
        run_paper(&args, &setting(), &mut text).map(|()| String::from_utf8(text).expect("UTF-8"))
    };
    let names = ["wort-table1", "wort-fig7", "wort-fig8", "wort-fig9", "wort-fig10"];
    let small = [&names.join(",")[..], "--records", "3000", "--ops", "500"];
    let text = run("one", &small).unwrap();
    for part in
        ["3000 records", "modelled", "WORT, dense: 2.2 lines flushed an insertion", "clustered keys take"]
    {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert!(!text.contains("not measured") && !text.contains("NaN"), "{text}");
    assert_eq!(run("other", &small).unwrap(), text);
    for name in names {
        let read = |out: &str, file: &str| fs::read_to_string(folder.path().join(out).join(file)).unwrap();
        let csv = read("one", &format!("{name}.csv"));
        assert_eq!(csv, read("other", &format!("{name}.csv")));
        assert!(
            csv.lines().count() > 9 && csv.contains("lines_flushed") && csv.contains("wort+artcow"),
            "{csv}"
        );
        assert!(read("one", &format!("{name}.html")).contains("modelled"));
        assert!(fs::read_dir(folder.path().join("one").join(name)).unwrap().count() >= 3, "{name}");
    }
    let quick = run("quick", &["wort-fig7", "--quick"]).unwrap();
    assert!(quick.contains("20000 records"), "{quick}");
    let error = run("none", &["wort-fig7", "--records", "1G"]).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("--records"), "{error}");
}
