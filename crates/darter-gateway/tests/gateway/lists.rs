//! Lists, compared with a model across all sizes; and commands for keys of any type on lists.

use crate::door::{Door, Reply, has_transactions, request};
use crate::several_keys::two_doors;
use crate::transactions::transact;
use darter::engine::{Engine, KeySpace};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;

type Model = VecDeque<Vec<u8>>;

fn bulks<'e>(elements: impl IntoIterator<Item = &'e Vec<u8>>) -> Reply {
    Reply::Array(elements.into_iter().map(|element| Reply::Bulk(element.clone())).collect())
}

pub fn integer(number: usize) -> Reply {
    Reply::Integer(i64::try_from(number).unwrap())
}

/// Returns an element: mostly short, and often one that occurs several times.
fn element(dice: &mut Pcg64Mcg) -> Vec<u8> {
    let bytes = match dice.random_range(0..40) {
        0 => dice.random_range(0..20_000),
        1..5 => dice.random_range(0..1200),
        _ => return dice.random_range(0..50).to_string().into_bytes(),
    };
    vec![b'a' + dice.random_range(0..3); bytes]
}

/// Returns the indexes of a list of this length from `start` to `stop`, as Redis counts them.
fn range_of(length: usize, start: i64, stop: i64) -> std::ops::Range<usize> {
    let length = i64::try_from(length).unwrap();
    let at = |index: i64| if index < 0 { index + length } else { index };
    let (start, stop) = (at(start).max(0), at(stop).min(length - 1));
    if start > stop { 0..0 } else { start as usize..stop as usize + 1 }
}

/// Sends a random command for the list `l` or the lists `l` and `m`. Returns it with the reply that
/// the models say.
fn command(dice: &mut Pcg64Mcg, models: &mut [Model; 2], shrinks: bool) -> (Vec<Vec<u8>>, Reply) {
    let words = |text: String| text.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let length = models[0].len();
    let is_left = dice.random::<bool>();
    let side = if is_left { "l" } else { "r" };
    let span = i64::try_from(length).unwrap() + 3;
    let index = dice.random_range(-span..=span);
    let ok = Reply::Simple("OK".to_owned());
    let take = |model: &mut Model| if is_left { model.pop_front() } else { model.pop_back() };
    let give = |model: &mut Model, element| {
        if is_left { model.push_front(element) } else { model.push_back(element) }
    };
    let bulk = |element: Option<Vec<u8>>| element.map_or(Reply::Null, Reply::Bulk);
    let many = if shrinks { 60 } else { 4 };
    match dice.random_range(0..16) {
        0..4 if !shrinks => {
            let count = if dice.random_ratio(1, 30) { 700 } else { dice.random_range(1..5) };
            let elements: Vec<_> = (0..count).map(|_| element(dice)).collect();
            let exists = if dice.random_ratio(1, 10) { "x" } else { "" };
            if exists.is_empty() || length > 0 {
                for element in &elements {
                    give(&mut models[0], element.clone());
                }
            }
            let request = [words(format!("{side}push{exists} l")), elements].concat();
            (request, integer(models[0].len()))
        }
        0..5 => (words(format!("{side}pop l")), bulk(take(&mut models[0]))),
        5 => {
            let count = dice.random_range(1..many);
            let popped: Vec<_> = (0..count).map_while(|_| take(&mut models[0])).collect();
            let reply = if length == 0 { Reply::Null } else { bulks(&popped) };
            (words(format!("{side}pop l {count}")), reply)
        }
        6 => {
            let element = element(dice);
            let at = range_of(length, index, index);
            let reply = match models[0].get_mut(at.start).filter(|_| !at.is_empty()) {
                Some(old) => {
                    old.clone_from(&element);
                    ok
                }
                None if length == 0 => Reply::Error("ERR no such key".to_owned()),
                None => Reply::Error("ERR index out of range".to_owned()),
            };
            ([words(format!("lset l {index}")), vec![element]].concat(), reply)
        }
        7 | 8 => {
            let (pivot, new) = (element(dice), element(dice));
            let at = models[0].iter().position(|other| *other == pivot);
            if let Some(at) = at {
                models[0].insert(at + usize::from(!is_left), new.clone());
            }
            let reply = match at {
                Some(_) => integer(models[0].len()),
                None if length == 0 => Reply::Integer(0),
                None => Reply::Integer(-1),
            };
            let place = if is_left { "before" } else { "after" };
            ([words(format!("linsert l {place}")), vec![pivot, new]].concat(), reply)
        }
        9 => {
            let (element, count) = (element(dice), dice.random_range(-3..4_i64));
            let mut left = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
            let mut stays = |other: &Vec<u8>| {
                let goes = left > 0 && *other == element;
                left -= usize::from(goes);
                !goes
            };
            let mut all: Vec<_> = models[0].drain(..).collect();
            if count < 0 {
                all.reverse();
            }
            all.retain(&mut stays);
            if count < 0 {
                all.reverse();
            }
            models[0] = all.into();
            ([words(format!("lrem l {count}")), vec![element]].concat(), integer(length - models[0].len()))
        }
        10 if shrinks || dice.random_ratio(1, 8) => {
            let stop = dice.random_range(-span..=span);
            let kept = range_of(length, index, stop);
            models[0] = models[0].range(kept).cloned().collect();
            (words(format!("ltrim l {index} {stop}")), ok)
        }
        11 => {
            let own = dice.random::<bool>();
            let moved = take(&mut models[0]);
            let is_to_left = dice.random::<bool>();
            if let Some(moved) = moved.clone() {
                let to = &mut models[usize::from(!own)];
                if is_to_left { to.push_front(moved) } else { to.push_back(moved) }
            }
            let end = |is_left| if is_left { "left" } else { "right" };
            let to = if own { "l" } else { "m" };
            (words(format!("lmove l {to} {} {}", end(is_left), end(is_to_left))), bulk(moved))
        }
        12 => {
            let count = dice.random_range(1..many);
            let which = usize::from(models[0].is_empty());
            let popped: Vec<_> = (0..count).map_while(|_| take(&mut models[which])).collect();
            let end = if is_left { "left" } else { "right" };
            let name = if which == 0 { "l" } else { "m" };
            let reply = if popped.is_empty() {
                Reply::Null
            } else {
                Reply::Array(vec![Reply::bulk(name), bulks(&popped)])
            };
            (words(format!("lmpop 3 none l m {end} count {count}")), reply)
        }
        13 => {
            let at = range_of(length, index, index);
            (words(format!("lindex l {index}")), bulk(models[0].range(at).next().cloned()))
        }
        14 => {
            let stop = index + dice.random_range(-5..40);
            (words(format!("lrange l {index} {stop}")), bulks(models[0].range(range_of(length, index, stop))))
        }
        _ => {
            let (wanted, rank) = (element(dice), dice.random_range(1..4_i64) * if is_left { 1 } else { -1 });
            let compared = dice.random_range(1..2 * length + 2);
            let mut matches: Vec<usize> = (0..length).filter(|&at| models[0][at] == wanted).collect();
            matches.retain(|&at| if is_left { at < compared } else { at + compared >= length });
            if !is_left {
                matches.reverse();
            }
            let matches = matches.into_iter().skip(rank.unsigned_abs() as usize - 1).take(5);
            let request = [
                words("lpos l".to_owned()),
                vec![wanted],
                words(format!("rank {rank} count 5 maxlen {compared}")),
            ];
            (request.concat(), Reply::Array(matches.map(integer).collect()))
        }
    }
}

#[test]
fn random_commands_have_the_replies_of_a_model() {
    if !has_transactions() {
        return;
    }
    for seed in 1..3 {
        let door = Door::open();
        let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(seed));
        let mut models = [Model::new(), Model::new()];
        let mut longest = 0;
        for step in 0..3000 {
            // The lists grow beyond many chunks, and become empty again.
            let (request, expected) = command(&mut dice, &mut models, step % 1000 > 600);
            let reply = client.ask(&request);
            let shown = crate::differential::shown(&request[..request.len().min(6)]);
            assert!(reply == expected, "seed {seed}, step {step}: {shown:.200}\n{reply:?}\n{expected:?}");
            longest = longest.max(models[0].len());
            if step % 10 == 0 {
                for (key, model) in ["l", "m"].into_iter().zip(&models) {
                    assert_eq!(
                        client.say(&format!("llen {key}")),
                        integer(model.len()),
                        "seed {seed}, step {step}"
                    );
                    assert!(
                        client.say(&format!("lrange {key} 0 -1")) == bulks(model),
                        "seed {seed}, step {step}"
                    );
                    assert_eq!(client.say(&format!("exists {key}")), integer(usize::from(!model.is_empty())));
                }
            }
        }
        assert!(longest > 500, "{longest}");
    }
}

#[test]
fn the_same_commands_in_transactions_have_the_replies_of_a_model() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let (mut client, mut dice) = (door.client(), Pcg64Mcg::seed_from_u64(9));
    let mut models = [Model::new(), Model::new()];
    for step in 0..300 {
        let (requests, expected): (Vec<_>, Vec<_>) =
            (0..dice.random_range(1..12)).map(|_| command(&mut dice, &mut models, step % 100 > 60)).unzip();
        let bytes = requests.iter().flat_map(|words| request(words));
        client.send(
            &request(&["multi"]).into_iter().chain(bytes).chain(request(&["exec"])).collect::<Vec<_>>(),
        );
        (0..=requests.len()).for_each(|_| assert!(matches!(client.reply(), Reply::Simple(_))));
        assert!(client.reply() == Reply::Array(expected), "step {step}");
        assert!(client.say("lrange l 0 -1") == bulks(&models[0]), "step {step}");
    }
}

/// Commands for keys of any type, on a short and on a long list.
#[test]
fn keys_of_any_type_may_be_lists() {
    let door = Door::open();
    let mut client = door.client();
    for count in [3, 400] {
        if count > 3 && !has_transactions() {
            continue;
        }
        client.say("flushall");
        let elements: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let push = |key: &str| {
            let names = ["rpush".to_owned(), key.to_owned()];
            names.into_iter().chain(elements.iter().cloned()).collect::<Vec<_>>()
        };
        assert_eq!(client.ask(&push("l")), integer(count));
        let all = client.say("lrange l 0 -1");
        assert_eq!(client.say("type l"), Reply::Simple("list".to_owned()));
        assert_eq!(client.say("object encoding l"), Reply::bulk("quicklist"));
        assert!(matches!(client.say("memory usage l"), Reply::Integer(10..)));
        assert_eq!(client.say("scan 0 type list").array().pop(), Some(Reply::Array(vec![Reply::bulk("l")])));
        assert_eq!(client.say("dbsize"), Reply::Integer(1));
        for words in ["get l", "hset l f v", "zadd l 1 m", "incr l", "hgetall l", "zcard l"] {
            assert!(
                matches!(client.say(words), Reply::Error(text) if text.starts_with("WRONGTYPE")),
                "{words}"
            );
        }
        client.say("set s x");
        client.say("hset h f v");
        for key in ["s", "h"] {
            for words in [
                "lpush K a",
                "rpop K",
                "llen K",
                "lrange K 0 1",
                "lmove l K left left",
                "lmpop 2 none K left",
                "lset K 0 a",
            ] {
                let reply = client.say(&words.replace('K', key));
                assert!(
                    matches!(&reply, Reply::Error(text) if text.starts_with("WRONGTYPE")),
                    "{words} {reply:?}"
                );
            }
        }
        // A hash without fields is absent.
        client.say("hdel h f");
        assert_eq!(client.say("llen h"), Reply::Integer(0));
        assert_eq!(client.ask(&push("h")), integer(count));
        assert_eq!(client.say("rename h again"), Reply::Simple("OK".to_owned()));
        assert_eq!(client.say("lrange again 0 -1"), all);
        assert_eq!(client.say("expire l 1000"), Reply::Integer(1));
        client.say("rpush l more");
        assert!(matches!(client.say("ttl l"), Reply::Integer(900..)));
        assert_eq!(client.say("rpop l"), Reply::bulk("more"));
        assert_eq!(client.say("copy l copied"), Reply::Integer(1));
        assert!(matches!(client.say("ttl copied"), Reply::Integer(900..)));
        assert_eq!(client.say("persist l"), Reply::Integer(1));
        client.say("lpop l");
        assert_eq!(client.say("lrange copied 0 -1"), all);
        assert_eq!(client.say("llen l"), integer(count - 1));
        // All of them end with the key.
        client.say("pexpire copied 1");
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(client.say("llen copied"), Reply::Integer(0));
        assert_eq!(client.say("rpush copied new"), Reply::Integer(1));
        assert_eq!(client.say("ttl copied"), Reply::Integer(-1));
        assert_eq!(client.say("set l x"), Reply::Simple("OK".to_owned()));
        assert_eq!(client.say("del again copied l s"), Reply::Integer(4));
    }
}

#[test]
fn watch_notices_changes_of_lists() {
    if !has_transactions() {
        return;
    }
    let doors = two_doors(&crate::door::store("mem:128M"));
    let (mut client, mut other) = (doors[0].client(), doors[1].client());
    for count in [3, 500] {
        for change in [
            "lpush l new",
            "rpush l new",
            "lpop l",
            "rpop l",
            "lset l 1 new",
            "lrem l 0 1",
            "ltrim l 1 -1",
            "lmove l l left right",
            "del l",
        ] {
            client.say("del l");
            let elements: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            client.say(&format!("rpush l {}", elements.join(" ")));
            client.say("watch l");
            assert!(!matches!(other.say(change), Reply::Error(_)), "{change}");
            assert_eq!(transact(&mut client, &["lpush l no"]), Reply::Null, "{change}");
            client.say("watch l");
            other.say("llen l");
            assert!(matches!(transact(&mut client, &["lpush l yes"]), Reply::Array(_)), "{change}");
        }
    }
}

#[test]
fn a_removed_list_leaves_no_records() {
    if !has_transactions() {
        return;
    }
    let store = crate::door::store("mem:64M");
    let door = Door::of(store.clone(), darter_gateway::GatewayOptions::default());
    let mut client = door.client();
    let records = || store.session_in(KeySpace::Gateway).unwrap().range(..).count();
    let elements: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    for end in ["del l", "ltrim l 1 0", "rpop l 2000", "lmpop 1 l left count 9999", "set l x", "pexpire l 1"]
    {
        client.say(&format!("rpush l {}", elements.join(" ")));
        assert!(records() > 5);
        client.say(end);
        if end == "set l x" {
            client.say("del l");
        }
        // The walk removes what a single put has left.
        for _ in 0..6000 {
            if records() == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(records(), 0, "{end}");
    }
}

#[test]
fn long_keys_and_long_elements_have_limits() {
    let door = Door::open();
    let mut client = door.client();
    let long = |bytes: usize| "k".repeat(bytes);
    assert_eq!(client.ask(&["rpush", &long(65_534), "a"]), Reply::Integer(1));
    assert!(matches!(client.ask(&["rpush", &long(65_535), "a"]), Reply::Error(_)));
    assert!(matches!(client.ask(&["llen", &long(65_535)]), Reply::Error(_)));
    let element = "e".repeat(800_000);
    for number in 1..4 {
        let reply = client.ask(&["rpush", "l", &element]);
        if number > 1 && !has_transactions() {
            let is_refused = |text: &str| text.contains("this pool's index has no transactions");
            assert!(matches!(&reply, Reply::Error(text) if is_refused(text)), "{reply:?}");
            return;
        }
        assert_eq!(reply, integer(number));
    }
    assert!(client.say("lindex l 1") == Reply::bulk(&element));
    assert_eq!(client.ask(&["lpos", "l", &element, "rank", "-1"]), Reply::Integer(2));
    // Chunks need room for more than the key.
    let reply = client.ask(&["rpush", &long(65_534), &element, &element]);
    assert!(matches!(&reply, Reply::Error(text) if text.contains("together they hold at most")), "{reply:?}");
    assert_eq!(client.ask(&["llen", &long(65_534)]), Reply::Integer(1));
    // The old and the new chunk must fit where one value fits.
    let element = "e".repeat(1_000_000);
    for words in [
        &["lpush", "l", "a", &element][..],
        &["lset", "l", "0", &element],
        &["linsert", "l", "before", "a", &element],
    ] {
        let reply = client.ask(words);
        assert!(
            matches!(&reply, Reply::Error(text) if text.contains("longer than lists of this pool")),
            "{reply:?}"
        );
    }
    assert_eq!(client.say("llen l"), Reply::Integer(3));
    for _ in 0..3 {
        assert!(client.say("lmove l l left right") == client.say("lindex l -1"));
    }
    assert_eq!(client.say("lpop l 3").array().len(), 3);
}

/// Pairs of pushes and pops by one client at both ends keep working at any length.
#[test]
fn a_long_queue_is_read_near_both_ends() {
    if !has_transactions() {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    let requests = (0..30_000).flat_map(|number| request(&["rpush", "q", &number.to_string()]));
    client.send(&requests.collect::<Vec<u8>>());
    (1..=30_000).for_each(|length| assert_eq!(client.reply(), Reply::Integer(length)));
    for at in [0, 1, 77, 1000, 15_000, 29_000, 29_998, 29_999] {
        assert_eq!(client.say(&format!("lindex q {at}")), Reply::bulk(&at.to_string()));
        assert_eq!(client.say(&format!("lindex q {}", at - 30_000)), Reply::bulk(&at.to_string()));
        let range = client.say(&format!("lrange q {at} {}", at + 2)).array();
        assert!(range.into_iter().eq((at..30_000.min(at + 3)).map(|at| Reply::bulk(&at.to_string()))));
    }
    let mut pop =
        |words: &str, expected: i64| assert_eq!(client.say(words), Reply::bulk(&expected.to_string()));
    for number in 0..1000 {
        pop("lpop q", number);
        pop("rpop q", 29_999 - number);
    }
    assert_eq!(client.say("llen q"), Reply::Integer(28_000));
}

#[test]
fn wrong_arguments_change_nothing() {
    let door = Door::open();
    let mut client = door.client();
    client.say("rpush l a b c");
    for line in [
        "lpush l",
        "lpop l -1",
        "lpop l x",
        "lpop l 1 2",
        "lset l x v",
        "lset l 3 v",
        "linsert l near a b",
        "lrem l x a",
        "ltrim l 0 x",
        "lmove l l up down",
        "lmpop 0 l left",
        "lmpop 1 l",
        "lmpop 1 l left count 0",
        "lmpop 9223372036854775807 l left",
        "lpos l a rank 0",
    ] {
        assert!(matches!(client.say(line), Reply::Error(_)), "{line}");
    }
    assert_eq!(client.say("lrange l 0 -1"), Reply::Array(["a", "b", "c"].map(Reply::bulk).to_vec()));
}
