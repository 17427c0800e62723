//! `--help`, `completions` and `man`: every command has examples, and its own options come first.

use crate::common::{darter, said};
use std::process::Command;

/// The commands listed by help, in its order.
fn commands() -> Vec<String> {
    let help = said(&darter(&["--help"]));
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn everyday_commands_come_first_and_each_has_examples() {
    let commands = commands();
    assert_eq!(commands[..5], ["put", "get", "del", "scan", "shell"]);
    let mut words: Vec<Vec<&str>> = commands.iter().map(|name| vec![&**name]).collect();
    words.retain(|words| words != &["pool"]);
    let pool = ["create", "add-node", "rebalance", "drain", "status"];
    words.extend(pool.map(|name| vec!["pool", name]));
    for words in words {
        let help = said(&darter(&[&words[..], &["--help"]].concat()));
        assert!(help.contains("\nExample"), "{words:?}:\n{help}");
        let example = format!("darter {}", words.join(" "));
        assert!(
            help.lines().any(|line| line.starts_with("  ") && line.contains(&example)),
            "{words:?}:\n{help}"
        );
        let (own, secrets) = (help.find("\nOptions:"), help.find("\nToken and TLS:"));
        assert!(secrets.is_none_or(|secrets| own.unwrap() < secrets), "{words:?}:\n{help}");
        assert_eq!(secrets.is_some(), help.contains("--token-file"), "{words:?}:\n{help}");
    }
}

#[test]
fn completions_are_scripts_that_their_shells_read() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = darter(&["completions", shell]);
        let script = said(&output);
        assert!(
            output.status.success() && script.contains("add-node") && script.contains("import"),
            "{script}"
        );
        assert!(!script.contains("put-worker"), "{script}");
    }
    let script = said(&darter(&["completions", "bash"]));
    let asked = format!(
        "{script}\nCOMP_WORDS=(darter sta); COMP_CWORD=1; _darter darter sta darter; echo \"${{COMPREPLY[@]}}\""
    );
    let completed = Command::new("bash").args(["--norc", "-c", &asked]).output().unwrap();
    assert_eq!(said(&completed).trim(), "stats");
}

#[test]
fn manual_pages_are_printed_and_written() {
    let page = said(&darter(&["man", "pool", "create"]));
    assert!(page.contains(".TH") && page.contains("Examples"), "{page}");
    assert!(said(&darter(&["man"])).contains("disaggregated"));
    let directory = tempfile::tempdir().unwrap();
    assert!(darter(&["man", "--dir", directory.path().to_str().unwrap()]).status.success());
    for name in commands() {
        let path = directory.path().join(format!("darter-{name}.1"));
        assert!(path.exists(), "{}", path.display());
    }
    assert!(!directory.path().join("darter-bench-worker.1").exists());
}

#[test]
fn colours_are_for_terminals() {
    for words in [&["--help"][..], &["get", "--help"], &["fly"], &["get", "k", "--pool", "file:/no/such"]] {
        let output = darter(words);
        assert!(!said(&output).contains('\u{1b}'), "{words:?}");
    }
    let forced =
        Command::new(env!("CARGO_BIN_EXE_darter")).arg("--help").env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(said(&forced).contains('\u{1b}'));
}
