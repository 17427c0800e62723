//! The list of errors that can be planted, checked against the sources.

use darter_check::mutants::{FoundBy, MutantsError, check, mutants, prepare, sources as root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[test]
fn every_error_applies_to_the_sources() {
    match check(&root(), &mutants().unwrap()) {
        Ok(faults) => assert!(faults.is_empty(), "{}", faults.join("\n")),
        // A prepared copy already has the errors.
        Err(MutantsError::Copy(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// The sources do not name planted errors: they contain neither the macro nor the variable.
#[test]
fn the_sources_have_no_guards() {
    if matches!(check(&root(), &mutants().unwrap()), Err(MutantsError::Copy(_))) {
        return;
    }
    for folder in ["crates", "lab/baselines"] {
        let guarded: Vec<PathBuf> = sources(&root().join(folder))
            .into_iter()
            .filter(|(_, text)| text.contains("mutant!") || text.contains("darter_mutant"))
            .map(|(path, _)| path)
            .collect();
        assert_eq!(guarded, [""; 0].map(PathBuf::from));
    }
}

/// A copy holds every file, with all errors behind the switch, in crates that depend on it.
#[test]
fn a_copy_has_all_errors_and_is_brought_up_to_date() {
    let (root, mutants, scene) = (root(), mutants().unwrap(), tempfile::tempdir().unwrap());
    assert!(mutants.len() >= 150, "{}", mutants.len());
    let copy = scene.path().join("copy");
    let prepared = match prepare(&root, &mutants, &copy) {
        Err(MutantsError::Copy(_)) => return,
        prepared => prepared.unwrap(),
    };
    assert!(prepared.planted > 50 && prepared.files > prepared.planted);
    let guarded: BTreeSet<String> = ["crates", "lab"]
        .iter()
        .flat_map(|folder| sources(&copy.join(folder)))
        .flat_map(|(_, text)| {
            let names = text.split("darter_mutant::mutant!(\"").skip(1);
            names.filter_map(|rest| rest.split('"').next().map(str::to_owned)).collect::<Vec<_>>()
        })
        .collect();
    let missing: Vec<&str> =
        mutants.iter().map(|mutant| &mutant.name[..]).filter(|name| !guarded.contains(*name)).collect();
    assert_eq!(missing, [""; 0]);
    let manifest = std::fs::read_to_string(copy.join("crates/darter-pool/Cargo.toml")).unwrap();
    assert!(manifest.contains("[dependencies]\ndarter-mutant.workspace = true\n"), "{manifest}");
    assert!(matches!(check(&copy, &mutants), Err(MutantsError::Copy(_))));
    // Correct files stay; the others are rewritten or removed.
    let (kept, changed) = (copy.join("Cargo.toml"), copy.join("crates/darter-pool/src/lib.rs"));
    let extra = copy.join("crates/darter-pool/src/extra.rs");
    std::fs::write(&changed, "nothing").unwrap();
    std::fs::write(&extra, "").unwrap();
    let before = std::fs::metadata(&kept).unwrap().modified().unwrap();
    prepare(&root, &mutants, &copy).unwrap();
    assert_eq!(std::fs::metadata(&kept).unwrap().modified().unwrap(), before);
    assert_ne!(std::fs::read_to_string(&changed).unwrap(), "nothing");
    assert!(!extra.exists());
}

#[test]
fn a_directory_with_other_files_is_not_touched() {
    let scene = tempfile::tempdir().unwrap();
    std::fs::write(scene.path().join("mine"), "mine").unwrap();
    let refused = prepare(&root(), &mutants().unwrap(), scene.path()).unwrap_err();
    assert!(matches!(refused, MutantsError::Taken(_) | MutantsError::Copy(_)), "{refused}");
    assert_eq!(std::fs::read_dir(scene.path()).unwrap().count(), 1);
}

/// Returns all Rust sources below a folder.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            all.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            all.push((path, text));
        }
    }
    all
}

/// Returns the folders of all crates by the names of their packages.
fn folders() -> BTreeMap<String, PathBuf> {
    let mut folders = BTreeMap::new();
    for group in ["crates", "lab"] {
        for entry in std::fs::read_dir(root().join(group)).unwrap() {
            let folder = entry.unwrap().path();
            let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
            folders.insert(name.unwrap().to_owned(), folder);
        }
    }
    folders
}

/// Returns the sources below a folder, and below those of the modules that they include from
/// elsewhere, concatenated.
fn sources_below(folder: &Path) -> String {
    if !folder.is_dir() {
        return String::new();
    }
    let mut all = String::new();
    for (path, text) in sources(folder) {
        for line in text.lines() {
            let module = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("mod.rs\"]"));
            let below = |module| sources_below(&path.parent().unwrap().join(module));
            all += &module.map_or_else(String::new, below);
        }
        all += &text;
    }
    all
}

/// Tests that the list credits with finding an error exist at the given place.
#[test]
fn the_list_names_tests_that_exist() {
    let folders = folders();
    let mut sources: BTreeMap<PathBuf, String> = BTreeMap::new();
    for mutant in mutants().unwrap() {
        let FoundBy::Tests(arguments) = &mutant.found_by else { continue };
        let words: Vec<&str> = arguments.split(' ').collect();
        let (package, place, test) = match words[..] {
            ["-p", package, "--lib", test] => (package, "src".to_owned(), test),
            ["-p", package, "--test", binary, test] => (package, format!("tests/{binary}"), test),
            _ => panic!("{}: '{arguments}' is not one of the known forms", mutant.name),
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
