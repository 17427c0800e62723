//! A map in darter: put, get, remove, and an ordered range.

use darter::Store;
use std::error::Error;
use std::path::Path;

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let fruit = Store::open(format!("file:{}/pool?size=16M", directory.display()))?;
    for (name, color) in [("apple", "red"), ("fig", "brown"), ("pear", "green"), ("plum", "blue")] {
        fruit.put(name, color)?;
    }
    fruit.remove("fig")?;
    assert_eq!(fruit.get("pear")?.as_deref(), Some(&b"green"[..]));
    let mut names = Vec::new();
    for pair in fruit.range("b"..) {
        let (name, _) = pair?;
        names.push(String::from_utf8(name)?);
    }
    assert_eq!(names, ["pear", "plum"]);
    Ok(())
}
