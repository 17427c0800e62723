//! Lua scripts and functions: what they may use, how they are stopped, and that each is one
//! transaction. `scripts_alike.rs` compares their replies with those of Redis.

use crate::door::{Client, Door, LONG, Reply, bulks, error, index, ok, store};
use darter::IndexKind;
use darter_gateway::GatewayOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns whether the index has no scripts.
fn is_without() -> bool {
    index() == IndexKind::Dart
}

fn eval(client: &mut Client, script: &str, keys: &[&str], args: &[&str]) -> Reply {
    let count = keys.len().to_string();
    client.ask(&[&["eval", script, &count], keys, args].concat())
}

/// Runs a script without keys.
fn run(client: &mut Client, script: &str) -> Reply {
    eval(client, script, &[], &[])
}

/// Options with a short time for scripts.
fn hasty() -> GatewayOptions {
    GatewayOptions { script_time: Duration::from_millis(50), ..GatewayOptions::default() }
}

/// Options with enough time for every script that ends by itself.
fn patient() -> GatewayOptions {
    GatewayOptions { script_time: LONG * 10, ..GatewayOptions::default() }
}

/// Stops a script as soon as it runs.
fn kill(client: &mut Client, command: &str) {
    let start = Instant::now();
    while client.say(command) != ok() {
        assert!(start.elapsed() < LONG);
    }
}

#[test]
fn a_lock_is_released_by_its_owner_only() {
    if is_without() {
        return;
    }
    let door = Door::open();
    let (mut client, keys) = (door.client(), ["lock"]);
    let release =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    assert_eq!(client.say("set lock mine nx px 100000"), ok());
    assert_eq!(eval(&mut client, release, &keys, &["other"]), Reply::Integer(0));
    assert_eq!(client.say("set lock other nx"), Reply::Null);
    assert_eq!(eval(&mut client, release, &keys, &["mine"]), Reply::Integer(1));
    assert_eq!(client.say("set lock other nx"), ok());
}

#[test]
fn a_rate_is_limited_by_a_counter_and_by_a_window() {
    if is_without() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    let counter = "local n = redis.call('incr', KEYS[1]) if n == 1 then redis.call('expire', KEYS[1], ARGV[2]) end \
                   return n <= tonumber(ARGV[1])";
    let allowed = (0..6).map(|_| eval(&mut client, counter, &["r"], &["4", "1000"]));
    assert_eq!(allowed.filter(|reply| *reply == Reply::Integer(1)).count(), 4);
    assert_eq!(client.say("ttl r"), Reply::Integer(1000));
    let window = "redis.call('zremrangebyscore', KEYS[1], 0, ARGV[1] - ARGV[2]) \
                  if redis.call('zcard', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end \
                  redis.call('zadd', KEYS[1], ARGV[1], ARGV[1]) return 1";
    let mut at = |now: &str| eval(&mut client, window, &["w"], &[now, "10", "2"]);
    assert_eq!(
        ["100", "101", "102", "111", "112", "113"].map(&mut at),
        [1, 1, 0, 1, 1, 0].map(Reply::Integer)
    );
}

#[test]
fn an_unknown_digest_is_refused_until_the_script_is_known() {
    if is_without() {
        return;
    }
    let doors = {
        let store = store("mem:128M");
        [(); 2].map(|()| Door::of(store.clone(), GatewayOptions::default()))
    };
    let (mut client, mut other) = (doors[0].client(), doors[1].client());
    let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let by_digest = ["evalsha", digest, "0"];
    let unknown = "NOSCRIPT No matching script. Please use EVAL.";
    assert_eq!(error(client.ask(&by_digest)), unknown);
    assert_eq!(client.ask(&["script", "load", "return 1"]), Reply::bulk(digest));
    assert_eq!(client.ask(&by_digest), Reply::Integer(1));
    let count = || String::from_utf8(doors[0].client().say("info memory").bytes()).unwrap();
    assert!(count().contains("number_of_cached_scripts:1\r\n"));
    // Each gateway has its own.
    assert_eq!(error(other.ask(&by_digest)), unknown);
    assert_eq!(run(&mut other, "return 1"), Reply::Integer(1));
    assert_eq!(other.ask(&by_digest), Reply::Integer(1));
    assert_eq!(client.say("script flush"), ok());
    assert_eq!(error(client.ask(&by_digest)), unknown);
}

#[test]
fn undeclared_keys_of_all_types_are_used() {
    if is_without() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    let script = "redis.call('hset', 'h', 'f', 1, 'g', 2) redis.call('zadd', 'z', 2, 'b', 1, 'a') redis.call('set', 's', 'x') \
                  redis.call('hincrby', 'h', 'f', 4) redis.call('zincrby', 'z', 5, 'a') redis.call('hdel', 'h', 'g') \
                  return {redis.call('hgetall', 'h'), redis.call('zrange', 'z', 0, -1, 'withscores'), redis.call('zcard', 'z'), \
                  redis.call('get', 's'), redis.call('rename', 'z', 'moved')}";
    let expected =
        [bulks(&["f", "5"]), bulks(&["b", "2", "a", "6"]), Reply::Integer(2), Reply::bulk("x"), ok()];
    assert_eq!(run(&mut client, script), Reply::Array(expected.to_vec()));
    assert_eq!(client.say("zrange moved 0 -1"), bulks(&["b", "a"]));
    assert_eq!(client.say("exists z s h"), Reply::Integer(2));
    // Commands that take several steps are refused.
    for command in ["scan', '0", "flushall", "subscribe', 'x", "config', 'get', 'x"] {
        let text = error(run(&mut client, &format!("return redis.call('{command}')")));
        assert!(text.contains("from script"), "{text}");
    }
}

/// Programs search for keys in scripts, such as Dramatiq for the messages of workers that have died.
#[test]
fn scripts_find_keys_as_they_have_changed_them() {
    if is_without() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    client.say("mset user:1 a user:2 b users c");
    client.say("hset user:5 f v");
    let script = "redis.call('del', 'user:1') redis.call('set', 'user:3', 'c') redis.call('zadd', 'user:4', 1, 'm') \
                  return {redis.call('keys', 'user:*'), redis.call('dbsize'), redis.call('range', '[user:2', '(user:4')}";
    let expected = [
        bulks(&["user:2", "user:3", "user:4", "user:5"]),
        Reply::Integer(5),
        bulks(&["user:2", "b", "user:3", "c"]),
    ];
    assert_eq!(run(&mut client, script), Reply::Array(expected.to_vec()));
    assert_eq!(client.say("keys user:*"), expected[0]);
}

#[test]
fn a_run_of_a_script_finds_no_trace_of_the_last_one() {
    if is_without() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    assert_eq!(client.say("hset hash field value"), Reply::Integer(1));
    // Each returns the same in every run, whether its state is kept or not.
    for (script, reply) in [
        // An option of a library, by a computed name.
        (
            "local text = cjson.encode(1 / 3) cjson['encode_number_' .. 'precision'](3) return text",
            "0.33333333333333",
        ),
        ("local was = type(redis.call('hgetall', 'hash').map) redis.setresp(3) return was", "nil"),
        (
            "local was = #KEYS .. type(KEYS[1]) .. type(ARGV.was) KEYS[1] = 'key' ARGV.was = 1 return was",
            "0nilnil",
        ),
        ("math.randomseed(7) local drawn = math.random() return tostring(drawn)", "0.26644419658298"),
        // A table that stands for a read-only one.
        ("local was = type(redis[1]) pcall(table.insert, redis, 'x') return was", "nil"),
        // The methods of strings.
        (
            "local said = ('a'):upper() getmetatable('').__index.upper = function() return 'no' end return said",
            "A",
        ),
        // The environment of a function that all scripts share.
        (
            "local said = type(redis) if pcall(setfenv, loadstring, {}) then loadstring('') end return said",
            "table",
        ),
    ] {
        for _ in 0..30 {
            assert_eq!(run(&mut client, script), Reply::Bulk(reply.into()), "{script}");
        }
    }
    // Numbers are not the same in all runs.
    let drawn: Vec<Reply> = (0..30).map(|_| run(&mut client, "return tostring(math.random())")).collect();
    assert!(drawn.iter().any(|number| *number != drawn[0]));
}

#[test]
fn scripts_that_do_not_end_are_stopped_and_change_nothing() {
    if is_without() {
        return;
    }
    let door = Door::new(hasty());
    let mut client = door.client();
    for endless in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "local f f = function() pcall(f) while true do pcall(f) end end f()",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "coroutine.wrap(function() while true do pcall(function() while true do end end) end end)()",
        "while true do redis.call('incr', 'n') end",
        "while true do redis.pcall('nonsense') end",
        "while true do pcall(redis.call, 'nonsense') end",
        "local t = setmetatable({}, {__index = function(t, k) while true do end end}) return t.x",
        "local t = {} for i = 1, 100 do t[i] = i end table.sort(t, function() while true do end end)",
        "return ('x'):gsub('x', function() while true do end end)",
    ] {
        let text = error(run(&mut client, &format!("redis.call('set', 'changed', 1) {endless}")));
        assert!(text.starts_with("ERR Error running script: stopped after 50 ms"), "{endless}: {text}");
    }
    assert_eq!(client.say("exists changed n"), Reply::Integer(0));
}

#[test]
fn scripts_that_need_too_much_memory_are_stopped_and_change_nothing() {
    if is_without() {
        return;
    }
    let door = Door::new(GatewayOptions { script_bytes_max: 2 << 20, ..patient() });
    let mut client = door.client();
    assert_eq!(client.ask(&["set", "long", &"x".repeat(600_000)]), ok());
    for greedy in [
        "local t = {} while true do t[#t + 1] = {} end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 1000000000)",
        "local t = {} while true do pcall(function() while true do t[#t + 1] = {} end end) end",
        "while true do pcall(string.rep, 'x', 100000000) end",
        "return redis.call('mget', 'long', 'long', 'long', 'long')",
        "while true do pcall(redis.call, 'mget', 'long', 'long', 'long', 'long') end",
        "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
        "local t = {} for i = 1, 3000000 do t[i] = i end return cjson.encode(t)",
    ] {
        let text = error(run(&mut client, &format!("redis.call('set', 'changed', 1) {greedy}")));
        assert!(text.starts_with("ERR Error running script: not enough memory"), "{greedy}: {text}");
    }
    let long = ["a", "b", "c", "d"].map(|letter| letter.repeat(600_000));
    let text = error(eval(&mut client, "return 1", &[], &long.each_ref().map(|long| &**long)));
    assert!(text.starts_with("ERR Error running script: not enough memory"), "{text}");
    assert_eq!(client.say("exists changed"), Reply::Integer(0));
    assert_eq!(run(&mut client, "return 1"), Reply::Integer(1));
}

#[test]
fn deep_recursion_is_an_error_and_huge_replies_arrive() {
    if is_without() {
        return;
    }
    let door = Door::new(GatewayOptions { output_bytes_max: 8 << 20, ..patient() });
    let mut client = door.client();
    for script in [
        "local function f() return 1 + f() end return f()",
        "return cjson.encode((function() local t = {} for i = 1, 5000 do t = {t} end return t end)())",
        "local t = {} t[1] = t cjson.encode_max_depth(1000000) return cjson.encode(t)",
        "cjson.decode_max_depth(1000000) return cjson.decode(string.rep('[', 1000000))",
        "return cmsgpack.unpack(string.rep('\\145', 1000000))",
        "return string.find(string.rep('a', 100000), string.rep('a?', 100000))",
        "return unpack({}, 0, 2^31)",
        "return unpack({}, -2^31, 2^31 - 1)",
        "return loadstring('return ' .. string.rep('(', 1000) .. '1' .. string.rep(')', 1000))()",
        "return setmetatable({}, {__gc = 1}).x.y",
        "local f = function(...) return select('#', ...) end return f(unpack({}, 1, 100000))",
    ] {
        let text = error(run(&mut client, script));
        assert!(text.starts_with("ERR "), "{text}");
    }
    let many = run(&mut client, "local t = {} for i = 1, 100000 do t[i] = i end return t").array();
    assert_eq!((many.len(), many[99_999].clone()), (100_000, Reply::Integer(100_000)));
    let long = run(&mut client, "return string.rep('x', 5000000)").bytes();
    assert!(long.len() == 5_000_000 && long.iter().all(|byte| *byte == b'x'));
    for script in ["local t = {} for i = 1, 10 do t[i] = t end return t", "return string.rep('x', 9000000)"] {
        let text = error(run(&mut client, script));
        assert!(text.contains("--output-bytes"), "{text}");
    }
    assert_eq!(run(&mut client, "return 1"), Reply::Integer(1));
}

#[test]
fn a_script_is_killed_and_nothing_of_it_is_seen() {
    if is_without() {
        return;
    }
    let door = Door::new(patient());
    let mut client = door.client();
    for (command, other, call) in
        [("script kill", "function kill", "eval"), ("function kill", "script kill", "fcall")]
    {
        let idle = "NOTBUSY No scripts in execution right now.";
        assert_eq!(error(client.say(command)), idle);
        let endless =
            "redis.call('set', 'changed', 1) while true do pcall(function() while true do end end) end";
        let mut victim = door.client();
        if call == "eval" {
            victim.send(&crate::door::request(&["eval", endless, "0"]));
        } else {
            let library = format!("#!lua name=l\nredis.register_function('f', function() {endless} end)");
            assert_eq!(client.ask(&["function", "load", &library]), Reply::bulk("l"));
            victim.send(&crate::door::request(&["fcall", "f", "0"]));
        }
        kill(&mut client, command);
        assert_eq!(error(client.say(other)), idle);
        assert!(error(victim.reply()).contains("Script killed by user"));
        assert_eq!(error(client.say(command)), idle);
        assert_eq!(client.say("exists changed"), Reply::Integer(0));
    }
}

#[test]
fn a_client_that_is_ended_during_its_script_frees_the_thread() {
    if is_without() {
        return;
    }
    let door = Door::new(GatewayOptions { script_threads: 1, ..patient() });
    let mut client = door.client();
    for endless in ["while true do end", "while true do redis.call('incr', 'n') end"] {
        let mut victim = door.client();
        let Reply::Integer(id) = victim.say("client id") else { panic!() };
        victim.send(&crate::door::request(&["eval", endless, "0"]));
        let id = id.to_string();
        let start = Instant::now();
        while !String::from_utf8(client.say("client list").bytes()).unwrap().contains("cmd=eval") {
            assert!(start.elapsed() < LONG);
        }
        assert_eq!(client.ask(&["client", "kill", "id", &id]), Reply::Integer(1));
        assert!(victim.try_reply().is_none());
        assert_eq!(run(&mut client, "return 1"), Reply::Integer(1));
    }
    assert_eq!(client.say("exists n"), Reply::Integer(0));
}

#[test]
fn no_increment_of_fifty_clients_of_two_gateways_is_lost() {
    if is_without() {
        return;
    }
    let store = store("mem:128M");
    let doors = [(); 2].map(|()| Door::of(store.clone(), GatewayOptions { script_threads: 3, ..patient() }));
    let ends = AtomicBool::new(false);
    let added = std::thread::scope(|scope| {
        let plain = scope.spawn(|| {
            let (mut client, mut added) = (doors[0].client(), 0);
            while !ends.load(Ordering::Relaxed) {
                client.say("incr mixed");
                added += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            added
        });
        let scripts: Vec<_> = (0..50)
            .map(|number| {
                let door = &doors[number % 2];
                scope.spawn(move || {
                    let mut client = door.client();
                    let script = "for _, key in ipairs({'sum', 'mixed'}) do \
                                  redis.call('set', key, (redis.call('get', key) or 0) + 1) end \
                                  redis.call('hincrby', 'h', ARGV[1], 1) return redis.call('hlen', 'h')";
                    for _ in 0..20 {
                        let reply = eval(&mut client, script, &[], &[&(number % 7).to_string()]);
                        assert!(matches!(reply, Reply::Integer(1..=7)), "{reply:?}");
                    }
                })
            })
            .collect();
        for script in scripts {
            script.join().unwrap();
        }
        ends.store(true, Ordering::Relaxed);
        plain.join().unwrap()
    });
    let mut client = doors[1].client();
    assert_eq!(client.say("get sum"), Reply::bulk("1000"));
    assert_eq!(client.say("get mixed"), Reply::bulk(&(1000 + added).to_string()));
    let fields = client.say("hvals h").array().into_iter();
    let sum: u32 =
        fields.map(|field| String::from_utf8(field.bytes()).unwrap().parse::<u32>().unwrap()).sum();
    assert_eq!(sum, 1000);
}

#[test]
fn libraries_are_those_of_the_pool_and_last() {
    if is_without() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}?size=128M", directory.path().join("pool").display());
    let library = |word: &str| {
        format!(
            "#!lua name=library\nlocal n = 0\nredis.register_function('f', function(keys, args)\nn = n + 1 return {{'{word}', keys[1], args[1], n}} end)"
        )
    };
    let call = ["fcall", "f", "1", "k", "a"];
    let reply = |word: &str| {
        let words = [word, "k", "a"].map(Reply::bulk).into_iter();
        Reply::Array(words.chain([Reply::Integer(1)]).collect())
    };
    {
        let store = store(&url);
        let doors = [(); 2].map(|()| Door::of(store.clone(), GatewayOptions::default()));
        let mut clients = doors.each_ref().map(Door::client);
        assert_eq!(clients[0].ask(&["function", "load", &library("one")]), Reply::bulk("library"));
        for client in &mut clients {
            assert_eq!(client.ask(&call), reply("one"));
            assert_eq!(client.ask(&call), reply("one"));
        }
        assert_eq!(clients[1].ask(&["function", "load", "replace", &library("two")]), Reply::bulk("library"));
        for client in &mut clients {
            assert_eq!(client.ask(&call), reply("two"));
        }
    }
    let store =
        Door::of(darter::Store::open(&url).unwrap(), GatewayOptions { allow_flush: true, ..patient() });
    let mut client = store.client();
    assert_eq!(client.say("flushall"), ok());
    assert_eq!(client.ask(&call), reply("two"));
    assert_eq!(client.say("dbsize"), Reply::Integer(0));
    assert_eq!(client.say("function delete library"), ok());
    assert_eq!(error(client.ask(&call)), "ERR Function not found");
}

#[test]
fn scripts_run_within_the_transaction_of_exec() {
    if is_without() {
        return;
    }
    let door = Door::new(patient());
    let mut client = door.client();
    let mut transact = |body: &[&[&str]]| {
        assert_eq!(client.say("multi"), ok());
        for request in body {
            assert_eq!(client.ask(request), Reply::Simple("QUEUED".to_owned()));
        }
        client.say("exec")
    };
    let add = ["eval", "return redis.call('incrby', KEYS[1], ARGV[1])", "1", "n", "5"];
    let fails = ["eval", "redis.call('set', 'kept', 1) return redis.call('incr', 'text')", "0"];
    let replies =
        transact(&[&["set", "n", "1"], &add, &["incr", "n"], &["set", "text", "x"], &fails, &add]).array();
    assert_eq!(replies[1..3], [Reply::Integer(6), Reply::Integer(7)]);
    assert!(error(replies[4].clone()).starts_with("ERR value is not an integer"));
    assert_eq!(replies[5], Reply::Integer(12));
    // A script that is stopped ends the whole transaction.
    let text = std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill(&mut door.client(), "script kill"));
        let text = error(transact(&[&["set", "n", "100"], &["eval", "while true do end", "0"]]));
        killer.join().unwrap();
        text
    });
    assert!(text.contains("nothing was executed"), "{text}");
    assert_eq!(client.say("mget n kept"), bulks(&["12", "1"]));
    client.say("watch n");
    door.client().say("incr n");
    client.say("multi");
    client.ask(&add);
    assert_eq!(client.say("exec"), Reply::Null);
}

#[test]
fn more_scripts_than_threads_wait() {
    if is_without() {
        return;
    }
    let door = Door::new(GatewayOptions { script_threads: 1, sessions_max: 2, ..patient() });
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = door.client();
                for _ in 0..5 {
                    let bytes =
                        [&["multi"][..], &["eval", "return 1", "0"], &["exec"], &["eval", "return 2", "0"]];
                    client.send(
                        &bytes.iter().flat_map(|words| crate::door::request(words)).collect::<Vec<_>>(),
                    );
                    assert_eq!((client.reply(), client.reply()), (ok(), Reply::Simple("QUEUED".to_owned())));
                    assert_eq!(client.reply(), Reply::Array(vec![Reply::Integer(1)]));
                    assert_eq!(client.reply(), Reply::Integer(2));
                }
            });
        }
    });
}

#[test]
fn dart_refuses_scripts() {
    let store = darter::Store::options().index(IndexKind::Dart).open("mem:64M").unwrap();
    let door = Door::of(store, GatewayOptions::default());
    let mut client = door.client();
    for (name, request) in [
        ("EVAL", &["eval", "return 1", "0"][..]),
        ("FCALL", &["fcall", "f", "0"]),
        ("FUNCTION", &["function", "list"]),
    ] {
        let text = format!("ERR {name} is refused: this pool's index has no transactions");
        assert_eq!(error(client.ask(request)), text);
    }
    assert_eq!(client.say("ping"), Reply::Simple("PONG".to_owned()));
}
