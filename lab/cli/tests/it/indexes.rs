//! Pools of the indexes that darter is compared with, through `darter-lab`.

use crate::scene::{Answer, Scene};
use std::fs;

/// Each command needs the name of the index that the pool holds, and refuses any other.
#[test]
fn pools_of_every_index_are_written_read_and_checked() {
    let scene = Scene::new();
    let lines: String = (0..300).map(|n| format!("key{n:03},{n}\n")).collect();
    let pairs = scene.path("pairs.csv");
    fs::write(&pairs, lines).unwrap();
    for index in ["art", "smart", "sherman", "chime", "wort", "dart"] {
        let pool = format!("file:{}", scene.path(index).display());
        let run = |words: &[&str], pool: &str, index: &str| -> Answer {
            scene.run(&[words, &["--pool", pool, "--index", index]].concat())
        };
        let new = format!("{pool}?size=32M");
        run(&["load", pairs.to_str().unwrap(), "--no-header"], &new, index).code(0);
        run(&["put", "key300", "300"], &pool, index).code(0);
        run(&["get", "key042"], &pool, index).code(0).out("42\n");
        run(&["scan", "--limit", "2", "--keys-only"], &pool, index).code(0).out("key000\nkey001\n");
        run(&["check"], &pool, index).code(0);
        run(&["get", "key042"], &pool, "quiver").code(2).err("holds the index");
    }
}
