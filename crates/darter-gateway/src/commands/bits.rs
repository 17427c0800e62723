//! Commands for the bits of strings: `SETBIT`, `GETBIT`, `BITCOUNT`, `BITPOS`, `BITOP`. Bit 0 is the
//! highest bit of the first byte. `BITFIELD` is in `bit_fields.rs`.

use super::strings::lengthened;
use crate::call::Call;
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::Change;
use crate::number;
use crate::request::{Arguments, BULK_BYTES_MAX};
use crate::turns;
use std::iter;
use std::ops::RangeInclusive;

/// Parses the position of a bit. Redis's strings have no bits at higher positions, since they have
/// at most 512 MiB.
pub(super) fn position(number: Option<i64>) -> Result<usize, Fault> {
    let position = number.and_then(|number| usize::try_from(number).ok());
    let position = position.filter(|position| position / 8 < BULK_BYTES_MAX);
    position.ok_or_else(|| Fault::said("ERR bit offset is not an integer or out of range"))
}

/// Returns the byte that a bit is in, and the bit's mask within the byte.
fn place(position: usize) -> (usize, u8) {
    (position / 8, 0x80 >> (position % 8))
}

/// `SETBIT key offset value`.
pub(super) async fn setbit(call: &mut Call<'_>) -> Result<(), Fault> {
    let position = position(number::integer(call.args.get(2)))?;
    let is_set = match number::integer(call.args.get(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Fault::said("ERR bit is not an integer or out of range")),
    };
    let ((byte, mask), most) = (place(position), call.shared.argument_bytes_max);
    let was_set = call.keys.change(call.args.get(1), |head, record| {
        let old = head.map_or(Ok(&b""[..]), |head| head.string())?;
        let was_set = old.get(byte).is_some_and(|old| old & mask != 0);
        if byte < old.len() && was_set == is_set {
            return Ok(Change::Keep(was_set));
        }
        let value = lengthened(head, record, byte + 1, most)?;
        value[byte] = if is_set { value[byte] | mask } else { value[byte] & !mask };
        Ok(Change::Put(was_set))
    });
    let was_set = was_set.await?;
    call.reply.flag(was_set);
    Ok(())
}

/// `GETBIT key offset`.
pub(super) async fn getbit(call: &mut Call<'_>) -> Result<(), Fault> {
    let (byte, mask) = place(position(number::integer(call.args.get(2)))?);
    let is_set = call.keys.look(call.args.get(1), |head| {
        let value = head.map_or(Ok(&b""[..]), |head| head.string())?;
        Ok::<_, Fault>(value.get(byte).is_some_and(|byte| byte & mask != 0))
    });
    let is_set = is_set.await??;
    call.reply.flag(is_set);
    Ok(())
}

/// Parses an integer argument.
fn integer(args: &Arguments<'_>, at: usize) -> Result<i64, Fault> {
    number::integer(args.get(at)).ok_or(NO_INTEGER)
}

/// Parses the unit of a range. Returns whether the range is counted in bits, not in bytes.
fn is_in_bits(unit: &[u8]) -> Result<bool, Fault> {
    match &unit.to_ascii_lowercase()[..] {
        b"bit" => Ok(true),
        b"byte" => Ok(false),
        _ => Err(SYNTAX),
    }
}

/// Returns the bits of a value from `start` to `end`, which count bits or bytes, from the end of the
/// value if negative. `None` if there are none.
fn range(value: &[u8], start: i64, end: i64, counts_bits: bool) -> Option<RangeInclusive<usize>> {
    let unit = if counts_bits { 1 } else { 8 };
    let units = number::signed(value.len() * 8 / unit);
    let at = |index: i64| if index < 0 { (units + index).max(0) } else { index };
    let (start, end) = (at(start), at(end).min(units - 1));
    (start <= end).then(|| start as usize * unit..=end as usize * unit + (unit - 1))
}

/// Counts the bits of a range that are set.
fn count(value: &[u8], range: RangeInclusive<usize>) -> u64 {
    let ones = |bytes: &[u8]| {
        let (words, rest) = bytes.as_chunks();
        let of_words: u64 = words.iter().map(|&word| u64::from(u64::from_ne_bytes(word).count_ones())).sum();
        of_words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
    };
    let (first, last) = range.into_inner();
    let (from, to) = (first / 8, last / 8);
    let before = value[from] & !(0xff >> (first % 8));
    let behind = value[to] & (0x7f >> (last % 8));
    ones(&value[from..=to]) - ones(&[before, behind])
}

/// Returns the first bit of a range that is set, or that is not.
fn find(value: &[u8], is_set: bool, range: RangeInclusive<usize>) -> Option<usize> {
    let (first, last) = range.into_inner();
    (first / 8..=last / 8).find_map(|at| {
        let mut wanted = if is_set { value[at] } else { !value[at] };
        if at == first / 8 {
            wanted &= 0xff >> (first % 8);
        }
        if at == last / 8 {
            wanted &= !(0x7f >> (last % 8));
        }
        (wanted != 0).then(|| at * 8 + wanted.leading_zeros() as usize)
    })
}

/// Counts the bits of an existing value as the arguments of `BITCOUNT` say.
fn counted(args: &Arguments<'_>, value: &[u8]) -> Result<u64, Fault> {
    let (start, end, unit) = match args.len() {
        2 => (0, -1, None),
        4 | 5 => (integer(args, 2)?, integer(args, 3)?, args.from(4).next()),
        _ => return Err(SYNTAX),
    };
    if start < 0 && end < 0 && start > end {
        return Ok(0);
    }
    let counts_bits = unit.map_or(Ok(false), is_in_bits)?;
    Ok(range(value, start, end, counts_bits).map_or(0, |range| count(value, range)))
}

/// `BITCOUNT key [start end [BYTE|BIT]]`.
pub(super) async fn bitcount(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    // As in Redis, the other arguments are not checked if the key does not exist.
    let count = call.keys.look(args.get(1), |head| match head {
        None => Ok(0),
        Some(head) => counted(&args, head.string()?),
    });
    let count = count.await??;
    call.reply.count(count as usize);
    Ok(())
}

/// Finds a bit of an existing value as the arguments of `BITPOS` say.
fn found(args: &Arguments<'_>, value: &[u8], is_set: bool) -> Result<Option<usize>, Fault> {
    if args.len() > 6 {
        return Err(SYNTAX);
    }
    let start = if args.len() > 3 { integer(args, 3)? } else { 0 };
    let counts_bits = args.from(5).next().map_or(Ok(false), is_in_bits)?;
    let end = (args.len() > 4).then(|| integer(args, 4)).transpose()?;
    let Some(range) = range(value, start, end.unwrap_or(-1), counts_bits) else { return Ok(None) };
    // Without an explicit end, zero bits follow the value.
    let behind = (!is_set && end.is_none()).then_some(value.len() * 8);
    Ok(find(value, is_set, range).or(behind))
}

/// `BITPOS key bit [start [end [BYTE|BIT]]]`.
pub(super) async fn bitpos(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let is_set = match integer(&args, 2)? {
        0 => false,
        1 => true,
        _ => return Err(Fault::said("ERR The bit argument must be 1 or 0.")),
    };
    let found = call.keys.look(args.get(1), |head| match head {
        None => Ok((!is_set).then_some(0)),
        Some(head) => found(&args, head.string()?, is_set),
    });
    let found = found.await??;
    call.reply.integer(found.map_or(-1, number::signed));
    Ok(())
}

/// An operation of `BITOP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn named(name: &[u8]) -> Result<Self, Fault> {
        match &name.to_ascii_lowercase()[..] {
            b"and" => Ok(Self::And),
            b"or" => Ok(Self::Or),
            b"xor" => Ok(Self::Xor),
            b"not" => Ok(Self::Not),
            _ => Err(SYNTAX),
        }
    }

    /// Combines the result so far with a further value. The shorter one counts as continued with
    /// zero bytes.
    fn combine(self, result: &mut Vec<u8>, value: &[u8]) {
        if result.len() < value.len() {
            result.resize(value.len(), 0);
        }
        for (result, value) in result.iter_mut().zip(value.iter().chain(iter::repeat(&0))) {
            match self {
                Self::And => *result &= value,
                Self::Or => *result |= value,
                Self::Xor => *result ^= value,
                Self::Not => *result = !value,
            }
        }
    }
}

/// `BITOP AND|OR|XOR|NOT destination key…`.
pub(super) async fn bitop(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let operation = Operation::named(args.get(1))?;
    if operation == Operation::Not && args.len() != 4 {
        return Err(Fault::said("ERR BITOP NOT must be called with a single source key."));
    }
    let mut result = Vec::new();
    for (at, key) in args.from(3).enumerate() {
        let combined = keys.look(key, |head| {
            let value = head.map_or(Ok(&b""[..]), |head| head.string())?;
            if at == 0 && operation != Operation::Not {
                result.extend_from_slice(value);
            } else {
                operation.combine(&mut result, value);
            }
            Ok::<_, Fault>(())
        });
        combined.await??;
        turns::copied(result.len()).await;
    }
    if result.is_empty() {
        keys.remove(args.get(2)).await?;
    } else {
        keys.set(args.get(2), &result, None).await?;
    }
    reply.count(result.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bits of a value, one by one.
    fn bits(value: &[u8]) -> Vec<bool> {
        value.iter().flat_map(|byte| (0..8).map(move |bit| byte >> (7 - bit) & 1 == 1)).collect()
    }

    proptest! {
        #[test]
        fn bits_are_counted_and_found_as_one_by_one(
            value in proptest::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 0..40),
            start in -330_i64..330,
            end in -330_i64..330,
            counts_bits: bool,
            is_set: bool,
        ) {
            let bits = bits(&value);
            let unit = if counts_bits { 1 } else { 8 };
            let units = number::signed(bits.len() / unit);
            let at = |index: i64| if index < 0 { (index + units).max(0) } else { index };
            let selected: Vec<usize> = (0..bits.len())
                .filter(|bit| (at(start)..=at(end)).contains(&number::signed(bit / unit)))
                .collect();
            let range = range(&value, start, end, counts_bits);
            prop_assert_eq!(range.clone().map_or(0, Iterator::count), selected.len());
            if let Some(range) = range {
                let ones = selected.iter().filter(|&&bit| bits[bit]).count() as u64;
                prop_assert_eq!(count(&value, range.clone()), ones);
                let first = selected.iter().copied().find(|&bit| bits[bit] == is_set);
                prop_assert_eq!(find(&value, is_set, range), first);
            }
        }

        #[test]
        fn values_are_combined_bit_by_bit(
            values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..5),
        ) {
            let longest = values.iter().map(Vec::len).max().unwrap();
            for operation in [Operation::And, Operation::Or, Operation::Xor] {
                let mut result = values[0].clone();
                for value in &values[1..] {
                    operation.combine(&mut result, value);
                }
                let expected: Vec<u8> = (0..longest)
                    .map(|at| {
                        let bytes = values.iter().map(|value| value.get(at).copied().unwrap_or(0));
                        bytes.reduce(|a, b| match operation {
                            Operation::And => a & b,
                            Operation::Or => a | b,
                            _ => a ^ b,
                        })
                        .unwrap()
                    })
                    .collect();
                prop_assert_eq!(result, expected);
            }
        }
    }

    #[test]
    fn extreme_indexes_are_cut_off() {
        assert_eq!(range(b"ab", i64::MIN, i64::MAX, true), Some(0..=15));
        assert_eq!(range(b"ab", i64::MAX, i64::MAX, false), None);
        assert_eq!(range(b"", 0, -1, false), None);
        assert_eq!(range(b"ab", -1, i64::MIN, false), None);
    }
}
