//! The product's crates do not depend on the laboratory's, by any kind of dependency, and its
//! program is built without the hooks of the checker and without planted errors.

use darter_check::mutants::mutants;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the packages of the workspace, as `cargo metadata` describes them.
fn packages() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root());
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Returns the dependencies, of all kinds, of crates in `crates/` on crates in `lab/`.
fn of_the_laboratory(packages: &[Value]) -> Vec<String> {
    let (crates, lab) = (root().join("crates"), root().join("lab"));
    let is_below =
        |path: &Value, folder: &Path| path.as_str().is_some_and(|path| Path::new(path).starts_with(folder));
    let product = packages.iter().filter(|package| is_below(&package["manifest_path"], &crates));
    let found = product.flat_map(|package| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let wrong = dependencies.filter(|dependency| is_below(&dependency["path"], &lab));
        wrong.map(|dependency| {
            let kind = dependency["kind"].as_str().unwrap_or("normal");
            format!("{} -> {} ({kind})", package["name"], dependency["name"])
        })
    });
    found.collect()
}

#[test]
fn no_crate_of_the_product_depends_on_the_laboratory() {
    let packages = packages();
    let in_crates = packages.iter().filter(|one| one["manifest_path"].as_str().unwrap().contains("/crates/"));
    assert!(in_crates.count() >= 10 && packages.len() >= 14, "only {} packages", packages.len());
    let found = of_the_laboratory(&packages);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_dependency_on_the_laboratory_is_found_whatever_its_kind() {
    for kind in [Value::Null, "dev".into(), "build".into()] {
        let package = serde_json::json!({
            "name": "darter-pool",
            "manifest_path": root().join("crates/darter-pool/Cargo.toml"),
            "dependencies": [
                { "name": "darter-fabric", "kind": null, "path": root().join("crates/darter-fabric") },
                { "name": "libc", "kind": null, "path": null },
                { "name": "darter-check", "kind": kind, "path": root().join("lab/check") },
            ],
        });
        assert_eq!(of_the_laboratory(&[package]).len(), 1, "{kind}");
    }
}

/// Features and crates that only the laboratory and tests need.
const OF_THE_LABORATORY: [&str; 3] =
    ["darter feature \"checker\"", "darter-index feature \"checker\"", "darter-sim "];

/// Returns the features and crates of the laboratory that a package is built with by itself.
fn features_of(package: &str) -> Vec<&'static str> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--edges", "normal,features", "--prefix", "none", "--package", package]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let is_present = |feature: &&str| tree.lines().any(|line| line.starts_with(feature));
    OF_THE_LABORATORY.into_iter().filter(is_present).collect()
}

#[test]
fn the_program_is_built_without_hooks_of_the_checker() {
    assert_eq!(features_of("darter-cli"), [""; 0]);
    let of_the_other = features_of("darter-lab");
    assert!(of_the_other.contains(&OF_THE_LABORATORY[0]) && of_the_other.len() == 3, "{of_the_other:?}");
}

/// Returns the traces of planted errors in a program: the name of the variable that plants one, and
/// the numbers that guards compare.
fn planted_in(program: &Path) -> Vec<String> {
    let bytes = std::fs::read(program).unwrap();
    let variable = darter_mutant::VARIABLE.as_bytes();
    let mut found = Vec::new();
    if bytes.windows(variable.len()).any(|window| window == variable) {
        found.push(darter_mutant::VARIABLE.to_owned());
    }
    let mutants = mutants().unwrap();
    let mut may_be = vec![false; 1 << 16];
    let guards: Vec<(u64, &str)> =
        mutants.iter().map(|mutant| (darter_mutant::id(&mutant.name), &mutant.name[..])).collect();
    for (id, _) in &guards {
        may_be[*id as usize & 0xffff] = true;
    }
    for window in bytes.windows(8) {
        if may_be[usize::from(u16::from_le_bytes([window[0], window[1]]))] {
            let word = u64::from_le_bytes(window.try_into().unwrap());
            found.extend(guards.iter().filter(|(id, _)| *id == word).map(|(_, name)| (*name).to_owned()));
        }
    }
    found
}

#[test]
fn the_program_has_no_errors_that_can_be_planted() {
    if darter_mutant::IS_PREPARED {
        return;
    }
    let lab = Path::new(super::PROGRAM);
    assert_eq!(planted_in(lab), [darter_mutant::VARIABLE], "the program that hunts them knows the variable");
    let program = lab.with_file_name("darter");
    if program.exists() {
        assert_eq!(planted_in(&program), [""; 0]);
    } else {
        // It is built with the tests of the whole workspace.
        assert!(std::env::var_os("DARTER_TEST_ALL").is_none(), "{} does not exist", program.display());
        eprintln!("skipped: {} does not exist", program.display());
    }
}
