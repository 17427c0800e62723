//! A map in redb: put, get, remove, and an ordered range.

use redb::{Database, ReadableDatabase, TableDefinition};
use std::error::Error;
use std::path::Path;

const FRUIT: TableDefinition<&str, &str> = TableDefinition::new("fruit");

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let database = Database::create(directory.join("fruit.redb"))?;
    let transaction = database.begin_write()?;
    {
        let mut fruit = transaction.open_table(FRUIT)?;
        for (name, color) in [("apple", "red"), ("fig", "brown"), ("pear", "green"), ("plum", "blue")] {
            fruit.insert(name, color)?;
        }
        fruit.remove("fig")?;
    }
    transaction.commit()?;
    let fruit = database.begin_read()?.open_table(FRUIT)?;
    assert!(fruit.get("pear")?.is_some_and(|color| color.value() == "green"));
    let mut names = Vec::new();
    for pair in fruit.range("b"..)? {
        let (name, _) = pair?;
        names.push(name.value().to_owned());
    }
    assert_eq!(names, ["pear", "plum"]);
    Ok(())
}
