//! The example of the README: put, conditional put, read-modify-write, scan. README.md shows it to the letter.
//!
//! `cargo run -p darter --example quickstart`

use darter::{Change, Error, Store};

fn main() -> Result<(), Error> {
    let store = Store::open("mem:64M?nodes=2")?; // or `file:PATH?size=SIZE`, shared by processes
    let session = store.session()?; // one per thread; `async_session` for tasks
    session.put("pear", "green")?;
    assert!(session.insert_if_absent("plum", "blue")?, "inserts only if the key is absent");
    // Or `Keep`, or `Remove`; called again if another client came between.
    session.modify("pear", |value| Change::Put(value.unwrap_or_default().iter().rev().copied().collect()))?;
    for pair in session.scan_prefix("p") {
        let (key, value) = pair?;
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }
    Ok(())
}
