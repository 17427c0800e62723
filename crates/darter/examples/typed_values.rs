//! Values of a type of one's own: serialised with postcard, read without copying the bytes first.
//!
//! `cargo run -p darter --example typed_values`

use darter::{Session, Store};
use serde::{Deserialize, Serialize};
use std::error::Error;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    owner: String,
    cents: u64,
}

/// A store's session that speaks in accounts.
struct Accounts {
    session: Session,
}

impl Accounts {
    fn put(&mut self, number: u64, account: &Account) -> Result<(), Box<dyn Error>> {
        self.session.put(number.to_be_bytes(), postcard::to_stdvec(account)?)?;
        Ok(())
    }

    fn get(&mut self, number: u64) -> Result<Option<Account>, Box<dyn Error>> {
        Ok(self.session.get_with(number.to_be_bytes(), |bytes| postcard::from_bytes(bytes))?.transpose()?)
    }

    /// Changes an account as if nobody else were there: tries again when somebody was.
    fn change(&mut self, number: u64, change: impl Fn(&mut Account)) -> Result<bool, Box<dyn Error>> {
        let key = number.to_be_bytes();
        loop {
            let Some(old) = self.session.get(key)? else { return Ok(false) };
            let mut account: Account = postcard::from_bytes(&old)?;
            change(&mut account);
            if self.session.replace_if_equal(key, &old, postcard::to_stdvec(&account)?)? {
                return Ok(true);
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // `DARTER_POOL` names another pool without keys, on memory nodes say.
    let pool = std::env::var("DARTER_POOL").unwrap_or_else(|_| "mem:64M".to_owned());
    let store = Store::open(&pool)?;
    let mut accounts = Accounts { session: store.session()? };
    accounts.put(1, &Account { owner: "Ada".to_owned(), cents: 0 })?;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let session = store.session().expect("a session");
                let mut accounts = Accounts { session };
                for _ in 0..500 {
                    assert!(accounts.change(1, |account| account.cents += 1).expect("a change"));
                }
            });
        }
    });
    let account = accounts.get(1)?;
    println!("{account:?}");
    assert_eq!(account, Some(Account { owner: "Ada".to_owned(), cents: 1000 }));
    assert!(!accounts.change(2, |_| ())?, "there is no account 2");
    Ok(())
}
