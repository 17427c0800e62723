//! `bench stores`: every case on every store, with few records. Rates are not checked, but the
//! workers check every value that they read.

use serde_json::Value;
use std::process::Command;

#[test]
fn stores_are_compared_with_one_and_two_processes_and_one_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let words = "bench stores --records 2000 --processes 1,2 --millis 20 --rounds 1 --json --dir";
    let mut program = Command::new(crate::PROGRAM);
    let output = program.args(words.split(' ')).arg(directory.path()).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    for operation in ["put", "put-100", "get", "get-100", "range-100"] {
        for processes in [1, 2] {
            let is_case = |row: &&Value| {
                row["operation"] == operation && row["processes"] == processes && row["one_stopped"] == false
            };
            assert_eq!(rows.iter().filter(is_case).count(), 1, "{report:#}");
        }
    }
    assert_eq!(rows.iter().filter(|row| row["one_stopped"] == true).count(), 1, "{report:#}");
    let stores: Vec<_> = rows[0]["rates"].as_array().unwrap().iter().map(|rate| &rate[0]).collect();
    assert_eq!(stores, ["darter", "lmdb", "redb", "fjall"]);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files are left");
}
