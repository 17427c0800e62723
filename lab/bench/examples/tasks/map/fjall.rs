//! A map in fjall: put, get, remove, and an ordered range.

use fjall::{Database, KeyspaceCreateOptions};
use std::error::Error;
use std::path::Path;

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let database = Database::builder(directory).open()?;
    let fruit = database.keyspace("fruit", KeyspaceCreateOptions::default)?;
    for (name, color) in [("apple", "red"), ("fig", "brown"), ("pear", "green"), ("plum", "blue")] {
        fruit.insert(name, color)?;
    }
    fruit.remove("fig")?;
    assert_eq!(fruit.get("pear")?.as_deref(), Some(&b"green"[..]));
    let mut names = Vec::new();
    for pair in fruit.range("b"..) {
        names.push(str::from_utf8(&pair.key()?)?.to_owned());
    }
    assert_eq!(names, ["pear", "plum"]);
    Ok(())
}
