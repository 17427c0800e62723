//! `load`, `export` and `import`: no pair is lost or changed silently.

use crate::scene::{Scene, finish};
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::fs;
use std::io::Write;

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

#[test]
fn a_value_with_a_comma_too_many_is_a_bad_line() {
    let scene = Scene::new();
    let text = "key,value\nx,hello, world\ny,\"hello, world\"\n";
    scene.load("a.csv", text, &[]).code(1).err("a.csv:2: 3 fields; the header has 2").err("1 bad line");
    scene.load("b.csv", "x,hello, world\n", &["--no-header"]).code(1).err("b.csv:1: 3 fields");
    scene.load("c.tsv", "key\tvalue\nx\thello\tworld\n", &[]).code(1).err("c.tsv:2: 3 fields");
    scene.run(&["scan"]).out("y\thello, world\n");
}

#[test]
fn a_json_null_is_a_bad_line_and_numbers_keep_their_digits() {
    let scene = Scene::new();
    let text = "{\"key\": \"a\", \"value\": null}\n{\"key\": \"b\", \"value\": 123456789012345678901234567890}\n\
                {\"key\": \"c\", \"value\": \"null\"}\n{\"key\": \"d\", \"value\": 1, \"value\": 2}\n";
    let answer = scene.load("a.jsonl", text, &[]).code(1);
    answer.err("a.jsonl:1: field `value` is null").err("a.jsonl:4: more than one field `value`");
    scene.run(&["scan"]).out("b\t123456789012345678901234567890\nc\tnull\n");
}

#[test]
fn twenty_bad_lines_are_shown_and_the_rest_counted() {
    let scene = Scene::new();
    let mut text = "key,value\ngood,1\n".to_owned();
    text.push_str(&"bad\n".repeat(53));
    let answer =
        scene.load("a.csv", &text, &[]).code(1).err("33 more bad lines, not shown").err("53 bad lines");
    assert_eq!(
        answer.err.lines().filter(|line| line.starts_with(scene.path("a.csv").to_str().unwrap())).count(),
        20
    );
    scene.run(&["get", "good"]).code(0);
}

#[test]
fn strict_stops_at_the_first_bad_line_and_says_where_to_go_on() {
    let scene = Scene::new();
    let text = "key,value\na,1\nb\nc,3\nd\n";
    let answer = scene.load("a.csv", text, &["--strict"]).code(1);
    answer.err("a.csv:3: 1 field").err("--from-line 4").err("1 new key, 0 replaced, 1 bad line");
    scene.run(&["scan"]).out("a\t1\n");
    let long = "k".repeat(70_000);
    let text = format!("key,value\n{long},1\nz,1\n");
    scene.load("long.csv", text, &["--strict", "--batch", "1"]).code(1).err("--from-line 3");
    scene.run(&["get", "z"]).code(1);
    scene.load("a.csv", "key,value\na,1\nb\nc,3\n", &["--from-line", "4"]).code(0).err("1 new key");
    scene.run(&["scan"]).out("a\t1\nc\t3\n");
}

#[test]
fn compressed_files_are_read_whatever_their_names() {
    let scene = Scene::new();
    scene.load("a.csv.gz", gzip("key,value\na,1\n"), &[]).code(0);
    scene.load("b.csv.zst", zstd("key,value\nb,2\n"), &[]).code(0);
    scene.load("c.csv", [gzip("key,value\n"), gzip("c,3\n")].concat(), &[]).code(0);
    let text = "{\"key\": \"d\", \"value\": \"4\"}\n";
    finish(scene.command(&["load", "-", "--format", "jsonl"]).write_stdin(zstd(text))).code(0);
    scene.run(&["scan"]).out("a\t1\nb\t2\nc\t3\nd\t4\n");
    scene.load("e.csv.gz", "key,value\n", &[]).code(2).err("not compressed by gzip");
    let cut = &gzip(&format!("key,value\n{}", "e,5\n".repeat(1000)))[..50];
    scene.load("f.csv.gz", cut, &[]).code(1).err("cannot read further");
}

#[test]
fn the_headers_control_characters_are_escaped() {
    let scene = Scene::new();
    let answer =
        scene.load("a.csv", "\u{1b}[31mred,b\u{7}ell\n1,2\n", &[]).code(2).err("\\x1b[31mred, b\\x07ell");
    assert!(!answer.err.contains(['\u{1b}', '\u{7}']), "{}", answer.err);
    scene.load("b.csv", "key,value,key\n1,2,3\n", &[]).code(2).err("more than one column `key`");
}

#[test]
fn an_export_of_any_bytes_is_imported_again() {
    let scene = Scene::new();
    let every_byte: String = (0..=255).map(|byte: u8| format!("{byte:02x}")).collect();
    for (key, value) in
        [("", ""), ("00", &every_byte[..]), (&every_byte, "0a0d"), ("efbbbf", "7b22"), ("7b", "5c78")]
    {
        scene.run(&["put", "--hex", key, value]).code(0);
    }
    let original = scene.run(&["scan", "--hex"]).out;
    for name in ["all.tsv", "all.tsv.gz", "all.jsonl", "all.jsonl.gz", "all"] {
        let path = scene.path(name);
        let path = path.to_str().unwrap();
        scene.run(&["export", path]).code(0).out("").err("5 pairs");
        let other = Scene::new();
        other.run(&["import", path]).code(0).err("5 new keys");
        other.run(&["scan", "--hex"]).out(&original);
    }
    for options in [&[][..], &["--format", "jsonl"]] {
        let text = scene.run(&[&["export"], options].concat()).code(0).out;
        let other = Scene::new();
        finish(other.command(&["import", "-"]).write_stdin(text)).code(0);
        other.run(&["scan", "--hex"]).out(&original);
    }
    let text = scene.run(&["export", "--prefix", "7b", "--hex"]).code(0).out;
    assert!(
        text.starts_with("# darter export 1\nkey\tvalue\n{\t\\\\x\n# end of darter export: pairs=1 sha"),
        "{text}"
    );
    // If an export fails, an existing file keeps its contents, and no other file is left.
    let before = fs::read(scene.path("all.tsv")).unwrap();
    let path = scene.path("all.tsv");
    scene.run(&["export", path.to_str().unwrap(), "--pool", "file:/no/such/pool"]).code(2);
    assert_eq!(fs::read(path).unwrap(), before);
    let left = fs::read_dir(scene.path("")).unwrap().filter_map(Result::ok);
    assert!(left.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().starts_with('.')));
    scene.run(&["export", scene.path("a.zst").to_str().unwrap()]).code(2).err("gzip");
    scene.load("foreign.csv", "a,b\n", &[]).code(2);
    scene.run(&["import", scene.path("foreign.csv").to_str().unwrap()]).code(2).err("`darter load`");
}

#[test]
fn an_export_that_was_cut_is_refused_before_a_pair_is_stored() {
    let scene = Scene::new();
    scene.run(&["put", "j", "whole"]).code(0);
    scene.run(&["put", "k", "a value that is long"]).code(0);
    for (options, cut) in [(&["--format", "tsv"], "k\ta value th"), (&["--format", "jsonl"], "lue th")] {
        let whole = scene.run(&[&["export"][..], options].concat()).code(0).out;
        let cut = &whole[..whole.find(cut).unwrap() + cut.len()];
        let path = scene.path("cut");
        fs::write(&path, cut).unwrap();
        for strict in [&[][..], &["--strict"]] {
            let other = Scene::new();
            other
                .run(&[&["import", path.to_str().unwrap()], strict].concat())
                .code(1)
                .err("the file was cut");
            other.run(&["scan"]).out("");
            let mut piped = other.command(&[&["import", "-"], strict].concat());
            finish(piped.write_stdin(cut)).code(1).err("the file was cut");
            other.run(&["scan"]).out("j\twhole\n");
        }
    }
}

#[test]
fn whole_lines_before_a_cut_in_a_pipe_are_stored_whatever_the_batch() {
    let scene = Scene::new();
    let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = |n: u64| (1..16).map(|part| format!("{:x}", hash(n * part))).collect::<String>();
    let lines: String = (0..3000).map(|n| format!("{n:04}\t{}\n", value(n))).collect();
    scene.load("all.tsv", &lines, &["--no-header"]).code(0);
    let tsv = scene.run(&["export"]).code(0).out;
    let header = tsv.find("0000\t").unwrap();
    let imported = |input: Vec<u8>, options: &[&str]| {
        let other = Scene::new();
        let mut piped = other.command(&[&["import", "-"], options].concat());
        finish(piped.write_stdin(input)).code(1).err("new keys");
        other.run(&["check"]).code(0);
        other.run(&["scan"]).code(0).out
    };
    // In a line, between two lines, and before the last line of the export.
    let last = tsv.trim_end().rfind('\n').unwrap() + 1;
    let between = header + lines[..20_000].rfind('\n').unwrap() + 1;
    for end in [header, between, between + 5, last, tsv.len() - 1] {
        let whole = tsv[..end].rfind('\n').unwrap() + 1;
        for options in [&[][..], &["--batch", "7"], &["--strict"]] {
            assert!(
                imported(tsv[..end].into(), options) == tsv[header..whole.max(header)],
                "{end} {options:?}"
            );
        }
    }
    for compressed in [gzip(&tsv), zstd(&tsv)] {
        let stored = imported(compressed[..compressed.len() - 1].into(), &[]);
        // Decoders return whole blocks or nothing.
        assert!(lines.starts_with(&stored) && stored.len() > lines.len() / 4, "{} bytes", stored.len());
    }
    // A change is not a cut: the batch in which it is detected is not stored.
    assert_eq!(imported(tsv.replacen("0000\t", "0000\tx", 1).into(), &[]), "");
}

#[test]
fn file_without_an_export_header_is_imported_with_a_remark_unless_strict() {
    let scene = Scene::new();
    let old = scene.path("old.tsv");
    fs::write(&old, "key\tvalue\na\t1\nb\tcut her").unwrap();
    let old = old.to_str().unwrap();
    scene.run(&["import", old, "--strict"]).code(1).err("does not begin like an export");
    scene.run(&["scan"]).out("");
    scene.run(&["import", old]).code(1).err("a cut or a change would not be detected").err("old.tsv:3: ");
    scene.run(&["scan"]).out("a\t1\n");
    scene.load("hand-made.csv", "key,value\nc,3", &[]).code(0);
    scene
        .load("strict.csv", "key,value\nd,4", &["--strict"])
        .code(1)
        .err("strict.csv:2: the last line has no");
    scene.load("quoted.csv", "key,value\n\"e\",\"5\"", &["--strict"]).code(0);
    scene.run(&["scan"]).out("a\t1\nc\t3\ne\t5\n");
    let text = scene.run(&["export"]).code(0).out;
    scene.load("ours.tsv", &text, &["--escaped", "--strict"]).code(0).err("3 replaced");
    scene.load("ours.tsv", text.replace("a\t1", "a\t2"), &["--escaped"]).code(1).err("checksum");
}

#[test]
fn an_export_whose_output_ends_early_fails() {
    let scene = Scene::new();
    let text: String = (0..5000).map(|n| format!("{n:04},{}\n", "x".repeat(90))).collect();
    scene.load("keys.csv", text, &["--no-header"]).code(0);
    for format in ["tsv", "jsonl"] {
        let command = || {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_darter"));
            command.args(["export", "--format", format]).env("DARTER_POOL", scene.url());
            command
        };
        let mut child = command()
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("its reader has closed it"), "{said}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command().stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
    }
}

#[test]
fn deleting_a_range_requires_confirmation() {
    let scene = Scene::new();
    let text: String = (0..1500).map(|n| format!("{n:04},x\n")).collect();
    scene.load("keys.csv", text, &["--no-header"]).code(0);
    scene.run(&["del", "--prefix", "1", "--dry-run"]).code(0).out("500 keys\n");
    scene.run(&["del", "--prefix", "1"]).code(2).err("this would delete 500 keys; add --yes");
    scene.run(&["del", "--prefix", "1", "--yes"]).code(0).out("deleted 500 keys\n");
    scene.run(&["del", "--from", "0010", "--to", "0011", "-y"]).code(0).out("deleted 1 key\n");
    scene.run(&["del", "--prefix", "1", "--yes"]).code(1).out("deleted 0 keys\n");
    scene.run(&["del", "--prefix", "1"]).code(1).err("there are no keys in this range");
    scene.run(&["del"]).code(2);
    scene.run(&["del", "0011", "--prefix", "0"]).code(2);
    scene.run(&["del", "0011", "--yes"]).code(2);
    let left = scene.run(&["scan", "--keys-only"]).out;
    assert_eq!(left.lines().count(), 999, "{left}");
    scene.run(&["del", "--from", "", "--yes"]).code(0).out("deleted 999 keys\n");
}
