//! `LCS`: the longest common subsequence of two strings.
//!
//! The lengths for all pairs of beginnings are computed row by row. Only one bit for each pair is
//! kept, the direction in which the longer subsequence lies: a thirty-second of Redis's table.

use crate::call::Call;
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::number;
use crate::reply::Reply;
use crate::request::BULK_BYTES_MAX;
use crate::turns;

/// Most bytes of the table that Redis would allocate; it refuses longer strings.
const TABLE_BYTES_MAX: usize = BULK_BYTES_MAX;
/// Bytes of an entry of Redis's table.
const ENTRY_BYTES: usize = 4;

/// The options of `LCS`.
#[derive(Debug, Default)]
struct Options {
    tells_length: bool,
    tells_matches: bool,
    with_lengths: bool,
    shortest: usize,
}

impl Options {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        let (mut options, mut words) = (Self::default(), call.args.from(3));
        while let Some(word) = words.next() {
            match &word.to_ascii_lowercase()[..] {
                b"len" => options.tells_length = true,
                b"idx" => options.tells_matches = true,
                b"withmatchlen" => options.with_lengths = true,
                b"minmatchlen" => {
                    let shortest = number::integer(words.next().ok_or(SYNTAX)?).ok_or(NO_INTEGER)?;
                    options.shortest = usize::try_from(shortest).unwrap_or(0);
                }
                _ => return Err(SYNTAX),
            }
        }
        if options.tells_length && options.tells_matches {
            let text = "ERR If you want both the length and indexes, please just use IDX.";
            return Err(Fault::said(text));
        }
        Ok(options)
    }
}

/// The directions in which longer common subsequences lie.
struct Directions {
    /// For each pair of positions, in rows, whether the subsequence without the first string's byte
    /// is longer than the one without the second string's.
    bits: Vec<u64>,
    /// Positions in a row.
    columns: usize,
    /// Whether the rows belong to the second string.
    is_turned: bool,
}

impl Directions {
    /// Returns whether the subsequence without the first string's byte is longer than the one
    /// without the second string's.
    fn leaves_out_first(&self, first: usize, second: usize) -> bool {
        let (row, column) = if self.is_turned { (second, first) } else { (first, second) };
        let at = row * self.columns + column;
        self.bits[at / 64] >> (at % 64) & 1 == 1
    }
}

/// Computes the length of the longest common subsequence, and the directions.
async fn compute(first: &[u8], second: &[u8]) -> (usize, Directions) {
    // Short rows let other clients have their turn more often.
    let is_turned = first.len() < second.len();
    let (of_rows, of_columns) = if is_turned { (second, first) } else { (first, second) };
    let words = (of_rows.len() * of_columns.len()).div_ceil(64);
    let mut directions = Directions { bits: vec![0; words], columns: of_columns.len(), is_turned };
    let mut lengths = vec![0_u32; of_columns.len() + 1];
    for (row, &byte) in of_rows.iter().enumerate() {
        // The lengths without the row's and the column's byte, and without the column's byte.
        let (mut diagonal, mut left) = (0, 0);
        for (column, &other) in of_columns.iter().enumerate() {
            let above = lengths[column + 1];
            let length = if byte == other { diagonal + 1 } else { above.max(left) };
            let leaves_out_first = if is_turned { left > above } else { above > left };
            if leaves_out_first {
                let at = row * directions.columns + column;
                directions.bits[at / 64] |= 1 << (at % 64);
            }
            lengths[column + 1] = length;
            (diagonal, left) = (above, length);
        }
        turns::copied(of_columns.len() * ENTRY_BYTES).await;
    }
    (lengths.last().map_or(0, |&length| length as usize), directions)
}

/// A part of both strings that is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    first: usize,
    second: usize,
    bytes: usize,
}

/// Returns the matches of the subsequence from the last to the first.
fn matches(first: &[u8], second: &[u8], directions: &Directions) -> Vec<Match> {
    let mut matches: Vec<Match> = Vec::new();
    let (mut at, mut other) = (first.len(), second.len());
    while at > 0 && other > 0 {
        if first[at - 1] == second[other - 1] {
            match matches.last_mut().filter(|last| (last.first, last.second) == (at, other)) {
                Some(last) => *last = Match { first: at - 1, second: other - 1, bytes: last.bytes + 1 },
                None => matches.push(Match { first: at - 1, second: other - 1, bytes: 1 }),
            }
            (at, other) = (at - 1, other - 1);
        } else if directions.leaves_out_first(at - 1, other - 1) {
            at -= 1;
        } else {
            other -= 1;
        }
    }
    matches
}

/// Writes the matches of at least the shortest length.
fn tell_matches(reply: &mut Reply<'_>, matches: &[Match], options: &Options, length: usize) {
    reply.map(2);
    reply.bulk(b"matches");
    let told = matches.iter().filter(|part| part.bytes >= options.shortest);
    reply.array(told.clone().count());
    for part in told {
        reply.array(if options.with_lengths { 3 } else { 2 });
        for from in [part.first, part.second] {
            reply.array(2);
            reply.count(from);
            reply.count(from + part.bytes - 1);
        }
        if options.with_lengths {
            reply.count(part.bytes);
        }
    }
    reply.bulk(b"len");
    reply.count(length);
}

/// Returns the value of a string, which is empty if the key does not exist.
async fn value(call: &mut Call<'_>, key: &[u8]) -> Result<Vec<u8>, Fault> {
    let value = call.keys.look(key, |head| {
        let value = head.map_or(Ok(&b""[..]), |head| head.string());
        value.map(<[u8]>::to_vec)
    });
    value.await?.map_err(|_| Fault::said("ERR The specified keys must contain string values"))
}

/// `LCS key key [LEN] [IDX] [MINMATCHLEN bytes] [WITHMATCHLEN]`.
pub(super) async fn lcs(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let first = value(call, args.get(1)).await?;
    let second = value(call, args.get(2)).await?;
    let options = Options::parse(call)?;
    let entries = (first.len() + 1).saturating_mul(second.len() + 1);
    if entries > TABLE_BYTES_MAX / ENTRY_BYTES {
        return Err(Fault::said(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    let (length, directions) = compute(&first, &second).await;
    let reply = &mut call.reply;
    if options.tells_length {
        reply.count(length);
        return Ok(());
    }
    let mut matches = matches(&first, &second, &directions);
    if options.tells_matches {
        tell_matches(reply, &matches, &options, length);
    } else {
        matches.reverse();
        let parts: Vec<&[u8]> =
            matches.iter().map(|part| &first[part.first..part.first + part.bytes]).collect();
        reply.bulk(&parts.concat());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter::block_on;
    use proptest::prelude::*;

    fn is_within(sequence: &[u8], string: &[u8]) -> bool {
        let mut bytes = string.iter();
        sequence.iter().all(|byte| bytes.any(|other| other == byte))
    }

    /// The length by the textbook's recurrence, on a whole table.
    fn length(first: &[u8], second: &[u8]) -> usize {
        let mut table = vec![vec![0; second.len() + 1]; first.len() + 1];
        for at in 0..first.len() {
            for other in 0..second.len() {
                table[at + 1][other + 1] = if first[at] == second[other] {
                    table[at][other] + 1
                } else {
                    table[at][other + 1].max(table[at + 1][other])
                };
            }
        }
        table[first.len()][second.len()]
    }

    proptest! {
        #[test]
        fn matches_form_a_longest_common_subsequence(
            first in proptest::collection::vec(0_u8..4, 0..40),
            second in proptest::collection::vec(0_u8..4, 0..40),
        ) {
            let (found, directions) = block_on(compute(&first, &second));
            prop_assert_eq!(found, length(&first, &second));
            let mut matches = matches(&first, &second, &directions);
            matches.reverse();
            let of = |string: &[u8], from: fn(&Match) -> usize| -> Vec<u8> {
                matches.iter().flat_map(|part| string[from(part)..from(part) + part.bytes].to_vec()).collect()
            };
            let sequence = of(&first, |part| part.first);
            prop_assert_eq!(sequence.len(), found);
            prop_assert_eq!(&sequence, &of(&second, |part| part.second));
            prop_assert!(is_within(&sequence, &first) && is_within(&sequence, &second));
            // The other order of the strings uses the other order of rows and columns.
            prop_assert_eq!(block_on(compute(&second, &first)).0, found);
        }
    }
}
