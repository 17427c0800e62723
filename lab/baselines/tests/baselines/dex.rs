//! DEX, in each form, with a cache of 20 pages. Its memory nodes run no procedures here, so it fetches
//! all pages.

use crate::common::Tested;
use crate::records::behaves_like_a_map;
use darter_baselines::{Dex, DexOptions, DexValues};
use darter_fabric::Fabric;

/// Whether changes are written through, and whether values are in blocks.
struct Form<const THROUGH: bool, const BLOCKS: bool>;

impl<const THROUGH: bool, const BLOCKS: bool> Tested for Form<THROUGH, BLOCKS> {
    type Index<F: Fabric> = Dex<F>;

    fn options<F: Fabric>() -> DexOptions {
        let values = if BLOCKS { DexValues::Blocks } else { DexValues::Inline };
        DexOptions { cache_bytes: 20 << 10, write_through: THROUGH, values, ..DexOptions::default() }
    }
}

#[test]
fn each_form_behaves_like_a_map() {
    behaves_like_a_map::<Form<false, false>>();
    behaves_like_a_map::<Form<true, false>>();
    behaves_like_a_map::<Form<false, true>>();
}
