//! The indexes that can be compared, by name. A variant is one line: an index with certain
//! switches.
//!
//! Code that is generic over the index is a [`Visitor`], which [`Variant::visit`] calls with the
//! index's type and a function that returns its options for a demand.

use crate::index_target::from_index;
use darter::engine::{self, Dart, DartOptions, OrderedIndex, StoreFabric};
use darter::{PoolUrl, Store, StoreOptions};
use darter_baselines::{
    Art, ArtOptions, Chime, ChimeOptions, Design, HoclOptions, Records, Sherman, ShermanOptions, Smart,
    SmartOptions, Unlock, Wort, WortOptions, XStore, XStoreOptions,
};
use darter_bench::BenchError;
use darter_index::{Quiver, QuiverOptions};
use darter_pool::Client;
use std::fmt;
use std::future::Future;
use std::str::FromStr;

/// An index with certain switches, under a name.
#[derive(Clone, Copy)]
pub struct Variant {
    /// The name on the command line and in tables.
    pub name: &'static str,
    /// A description.
    pub what: &'static str,
    /// Maximum number of bytes of pool that a record takes beyond its key and value. Pools are
    /// sized by it.
    pub(crate) room: u64,
    /// Whether it adjusts itself to a warm-up before it is measured.
    pub(crate) adjusts: bool,
    /// Whether it keeps everything stored in it; a variant without locks may lose writes.
    pub keeps: bool,
    /// Whether it needs a server next to the memory.
    pub(crate) has_server: bool,
}

/// An index that may adjust itself to the searches it has seen.
pub(crate) trait Adjusts: OrderedIndex<StoreFabric> {
    /// Whether it needs a server next to the memory ([`super::server`]).
    const HAS_SERVER: bool = false;

    /// Adjusts the index, if there is something to adjust. Returns whether there was.
    fn adjust_now(
        &self,
        _client: &mut Client<StoreFabric>,
    ) -> impl Future<Output = Result<bool, BenchError>> + Send {
        async { Ok(false) }
    }
}

impl Adjusts for Art<StoreFabric> {}

impl Adjusts for Smart<StoreFabric> {}

impl Adjusts for Sherman<StoreFabric> {}

impl Adjusts for Quiver<StoreFabric> {
    /// Adjusts the skip table.
    async fn adjust_now(&self, client: &mut Client<StoreFabric>) -> Result<bool, BenchError> {
        self.adjust(client).await.map_err(from_index)?;
        Ok(true)
    }
}

impl Adjusts for Chime<StoreFabric> {}

impl Adjusts for Wort<StoreFabric> {}

impl Adjusts for XStore<StoreFabric> {
    const HAS_SERVER: bool = true;
}

impl Adjusts for Dart<StoreFabric> {
    /// Adjusts the prefix list (DART, section 3.1).
    async fn adjust_now(&self, client: &mut Client<StoreFabric>) -> Result<bool, BenchError> {
        self.adjust(client).await.map_err(from_index)?;
        Ok(true)
    }
}

/// The requirements of an index: its cache, and the records it will hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Bytes that a compute node may cache.
    pub(crate) cache_bytes: u64,
    /// Bytes of every key, if all have the same length.
    pub(crate) fixed_key: Option<u16>,
    /// Bytes of every value.
    pub(crate) value_bytes: usize,
}

/// Work that is the same for every index.
pub(crate) trait Visitor {
    /// The result.
    type Output;

    /// Runs the work for one index; `options` returns its options for a demand.
    fn visit<I: Adjusts>(self, variant: &'static Variant, options: fn(Demand) -> I::Options) -> Self::Output;
}

/// Lists the variants: name, description, type, bytes a record can take beyond its own, whether it
/// adjusts itself, whether it keeps everything stored in it, options.
macro_rules! variants {
    ($($name:literal, $what:literal, $index:ident, $room:expr, $adjusts:literal, $keeps:literal, $options:expr;)*) => {
        /// All variants, in the order of `--indexes`' help.
        pub const VARIANTS: &[Variant] =
            &[$(Variant {
                name: $name,
                what: $what,
                room: $room,
                adjusts: $adjusts,
                keeps: $keeps,
                has_server: <$index<StoreFabric> as Adjusts>::HAS_SERVER,
            }),*];

        impl Variant {
            /// Calls a visitor with this variant's type.
            pub(crate) fn visit<V: Visitor>(&'static self, visitor: V) -> V::Output {
                match self.name {
                    $($name => visitor.visit::<$index<StoreFabric>>(self, $options),)*
                    _ => unreachable!("a variant comes from the list"),
                }
            }
        }
    };
}

variants! {
    "dart", "DART: express skip table, hashed nodes, lock-free slots", Dart, 256, true, true,
        |demand| DartOptions { cache_bytes: demand.cache_bytes, ..DartOptions::default() };
    "dart+frugal", "DART that saves verbs where that costs few round trips: shorter prefix lists", Dart, 256, true, true,
        |demand| DartOptions { cache_bytes: demand.cache_bytes, verb_percent: 30, ..DartOptions::default() };
    "dart+powers", "DART whose prefix list stays at the powers of two", Dart, 256, false, true,
        |demand| DartOptions { cache_bytes: demand.cache_bytes, ..DartOptions::default() };
    "quiver", "Quiver: pages of records under radix nodes, with maps in the cache", Quiver, 1024, false, true,
        |demand| QuiverOptions { cache_bytes: demand.cache_bytes, ..QuiverOptions::default() };
    "art", "ART with ROWEX locks, which caches nothing", Art, 256, false, true,
        |_| ArtOptions::default();
    "art+hashed", "ART with DART's hashed nodes, of which a search reads one bucket", Art, 256, false, true,
        |_| ArtOptions { hashed: true, ..ArtOptions::default() };
    "art+locked", "ART whose updates lock too, all by spin locks (DART, Table 1)", Art, 256, false, true,
        |_| {
            let hocl = HoclOptions { unlock: Unlock::Apart, ..HoclOptions::spin() };
            ArtOptions { hocl, locked_updates: true, ..ArtOptions::default() }
        };
    "art+unlocked", "ART that takes no locks and so loses writes: to measure what locks cost", Art, 256, false, false,
        |_| ArtOptions { without_locks: true, ..ArtOptions::default() };
    "art+hashed+decoupled", "DART without express nodes: hashed nodes, metadata in pointers, no locks", Dart, 256, false, true,
        |demand| DartOptions { cache_bytes: demand.cache_bytes, express: false, ..DartOptions::default() };
    "smart", "SMART: lock-free inner nodes, leaves in place, shared reads and writes, cache", Smart, 2600, false, true,
        |demand| SmartOptions { cache_bytes: demand.cache_bytes, ..SmartOptions::default() };
    "smart+delegation", "SMART without write combining", Smart, 2600, false, true,
        |demand| SmartOptions { write_combining: false, ..smart(demand) };
    "smart+rear-lock", "SMART that shares neither writes nor reads", Smart, 2600, false, true,
        |demand| SmartOptions { write_combining: false, read_delegation: false, ..smart(demand) };
    "smart+in-place", "`smart+rear-lock` that also unlocks leaves by a separate WRITE", Smart, 2600, false, true,
        |demand| SmartOptions { rear_lock: false, write_combining: false, read_delegation: false, ..smart(demand) };
    "smart+oop", "`smart+in-place` that writes leaves out of place: no locks at all", Smart, 2600, false, true,
        |demand| SmartOptions {
            in_place: false,
            rear_lock: false,
            write_combining: false,
            read_delegation: false,
            ..smart(demand)
        };
    "sherman", "Sherman: B-link tree, hierarchical locks on chip, combined commands, two-level versions", Sherman, 512, false, true,
        |demand| sherman(ShermanOptions::sherman(), demand);
    "sherman+pointers", "Sherman whose entries point to their values", Sherman, 512, false, true,
        |demand| pointing(ShermanOptions::sherman(), demand);
    "fg+hierarchical", "Sherman without two-level versions", Sherman, 512, false, true,
        |demand| sherman(ShermanOptions { two_level_versions: false, unsorted_leaves: false, ..ShermanOptions::sherman() }, demand);
    "fg+on-chip", "FG+ with combined commands and locks on chip", Sherman, 512, false, true,
        |demand| sherman(combined(HoclOptions { on_chip: true, ..HoclOptions::spin() }), demand);
    "fg+combined", "FG+ with combined commands", Sherman, 512, false, true,
        |demand| sherman(combined(HoclOptions::spin()), demand);
    "fg+", "FG with an index cache: whole nodes written under spin locks", Sherman, 512, false, true,
        |demand| sherman(ShermanOptions::fg_plus(), demand);
    "fg", "FG: a one-sided B-link tree without a cache", Sherman, 512, false, true,
        |demand| ShermanOptions { cache_bytes: 0, ..sherman(ShermanOptions::fg(), demand) };
    "chime", "CHIME: B-link tree with hopscotch leaves, of which a search reads one neighbourhood", Chime, 512, false, true,
        |demand| chime(demand, true);
    "chime+pointers", "CHIME whose entries point to their values", Chime, 512, false, true,
        |demand| chime(demand, false);
    "chime+cold", "CHIME that does not remember where hot keys lie", Chime, 512, false, true,
        |demand| ChimeOptions { hot_spot_percent: 0, ..chime(demand, true) };
    "xstore", "XStore: leaves written by a server and found by learned models, which clients cache", XStore, 512, false, true,
        |demand| XStoreOptions { cache_bytes: demand.cache_bytes, ..xstore(demand) };
    "xstore+server", "XStore whose clients call the server for everything", XStore, 512, false, true,
        |demand| XStoreOptions { cache_bytes: 0, ..xstore(demand) };
    "xstore+levels", "XStore whose clients read inner nodes and cache those four levels above leaves: its Cell", XStore, 600, false, true,
        |demand| XStoreOptions { cache_bytes: 0, tree_from: Some(4), ..xstore(demand) };
    "xstore+whole", "XStore whose clients cache all inner nodes, and no models: its optimum", XStore, 600, false, true,
        |demand| XStoreOptions { cache_bytes: 0, tree_from: Some(1), ..xstore(demand) };
    "wort", "WORT: 16 slots a node, one lock for writers, every change durable by one word", Wort, 256, false, true,
        |_| WortOptions::of(Design::Wort);
    "wort+woart", "WOART: nodes of four sizes, of which each gains a child by one word", Wort, 256, false, true,
        |_| WortOptions::of(Design::Woart);
    "wort+artcow", "ART+CoW: the same nodes, of which the small ones gain children in copies", Wort, 256, false, true,
        |_| WortOptions::of(Design::ArtCow);
}

fn smart(demand: Demand) -> SmartOptions {
    SmartOptions { cache_bytes: demand.cache_bytes, ..SmartOptions::default() }
}

/// Longest value that entries hold themselves.
const INLINE_BYTES_MAX: usize = 64;

/// Entries hold values of a fixed, short length, as in the published code.
fn sherman(options: ShermanOptions, demand: Demand) -> ShermanOptions {
    let records = match (demand.fixed_key, u16::try_from(demand.value_bytes)) {
        (Some(key_bytes), Ok(value_bytes)) if demand.value_bytes <= INLINE_BYTES_MAX => {
            Records::Inline { key_bytes, value_bytes }
        }
        _ => return pointing(options, demand),
    };
    ShermanOptions { cache_bytes: demand.cache_bytes, ..options.records(records) }
}

/// Entries point to a block with the pair.
fn pointing(options: ShermanOptions, demand: Demand) -> ShermanOptions {
    let records = demand.fixed_key.map_or(Records::Any, |key_bytes| Records::FixedKeys { key_bytes });
    ShermanOptions { cache_bytes: demand.cache_bytes, ..options.records(records) }
}

/// CHIME whose leaves hold pairs that fit, if `inline` allows it.
fn chime(demand: Demand, inline: bool) -> ChimeOptions {
    let records = match (demand.fixed_key, u16::try_from(demand.value_bytes)) {
        (Some(key_bytes), Ok(value_bytes @ ..=8)) if inline => Records::Inline { key_bytes, value_bytes },
        (Some(key_bytes), _) => Records::FixedKeys { key_bytes },
        (None, _) => Records::Any,
    };
    ChimeOptions { cache_bytes: demand.cache_bytes, ..ChimeOptions::default().records(records) }
}

/// Longest value in a leaf of XStore.
const XSTORE_INLINE_BYTES_MAX: usize = 31 * 8;

/// XStore whose leaves hold pairs of fixed, short lengths, as published, on all memory nodes of the
/// pool.
fn xstore(demand: Demand) -> XStoreOptions {
    let is_inline = demand.fixed_key == Some(8) && demand.value_bytes <= XSTORE_INLINE_BYTES_MAX;
    let value_words = if is_inline { demand.value_bytes.div_ceil(8).max(1) as u8 } else { 0 };
    XStoreOptions { value_words, nodes: 0, ..XStoreOptions::default() }
}

/// FG+ with other locks, and combined commands.
fn combined(locks: HoclOptions) -> ShermanOptions {
    let locks = HoclOptions { unlock: Unlock::Combined, ..locks };
    ShermanOptions { locks, ..ShermanOptions::fg_plus() }
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Variant {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A variant, as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexChoice(pub &'static Variant);

impl FromStr for IndexChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = VARIANTS.iter().find(|variant| variant.name == name);
        found.map(Self).ok_or_else(|| {
            let lines = VARIANTS.iter().map(|variant| format!("\n  {:<24} {}", variant.name, variant.what));
            format!("no index has this name; the indexes are:{}", lines.collect::<String>())
        })
    }
}

impl Variant {
    /// Opens a pool with this index, for keys and values of any length, as [`StoreOptions::open`]
    /// does.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub fn open(&'static self, options: StoreOptions, url: &PoolUrl) -> Result<Store, darter::Error> {
        self.visit(Opener { options, url })
    }
}

/// Opens a pool with an index behind a pointer.
struct Opener<'a> {
    options: StoreOptions,
    url: &'a PoolUrl,
}

impl Visitor for Opener<'_> {
    type Output = Result<Store, darter::Error>;

    fn visit<I: Adjusts>(self, _: &'static Variant, options: fn(Demand) -> I::Options) -> Self::Output {
        let cache_bytes = DartOptions::default().cache_bytes;
        let demand = Demand { cache_bytes, fixed_key: None, value_bytes: usize::MAX };
        engine::open_with::<I>(&self.options, self.url, options(demand))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Returns the type for a name.
    struct Named;

    impl Visitor for Named {
        type Output = &'static str;

        fn visit<I: Adjusts>(self, _: &'static Variant, _: fn(Demand) -> I::Options) -> &'static str {
            I::NAME
        }
    }

    #[test]
    fn every_name_is_its_own_and_begins_with_its_index() {
        let names: HashSet<_> = VARIANTS.iter().map(|variant| variant.name).collect();
        assert_eq!(names.len(), VARIANTS.len());
        for variant in VARIANTS {
            assert_eq!(variant.name.parse(), Ok(IndexChoice(variant)));
            assert!(!variant.what.is_empty() && !variant.visit(Named).is_empty(), "{variant:?}");
            assert!(!variant.name.contains([',', ' ', '"', '<']), "{variant:?}");
        }
        let error = "nope".parse::<IndexChoice>().unwrap_err();
        assert!(error.contains("dart") && error.contains("lock-free"), "{error}");
    }
}
