//! Many keys at a time: several searches in the round trips of one, and ranges from either end.
//!
//! `cargo run -p darter --example multi_get_and_scan`

use darter::{Error, OpKind, ScanRange, Store};

/// A key that sorts by city, then by year.
fn key(city: &str, year: u32) -> Vec<u8> {
    [city.as_bytes(), &[0], &year.to_be_bytes()].concat()
}

fn main() -> Result<(), Error> {
    // `DARTER_POOL` names another pool without keys, on memory nodes say.
    let pool = std::env::var("DARTER_POOL").unwrap_or_else(|_| "mem:64M?nodes=2".to_owned());
    let store = Store::open(&pool)?;
    let session = store.session()?;

    // Sorted input is loaded in one go into an empty store.
    let cities = ["Aachen", "Bremen", "Coburg"];
    let visits = cities.iter().flat_map(|city| (1990..2020).map(|year| (key(city, year), year.to_string())));
    println!("loaded {}", session.bulk_load(visits)?);

    // Searches that do not depend on each other share their round trips.
    let before = session.counters();
    let keys: Vec<_> = (1995..2005).map(|year| key("Bremen", year)).collect();
    let found = session.get_many(&keys)?;
    assert!(found.iter().all(Option::is_some));
    let cost = (session.counters() - before)[OpKind::MultiGet];
    println!("{} keys in {} round trips", keys.len(), cost.round_trips);

    // A prefix, in order; and the last three of it, which fetches no more than those.
    assert_eq!(session.prefix("Bremen\0").count(), 30);
    for pair in session.prefix("Bremen\0").limit(3).rev() {
        println!("{}", pair?.1.escape_ascii());
    }

    // Any range, with any bounds; and a page of it, with where to go on.
    let from = key("Aachen", 2015);
    let beyond = session.range(&from[..]..b"Coburg").count();
    assert_eq!(beyond, 5 + 30);
    let mut range = ScanRange::all();
    let mut pages = 0;
    loop {
        let page = session.scan_chunk(&range, 25)?;
        let Some((last, _)) = page.last() else { break };
        range.from = std::ops::Bound::Excluded(last.clone());
        pages += 1;
    }
    assert_eq!(pages, 4);
    Ok(())
}
