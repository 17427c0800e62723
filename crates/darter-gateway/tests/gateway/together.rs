//! Several gateways of one pool are one store.

use crate::door::{Door, Reply};
use darter_gateway::GatewayOptions;

#[test]
fn two_gateways_lose_no_increment() {
    const EACH: i64 = 2000;
    let store = crate::door::store("mem:64M");
    let doors: Vec<Door> = (0..2).map(|_| Door::of(store.clone(), GatewayOptions::default())).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let door = &doors[thread % 2];
            scope.spawn(move || {
                let mut client = door.client();
                for number in 0..EACH {
                    match number % 3 {
                        0 => client.say("incr count"),
                        1 => client.say("incrby count 1"),
                        _ => client.say("append text x"),
                    };
                }
            });
        }
    });
    let appended = 4 * (EACH / 3);
    for door in &doors {
        let mut client = door.client();
        assert_eq!(client.say("get count"), Reply::bulk(&(4 * EACH - appended).to_string()));
        assert_eq!(client.say("strlen text"), Reply::Integer(appended));
    }
}

#[test]
fn what_one_hands_out_is_handed_out_once() {
    let store = crate::door::store("mem:64M");
    let doors: Vec<Door> = (0..2).map(|_| Door::of(store.clone(), GatewayOptions::default())).collect();
    let taken: usize = std::thread::scope(|scope| {
        let threads = (0..4).map(|thread| {
            let door = &doors[thread % 2];
            scope.spawn(move || {
                let mut client = door.client();
                let mut taken = 0;
                for number in 0..500 {
                    let key = format!("job:{number}");
                    client.say(&format!("set {key} x nx"));
                    taken +=
                        usize::from(client.say(&format!("set done:{number} {thread} nx")) != Reply::Null);
                    client.say(&format!("getdel {key}"));
                }
                taken
            })
        });
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(taken, 500);
}

/// A scan continues at another gateway than it began at, while other keys are added and removed.
#[test]
fn a_scan_goes_on_anywhere_and_misses_nothing_that_stays() {
    let store = crate::door::store("mem:64M");
    let doors: Vec<Door> = (0..2).map(|_| Door::of(store.clone(), GatewayOptions::default())).collect();
    let (mut first, mut other) = (doors[0].client(), doors[1].client());
    for number in 0..300 {
        first.say(&format!("set stays:{number:03} x"));
    }
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    for step in 0.. {
        let client = if step % 2 == 0 { &mut first } else { &mut other };
        let mut reply = client.say(&format!("scan {cursor} count 7")).array();
        keys.extend(reply.pop().unwrap().array().into_iter().map(Reply::bytes));
        cursor = String::from_utf8(reply.pop().unwrap().bytes()).unwrap();
        if cursor == "0" {
            break;
        }
        // The key at the scan's position is sometimes removed too.
        let (come, gone) =
            (format!("set stays:{:03}x x", step * 5 % 300), format!("del stays:{:03}x", step * 3 % 300));
        client.say(&come);
        client.say(&gone);
    }
    keys.retain(|key| key.len() == "stays:000".len());
    assert_eq!(keys.len(), 300);
    assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
}
