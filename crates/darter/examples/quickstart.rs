//! The example of the README: put, conditional put, read-modify-write, scan. README.md shows it to the letter.
//!
//! `cargo run -p darter --example quickstart`

use darter::{Decision, Error, Store};

fn main() -> Result<(), Error> {
    let store = Store::open("mem:64M?nodes=2")?; // or `file:PATH?size=SIZE`, shared by processes
    let mut session = store.session()?; // one per thread; `async_session` for tasks
    session.put("pear", "green")?;
    assert!(session.insert("plum", "blue")?, "inserts only if the key is absent");
    session.modify("pear", |value, new| {
        new.extend(value.unwrap_or_default().iter().rev());
        Decision::Put // or Keep, or Remove; called again if another client came between
    })?;
    for pair in session.scan_prefix("p") {
        let (key, value) = pair?;
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }
    Ok(())
}
