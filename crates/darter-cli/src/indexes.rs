//! The indexes that `--index` accepts, and the program's name.
//!
//! `darter` has the indexes of the store. Another program can add more before it parses its
//! arguments.

use darter::{IndexKind, PoolUrl, Store, StoreOptions};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// An index that a pool can be opened with.
pub trait Index: Send + Sync {
    /// Returns the index's name on the command line.
    fn name(&self) -> &'static str;

    /// Returns a description in one line.
    fn what(&self) -> &'static str;

    /// Opens a pool with this index, as [`StoreOptions::open_url`] does.
    fn open(&self, options: StoreOptions, url: &PoolUrl) -> Result<Store, darter::Error>;
}

/// An index of the store.
struct Own(IndexKind);

impl Index for Own {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn what(&self) -> &'static str {
        match self.0 {
            IndexKind::Quiver => "pages of records under radix nodes, with maps in the cache",
            IndexKind::Dart => "express skip table, hashed nodes, lock-free slots",
            _ => "",
        }
    }

    fn open(&self, options: StoreOptions, url: &PoolUrl) -> Result<Store, darter::Error> {
        options.index(self.0).open(url)
    }
}

static OWN: [Own; 2] = [Own(IndexKind::Quiver), Own(IndexKind::Dart)];

/// Names the program that has the other indexes.
const OTHERS: &str = "`darter-lab` opens pools of the indexes that darter is compared with";

/// A program other than `darter`.
struct Program {
    name: &'static str,
    others: Vec<Box<dyn Index>>,
}

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// Registers this program as `name`, not `darter`, with additional indexes. Must be called before
/// arguments are parsed; only the first call has an effect.
pub fn add(name: &'static str, others: Vec<Box<dyn Index>>) {
    let _ = PROGRAM.set(Program { name, others });
}

/// Returns the program's name.
pub(crate) fn program() -> &'static str {
    PROGRAM.get().map_or("darter", |program| program.name)
}

fn all() -> impl Iterator<Item = &'static dyn Index> {
    let others = PROGRAM.get().map_or(&[][..], |program| &program.others);
    OWN.iter().map(|own| own as &dyn Index).chain(others.iter().map(|other| &**other))
}

/// An index by its name.
#[derive(Clone, Copy)]
pub(crate) struct IndexChoice(pub(crate) &'static dyn Index);

impl fmt::Debug for IndexChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl FromStr for IndexChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        all().find(|index| index.name() == name).map(Self).ok_or_else(|| {
            let lines = all().map(|index| format!("\n  {:<24} {}", index.name(), index.what()));
            let others = if PROGRAM.get().is_none() { format!("\n{OTHERS}") } else { String::new() };
            format!("unknown index; known indexes:{}{others}", lines.collect::<String>())
        })
    }
}

/// Returns the name of the program that opens a pool whose index `darter` does not have.
pub(crate) fn missing(error: &darter::Error) -> Option<&'static str> {
    let darter::Error::Index(error) = error else { return None };
    let held = error.held_index()?;
    let is_own = OWN.iter().any(|own| own.name() == held);
    (!is_own && PROGRAM.get().is_none()).then_some(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::IndexError;

    #[test]
    fn a_pool_of_another_programs_index_is_refused_with_its_name() {
        let refused = |kind: &[u8; 8]| {
            let found = u64::from_le_bytes(*kind);
            darter::Error::from(IndexError::NoIndex { expected: "quiver", found })
        };
        assert!(missing(&refused(b"SHERMAN\x02")).unwrap().contains("`darter-lab`"));
        for own in [b"DART\x05\0\0\0", b"QUIV\x02\0\0\0", &[0; 8]] {
            assert_eq!(missing(&refused(own)), None);
        }
        assert_eq!(missing(&darter::Error::from(IndexError::Options("none"))), None);
    }

    #[test]
    fn an_unknown_index_name_lists_the_known_ones() {
        assert_eq!("dart".parse::<IndexChoice>().unwrap().0.name(), "dart");
        let error = "sherman".parse::<IndexChoice>().unwrap_err();
        assert!(
            error.contains("\n  quiver ") && error.contains("\n  dart ") && error.ends_with(OTHERS),
            "{error}"
        );
    }
}
