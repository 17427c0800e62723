//! Commands on damaged pool files: output with exit code 0 is correct, and no command crashes or
//! hangs.
//!
//! `DARTER_DAMAGES` sets the number of damaged files. A different `DARTER_DAMAGE_SEED` damages
//! other places.

use crate::scene::{Answer, Scene, finish};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Default number of damaged files.
const DAMAGES: u64 = 12;
/// Longer than any command takes, even on a busy machine.
pub(crate) const HANGS_AFTER: Duration = Duration::from_secs(300);
pub(crate) const SECTOR_BYTES: usize = 512;
/// Writes everything to stdout.
const EXPORT: [&str; 1] = ["export"];
/// Number of bytes before the blocks: head, members, nodes, table of blocks.
const HEAD_BYTES: usize = 64 << 10;

/// Changes a file's bytes. Returns the first changed position, the new bytes, and the kind of
/// change.
fn damage(sound: &[u8], used: &[usize], dice: &mut Pcg64Mcg) -> (usize, Vec<u8>, &'static str) {
    let pick = |dice: &mut Pcg64Mcg, used: &[usize]| used[dice.random_range(0..used.len())];
    // Every second change is in the pool's own tables, which are a small part of the file.
    let books = used.partition_point(|at| *at < HEAD_BYTES);
    let used_here = if dice.random_bool(0.5) { &used[..books] } else { used };
    let at = pick(dice, used_here);
    let first = at / SECTOR_BYTES * SECTOR_BYTES;
    match dice.random_range(0..5) {
        0 | 1 => (at, vec![sound[at] ^ 1 << dice.random_range(0..8)], "a flipped bit"),
        2 => (first, vec![0; SECTOR_BYTES], "a sector of zeros"),
        3 => (first, (0..SECTOR_BYTES).map(|_| dice.random::<u8>()).collect(), "a sector of noise"),
        _ => {
            let other = pick(dice, used) / SECTOR_BYTES * SECTOR_BYTES;
            (first, sound[other..other + SECTOR_BYTES].to_vec(), "a sector of another place")
        }
    }
}

/// The results of the commands on damaged files.
#[derive(Debug, Default)]
struct Tally {
    files: u64,
    /// Files on which a command failed.
    refused: u64,
    faults: Vec<String>,
}

/// A scene whose pool has pairs of all kinds. Returns some of its keys with their values.
fn filled() -> (Scene, Vec<(String, String)>) {
    let scene = Scene::new();
    let key =
        |n: usize| format!("user:{:05}{}", n * 7919 % 10_007, if n.is_multiple_of(9) { "/tail" } else { "" });
    let value = |n: usize| {
        let width = if n.is_multiple_of(23) { 700 } else { n % 40 };
        format!("{n:x>width$}")
    };
    let puts = (0..800).map(|n| format!("put {} {}\n", key(n), value(n)));
    let change = |n: usize| match n % 3 {
        0 => format!("put {} {}\n", key(n), n),
        1 => format!("del {}\n", key(n)),
        _ => String::new(),
    };
    let changes: String = puts.chain((0..800).step_by(5).map(change)).collect();
    let mut shell = scene.command(&["shell"]);
    finish(shell.write_stdin(changes)).code(0);
    let kept = scene.run(&["scan"]).code(0).out;
    let pairs = kept.lines().filter_map(|line| line.split_once('\t'));
    let pairs: Vec<_> = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    assert!(pairs.len() > 500);
    (scene, pairs)
}

/// Runs all reading commands on the scene's pool.
fn read_all(scene: &Scene, pairs: &[(String, String)], right: &[String; 3], tally: &mut Tally, what: &str) {
    let run = |words: &[&str]| -> Answer {
        let mut command = scene.command(words);
        finish(command.timeout(HANGS_AFTER))
    };
    let mut failed: Option<String> = None;
    let mut faults = Vec::new();
    let mut judge = |words: &[&str], right: Option<&str>| {
        let Answer { code, out, err } = run(words);
        let command = words.join(" ");
        if err.contains("panicked") || !(0..=2).contains(&code) {
            faults.push(format!("{what}: {command}: exit {code}: {err}"));
        }
        if code == 0 && right.is_some_and(|right| out != right) {
            faults.push(format!("{what}: {command}: exit 0 and {} bytes of output: {err}", out.len()));
        }
        if code != 0 && err.is_empty() && out.is_empty() {
            faults.push(format!("{what}: {command}: exit {code} without a word"));
        }
        if code != 0 && right.is_some() {
            failed.get_or_insert_with(|| format!("{command}: {err}"));
        }
    };
    judge(&["scan"], Some(&right[0]));
    judge(&["scan", "--reverse"], Some(&right[1]));
    judge(&EXPORT, Some(&right[2]));
    for (key, value) in pairs.iter().step_by(pairs.len() / 3) {
        judge(&["get", key], Some(&format!("{value}\n")));
    }
    judge(&["stats"], None);
    judge(&["tree"], None);
    judge(&["pool", "status"], None);
    let check = run(&["check"]);
    if let Some(failed) = failed {
        tally.refused += 1;
        if check.code == 0 {
            faults.push(format!("{what}: check finds nothing: {}, although {failed}", check.out));
        }
    }
    if check.err.contains("panicked") || !(0..=2).contains(&check.code) {
        faults.push(format!("{what}: check: exit {}: {}", check.code, check.err));
    }
    tally.faults.append(&mut faults);
}

#[test]
fn output_of_a_damaged_file_is_correct_or_an_error() {
    let set = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (damages, seed) = (set("DARTER_DAMAGES", DAMAGES), set("DARTER_DAMAGE_SEED", 0));
    let (scene, pairs) = filled();
    let right = [&["scan"][..], &["scan", "--reverse"], &EXPORT].map(|words| scene.run(words).code(0).out);
    scene.run(&["check"]).code(0);
    let path = scene.path("pool");
    let sound = fs::read(&path).unwrap();
    let used: Vec<usize> = (0..sound.len()).filter(|&at| sound[at] != 0).collect();
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let (mut dice, mut tally) = (Pcg64Mcg::seed_from_u64(seed), Tally::default());
    for _ in 0..damages {
        let (at, bytes, how) = damage(&sound, &used, &mut dice);
        file.write_all_at(&bytes, at as u64).unwrap();
        tally.files += 1;
        read_all(&scene, &pairs, &right, &mut tally, &format!("{how} at {at:#x}"));
        restore(&file, &sound);
    }
    let Tally { files, refused, faults } = &tally;
    eprintln!("{files} damaged files, {refused} refused, {} faults", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Restores a file's contents, and keeps its identity.
fn restore(file: &fs::File, sound: &[u8]) {
    let mut found = vec![0; 1 << 16];
    for (nth, piece) in sound.chunks(found.len()).enumerate() {
        let at = (nth * found.len()) as u64;
        file.read_exact_at(&mut found[..piece.len()], at).unwrap();
        if found[..piece.len()] != *piece {
            file.write_all_at(piece, at).unwrap();
        }
    }
}
