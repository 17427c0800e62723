//! The indexes that darter is compared with, in the form that commands that open a pool need.

use darter::{IndexKind, PoolUrl, Store, StoreOptions};
use darter_cli::indexes::Index;
use darter_lab_bench::{VARIANTS, Variant};

/// An index that is not one of the store's.
struct Compared(&'static Variant);

impl Index for Compared {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn what(&self) -> &'static str {
        self.0.what
    }

    fn open(&self, options: StoreOptions, url: &PoolUrl) -> Result<Store, darter::Error> {
        self.0.open(options, url)
    }
}

/// Returns all that lose no writes.
pub(crate) fn others() -> Vec<Box<dyn Index>> {
    let others = VARIANTS.iter().filter(|one| one.keeps && one.name.parse::<IndexKind>().is_err());
    others.map(|one| Box::new(Compared(one)) as Box<dyn Index>).collect()
}
