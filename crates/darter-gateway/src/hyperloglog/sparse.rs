//! The sparse representation of a HyperLogLog: runs of equal registers.
//!
//! ```text
//! 00nnnnnn           n + 1 registers of 0
//! 01nnnnnn nnnnnnnn  n + 1 registers of 0
//! 1vvvvvnn           n + 1 registers of v + 1
//! ```
//!
//! Registers are changed as Redis does it, so that the bytes are equal.

use super::{HEADER_BYTES, SPARSE_BYTES};
use std::fmt::Write;

/// Most registers in a run of zeros of one byte.
const SHORT_ZEROS: usize = 64;
/// Most registers in a run of another value.
const VALUES: usize = 4;
/// The largest value of a register.
const VALUE_MAX: u8 = 32;
/// Runs that are examined for neighbours with equal values after a change.
const EXAMINED: usize = 5;

/// A run of equal registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub count: u8,
    pub registers: usize,
    /// Bytes of the run.
    bytes: usize,
}

impl Run {
    /// Parses the run at the beginning of some bytes. Returns `None` at their end.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&first, rest) = bytes.split_first()?;
        let low = usize::from(first & 0x3f);
        Some(match first >> 6 {
            0 => Self { count: 0, registers: low + 1, bytes: 1 },
            // A missing second byte counts as 0, as the one behind a string in Redis.
            1 => {
                let second = usize::from(rest.first().copied().unwrap_or(0));
                Self { count: 0, registers: (low << 8 | second) + 1, bytes: 2 }
            }
            _ => Self { count: (first >> 2 & 0x1f) + 1, registers: usize::from(first & 3) + 1, bytes: 1 },
        })
    }
}

/// Returns the runs in the bytes behind a header.
pub(super) fn runs(mut bytes: &[u8]) -> impl Iterator<Item = Run> {
    std::iter::from_fn(move || {
        let run = Run::parse(bytes)?;
        bytes = bytes.get(run.bytes..).unwrap_or_default();
        Some(run)
    })
}

/// Returns the byte of a run of 1 to 4 registers with a value other than 0.
fn values(count: u8, registers: usize) -> u8 {
    0x80 | (count - 1) << 2 | (registers - 1) as u8
}

/// Appends a run of registers of 0, if there are any.
pub(super) fn push_zeros(bytes: &mut Vec<u8>, registers: usize) {
    match registers {
        0 => {}
        1..=SHORT_ZEROS => bytes.push(registers as u8 - 1),
        _ => bytes.extend_from_slice(&[0x40 | ((registers - 1) >> 8) as u8, (registers - 1) as u8]),
    }
}

/// Appends a run of registers, if there are any.
fn push(bytes: &mut Vec<u8>, count: u8, registers: usize) {
    match count {
        0 => push_zeros(bytes, registers),
        _ if registers > 0 => bytes.push(values(count, registers)),
        _ => {}
    }
}

/// Raises a register of a valid value, which is lower. Returns false if the sparse representation
/// has no room for that; then nothing has changed.
pub(super) fn set(value: &mut Vec<u8>, register: usize, count: u8) -> bool {
    if count > VALUE_MAX {
        return false;
    }
    let (mut at, mut before, mut first) = (HEADER_BYTES, HEADER_BYTES, 0);
    let run = loop {
        let Some(run) = Run::parse(&value[at.min(value.len())..]) else { return false };
        if register < first + run.registers {
            break run;
        }
        first += run.registers;
        before = at;
        at += run.bytes;
    };
    let mut split = Vec::with_capacity(5);
    push(&mut split, run.count, register - first);
    push(&mut split, count, 1);
    push(&mut split, run.count, first + run.registers - register - 1);
    let end = (at + run.bytes).min(value.len());
    let bytes = value.len() + split.len() - (end - at);
    if split.len() > end - at && bytes > SPARSE_BYTES {
        return false;
    }
    value.splice(at..end, split);
    unite(value, before);
    super::set_cached(value, None);
    true
}

/// Unites neighbouring runs with equal values, from a position on.
fn unite(value: &mut Vec<u8>, mut at: usize) {
    for _ in 0..EXAMINED {
        let (Some(run), next) = (value.get(at..).and_then(Run::parse), value.get(at + 1..)) else { return };
        let next = next.and_then(Run::parse).filter(|next| run.count > 0 && next.count == run.count);
        match next.map(|next| run.registers + next.registers) {
            Some(registers) if registers <= VALUES => {
                value[at] = values(run.count, registers);
                value.remove(at + 1);
            }
            _ => at += run.bytes,
        }
    }
}

/// Returns the runs as text: `Z:` and `z:` for zeros, `v:` for other values.
pub(super) fn decoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for Run { count, registers, bytes } in runs(bytes) {
        let _ = match (count, bytes) {
            (0, 1) => write!(text, "z:{registers} "),
            (0, _) => write!(text, "Z:{registers} "),
            _ => write!(text, "v:{count},{registers} "),
        };
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::super::{empty, registers};
    use super::*;

    #[test]
    fn runs_are_split_and_united() {
        let mut value = empty();
        let text = |value: &[u8]| decoded(&value[HEADER_BYTES..]);
        assert_eq!(text(&value), "Z:16384");
        for (register, expected) in [
            (1000, "Z:1000 v:1,1 Z:15383"),
            (1001, "Z:1000 v:1,2 Z:15382"),
            (1003, "Z:1000 v:1,2 z:1 v:1,1 Z:15380"),
            (1002, "Z:1000 v:1,4 Z:15380"),
            (16_383, "Z:1000 v:1,4 Z:15379 v:1,1"),
            (0, "v:1,1 Z:999 v:1,4 Z:15379 v:1,1"),
        ] {
            assert!(set(&mut value, register, 1));
            assert_eq!(text(&value), expected);
        }
        assert!(set(&mut value, 1001, 32));
        assert_eq!(text(&value), "v:1,1 Z:999 v:1,1 v:32,1 v:1,2 Z:15379 v:1,1");
        assert!(!set(&mut value, 5, 33));
        assert_eq!(registers(&value).unwrap()[1001], 32);
    }
}
