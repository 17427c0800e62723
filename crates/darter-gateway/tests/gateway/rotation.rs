//! Passwords and certificates that change while gateways serve.

use crate::authority::{Authority, LATER};
use crate::door::{LONG, Reply};
use crate::peers::Pool;
use crate::tls::talk;
use darter_fabric::wire::{NodeTls, Secrets};
use darter_gateway::GatewayOptions;
use std::time::{Duration, Instant};

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn info(reply: Reply) -> String {
    let Reply::Bulk(text) = reply else { panic!("{reply:?}") };
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_password_changes_and_clients_and_gateways_stay_connected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    std::fs::write(&path, "old\n").unwrap();
    let options = || GatewayOptions {
        password: Secrets::from_file(&path, "password").unwrap(),
        ..GatewayOptions::default()
    };
    let pool = Pool::new();
    let doors = [pool.door(options()), pool.door(options())];
    let ok = Reply::Simple("OK".to_owned());
    let accepted =
        |password: &str| doors.each_ref().map(|door| door.client().say(&format!("auth {password}")) == ok);
    let mut early = doors[0].client();
    assert_eq!(early.say("auth old"), ok);
    assert_eq!((accepted("old"), accepted("new")), ([true; 2], [false; 2]));
    std::fs::write(&path, "old\nnew\n").unwrap();
    assert_eq!((accepted("old"), accepted("new")), ([true; 2], [true; 2]));
    std::fs::write(&path, "new\n").unwrap();
    assert_eq!((accepted("old"), accepted("new")), ([false; 2], [true; 2]));
    // A gateway that comes later connects to the others with the new password.
    let third = pool.door(options());
    let mut late = third.client();
    assert_eq!(late.say("auth new"), ok);
    for client in [&mut early, &mut late] {
        until("all gateways are connected", || {
            info(client.say("info clients")).contains("connected_gateways:2\r\n")
        });
    }
    std::fs::write(&path, "").unwrap();
    until("the bad file is counted", || info(early.say("info credentials")).contains("failures=1,failing=1"));
    assert_eq!((accepted("old"), accepted("new"), accepted("")), ([false; 2], [true; 2], [false; 2]));
    assert_eq!(doors[0].client().say("ping"), Reply::Error("NOAUTH Authentication required.".to_owned()));
    assert_eq!(early.say("set pear green"), ok);
}

#[test]
fn a_gateway_shows_its_renewed_certificate() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let own = first.sign("127.0.0.1", LATER);
    let tls = NodeTls::from_files(own.files(), None).unwrap();
    let door = Pool::new().door(GatewayOptions { tls: Some(tls), ..GatewayOptions::default() });
    let pongs = || [&first, &second].map(|ca| talk(&door, &ca.client(None), b"PING\r\n", 7) == b"+PONG\r\n");
    assert_eq!(pongs(), [true, false]);
    let renewed = second.sign("127.0.0.1", LATER);
    std::fs::copy(&renewed.certificate, &own.certificate).unwrap();
    assert_eq!(pongs(), [true, false], "the certificate without its key is not in use");
    std::fs::copy(&renewed.key, &own.key).unwrap();
    assert_eq!(pongs(), [false, true]);
}
