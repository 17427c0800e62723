//! `shell`: scripts from standard input, with the exit codes of single commands.

use crate::scene::{Answer, Scene, finish};

fn script(scene: &Scene, text: &str) -> Answer {
    finish(scene.command(&["shell"]).write_stdin(text))
}

#[test]
fn a_script_reads_and_changes_a_pool() {
    let scene = Scene::new();
    let text = "# fruit\nput pear green\n\nput 'a key' \"a value\"\nget pear\nscan --prefix a\ndel pear\nscan --keys-only\n";
    script(&scene, text).code(0).out("green\na key\ta value\na key\n");
    let text = "put --hex 00ff 0a\nget --hex 00ff\nstats --json\nexit\nnonsense\n";
    let answer = script(&scene, text).code(0);
    assert!(answer.out.starts_with("0a\n{") && answer.out.contains("\"keys\":2"), "{}", answer.out);
    script(&scene, "help\n").code(0);
    // The lines after it are the file.
    script(&scene, "load - --format csv\nkey,value\nz,1\n").code(0).err("1 new key");
    scene.run(&["get", "z"]).code(0).out("1\n");
}

#[test]
fn a_script_ends_at_its_first_failure_and_remembers_a_no() {
    let scene = Scene::new();
    script(&scene, "get absent\nput k v\n").code(1).err("no such key: absent");
    scene.run(&["get", "k"]).code(0);
    for (text, says) in [
        ("put k w\nfly\nput k x\n", "line 2: unrecognized subcommand"),
        ("put k w\nget 'open\nput k x\n", "line 2: missing closing quote"),
        ("put k w\nload /no/such.csv\nput k x\n", "line 2: /no/such.csv"),
        ("put k w\nget\nput k x\n", "required"),
    ] {
        script(&scene, text).code(2).err(says);
        scene.run(&["get", "k"]).out("w\n");
    }
}
