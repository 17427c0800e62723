//! Users and what they may do: `ACL`, compared with redis-server, and at all gateways of a pool.

use crate::door::{Client, Door, LONG, Redis, Reply, has_transactions, ok};
use crate::peers::Pool;
use darter_gateway::GatewayOptions;
use std::time::{Duration, Instant};

/// Requests of a client that may do everything (`a`) and of one that becomes other users (`b`).
const LINES: &[&str] = &[
    "a ACL WHOAMI",
    "a ACL USERS",
    "a ACL LIST",
    "a ACL GETUSER default",
    "a ACL GETUSER mallory",
    "a SET a1 1",
    "a SET r1 1",
    "a SET x 1",
    "a RPUSH alist 3 1 2",
    "a ACL SETUSER alice on >pw ~a* %R~r* %W~w* &ch* +get +set +del +mget +publish +subscribe +psubscribe +punsubscribe +multi +exec +eval +sort +bitfield +object|encoding +copy +exists +client|id",
    "a ACL SETUSER eve on >pw ~a* %R~r* %W~w &ch* &other +get (~s* +strlen) (+@hash)",
    "a ACL GETUSER eve",
    "a ACL SETUSER eve reset",
    "a ACL SETUSER eve clearselectors +@all -config +config|get",
    "a ACL GETUSER eve",
    "a ACL USERS",
    "b AUTH alice wrong",
    "b AUTH bob pw",
    "b AUTH alice pw",
    "b GET a1",
    "b GET r1",
    "b GET w1",
    "b GET x",
    "b SET r1 2",
    "b SET w1 2",
    "b SET w1 2 GET",
    "b SET a1 2 GET",
    "b MGET a1 r1",
    "b MGET a1 w1",
    "b DEL a2 r1",
    "b EXISTS w1 r1 a1",
    "b EXISTS x",
    "b COPY r1 w2",
    "b COPY w1 w2",
    "b BITFIELD r1 GET u8 0",
    "b BITFIELD r1 SET u8 0 1",
    "b BITFIELD w1 SET u8 0 1",
    "b SORT alist",
    "b SORT alist BY nosort",
    "b SORT alist BY a* GET #",
    "b SORT alist GET #",
    "b OBJECT ENCODING a1",
    "b OBJECT ENCODING x",
    "b OBJECT FREQ a1",
    "b STRLEN a1",
    "b CONFIG GET port",
    "b CLIENT GETNAME",
    "b ACL WHOAMI",
    "b PUBLISH chat hello",
    "b PUBLISH other hello",
    "b PSUBSCRIBE ch*",
    "b PUNSUBSCRIBE",
    "b PSUBSCRIBE chat*",
    "b SUBSCRIBE other",
    "b PING",
    "b EVAL \"return redis.call('get','a1')\" 0",
    "b EVAL \"return redis.call('get','x')\" 0",
    "b EVAL \"return redis.pcall('strlen','a1')\" 0",
    "b EVAL \"return redis.call('publish','other','m')\" 0",
    "b EVAL \"return 1\" 1 x",
    "b EVAL \"return {redis.acl_check_cmd('get','a1'),redis.acl_check_cmd('get','x'),redis.acl_check_cmd('strlen','a')}\" 0",
    "b EVAL \"return redis.acl_check_cmd('nosuch')\" 0",
    "b EVAL \"return redis.acl_check_cmd()\" 0",
    "b MULTI",
    "b GET a1",
    "b GET x",
    "b EXEC",
    "b MULTI",
    "b GET a1",
    "b GET r1",
    "b SET a1 7",
    "a ACL SETUSER alice -set resetkeys ~a*",
    "b EXEC",
    "b GET r1",
    "a ACL SETUSER alice off",
    "b GET a1",
    "b AUTH alice pw",
    "a ACL SETUSER alice on <pw",
    "b AUTH alice pw",
    "a ACL SETUSER alice nopass",
    "b AUTH alice anything",
    "a ACL SETUSER alice (~s* +strlen)",
    "b STRLEN s1",
    "b STRLEN a1",
    "b GET s1",
    "a ACL SETUSER alice clearselectors +select|1",
    "b SELECT 1",
    "b SELECT 0",
    "a ACL SETUSER alice resetchannels",
    "b PUBLISH chat x",
    // What is not a rule.
    "a ACL SETUSER alice nonsense",
    "a ACL SETUSER alice +nosuch",
    "a ACL SETUSER alice +@nosuch",
    "a ACL SETUSER alice +config|nosuch",
    "a ACL SETUSER alice +config|get|x",
    "a ACL SETUSER alice +select|",
    "a ACL SETUSER alice ~* ~a",
    "a ACL SETUSER alice &* &a",
    "a ACL SETUSER alice <none",
    "a ACL SETUSER alice #none",
    "a ACL SETUSER alice (~a +get",
    "a ACL SETUSER alice (nonsense)",
    "a ACL SETUSER \"with space\" on",
    "a ACL NOSUCH",
    "a ACL CAT nosuch",
    "a ACL CAT",
    "a ACL GENPASS 0",
    "a ACL GENPASS x",
    "a ACL GENPASS 4097",
    "a ACL LOG x",
    "a ACL DELUSER default",
    "a ACL DELUSER mallory",
    "a ACL GETUSER",
    "a ACL CAT a b",
    "a ACL GENPASS 1 2",
    "a ACL HELP x",
    "a ACL SETUSER",
    "a ACL DRYRUN mallory get a",
    "a ACL DRYRUN alice nosuch a",
    "a ACL DRYRUN alice get",
    "a ACL DRYRUN alice get a1",
    "a ACL DRYRUN alice get x",
    "a ACL DRYRUN alice strlen x",
    "a ACL DRYRUN alice publish x y",
    "a ACL DRYRUN alice config get x",
    "a CLIENT KILL USER mallory",
    "a ACL DELUSER alice",
    "a ACL USERS",
];

#[test]
fn users_may_do_what_redis_lets_them_do() {
    if !has_transactions() {
        return;
    }
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let connect = |address| [Client::connect(address), Client::connect(address)];
    let mut clients = [redis.address, door.address].map(connect);
    for line in LINES {
        let (who, line) = line.split_once(' ').unwrap();
        let [theirs, ours] = clients.each_mut().map(|clients| {
            let client = &mut clients[usize::from(who == "b")];
            client.send(format!("{line}\r\n").as_bytes());
            client.reply()
        });
        assert_eq!(ours, theirs, "{who}: {line}");
    }
    // The user of the other client is gone, and so is its connection.
    for [_, other] in &mut clients {
        assert!(other.try_reply().is_none());
    }
}

#[test]
fn commands_have_redis_categories() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    for category in theirs.say("acl cat").array() {
        let category = String::from_utf8(category.bytes()).unwrap();
        let names = |client: &mut Client| -> std::collections::BTreeSet<String> {
            let names = client.say(&format!("acl cat {category}")).array().into_iter();
            names.map(|name| String::from_utf8(name.bytes()).unwrap()).collect()
        };
        let (redis, own) = (names(&mut theirs), names(&mut ours));
        for name in &own {
            let is_known = theirs.say(&format!("command info {name}")) != Reply::Array(vec![Reply::Null]);
            assert!(!is_known || redis.contains(name), "{name} is not in @{category}");
        }
        for name in &redis {
            let is_known = ours.say(&format!("command info {name}")) != Reply::Array(vec![Reply::Null]);
            assert!(!is_known || own.contains(name), "{name} is in @{category}");
        }
    }
}

/// Waits until a client gets another reply than an error.
fn until_allowed(client: &mut Client, line: &str) {
    let since = Instant::now();
    while matches!(client.say(line), Reply::Error(_)) {
        assert!(since.elapsed() < LONG, "{line}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn all_gateways_have_the_same_users() {
    let pool = Pool::new();
    let doors = pool.two_doors();
    let (mut here, mut there) = (doors[0].client(), doors[1].client());
    assert_eq!(here.say("acl setuser carol on >pw ~* &news +get +subscribe +ping +acl|whoami"), ok());
    until_allowed(&mut there, "auth carol pw");
    assert_eq!(there.say("acl whoami"), Reply::bulk("carol"));
    assert!(matches!(there.say("set k v"), Reply::Error(text) if text.starts_with("NOPERM")));
    assert_eq!(here.say("acl setuser carol +set"), ok());
    until_allowed(&mut there, "set k v");
    // A subscriber that may no longer hear its channel is cut off, and so is a user that is gone.
    let mut subscriber = doors[1].client();
    assert_eq!(subscriber.say("auth carol pw"), ok());
    assert!(matches!(subscriber.say("subscribe news"), Reply::Array(_)));
    assert_eq!(here.say("acl setuser carol resetchannels"), ok());
    assert!(subscriber.try_reply().is_none());
    assert_eq!(there.say("get k"), Reply::bulk("v"));
    assert_eq!(here.say("acl deluser carol"), Reply::Integer(1));
    assert!(there.try_reply().is_none());
    // A gateway that starts later knows the users before its first client.
    assert_eq!(here.say("acl setuser dave on nopass +ping"), ok());
    let later = pool.door(GatewayOptions::default());
    assert_eq!(later.client().say("auth dave x"), ok());
}

#[test]
fn a_client_that_may_not_acts_as_a_stranger() {
    let options = GatewayOptions { password: "secret".into(), ..GatewayOptions::default() };
    let door = Door::new(options);
    let mut client = door.client();
    assert!(matches!(client.say("get k"), Reply::Error(text) if text.starts_with("NOAUTH")));
    assert_eq!(client.say("auth secret"), ok());
    let list = client.say("acl list").array();
    assert!(String::from_utf8(list[0].clone().bytes()).unwrap().starts_with("user default on #"));
    // The default user may be restricted, and its password is still that of the command line.
    assert_eq!(client.say("acl setuser admin on >a ~* &* +@all"), ok());
    assert_eq!(client.say("acl setuser default -@all +get"), ok());
    assert!(matches!(client.say("set k v"), Reply::Error(text) if text.starts_with("NOPERM")));
    assert!(matches!(client.say("darter.meet a b"), Reply::Error(text) if text.starts_with("NOPERM")));
    let mut admin = door.client();
    assert_eq!(admin.say("auth admin a"), ok());
    let info = String::from_utf8(admin.say("client info").bytes()).unwrap();
    assert!(info.contains(" user=admin "), "{info}");
    assert_eq!(admin.say("client kill user default"), Reply::Integer(1));
    assert!(client.try_reply().is_none());
    let log = admin.say("acl log").array();
    assert_eq!(log.len(), 2);
    let entry = log[0].clone().array();
    let expected =
        ["reason", "command", "context", "toplevel", "object", "darter.meet", "username", "default"];
    assert_eq!(entry[2..10], expected.map(Reply::bulk));
    assert_eq!(admin.say("acl log reset"), ok());
    assert_eq!(admin.say("acl log"), Reply::Array(Vec::new()));
    // Rules of SETUSER are in no log.
    admin.say("slowlog reset");
    assert_eq!(admin.say("acl save"), ok());
    assert_eq!(admin.say("acl load"), ok());
    assert!(matches!(admin.say("acl setuser admin resetkeys"), Reply::Simple(_)));
    assert!(matches!(admin.say("get k"), Reply::Error(text) if text.contains("one of the keys")));
}
