//! The part of a key that the models use: its first 8 bytes as a big-endian number, padded with
//! zeros.
//!
//! The order of model keys is that of the keys, except that many keys may have one model key.

/// Bytes of a key that the models use.
const BYTES: usize = 8;

/// Returns the model key of a key.
pub(crate) fn model_key(key: &[u8]) -> u64 {
    let mut bytes = [0; BYTES];
    let len = key.len().min(BYTES);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

/// Returns the least key with a model key: 8 bytes, and how many of them count.
///
/// The leaf that this key belongs to is the first that can hold keys with the model key.
pub(crate) fn least_key(model_key: u64) -> ([u8; BYTES], usize) {
    (model_key.to_be_bytes(), BYTES - model_key.trailing_zeros() as usize / 8)
}

/// Returns the greatest model key of keys below a bound.
pub(crate) fn last_below(high: Option<&[u8]>) -> u64 {
    let Some(high) = high else { return u64::MAX };
    let last = model_key(high);
    let (bytes, length) = least_key(last);
    if bytes[..length] < *high { last } else { last.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn model_keys_are_in_the_order_of_keys(
            a in proptest::collection::vec(any::<u8>(), 0..12),
            b in proptest::collection::vec(any::<u8>(), 0..12),
        ) {
            if a <= b {
                prop_assert!(model_key(&a) <= model_key(&b));
            }
            let (bytes, len) = least_key(model_key(&a));
            prop_assert_eq!(model_key(&bytes[..len]), model_key(&a));
            prop_assert!(bytes[..len] <= a[..]);
        }
    }

    #[test]
    fn the_ends_have_keys() {
        assert_eq!((model_key(b""), model_key(&[0xff; 9])), (0, u64::MAX));
        assert_eq!((least_key(0), least_key(u64::MAX)), (([0; 8], 0), ([0xff; 8], 8)));
        assert_eq!(least_key(model_key(b"ab")), (*b"ab\0\0\0\0\0\0", 2));
    }
}
