//! `--table redis:0`: the program and a gateway's clients on the same keys.

use crate::daemon::{Client, Daemon};
use crate::scene::{Scene, finish};

const TABLE: [&str; 2] = ["--table", "redis:0"];

/// A pool with a gateway, and a client of it.
fn gateway() -> (Scene, Daemon, Client) {
    let scene = Scene::new();
    let gateway = Daemon::gateway(&scene.url(), "127.0.0.1:0");
    let client = Client::new(&gateway.address);
    (scene, gateway, client)
}

fn on_table(words: &[&'static str]) -> Vec<&'static str> {
    [words, &TABLE].concat()
}

/// Sends a request and checks the first line of the reply.
#[track_caller]
fn tell(client: &mut Client, request: &str, reply: &str) {
    assert_eq!(client.ask(request).unwrap().0, reply, "{request}");
}

#[test]
fn strings_are_the_same_for_clients_and_the_program() {
    let (scene, _gateway, mut client) = gateway();
    tell(&mut client, "set pear green", "+OK");
    scene.run(&on_table(&["get", "pear"])).code(0).out("green\n");
    scene.run(&["get", "pear"]).code(1).err("no such key: pear");
    scene.run(&on_table(&["put", "pear", "ripe\\n"])).code(0);
    assert_eq!(client.ask("get pear").unwrap().1, "ripe\n");
    scene.run(&on_table(&["put", "pear", "red", "--if-absent"])).code(1).err("the key is present");
    scene.run(&on_table(&["put", "pear", "red", "--if-equal", "green"])).code(1).err("another value");
    scene.run(&on_table(&["put", "pear", "red", "--if-equal", "ripe\\n"])).code(0);
    scene.run(&on_table(&["put", "plum", "blue", "--if-present"])).code(1).err("the key is absent");
    scene.run(&on_table(&["put", "plum", "blue", "--if-absent"])).code(0);
    assert_eq!(client.ask("get plum").unwrap().1, "blue");
    scene.run(&on_table(&["scan"])).code(0).out("pear\tred\nplum\tblue\n");
    scene.run(&on_table(&["scan", "--reverse", "--limit", "1"])).code(0).out("plum\tblue\n");
    scene
        .run(&on_table(&["scan", "--prefix", "pe", "--json"]))
        .code(0)
        .out("{\"key\":\"pear\",\"value\":\"red\"}\n");
    scene.run(&on_table(&["del", "pear"])).code(0);
    scene.run(&on_table(&["del", "pear"])).code(1).err("no such key: pear");
    tell(&mut client, "exists pear", ":0");
    finish(scene.command(&["shell"]).write_stdin("get --table redis:0 plum\n")).code(0).out("blue\n");
}

#[test]
fn keys_expire_for_the_program_as_for_clients() {
    let (scene, _gateway, mut client) = gateway();
    tell(&mut client, "set gone x px 1", "+OK");
    tell(&mut client, "set stays x ex 1000", "+OK");
    while client.ask("exists gone").unwrap().0 != ":0" {}
    scene.run(&on_table(&["get", "gone"])).code(1).err("no such key: gone");
    scene.run(&on_table(&["scan"])).code(0).out("stays\tx\n");
    scene.run(&on_table(&["put", "stays", "y"])).code(0);
    tell(&mut client, "ttl stays", ":-1");
}

#[test]
fn keys_of_other_types_are_named_and_left_out() {
    let (scene, _gateway, mut client) = gateway();
    tell(&mut client, "hset hash f v", ":1");
    tell(&mut client, "zadd scores 1 a", ":1");
    tell(&mut client, "set word x", "+OK");
    let hash = "hash: holds a hash, not a string; read it through a gateway, with HGETALL";
    scene.run(&on_table(&["get", "hash"])).code(1).err(hash);
    scene.run(&on_table(&["get", "scores"])).code(1).err("scores: holds a zset, not a string");
    scene.run(&on_table(&["put", "hash", "y", "--if-equal", "x"])).code(1).err("hash: holds a hash");
    let left_out = "left out 1 key of the type zset, which ZRANGE reads through a gateway";
    scene.run(&on_table(&["scan"])).code(1).out("word\tx\n").err(left_out);
    scene.run(&on_table(&["scan", "--keys-only"])).code(0).out("hash\nscores\nword\n");
    let exported = scene.run(&on_table(&["export"])).code(1).err(left_out).out;
    assert!(exported.contains("key\tvalue\nword\tx\n# end of darter export: pairs=1 "), "{exported}");
    scene.run(&on_table(&["export", "--prefix", "w"])).code(0).out(&exported);
    scene.run(&on_table(&["del", "hash"])).code(0);
    tell(&mut client, "exists hash", ":0");
    scene.run(&on_table(&["put", "scores", "y"])).code(0);
    tell(&mut client, "type scores", "+string");
}

#[test]
fn a_range_of_a_gateways_keys_is_deleted_and_nothing_else() {
    let (scene, _gateway, mut client) = gateway();
    scene.run(&["put", "user:9", "plain"]).code(0);
    for user in 0..600 {
        tell(&mut client, &format!("set user:{user} x"), "+OK");
    }
    tell(&mut client, "hset user:h f v", ":1");
    tell(&mut client, "set word x", "+OK");
    scene.run(&on_table(&["del", "--prefix", "user:", "--dry-run"])).code(0).out("601 keys\n");
    scene.run(&on_table(&["del", "--prefix", "user:", "--yes"])).code(0).out("deleted 601 keys\n");
    tell(&mut client, "dbsize", ":1");
    scene.run(&["get", "user:9"]).code(0).out("plain\n");
    scene.run(&["check"]).code(0);
}

#[test]
fn a_table_of_another_name_is_refused() {
    let scene = Scene::new();
    for name in ["redis:16", "redis:", "redis:-1", "redis:01", "redis:x"] {
        scene.run(&["get", "pear", "--table", name]).code(2).err("are `redis:0` to `redis:15`");
    }
    scene
        .run(&["get", "pear", "--table", "readings"])
        .code(2)
        .err("`redis:0` to `redis:15` are the only tables");
}

#[test]
fn each_database_of_a_gateway_is_a_table() {
    let (scene, _gateway, mut client) = gateway();
    for database in [0, 3, 15] {
        tell(&mut client, &format!("select {database}"), "+OK");
        tell(&mut client, &format!("set pear {database}"), "+OK");
    }
    for database in ["0", "3", "15"] {
        let table = format!("redis:{database}");
        scene.run(&["get", "--table", &table, "pear"]).code(0).out(&format!("{database}\n"));
        scene.run(&["scan", "--table", &table, "--keys-only"]).code(0).out("pear\n");
    }
    scene.run(&["put", "--table", "redis:3", "plum", "blue"]).code(0);
    tell(&mut client, "exists plum", ":0");
    tell(&mut client, "select 3", "+OK");
    tell(&mut client, "exists plum", ":1");
}

#[test]
fn the_program_and_gateways_do_not_meet_and_a_copy_of_all_has_both() {
    let (scene, _gateway, mut client) = gateway();
    // With the value of an expired cursor, and the prefix of the key of one.
    scene.run(&["put", "customer1", r"\x2a\x00\x00\x00\x00\x00\x00\x00"]).code(0);
    scene.run(&["put", r"\xffkpear", "own"]).code(0);
    scene.run(&["put", "kpear", r"\x00own"]).code(0);
    tell(&mut client, "exists pear ustomer1 customer1", ":0");
    tell(&mut client, "set pear green", "+OK");
    tell(&mut client, "hset hash field value", ":1");
    tell(&mut client, "dbsize", ":2");
    let own = "customer1\nkpear\n\\xffkpear\n";
    scene.run(&["scan", "--keys-only"]).code(0).out(own);
    scene.run(&["scan", "--keys-only", "--prefix", r"\xff"]).code(0).out("\\xffkpear\n");
    let plain = scene.run(&["export"]).code(0).err("left out the data of gateways");
    assert!(!plain.out.contains("green"), "{}", plain.out);
    scene.run(&["tree"]).code(0);

    let (file, copy) = (scene.path("all.tsv"), Scene::new());
    let file = file.to_str().unwrap();
    let all = scene.run(&["export", "--all", file]).code(0);
    assert!(!all.err.contains("left out"), "{}", all.err);
    copy.run(&["import", "--all", file, "--strict"]).code(0);
    copy.run(&["scan", "--keys-only"]).code(0).out(own);
    copy.run(&on_table(&["get", "pear"])).code(0).out("green\n");
    let served = Daemon::gateway(&copy.url(), "127.0.0.1:0");
    let mut client = Client::new(&served.address);
    assert_eq!(client.ask("hget hash field").unwrap().1, "value");
    tell(&mut client, "dbsize", ":2");
    // Removing every key of programs leaves the data of gateways; without such data there is no
    // note.
    scene.run(&["del", "--from", "", "--yes"]).code(0).out("deleted 3 keys\n");
    scene.run(&on_table(&["get", "pear"])).code(0).out("green\n");
    scene.run(&on_table(&["del", "--from", "", "--yes"])).code(0);
    for words in [&["export", "--all", "--table", "redis:0"][..], &["export", "--all", "--prefix", "p"]] {
        scene.run(words).code(2).err("--all");
    }
}
