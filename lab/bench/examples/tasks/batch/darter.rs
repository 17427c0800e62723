//! Many writes in darter, in one call that is not atomic.

use darter::{Store, Table};
use std::error::Error;
use std::path::Path;

pub(crate) fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let store = Store::open(format!("file:{}/pool?size=16M", directory.display()))?;
    let squares: Table<u64, u64> = store.table("squares")?;
    let pairs: Vec<_> = (0..1000).map(|n| (n, n * n)).collect();
    squares.put_many(&pairs)?;
    assert_eq!(squares.last()?, Some((999, 998_001)));
    Ok(())
}
