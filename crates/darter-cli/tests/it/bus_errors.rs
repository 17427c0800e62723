//! Pool files and regions that are truncated while a process has them mapped, or whose file system
//! fills up: the process exits with code 1 and a line that names the file and the cause.

use crate::common::{darter, may_mount, mounting, said};
use crate::scene::Scene;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Starts the program with both outputs piped.
fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_darter"));
    command.args(arguments).env_remove("DARTER_POOL").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns a daemon's address, and its stdout, which must be kept open.
fn address(child: &mut Child) -> (String, BufReader<ChildStdout>) {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    (line.trim().split_once("://").unwrap().1.to_owned(), out)
}

fn truncate(path: &Path, bytes: u64) {
    File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

/// Waits for a process, and checks its exit.
#[track_caller]
fn ends_with(child: Child, path: &Path, cause: &str) {
    let output = child.wait_with_output().unwrap();
    let line = format!("darter: {}: {cause}", path.display());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {said}", output.status);
    assert_eq!(said.lines().filter(|found| found.starts_with(&line)).count(), 1, "{said}");
}

const TRUNCATED: &str = "it was truncated while it was open";

fn pool(scene: &tempfile::TempDir) -> (PathBuf, String) {
    let path = scene.path().join("pool");
    let url = format!("file:{}?size=16M", path.display());
    (path, url)
}

#[test]
fn a_gateway_names_the_pool_file_that_was_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let (path, url) = pool(&directory);
    let mut gateway = start(&["serve", "--resp", "127.0.0.1:0", "--pool", &url, "--log-level", "off"]);
    let (address, _out) = address(&mut gateway);
    truncate(&path, 1 << 20);
    let mut client = TcpStream::connect(address).unwrap();
    let mut reply = [0; 5];
    let value = "x".repeat(1000);
    // Needs more than the pool's first megabyte.
    let written = (0..5000).take_while(|number| {
        let set = client.write_all(format!("SET k{number} {value}\r\n").as_bytes());
        set.is_ok() && client.read_exact(&mut reply).is_ok()
    });
    assert!(written.count() < 5000);
    ends_with(gateway, &path, TRUNCATED);
}

#[test]
fn a_memory_node_names_the_region_that_was_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("region");
    let file = path.to_str().unwrap();
    let listen = ["memnode", "--listen", "127.0.0.1:0", "--log-level", "off"];
    let mut node = start(&[&listen[..], &["--size", "32M", "--file", file]].concat());
    let (address, _out) = address(&mut node);
    let url = format!("tcp://{address}");
    let made = darter(&["pool", "create", "--pool", &url]);
    assert!(made.status.success(), "{}", said(&made));
    truncate(&path, 0);
    let mut client = start(&["put", "a", "b", "--pool", &url]);
    ends_with(node, &path, TRUNCATED);
    // Otherwise it would wait for the node.
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn a_scan_names_the_pool_file_that_was_truncated() {
    let scene = Scene::new();
    let rows: String = (0..20_000).map(|row| format!("key{row:06},{}\n", "v".repeat(100))).collect();
    scene.load("rows.csv", format!("key,value\n{rows}"), &["--format", "csv"]).code(0);
    let mut scan = start(&["scan", "--pool", &scene.url()]);
    let mut out = BufReader::new(scan.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    // The scan blocks, since a pipe holds only a small part of its output.
    truncate(&scene.path("pool"), 4096);
    std::io::copy(&mut out, &mut std::io::sink()).unwrap();
    ends_with(scan, &scene.path("pool"), TRUNCATED);
}

#[test]
fn a_benchmark_names_the_pool_file_that_was_truncated() {
    let directory = tempfile::tempdir().unwrap();
    let (path, url) = pool(&directory);
    // It would not end by itself; the file gets its name when the pool is complete.
    let bench = start(&["bench", "--pool", &url, "--records", "1000", "--ops", "2000000000"]);
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    truncate(&path, 4096);
    ends_with(bench, &path, TRUNCATED);
}

#[test]
fn a_sparse_pool_on_a_full_file_system_is_named() {
    if !may_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let rows: String = (0..20_000).map(|row| format!("key{row:06},{}\n", "v".repeat(1000))).collect();
    let table = directory.path().join("rows.csv");
    std::fs::write(&table, format!("key,value\n{rows}")).unwrap();
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = r#"mount -t tmpfs -o size=8M none "$2" || exit 9
exec "$1" load "$3" --format csv --pool "file:$2/pool?size=64M&sparse""#;
    let mut command = mounting();
    command.args(["sh", "-c", script, "sh", env!("CARGO_BIN_EXE_darter")]);
    command.args([&disk, &table]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    ends_with(command.spawn().unwrap(), &disk.join("pool"), "no space left on the device");
}

#[test]
fn a_bus_error_that_is_not_about_a_file_ends_the_process_as_ever() {
    let directory = tempfile::tempdir().unwrap();
    let (_, url) = pool(&directory);
    let mut gateway = start(&["serve", "--resp", "127.0.0.1:0", "--pool", &url, "--log-level", "off"]);
    let _out = address(&mut gateway);
    kill_process(Pid::from_child(&gateway), Signal::BUS).unwrap();
    let output = gateway.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::BUS.as_raw()), "{}", said(&output));
}
