//! The list of errors that can be planted, against the code that plants them.

use darter_check::mutants::mutants;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Adds the names of all `mutant!("…")` below a folder, with how often each stands there.
fn planted_below(folder: &Path, names: &mut BTreeMap<String, usize>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            planted_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("darter-fabric/src/mutants.rs")
        {
            let text = std::fs::read_to_string(&path).unwrap();
            for rest in text.split("mutant!(\"").skip(1) {
                let name = rest.split('"').next().unwrap();
                *names.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
}

#[test]
fn the_list_names_what_the_code_plants() {
    let mut planted = BTreeMap::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in std::fs::read_dir(crates).unwrap() {
        planted_below(&entry.unwrap().path().join("src"), &mut planted);
    }
    let listed: BTreeSet<String> = mutants().map(|mutant| mutant.name.to_owned()).collect();
    assert_eq!(mutants().count(), listed.len(), "a name is listed twice");
    let planted: BTreeSet<String> = planted.into_keys().collect();
    assert_eq!(planted, listed);
}
