//! SIGINT and SIGTERM in commands that work for long: what was done is told, nothing half-made is
//! left, and the exit code is 130. No test waits for a time: each signal is sent once the command
//! shows that it is at work.

use crate::common::with_default_hangup;
use crate::scene::Scene;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A command at work.
struct Work {
    child: Child,
}

impl Work {
    fn start(scene: &Scene, words: &[&str]) -> Self {
        let mut command = with_default_hangup();
        command.args(words).env("DARTER_POOL", scene.url()).stdin(Stdio::piped());
        Self { child: command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap() }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the process handles SIGINT itself.
    fn until_it_hears(&self) {
        let path = format!("/proc/{}/status", self.child.id());
        for _ in 0..60_000 {
            let status = fs::read_to_string(&path).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            if u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 1) != 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it never takes its signals over");
    }

    /// Waits until the process waits for the other end of a FIFO. Returns whether the system tells.
    fn until_it_opens_a_fifo(&self) -> bool {
        let threads = format!("/proc/{}/task", self.child.id());
        loop {
            let threads = fs::read_dir(&threads).unwrap().map(|thread| thread.unwrap().path().join("wchan"));
            // A thread can have ended.
            let places: Vec<_> = threads.map(|place| fs::read_to_string(place).unwrap_or_default()).collect();
            if places.iter().all(String::is_empty) {
                return false;
            }
            if places.iter().any(|place| place == "wait_for_partner") {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the end. Returns the exit code, what went to stdout and to stderr.
    fn end(self) -> (Option<i32>, String, String) {
        let output = self.child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

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
    // The table grows while it works: LOAD's row is there long before C ends.
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
fn an_interrupted_check_changes_nothing() {
    let scene = Scene::new();
    let text: String = (0..60_000).map(|n| format!("{n:06},x\n")).collect();
    scene.load("keys.csv", text, &["--no-header"]).code(0);
    for words in [&["check"][..], &["check", "--repair"]] {
        let check = Work::start(&scene, words);
        check.until_it_hears();
        check.signal(Signal::INT);
        let (code, _, err) = check.end();
        // A fast machine may have been done.
        assert!(code == Some(130) && err.contains("interrupted") || code == Some(0), "{code:?} {err}");
        scene.run(&["check", "--repair"]).code(0);
    }
}

#[test]
fn a_second_signal_ends_a_command_at_once() {
    let scene = Scene::new();
    let shell = Work::start(&scene, &["shell"]);
    // While it waits for a line it does not check for signals.
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
        // In the shell, which has taken signals over.
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

/// Creates a FIFO in the scene's directory.
fn fifo_of(scene: &Scene) -> String {
    let fifo = scene.path("fifo").to_str().unwrap().to_owned();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fifo
}
