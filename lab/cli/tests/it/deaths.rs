//! `bench deaths`: writers that are killed while others observe, and a report whose counts add up.
//! Times are not checked.

use serde_json::Value;
use std::process::{Command, Output};

fn deaths(words: &[&str]) -> Output {
    let mut program = Command::new(crate::PROGRAM);
    program.args(["bench", "deaths"]).args(words);
    // The caller's credentials do not apply to the measurement's own memory nodes.
    program.env_remove("DARTER_POOL").env("DARTER_TOKEN_FILE", "/no/such/token").output().unwrap()
}

#[test]
fn deaths_under_load_are_counted_and_leave_a_sound_pool() {
    let small = ["--json", "--records", "1000", "--memnodes", "2", "--lease", "1s", "--pause", "20ms"];
    let output = deaths(&[&small[..], &["--kills", "3", "--block", "2"]].concat());
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!((number(&report["kills"]), number(&report["ends"])), (3, 3), "{report:#}");
    for which in ["reclamation", "reclamation_undisturbed"] {
        assert_eq!(number(&report[which]["ends"]), 3, "{report:#}");
    }
    // A victim reports that it has begun after it has become a member.
    assert_eq!(number(&report["members_left"]), 3, "{report:#}");
    assert!(number(&report["lapsed"]) <= 3 && number(&report["kills_within"]) <= 3, "{report:#}");
    assert_eq!(report["violations"], Value::Array(vec![]));
    assert!(number(&report["repaired_bytes"]) > 0, "the killed left nothing behind: {report:#}");
    assert_eq!(number(&report["leaked_bytes"]), 0, "{report:#}");
    let rows = report["latencies"].as_array().unwrap();
    let named = |when: &str| rows.iter().filter(|row| row["when"] == when).collect::<Vec<_>>();
    for when in ["undisturbed", "outside", "early"] {
        let rows = named(when);
        assert_eq!(rows.len(), 2, "{report:#}");
        for row in rows {
            assert!(when == "early" || number(&row["ops"]) > 0, "{report:#}");
            let at = |name: &str| row[name].as_f64().unwrap();
            assert!(at("p50") <= at("p99") && at("p99") <= at("p999") && at("p999") <= at("max"), "{row}");
        }
    }
    assert_eq!(report["reached"], report["misses"].as_array().unwrap().is_empty());
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (words, part) in [
        (["--kills", "0"], "--kills"),
        (["--lease", "5"], "500ms"),
        (["--records", "0"], "--records"),
        (["--value-size", "1000000"], "--value-size"),
        (["--victims", "65"], "--victims"),
    ] {
        let output = deaths(&words);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {err}");
        assert!(err.contains(part), "{words:?}: {err}");
    }
}
