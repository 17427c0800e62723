//! A secondary index: users by number, and found by their city.
//!
//! Two tables change in two operations, which other processes can see in between, and a process may be
//! killed in between. So the entry of the index comes first and goes last, and a reader checks each
//! entry against the record.
//!
//! `cargo run -p darter --example secondary_index`

use darter::{Error, Store, Table};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct User {
    name: String,
    city: String,
}

struct Users {
    by_number: Table<u64, User>,
    by_city: Table<(String, u64), ()>,
}

impl Users {
    fn open(store: &Store) -> Result<Self, Error> {
        Ok(Self { by_number: store.table("users")?, by_city: store.table("users by city")? })
    }

    fn put(&self, number: u64, user: &User) -> Result<(), Error> {
        self.by_city.put(&(user.city.clone(), number), &())?;
        if let Some(old) = self.by_number.insert(&number, user)?
            && old.city != user.city
        {
            self.by_city.discard(&(old.city, number))?;
        }
        Ok(())
    }

    fn remove(&self, number: u64) -> Result<Option<User>, Error> {
        let removed = self.by_number.remove(&number)?;
        if let Some(user) = &removed {
            self.by_city.discard(&(user.city.clone(), number))?;
        }
        Ok(removed)
    }

    /// Returns the users of a city, in the order of their numbers.
    fn of_city(&self, city: &str) -> Result<Vec<User>, Error> {
        let mut numbers = Vec::new();
        for pair in self.by_city.range((city.to_owned(), 0)..=(city.to_owned(), u64::MAX)) {
            let ((_, number), ()) = pair?;
            numbers.push(number);
        }
        let users = self.by_number.get_many(&numbers)?; // the round trips of one search
        Ok(users.into_iter().flatten().filter(|user| user.city == city).collect())
    }
}

fn main() -> Result<(), Error> {
    let users = Users::open(&Store::open("mem:64M")?)?;
    for (number, name, city) in [(1, "Ada", "London"), (2, "Emmy", "Erlangen"), (3, "Alan", "London")] {
        users.put(number, &User { name: name.to_owned(), city: city.to_owned() })?;
    }
    users.put(2, &User { name: "Emmy".to_owned(), city: "London".to_owned() })?;
    assert_eq!(users.of_city("London")?.len(), 3);
    assert!(users.of_city("Erlangen")?.is_empty());
    assert_eq!(users.remove(1)?.map(|user| user.name).as_deref(), Some("Ada"));
    for user in users.of_city("London")? {
        println!("{} lives in London", user.name);
    }
    assert_eq!(users.by_city.iter().count(), 2);
    Ok(())
}
