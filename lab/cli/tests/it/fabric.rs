//! `bench fabric` and processes of a measurement.

use crate::common::{darter, said};

#[test]
fn verbs_are_measured_next_to_a_bare_loop() {
    let words = [
        "bench",
        "fabric",
        "--rounds",
        "1",
        "--millis",
        "20",
        "--in-flight",
        "2,16",
        "--spin",
        "0,50",
        "--json",
    ];
    let output = darter(&words);
    assert!(output.status.success(), "{}", said(&output));
    let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Two verbs, two numbers in flight, the bare loop and two spins.
    assert_eq!(lines.len(), 12);
    assert!(lines.iter().all(|line| line["verbs_per_s"].as_f64().unwrap() > 0.0), "{lines:?}");
    let wrong = darter(&["bench", "fabric", "--in-flight", "0"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
}

#[test]
fn measurement_removes_its_processes_and_files() {
    let directory = tempfile::tempdir().unwrap();
    let pool = format!("file:{}?size=64M", directory.path().join("art").display());
    let run = ["--index", "art", "--records", "8", "--ops", "4000", "--processes", "2", "--check"];
    let output = darter(&[&["bench", "--workload", "a", "--pool", &pool][..], &run].concat());
    assert!(output.status.success(), "{}", said(&output));
}
