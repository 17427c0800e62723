//! Usage errors exit with code 2, and counts agree with their nouns.

use crate::common::darter;
use crate::scene::{Scene, finish, program};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

#[test]
fn invalid_commands_exit_with_code_2() {
    let scene = Scene::new();
    let directory = scene.path("");
    let directory = directory.to_str().unwrap();
    let pool = format!("file:{directory}");
    for (words, says) in [
        (&["pool", "add-node", "127.0.0.1"][..], "10.0.0.4:7000"),
        (&["pool", "add-node", "a:1,b:2"], "10.0.0.4:7000"),
        (&["up", "--memnodes", "1", "--size", "500T"], "did not start"),
        (&["get", "k", "--pool", &pool], "it is a directory"),
        (&["put", "k", "v", "--pool", &format!("{pool}?size=16M")], "it is a directory"),
        (&["pool", "create", "--pool", &pool], "it is a directory"),
        (&["bench", "--records", "10", "--pool", &pool], "it is a directory"),
        (&["load", directory], "it is a directory"),
        (&["load", directory, "--format", "csv"], "it is a directory"),
        (&["import", directory], "it is a directory"),
        (&["export", directory], "it is a directory"),
        (&["man", "nonsense"], "unknown command"),
        (&["get", "k", "--index", "sherman"], "known indexes:\n  quiver"),
        (&["completions", "cmd"], "possible values"),
    ] {
        scene.run(words).code(2).err(says);
    }
}

/// A file without write permission is read as it is, unless another process is changing it.
#[test]
fn a_pool_that_may_not_be_written_is_read() {
    let scene = Scene::new();
    scene.load("fruit.csv", "key,value\npear,green\nplum,blue\n", &[]).code(0);
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scene.path("pool"), fs::Permissions::from_mode(0o444)).unwrap();
    let before = fs::read(scene.path("pool")).unwrap();
    let reader = |words: &[&str]| {
        let mut command = scene.command(words);
        // Root may write everything, and so reads as another user.
        if rustix::process::geteuid().is_root() {
            command = assert_cmd::Command::from_std({
                let mut plain = std::process::Command::new(env!("CARGO_BIN_EXE_darter"));
                plain.args(words).env("DARTER_POOL", scene.url()).uid(65534).gid(65534);
                plain
            });
        }
        finish(&mut command)
    };
    reader(&["get", "pear"]).code(0).out("green\n");
    reader(&["scan"]).code(0).out("pear\tgreen\nplum\tblue\n");
    let exported = reader(&["export"]).code(0).out;
    assert!(exported.contains("\nkey\tvalue\npear\tgreen\nplum\tblue\n# end of "), "{exported}");
    assert!(reader(&["stats", "--json"]).code(0).out.contains("\"keys\":2"));
    let check = reader(&["check"]).code(0).out;
    assert!(check.contains("violations    0") && check.contains("leaked        0 bytes"), "{check}");
    reader(&["tree"]).code(0);
    reader(&["pool", "status"]).code(0);
    reader(&["put", "pear", "red"]).code(1).err("Permission denied");
    reader(&["check", "--repair"]).code(1).err("Permission denied");
    assert!(fs::read(scene.path("pool")).unwrap() == before, "the file has changed");
    // A file that another process is changing cannot be read without registering with it.
    fs::set_permissions(scene.path("pool"), fs::Permissions::from_mode(0o644)).unwrap();
    let writer = ::darter::Store::open(scene.url()).unwrap();
    reader(&["get", "pear"]).code(1).err("is open in another process");
    drop(writer);
    reader(&["get", "pear"]).code(0).out("green\n");
}

#[test]
fn one_is_singular() {
    let scene = Scene::new();
    let path = scene.path("one");
    let url = format!("file:{}?size=16M", path.display());
    let answer = finish(program().args(["pool", "create", "--pool", &url])).code(0);
    assert!(answer.out.contains(": 1 memory node, index quiver\n"), "{}", answer.out);
    let two = format!("file:{}?size=16M&nodes=2", scene.path("two").display());
    let answer = finish(program().args(["pool", "create", "--pool", &two])).code(0);
    assert!(answer.out.contains(": 2 memory nodes, index quiver\n"), "{}", answer.out);
}

#[test]
fn the_size_in_a_name_counts_only_when_a_pool_is_made() {
    let scene = Scene::new();
    let named = |options: &str| format!("{}{options}", scene.url());
    scene
        .run(&["put", "k", "v", "--pool", &named("?size=64M")])
        .code(0)
        .err("have an effect only when a pool is created");
    scene
        .run(&["get", "k", "--pool", &named("?size=32M&nodes=4")])
        .code(0)
        .err("32.00 MiB in 2 memory nodes");
    for same in ["", "?size=32M&nodes=2"] {
        let answer = scene.run(&["get", "k", "--pool", &named(same)]).code(0);
        assert_eq!(answer.err, "");
    }
}

#[test]
fn messages_do_not_carry_control_characters() {
    let output = darter(&["load", "/no/such\u{1b}[31m.csv", "--pool", "mem:16M"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!output.stderr.contains(&0x1b), "{}", String::from_utf8_lossy(&output.stderr));
}
