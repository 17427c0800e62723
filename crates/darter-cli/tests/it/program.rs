//! The program from the user's point of view: exit codes, output, input and output files.

use crate::scene::{Scene, finish, program};
use std::fs;

#[test]
fn put_get_del() {
    let scene = Scene::new();
    scene.run(&["put", "fly", "agaric"]).code(0).out("");
    scene.run(&["get", "fly"]).code(0).out("agaric\n");
    scene.run(&["get", "fly", "--raw"]).code(0).out("agaric");
    scene.run(&["get", "absent"]).code(1).out("").err("no such key: absent");
    scene.run(&["del", "fly"]).code(0);
    scene.run(&["del", "fly"]).code(1).err("no such key: fly");
    scene.run(&["get", "fly"]).code(1);
    // The empty key and the empty value are valid.
    scene.run(&["put", "", ""]).code(0);
    scene.run(&["get", ""]).code(0).out("\n");
}

#[test]
fn conditions() {
    let scene = Scene::new();
    scene.run(&["put", "k", "1", "--if-present"]).code(1).err("absent");
    scene.run(&["put", "k", "1", "--if-absent"]).code(0);
    scene.run(&["put", "k", "2", "--if-absent"]).code(1).err("present");
    scene.run(&["put", "k", "2", "--if-equal", "0"]).code(1).err("another value");
    scene.run(&["put", "k", "2", "--if-equal", "1"]).code(0);
    scene.run(&["get", "k"]).out("2\n");
    scene.run(&["put", "k", "3", "--if-absent", "--if-present"]).code(2);
}

#[test]
fn misuse_is_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let absent = format!("file:{}", directory.path().join("absent").display());
    for (words, says) in [
        (vec![], "Usage"),
        (vec!["fly"], "unrecognized"),
        (vec!["get", "k"], "--pool"),
        (vec!["get", "k", "--pool", "nowhere"], "for example"),
        (vec!["get", "k", "--pool", &absent], "?size="),
        (vec!["put", "k", "v", "--pool", &absent], "?size="),
        (vec!["get", "k", "--pool", "mem:64M"], "always new"),
        (vec!["put", "k", "--pool", "mem:64M"], "required"),
        (vec!["get", "k\\q", "--pool", "mem:64M"], "escape"),
        (vec!["get", "abc", "--hex", "--pool", "mem:64M"], "hexadecimal"),
        (vec!["load", "/no/such.csv", "--pool", "mem:64M"], "/no/such.csv"),
        (vec!["load", "/dev/null", "--pool", "mem:64M"], "--format"),
        (vec!["scan", "--prefix", "a", "--from", "b", "--pool", "mem:64M"], "cannot be used with"),
        (vec!["tree", "--levels", "0", "--pool", "mem:64M"], "levels"),
        (vec!["bench", "--records", "0"], "--records"),
        (vec!["bench", "--pool", &absent], "?size="),
    ] {
        let answer = finish(program().args(&words)).code(2);
        assert!(answer.err.contains(says), "{words:?} says: {}", answer.err);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    finish(program().arg("--help")).code(0);
    finish(program().arg("--version")).code(0);
}

#[test]
fn file_without_a_pool_gives_exit_code_1() {
    let scene = Scene::new();
    fs::write(scene.path("text"), "somebody's thesis").unwrap();
    let text = format!("file:{}", scene.path("text").display());
    for words in [&["get", "k"][..], &["scan"], &["stats"], &["check"], &["check", "--repair"], &["tree"]] {
        scene.run(&[words, &["--pool", &text]].concat()).code(1).err("text");
    }
    assert_eq!(fs::read(scene.path("text")).unwrap(), b"somebody's thesis");
    let pool = fs::read(scene.path("pool")).unwrap();
    fs::write(scene.path("text"), &pool[..pool.len() / 2]).unwrap();
    scene.run(&["get", "k", "--pool", &text]).code(1).err("cut short");
}

#[test]
fn binary_keys_and_values_round_trip() {
    let scene = Scene::new();
    let every_byte: Vec<u8> = (0..=255).collect();
    let hex: String = every_byte.iter().map(|byte| format!("{byte:02x}")).collect();
    scene.run(&["put", "--hex", "00ff0a", &hex]).code(0);
    scene.run(&["get", "--hex", "00ff0a"]).code(0).out(&format!("{hex}\n"));
    // Escaped output is escaped input.
    let escaped = scene.run(&["get", "\\x00\\xff\\n"]).code(0).out;
    scene.run(&["put", "copy", escaped.trim_end_matches('\n')]).code(0);
    scene.run(&["get", "--hex", "636f7079"]).code(0).out(&format!("{hex}\n"));
    assert_eq!(scene.command(&["get", "copy", "--raw"]).output().unwrap().stdout, every_byte);
    // A value from a file or from standard input, unchanged.
    fs::write(scene.path("value"), &every_byte).unwrap();
    scene.run(&["put", "file", "--value-file", scene.path("value").to_str().unwrap()]).code(0);
    scene.run(&["get", "--hex", "66696c65"]).out(&format!("{hex}\n"));
    finish(scene.command(&["put", "input", "--value-file", "-"]).write_stdin(every_byte)).code(0);
    scene.run(&["get", "--hex", "696e707574"]).out(&format!("{hex}\n"));
    scene.run(&["put", "grün", "💾"]).code(0);
    scene.run(&["get", "grün"]).out("💾\n");
}

#[test]
fn scans() {
    let scene = Scene::new();
    for key in ["", "a", "ab", "abc", "b", "ba\\x00"] {
        scene.run(&["put", key, &format!("v{key}")]).code(0);
    }
    let keys = |options: &[&str]| {
        let answer = scene.run(&[&["scan", "--keys-only"], options].concat()).code(0);
        answer.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["", "a", "ab", "abc", "b", "ba\\x00"]);
    assert_eq!(keys(&["--reverse", "--limit", "2"]), ["ba\\x00", "b"]);
    assert_eq!(keys(&["--prefix", "ab"]), ["ab", "abc"]);
    assert_eq!(keys(&["--prefix", "a", "--reverse"]), ["abc", "ab", "a"]);
    assert_eq!(keys(&["--from", "ab", "--to", "b"]), ["ab", "abc"]);
    assert_eq!(keys(&["--from", "b", "--to", "a"]), [""; 0]);
    assert_eq!(keys(&["--limit", "0"]), [""; 0]);
    assert_eq!(keys(&["--hex", "--prefix", "6261"]), ["626100"]);
    scene.run(&["scan", "--prefix", "ab"]).out("ab\tvab\nabc\tvabc\n");
    scene
        .run(&["scan", "--prefix", "ba", "--json"])
        .out("{\"key\":\"ba\\\\x00\",\"value\":\"vba\\\\x00\"}\n");
}

/// A reader that stops early causes no error.
#[test]
fn closed_pipe_does_not_fail() {
    let scene = Scene::new();
    let text: String = (0..20_000).map(|n| format!("key {n},value\n")).collect();
    scene.load("many.csv", text, &["--no-header"]).code(0);
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("darter"))
        .args(["scan", "--pool", &scene.url()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}

#[test]
fn loads_report_bad_lines_and_keep_the_others() {
    let scene = Scene::new();
    let text = "id,note,name\n1,x,Ada\n2,\"open,Bob\n3,\"a \"\"b\"\", c\",Cleo\nonly\n4,\"two\nlines\",Dora\n5,,Eve\n";
    let answer = scene.load("people.csv", text, &["--key", "id", "--value", "name"]).code(1);
    let answer = answer
        .err("people.csv:3: missing closing quote")
        .err("people.csv:5: 1 field; the header has 3")
        .err("4 new keys")
        .err("2 bad lines");
    assert_eq!(answer.err.lines().count(), 3, "{}", answer.err);
    scene.run(&["scan"]).out("1\tAda\n3\tCleo\n4\tDora\n5\tEve\n");
    // A key that cannot be stored also makes its line bad.
    let long = "k".repeat(70_000);
    let answer = scene.load("long.csv", format!("key,value\na,1\n{long},2\nb,3\n"), &[]).code(1);
    answer.err("long.csv:3: key of 70000 bytes").err("2 new keys");
    scene.run(&["get", "b"]).out("3\n");
}

#[test]
fn loads_of_every_format() {
    let scene = Scene::new();
    scene
        .load("one.csv", "\u{feff}key,value\r\na,1\r\n", &[])
        .code(0)
        .err("1 new key, 0 replaced, 0 bad lines");
    scene.load("two.tsv", "value\tkey\n2\tb\n", &[]).code(0);
    scene
        .load(
            "three.jsonl",
            "{\"k\": \"c\", \"v\": [1, null]}\n\n{\"k\": 7}\n",
            &["--key", "k", "--value", "v"],
        )
        .code(1);
    scene.load("four.txt", "d;4\n", &["--format", "csv"]).code(2).err("no column `key`");
    scene
        .load("five", "x,e,y,5\n", &["--format", "csv", "--no-header", "--key", "2", "--value", "4"])
        .code(0);
    scene.load("six.csv", "66,36\n6,36\n", &["--no-header", "--hex"]).code(1).err("six.csv:2: key:");
    finish(scene.command(&["load", "-", "--format", "tsv"]).write_stdin("key\tvalue\ng\t7\n")).code(0);
    scene.run(&["scan"]).out("a\t1\nb\t2\nc\t[1, null]\ne\t5\nf\t6\ng\t7\n");
    // Of equal keys the last line wins, within a batch and across batches.
    for batch in ["1", "2", "100"] {
        scene.load("seven.csv", "key,value\nz,1\nz,2\ny,1\nz,3\n", &["--batch", batch]).code(0);
        scene.run(&["get", "z"]).out("3\n");
    }
}

#[test]
fn a_scan_can_be_loaded_again() {
    let scene = Scene::new();
    scene.run(&["put", "--hex", "00ff5c0a", "0d090a5c2c22"]).code(0);
    scene.run(&["put", "plain, \"quoted\"", "'v'"]).code(0);
    let original = scene.run(&["scan", "--hex"]).out;
    for (options, name, load) in [
        (&[][..], "dump.tsv", &["--no-header", "--escaped"][..]),
        (&["--json"], "dump.jsonl", &["--escaped"]),
        (&["--hex"], "dump.tsv", &["--no-header", "--hex"]),
        (&["--hex", "--json"], "dump.jsonl", &["--hex"]),
    ] {
        let dump = scene.run(&[&["scan"], options].concat()).code(0).out;
        let other = Scene::new();
        other.load(name, dump, load).code(0);
        other.run(&["scan", "--hex"]).out(&original);
    }
}

#[test]
fn a_full_pool_is_exit_code_1_and_stays_readable() {
    let scene = Scene::new();
    let text: String = (0..60).map(|n| format!("{n},{}\n", "x".repeat(1 << 20))).collect();
    let answer = scene.load("large.csv", text, &["--no-header", "--batch", "1"]).code(1);
    let answer = answer.err("out of space");
    assert!(answer.err.contains("stopped storing at line"), "{}", answer.err);
    scene.run(&["get", "0"]).code(0);
    scene.run(&["check"]).code(0);
    scene.run(&["del", "0"]).code(0);
}

#[test]
fn stats_and_check_for_people_and_machines() {
    let scene = Scene::new();
    let text: String = (0..5000).map(|n| format!("{:08x},{n}\n", n * 7919)).collect();
    scene.load("keys.csv", text, &["--no-header"]).code(0);
    let stats = scene.run(&["stats"]).code(0).out;
    for part in ["keys          5000", "index         quiver", " page ", "memory node"] {
        assert!(stats.contains(part), "`{part}` is not in:\n{stats}");
    }
    let stats: serde_json::Value =
        serde_json::from_str(&scene.run(&["stats", "--json"]).code(0).out).unwrap();
    assert_eq!(stats["index"]["keys"], 5000);
    assert_eq!(stats["pool"]["nodes"].as_array().unwrap().len(), 2);
    let leaves: u64 =
        stats["index"]["levels"].as_array().unwrap().iter().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!(leaves, 5000);
    for words in [&["check", "--json"][..], &["check", "--json", "--repair"]] {
        let check: serde_json::Value = serde_json::from_str(&scene.run(words).code(0).out).unwrap();
        assert_eq!(check["sound"], true, "{check}");
        assert_eq!(check["leaked_bytes"], 0, "{check}");
        assert_eq!(check["index"]["keys"], 5000);
    }
    let check = scene.run(&["check"]).code(0).out;
    assert!(check.contains("violations    0") && check.contains("leaked        0 bytes"), "{check}");
}

/// Damage in the middle of the pool leads to exit code 1 and a message, never to a crash.
#[test]
fn a_damaged_pool_fails_its_check() {
    let scene = Scene::new();
    let text: String = (0..20_000).map(|n| format!("key {n},value {n}\n")).collect();
    scene.load("keys.csv", text, &["--no-header"]).code(0);
    let mut pool = fs::read(scene.path("pool")).unwrap();
    // Damages every leaf's key where it contains "key".
    for at in 0..pool.len() - 4 {
        if &pool[at..at + 4] == b"key " {
            pool[at..at + 4].copy_from_slice(b"KEY!");
        }
    }
    fs::write(scene.path("pool"), pool).unwrap();
    let answer = scene.run(&["check"]).code(1);
    assert!(
        answer.out.contains("violation: ") || answer.err.contains("damaged"),
        "{}{}",
        answer.out,
        answer.err
    );
    let answer = scene.run(&["check", "--repair"]).code(1);
    assert!(answer.out.contains("nothing was repaired") || answer.err.contains("damaged"), "{}", answer.out);
}

#[test]
fn trees_as_text_and_as_svg() {
    let scene = Scene::new();
    scene.run(&["tree"]).code(0);
    let text: String = (0..300).map(|n| format!("<{},v\n", n % 10 * 1000 + n)).collect();
    scene.load("keys.csv", text, &["--no-header"]).code(0);
    let tree = scene.run(&["tree", "--levels", "2", "--width", "4"]).code(0).out;
    assert!(tree.contains("├─ ") && tree.contains(" more"), "{tree}");
    let below = scene.run(&["tree", "--prefix", "<1"]).code(0).out;
    assert!(below.contains("\"<1"), "{below}");
    let picture = scene.path("tree.svg");
    scene.run(&["tree", "--svg", picture.to_str().unwrap()]).code(0).out("");
    let picture = fs::read_to_string(picture).unwrap();
    assert!(
        picture.starts_with("<svg") && picture.contains("&lt;") && picture.trim_end().ends_with("</svg>")
    );
    scene.run(&["tree", "--svg", "/no/such/directory/tree.svg"]).code(2).err("/no/such/directory/tree.svg");
}

#[test]
fn stats_of_dart_include_its_skip_table() {
    let scene = Scene::with(&["--index", "dart"]);
    let text: String = (0..5000).map(|n| format!("{:08x},{n}\n", n * 7919)).collect();
    scene.load("keys.csv", text, &["--no-header"]).code(0);
    let stats = scene.run(&["stats"]).code(0).out;
    for part in ["keys          5000", "prefix list", "N4", "skip table"] {
        assert!(stats.contains(part), "`{part}` is not in:\n{stats}");
    }
}

#[test]
fn a_small_bench_runs() {
    small_bench("quiver", &[]);
    small_bench("dart", &["prefix_list"]);
}

fn small_bench(index: &str, own_fields: &[&str]) {
    let words = ["bench", "--index", index, "--workload", "load,c,e", "--records", "2000", "--ops", "500"];
    let answer = finish(program().args(words).arg("--json")).code(0);
    let reports: Vec<serde_json::Value> =
        answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(reports.len(), 3);
    for report in &reports {
        let fields = ["index", "ops_per_s", "round_trips_per_op", "latency_us", "pool_used_bytes"];
        for field in fields.iter().chain(own_fields) {
            assert!(!report[field].is_null(), "{field} is missing: {report}");
        }
    }
}

#[test]
fn modelled_cluster_is_refused_by_commands_that_keep_data() {
    let scene = Scene::new();
    for words in [
        &["get", "x"][..],
        &["put", "x", "y"],
        &["stats"],
        &["check"],
        &["pool", "create"],
        &["pool", "status"],
        &["bench", "--records", "1000", "--ops", "1000"],
    ] {
        let command = scene.command(words).args(["--pool", "model:preset=dart,threads=4"]).output().unwrap();
        let error = String::from_utf8(command.stderr).unwrap();
        assert_eq!(command.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains("darter-lab compare"), "{words:?}: {error}");
    }
}

/// Each command detects the index of a pool; a pool with the other index is refused by name.
#[test]
fn every_command_works_on_quiver() {
    let scene = Scene::new();
    let lines: String = (0..3000).map(|n| format!("key{n:05}\tvalue {n}\n")).collect();
    scene.load("pairs.tsv", &lines, &["--no-header"]).code(0);
    scene.run(&["get", "key00042"]).code(0).out("value 42\n");
    scene.run(&["put", "key00042", "other", "--if-equal", "value 42"]).code(0);
    scene.run(&["put", "key00042", "other", "--if-equal", "value 42"]).code(1).err("another value");
    scene.run(&["scan", "--prefix", "key0004", "--limit", "1"]).code(0).out("key00040\tvalue 40\n");
    let stats = scene.run(&["stats"]).code(0).out;
    for part in ["index         quiver", "keys          3000", "page", "memory node"] {
        assert!(stats.contains(part), "{part}: {stats}");
    }
    assert!(!stats.contains("prefix list"), "{stats}");
    let tree = scene.run(&["tree", "--levels", "9", "--prefix", "key0004"]).code(0).out;
    assert!(["node", "page", "record", "key00042"].iter().all(|part| tree.contains(part)), "{tree}");
    let svg = scene.path("tree.svg");
    scene.run(&["tree", "--levels", "9", "--svg", svg.to_str().unwrap()]).code(0);
    assert!(fs::read_to_string(svg).unwrap().contains("page "));
    let exported = scene.path("out.tsv");
    scene.run(&["export", exported.to_str().unwrap()]).code(0);
    assert_eq!(fs::read_to_string(&exported).unwrap().lines().count(), 3 + 3000);
    scene.command(&["shell"]).write_stdin("get key00001\n").assert().success().stdout("value 1\n");
    scene.run(&["pool", "status"]).code(0);
    scene.run(&["del", "--prefix", "key02", "--yes"]).code(0);
    scene.run(&["check"]).code(0);
    scene.run(&["get", "key00001", "--index", "dart"]).code(2).err("holds the index quiver");
    let dart = Scene::with(&["--index", "dart"]);
    dart.run(&["get", "k", "--index", "quiver"]).code(2).err("holds the index dart");
}
