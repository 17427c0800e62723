//! The identifiers of a list's chunks, which are in the order of the elements: a number (8 bytes,
//! big-endian), and further bytes after it if the chunk was inserted between two others.

use super::End;
use crate::fault::Fault;
use smallvec::SmallVec;

/// The identifier of a chunk.
pub(super) type ChunkId = SmallVec<[u8; 16]>;

/// Returns the first chunk's identifier of a new list, with as many before as after it.
pub(super) fn middle() -> ChunkId {
    SmallVec::from_slice(&(1_u64 << 63).to_be_bytes())
}

/// Returns an identifier beyond the one at an end of the list.
///
/// # Errors
/// Fails if the list has had 2^63 chunks at this end.
pub(super) fn beyond(id: &[u8], end: End) -> Result<ChunkId, Fault> {
    let number = id.first_chunk().map(|number| u64::from_be_bytes(*number));
    let next = number.and_then(|number| match end {
        End::Left => number.checked_sub(1),
        End::Right => number.checked_add(1),
    });
    let next =
        next.ok_or_else(|| Fault::said("ERR the list has no identifier for another chunk; copy it"))?;
    Ok(SmallVec::from_slice(&next.to_be_bytes()))
}

/// Returns an identifier between two others, of which the first is the lower one.
pub(super) fn between(low: &[u8], high: &[u8]) -> ChunkId {
    let (mut id, mut is_below_high) = (ChunkId::new(), false);
    for at in 0.. {
        let from = low.get(at).map_or(0, |&byte| u16::from(byte));
        // No identifier ends in zeros, so that one of them has a byte here, unless the pool is damaged.
        let is_open = is_below_high || at >= low.len().max(high.len());
        let to = if is_open { 256 } else { high.get(at).map_or(0, |&byte| u16::from(byte)) };
        // Less than 256, since `from` is.
        let middle = u16::midpoint(from, to.max(from)) as u8;
        id.push(middle);
        if u16::from(middle) > from {
            break;
        }
        is_below_high |= from < to;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    #[test]
    fn identifiers_are_in_order_wherever_they_are_inserted() {
        let mut dice = Pcg64Mcg::seed_from_u64(1);
        let first = middle();
        let mut ids = vec![beyond(&first, End::Left).unwrap(), first];
        for _ in 0..2000 {
            match dice.random_range(0..6) {
                0 => ids.push(beyond(ids.last().unwrap(), End::Right).unwrap()),
                1 => ids.insert(0, beyond(&ids[0], End::Left).unwrap()),
                // Often at one place.
                2 => ids.insert(1, between(&ids[0], &ids[1])),
                3 => ids.insert(ids.len() - 1, between(&ids[ids.len() - 2], &ids[ids.len() - 1])),
                _ => {
                    let at = dice.random_range(1..ids.len());
                    ids.insert(at, between(&ids[at - 1], &ids[at]));
                }
            }
        }
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ids.iter().all(|id| id.len() < 100));
    }

    #[test]
    fn neighbours_have_room_between_them() {
        for (low, high) in [
            (&[5][..], &[6][..]),
            (&[5], &[5, 1]),
            (&[5], &[5, 0, 1]),
            (&[5, 255, 255], &[6]),
            (&[0, 255], &[1, 0]),
            (&[1, 7], &[1, 9]),
        ] {
            let id = between(low, high);
            assert!(low < &id[..] && &id[..] < high && id.last() != Some(&0), "{low:?} {id:?} {high:?}");
        }
    }

    #[test]
    fn the_last_identifier_has_no_next_one() {
        let last = u64::MAX.to_be_bytes();
        assert!(beyond(&last, End::Right).is_err() && beyond(&[0; 8], End::Left).is_err());
        assert!(beyond(b"short", End::Right).is_err());
    }
}
