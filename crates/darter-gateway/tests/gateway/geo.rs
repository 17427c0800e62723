//! Geo commands: replies as those of a redis-server, and transactions.

use crate::differential::compare_by_chance;
use crate::door::{Client, Door, Redis, Reply, index};
use crate::sentences::{fill, sentence_with};
use darter::IndexKind;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SENTENCES: &[&str] = &[
    "geoadd KEY LONGITUDE LATITUDE MEMBER",
    "geoadd KEY LONGITUDE LATITUDE MEMBER LONGITUDE LATITUDE MEMBER",
    "geoadd KEY nx LONGITUDE LATITUDE MEMBER",
    "geoadd KEY xx ch LONGITUDE LATITUDE MEMBER",
    "geoadd KEY nx xx LONGITUDE LATITUDE MEMBER",
    "geoadd KEY nx ch nx",
    "geoadd KEY LONGITUDE LATITUDE",
    "geodist KEY MEMBER MEMBER",
    "geodist KEY MEMBER MEMBER UNIT",
    "geodist KEY MEMBER MEMBER UNIT UNIT",
    "geohash KEY MEMBER MEMBER",
    "geohash KEY",
    "geopos KEY MEMBER MEMBER",
    "geosearch KEY fromlonlat LONGITUDE LATITUDE byradius SIZE UNIT asc",
    "geosearch KEY fromlonlat LONGITUDE LATITUDE byradius SIZE UNIT desc withcoord withdist withhash",
    "geosearch KEY fromlonlat LONGITUDE LATITUDE bybox SIZE SIZE UNIT withdist",
    "geosearch KEY frommember MEMBER byradius SIZE UNIT withcoord",
    "geosearch KEY frommember MEMBER bybox SIZE SIZE UNIT asc withdist count 1000",
    "geosearch KEY frommember MEMBER byradius SIZE UNIT count N any",
    "geosearch KEY frommember MEMBER byradius SIZE UNIT any",
    "geosearch KEY frommember MEMBER fromlonlat LONGITUDE LATITUDE byradius SIZE UNIT",
    "geosearch KEY frommember MEMBER byradius SIZE UNIT bybox SIZE SIZE UNIT",
    "geosearch KEY frommember MEMBER asc desc withdist",
    "geosearch KEY byradius SIZE UNIT asc desc",
    "geosearchstore KEY KEY fromlonlat LONGITUDE LATITUDE byradius SIZE UNIT",
    "geosearchstore KEY KEY frommember MEMBER bybox SIZE SIZE UNIT storedist",
    "geosearchstore KEY KEY frommember MEMBER bybox SIZE SIZE UNIT withdist",
    "georadius KEY LONGITUDE LATITUDE SIZE UNIT",
    "georadius KEY LONGITUDE LATITUDE SIZE UNIT withdist withhash withcoord asc",
    "georadius KEY LONGITUDE LATITUDE SIZE UNIT store KEY",
    "georadius KEY LONGITUDE LATITUDE SIZE UNIT storedist KEY",
    "georadius KEY LONGITUDE LATITUDE SIZE UNIT store KEY withdist",
    "georadius KEY LONGITUDE LATITUDE SIZE UNIT store",
    "georadius_ro KEY LONGITUDE LATITUDE SIZE UNIT desc",
    "georadius_ro KEY LONGITUDE LATITUDE SIZE UNIT store KEY",
    "georadiusbymember KEY MEMBER SIZE UNIT",
    "georadiusbymember KEY MEMBER SIZE UNIT storedist KEY count 1000",
    "georadiusbymember_ro KEY MEMBER SIZE UNIT asc withdist",
    "command getkeys georadius KEY 0 0 1 m store KEY storedist KEY",
    "command getkeysandflags georadiusbymember KEY m 1 m store KEY",
    "zadd KEY R MEMBER",
    "zrange KEY 0 -1 withscores",
    "zscore KEY MEMBER",
    "zrem KEY MEMBER",
    "del KEY",
    "set KEY V",
];

fn word(dice: &mut Pcg64Mcg, place: &str) -> Vec<u8> {
    // Most coordinates are drawn, since the order of equal distances is not defined.
    let drawn = |dice: &mut Pcg64Mcg, max: f64| (dice.random_range(-max..max)).to_string().into_bytes();
    let among: &[&str] = match place {
        "KEY" => &["g1", "g2", "g3"],
        "MEMBER" => &["a", "b", "c", "d", "e", "f", "g", "h"],
        "LONGITUDE" if dice.random_ratio(9, 10) => return drawn(dice, 180.0),
        "LATITUDE" if dice.random_ratio(9, 10) => return drawn(dice, 85.05),
        "LONGITUDE" => &["180", "-180", "180.1", "x", "nan"],
        "LATITUDE" => &["85.05112878", "-85.05112878", "85.06", "x", "inf"],
        "SIZE" => &["0", "1", "100", "5000", "1000000", "30000000", "1e300", "inf", "-1", "x", "1.5"],
        "UNIT" => &["m", "km", "KM", "ft", "mi", "mi", "km", "cm"],
        _ => return fill(dice, place),
    };
    among.choose(dice).unwrap().as_bytes().to_vec()
}

#[test]
fn requests_by_chance_for_positions_have_redis_replies() {
    compare_by_chance(|dice| sentence_with(dice, SENTENCES, word));
}

/// Many members around many centres, in all sizes.
#[test]
fn searches_find_what_redis_finds() {
    let Some(redis) = Redis::start() else { return };
    let door = Door::open();
    let (mut theirs, mut ours) = (Client::connect(redis.address), door.client());
    let mut dice = Pcg64Mcg::seed_from_u64(3);
    for member in 0..600 {
        let spread = [0.01, 1.0, 180.0][member % 3];
        let (longitude, latitude) =
            (dice.random_range(-spread..spread), dice.random_range(-spread..spread) * 0.47);
        let add = format!("geoadd g {longitude} {latitude} m{member}");
        assert_eq!(theirs.say(&add), ours.say(&add));
    }
    for number in 0..400 {
        let spread = [0.01, 1.0, 180.0][number % 3];
        let (longitude, latitude) =
            (dice.random_range(-spread..spread), dice.random_range(-spread..spread) * 0.47);
        let size = 10_f64.powf(dice.random_range(0.0..7.5));
        let other = 10_f64.powf(dice.random_range(0.0..7.5));
        for (shape, options) in [
            (format!("byradius {size} m"), "withdist withcoord withhash"),
            (format!("byradius {size} ft"), "asc withdist"),
            (format!("bybox {size} {other} m"), "desc withdist"),
            (format!("byradius {size} m"), "count 7 withdist"),
            (format!("byradius {size} m"), "count 7 any"),
        ] {
            let request = format!("geosearch g fromlonlat {longitude} {latitude} {shape} {options}");
            assert_eq!(theirs.say(&request), ours.say(&request), "{request}");
        }
        let store = format!("geosearchstore s g frommember m{} byradius {size} m storedist", number % 600);
        assert_eq!(theirs.say(&store), ours.say(&store), "{store}");
        assert_eq!(theirs.say("zrange s 0 -1 withscores"), ours.say("zrange s 0 -1 withscores"), "{store}");
    }
}

#[test]
fn positions_are_part_of_transactions_and_scripts() {
    if index() == IndexKind::Dart {
        return;
    }
    let door = Door::open();
    let mut client = door.client();
    client.say("multi");
    client.say("geoadd g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania");
    client.say("geosearchstore near g fromlonlat 15 37 byradius 200 km asc");
    client.say("georadius g 15 37 100 km storedist distances");
    client.say("zcard near");
    client.say("geodist near Palermo Catania km");
    let expected = [2, 2, 1, 2].map(Reply::Integer).into_iter().chain([Reply::bulk("166.2742")]);
    assert_eq!(client.say("exec"), Reply::Array(expected.collect()));
    let script = "redis.call('geoadd', 'g', 2.35, 48.85, 'Paris') return redis.call('geosearch', 'g', 'frommember', 'Paris', 'byradius', 10, 'km')";
    assert_eq!(client.ask(&["eval", script, "0"]), Reply::Array(vec![Reply::bulk("Paris")]));
    // The destination may be the source.
    assert_eq!(client.say("geosearchstore g g frommember Paris byradius 10 km"), Reply::Integer(1));
    assert_eq!(client.say("zrange g 0 -1"), Reply::Array(vec![Reply::bulk("Paris")]));
    assert_eq!(client.say("geosearchstore g g fromlonlat 0 0 byradius 10 km"), Reply::Integer(0));
    assert_eq!(client.say("exists g"), Reply::Integer(0));
}
