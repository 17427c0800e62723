//! The sources in which errors are planted: whether each error still applies, and the copy that
//! contains all of them.

use super::change::{Edit, Fault, edited};
use super::{Change, Mutant, MutantsError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file that says whether sources are a prepared copy, and the line for each case.
const SWITCH: &str = "lab/mutant/src/lib.rs";
const NOT_PREPARED: &str = "pub const IS_PREPARED: bool = false;";
const PREPARED: &str = "pub const IS_PREPARED: bool = true;";

/// Counts of a prepared copy.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// Files.
    pub files: usize,
    /// Files with planted errors.
    pub planted: usize,
}

/// Checks the errors against the sources at `root`. Returns a line for each fault; none if all
/// errors apply.
///
/// # Errors
/// Fails if the sources are a copy, or a file cannot be read.
pub fn check(root: &Path, mutants: &[Mutant]) -> Result<Vec<String>, MutantsError> {
    Ok(planted(root, mutants)?.1)
}

/// Returns the texts of files with errors planted, and the faults.
fn planted(root: &Path, mutants: &[Mutant]) -> Result<(BTreeMap<String, String>, Vec<String>), MutantsError> {
    let switch = read(&root.join(SWITCH))?;
    if switch.contains(PREPARED) {
        return Err(MutantsError::Copy(root.to_owned()));
    }
    let mut faults = names_at_fault(mutants);
    let mut by_file: BTreeMap<&str, Vec<(&Mutant, &Change)>> = BTreeMap::new();
    for mutant in mutants {
        for change in &mutant.changes {
            by_file.entry(&change.file).or_default().push((mutant, change));
        }
    }
    let mut texts = BTreeMap::new();
    for (file, changes) in by_file {
        let Ok(text) = fs::read_to_string(root.join(file)) else {
            faults.extend(changes.iter().map(|(mutant, _)| format!("{}: no file {file}", mutant.name)));
            continue;
        };
        let lines: Vec<&str> = text.lines().collect();
        let (mut edits, mut owners): (Vec<Edit>, Vec<&Mutant>) = (Vec::new(), Vec::new());
        for (mutant, change) in changes {
            match change.edits(&lines) {
                Ok(more) => {
                    owners.extend(more.iter().map(|_| mutant));
                    edits.extend(more);
                }
                Err(fault) => faults.push(format!("{}: {file}: {fault}", mutant.name)),
            }
        }
        match edited(&text, &edits) {
            Ok(text) => _ = texts.insert(file.to_owned(), text),
            Err(at) => faults.push(format!("{}: {file}: {}", owners[at].name, Fault::Overlap)),
        }
    }
    texts.insert(SWITCH.to_owned(), switch.replace(NOT_PREPARED, PREPARED));
    Ok((texts, faults))
}

/// Returns the faults of the list itself: names that are listed twice, that no change guards, or
/// that are guarded and not listed.
fn names_at_fault(mutants: &[Mutant]) -> Vec<String> {
    let guarded: BTreeSet<&str> =
        mutants.iter().flat_map(|mutant| &mutant.changes).flat_map(Change::guarded).collect();
    let mut listed = BTreeSet::new();
    let mut faults = Vec::new();
    for mutant in mutants {
        let name = &mutant.name[..];
        if !listed.insert(name) {
            faults.push(format!("{name}: listed twice"));
        }
        if !guarded.contains(name) {
            faults.push(format!("{name}: no change has mutant!(\"{name}\")"));
        }
    }
    faults.extend(
        guarded.difference(&listed).map(|name| format!("{name}: guarded by a change, but not listed")),
    );
    faults
}

/// Copies the sources at `root`, without the files that git ignores, to a directory, and plants all
/// errors in the copy. Leaves unchanged files of an earlier copy alone, so that a build there
/// compiles only the changes.
///
/// # Errors
/// Fails if the directory holds other files, an error does not apply, or a file cannot be copied.
pub fn prepare(root: &Path, mutants: &[Mutant], directory: &Path) -> Result<Prepared, MutantsError> {
    let (mut texts, faults) = planted(root, mutants)?;
    if !faults.is_empty() {
        return Err(MutantsError::Faults(faults));
    }
    let is_taken = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    let is_copy = || read(&directory.join(SWITCH)).is_ok_and(|text| text.contains(PREPARED));
    if is_taken && !is_copy() {
        return Err(MutantsError::Taken(directory.to_owned()));
    }
    create(directory)?;
    let files = listed(root)?;
    let within = directory.canonicalize().map_err(failed(directory))?;
    if files.iter().any(|file| root.join(file).starts_with(&within)) {
        return Err(MutantsError::Within(within));
    }
    let crates: BTreeSet<String> = texts.keys().filter_map(|file| manifest_of(root, file)).collect();
    let planted = texts.len() - 1;
    for manifest in crates {
        let text = with_switch(&read(&root.join(&manifest))?);
        texts.insert(manifest, text);
    }
    for file in &files {
        let (from, to) = (root.join(file), directory.join(file));
        let new = match texts.get(file) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(&from).map_err(failed(&from))?,
        };
        if fs::read(&to).is_ok_and(|old| old == new) {
            continue;
        }
        create(to.parent().unwrap_or(directory))?;
        fs::write(&to, new).map_err(failed(&to))?;
        let permissions = fs::metadata(&from).map_err(failed(&from))?.permissions();
        fs::set_permissions(&to, permissions).map_err(failed(&to))?;
    }
    remove_others(directory, &files)?;
    Ok(Prepared { files: files.len(), planted })
}

/// Returns the manifest of the crate of a source file, unless that is the switch itself.
fn manifest_of(root: &Path, file: &str) -> Option<String> {
    let folders = Path::new(file).ancestors().skip(1);
    let manifest = folders.map(|folder| folder.join("Cargo.toml")).find(|path| root.join(path).is_file())?;
    manifest.to_str().filter(|path| *path != "lab/mutant/Cargo.toml").map(str::to_owned)
}

/// Returns a manifest with the switch added to its dependencies.
fn with_switch(manifest: &str) -> String {
    const LINE: &str = "darter-mutant.workspace = true";
    if manifest.lines().any(|line| line == LINE) {
        return manifest.to_owned();
    }
    manifest.replacen("[dependencies]\n", &format!("[dependencies]\n{LINE}\n"), 1)
}

/// Returns the files that git does not ignore, relative to the root.
fn listed(root: &Path) -> Result<Vec<String>, MutantsError> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let failed = |what: String| MutantsError::Git(root.to_owned(), what);
    let output = git.output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let names = String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))?;
    let names = names.split('\0').filter(|name| !name.is_empty() && root.join(name).is_file());
    Ok(names.map(str::to_owned).collect())
}

/// Removes files of an earlier copy that no longer exist, in folders of the sources. Folders that a
/// build has created stay.
fn remove_others(directory: &Path, files: &[String]) -> Result<(), MutantsError> {
    let known: BTreeSet<PathBuf> = files.iter().map(|file| directory.join(file)).collect();
    let folders: BTreeSet<&Path> = known.iter().filter_map(|file| file.parent()).collect();
    for folder in folders.into_iter().filter(|folder| *folder != directory) {
        for entry in fs::read_dir(folder).map_err(failed(folder))? {
            let path = entry.map_err(failed(folder))?.path();
            if path.is_file() && !known.contains(&path) {
                fs::remove_file(&path).map_err(failed(&path))?;
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, MutantsError> {
    fs::read_to_string(path).map_err(failed(path))
}

fn create(directory: &Path) -> Result<(), MutantsError> {
    fs::create_dir_all(directory).map_err(failed(directory))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> MutantsError + '_ {
    |error| MutantsError::Io(path.to_owned(), error)
}
