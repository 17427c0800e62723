//! Files whose file system has less space than they may come to need: warnings, and errors if the
//! space cannot be reserved.

use crate::common::{may_mount, mounting};
use std::process::Stdio;

/// Runs shell commands in an empty file system of 24 MiB; `$D` is the program. Returns their
/// stderr; `None` if file systems cannot be mounted here.
fn on_a_small_disk(commands: &str) -> Option<String> {
    if !may_mount() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = format!("mount -t tmpfs -o size=24M none \"$1\" && cd \"$1\" && D=$2\n{commands}");
    let mut shell = mounting();
    shell.args(["sh", "-c", &script, "sh"]).arg(directory.path()).arg(env!("CARGO_BIN_EXE_darter"));
    let output = shell.env_remove("DARTER_POOL").stdin(Stdio::null()).output().unwrap();
    Some(String::from_utf8(output.stderr).unwrap())
}

/// Returns the number of warnings about a file.
fn warnings(said: &str, file: &str) -> usize {
    let about = |line: &&str| {
        line.contains(file)
            && (line.contains("may need") || line.contains("may come to need"))
            && line.contains("make room")
    };
    said.lines().filter(about).count()
}

#[test]
fn each_command_warns_of_a_pool_that_its_disk_cannot_hold() {
    let Some(said) = on_a_small_disk(
        "$D put a b --pool 'file:put?size=64M&sparse'
         $D pool create --pool 'file:create?size=64M&sparse'
         $D get a --pool file:put
         echo get b | $D shell --pool file:put
         $D serve --resp 127.0.0.1:0 --until-stdin-closes --log-level off --pool 'file:serve?size=64M&sparse'
         $D bench --records 10 --ops 10 --pool 'file:bench?size=64M&sparse' | grep '^note' >&2",
    ) else {
        return;
    };
    let found = ["put: ", "create: ", "serve: ", "bench: "].map(|file| warnings(&said, file));
    assert_eq!(found, [3, 1, 1, 1], "{said}");
}

#[test]
fn a_pool_whose_space_is_reserved_is_refused_or_needs_no_warning() {
    let Some(said) = on_a_small_disk(
        "$D put a b --pool 'file:large?size=64M' || echo large exits $? >&2
         $D put a b --pool 'file:written?size=64M&preallocate' || echo written exits $? >&2
         $D put a b --pool 'file:small?size=16M' && echo small is there >&2
         ls -A >&2",
    ) else {
        return;
    };
    assert_eq!(said.matches("has no room for").count(), 2, "{said}");
    assert!(said.contains("large exits 1\n") && said.contains("written exits 1\n"), "{said}");
    assert!(said.ends_with("small is there\nsmall\n") && !said.contains("may need"), "{said}");
}

#[test]
fn a_memory_node_warns_of_a_region_or_log_that_its_disk_cannot_hold() {
    let Some(said) = on_a_small_disk(
        "node() { $D memnode --listen 127.0.0.1:0 --until-stdin-closes \"$@\"; }
         node --size 64M --file sparse --sparse
         node --size 4M --file whole --preallocate
         rm sparse whole
         node --size 64M --durability log --log large --segment-bytes 64K --checkpoint-bytes 1M
         node --size 1M --durability log --log small --segment-bytes 64K --checkpoint-bytes 1M",
    ) else {
        return;
    };
    let found = ["sparse: ", "whole: ", "large: ", "small: "].map(|file| warnings(&said, file));
    assert_eq!(found, [1, 0, 1, 0], "{said}");
    assert!(
        said.lines().filter(|line| line.contains("may need")).all(|line| line.contains("WARN")),
        "{said}"
    );
}
