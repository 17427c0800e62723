//! Values of a type of one's own, in a typed table: changed by several threads at once.
//!
//! `cargo run -p darter --example typed_values`

use darter::{Change, Store, Table};
use serde::{Deserialize, Serialize};
use std::error::Error;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    owner: String,
    cents: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    // `DARTER_POOL` names another pool without keys, on memory nodes say.
    let pool = std::env::var("DARTER_POOL").unwrap_or_else(|_| "mem:64M".to_owned());
    let store = Store::open(&pool)?;
    let accounts: Table<u64, Account> = store.table("accounts")?; // by number
    accounts.put(&1, &Account { owner: "Ada".to_owned(), cents: 0 })?;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..500 {
                    // Called again if another thread came between.
                    let add_cent = |account: Option<Account>| match account {
                        Some(Account { owner, cents }) => Change::Put(Account { owner, cents: cents + 1 }),
                        None => Change::Keep,
                    };
                    assert!(accounts.update(&1, add_cent).expect("a change"));
                }
            });
        }
    });
    let account = accounts.get(&1)?;
    println!("{account:?}");
    assert_eq!(account, Some(Account { owner: "Ada".to_owned(), cents: 1000 }));
    assert!(!accounts.update(&2, |_| Change::Keep)?, "there is no account 2");
    Ok(())
}
