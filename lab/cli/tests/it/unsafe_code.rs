//! The sources that contain `unsafe` code: those that ARCHITECTURE.md names, and no others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files, and folders, whose sources may contain it.
const ALLOWED: &[&str] = &[
    "bindings/c/src",
    "crates/darter-fabric/src/files",
    "crates/darter-fabric/src/fork.rs",
    "crates/darter-fabric/src/local",
    "crates/darter-fabric/src/rdma",
    "crates/darter-fabric/src/words.rs",
    "crates/darter-index/src/checksum.rs",
    "crates/darter-gateway/src/fabric_driver.rs",
    "crates/darter-cli/src/stdout.rs",
    "lab/bench/src/peers",
    "lab/bench/src/stores",
    "lab/check/src/stress/thread_stop.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Adds the sources below `folder`, as paths from the root.
pub(crate) fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns whether a source contains an unsafe block, function or implementation outside of
/// comments.
fn is_unsafe(source: &str) -> bool {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).any(|word| word == "unsafe")
}

#[test]
fn unsafe_code_is_where_the_architecture_says() {
    let mut found = Vec::new();
    for folder in ["crates", "lab", "bindings"] {
        for package in std::fs::read_dir(root().join(folder)).unwrap() {
            let package = package.unwrap().path().join("src");
            if package.is_dir() {
                sources(&package, &mut found);
            }
        }
    }
    let mut used = BTreeSet::new();
    for path in found {
        if is_unsafe(&std::fs::read_to_string(&path).unwrap()) {
            let path = path.strip_prefix(root()).unwrap();
            let allowed = ALLOWED.iter().find(|allowed| path.starts_with(allowed));
            used.insert(*allowed.unwrap_or_else(|| panic!("unsafe code in {}", path.display())));
        }
    }
    assert_eq!(used, ALLOWED.iter().copied().collect(), "a place no longer has unsafe code");
}

#[test]
fn unsafe_code_is_recognised() {
    assert!(is_unsafe("let x = unsafe { f() };") && is_unsafe("unsafe impl Send for X {}"));
    assert!(!is_unsafe("// unsafe {") && !is_unsafe("#![deny(unsafe_code)]"));
}
