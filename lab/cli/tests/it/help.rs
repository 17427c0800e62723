//! `--help`, `completions` and `man`.

use crate::common::{darter, said};

#[test]
fn measurements_come_first_and_each_command_has_examples() {
    let help = said(&darter(&["--help"]));
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<_> = lines
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let own = ["bench", "compare", "paper", "sim", "mutants", "stress", "damages", "memnode"];
    assert_eq!(names[..8], own);
    for words in own {
        let help = said(&darter(&[words, "--help"]));
        let example = format!("  darter-lab {words}");
        assert!(help.lines().any(|line| line.starts_with(&example)), "{words}:\n{help}");
    }
    for name in ["put", "get", "scan", "load", "check", "serve"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("worker") || name.contains("victim")), "{names:?}");
}

#[test]
fn completions_and_manual_pages_are_this_programs() {
    let script = said(&darter(&["completions", "bash"]));
    assert!(script.contains("darter-lab") && script.contains("compare"), "{script}");
    let page = said(&darter(&["man", "compare"]));
    assert!(page.contains(".TH") && page.contains("Examples"), "{page}");
}
