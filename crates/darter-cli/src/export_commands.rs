//! `export --format resp`: writes the commands that recreate the keys of gateways in a Redis server, for
//! `redis-cli --pipe`: `SELECT` before the keys of a database, and `RESTORE` for each key.

use crate::failure::Failure;
use crate::notation::Notation;
use darter::{ScanRange, Store};
use darter_gateway::Database;
use std::io::Write;

/// Most bytes of a value: a Redis server takes no longer argument.
const VALUE_BYTES: usize = 512 << 20;

/// Writes the keys of a range, of one database or of all. Calls `check` with the number of keys before
/// each. Returns the number of keys.
pub(crate) fn write(
    store: &Store,
    only: Option<u8>,
    range: &ScanRange,
    out: &mut impl Write,
    check: impl Fn(u64) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let mut keys = 0;
    for number in only.map_or(0..Database::COUNT, |only| only..only + 1) {
        let open = || -> Result<Database, Failure> {
            Database::numbered(store.clone(), number)?
                .ok_or_else(|| Failure::failed("there is no such database"))
        };
        let (mut names, mut values, mut is_selected) = (open()?, open()?, false);
        for found in names.scan(range) {
            check(keys)?;
            let (key, _) = found?;
            let dumped = values.dump(&key, VALUE_BYTES);
            let dumped =
                dumped.map_err(|error| Failure::from(error).within(Notation::Escaped.write(&key)))?;
            // It may have been removed.
            let Some(dumped) = dumped else { continue };
            if !std::mem::replace(&mut is_selected, true) {
                write_command(out, &[b"SELECT", number.to_string().as_bytes()])?;
            }
            let end = dumped.expiry.unwrap_or(0).to_string();
            write_command(out, &[b"RESTORE", &key, end.as_bytes(), &dumped.payload, b"REPLACE", b"ABSTTL"])?;
            keys += 1;
        }
    }
    Ok(keys)
}

/// Writes a command.
pub(crate) fn write_command(out: &mut impl Write, words: &[&[u8]]) -> Result<(), Failure> {
    write!(out, "*{}\r\n", words.len())?;
    for word in words {
        write!(out, "${}\r\n", word.len())?;
        out.write_all(word)?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}
