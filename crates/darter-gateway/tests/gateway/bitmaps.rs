//! Commands for the bits of strings, HyperLogLogs and `LCS`: replies and stored bytes as those of a
//! redis-server, limits, and transactions.

use crate::differential::compare_by_chance;
use crate::door::{Client, Door, Redis, Reply, index};
use crate::sentences::{fill, sentence_with};
use darter::IndexKind;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SENTENCES: &[&str] = &[
    "setbit KEY BIT 1",
    "setbit KEY BIT 0",
    "setbit KEY BIT N",
    "getbit KEY BIT",
    "bitcount KEY",
    "bitcount KEY INDEX INDEX",
    "bitcount KEY INDEX INDEX UNIT",
    "bitcount KEY INDEX",
    "bitcount KEY INDEX INDEX UNIT UNIT",
    "bitpos KEY 0",
    "bitpos KEY 1",
    "bitpos KEY N",
    "bitpos KEY 0 INDEX",
    "bitpos KEY 1 INDEX INDEX",
    "bitpos KEY 0 INDEX INDEX UNIT",
    "bitpos KEY 1 INDEX INDEX UNIT",
    "bitpos KEY 0 INDEX INDEX UNIT UNIT",
    "bitop and KEY KEY KEY",
    "bitop or KEY KEY",
    "bitop xor KEY KEY KEY KEY",
    "bitop not KEY KEY",
    "bitop not KEY KEY KEY",
    "bitop nor KEY KEY",
    "bitfield KEY",
    "bitfield KEY get TYPE PLACE",
    "bitfield KEY set TYPE PLACE N",
    "bitfield KEY incrby TYPE PLACE N",
    "bitfield KEY overflow sat incrby TYPE PLACE N incrby TYPE PLACE N get TYPE PLACE",
    "bitfield KEY overflow fail incrby TYPE PLACE N set TYPE PLACE N",
    "bitfield KEY overflow fail set TYPE PLACE N overflow wrap incrby TYPE PLACE N overflow sat set TYPE PLACE N",
    "bitfield KEY overflow no get u8 0",
    "bitfield KEY set u8 0",
    "bitfield_ro KEY get TYPE PLACE get TYPE PLACE",
    "bitfield_ro KEY set TYPE PLACE N",
    "set KEY V",
    "set KEY V",
    "set KEY 12345",
    "set KEY V ex 100000",
    "setrange KEY INDEX V",
    "get KEY",
    "get KEY",
    "ttl KEY",
    "del KEY",
    "hset KEY f v",
    "lcs KEY KEY",
    "lcs KEY KEY len",
    "lcs KEY KEY idx",
    "lcs KEY KEY idx minmatchlen N withmatchlen",
    "lcs KEY KEY idx len",
    "lcs KEY KEY minmatchlen",
    "mset KEY ohmytext KEY mynewtext",
    "pfadd PF V V V",
    "pfadd PF",
    "pfcount PF",
    "pfcount PF PF",
    "pfmerge PF PF PF",
    "pfmerge PF",
    "pfdebug encoding PF",
    "pfdebug decode PF",
    "pfdebug foo PF",
    "pfdebug todense PF",
    "get PF",
    "set PF V",
    "del PF",
    "bitcount PF",
];

fn word(dice: &mut Pcg64Mcg, place: &str) -> Vec<u8> {
    let among: &[&str] = match place {
        "KEY" => &["a", "b", "c", "d", "e"],
        // No bit of these is changed: Redis does not find all damages at once.
        "PF" => &["p1", "p2", "p3"],
        "BIT" => &["0", "1", "7", "8", "9", "100", "4000", "4294967295", "4294967296", "-1", "x", "#1", ""],
        "INDEX" => &[
            "0",
            "1",
            "2",
            "5",
            "8",
            "17",
            "100",
            "-1",
            "-2",
            "-3",
            "-9",
            "-100",
            "9223372036854775807",
            "x",
        ],
        "UNIT" => &["bit", "byte", "BIT", "bits"],
        "TYPE" => {
            &["u1", "i1", "u5", "i5", "u8", "i8", "u13", "i31", "u63", "i64", "u64", "i65", "u0", "8", "i"]
        }
        "PLACE" => {
            &["0", "1", "3", "8", "30", "#0", "#1", "#5", "200", "-1", "x", "#", "4294967296", "#4294967296"]
        }
        _ => return fill(dice, place),
    };
    among.choose(dice).unwrap().as_bytes().to_vec()
}

#[test]
fn requests_by_chance_for_bits_and_counts_have_redis_replies() {
    compare_by_chance(|dice| {
        let words = sentence_with(dice, SENTENCES, word);
        // Redis allocates 512 MiB for the highest bit that it allows; a gateway refuses.
        let is_large = words.iter().any(|word| matches!(&word[..], b"4294967295" | b"536870911"));
        if is_large { vec![b"ping".to_vec()] } else { words }
    });
}

/// The same elements make the same bytes, in either representation, and values move both ways.
#[test]
fn hyperloglogs_have_the_bytes_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    let mut dice = Pcg64Mcg::seed_from_u64(7);
    for round in 0..12 {
        let key = format!("hll{round}").into_bytes();
        let batch = [1, 3, 40, 700][round % 4];
        for step in 0..20 {
            let mut add = vec![b"pfadd".to_vec(), key.clone()];
            add.extend((0..batch).map(|_| {
                let length = dice.random_range(0..20);
                (0..length).map(|_| dice.random::<u8>()).collect()
            }));
            let requests = [
                add,
                vec![b"get".to_vec(), key.clone()],
                vec![b"pfcount".to_vec(), key.clone()],
                vec![b"get".to_vec(), key.clone()],
                vec![b"pfcount".to_vec(), key.clone(), b"hll0".to_vec(), b"none".to_vec()],
                vec![b"pfmerge".to_vec(), b"all".to_vec(), key.clone()],
                vec![b"get".to_vec(), b"all".to_vec()],
                vec![b"pfcount".to_vec(), b"all".to_vec()],
            ];
            for words in requests {
                let (expected, reply) = (theirs.ask(&words), ours.ask(&words));
                assert!(expected == reply, "round {round}, step {step}: {}", words[0].escape_ascii());
            }
        }
        // What redis-server has stored is continued here, and the other way round.
        let copy = [&b"copy of "[..], &key].concat();
        let (a, b) = (theirs.ask(&[&b"get"[..], &key]).bytes(), ours.ask(&[&b"get"[..], &key]).bytes());
        theirs.ask(&[&b"set"[..], &copy, &b]);
        ours.ask(&[&b"set"[..], &copy, &a]);
        for words in [
            vec![&b"pfadd"[..], &copy, b"x", b"y"],
            vec![&b"pfcount"[..], &copy],
            vec![&b"pfdebug"[..], b"getreg", &copy],
        ] {
            assert_eq!(theirs.ask(&words), ours.ask(&words), "round {round}");
        }
    }
}

#[test]
fn values_longer_than_the_pool_allows_are_refused_before_they_are_made() {
    let door = Door::open();
    let mut client = door.client();
    for words in ["setbit k 4294967295 1", "bitfield k set u8 4294967280 1", "setbit k 300000000 1"] {
        let Reply::Error(text) = client.say(words) else { panic!("{words}") };
        assert!(text.contains("largest value") || text.contains("maximum allowed size"), "{words}: {text}");
    }
    assert_eq!(client.say("exists k"), Reply::Integer(0));
    assert_eq!(client.say("getbit k 4294967295"), Reply::Integer(0));
    assert_eq!(client.say("bitfield_ro k get i64 4294967295"), Reply::Array(vec![Reply::Integer(0)]));
    let long = "x".repeat(12_000);
    client.say(&format!("mset a {long} b {long}"));
    let Reply::Error(text) = client.say("lcs a b") else { panic!() };
    assert_eq!(text, "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
}

#[test]
fn damaged_hyperloglogs_are_refused() {
    let door = Door::open();
    let mut client = door.client();
    let header = |form: u8| [&b"HYLL"[..], &[form], &[0; 10], &[0x80]].concat();
    for (value, code) in [
        (b"short".to_vec(), "WRONGTYPE"),
        (header(0), "WRONGTYPE"),
        (header(2), "WRONGTYPE"),
        (header(1), "INVALIDOBJ"),
        ([header(1), vec![0x7f, 0xff, 0]].concat(), "INVALIDOBJ"),
        ([header(1), vec![0x7f]].concat(), "INVALIDOBJ"),
        ([header(1), vec![0xff; 5000]].concat(), "INVALIDOBJ"),
        ([header(1), vec![0x7f; 500_000]].concat(), "INVALIDOBJ"),
    ] {
        assert_eq!(client.ask(&[&b"set"[..], b"k", &value]), Reply::Simple("OK".to_owned()));
        for words in [
            "pfadd k a b c",
            "pfcount k",
            "pfcount k other",
            "pfmerge other k",
            "pfmerge k other",
            "pfdebug getreg k",
        ] {
            let Reply::Error(text) = client.say(words) else { panic!("{words}") };
            assert!(text.starts_with(code), "{words}: {text}");
        }
        assert!(client.say("get k").bytes() == value);
    }
}

#[test]
fn bits_and_counts_are_part_of_transactions_and_scripts() {
    if index() == IndexKind::Dart {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    client.say("multi");
    let lines = [
        "setbit a 7 1",
        "bitop not b a",
        "bitcount b",
        "bitfield a incrby u8 0 5",
        "pfadd p x y",
        "pfcount p",
        "pfmerge q p",
        "pfcount q p",
    ];
    for line in lines {
        assert_eq!(client.say(line), Reply::Simple("QUEUED".to_owned()));
    }
    let replies = client.say("exec").array();
    let expected = [0, 1, 7].map(Reply::Integer).into_iter().chain([Reply::Array(vec![Reply::Integer(6)])]);
    let expected =
        expected.chain([1, 2].map(Reply::Integer)).chain([Reply::Simple("OK".to_owned()), Reply::Integer(2)]);
    assert_eq!(replies, expected.collect::<Vec<_>>());
    let script = "redis.call('setbit', 'c', 0, 1) redis.call('bitop', 'or', 'd', 'a', 'c') return redis.call('bitcount', 'd')";
    assert_eq!(client.ask(&["eval", script, "0"]), Reply::Integer(3));
    let refused = client.ask(&["eval_ro", "return redis.call('pfcount', 'p')", "0"]);
    assert!(matches!(refused, Reply::Error(text) if text.contains("read-only")));
}
