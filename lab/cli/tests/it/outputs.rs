//! Files and results of comparisons: devices, links and pools are neither replaced nor truncated.

use crate::PROGRAM;
use crate::scene::Scene;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Comparisons that write a file.
fn writers(path: &str) -> [Vec<&str>; 2] {
    let compare = ["compare", "--indexes", "dart", "--workloads", "c", "--records", "50", "--ops", "50"];
    ["--csv", "--html"].map(|flag| [&compare[..], &[flag, path]].concat())
}

#[test]
fn a_link_keeps_leading_to_the_file_that_an_output_replaces() {
    let scene = Scene::new();
    let (target, link) = (scene.path("target"), scene.path("link"));
    symlink("target", &link).unwrap();
    for words in writers(text(&link)) {
        fs::write(&target, "old").unwrap();
        let before = fs::metadata(&target).unwrap().ino();
        scene.run(&words).code(0);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "{words:?}");
        assert_ne!(fs::read(&target).unwrap(), b"old", "{words:?}");
        assert_ne!(fs::metadata(&target).unwrap().ino(), before, "{words:?}: not replaced as a whole");
    }
}

#[test]
fn no_output_replaces_a_pool_or_a_device() {
    let scene = Scene::new();
    scene.run(&["put", "a", "b"]).code(0);
    for words in writers(text(&scene.path("pool"))) {
        scene.run(&words).code(1).err("it is a darter pool");
    }
    scene.run(&["get", "a"]).code(0).out("b\n");
    // Needs root. The numbers of /dev/full, which a failure of this test must not replace.
    let device = scene.path("full");
    let mut make = Command::new("mknod");
    if make.args([text(&device), "c", "1", "7"]).stderr(Stdio::null()).status().unwrap().success() {
        for words in writers(text(&device)) {
            scene.run(&words).code(1).err("No space left");
            assert!(fs::symlink_metadata(&device).unwrap().file_type().is_char_device(), "{words:?}");
        }
    }
}

/// Files of another user are not written.
#[test]
fn files_of_other_users_are_left_alone() {
    let scene = Scene::new();
    let path = scene.path("rows");
    fs::write(&path, "theirs").unwrap();
    // Needs root.
    if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
        for words in writers(text(&path)) {
            let refused = scene.run(&words);
            assert_ne!(refused.code, 0, "{words:?}");
            refused.err("a file of another user (uid 65534)");
        }
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
    }
}

#[test]
fn results_that_cannot_be_printed_are_a_failure() {
    for (redirection, says) in [(">&-", "stdout is closed"), (">/dev/full", "No space left on device")] {
        let script = format!("exec {PROGRAM} paper list {redirection}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{redirection}: {err}");
        assert!(err.starts_with("darter-lab: cannot write the output") && err.contains(says), "{err}");
    }
}
