//! Quiver under everything that every index must pass: with pages as large as they become, with
//! small ones, so that little fills and parts them, and with nothing remembered.

use crate::common::{Tested, index_tests};
use darter_fabric::Fabric;
use darter_index::{Quiver, QuiverOptions};

struct Large;

impl Tested for Large {
    type Index<F: Fabric> = Quiver<F>;

    const CASES: u32 = 16;
}

struct Small;

impl Tested for Small {
    type Index<F: Fabric> = Quiver<F>;

    const CASES: u32 = 16;

    fn options<F: Fabric>() -> QuiverOptions {
        QuiverOptions { page_records: 3, page_delta: 2, ..QuiverOptions::default() }
    }
}

struct Forgetful;

impl Tested for Forgetful {
    type Index<F: Fabric> = Quiver<F>;

    const CASES: u32 = 16;

    fn options<F: Fabric>() -> QuiverOptions {
        QuiverOptions { page_records: 3, page_delta: 1, cache_bytes: 0, ..QuiverOptions::default() }
    }
}

mod large {
    use super::*;
    index_tests!(Large);
}

mod small {
    use super::*;
    index_tests!(Small);
}

mod forgetful {
    use super::*;
    index_tests!(Forgetful);
}
