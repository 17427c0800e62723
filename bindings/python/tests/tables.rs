//! Fills typed tables of a pool, or checks those that Python has filled with the same pairs, for
//! `test_tables.py`: `tables write URL` and `tables check URL`.

use darter::{Store, Table};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [action, url] = &words[..] else { return Err("usage: tables write|check URL".into()) };
    let store = Store::open(url)?;
    let numbers: Table<i64, String> = store.table("numbers")?;
    let people: Table<(String, i64), i64> = store.table("people")?;
    let flags: Table<bool, f64> = store.table("flags")?;
    let blobs: Table<String, bool> = store.table("blobs")?;
    let all_numbers = [(i64::MIN, ""), (-5_551_212, "minus"), (0, "h\u{e9}\0"), (i64::MAX, "max")];
    let all_people = [(("Ada".to_owned(), -1), i64::MIN), (("Ada\0".to_owned(), 300), i64::MAX)];
    let all_flags = [(false, -0.5), (true, f64::MAX)];
    if action == "write" {
        for (key, value) in all_numbers {
            numbers.put(&key, &value.to_owned())?;
        }
        for (key, value) in &all_people {
            people.put(key, value)?;
        }
        for (key, value) in all_flags {
            flags.put(&key, &value)?;
        }
        blobs.put(&"yes".to_owned(), &true)?;
        return Ok(());
    }
    let found = numbers.iter().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(found, all_numbers.map(|(key, value)| (key, value.to_owned())));
    assert_eq!(people.iter().collect::<Result<Vec<_>, _>>()?, all_people);
    assert_eq!(flags.iter().collect::<Result<Vec<_>, _>>()?, all_flags);
    assert_eq!(blobs.iter().collect::<Result<Vec<_>, _>>()?, [("yes".to_owned(), true)]);
    Ok(())
}
