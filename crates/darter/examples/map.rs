//! An ordered map in this process: store, read, replace under a condition, remove, walk.
//!
//! `cargo run -p darter --example map`

use darter::{Error, OpKind, Store};

fn main() -> Result<(), Error> {
    // `DARTER_POOL` names another pool without keys, on memory nodes say.
    let pool = std::env::var("DARTER_POOL").unwrap_or_else(|_| "mem:64M".to_owned());
    let store = Store::open(&pool)?;
    let session = store.session()?;

    // Keys and values are any bytes; keys are ordered bytewise, and one may begin with another.
    for (name, note) in [("fly", "agaric"), ("flying", "fish"), ("flow", "chart"), ("", "the empty key")] {
        session.put(name, note)?;
    }
    assert_eq!(session.get("fly")?.as_deref(), Some(&b"agaric"[..]));

    // Conditions make read-modify-write safe against everyone else.
    assert!(!session.try_insert("fly", "trap")?, "present already");
    assert!(session.compare_exchange("fly", "agaric", "wheel")?);
    assert!(session.discard("flow")?);

    for pair in session.range(..) {
        let (key, value) = pair?;
        println!("{:>8} = {}", key.escape_ascii(), value.escape_ascii());
    }

    // Threads share a store; each thread has its own session.
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2_u8)
            .map(|worker| {
                let store = &store;
                scope.spawn(move || -> Result<(), Error> {
                    let session = store.session()?;
                    (0..1000_u16).try_for_each(|n| {
                        session.put([&[worker][..], &n.to_be_bytes()].concat(), b"x").map(drop)
                    })
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;

    let stats = store.stats()?;
    println!("{} keys, {} bytes of index", stats.index.keys, stats.index.index_bytes);
    let gets = session.counters()[OpKind::Get];
    println!("a get took {:.2} round trips", gets.round_trips_per_op());
    assert_eq!(stats.index.keys, 2003);
    Ok(())
}
