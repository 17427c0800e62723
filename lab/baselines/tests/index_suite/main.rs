//! Every index on memory nodes, under the tests that it passes on local memory
//! (`darter-index`, `tests/index/common`): through RDMA devices if there are two
//! (`scripts/rdma-vm`), otherwise over TCP. Each test creates hundreds of pools, so they are
//! ignored by default: `scripts/rdma-check --suite PROGRAM`.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test may panic

#[path = "../../../../crates/darter-index/tests/index/common/mod.rs"]
mod common;
mod ground;
#[path = "../../../../crates/darter-memnode/tests/support/mod.rs"]
mod support;

use common::Tested;
use darter_baselines::{Art, ArtOptions, Sherman, Smart};
use darter_fabric::Fabric;
use darter_index::{Dart, DartOptions, IndexError};
use darter_pool::Client;

/// Number of cases of a property: a round trip takes a hundred times as long as in local memory.
const CASES: u32 = 3;
const SLOWNESS: u64 = 40;

struct OfDart;

impl Tested for OfDart {
    type Index<F: Fabric> = Dart<F>;

    const CASES: u32 = CASES;
    const SLOWNESS: u64 = SLOWNESS;

    fn options<F: Fabric>() -> DartOptions {
        DartOptions { frequency_every: 4, ..DartOptions::default() }
    }

    /// The prefix list.
    async fn adjust<F: Fabric>(index: &Dart<F>, client: &mut Client<F>) -> Result<(), IndexError> {
        index.adjust(client).await.map(drop)
    }
}

struct OfArt;

impl Tested for OfArt {
    type Index<F: Fabric> = Art<F>;

    const CASES: u32 = CASES;
    const SLOWNESS: u64 = SLOWNESS;

    fn options<F: Fabric>() -> ArtOptions {
        ArtOptions { locked_updates: true, ..ArtOptions::default() }
    }
}

struct OfSmart;

impl Tested for OfSmart {
    type Index<F: Fabric> = Smart<F>;

    const CASES: u32 = CASES;
    const SLOWNESS: u64 = SLOWNESS;
}

struct OfSherman;

impl Tested for OfSherman {
    type Index<F: Fabric> = Sherman<F>;

    const CASES: u32 = CASES;
    const SLOWNESS: u64 = SLOWNESS;
}

mod dart {
    use super::OfDart;

    crate::common::index_tests!(OfDart);
}

mod art {
    use super::OfArt;

    crate::common::index_tests!(OfArt);
}

mod smart {
    use super::OfSmart;

    crate::common::index_tests!(OfSmart);
}

mod sherman {
    use super::OfSherman;

    crate::common::index_tests!(OfSherman);
}
