//! The permissions of the files that the program creates.

use crate::common::said;
use crate::scene::Scene;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Returns the program, to run in a directory and with a umask.
fn under(umask: &str, directory: &Path, words: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$0\" {words}"), env!("CARGO_BIN_EXE_darter")]);
    command.current_dir(directory).env_remove("DARTER_POOL").stdin(Stdio::null());
    command
}

#[track_caller]
fn run(umask: &str, directory: &Path, words: &str) -> Output {
    let output = under(umask, directory, words).output().unwrap();
    assert!(output.status.success(), "{words}: {}", said(&output));
    output
}

/// Starts a daemon. Returns the first line that it prints.
fn start(umask: &str, directory: &Path, words: &str) -> (Child, String) {
    let mut command = under(umask, directory, words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

/// Returns the permissions of a file or directory, and of everything in it, by name.
fn modes(path: &Path) -> Vec<(String, u32)> {
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
    let mut found = vec![(path.display().to_string(), mode(path))];
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            found.extend(modes(&entry.unwrap().path()));
        }
    }
    found
}

#[track_caller]
fn have_mode(directory: &Path, names: &[&str], of_files: u32, of_directories: u32) {
    for name in names {
        for (path, mode) in modes(&directory.join(name)) {
            let expected = if Path::new(&path).is_dir() { of_directories } else { of_files };
            assert_eq!(mode, expected, "{path}: {mode:o}");
        }
    }
}

#[test]
fn files_with_data_are_their_owners_alone_whatever_the_umask() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    run("0", home, "put a b --pool 'file:pool?size=16M'");
    run("0", home, "export out.tsv --pool file:pool");
    run("0", home, "bench --index dart --records 10 --ops 10 --pool 'file:dart?size=16M'");
    let node = "memnode --listen 127.0.0.1:0 --until-stdin-closes --size 1M";
    run("0", home, &format!("{node} --file region"));
    run("0", home, &format!("{node} --durability log --log above/log"));
    let (mut up, _) = start("0", home, "up --memnodes 1 --size 16M --dir up");
    up.kill().unwrap();
    up.wait().unwrap();
    have_mode(home, &["pool", "out.tsv", "dart", "region", "region.node", "above", "up"], 0o600, 0o700);
}

#[test]
fn a_pool_has_the_mode_and_the_group_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    run("077", home, "put a b --pool 'file:new?size=16M&mode=0660'");
    fs::write(home.join("empty"), "").unwrap();
    run("077", home, "put a b --pool 'file:empty?size=16M&mode=0640'");
    run("077", home, "pool create --overwrite --pool 'file:empty?size=16M'");
    run("077", home, "bench --index dart --records 10 --ops 10 --pool 'file:dart?size=16M&mode=0660'");
    have_mode(home, &["new", "dart"], 0o660, 0);
    have_mode(home, &["empty"], 0o640, 0);
    let refused =
        under("0", home, "put a b --pool 'file:lost?size=16M&group=no-such-group'").output().unwrap();
    assert!(said(&refused).contains("group `no-such-group` does not exist"), "{}", said(&refused));
    assert!(!home.join("lost").exists());
    if chown(home.join("new"), None, Some(65533)).is_ok() {
        run("077", home, "put a b --pool 'file:group?size=16M&group=65533'");
        have_mode(home, &["group"], 0o660, 0);
        assert_eq!(fs::metadata(home.join("group")).unwrap().gid(), 65533);
    }
}

#[test]
fn a_memory_node_creates_all_files_with_the_given_permissions() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    run(
        "077",
        home,
        "memnode --listen 127.0.0.1:0 --until-stdin-closes --size 1M --file region --file-mode 0660",
    );
    have_mode(home, &["region", "region.node"], 0o660, 0);
    let rows: String = (0..3000).map(|row| format!("key{row},{}\n", "v".repeat(1000))).collect();
    fs::write(home.join("rows.csv"), format!("key,value\n{rows}")).unwrap();
    let words = "memnode --listen 127.0.0.1:0 --size 32M --durability log --log log --segment-bytes 64K \
                 --checkpoint-bytes 1M --file-mode 0640";
    let (mut node, url) = start("077", home, words);
    run("077", home, &format!("pool create --pool {url}"));
    run("077", home, &format!("load rows.csv --format csv --pool {url}"));
    // Created by the second checkpoint.
    while !home.join("log/image-1").exists() || !home.join("log/image-2").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    node.kill().unwrap();
    node.wait().unwrap();
    have_mode(home, &["log"], 0o640, 0o750);
}

/// In a directory like `/tmp`, a pool that may be created is not taken from another user, and no
/// link of another user is followed.
#[test]
fn files_of_other_users_in_shared_directories_are_not_used_as_pools() {
    let scene = Scene::new();
    let folder = scene.path("tmp");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
    let (pool, link) = (folder.join("pool"), folder.join("link"));
    let existing = format!("file:{}", pool.display());
    let (sized, of_group) = (format!("{existing}?size=16M"), format!("{existing}?size=16M&group=65533"));
    scene.run(&["put", "a", "b", "--pool", &sized]).code(0);
    symlink(scene.path("pool"), &link).unwrap();
    let through = format!("file:{}", link.display());
    scene.run(&["put", "a", "b", "--pool", &through]).code(0);
    if chown(&pool, Some(65534), Some(65533)).is_err() || lchown(&link, Some(65534), None).is_err() {
        return; // needs root
    }
    for words in [["put", "a", "c"].as_slice(), &["get", "a"], &["scan"]] {
        let with = |url: &str| scene.run(&[words, &["--pool", url]].concat());
        with(&sized).code(1).err("a file of another user (uid 65534)");
        with(&existing).code(0);
        with(&of_group).code(0);
        with(&through).code(1).err("a symbolic link of another user (uid 65534)");
    }
    let region = pool.display().to_string();
    let node =
        ["memnode", "--listen", "127.0.0.1:0", "--until-stdin-closes", "--size", "16M", "--file", &region];
    scene.run(&node).code(1).err("a file of another user (uid 65534)");
}
