//! Sherman with all its techniques, and FG with none, under everything that every index must pass.

mod common;

use common::Tested;
use darter_fabric::Fabric;
use darter_index::{Sherman, ShermanOptions};

struct WithAll;

impl Tested for WithAll {
    type Index<F: Fabric> = Sherman<F>;
}

struct WithNone;

impl Tested for WithNone {
    type Index<F: Fabric> = Sherman<F>;

    fn options<F: Fabric>() -> ShermanOptions {
        ShermanOptions::fg()
    }
}

mod with_all {
    use super::WithAll;

    crate::common::index_tests!(WithAll);
}

mod with_none {
    use super::WithNone;

    crate::common::index_tests!(WithNone);
}
