//! SIGINT and SIGTERM in long-running commands: the command reports its work, leaves nothing
//! incomplete, and exits with code 130. No test waits for a time: each signal is sent once the
//! command shows that it is working.

use crate::scene::Scene;
use crate::work::{Work, fifo_of};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::time::Duration;

#[test]
fn an_interrupted_load_says_what_is_stored_and_where_to_go_on() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let scene = Scene::new();
        let mut load = Work::start(&scene, &["load", "-", "--format", "csv", "--batch", "100"]);
        let mut input = load.child.stdin.take().unwrap();
        let lines: String = (0..250).map(|n| format!("{n:03},{n}\n")).collect();
        write!(input, "key,value\n{lines}").unwrap();
        input.flush().unwrap();
        // Two batches are stored; the third waits for input that does not come.
        let stored = || scene.run(&["scan", "--keys-only"]).out.lines().count();
        while stored() < 200 {}
        load.signal(signal);
        let (code, _, err) = load.end();
        assert_eq!(code, Some(130), "{err}");
        assert!(err.contains("200 new keys, 0 replaced, 0 bad lines"), "{err}");
        assert!(err.contains("go on with `--from-line 202`"), "{err}");
        let rest = scene.load("all.csv", format!("key,value\n{lines}"), &["--from-line", "202"]);
        rest.code(0).err("50 new keys, 0 replaced");
        scene.run(&["check"]).code(0);
        assert_eq!(stored(), 250);
    }
}

#[test]
fn an_interrupted_bench_reports_what_it_has_measured() {
    let scene = Scene::new();
    let pool = format!("file:{}?size=64M", scene.path("bench").display());
    let words = ["bench", "--workload", "load,c", "--records", "2000", "--ops", "1G", "--warm-up", "0"];
    let mut bench = Work::start(&scene, &[&words[..], &["--pool", &pool]].concat());
    // The table grows while the command works: the row of LOAD is there long before C ends.
    let mut out = BufReader::new(bench.child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("| LOAD") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "no row");
    }
    bench.signal(Signal::INT);
    out.read_to_string(&mut line).unwrap();
    let (code, _, err) = bench.end();
    assert_eq!(code, Some(130), "{err}");
    assert!(err.contains("interrupted") && line.contains("At the end: 2000 records"), "{line}{err}");
    // The pool is closed and sound.
    scene.run(&["check", "--pool", &format!("file:{}", scene.path("bench").display())]).code(0);
}

#[test]
fn an_interrupted_check_changes_nothing() {
    let scene = Scene::new();
    let text: String = (0..60_000).map(|n| format!("{n:06},x\n")).collect();
    scene.load("keys.csv", text, &["--no-header"]).code(0);
    for words in [&["check"][..], &["check", "--repair"]] {
        let check = Work::start(&scene, words);
        check.until_it_hears();
        check.signal(Signal::INT);
        let (code, _, err) = check.end();
        // On a fast machine the command may have ended.
        assert!(code == Some(130) && err.contains("interrupted") || code == Some(0), "{code:?} {err}");
        scene.run(&["check", "--repair"]).code(0);
    }
}

#[test]
fn a_second_signal_ends_a_command_at_once() {
    let scene = Scene::new();
    let shell = Work::start(&scene, &["shell"]);
    // While waiting for a line, the command does not check for signals.
    shell.until_it_hears();
    shell.signal(Signal::INT);
    shell.signal(Signal::TERM);
    assert_eq!(shell.end().0, Some(130));
}

#[test]
fn a_signal_ends_a_command_whose_fifo_has_no_other_end() {
    let scene = Scene::new();
    let fifo = fifo_of(&scene);
    for words in [
        &["load", &fifo, "--format", "csv"][..],
        &["import", &fifo],
        &["export", &fifo],
        &["put", "a", "--value-file", &fifo],
        &["tree", "--svg", &fifo],
    ] {
        let work = Work::start(&scene, words);
        if !work.until_it_opens_a_fifo() {
            eprintln!("skipped: the system does not tell where a process waits");
            return;
        }
        work.signal(Signal::TERM);
        assert_eq!(work.end().0, None, "{words:?} ends by the signal");
        // In the shell, which handles signals.
        let mut shell = Work::start(&scene, &["shell"]);
        writeln!(shell.child.stdin.as_ref().unwrap(), "{}", words.join(" ")).unwrap();
        drop(shell.child.stdin.take());
        assert!(shell.until_it_opens_a_fifo());
        shell.signal(Signal::TERM);
        let (code, _, err) = shell.end();
        assert_eq!(code, Some(130), "{words:?}: {err}");
        assert!(err.contains("line 1: interrupted"), "{words:?}: {err}");
    }
}

#[test]
fn a_signal_ends_an_export_whose_reader_does_not_read() {
    let scene = Scene::new();
    scene.load("keys.csv", format!("a,{}\n", "x".repeat(200 << 10)), &["--no-header"]).code(0);
    let fifo = fifo_of(&scene);
    let reader = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let export = Work::start(&scene, &["export", &fifo]);
    while rustix::io::ioctl_fionread(&reader).unwrap() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    export.signal(Signal::TERM);
    assert_eq!(export.end().0, None);
}
