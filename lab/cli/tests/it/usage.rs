//! Errors in the command line end with exit code 2 and describe the error.

use crate::common::{self, darter};
use crate::scene::Scene;
use std::fs;

#[test]
fn what_cannot_be_carried_out_is_exit_code_2() {
    let scene = Scene::new();
    let pool = format!("file:{}", scene.path("").display());
    let node = ["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--serve", "xstore"];
    for (words, says) in [
        (&["bench", "--records", "10", "--pool", &pool][..], "it is a directory"),
        (&["stress", "--seconds", "1", "--pool", &pool], "it is a directory"),
        (&["stress", "--seconds", "1", "--pool", "model:preset=dart,threads=4"], "darter-lab compare"),
        (&["get", "x", "--pool", "model:preset=dart"], "darter-lab compare"),
        (&["compare", "--pool", "model:threads=many"], "docs/model.md"),
        (&["sim", "--runs", "0"], "--runs"),
        (&["sim", "--threads", "0"], "--threads"),
        (&["sim", "--replay", "@/nowhere/line"], "@/nowhere/line"),
        (&["sim", "--index", "dart", "--faults", "lose"], "lost memory nodes"),
        (&["sim", "--faults", "lose", "--durability", "log"], "--durability"),
        (&["get", "k", "--index", "art+unlocked"], "art+hashed"),
        (
            &[&node[..], &["--replicas", "127.0.0.1:1+127.0.0.1:2", "--views", "file:/nowhere"]].concat(),
            "--replicas",
        ),
        (&[&node[..], &["--rdma", "rxe0"]].concat(), "--rdma"),
    ] {
        scene.run(words).code(2).err(says);
    }
}

#[test]
fn a_replay_line_is_read_from_a_file() {
    // Atomics of two sides break every index.
    let found = darter(&["sim", "--verbs", "split", "--mixed-sides", "--index", "dart", "--quick"]);
    let scene = Scene::new();
    let file = scene.path("line");
    fs::write(&file, &found.stdout).unwrap();
    let again = darter(&["sim", "--replay", &format!("@{}", file.display())]);
    let said = common::said(&again);
    assert!(said.contains("VIOLATION"), "{}", said.chars().take(300).collect::<String>());
    assert_eq!(again.status.code(), Some(1));
}
