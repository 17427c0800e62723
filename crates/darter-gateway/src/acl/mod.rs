//! Access control: the users of a pool's gateways, and what each may do.
//!
//! The users are records of the pool (`keyspace/users.rs`). A gateway keeps those that it has read
//! last, and numbers their states, so that a client notices a change at its next request
//! (`commands/permission.rs`). A user's record is the list of rules that makes it, as `ACL LIST` shows
//! it (`user.rs`, `selector.rs`).

mod categories;
mod log;
mod selector;
mod user;

pub(super) use categories::{CATEGORIES, categories_of, category_named, name_of, own_units, unit_of_request};
pub(super) use log::{AccessLog, LogEntry};
pub(super) use selector::{Denied, KeyUse, Needs, Selector};
pub(super) use user::{User, joined};

use darter_fabric::wire::{SecretList, Secrets};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::Notify;
use tracing::warn;

/// The user of clients that have not named another.
pub(super) const DEFAULT: &str = "default";

/// Users by name.
pub(super) type Users = BTreeMap<String, Arc<User>>;

/// Returns whether a text has spaces or zero bytes, which names and patterns must not have.
pub(super) fn has_spaces(text: &[u8]) -> bool {
    text.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

/// Returns whether a password is one of several, in a time that depends on none of them.
pub(super) fn is_one_of(passwords: &SecretList, password: &[u8]) -> bool {
    passwords.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(password)).into()
}

/// The users, as a gateway knows them.
#[derive(Debug)]
pub(super) struct Acl {
    /// Changes with each change of a user.
    version: AtomicU64,
    users: RwLock<Arc<Users>>,
    /// The passwords of this gateway's command line.
    passwords: Secrets,
    own: Mutex<Own>,
    log: Mutex<AccessLog>,
    /// The users of the pool may have changed.
    pub(super) news: Notify,
}

/// The default user of a pool that has no record of it.
#[derive(Debug)]
struct Own {
    /// The passwords that it was made of.
    passwords: SecretList,
    user: Arc<User>,
}

impl Acl {
    /// Creates the users of a pool that has no records of users.
    pub(super) fn new(passwords: Secrets) -> Self {
        let current = passwords.current();
        let default = Arc::new(User::unrestricted(&current));
        let own = Own { passwords: current, user: Arc::clone(&default) };
        Self {
            version: AtomicU64::new(1),
            users: RwLock::new(Arc::new(Users::from([(DEFAULT.to_owned(), default)]))),
            passwords,
            own: Mutex::new(own),
            log: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// Returns the number of the users' state. It is never 0.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns all users.
    pub(super) fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the log.
    pub(super) fn log(&self) -> MutexGuard<'_, AccessLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the default user of a pool that has no record of it, with the passwords of now.
    pub(super) fn own_default(&self) -> User {
        User::clone(&self.renewed().user)
    }

    /// Gives the default user the passwords of now, if it is that of the command line. Its clients
    /// stay connected.
    fn renewed(&self) -> MutexGuard<'_, Own> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.passwords.current();
        if own.passwords != current {
            let user = Arc::new(User::unrestricted(&current));
            let old = std::mem::replace(&mut *own, Own { passwords: current, user: Arc::clone(&user) });
            let mut users = self.users.write().unwrap_or_else(PoisonError::into_inner);
            if users.get(DEFAULT).is_some_and(|known| Arc::ptr_eq(known, &old.user)) {
                Arc::make_mut(&mut users).insert(DEFAULT.to_owned(), user);
                self.version.fetch_add(1, Ordering::AcqRel);
            }
        }
        own
    }

    /// Replaces the users by those of the pool's records. Returns the users that have changed, and
    /// `None` for each that was removed.
    pub(super) fn load(&self, records: Vec<(String, Vec<u8>)>) -> Vec<(String, Option<Arc<User>>)> {
        // Kept to the end, so that the passwords do not change before that.
        let own = self.renewed();
        let old = self.users();
        let mut new = Users::from([(DEFAULT.to_owned(), Arc::clone(&own.user))]);
        for (name, record) in records {
            let known = old.get(&name).filter(|user| user.describe() == record);
            match known.map_or_else(|| User::parse(&record).map(Arc::new), |known| Ok(Arc::clone(known))) {
                Ok(user) => drop(new.insert(name, user)),
                Err(refused) => {
                    // No client can become this user, and a client that is it may do nothing.
                    warn!(
                        user = name,
                        why = refused.text(),
                        "the rules of a user are not known to this version"
                    );
                    new.insert(name, Arc::default());
                }
            }
        }
        let is_other = |name: &String, user: &Arc<User>| {
            old.get(name).is_none_or(|other| other.describe() != user.describe())
        };
        let changed = new.iter().filter(|(name, user)| is_other(name, user));
        let changed = changed.map(|(name, user)| (name.clone(), Some(Arc::clone(user))));
        let removed = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), None));
        let changes: Vec<_> = changed.chain(removed).collect();
        if !changes.is_empty() {
            *self.users.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        changes
    }

    /// Returns whether a client with this password may become a user.
    pub(super) fn accepts(&self, name: &str, password: &[u8]) -> bool {
        // With the passwords of the command line the pool's other gateways connect.
        let is_own = name == DEFAULT && is_one_of(&self.renewed().passwords, password);
        let users = self.users();
        users.get(name).is_some_and(|user| user.accepts(password) || is_own && user.flags().contains(&"on"))
    }

    /// Returns whether new clients need no password.
    pub(super) fn is_open(&self) -> bool {
        self.users().get(DEFAULT).is_some_and(|user| user.is_open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_those_of_the_records_and_changes_are_noticed() {
        let acl = Acl::new(Secrets::from("secret"));
        assert!(!acl.is_open() && acl.accepts(DEFAULT, b"secret") && !acl.accepts(DEFAULT, b""));
        let version = acl.version();
        let alice = User::parse(b"on >a +get ~*").unwrap().describe();
        let changes = acl.load(vec![("alice".to_owned(), alice.clone())]);
        assert!(changes.len() == 1 && acl.version() != version && acl.accepts("alice", b"a"));
        let version = acl.version();
        assert!(acl.load(vec![("alice".to_owned(), alice)]).is_empty() && acl.version() == version);
        // Unknown rules allow nothing.
        let changes = acl.load(vec![("alice".to_owned(), b"on nopass +nosuch".to_vec())]);
        assert!(changes.len() == 1 && !acl.accepts("alice", b"a") && !acl.users()["alice"].is_open());
        // The default user of the pool is in place of that of the command line.
        let open = User::parse(b"on nopass -@all").unwrap().describe();
        let changes = acl.load(vec![(DEFAULT.to_owned(), open)]);
        assert_eq!(changes.iter().filter(|(_, user)| user.is_none()).count(), 1);
        assert!(acl.is_open() && !acl.users()[DEFAULT].is_unrestricted());
        assert!(!acl.load(Vec::new()).is_empty() && !acl.is_open());
    }
    #[test]
    fn the_default_user_has_the_passwords_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let write = |passwords: &str| std::fs::write(&path, passwords).unwrap();
        write("old\n");
        let acl = Acl::new(Secrets::from_file(&path, "password").unwrap());
        let accepted = |acl: &Acl| ["old", "new"].map(|password| acl.accepts(DEFAULT, password.as_bytes()));
        assert_eq!(accepted(&acl), [true, false]);
        write("old\nnew\n");
        let version = acl.version();
        assert_eq!(accepted(&acl), [true, true]);
        assert!(acl.version() != version, "its clients notice");
        write("new\n");
        assert_eq!(accepted(&acl), [false, true]);
        assert_eq!(acl.users()[DEFAULT].passwords().len(), 1);
        // A bad file changes nothing, and never lets clients in without a password.
        write("");
        for _ in 0..3 {
            assert_eq!(accepted(&acl), [false, true]);
            assert!(!acl.is_open());
        }
        // The user of the pool's record keeps its own passwords beside those of the file.
        acl.load(vec![(DEFAULT.to_owned(), User::parse(b"on >other ~* +@all").unwrap().describe())]);
        write("newest\n");
        assert!(acl.accepts(DEFAULT, b"other") && acl.accepts(DEFAULT, b"newest"));
        assert_eq!(accepted(&acl), [false, false]);
    }
}
