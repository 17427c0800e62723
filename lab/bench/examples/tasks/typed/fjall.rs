//! Typed values in fjall: bytes that the program encodes, in big-endian order and as JSON.

use fjall::{Database, KeyspaceCreateOptions};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::Path;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    owner: String,
    cents: u64,
}

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let database = Database::builder(directory).open()?;
    let accounts = database.keyspace("accounts", KeyspaceCreateOptions::default)?;
    let ada = Account { owner: "Ada".to_owned(), cents: 100 };
    let emmy = Account { owner: "Emmy".to_owned(), cents: 250 };
    accounts.insert(7_u64.to_be_bytes(), serde_json::to_vec(&ada)?)?;
    accounts.insert(1000_u64.to_be_bytes(), serde_json::to_vec(&emmy)?)?;
    let bytes = accounts.get(7_u64.to_be_bytes())?.ok_or("no account 7")?;
    assert_eq!(serde_json::from_slice::<Account>(&bytes)?, ada);
    let (number, bytes) = accounts.last_key_value().ok_or("no accounts")?.into_inner()?;
    assert_eq!(u64::from_be_bytes(number[..].try_into()?), 1000);
    assert_eq!(serde_json::from_slice::<Account>(&bytes)?, emmy);
    Ok(())
}
