//! Clients that cache the values that they read, and receive invalidations: `CLIENT TRACKING` at one
//! gateway.

use crate::blocking::until_waiting;
use crate::door::{Client, Door, LONG, Redis, Reply, bulks, error, has_transactions, ok, request};
use crate::overlapping::overlapping;
use crate::pubsub::transcript;
use darter_gateway::GatewayOptions;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A client of RESP3 that tracks keys.
pub struct Tracking {
    pub client: Client,
}

/// An invalidation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Keys(Vec<Vec<u8>>),
    Everything,
}

impl Told {
    pub fn keys(keys: &[&str]) -> Self {
        Self::Keys(keys.iter().map(|key| key.as_bytes().to_vec()).collect())
    }
}

/// Returns what a push says, if it is an invalidation.
fn told(reply: &Reply) -> Option<Told> {
    let Reply::Push(parts) = reply else { return None };
    assert_eq!(parts[0], Reply::bulk("invalidate"), "{parts:?}");
    Some(match &parts[1] {
        Reply::Null => Told::Everything,
        keys => Told::Keys(keys.clone().array().into_iter().map(Reply::bytes).collect()),
    })
}

impl Tracking {
    pub fn begin(address: SocketAddr, options: &str) -> Self {
        let mut client = Client::connect(address);
        client.say("hello 3");
        let mut tracking = Self { client };
        let line = format!("client tracking on {options}");
        assert_eq!(tracking.say(line.trim_end()), ok());
        tracking
    }

    /// Sends a request and returns its reply. Invalidations that arrive before it are ignored.
    pub fn say(&mut self, words: &str) -> Reply {
        self.say_and_hear(words, |_| {})
    }

    /// Does the same, and passes the invalidations that arrive before the reply on.
    pub fn say_and_hear(&mut self, words: &str, mut hear: impl FnMut(Told)) -> Reply {
        self.client.send(&request(&words.split(' ').collect::<Vec<_>>()));
        loop {
            let reply = self.client.reply();
            match told(&reply) {
                Some(told) => hear(told),
                None => return reply,
            }
        }
    }

    /// Waits for the next invalidation.
    pub fn hear(&mut self) -> Told {
        let reply = self.client.reply();
        told(&reply).unwrap_or_else(|| panic!("not an invalidation: {reply:?}"))
    }

    /// Returns the invalidations that have been sent so far.
    pub fn heard(&mut self) -> Vec<Told> {
        let mut all = Vec::new();
        self.say_and_hear("ping", |told| all.push(told));
        all
    }
}

/// The replies that a client has cached, by request. The second word of a request is its key.
#[derive(Debug, Default)]
pub struct Cache(pub BTreeMap<String, Reply>);

impl Cache {
    pub fn forget(&mut self, told: &Told) {
        match told {
            Told::Everything => self.0.clear(),
            Told::Keys(keys) => self.0.retain(|request, _| {
                let key = request.split(' ').nth(1).unwrap().as_bytes();
                !keys.iter().any(|other| other == key)
            }),
        }
    }

    /// Reads through the cache.
    pub fn read(&mut self, tracking: &mut Tracking, request: &str) {
        let reply = tracking.say_and_hear(request, |told| self.forget(&told));
        self.0.insert(request.to_owned(), reply);
    }
}

/// Requests that prepare keys, one that reads a key, those that change it, and the key. One after `!` is
/// sent several times together.
pub const CHANGES: &[(&[&str], &str, &[&str], &str)] = &[
    (&["set k 1"], "get k", &["set k 2"], "k"),
    (&["set k 1"], "get k", &["incr k"], "k"),
    (&["set k 1"], "get k", &["del k"], "k"),
    (&["set k 1"], "strlen k", &["getdel k"], "k"),
    (&["set k 1"], "ttl k", &["expire k 100"], "k"),
    (&["set k 1 ex 100"], "ttl k", &["getex k persist"], "k"),
    (&[], "get k", &["set k 1"], "k"),
    (&["set k 1", "set l 2"], "mget l k", &["mset a 1 k 2"], "k"),
    (&["set k 1", "set l 2"], "get k", &["rename l k"], "k"),
    (&["set k 1"], "get k", &["rename k l"], "k"),
    (&["set l 1"], "get k", &["copy l k"], "k"),
    (&["set k 1"], "get k", &["move k 3"], "k"),
    (&["set k 1"], "get k", &["select 0", "flushdb"], "*"),
    (&["set k 1"], "get k", &["flushall"], "*"),
    (&["set k abc"], "getrange k 0 1", &["setrange k 1 x"], "k"),
    (&["set k abc"], "bitcount k", &["setbit k 0 1"], "k"),
    (&["set k abc"], "getbit k 1", &["bitop not k l"], "k"),
    (&["pfadd k a"], "dump k", &["pfadd k b"], "k"),
    (&["hset k f 1"], "hget k f", &["hset k f 2"], "k"),
    (&["hset k f 1"], "hgetall k", &["hincrby k g 1"], "k"),
    (&["hset k f 1"], "hlen k", &["hdel k f"], "k"),
    (&["rpush k a b"], "lrange k 0 -1", &["lpush k c"], "k"),
    (&["rpush k a b"], "llen k", &["lpop k"], "k"),
    (&["rpush k a b"], "lindex k 0", &["lset k 0 z"], "k"),
    (&["rpush k a b", "rpush l c"], "lrange k 0 -1", &["lmove l k left left"], "k"),
    (&["rpush k a b"], "lrange k 0 -1", &["blmove k l left left 0"], "k"),
    (&["rpush k a b"], "lrange k 0 -1", &["ltrim k 0 0"], "k"),
    (&["sadd k a b"], "smembers k", &["spop k"], "k"),
    (&["sadd k a b", "sadd l c"], "sismember k c", &["smove l k c"], "k"),
    (&["sadd k a b", "sadd l c"], "scard k", &["sunionstore k k l"], "k"),
    (&["sadd k a b", "sadd l c"], "sinter k l", &["sadd l a"], "l"),
    (&["zadd k 1 a"], "zrange k 0 -1", &["zadd k 2 b"], "k"),
    (&["zadd k 1 a"], "zscore k a", &["zincrby k 1 a"], "k"),
    (&["zadd k 1 a"], "zcard k", &["zpopmin k"], "k"),
    (&["zadd k 1 a"], "zunion 1 k", &["zremrangebyscore k 0 9"], "k"),
    (&["geoadd k 1 1 a"], "geopos k a", &["geoadd k 2 2 a"], "k"),
    (&["xadd k 1-1 f v"], "xlen k", &["xadd k 2-1 f v"], "k"),
    (&["xadd k 1-1 f v"], "xread streams k 0", &["xdel k 1-1"], "k"),
    (&["xadd k 1-1 f v", "xgroup create k g 0"], "xpending k g", &["xreadgroup group g c streams k >"], "k"),
    (&["rpush l 2 1"], "lrange k 0 -1", &["sort l store k"], "k"),
    (&["set k 1"], "type k", &["multi", "incr k", "exec"], "k"),
    (&["set k 1"], "get k", &["eval redis.call('incr',KEYS[1]) 1 k"], "k"),
    (&["set k 1"], "get k", &["eval redis.pcall('incr','k');return{err='no'} 0"], "k"),
    (&["set k 1"], "get k", &["!incr k"], "k"),
];

/// Makes each of [`CHANGES`] through a client, and checks that one that tracks the key hears of it.
pub fn hears_of_all(tracking: &mut Tracking, writer: &mut Client) {
    for (prepare, read, changes, key) in CHANGES {
        println!("{prepare:?}, {read}, {changes:?}");
        writer.say("flushall");
        for line in *prepare {
            assert!(!matches!(writer.say(line), Reply::Error(_)), "{line}");
        }
        // What was sent before is of no interest.
        tracking.say(read);
        tracking.heard();
        tracking.say(read);
        for line in *changes {
            match line.strip_prefix('!') {
                // Often enough to be executed as one transaction.
                Some(line) => {
                    writer.send(&request(&line.split(' ').collect::<Vec<_>>()).repeat(5));
                    (0..5).for_each(|_| drop(writer.reply()));
                }
                None => drop(writer.say(line)),
            }
        }
        let expected = if *key == "*" { Told::Everything } else { Told::keys(&[key]) };
        while tracking.hear() != expected {}
    }
}

#[test]
fn a_client_hears_of_every_kind_of_change() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    hears_of_all(&mut Tracking::begin(door.address, ""), &mut door.client());
}

/// Lets keys expire that a client tracks, and checks that it hears of that.
pub fn hears_of_keys_that_expire(tracking: &mut Tracking, writer: &mut Client) {
    let mut expired = 0;
    while expired < 3 {
        writer.say("set k v px 300");
        tracking.heard();
        // It has heard of the change before, and the key may have expired already.
        if tracking.say("get k") == Reply::bulk("v") {
            expired += 1;
            while tracking.hear() != Told::keys(&["k"]) {}
            assert_eq!(writer.say("exists k"), Reply::Integer(0));
        }
    }
}

#[test]
fn a_client_hears_of_keys_that_expire() {
    let door = Door::open();
    hears_of_keys_that_expire(&mut Tracking::begin(door.address, ""), &mut door.client());
}

#[test]
fn replies_about_tracking_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let steps = [
        ">CLIENT TRACKINGINFO",
        ">CLIENT GETREDIR",
        ">CLIENT CACHING YES",
        ">CLIENT TRACKING",
        ">CLIENT TRACKING maybe",
        ">CLIENT TRACKING ON nothing",
        ">CLIENT TRACKING ON REDIRECT",
        ">CLIENT TRACKING ON REDIRECT x",
        ">CLIENT TRACKING ON REDIRECT 0",
        ">CLIENT TRACKING ON REDIRECT 99999",
        ">CLIENT TRACKING ON REDIRECT -1",
        ">CLIENT TRACKING ON PREFIX a",
        ">CLIENT TRACKING ON BCAST OPTIN",
        ">CLIENT TRACKING ON OPTIN OPTOUT",
        ">CLIENT TRACKING ON BCAST PREFIX ab PREFIX a",
        ">CLIENT TRACKING ON OPTIN",
        ">CLIENT TRACKING ON OPTOUT",
        ">CLIENT TRACKING ON BCAST",
        ">CLIENT CACHING NO",
        ">CLIENT CACHING maybe",
        ">CLIENT CACHING",
        ">CLIENT CACHING YES",
        ">CLIENT TRACKINGINFO",
        ">CLIENT TRACKINGINFO x",
        ">PING",
        ">CLIENT TRACKINGINFO",
        ">CLIENT TRACKING OFF",
        ">CLIENT TRACKING ON OPTOUT NOLOOP",
        ">CLIENT CACHING YES",
        ">CLIENT CACHING NO",
        ">CLIENT TRACKINGINFO",
        ">CLIENT TRACKING OFF",
        ">CLIENT TRACKING ON BCAST PREFIX b PREFIX a",
        ">CLIENT TRACKING ON BCAST PREFIX aa",
        ">CLIENT TRACKING ON",
        ">CLIENT TRACKING ON BCAST PREFIX c",
        ">CLIENT TRACKINGINFO",
        ">CLIENT GETREDIR",
        ">RESET",
        ">CLIENT TRACKINGINFO",
        ">CONFIG GET tracking-table-max-keys",
        ">CONFIG SET tracking-table-max-keys x",
        ">CONFIG SET tracking-table-max-keys -1",
        ">CONFIG SET tracking-table-max-keys 0",
        ">CONFIG GET tracking-table-max-keys",
    ];
    for hello in [">HELLO 2", ">HELLO 3"] {
        let steps: Vec<&str> = [hello].into_iter().chain(steps).collect();
        let replies = [redis.address, door.address].map(|address| transcript(address, &steps));
        for (at, step) in steps.iter().enumerate().skip(1) {
            assert_eq!(replies[1][at], replies[0][at], "{hello}, {step}");
        }
        for address in [redis.address, door.address] {
            assert_eq!(Client::connect(address).say("config set tracking-table-max-keys 1000000"), ok());
        }
    }
}

#[test]
fn subscribers_of_resp2_get_the_invalidations_of_other_clients() {
    let door = Door::open();
    let (mut listener, mut client, mut writer) = (door.client(), door.client(), door.client());
    let Reply::Integer(id) = listener.say("client id") else { panic!("no id") };
    crate::peers::subscribe(&mut listener, "__redis__:invalidate");
    assert_eq!(client.say(&format!("client tracking on redirect {id}")), ok());
    let list = String::from_utf8(writer.say("client list").bytes()).unwrap();
    assert!(list.lines().any(|line| line.contains(" flags=t ") && line.contains(&format!(" redir={id} "))));
    client.say("get k");
    writer.say("set k v");
    let message =
        |keys| Reply::Array(vec![Reply::bulk("message"), Reply::bulk("__redis__:invalidate"), keys]);
    assert_eq!(listener.reply(), message(bulks(&["k"])));
    writer.say("flushall");
    assert_eq!(listener.reply(), message(Reply::Null));
    // A client of RESP3 needs no subscription.
    let mut target = door.client();
    target.say("hello 3");
    let Reply::Integer(id) = target.say("client id") else { panic!("no id") };
    assert_eq!(client.say(&format!("client tracking on redirect {id}")), ok());
    client.say("get k");
    writer.say("set k v");
    assert_eq!(told(&target.reply()), Some(Told::keys(&["k"])));
    drop(target);
    let since = Instant::now();
    while !String::from_utf8(writer.say("client list").bytes()).unwrap().contains(" flags=tR ") {
        assert!(since.elapsed() < LONG);
        client.say("get k");
        writer.say("set k v");
    }
}

/// Redis forgets that the client has the key. So the client would not hear of the next change.
#[test]
fn a_client_without_its_own_invalidations_still_hears_of_others() {
    let door = Door::open();
    let (mut tracking, mut writer) = (Tracking::begin(door.address, "noloop"), door.client());
    tracking.say("get k");
    tracking.say("set k own");
    assert_eq!(tracking.heard(), []);
    writer.say("set k other");
    assert_eq!(tracking.hear(), Told::keys(&["k"]));
}

#[test]
fn a_client_that_waits_for_elements_hears_of_changes() {
    let door = Door::open();
    let (mut tracking, mut writer) = (Tracking::begin(door.address, ""), door.client());
    tracking.say("get k");
    tracking.client.send(b"BLPOP l 0\r\n");
    until_waiting(&mut writer, 1);
    writer.say("set k v");
    assert_eq!(tracking.hear(), Told::keys(&["k"]));
    writer.say("rpush l a");
    assert_eq!(tracking.client.reply(), bulks(&["l", "a"]));
}

/// A read and a change at the same time, in different threads of the gateway: a client that has read
/// what was there before hears of the change.
#[test]
fn a_client_hears_of_a_change_during_its_read() {
    const ROUNDS: usize = 500;
    /// Ends the writer, also if the reader panics.
    struct End<'r>(&'r AtomicUsize);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(ROUNDS, Ordering::Release);
        }
    }
    let door = Door::new(GatewayOptions { threads: 2, ..GatewayOptions::default() });
    let mut tracking = Tracking::begin(door.address, "");
    let (mut writer, round) = (door.client(), AtomicUsize::new(0));
    // They are read after the key, and take some time.
    let others = (0..200).fold(String::new(), |others, number| others + &format!(" other{number}"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < number {
                    std::thread::yield_now();
                }
                // Another moment of the read in each round.
                let since = Instant::now();
                while since.elapsed() < Duration::from_micros(number as u64 % 50 * 20) {
                    std::thread::yield_now();
                }
                writer.say(&format!("set k{number} v"));
            }
        });
        let _end = End(&round);
        for number in 1..=ROUNDS {
            round.store(number, Ordering::Release);
            // Nothing was tracked of the key before.
            let read = format!("mget k{number}{others}");
            // It reads again only when it has heard of a change.
            while tracking.say(&read).array()[0] == Reply::Null {
                assert_eq!(tracking.hear(), Told::keys(&[&format!("k{number}")]));
            }
        }
    });
}

/// Requests that overlap each other, while another client changes the keys that they read.
#[test]
fn pipelines_that_overlap_track_the_keys_that_they_read() {
    const ROUNDS: usize = 40;
    let door = overlapping(GatewayOptions::default());
    let mut tracking = Tracking::begin(door.address, "");
    let requests: Vec<String> = (0..60).map(|number| format!("get k{number}")).collect();
    let (mut cache, is_done) = (Cache::default(), AtomicBool::new(false));
    let mut read_all = |tracking: &mut Tracking| {
        let missing: Vec<&String> =
            requests.iter().filter(|request| !cache.0.contains_key(*request)).collect();
        let encoded = |line: &String| request(&line.split(' ').collect::<Vec<_>>());
        tracking.client.send(&missing.iter().flat_map(|line| encoded(line)).collect::<Vec<u8>>());
        let mut missing = missing.into_iter();
        while missing.len() > 0 {
            let reply = tracking.client.reply();
            match told(&reply) {
                Some(told) => cache.forget(&told),
                None => drop(cache.0.insert(missing.next().unwrap().clone(), reply)),
            }
        }
        tracking.say_and_hear("ping", |told| cache.forget(&told));
        cache.0.clone()
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writer = door.client();
            for round in 0..ROUNDS {
                let set = |key| request(&["set".to_owned(), format!("k{key}"), round.to_string()]);
                writer.send(&(0..60).flat_map(set).collect::<Vec<u8>>());
                (0..60).for_each(|_| assert_eq!(writer.reply(), ok()));
            }
            is_done.store(true, Ordering::Release);
        });
        while !is_done.load(Ordering::Acquire) && !writer.is_finished() {
            read_all(&mut tracking);
        }
        writer.join().unwrap();
    });
    let last = Reply::bulk(&(ROUNDS - 1).to_string());
    let since = Instant::now();
    loop {
        let cached = read_all(&mut tracking);
        if cached.len() == requests.len() && cached.values().all(|value| *value == last) {
            break;
        }
        assert!(since.elapsed() < LONG, "{cached:?}");
    }
}

#[test]
fn prefixes_select_keys_and_a_command_is_reported_once() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut tracking = Tracking::begin(door.address, "bcast prefix a: prefix b:");
    let mut writer = door.client();
    writer.say("mset a:1 1 b:1 1 c:1 1 a:2 1 a 1");
    let mut heard = [tracking.hear(), tracking.hear()];
    heard.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(heard, [Told::keys(&["a:1", "a:2"]), Told::keys(&["b:1"])]);
    writer.say("set c:1 2");
    writer.say("incr b:1");
    assert_eq!(tracking.hear(), Told::keys(&["b:1"]));
    let info = String::from_utf8(writer.say("info").bytes()).unwrap();
    for line in ["tracking_clients:1", "tracking_total_keys:0", "tracking_total_prefixes:2"] {
        assert!(info.lines().any(|other| other == line), "{line}");
    }
    let many = (0..1000).fold(String::new(), |many, number| many + &format!(" prefix x{number:04}"));
    assert!(error(tracking.say(&format!("client tracking on bcast{many}"))).contains("at most 1000"));
    assert_eq!(tracking.say("client tracking off"), ok());
    writer.say("incr b:1");
    assert_eq!(tracking.heard(), []);
}

#[test]
fn the_table_forgets_clients_that_have_gone_and_keys_beyond_its_limit() {
    const KEYS: usize = 100;
    let door = Door::open();
    let count = |client: &mut Client| {
        let info = String::from_utf8(client.say("info stats").bytes()).unwrap();
        let of = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<usize>().unwrap()
        };
        [of("tracking_total_keys:"), of("tracking_total_items:")]
    };
    let mut writer = door.client();
    let mut tracking = [(); 2].map(|()| Tracking::begin(door.address, ""));
    for number in 0..KEYS {
        for client in &mut tracking {
            client.say(&format!("get k{number}"));
        }
    }
    assert_eq!(count(&mut writer), [KEYS, 2 * KEYS]);
    let [mut stays, goes] = tracking;
    drop(goes);
    let mut until = |expected: [usize; 2]| {
        let since = Instant::now();
        while count(&mut writer) != expected {
            assert!(since.elapsed() < LONG, "not {expected:?}, but {:?}", count(&mut writer));
        }
    };
    until([KEYS, KEYS]);
    let limit = format!("config set tracking-table-max-keys {}", KEYS / 4);
    assert_eq!(door.client().say(&limit), ok());
    let heard = stays.heard();
    assert_eq!(heard.len(), KEYS - KEYS / 4);
    until([KEYS / 4, KEYS / 4]);
    stays.say("get another");
    until([KEYS / 4, KEYS / 4]);
    assert_eq!(stays.heard().len(), 1);
    drop(stays);
    until([0, 0]);
}
