//! `backup`, `restore` and `backups`, with pools that clients write to, processes that are
//! killed, and folders that are damaged.

use crate::PROGRAM;
use crate::scene::Scene;
use darter::{PoolUrl, Store};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

fn open(scene: &Scene) -> Store {
    Store::options().create(false).open(PoolUrl::file(scene.path("pool"))).unwrap()
}

fn path(scene: &Scene, name: &str) -> String {
    scene.path(name).display().to_string()
}

/// A URL that creates another pool.
fn new_pool(scene: &Scene, name: &str) -> String {
    format!("file:{}?size=24M", scene.path(name).display())
}

fn export(scene: &Scene, url: &str) -> String {
    scene.run(&["export", "--all", "--pool", url]).code(0).out
}

/// Returns the files of the folder's parts.
fn parts(folder: &Path) -> Vec<PathBuf> {
    let files = |folder: &Path| fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files(&folder.join("parts")).flat_map(|folder| files(&folder).collect::<Vec<_>>()).collect()
}

/// Fills the scene's pool with pairs that take a few parts.
fn fill(scene: &Scene) {
    let store = open(scene);
    let pairs: Vec<_> = (0..20_000_u32).map(|n| (n.to_be_bytes(), vec![n as u8; 100])).collect();
    store.put_many(&pairs).unwrap();
}

#[test]
fn a_folder_has_backups_of_a_pool_that_is_written_to() {
    let scene = Scene::new();
    fill(&scene);
    let (folder, is_over) = (path(&scene, "backups"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let store = open(&scene);
            // Both are changed in one transaction, and lie in different parts.
            while !is_over.load(Ordering::SeqCst) {
                let changed = store.transact(|tx| {
                    let old = tx.get("zzz")?.map_or(0, |value| value[0]);
                    tx.put("zzz", [old.wrapping_add(1)])?;
                    tx.put("\0", [old.wrapping_add(1)])?;
                    Ok(())
                });
                changed.unwrap();
            }
        });
        for _ in 0..3 {
            scene.run(&["backup", &folder]).code(0).err("20002 pairs");
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let listed = scene.run(&["backups", &folder, "--verify"]).code(0).out;
    assert_eq!(listed.lines().filter(|line| line.ends_with("verified")).count(), 3, "{listed}");
    for (i, line) in listed.lines().enumerate() {
        let url = new_pool(&scene, &format!("copy{i}"));
        let name = line.split(' ').next().unwrap();
        scene
            .run(&["restore", &folder, "--backup", name, "--verify", "--pool", &url])
            .code(0)
            .err("verified");
        let copy = Store::open(&url).unwrap();
        assert_eq!(copy.get("zzz").unwrap(), copy.get("\0").unwrap());
        assert_eq!(copy.get(7_u32.to_be_bytes()).unwrap(), Some(vec![7; 100]));
    }
}

#[test]
fn a_time_chooses_the_newest_backup_of_before() {
    let scene = Scene::new();
    let folder = path(&scene, "backups");
    for colour in ["red", "green"] {
        open(&scene).put("apple", colour).unwrap();
        scene.run(&["backup", &folder]).code(0);
    }
    let listed = scene.run(&["backups", &folder]).code(0).out;
    let times: Vec<_> = listed.lines().map(|line| line.split("as of ").nth(1).unwrap()).collect();
    let times: Vec<_> = times.iter().map(|rest| rest.split(',').next().unwrap()).collect();
    for (at, colour) in [(times[0], "red"), (times[1], "green"), ("2999-01-01T00:00:00Z", "green")] {
        let url = new_pool(&scene, &format!("copy-{}", at.replace(':', "-")));
        scene.run(&["restore", &folder, "--at", at, "--verify", "--pool", &url]).code(0).err("verified");
        assert_eq!(Store::open(&url).unwrap().get("apple").unwrap().as_deref(), Some(colour.as_bytes()));
    }
    let url = new_pool(&scene, "none");
    let restore = |rest: &[&str]| {
        let arguments = [&["restore", "--pool", &url], rest].concat();
        scene.run(&arguments)
    };
    restore(&[&folder, "--at", "2001-01-01T00:00:00Z"])
        .code(1)
        .err(&format!("the oldest is of {}", times[0]));
    restore(&[&folder, "--at", "yesterday"]).code(2);
    restore(&[&folder, "--at", times[0], "--backup", "2001-01-01"]).code(2);
    restore(&["-", "--at", times[0]]).code(2).err("--at");
    assert!(!scene.path("none").exists());
}

#[test]
fn parts_are_written_once_and_removed_with_their_last_backup() {
    let scene = Scene::new();
    fill(&scene);
    let folder = path(&scene, "backups");
    scene.run(&["backup", &folder]).code(0);
    let first = parts(&scene.path("backups"));
    assert!(first.len() > 2, "{first:?}");
    scene.run(&["backup", &folder]).code(0).err(&format!("0 of {} parts written", first.len()));
    open(&scene).put(3_u32.to_be_bytes(), "changed").unwrap();
    scene.run(&["backup", &folder, "--keep", "2"]).code(0).err("1 of").err("removed 1 older backup");
    assert_eq!(parts(&scene.path("backups")).len(), first.len() + 1);
    scene.run(&["backup", &folder, "--keep", "1"]).code(0).err("removed 2 older backups");
    assert_eq!(parts(&scene.path("backups")).len(), first.len());
    let url = new_pool(&scene, "copy");
    scene.run(&["restore", &folder, "--pool", &url]).code(0).err("20000 pairs");
    assert!(export(&scene, &url) == export(&scene, &scene.url()));
}

#[test]
fn a_stream_is_restored_too() {
    let scene = Scene::new();
    fill(&scene);
    let stream = fs::File::create(scene.path("stream")).unwrap();
    let status = Command::new(PROGRAM).args(["backup", "-", "--pool", &scene.url()]).stdout(stream).status();
    assert!(status.unwrap().success());
    let restore = |url: &str, from: &str| {
        let input = fs::File::open(scene.path(from)).unwrap();
        let output =
            Command::new(PROGRAM).args(["restore", "-", "--pool", url]).stdin(input).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let url = new_pool(&scene, "copy");
    assert_eq!(restore(&url, "stream").0, Some(0));
    assert!(export(&scene, &url) == export(&scene, &scene.url()));
    let (code, said) = restore(&url, "stream");
    assert!(code == Some(1) && said.contains("the pool is not empty"), "{code:?} {said}");
    let bytes = fs::read(scene.path("stream")).unwrap();
    fs::write(scene.path("short"), &bytes[..bytes.len() - 7]).unwrap();
    let (code, said) = restore(&new_pool(&scene, "copy2"), "short");
    assert!(code == Some(1) && said.contains("cut short"), "{code:?} {said}");
    fs::write(scene.path("other"), "pear\tgreen\n").unwrap();
    let (code, said) = restore(&new_pool(&scene, "copy3"), "other");
    assert!(code == Some(1) && said.contains("no backup of darter"), "{code:?} {said}");
}

#[test]
fn damage_in_a_folder_is_named_and_restores_nothing() {
    let scene = Scene::new();
    fill(&scene);
    let folder = path(&scene, "backups");
    scene.run(&["backup", &folder]).code(0);
    let part = parts(&scene.path("backups")).pop().unwrap();
    let whole = fs::read(&part).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    let name = part.file_name().unwrap().to_string_lossy().into_owned();
    for bytes in [&damaged[..], &whole[..100], &[]] {
        fs::write(&part, bytes).unwrap();
        scene.run(&["backups", &folder, "--verify"]).code(1).err(&name).err("damaged");
        scene.run(&["restore", &folder, "--pool", &new_pool(&scene, "copy")]).code(1).err(&name);
    }
    fs::remove_file(&part).unwrap();
    scene.run(&["backups", &folder, "--verify"]).code(1).err(&name);
    scene.run(&["restore", &folder, "--pool", &new_pool(&scene, "copy")]).code(1).err(&name);
    assert_eq!(scene.run(&["scan", "--pool", &new_pool(&scene, "copy")]).code(0).out, "");
    // The next backup writes the missing part again.
    scene.run(&["backup", &folder]).code(0).err("1 of");
    scene.run(&["backups", &folder, "--verify"]).code(0);
    let list = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let list = list.filter(|path| path.extension().is_some_and(|ending| ending == "backup")).min().unwrap();
    let text = fs::read_to_string(&list).unwrap();
    for damaged in [text.replace("part ", "fart "), text[..text.len() / 2].to_owned(), String::new()] {
        fs::write(&list, damaged).unwrap();
        scene.run(&["backups", &folder]).code(1).err("damaged");
        scene.run(&["backup", &folder, "--keep", "1"]).code(1).err("damaged");
    }
    fs::remove_file(list).unwrap();
    scene.run(&["backups", &folder, "--verify"]).code(0);
}

#[test]
fn a_killed_backup_leaves_the_pool_and_the_folder_usable() {
    let scene = Scene::new();
    fill(&scene);
    let folder = path(&scene, "backups");
    let mut killed = Command::new(PROGRAM)
        .args(["backup", &folder, "--rate", "1KiB", "--pool", &scene.url()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !scene.path("backups").join("parts").exists() {
        assert!(killed.try_wait().unwrap().is_none(), "the backup has ended");
        std::thread::yield_now();
    }
    // The snapshot is open.
    scene.run(&["backup", &path(&scene, "others")]).code(1).err("has a snapshot of the pool open");
    scene.run(&["backup", &folder]).code(1).err("another process writes a backup to this folder");
    scene.run(&["put", "pear", "green"]).code(0);
    killed.kill().unwrap();
    killed.wait().unwrap();
    scene.run(&["put", "plum", "blue"]).code(0);
    assert_eq!(scene.run(&["backups", &folder]).code(0).out, "", "the killed one is not there");
    scene.run(&["backup", &folder]).code(0).err("20002 pairs");
    let url = new_pool(&scene, "copy");
    scene.run(&["restore", &folder, "--pool", &url]).code(0);
    assert!(export(&scene, &url) == export(&scene, &scene.url()));
}

/// A process that is stopped is named, and changes of others go on.
#[test]
fn a_stopped_process_is_named_and_holds_nothing_up() {
    let scene = Scene::new();
    let mut stopped = Command::new(PROGRAM)
        .args(["shell", "--pool", &scene.url()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    stopped.stdin.as_mut().unwrap().write_all(b"put pear green\nget pear\n").unwrap();
    let mut line = String::new();
    BufReader::new(stopped.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "green\n");
    let signal = |name: &str| {
        let pid = stopped.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    let folder = path(&scene, "backups");
    let named = format!("process {}", stopped.id());
    scene.run(&["backup", &folder]).code(1).err("the snapshot cannot begin").err(&named);
    scene.run(&["put", "plum", "blue"]).code(0);
    signal("-CONT");
    scene.run(&["backup", &folder]).code(0).err("2 pairs");
    drop(stopped.stdin.take());
    stopped.wait().unwrap();
}

#[test]
fn wrong_arguments_are_refused() {
    let scene = Scene::new();
    fs::create_dir(scene.path("other")).unwrap();
    fs::write(scene.path("other/file"), "").unwrap();
    let other = path(&scene, "other");
    scene.run(&["backup", &other]).code(1).err("the folder has other files");
    scene.run(&["backups", &other]).code(2).err("no backup of darter");
    scene.run(&["backups", &path(&scene, "absent")]).code(2);
    scene.run(&["restore", &path(&scene, "absent"), "--pool", &new_pool(&scene, "copy")]).code(2);
    assert!(!scene.path("copy").exists(), "no pool is created for a backup that is absent");
    scene.run(&["backup", "-", "--keep", "2"]).code(2).err("--keep");
    scene.run(&["backup", &path(&scene, "new"), "--rate", "0"]).code(2).err("--rate 0");
    let folder = path(&scene, "backups");
    scene.run(&["backup", &folder]).code(0).err("0 pairs");
    scene.run(&["restore", &folder, "--backup", "2001-01-01", "--pool", &new_pool(&scene, "copy")]).code(2);
    scene.run(&["restore", &folder, "--pool", &new_pool(&scene, "copy"), "--verify"]).code(0).err("0 pairs");
}
