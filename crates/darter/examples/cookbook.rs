//! The recipes of docs/library.md, each a function; the page shows them to the letter.
//!
//! `cargo run -p darter --example cookbook`

use darter::report::Check;
use darter::{AsyncStore, Change, Condition, Error, OpKind, PutOutcome, ScanRange, Store, Table, block_on};
use std::ops::Bound;
use std::time::Duration;

fn open() -> Result<Store, Error> {
    Store::options()
        .cache_bytes(4 << 20) // hints and the skip table's directory, per process
        .lease(Duration::from_secs(2)) // silence after which others check whether this process is dead
        .sweep(false) // leave what dead processes left to others: by default each process frees it
        .open("mem:64M?nodes=2")
}

fn conditions(store: &Store) -> Result<(), Error> {
    let session = store.session()?;
    assert_eq!(session.put("fig", "green")?, PutOutcome::Inserted);
    assert!(!session.try_insert("fig", "brown")?, "present: insert changes nothing");
    assert!(session.replace("fig", "brown")?.is_some(), "present: replace returns the old value");
    assert!(session.compare_exchange("fig", "brown", "black")?);
    let outcome = session.put_if("fig", "blue", Condition::Equals(b"brown"))?;
    assert_eq!(outcome, PutOutcome::Refused);
    assert!(session.remove_if("fig", |value| value == b"black")?);
    Ok(())
}

fn count_visit(store: &Store, page: &str) -> Result<u64, Error> {
    let session = store.session()?;
    let mut count = 0;
    session.update(page, |old| {
        let old = old.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        count = old + 1;
        Change::Put(count.to_be_bytes().to_vec())
    })?;
    Ok(count)
}

fn transfer(store: &Store, from: &str, to: &str, sum: u64) -> Result<bool, Error> {
    let amount =
        |bytes: Option<Vec<u8>>| bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
    store.transact(|tx| {
        let rest = amount(tx.get(from)?).checked_sub(sum);
        let Some(rest) = rest else { return Ok(false) };
        let raised = amount(tx.get(to)?) + sum;
        tx.put(from, rest.to_be_bytes())?;
        tx.put(to, raised.to_be_bytes())?;
        Ok(true)
    })
}

/// Registers a user under an address that no other user has.
fn register(
    users: &Table<u64, String>,
    by_address: &Table<String, u64>,
    store: &Store,
    id: u64,
    address: &str,
) -> Result<bool, Error> {
    store.transact(|tx| {
        if tx.table(by_address).get(address)?.is_some() {
            return Ok(false);
        }
        if let Some(old) = tx.table(users).get(&id)? {
            tx.table(by_address).remove(old.as_str())?;
        }
        tx.table(users).put(&id, &address.to_owned())?;
        tx.table(by_address).put(address, &id)?;
        Ok(true)
    })
}

fn exactly_once(store: &Store) -> Result<(), Error> {
    store.put("job/1", "4711")?;
    // Several workers may run this loop, and any of them may be killed: each result is stored once.
    while let Some(job) = store.prefix("job/").limit(1).next() {
        let (key, value) = job?;
        let result = value.len().to_string();
        store.transact(|tx| {
            if tx.remove(&key)?.is_some() {
                tx.put([b"done/", &key[..]].concat(), result.clone())?;
            }
            Ok(())
        })?;
    }
    assert_eq!(store.get("done/job/1")?, Some(b"4".to_vec()));
    Ok(())
}

fn work_queue(store: &Store) -> Result<(), Error> {
    let session = store.session()?;
    for job in 0..3_u64 {
        session.put([b"job/", &job.to_be_bytes()[..]].concat(), format!("job {job}"))?;
    }
    // Several workers may run this loop: each job goes to exactly one of them.
    while let Some(first) = session.prefix("job/").limit(1).next() {
        let (key, value) = first?;
        if session.remove_if(&key, |_| true)? {
            println!("runs {}", value.escape_ascii());
        }
    }
    Ok(())
}

fn many_keys(store: &Store) -> Result<(), Error> {
    let session = store.session()?;
    for n in 0..100_u32 {
        session.put(n.to_be_bytes(), n.to_string())?;
    }
    let keys: Vec<_> = (0..100_u32).step_by(7).map(u32::to_be_bytes).collect();
    let values = session.get_many(&keys)?; // the round trips of one search
    assert!(values.iter().all(Option::is_some));
    let length = session.get_with(7_u32.to_be_bytes(), <[u8]>::len)?; // no copy of the value
    assert_eq!(length, Some(1));
    let pairs: Vec<_> = (100..200_u32).map(|n| (n.to_be_bytes(), n.to_string())).collect();
    session.put_many(&pairs)?; // several at a time: on memory nodes a fraction of the round trips
    assert_eq!(session.remove_range(150_u32.to_be_bytes()..200_u32.to_be_bytes())?, 50);
    Ok(())
}

fn typed_tables(store: &Store) -> Result<(), Error> {
    let people: Table<(String, u16), u64> = store.table("people")?; // by city and year
    let key = |city: &str, year| (city.to_owned(), year);
    people.put_many(&[
        (key("Berne", 2000), 122_484),
        (key("Berne", 2020), 134_591),
        (key("Biel", 2020), 55_206),
    ])?;
    people.update(&key("Biel", 2020), |count| Change::Put(count.unwrap_or(0) + 1))?;
    let latest = people.range(key("Berne", 0)..key("Biel", 0)).next_back().transpose()?;
    assert_eq!(latest, Some((key("Berne", 2020), 134_591)));
    assert_eq!(store.tables()?, ["people"]);
    Ok(())
}

fn ranges(store: &Store) -> Result<(), Error> {
    let session = store.session()?;
    for key in ["2024-05", "2024-06", "2025-01", "2025-02"] {
        session.put(key, "")?;
    }
    assert_eq!(session.range("2024-06".."2025-02").count(), 2);
    let last = session.prefix("2025").next_back().transpose()?;
    assert_eq!(last.map(|(key, _)| key), Some(b"2025-02".to_vec()));
    Ok(())
}

fn pages(store: &Store, size: usize) -> Result<usize, Error> {
    let session = store.session()?;
    let mut range = ScanRange::prefix(b"20");
    let mut pages = 0;
    loop {
        let page = session.scan_chunk(&range, size)?;
        let Some((last, _)) = page.last() else { return Ok(pages) };
        range.from = Bound::Excluded(last.clone()); // the place to continue from, on any client
        pages += 1;
    }
}

fn snapshot(store: &Store) -> Result<(), Error> {
    store.put("total", "2")?;
    let mut snapshot = store.snapshot()?; // for some milliseconds, no process changes anything
    store.put("total", "3")?;
    assert_eq!(snapshot.get("total")?.as_deref(), Some(&b"2"[..]));
    assert!(snapshot.range(..).all(|pair| pair.is_ok()));
    snapshot.end()
}

fn backup(store: &Store) -> Result<(), Error> {
    let mut bytes = Vec::new(); // or a file
    let report = store.backup(&mut bytes)?;
    let copy = Store::open("mem:64M")?; // of any shape, and with any index
    assert_eq!(copy.restore(&bytes[..])?.pairs, report.pairs);
    Ok(())
}

fn bulk_load() -> Result<(), Error> {
    let store = Store::open("mem:64M")?;
    let session = store.session()?;
    let sorted = (0..10_000_u32).map(|n| (n.to_be_bytes(), n.to_string())); // ascending, no duplicates
    assert_eq!(session.bulk_load(sorted)?, 10_000);
    store.adjust()?; // fits the skip table to the keys now, instead of when upkeep finds it worthwhile
    Ok(())
}

async fn tasks(store: &Store) -> Result<(), Error> {
    let store = AsyncStore::from(store.clone()); // for tasks of any executor
    store.put("kiwi", "brown").await?;
    let mut scan = store.prefix("k");
    while let Some(pair) = scan.next().await {
        let (key, _) = pair?;
        println!("{}", key.escape_ascii());
    }
    Ok(())
}

fn threads(store: &Store) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u8)
            .map(|thread| {
                scope.spawn(move || -> Result<(), Error> {
                    let session = store.session()?;
                    (0..100_u8).try_for_each(|n| session.put([b't', thread, n], "x").map(drop))
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer panicked"))
    })
}

fn put_or_explain(store: &Store, key: &[u8], value: &[u8]) -> Result<(), Error> {
    match store.session()?.put(key, value) {
        Ok(_) => Ok(()),
        Err(error) if error.is_too_long() => {
            eprintln!("this pool can never store this pair");
            Ok(())
        }
        // Freed memory waits for a process that is stopped; the message names it.
        Err(error) if error.is_held_back() => Err(error),
        Err(error) if error.is_out_of_space() => {
            eprintln!("full; everything stored stays readable");
            Err(error)
        }
        // Nothing has changed: anything may be repeated, counters too.
        Err(error) if error.is_unsent() => store.session()?.put(key, value).map(drop),
        // A lost reply: the put took effect or it did not. Puts may be repeated, counters may not.
        Err(error) if error.is_disconnected() => store.session()?.put(key, value).map(drop),
        Err(error) => Err(error),
    }
}

fn costs() -> Result<f64, Error> {
    // By verbs, as over a network: a pool in this machine's memory is otherwise read by loads.
    let store = Store::options().direct(false).open("mem:64M")?;
    let session = store.session()?;
    session.put("kiwi", "green")?;
    let before = session.counters();
    session.get("kiwi")?;
    let cost = (session.counters() - before)[OpKind::Get];
    println!("{} verbs, {} bytes read", cost.verbs, cost.read_bytes);
    Ok(cost.round_trips_per_op())
}

fn inspect(store: &Store) -> Result<Check, Error> {
    let stats = store.stats()?;
    println!("{} keys, {} bytes of index", stats.index.keys, stats.index.index_bytes);
    let check = store.repair()?; // `check` only reports; operations of this process must rest
    println!("{} bytes given back, {} leaked", check.repaired_bytes, check.leaked_bytes);
    Ok(check)
}

fn without_a_thread() -> Result<(), Error> {
    let store = Store::options().maintenance(false).open("mem:64M")?;
    let session = store.session()?;
    for n in 0..1000_u32 {
        session.put(n.to_be_bytes(), "x")?;
        if n % 100 == 0 {
            session.maintain()?; // several times within a lease
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let store = open()?;
    conditions(&store)?;
    assert_eq!((count_visit(&store, "index")?, count_visit(&store, "index")?), (1, 2));
    let bank = Store::open("mem:16M")?;
    bank.put_many(&[("alice", 10_u64.to_be_bytes()), ("bob", 0_u64.to_be_bytes())])?;
    assert!(transfer(&bank, "alice", "bob", 7)? && !transfer(&bank, "alice", "bob", 7)?);
    let (users, by_address) = (bank.table("users")?, bank.table("addresses")?);
    assert!(register(&users, &by_address, &bank, 1, "ada@example.org")?);
    assert!(!register(&users, &by_address, &bank, 2, "ada@example.org")?);
    exactly_once(&bank)?;
    work_queue(&store)?;
    many_keys(&store)?;
    typed_tables(&store)?;
    ranges(&store)?;
    assert_eq!(pages(&store, 3)?, 2);
    snapshot(&store)?;
    backup(&store)?;
    bulk_load()?;
    block_on(tasks(&store))?;
    threads(&store)?;
    put_or_explain(&store, b"lime", b"green")?;
    assert!(costs()? >= 1.0);
    assert!(inspect(&store)?.is_sound());
    without_a_thread()?;
    println!("every recipe ran");
    Ok(())
}
