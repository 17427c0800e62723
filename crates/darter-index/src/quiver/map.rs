//! A page's map: a blind trie over its keys, in 4 to 6 bits a key.
//!
//! For each key but the last it holds the position of the first bit in which that key and the next
//! one differ. Positions count nine bits a byte, of which the first says that the key has the byte:
//! so a key comes before its extensions, and they differ. The positions alone lead any key of the
//! page to its rank. Any other key is also led to some rank, and the record there shows that it is
//! another key.

/// Bits per byte of a key.
const BYTE_BITS: u32 = 9;
/// Most bits of a position on the fast path: such positions are below 64.
const WINDOW_WIDTH: u32 = 6;
/// Positions that are read together: they take whole bytes.
const RUN: usize = 8;
/// Most runs of a map on the fast path.
const PACKED_RUNS: usize = 8;
/// Words of these runs with the widest positions.
const PACKED_WORDS: usize = RUN * PACKED_RUNS * WINDOW_WIDTH as usize / 64;

/// Returns a bit of a key.
fn bit(key: &[u8], position: u32) -> bool {
    let (byte, bit) = ((position / BYTE_BITS) as usize, position % BYTE_BITS);
    key.get(byte).is_some_and(|byte| bit == 0 || byte >> (BYTE_BITS - 1 - bit) & 1 == 1)
}

/// Returns the first position at which two different keys differ.
fn first_difference(a: &[u8], b: &[u8]) -> u32 {
    let same = crate::radix::common_prefix(a, b);
    let within = match (a.get(same), b.get(same)) {
        (Some(a), Some(b)) => 1 + (a ^ b).leading_zeros(),
        _ => 0,
    };
    same as u32 * BYTE_BITS + within
}

/// The positions of a page, packed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map {
    /// The least position.
    pub(super) base: u32,
    /// Bits of each position less the base.
    pub(super) width: u32,
    /// The positions, the first in the low bits of the first word.
    pub(super) words: Vec<u64>,
}

impl Map {
    /// The map of keys in strictly ascending order.
    pub(super) fn of<'k>(keys: impl Iterator<Item = &'k [u8]> + Clone) -> Self {
        let positions: Vec<u32> =
            keys.clone().zip(keys.skip(1)).map(|(a, b)| first_difference(a, b)).collect();
        let (Some(&base), Some(&most)) = (positions.iter().min(), positions.iter().max()) else {
            return Self::default();
        };
        let width = u32::BITS - (most - base).leading_zeros();
        let words = packed(positions.iter().map(|position| position - base), width);
        Self { base, width, words }
    }
}

/// Packs positions of `width` bits each.
fn packed(positions: impl ExactSizeIterator<Item = u32>, width: u32) -> Vec<u64> {
    let mut words = vec![0; (positions.len() * width as usize).div_ceil(64)];
    for (at, position) in positions.enumerate().filter(|_| width > 0) {
        let (first, value) = (at * width as usize, u64::from(position));
        words[first / 64] |= value << (first % 64);
        if first % 64 + width as usize > 64 {
            words[first / 64 + 1] |= value >> (64 - first % 64);
        }
    }
    words
}

/// The map of `keys` keys with positions narrowed from `width` to `narrow` bits: positions that do
/// not fit get the highest value.
pub(super) fn narrowed(words: &[u64], keys: usize, width: u32, narrow: u32) -> Vec<u64> {
    let most = (1 << narrow) - 1;
    packed((0..keys - 1).map(|at| position(words, width, at).min(most)), narrow)
}

/// Returns one of the positions in `words`; 0 if `words` is too short.
fn position(words: &[u64], width: u32, at: usize) -> u32 {
    if width == 0 {
        return 0;
    }
    let first = at * width as usize;
    let low = words.get(first / 64).copied().unwrap_or(0) >> (first % 64);
    let value = if first % 64 + width as usize > 64 {
        low | words.get(first / 64 + 1).copied().unwrap_or(0) << (64 - first % 64)
    } else {
        low
    };
    (value & ((1 << width) - 1)) as u32
}

/// Words of the map of `keys` keys; `keys` is at least one.
pub(super) fn words_of(keys: usize, width: u32) -> usize {
    bits(keys, width).div_ceil(64)
}

/// Bits of the map of `keys` keys; `keys` is at least one.
pub(super) fn bits(keys: usize, width: u32) -> usize {
    (keys - 1) * width as usize
}

/// A lower bound for the positions in the map of `keys` keys with a prefix of `depth` nibbles.
pub(super) fn least_base(keys: usize, depth: usize) -> u32 {
    if keys > 1 { (depth / 2) as u32 * BYTE_BITS } else { 0 }
}

/// Returns the rank of a key among the `count` keys with this map, if it is one of them.
///
/// If the key's bit at a position is zero, the positions after it are ignored up to the next one
/// that is not higher: they belong to keys whose bit there is one.
pub(super) fn rank(base: u32, width: u32, words: &[u64], count: usize, key: &[u8]) -> usize {
    let steps = count.saturating_sub(1);
    let mut walk = Walk { rank: 0, latest: u32::MAX };
    if width > WINDOW_WIDTH || words.len() > PACKED_WORDS || steps > RUN * PACKED_RUNS {
        for at in 0..steps {
            let here = position(words, width, at);
            walk.step(at, here, bit(key, base + here));
        }
        return walk.rank;
    }
    let mut packed = [0; PACKED_WORDS + 1];
    packed[..words.len()].copy_from_slice(words);
    let (bytes, mask, window) = (bytemuck::bytes_of(&packed), (1 << width) - 1, window(key, base));
    let mut first = 0;
    while first < steps && walk.latest != 0 {
        // A run of positions begins at a byte.
        let run = bytes[first / RUN * width as usize..].first_chunk();
        let mut run = run.map_or(0, |run| u64::from_le_bytes(*run));
        let step = |at| {
            let here = run as u32 & mask;
            walk.step(at, here, window >> here & 1 == 1);
            run >>= width;
        };
        // A number of steps that is known is compiled without a loop.
        if first + RUN <= steps {
            (first..first + RUN).for_each(step);
        } else {
            (first..steps).for_each(step);
        }
        first += RUN;
    }
    walk.rank
}

/// The state of a walk over a map.
struct Walk {
    /// The rank as far as it is known.
    rank: usize,
    /// The latest position that still counts; the greatest number after a position at which the
    /// key's bit is one.
    latest: u32,
}

impl Walk {
    /// Processes a position; `is_one` is the key's bit there. Compiles to no branch: a key's bits
    /// cannot be predicted.
    #[inline]
    fn step(&mut self, at: usize, here: u32, is_one: bool) {
        let latest = if is_one { u32::MAX } else { here };
        self.latest = if here <= self.latest { latest } else { self.latest };
        self.rank = if self.latest == u32::MAX { at + 1 } else { self.rank };
    }
}

/// The bits of a key at the 64 positions from `base` on, the first in the lowest bit.
fn window(key: &[u8], base: u32) -> u64 {
    let first = (base / BYTE_BITS) as usize;
    let bits = (first..first + 8).fold(0_u128, |bits, at| {
        let byte = key.get(at).map_or(0, |byte| 1 << (BYTE_BITS - 1) | u128::from(*byte));
        bits << BYTE_BITS | byte
    });
    // 72 bits, of which the first are before the base.
    ((bits << (u128::BITS - 8 * BYTE_BITS + base % BYTE_BITS) >> 64) as u64).reverse_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn every_key_is_led_to_its_rank(
            keys in proptest::collection::btree_set(proptest::collection::vec(0_u8..4, 0..5), 1..64),
            wide in proptest::collection::btree_set(any::<[u8; 8]>(), 1..64),
        ) {
            let wide: BTreeSet<Vec<u8>> = wide.into_iter().map(|key| key.to_vec()).collect();
            for keys in [keys, wide] {
                let map = Map::of(keys.iter().map(Vec::as_slice));
                for (at, key) in keys.iter().enumerate() {
                    prop_assert_eq!(rank(map.base, map.width, &map.words, keys.len(), key), at);
                }
            }
        }

        #[test]
        fn any_words_lead_to_some_rank(
            words in proptest::collection::vec(any::<u64>(), 0..4),
            base in any::<u16>(),
            width in 0_u32..32,
            count in 0_usize..100,
            key in proptest::collection::vec(any::<u8>(), 0..9),
        ) {
            prop_assert!(rank(base.into(), width, &words, count, &key) < count.max(1));
        }
    }

    proptest! {
        #[test]
        fn a_window_holds_the_bits_of_a_key(
            key in proptest::collection::vec(any::<u8>(), 0..12),
            base in 0_u32..120,
        ) {
            let window = window(&key, base);
            for at in 0..64 {
                prop_assert_eq!(window >> at & 1 == 1, bit(&key, base + at), "{} from {}", at, base);
            }
        }
    }

    #[test]
    fn a_map_of_random_keys_takes_few_bits() {
        let keys: BTreeSet<u64> = (0..64_u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let keys: Vec<_> = keys.into_iter().map(u64::to_be_bytes).collect();
        let map = Map::of(keys.iter().map(|key| &key[..]));
        assert!(map.width <= 5, "{map:?}");
    }
}
