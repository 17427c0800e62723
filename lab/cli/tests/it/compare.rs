//! `compare` and `paper` from the command line: tables, files, exit codes; their own memory nodes
//! over TCP. Times are not checked.

use std::fs;
use std::process::{Command, Output};

fn darter(words: &[&str]) -> Output {
    let mut program = Command::new(crate::PROGRAM);
    // The caller's credentials do not apply to the measurement's own memory nodes.
    program.args(words).env_remove("DARTER_POOL").env("DARTER_TOKEN_FILE", "/no/such/token").output().unwrap()
}

#[track_caller]
fn assert_code(output: &Output, code: i32) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "out: {out}\nerr: {err}");
    format!("{out}{err}")
}

const SMALL: [&str; 6] = ["--records", "2000", "--ops", "500", "--rounds", "1"];

#[test]
fn a_comparison_over_tcp_leaves_rows_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (csv, html) = (path("rows.csv"), path("page.html"));
    let words =
        ["compare", "--indexes", "dart,art", "--workloads", "load,a,c", "--pool", "tcp", "--memnodes", "2"];
    let out = assert_code(&darter(&[&words[..], &SMALL, &["--csv", &csv, "--html", &html]].concat()), 0);
    assert!(out.contains("| dart") && out.contains("| art") && out.contains("× dart"), "{out}");
    let rows = fs::read_to_string(csv).unwrap();
    assert_eq!(rows.lines().count(), 1 + 3 * 2, "{rows}");
    assert!(rows.lines().skip(1).all(|row| row.contains(",tcp,2,")), "{rows}");
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("darter-lab compare --indexes dart,art --workloads load,a,c"), "{page}");
    assert!(!page.contains("<script") && !page.contains("http"));
}

#[test]
fn figures_are_listed_and_run() {
    let list = assert_code(&darter(&["paper", "list"]), 0);
    assert!(list.contains("dart-fig7") && list.contains("Figures and tables that cannot"), "{list}");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("paper").display().to_string();
    let text = assert_code(
        &darter(&["paper", "dart-sec2.2", "--records", "2000", "--ops", "500", "--out", &out]),
        0,
    );
    assert!(text.contains("5 round trips on randint") && text.contains("apart"), "{text}");
    assert!(fs::read_to_string(folder.path().join("paper/dart-sec2.2-paper.csv")).unwrap().contains("6500"));
}

#[test]
fn impossible_arguments_are_refused() {
    for (words, part) in [
        (&["compare", "--indexes", "nope"][..], "express skip table"),
        (&["compare", "--indexes", "dart", "--ops", "0"], "--ops"),
        (&["compare", "--indexes", "dart", "--pool", "model:preset=dart", "--memnodes", "2"], "--memnodes"),
        (&["paper", "dart-fig99"], "paper list"),
        (&["paper", "dart-fig9"], "128 bytes"),
    ] {
        let text = assert_code(&darter(words), 2);
        assert!(text.contains(part), "{words:?}: {text}");
    }
}
