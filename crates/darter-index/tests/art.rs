//! ART, in both layouts and with locks for updates, under everything that every index must pass.

mod common;

use common::Tested;
use darter_fabric::Fabric;
use darter_index::{Art, ArtOptions, HoclOptions};

struct Published;

impl Tested for Published {
    type Index<F: Fabric> = Art<F>;
}

struct Hashed;

impl Tested for Hashed {
    type Index<F: Fabric> = Art<F>;

    fn options<F: Fabric>() -> ArtOptions {
        ArtOptions { hashed: true, ..ArtOptions::default() }
    }
}

struct Locked;

impl Tested for Locked {
    type Index<F: Fabric> = Art<F>;

    fn options<F: Fabric>() -> ArtOptions {
        ArtOptions { locked_updates: true, hocl: HoclOptions::spin(), ..ArtOptions::default() }
    }
}

mod published {
    use super::Published;

    crate::common::index_tests!(Published);
}

mod hashed {
    use super::Hashed;

    crate::common::index_tests!(Hashed);
}

mod locked {
    use super::Locked;

    crate::common::index_tests!(Locked);
}
