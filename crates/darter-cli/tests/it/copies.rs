//! Copies of pool files: a copy that was made while the pool was open is refused until it is
//! checked.

use crate::scene::Scene;
use darter::{PoolUrl, Store};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

const REFUSAL: &str = "is a copy of a pool that was open when it was copied";

/// Copies the scene's pool. Returns a scene's options for the copy.
fn copy(scene: &Scene, name: &str) -> String {
    fs::copy(scene.path("pool"), scene.path(name)).unwrap();
    format!("file:{}", scene.path(name).display())
}

#[test]
fn a_copy_of_an_open_pool_is_refused_by_all_commands_until_it_is_repaired() {
    let scene = Scene::new();
    let store = Store::options().create(false).open(PoolUrl::file(scene.path("pool"))).unwrap();
    let session = store.session().unwrap();
    for number in 0..2000_u32 {
        session.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    let url = copy(&scene, "copy");
    for words in ["get a", "put a b", "scan", "export", "stats", "tree", "check", "pool status", "shell"] {
        let words: Vec<_> = words.split(' ').chain(["--pool", &url]).collect();
        scene.run(&words).code(1).err(REFUSAL).err("darter check --repair");
    }
    scene.run(&["check", "--repair", "--pool", &url]).code(0).err("is sound");
    let pairs = scene.run(&["scan", "--hex", "--pool", &url]).code(0).out;
    assert_eq!(pairs.lines().count(), 2000);
    // A copy that mixes states: its later half is from before the pool was filled.
    let url = copy(&scene, "mixed");
    let mixed = File::options().write(true).open(scene.path("mixed")).unwrap();
    mixed.write_all_at(&vec![0; 15 << 20], 1 << 20).unwrap();
    for _ in 0..2 {
        scene.run(&["check", "--repair", "--pool", &url]).code(1).err(REFUSAL).err("it is not: ");
        scene.run(&["get", "a", "--pool", &url]).code(1).err(REFUSAL);
    }
    drop((session, store));
    let url = copy(&scene, "closed");
    scene.run(&["put", "a", "b", "--pool", &url]).code(0);
}

/// A killed process leaves its member line, and the same file can still be opened.
#[test]
fn a_file_whose_last_user_was_killed_opens_and_a_copy_of_it_does_not() {
    let scene = Scene::new();
    let mut user = Command::new(env!("CARGO_BIN_EXE_darter"))
        .args(["shell", "--pool", &scene.url()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    user.stdin.as_mut().unwrap().write_all(b"put a b\nget a\n").unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(user.stdout.as_mut().unwrap()), &mut line)
        .unwrap();
    user.kill().unwrap();
    user.wait().unwrap();
    let url = copy(&scene, "copy");
    scene.run(&["get", "a", "--pool", &url]).code(1).err(REFUSAL);
    fs::rename(scene.path("pool"), scene.path("moved")).unwrap();
    fs::rename(scene.path("moved"), scene.path("pool")).unwrap();
    scene.run(&["get", "a"]).code(0).out("b\n");
    scene.run(&["check", "--repair", "--pool", &url]).code(0);
    scene.run(&["get", "a", "--pool", &url]).code(0).out("b\n");
}
