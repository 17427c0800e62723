//! A dataset's keys as the generic peers hold them: 8-byte integers as `u64`, others as boxed bytes.

use super::integer;
use std::borrow::Borrow;

/// A key as a peer holds it.
pub(super) trait PeerKey: Borrow<Self::Query> + Ord + Clone + Send + Sync + 'static {
    /// The form that lookups compare.
    type Query: Ord + ?Sized;
    /// A key to look up, made without an allocation.
    type Sought<'a>: Borrow<Self::Query>;

    /// Returns a key to store.
    fn own(key: &[u8]) -> Self;

    /// Returns a key to look up.
    fn sought(key: &[u8]) -> Self::Sought<'_>;
}

impl PeerKey for u64 {
    type Query = u64;
    type Sought<'a> = u64;

    #[inline]
    fn own(key: &[u8]) -> u64 {
        integer(key)
    }

    #[inline]
    fn sought(key: &[u8]) -> u64 {
        integer(key)
    }
}

impl PeerKey for Box<[u8]> {
    type Query = [u8];
    type Sought<'a> = &'a [u8];

    #[inline]
    fn own(key: &[u8]) -> Self {
        key.into()
    }

    #[inline]
    fn sought(key: &[u8]) -> &[u8] {
        key
    }
}
