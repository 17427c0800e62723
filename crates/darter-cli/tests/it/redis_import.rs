//! `import` of RDB files and from Redis servers, and `export --format resp`: all types of keys move from
//! a redis-server into a pool and back, and damaged files are refused.
//!
//! Tests that need redis-server are skipped if it is not installed, unless `DARTER_TEST_ALL` is set.

use crate::daemon::{Client, Daemon};
use crate::scene::{Scene, finish};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A redis-server, and its directory.
struct Redis {
    child: Child,
    address: String,
    directory: TempDir,
}

impl Redis {
    /// Starts a server, if it is installed.
    fn start(options: &[&str]) -> Option<Self> {
        let version = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            assert!(std::env::var_os("DARTER_TEST_ALL").is_none(), "redis-server is required");
            eprintln!("skipped: redis-server is not installed; run scripts/test-tools");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        // Another process may take the port in between; then another one is tried.
        for _ in 0..10 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let port = address.port().to_string();
            let mut child = Command::new("redis-server")
                .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "yes"])
                .args(["--databases", "32", "--dir"])
                .arg(directory.path())
                .args(options)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            for _ in 0..1000 {
                if TcpStream::connect(address).is_ok() {
                    return Some(Self { child, address: address.to_string(), directory });
                }
                if child.try_wait().unwrap().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("redis-server does not start");
    }

    /// Sends commands, and returns all replies.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut reader = stream.try_clone().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || {
            stream.write_all(&bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let mut replies = Vec::new();
        reader.read_to_end(&mut replies).unwrap();
        writer.join().unwrap();
        String::from_utf8_lossy(&replies).into_owned()
    }

    /// Sends lines, none of which may fail.
    fn tell(&self, lines: &str) -> String {
        let replies = self.send(lines.replace('\n', "\r\n").as_bytes());
        assert!(!replies.lines().any(|line| line.starts_with('-')), "{replies}");
        replies
    }

    /// Returns a digest of all keys.
    fn digest(&self) -> String {
        self.tell("debug digest\n")
    }

    /// Writes the keys to a file, and returns its bytes.
    fn saved(&self) -> Vec<u8> {
        self.tell("save\n");
        std::fs::read(self.directory.path().join("dump.rdb")).unwrap()
    }

    /// Makes keys of all types and sizes.
    fn fill(&self) {
        let long = "again-and-".repeat(500);
        let mut lines = vec![format!(
            "set string green\nset number 1234567\nset empty \"\"\nset long {long}\nset expires x px 100000000000"
        )];
        lines.extend((0..1500).map(|number| {
            format!(
                "set many:{number} value{number}\nrpush list element{number} {number}\nhset hash field{number} {number}\n\
                 zadd scores {number}.5 member{number}\nsadd names name{number}\nsadd numbers {number}\n\
                 xadd stream {}-1 f v{number} g {number}",
                number + 1
            )
        }));
        lines.push(
            "rpush small a 1 -70000\nhset little f 1 g two\nzadd few 1.5 a -inf b\nsadd both a 1\n\
             xgroup create stream g 0\nxreadgroup group g c count 700 streams stream >\nxack stream g 5-1 6-1\n\
             xadd brief 1-1 f v\nxdel brief 1-1\npexpire hash 100000000000\n\
             select 7\nset string of-another-database\nsadd names x\n"
                .to_owned(),
        );
        self.tell(&lines.join("\n"));
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Whether `export --format resp` of a pool makes a server equal to another one.
fn assert_exports(scene: &Scene, digest: &str, keys: &str) {
    let file = scene.path("keys.resp.gz");
    scene.run(&["export", text(&file)]).code(0).err(keys);
    let Some(copy) = Redis::start(&[]) else { return };
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(&file).unwrap()).read_to_end(&mut bytes).unwrap();
    let replies = copy.send(&bytes);
    assert!(!replies.lines().any(|line| line != "+OK"), "{replies:.300}");
    assert_eq!(copy.digest(), digest);
}

#[test]
fn all_keys_move_from_an_rdb_file_into_a_pool_and_back() {
    let Some(redis) = Redis::start(&[]) else { return };
    redis.fill();
    redis.tell("eval \"return redis.call('set', 'gone', 'x', 'px', '1')\" 0\n");
    let code = "#!lua name=mylib\\nredis.register_function('f', function() return 1 end)";
    redis.tell(&format!("function load \"{code}\"\n"));
    let scene = Scene::new();
    let file = scene.path("dump.rdb");
    std::fs::write(&file, redis.saved()).unwrap();
    while !redis.tell("exists gone\n").starts_with(":0") {}
    let import = ["import", text(&file)];
    let said =
        scene.run(&import).code(0).err("1518 keys stored, 0 kept because they exist").err("0 bad keys");
    assert!(said.err.contains("left out 1 library of functions"), "{}", said.err);
    assert_exports(&scene, &redis.digest(), "1518 keys");
    // Pending entries are not part of the digest.
    let gateway = Daemon::gateway(&scene.url(), "127.0.0.1:0");
    let mut client = Client::new(&gateway.address);
    assert_eq!(client.ask("xack stream g 7-1 5-1").unwrap().0, ":1");
    assert_eq!(client.ask("set string changed").unwrap().0, "+OK");
    drop(gateway);
    // Existing keys are kept, so that a command that was interrupted can be run again.
    scene.run(&import).code(0).err("0 keys stored, 1518 kept because they exist");
    scene.run(&["get", "--table", "redis:0", "string"]).code(0).out("changed\n");
    let bytes = std::fs::read(&file).unwrap();
    let mut piped = scene.command(&["import", "-", "--replace"]);
    finish(piped.write_stdin(bytes)).code(0).err("1518 keys stored, 0 kept");
    scene.run(&["get", "--table", "redis:0", "string"]).code(0).out("green\n");
    scene.run(&["get", "--table", "redis:7", "string"]).code(0).out("of-another-database\n");
    scene.run(&["check"]).code(0);
}

#[test]
fn all_keys_move_from_a_server_into_a_pool_and_back() {
    let Some(redis) = Redis::start(&[]) else { return };
    redis.fill();
    let digest = redis.digest();
    redis.tell("acl setuser ann on >p@ss:word ~* &* +@all\nconfig set requirepass secret\n");
    let (scene, address) = (Scene::new(), &redis.address);
    scene.run(&["import", &format!("redis://{address}")]).code(1).err("NOAUTH");
    scene.run(&["import", &format!("redis://:wrong@{address}")]).code(1).err("WRONGPASS");
    let password = scene.path("password");
    std::fs::write(&password, "secret\n").unwrap();
    let one = format!("redis://{address}/7");
    scene
        .run(&["import", &one, "--source-password-file", text(&password)])
        .code(0)
        .err("2 keys stored, 0 kept");
    let all = format!("redis://ann:p%40ss%3aword@{address}");
    let said = scene.run(&["import", &all]).code(0).err("1516 keys stored, 2 kept because they exist");
    assert!(!said.err.contains("ss:word") && !said.err.contains("%40"), "{}", said.err);
    assert_exports(&scene, &digest, "1518 keys");
    scene.run(&["import", &all, "--replace"]).code(0).err("1518 keys stored, 0 kept");
}

#[test]
fn nothing_is_stored_from_a_damaged_file() {
    let Some(redis) = Redis::start(&[]) else { return };
    redis.tell("set string green\nhset hash f v\nrpush list a b\nset number 5 ex 100000\n");
    let whole = redis.saved();
    let scene = Scene::new();
    let file = scene.path("dump.rdb");
    for at in (0..whole.len()).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&file, &bytes).unwrap();
        let said = scene.run(&["import", text(&file)]);
        assert_ne!(said.code, 0, "{at}: {}", said.err);
        let is_told =
            [" at byte ", "ends at byte", "version", "takes more than", "not written by", "does not begin"];
        assert!(is_told.iter().any(|part| said.err.contains(part)), "{at}: {}", said.err);
        assert!(!said.err.contains("panicked"), "{at}: {}", said.err);
    }
    for bytes in (9..whole.len()).step_by(7) {
        std::fs::write(&file, &whole[..bytes]).unwrap();
        scene.run(&["import", text(&file)]).code(1).err(&format!("ends at byte {bytes}, before its end"));
    }
    scene.run(&["export", "--format", "resp"]).code(0).out("");
}

/// An RDB file without a checksum.
fn file_of(records: &[u8]) -> Vec<u8> {
    [b"REDIS0011", records, b"\xff\0\0\0\0\0\0\0\0"].concat()
}

#[test]
fn keys_that_no_gateway_can_hold_are_named() {
    let scene = Scene::new();
    let file = scene.path("dump.rdb");
    // A value of the module `ReJSON-RL`, a string, a key of database 20, and a set that is damaged.
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let id =
        "ReJSON-RL".chars().fold(0, |id, letter| id << 6 | letters.find(letter).unwrap() as u64) << 10 | 3;
    let module = [b"\x07\x03doc\x81", &id.to_be_bytes()[..], b"\x05\x02{}\x02\x07\x00"].concat();
    let others = b"\xfc\x01\0\0\0\0\0\0\0\x00\x03old\x01x\x00\x04pear\x05green\x02\x03bad\x02\x01a\x01a\xfe\x14\x00\x03far\x01x";
    std::fs::write(&file, file_of(&[&module[..], others].concat())).unwrap();
    scene
        .run(&["import", text(&file)])
        .code(1)
        .err("key doc of database 0, whose value is at byte 14: a value of the module ReJSON-RL, which gateways do not have")
        .err("key bad of database 0")
        .err("damaged at its byte")
        .err("key far of database 20")
        .err("gateways have the databases 0 to 15")
        .err("1 key stored, 0 kept because they exist, 1 expired, 3 bad keys")
        .err("it has no checksum");
    scene.run(&["get", "--table", "redis:0", "pear"]).code(0).out("green\n");
    scene.run(&["import", text(&file), "--strict"]).code(1).err("stopped because of --strict");
    // A key that announces a long value, and a later version.
    std::fs::write(&file, file_of(b"\x00\x04long\x81\x00\x00\x01\x00\x00\x00\x00\x00")).unwrap();
    scene
        .run(&["import", text(&file)])
        .code(1)
        .err("the value of key long at byte")
        .err("takes more than 1073741824 bytes");
    std::fs::write(&file, b"REDIS0099\xff").unwrap();
    scene.run(&["import", text(&file)]).code(1).err("version 99").err("up to 12");
}

#[test]
fn wrong_sources_and_options_are_refused() {
    let scene = Scene::new();
    scene.run(&["import", "redis://:secret@host:x"]).code(2).err("the port is not a number");
    scene.run(&["import", "rediss://host"]).code(2).err("TLS to the source is not supported");
    scene.run(&["import", "redis://127.0.0.1:1", "--all"]).code(2).err("does not go with a Redis server");
    scene.run(&["import", "redis://127.0.0.1:1"]).code(1).err("redis://127.0.0.1:1: cannot connect");
    let file = scene.path("dump.rdb");
    std::fs::write(&file, file_of(b"")).unwrap();
    scene.run(&["import", text(&file), "--from-line", "5"]).code(2).err("does not go with an RDB file");
    scene.run(&["import", text(&file)]).code(0).err("0 keys stored");
    scene.run(&["put", "pear", "green"]).code(0);
    let pairs = scene.path("pairs.tsv");
    scene.run(&["export", text(&pairs)]).code(0);
    scene
        .run(&["import", text(&pairs), "--replace"])
        .code(2)
        .err("does not go with a file written by `export`");
    scene.run(&["export", "--format", "resp", "--all"]).code(2).err("leave out `--all`");
    // Another server answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = stream.read(&mut [0; 64]);
    });
    scene.run(&["import", &url]).code(1).err("not one of a Redis server");
    other.join().unwrap();
}
