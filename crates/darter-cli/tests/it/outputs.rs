//! Files written by commands: no device, FIFO, link or pool is replaced, and none is truncated.

use crate::scene::Scene;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// The contents of an export of the scene, between its first and its last line.
const ROWS: &str = "\nkey\tvalue\na\tb\n# end of darter export: pairs=1 ";

fn scene() -> Scene {
    let scene = Scene::new();
    scene.run(&["put", "a", "b"]).code(0);
    scene
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Creates a file-system node with a program; returns whether that worked.
fn make(program: &str, words: &[&str]) -> bool {
    Command::new(program).args(words).stderr(Stdio::null()).status().unwrap().success()
}

/// Commands that write a file, each with its name.
fn writers(path: &str) -> [Vec<&str>; 2] {
    [vec!["export", path], vec!["tree", "--svg", path]]
}

#[test]
fn a_link_keeps_leading_to_the_file_that_an_output_replaces() {
    let scene = scene();
    let (target, link, loose) = (scene.path("target"), scene.path("link"), scene.path("loose"));
    symlink("target", &link).unwrap();
    symlink("nowhere/yet", &loose).unwrap();
    for words in writers(text(&link)) {
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&target).unwrap().ino();
        scene.run(&words).code(0);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "{words:?}");
        assert_ne!(fs::read(&target).unwrap(), b"old", "{words:?}");
        let now = fs::metadata(&target).unwrap();
        assert_eq!(now.permissions().mode() & 0o777, 0o640, "{words:?}");
        assert_ne!(now.ino(), before, "{words:?}: not replaced as a whole");
    }
    // A dangling link: the file is created at its target.
    scene.run(&["export", text(&loose)]).code(2).err("No such file");
    fs::create_dir(scene.path("nowhere")).unwrap();
    scene.run(&["export", text(&loose)]).code(0);
    assert!(fs::read_to_string(scene.path("nowhere/yet")).unwrap().contains(ROWS));
    symlink("itself", scene.path("itself")).unwrap();
    scene.run(&["export", text(&scene.path("itself"))]).code(1).err("symbolic links");
}

#[test]
fn devices_and_fifos_are_written_to_as_they_are() {
    let scene = scene();
    let (fifo, device) = (scene.path("fifo"), scene.path("full"));
    assert!(make("mkfifo", &[text(&fifo)]));
    let reader = {
        let fifo = fifo.clone();
        std::thread::spawn(move || {
            let mut read = String::new();
            File::open(fifo).unwrap().read_to_string(&mut read).unwrap();
            read
        })
    };
    scene.run(&["export", text(&fifo)]).code(0);
    assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
    assert!(reader.join().unwrap().contains(ROWS));
    // Needs root. The device numbers of /dev/full and /dev/null.
    if make("mknod", &[text(&device), "c", "1", "7"]) {
        for words in writers(text(&device)) {
            scene.run(&words).code(1).err("No space left");
            assert!(fs::symlink_metadata(&device).unwrap().file_type().is_char_device(), "{words:?}");
        }
        let null = scene.path("null");
        assert!(make("mknod", &[text(&null), "c", "1", "3"]));
        scene.run(&["export", text(&null)]).code(0);
        assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device());
    }
}

#[test]
fn an_output_to_a_descriptor_goes_on_where_the_descriptor_is() {
    let scene = scene();
    let path = scene.path("out");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"before\n").unwrap();
    // Like /dev/stdout, which a failure of this test would replace for the whole machine.
    let stdout = scene.path("stdout");
    symlink("/proc/self/fd/1", &stdout).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_darter"));
    command.args(["export", text(&stdout), "--pool", &scene.url()]).stderr(Stdio::null());
    assert!(command.stdout(file.try_clone().unwrap()).status().unwrap().success());
    file.write_all(b"after\n").unwrap();
    let written = fs::read_to_string(path).unwrap();
    assert!(written.starts_with("before\n") && written.contains(ROWS), "{written}");
    assert!(written.ends_with("\nafter\n"), "{written}");
}

#[test]
fn no_output_replaces_a_pool() {
    let scene = scene();
    let (other, link) = (scene.path("other"), scene.path("link"));
    scene.run(&["put", "c", "d", "--pool", &format!("file:{}?size=16M", text(&other))]).code(0);
    symlink("pool", &link).unwrap();
    for path in [scene.path("pool"), other.clone(), link] {
        for words in writers(text(&path)) {
            scene.run(&words).code(1).err("it is a darter pool");
        }
    }
    scene.run(&["get", "a"]).code(0).out("b\n");
    scene.run(&["get", "c", "--pool", &format!("file:{}", text(&other))]).code(0).out("d\n");
    let pages = scene.path("pages");
    fs::create_dir(&pages).unwrap();
    fs::rename(other, pages.join("darter.1")).unwrap();
    scene.run(&["man", "--dir", text(&pages)]).code(1).err("it is a darter pool");
}

/// Other users cannot read an export, and a file of another user is not changed.
#[test]
fn exports_are_their_owners_alone() {
    let scene = scene();
    let path = scene.path("out.tsv");
    for words in [["export", text(&path)].as_slice(), &["tree", "--svg", text(&path)]] {
        scene.run(words).code(0);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{words:?}");
        fs::remove_file(&path).unwrap();
    }
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

/// Commands do not block on anything but regular files, and create nothing in it.
#[test]
fn a_fifo_or_socket_named_as_a_pool_is_refused_at_once() {
    let scene = Scene::new();
    let (fifo, socket) = (scene.path("fifo"), scene.path("socket"));
    assert!(make("mkfifo", &[text(&fifo)]));
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for path in [&fifo, &socket] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
        let url = format!("file:{}", text(path));
        for words in ["get a", "stats", "check", "scan", "pool status", "put a b"] {
            let words: Vec<_> = words.split(' ').chain(["--pool", &url]).collect();
            scene.run(&words).code(1).err("neither a plain file nor a DAX device");
            // As a user with read permission only; needs root.
            let mut other = Command::new(env!("CARGO_BIN_EXE_darter"));
            std::os::unix::process::CommandExt::uid(&mut other, 65534);
            if let Ok(output) = other.args(&words).output() {
                assert_eq!(output.status.code(), Some(1), "{output:?}");
            }
        }
    }
}

#[test]
fn a_limit_of_file_size_is_an_error_with_the_files_name() {
    let scene = scene();
    for number in 0..20 {
        scene.run(&["put", &format!("key{number}"), &"v".repeat(20_000)]).code(0);
    }
    let limited = |words: &str| {
        let script = format!("ulimit -f 64; exec {} {words}", env!("CARGO_BIN_EXE_darter"));
        Command::new("bash").args(["-c", &script]).env("DARTER_POOL", scene.url()).output().unwrap()
    };
    let (export, pool) = (scene.path("out.tsv"), scene.path("new"));
    for words in
        [format!("export {}", text(&export)), format!("put a b --pool 'file:{}?size=16M'", text(&pool))]
    {
        let output = limited(&words);
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}: {err}");
        assert!(err.contains("File too large") && err.contains(text(&scene.path(""))), "{words}: {err}");
    }
    let names: Vec<_> =
        fs::read_dir(scene.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["pool"]);
}

#[test]
fn new_pools_are_their_owners_alone_and_not_made_in_a_file_of_another_user() {
    let scene = Scene::new();
    assert_eq!(fs::metadata(scene.path("pool")).unwrap().permissions().mode() & 0o777, 0o600);
    let path = scene.path("empty");
    File::create(&path).unwrap();
    // Needs root.
    if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
        let url = format!("file:{}?size=16M", text(&path));
        scene.run(&["put", "a", "b", "--pool", &url]).code(1).err("a file of another user (uid 65534)");
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
}

/// Commands that print results, and a shell script that does.
const PRINTING: [&[&str]; 15] = [
    &["get", "a"],
    &["get", "a", "--raw"],
    &["scan"],
    &["scan", "--keys-only"],
    &["del", "--prefix", "a", "--dry-run"],
    &["export"],
    &["export", "-"],
    &["stats", "--json"],
    &["tree"],
    &["check"],
    &["pool", "status"],
    &["shell"],
    &["completions", "bash"],
    &["get", "--help"],
    &["--version"],
];

/// Runs a command with a shell redirection; returns the exit code and stderr.
fn redirected(scene: &Scene, words: &[&str], redirection: &str) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    let script = format!("exec \"$0\" \"$@\" {redirection}");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_darter")]).args(words).env("DARTER_POOL", scene.url());
    fs::write(scene.path("script"), "get a\n").unwrap();
    shell.stdin(File::open(scene.path("script")).unwrap()).stdout(Stdio::null());
    let output = shell.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn results_that_cannot_be_printed_are_a_failure() {
    let scene = scene();
    for words in PRINTING {
        for (redirection, says) in [(">&-", "stdout is closed"), (">/dev/full", "No space left on device")] {
            let (code, err) = redirected(&scene, words, redirection);
            assert_eq!(code, Some(1), "{words:?} {redirection}: {err}");
            assert!(err.contains("cannot write the output") && err.contains(says), "{words:?}: {err}");
        }
        let (code, err) = redirected(&scene, words, "");
        assert_eq!(code, Some(0), "{words:?}: {err}");
    }
}

#[test]
fn commands_without_results_need_no_stdout() {
    let scene = scene();
    let file = scene.path("all.tsv");
    for words in [&["put", "b", "c"][..], &["export", text(&file)], &["import", text(&file)], &["del", "b"]] {
        for redirection in [">&-", ">/dev/full"] {
            scene.run(&["put", "b", "c"]).code(0);
            let (code, err) = redirected(&scene, words, redirection);
            assert_eq!(code, Some(0), "{words:?} {redirection}: {err}");
        }
    }
}
