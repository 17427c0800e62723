//! The list of errors that can be planted, against the code that plants them.

use darter_check::mutants::{FoundBy, mutants};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Returns the folders of all crates by the names of their packages: the product's and the
/// laboratory's.
fn folders() -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = BTreeMap::new();
    for group in ["crates", "lab"] {
        for entry in std::fs::read_dir(root.join(group)).unwrap() {
            let folder = entry.unwrap().path();
            let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
            folders.insert(name.unwrap().to_owned(), folder);
        }
    }
    folders
}

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
    for folder in folders().values() {
        planted_below(&folder.join("src"), &mut planted);
    }
    let listed: BTreeSet<String> = mutants().map(|mutant| mutant.name.to_owned()).collect();
    assert_eq!(mutants().count(), listed.len(), "a name is listed twice");
    let planted: BTreeSet<String> = planted.into_keys().collect();
    assert_eq!(planted, listed);
}

/// Returns all Rust sources below a folder, and below those of the modules that they take from
/// elsewhere, one after the other.
fn sources_below(folder: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(folder) else { return String::new() };
    let mut all = String::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all += &sources_below(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for line in text.lines() {
                let module = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("mod.rs\"]"));
                all += &module.map_or_else(String::new, |module| sources_below(&folder.join(module)));
            }
            all += &text;
        }
    }
    all
}

/// Tests that the list credits with finding an error are where it says.
#[test]
fn the_list_names_tests_that_exist() {
    let folders = folders();
    let mut sources: BTreeMap<PathBuf, String> = BTreeMap::new();
    for mutant in mutants() {
        let FoundBy::Tests(arguments) = mutant.found_by else { continue };
        let words: Vec<&str> = arguments.split(' ').collect();
        let (package, place, test) = match words[..] {
            [_, package, "--lib", test] | [_, package, "--bin", _, test] => (package, "src".to_owned(), test),
            [_, package, "--test", binary, test] => (package, format!("tests/{binary}"), test),
            _ => panic!("{}: '{arguments}' is none of the forms that are known here", mutant.name),
        };
        let folder = folders.get(package).unwrap_or_else(|| panic!("{}: no package {package}", mutant.name));
        let folder = folder.join(place);
        let text = sources.entry(folder.clone()).or_insert_with(|| sources_below(&folder));
        // The indexes' common tests are instantiated by a macro that lists their names.
        let name = test.rsplit("::").next().unwrap();
        assert!(
            text.contains(&format!("fn {name}")) || text.contains(&format!("{name},")),
            "{}: no test {name} below {}",
            mutant.name,
            folder.display()
        );
    }
}
