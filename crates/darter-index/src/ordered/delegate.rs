//! The methods of [`OrderedIndex`](crate::OrderedIndex) for an enum with a variant for each of several
//! indexes: each method calls that of the index that the enum holds.

/// Makes the methods of an `impl OrderedIndex<F>` for an enum, but for those that open an index.
/// `delegate_to_variants!(F: (A, B))` names the fabric's type parameter and the variants.
#[macro_export]
#[doc(hidden)]
macro_rules! delegate_to_variants {
    (@each $self:ident, ($($variant:ident),+), $method:ident $args:tt) => {
        match $self {
            $(Self::$variant(index) => $crate::delegate_to_variants!(@call index, $method $args)),+
        }
    };
    (@call $index:ident, $method:ident ($($arg:expr),*)) => {
        $crate::OrderedIndex::$method($index, $($arg),*)
    };
    (@awaiting $self:ident, ($($variant:ident),+), $method:ident $args:tt) => {
        match $self {
            // Pinned where it is made: an awaited future would be moved once more.
            $(Self::$variant(index) => {
                std::pin::pin!($crate::delegate_to_variants!(@call index, $method $args)).await
            }),+
        }
    };
    ($f:ident: $variants:tt) => {
        fn name(&self) -> &'static str {
            $crate::delegate_to_variants!(@each self, $variants, name())
        }

        async fn get(
            &self,
            client: &mut $crate::pool::Client<$f>,
            key: &[u8],
        ) -> $crate::Result<Option<Vec<u8>>> {
            $crate::delegate_to_variants!(@awaiting self, $variants, get(client, key))
        }

        async fn get_with<R>(
            &self,
            client: &mut $crate::pool::Client<$f>,
            key: &[u8],
            f: impl FnOnce(&[u8]) -> R + Send,
        ) -> $crate::Result<Option<R>> {
            $crate::delegate_to_variants!(@awaiting self, $variants, get_with(client, key, f))
        }

        async fn put(
            &self,
            client: &mut $crate::pool::Client<$f>,
            key: &[u8],
            value: &[u8],
            condition: $crate::Condition<'_>,
        ) -> $crate::Result<$crate::PutOutcome> {
            $crate::delegate_to_variants!(@awaiting self, $variants, put(client, key, value, condition))
        }

        async fn delete_when(
            &self,
            client: &mut $crate::pool::Client<$f>,
            key: &[u8],
            condition: $crate::Condition<'_>,
        ) -> $crate::Result<bool> {
            $crate::delegate_to_variants!(@awaiting self, $variants, delete_when(client, key, condition))
        }

        async fn delete(
            &self,
            client: &mut $crate::pool::Client<$f>,
            key: &[u8],
        ) -> $crate::Result<bool> {
            $crate::delegate_to_variants!(@awaiting self, $variants, delete(client, key))
        }

        async fn delete_if(
            &self,
            client: &mut $crate::pool::Client<$f>,
            key: &[u8],
            is_wanted: impl FnMut(&[u8]) -> bool + Send,
        ) -> $crate::Result<bool> {
            $crate::delegate_to_variants!(@awaiting self, $variants, delete_if(client, key, is_wanted))
        }

        async fn modify(
            &self,
            client: &mut $crate::pool::Client<$f>,
            key: &[u8],
            decide: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> $crate::Decision + Send,
        ) -> $crate::Result<$crate::Decision> {
            $crate::delegate_to_variants!(@awaiting self, $variants, modify(client, key, decide))
        }

        fn check_key(&self, key: &[u8]) -> $crate::Result<()> {
            $crate::delegate_to_variants!(@each self, $variants, check_key(key))
        }

        async fn multi_get_chunk(
            &self,
            client: &mut $crate::pool::Client<$f>,
            keys: &[&[u8]],
        ) -> $crate::Result<Vec<Option<Vec<u8>>>> {
            $crate::delegate_to_variants!(@awaiting self, $variants, multi_get_chunk(client, keys))
        }

        async fn scan(
            &self,
            client: &mut $crate::pool::Client<$f>,
            range: &$crate::ScanRange,
            limit: usize,
        ) -> $crate::Result<Vec<$crate::KeyValue>> {
            $crate::delegate_to_variants!(@awaiting self, $variants, scan(client, range, limit))
        }

        async fn scan_with(
            &self,
            client: &mut $crate::pool::Client<$f>,
            range: &$crate::ScanRange,
            limit: usize,
            visit: impl FnMut(&[u8], &[u8]) + Send,
        ) -> $crate::Result<usize> {
            $crate::delegate_to_variants!(@awaiting self, $variants, scan_with(client, range, limit, visit))
        }

        fn prefetch<'k>(
            &self,
            client: &$crate::pool::Client<$f>,
            keys: impl Iterator<Item = &'k [u8]>,
        ) {
            $crate::delegate_to_variants!(@each self, $variants, prefetch(client, keys))
        }

        async fn bulk_load<P>(
            &self,
            client: &mut $crate::pool::Client<$f>,
            sorted: P,
        ) -> $crate::Result<u64>
        where
            P: Iterator<Item = $crate::KeyValue> + Send,
        {
            $crate::delegate_to_variants!(@awaiting self, $variants, bulk_load(client, sorted))
        }

        async fn maintain(&self, client: &mut $crate::pool::Client<$f>) -> $crate::Result<()> {
            $crate::delegate_to_variants!(@awaiting self, $variants, maintain(client))
        }

        async fn adapt(&self, client: &mut $crate::pool::Client<$f>) -> $crate::Result<()> {
            $crate::delegate_to_variants!(@awaiting self, $variants, adapt(client))
        }

        async fn check(
            &self,
            client: &mut $crate::pool::Client<$f>,
        ) -> $crate::Result<$crate::CheckReport> {
            $crate::delegate_to_variants!(@awaiting self, $variants, check(client))
        }

        async fn sweep_dead(
            &self,
            client: &mut $crate::pool::Client<$f>,
        ) -> $crate::Result<$crate::Swept> {
            $crate::delegate_to_variants!(@awaiting self, $variants, sweep_dead(client))
        }

        async fn scrub_unreachable(
            &self,
            client: &mut $crate::pool::Client<$f>,
            reachable: &$crate::pool::ReachableSet,
        ) -> $crate::Result<bool> {
            $crate::delegate_to_variants!(@awaiting self, $variants, scrub_unreachable(client, reachable))
        }

        async fn stats(
            &self,
            client: &mut $crate::pool::Client<$f>,
        ) -> $crate::Result<$crate::IndexStats> {
            $crate::delegate_to_variants!(@awaiting self, $variants, stats(client))
        }

        fn cache_used_bytes(&self) -> u64 {
            $crate::delegate_to_variants!(@each self, $variants, cache_used_bytes())
        }
    };
}
