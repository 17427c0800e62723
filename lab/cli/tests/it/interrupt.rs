//! SIGINT and SIGTERM in comparisons and in the stress: the program reports its results so far,
//! leaves no partial file, and ends with exit code 130. No test waits for a fixed time.

use crate::scene::Scene;
use crate::work::{Work, fifo_of};
use rustix::process::Signal;
use std::fs;

#[test]
fn an_interrupted_comparison_leaves_no_files() {
    let scene = Scene::new();
    let (csv, html) = (scene.path("rows.csv"), scene.path("page.html"));
    let words = ["compare", "--indexes", "dart,art", "--workloads", "c", "--records", "2000", "--ops", "1G"];
    let files = ["--csv", csv.to_str().unwrap(), "--html", html.to_str().unwrap(), "--warm-up", "0"];
    let compare = Work::start(&scene, &[&words[..], &files].concat());
    compare.until_it_hears();
    compare.signal(Signal::TERM);
    let (code, _, err) = compare.end();
    assert_eq!(code, Some(130), "{err}");
    assert!(err.contains("interrupted") && !csv.exists() && !html.exists(), "{err}");
}

#[test]
fn an_interrupted_stress_judges_what_was_done() {
    let scene = Scene::new();
    let pool = format!("file:{}?size=64M", scene.path("stress").display());
    let words =
        ["stress", "--seconds", "100000", "--kills", "0", "--pauses", "0", "--repairs", "0", "--json"];
    let stress = Work::start(&scene, &[&words[..], &["--pool", &pool]].concat());
    stress.until_it_hears();
    stress.signal(Signal::INT);
    let (code, out, err) = stress.end();
    assert_eq!(code, Some(130), "{out}{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    assert_eq!(
        (&report["verdict"], &report["leaked_bytes"]),
        (&"linearizable".into(), &0.into()),
        "{report:#}"
    );
    let left = fs::read_dir(scene.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(
        left.filter(|name| name.to_string_lossy().contains("darter-stress")).count() == 0,
        "logs are left"
    );
}

#[test]
fn a_signal_ends_a_comparison_whose_fifo_has_no_reader() {
    let scene = Scene::new();
    let fifo = fifo_of(&scene);
    let words = ["compare", "--indexes", "dart", "--workloads", "c", "--records", "100", "--ops", "100"];
    for file in ["--csv", "--html"] {
        let compare = Work::start(&scene, &[&words[..], &["--warm-up", "0", file, &fifo]].concat());
        if !compare.until_it_opens_a_fifo() {
            eprintln!("skipped: the system does not tell where a process waits");
            return;
        }
        compare.signal(Signal::INT);
        let (code, out, err) = compare.end();
        assert_eq!(code, Some(130), "{err}");
        assert!(err.contains("interrupted") && out.contains("| dart"), "{out}{err}");
    }
}
