//! HyperLogLogs as Redis stores them in strings, byte for byte: estimates of how many different
//! elements were added.
//!
//! ```text
//! "HYLL" | representation, 1 byte | 0, 3 bytes | cached estimate, 8 bytes | registers
//! ```
//!
//! The estimate is little-endian; its highest bit is set if it is out of date. There are 16,384
//! registers of 0 to 51. An element belongs to the register that the low bits of its hash select,
//! which keeps the largest number of zero bits, plus one, that was found after them. The dense
//! representation has 6 bits for each register, and the sparse one has runs of equal registers
//! (`sparse.rs`).

mod sparse;

use crate::fault::Fault;

/// The number of registers.
pub(crate) const REGISTERS: usize = 16_384;
/// The bits of a hash that select a register.
const INDEX_BITS: u32 = 14;
/// The bits of a hash in which zeros are counted.
const COUNTED_BITS: u32 = 64 - INDEX_BITS;
/// Bits of a register in the dense representation.
const REGISTER_BITS: usize = 6;
const REGISTER_MAX: u16 = 63;

const MAGIC: &[u8] = b"HYLL";
/// The position of the byte for the representation.
const FORM: usize = 4;
/// The position of the cached estimate.
const CACHE: usize = 8;
/// Bytes before the registers.
const HEADER_BYTES: usize = 16;
/// Bytes of a value in the dense representation.
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;
/// Most bytes of a value in the sparse representation when it grows, as Redis's default
/// (`hll-sparse-max-bytes`).
pub(crate) const SPARSE_BYTES: usize = 3000;

/// The values of all registers.
pub(crate) type Registers = [u8; REGISTERS];

/// A representation of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Dense = 0,
    Sparse = 1,
}

/// The registers of a value are damaged.
pub(crate) fn corrupted() -> Fault {
    Fault::said("INVALIDOBJ Corrupted HLL object detected")
}

/// Returns the hash of an element: `MurmurHash64A` with Redis's seed.
fn hash(element: &[u8]) -> u64 {
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SEED: u64 = 0xadc8_3b19;
    let mut hash = SEED ^ (element.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = element.as_chunks();
    for &word in words {
        let word = u64::from_le_bytes(word).wrapping_mul(FACTOR);
        hash ^= (word ^ word >> 47).wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> 47).wrapping_mul(FACTOR);
    hash ^ hash >> 47
}

/// An element as a `HyperLogLog` sees it: a register, and the smallest value that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub register: u16,
    pub count: u8,
}

impl Mark {
    /// Returns the mark of an element.
    pub(crate) fn of(element: &[u8]) -> Self {
        let hash = hash(element);
        let counted = hash >> INDEX_BITS | 1 << COUNTED_BITS;
        Self { register: hash as u16 & (REGISTERS as u16 - 1), count: counted.trailing_zeros() as u8 + 1 }
    }
}

/// Returns the value without any element.
pub(crate) fn empty() -> Vec<u8> {
    let mut value = MAGIC.to_vec();
    value.push(Form::Sparse as u8);
    value.resize(HEADER_BYTES, 0);
    sparse::push_zeros(&mut value, REGISTERS);
    value
}

/// Returns the representation of a value.
///
/// # Errors
/// Fails if the value cannot be a `HyperLogLog`.
pub(crate) fn form(value: &[u8]) -> Result<Form, Fault> {
    let form = match value.get(FORM) {
        Some(0) if value.len() == DENSE_BYTES => Some(Form::Dense),
        Some(1) if value.len() >= HEADER_BYTES => Some(Form::Sparse),
        _ => None,
    };
    let form = form.filter(|_| value.starts_with(MAGIC));
    form.ok_or_else(|| Fault::said("WRONGTYPE Key is not a valid HyperLogLog string value."))
}

/// Returns a register of the dense representation.
fn dense(registers: &[u8], register: usize) -> u8 {
    let (byte, bit) = (register * REGISTER_BITS / 8, register * REGISTER_BITS % 8);
    let word = u16::from_le_bytes([registers[byte], registers.get(byte + 1).copied().unwrap_or(0)]);
    (word >> bit & REGISTER_MAX) as u8
}

/// Sets a register of the dense representation.
fn set_dense(registers: &mut [u8], register: usize, count: u8) {
    let (byte, bit) = (register * REGISTER_BITS / 8, register * REGISTER_BITS % 8);
    let word = u16::from_le_bytes([registers[byte], registers.get(byte + 1).copied().unwrap_or(0)]);
    let word = word & !(REGISTER_MAX << bit) | u16::from(count) << bit;
    for (byte, new) in registers[byte..].iter_mut().zip(word.to_le_bytes()) {
        *byte = new;
    }
}

/// Raises registers to those of a value.
///
/// # Errors
/// Fails if the value is not a valid `HyperLogLog`.
pub(crate) fn merge(registers: &mut Registers, value: &[u8]) -> Result<(), Fault> {
    let body = &value[HEADER_BYTES.min(value.len())..];
    match form(value)? {
        Form::Dense => {
            for (at, register) in registers.iter_mut().enumerate() {
                *register = dense(body, at).max(*register);
            }
        }
        Form::Sparse => {
            let mut left = &mut registers[..];
            for run in sparse::runs(body) {
                let (covered, rest) = left.split_at_mut_checked(run.registers).ok_or_else(corrupted)?;
                for register in covered {
                    *register = run.count.max(*register);
                }
                left = rest;
            }
            if !left.is_empty() {
                return Err(corrupted());
            }
        }
    }
    Ok(())
}

/// Returns the registers of a value.
///
/// # Errors
/// Fails if the value is not a valid `HyperLogLog`.
pub(crate) fn registers(value: &[u8]) -> Result<Box<Registers>, Fault> {
    let mut registers = Box::new([0; REGISTERS]);
    merge(&mut registers, value)?;
    Ok(registers)
}

/// Changes a value to the dense representation.
///
/// # Errors
/// Fails if the value is not a valid `HyperLogLog`.
pub(crate) fn make_dense(value: &mut Vec<u8>) -> Result<(), Fault> {
    if form(value)? == Form::Dense {
        return Ok(());
    }
    let registers = registers(value)?;
    value.resize(HEADER_BYTES, 0);
    value.resize(DENSE_BYTES, 0);
    value[FORM] = Form::Dense as u8;
    for (at, &count) in registers.iter().enumerate() {
        set_dense(&mut value[HEADER_BYTES..], at, count);
    }
    Ok(())
}

/// Raises a register of a valid value whose registers are known. Returns whether it was lower.
///
/// # Errors
/// Fails if the value is not a valid `HyperLogLog`.
pub(crate) fn raise(value: &mut Vec<u8>, known: &mut Registers, mark: Mark) -> Result<bool, Fault> {
    let at = usize::from(mark.register);
    if known[at] >= mark.count {
        return Ok(false);
    }
    known[at] = mark.count;
    if form(value)? == Form::Dense || !sparse::set(value, at, mark.count) {
        make_dense(value)?;
        set_dense(&mut value[HEADER_BYTES..], at, mark.count);
    }
    Ok(true)
}

/// Returns the cached estimate of a value, if it is up to date.
pub(crate) fn cached(value: &[u8]) -> Option<u64> {
    let cache = value.get(CACHE..)?.first_chunk().map(|cache| u64::from_le_bytes(*cache));
    cache.filter(|cache| cache >> 63 == 0)
}

/// Changes the cached estimate of a value; `None` marks it as out of date.
pub(crate) fn set_cached(value: &mut [u8], estimate: Option<u64>) {
    match estimate {
        Some(estimate) => value[CACHE..HEADER_BYTES].copy_from_slice(&estimate.to_le_bytes()),
        None => value[HEADER_BYTES - 1] |= 0x80,
    }
}

/// Estimates the number of different elements from the registers, as in Otmar Ertl, "New
/// cardinality estimation algorithms for HyperLogLog sketches", arXiv:1702.01284. The operations
/// are those of Redis, in its order, so that the results are equal.
pub(crate) fn estimate(registers: &Registers) -> u64 {
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let mut histogram = [0_u32; 64];
    for &register in registers {
        histogram[usize::from(register & REGISTER_MAX as u8)] += 1;
    }
    let all = REGISTERS as f64;
    let of = |count: u32| f64::from(histogram[count as usize]);
    let mut sum = all * tau((all - of(COUNTED_BITS + 1)) / all);
    for count in (1..=COUNTED_BITS).rev() {
        sum = (sum + of(count)) * 0.5;
    }
    sum += all * sigma(of(0) / all);
    (ALPHA * all * all / sum).round() as u64
}

#[allow(clippy::float_cmp)] // the series is at its end when a term changes nothing
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

#[allow(clippy::float_cmp)] // as above
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// Returns the runs of the sparse representation as Redis's `PFDEBUG DECODE` does.
pub(crate) fn decoded(value: &[u8]) -> String {
    sparse::decoded(&value[HEADER_BYTES.min(value.len())..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn add(value: &mut Vec<u8>, known: &mut Registers, mark: Mark) -> bool {
        raise(value, known, mark).unwrap()
    }

    proptest! {
        #[test]
        fn both_representations_hold_the_largest_counts(
            marks in proptest::collection::vec((0_u16..16_384, 1_u8..=51), 0..1500),
        ) {
            let (mut value, mut known) = (empty(), Box::new([0; REGISTERS]));
            let mut model = vec![0; REGISTERS];
            for (register, count) in marks {
                let is_higher = count > model[usize::from(register)];
                prop_assert_eq!(add(&mut value, &mut known, Mark { register, count }), is_higher);
                model[usize::from(register)] = count.max(model[usize::from(register)]);
                prop_assert!(form(&value).unwrap() == Form::Dense || value.len() <= SPARSE_BYTES);
            }
            prop_assert_eq!(&registers(&value).unwrap()[..], &model);
            make_dense(&mut value).unwrap();
            prop_assert_eq!(&registers(&value).unwrap()[..], &model);
        }

        #[test]
        fn damaged_values_are_refused(mut body in proptest::collection::vec(any::<u8>(), 0..200), at: usize, byte: u8) {
            let mut value = empty();
            value.splice(HEADER_BYTES.., body.clone());
            if let Ok(registers) = registers(&value) {
                prop_assert_eq!(sparse::runs(&body).map(|run| run.registers).sum::<usize>(), REGISTERS);
                estimate(&registers);
            }
            body = empty();
            let at = at % body.len();
            body[at] = byte;
            let _ = (form(&body), registers(&body), make_dense(&mut body), cached(&body), decoded(&body));
        }
    }

    #[test]
    fn estimates_are_near_the_number_of_elements() {
        let (mut value, mut known) = (empty(), Box::new([0; REGISTERS]));
        let mut added = 0_u32;
        for wanted in [0, 1, 10, 100, 1000, 10_000, 50_000] {
            while added < wanted {
                add(&mut value, &mut known, Mark::of(format!("element {added}").as_bytes()));
                added += 1;
            }
            let error = (estimate(&known) as f64 - f64::from(wanted)).abs();
            assert!(error <= f64::from(wanted) * 0.05, "{wanted}: {error}");
        }
        assert_eq!(form(&value).unwrap(), Form::Dense);
    }

    #[test]
    fn the_cache_is_valid_until_it_is_marked() {
        let mut value = empty();
        assert_eq!(cached(&value), Some(0));
        set_cached(&mut value, None);
        assert_eq!(cached(&value), None);
        set_cached(&mut value, Some(7));
        assert_eq!(cached(&value), Some(7));
        make_dense(&mut value).unwrap();
        assert_eq!((cached(&value), value.len()), (Some(7), DENSE_BYTES));
    }
}
