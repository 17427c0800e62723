//! The example of the README: put, get, read-modify-write, iterate. README.md shows it to the letter.
//!
//! `cargo run -p darter --example quickstart`

use darter::{Change, Error, Store};

fn main() -> Result<(), Error> {
    let store = Store::open("mem:64M")?; // or file:/dev/shm/fruit.pool?size=64M, shared by processes
    store.put("pear", "green")?;
    assert_eq!(store.get("pear")?.as_deref(), Some(&b"green"[..]));
    assert!(store.try_insert("plum", "blue")?, "the key was absent");
    store.update("pear", |old| Change::Put([old.unwrap_or_default(), b" and ripe"].concat()))?;
    for pair in store.prefix("p").rev() {
        let (key, value) = pair?;
        println!("{} is {}", key.escape_ascii(), value.escape_ascii());
    }
    assert_eq!(store.remove("plum")?, Some(b"blue".to_vec()));
    Ok(())
}
