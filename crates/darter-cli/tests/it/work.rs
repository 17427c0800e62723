//! A running command that gets a signal once it shows that it is working.

use crate::common::with_default_hangup;
use crate::scene::Scene;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running command.
pub(crate) struct Work {
    pub(crate) child: Child,
}

impl Work {
    pub(crate) fn start(scene: &Scene, words: &[&str]) -> Self {
        let mut command = with_default_hangup();
        command.args(words).env("DARTER_POOL", scene.url()).stdin(Stdio::piped());
        Self { child: command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap() }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the process handles SIGINT itself.
    pub(crate) fn until_it_hears(&self) {
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

    /// Waits until the process waits for the other end of a FIFO. Returns whether the system
    /// reports that.
    pub(crate) fn until_it_opens_a_fifo(&self) -> bool {
        let threads = format!("/proc/{}/task", self.child.id());
        loop {
            let threads = fs::read_dir(&threads).unwrap().map(|thread| thread.unwrap().path().join("wchan"));
            // The thread may have ended.
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

    /// Waits for the end. Returns the exit code, stdout and stderr.
    pub(crate) fn end(self) -> (Option<i32>, String, String) {
        let output = self.child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

/// Creates a FIFO in the scene's directory.
pub(crate) fn fifo_of(scene: &Scene) -> String {
    let fifo = scene.path("fifo").to_str().unwrap().to_owned();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fifo
}
