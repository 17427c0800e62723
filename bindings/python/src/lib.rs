//! The extension module `darter._darter`: a store, iterators over its ranges and transactions, as
//! classes that the Python package `darter` (python/darter) completes.

mod backup;
mod bytes;
mod errors;
mod handle;
mod options;
mod pairs;
mod store;
mod transaction;
mod tuple;

/// The classes and functions that the package uses. A free-threaded interpreter switches its GIL on:
/// the module is not tested without.
#[pyo3::pymodule(gil_used = true)]
mod _darter {
    #[pymodule_export]
    use crate::handle::forked;
    #[pymodule_export]
    use crate::pairs::Pairs;
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::transaction::Transaction;
    #[pymodule_export]
    use crate::tuple::{pack, unpack};
}
