//! Random elements: `HRANDFIELD`, `ZRANDMEMBER`, `SRANDMEMBER`, `SPOP`. Every element is equally
//! likely, which requires a walk over all of them.

use super::transactions::{Body, atomically};
use crate::call::{Call, too_long};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{Aggregate, Kind, Packed, Retries, Taken, Walked, score_of_record};
use crate::number;
use crate::turns;
use darter_fabric::random_word;
use std::collections::BTreeSet;

/// Elements examined between two turns of other clients.
const CHUNK: usize = 4096;

/// Most members that are removed in one transaction.
const TAKEN: usize = 10_000;

/// Elements with their records.
type Elements = Vec<(Vec<u8>, Vec<u8>)>;

/// Draws a number below a limit, which is not 0.
fn below(limit: usize) -> usize {
    ((u128::from(random_word()) * limit as u128) >> 64) as usize
}

/// A sample of a stream. Of the elements seen so far, each subset of the wanted size is equally
/// likely.
#[derive(Debug)]
struct Sample {
    wanted: usize,
    seen: usize,
    /// Bytes of the elements drawn.
    bytes: usize,
    drawn: Elements,
}

impl Sample {
    fn of(wanted: usize) -> Self {
        Self { wanted, seen: 0, bytes: 0, drawn: Vec::new() }
    }

    /// Returns the names drawn.
    fn names(self) -> Vec<Vec<u8>> {
        self.drawn.into_iter().map(|(name, _)| name).collect()
    }

    /// Adds an element of the stream.
    fn see(&mut self, name: &[u8], record: &[u8]) {
        self.seen += 1;
        let is_filled = self.drawn.len() == self.wanted;
        let place = if is_filled { below(self.seen) } else { self.drawn.len() };
        if place >= self.wanted {
            return;
        }
        let element = (name.to_vec(), record.to_vec());
        self.bytes += name.len() + record.len();
        if is_filled {
            let (name, record) = std::mem::replace(&mut self.drawn[place], element);
            self.bytes -= name.len() + record.len();
        } else {
            self.drawn.push(element);
        }
    }
}

/// Draws at most `wanted` different elements.
async fn draw(call: &mut Call<'_>, kind: Kind, wanted: usize) -> Result<Elements, Fault> {
    let most = call.shared.options.output_bytes_max;
    let mut retries = Retries::default();
    while let Some(aggregate) = call.keys.find(call.args.get(1), kind).await? {
        let drawn = draw_from(call, &aggregate, wanted, most).await?;
        if call.keys.stands(&aggregate).await? {
            return Ok(drawn.drawn);
        }
        retries.again().await?;
    }
    Ok(Vec::new())
}

async fn draw_from(
    call: &mut Call<'_>,
    aggregate: &Aggregate,
    wanted: usize,
    most: usize,
) -> Result<Sample, Fault> {
    let mut sample = Sample::of(wanted);
    let mut elements = aggregate.elements();
    if wanted == 0 {
        return Ok(sample);
    }
    loop {
        let walk = call.keys.walk_elements(&mut elements, CHUNK, |name, record| {
            if sample.bytes <= most {
                sample.see(name, record);
            }
        });
        let walked = walk.await?;
        if sample.bytes > most {
            return Err(too_long());
        }
        if walked == Walked::Through {
            break;
        }
    }
    Ok(sample)
}

/// `HRANDFIELD key [count [WITHVALUES]]`, `ZRANDMEMBER key [count [WITHSCORES]]`, `SRANDMEMBER key
/// [count]`.
pub(super) async fn random(call: &mut Call<'_>, kind: Kind) -> Result<(), Fault> {
    let args = call.args;
    if kind == Kind::Set && args.len() > 3 {
        return Err(SYNTAX);
    }
    if args.len() == 2 {
        let drawn = draw(call, kind, 1).await?;
        call.reply.bulk_or_null(drawn.first().map(|(name, _)| &name[..]));
        return Ok(());
    }
    let count = number::integer(args.get(2)).ok_or(NO_INTEGER)?;
    let with: &[u8] = if kind == Kind::Hash { b"withvalues" } else { b"withscores" };
    if count == i64::MIN {
        return Err(Fault::said(format!(
            "ERR value is out of range, value must between {} and {}",
            -i64::MAX,
            i64::MAX
        )));
    }
    let has_records = match args.len() {
        3 => false,
        4 if args.get(3).eq_ignore_ascii_case(with) => true,
        _ => return Err(SYNTAX),
    };
    if has_records && !(-i64::MAX / 2..=i64::MAX / 2).contains(&count) {
        return Err(Fault::said("ERR value is out of range"));
    }
    let repeats = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count >= 0 {
        let drawn = draw(call, kind, repeats).await?;
        return write(call, kind, has_records, drawn.len(), drawn.iter()).await;
    }
    let all = draw(call, kind, usize::MAX).await?;
    let repeats = if all.is_empty() { 0 } else { repeats };
    let drawn = std::iter::repeat_with(|| &all[below(all.len())]).take(repeats);
    write(call, kind, has_records, repeats, drawn).await
}

/// Removes members of a large set, and returns the members that were there.
async fn take_each(call: &mut Call<'_>, set: &Aggregate, names: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Fault> {
    call.keys.read_elements(set, names.iter().map(Vec::as_slice)).await?;
    let mut taken = Vec::with_capacity(names.len());
    for name in names {
        if call.keys.remove_field(set, name).await? {
            taken.push(name.clone());
        }
        turns::worked().await;
    }
    Ok(taken)
}

/// Does the same in a transaction, if the index has transactions: the members of a set that has
/// ended may also be those of another key, which was made from it.
async fn take(call: &mut Call<'_>, set: &Aggregate, names: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Fault> {
    if !call.shared.has_transactions || call.keys.is_in_transaction() {
        return take_each(call, set, names).await;
    }
    let mut taken = Vec::new();
    let transaction = atomically(call, BTreeSet::new(), async |call| {
        let stands = call.keys.stands(set).await?;
        taken = if stands { take_each(call, set, names).await? } else { Vec::new() };
        Ok(if taken.is_empty() { Body::Abandoned } else { Body::Done })
    });
    Box::pin(transaction).await?;
    Ok(taken)
}

/// Removes up to `wanted` members of a set at random, and appends them to `popped`. Returns whether
/// there are no more of them.
async fn remove_some(call: &mut Call<'_>, wanted: usize, popped: &mut Vec<Vec<u8>>) -> Result<bool, Fault> {
    let choose = |packed: Packed<'_>| {
        let mut sample = Sample::of(wanted);
        packed.iter().filter(|_| wanted > 0).for_each(|(name, record)| sample.see(name, record));
        sample.drawn
    };
    let set = match call.keys.take_from_small((call.args.get(1), Kind::Set), choose).await? {
        Taken::Done(taken) => {
            popped.extend(taken.into_iter().map(|(name, _)| name));
            return Ok(true);
        }
        Taken::Large(set) => set,
    };
    let most = call.shared.options.output_bytes_max;
    let names = draw_from(call, &set, wanted, most).await?.names();
    let some = &names[..names.len().min(TAKEN)];
    let taken = take(call, &set, some).await?;
    // Other clients may have removed some that were drawn.
    let is_all = names.len() < wanted && taken.len() == names.len();
    popped.extend(taken);
    Ok(is_all || wanted == 0)
}

/// Removes up to `wanted` members of a set at random, and returns them.
async fn remove(call: &mut Call<'_>, wanted: usize) -> Result<Vec<Vec<u8>>, Fault> {
    let (mut popped, mut retries) = (Vec::new(), Retries::default());
    loop {
        let before = popped.len();
        let removed = match remove_some(call, wanted - before, &mut popped).await {
            Ok(false) if popped.len() == before => retries.again().await.map(|()| false),
            removed => removed,
        };
        match removed {
            Ok(false) if popped.len() < wanted => {}
            Err(fault) if popped.is_empty() => return Err(fault),
            // Members that were removed must not be lost.
            Ok(_) | Err(_) => return Ok(popped),
        }
    }
}

/// `SPOP key [count]`.
pub(super) async fn pop(call: &mut Call<'_>) -> Result<(), Fault> {
    match call.args.len() {
        2 => {
            let popped = remove(call, 1).await?;
            call.reply.bulk_or_null(popped.first().map(Vec::as_slice));
        }
        3 => {
            let said = number::integer(call.args.get(2)).and_then(|said| usize::try_from(said).ok());
            let wanted = said.ok_or_else(|| Fault::said("ERR value is out of range, must be positive"))?;
            let popped = remove(call, wanted).await?;
            call.reply.set(popped.len());
            for name in popped {
                call.reply.bulk(&name);
                turns::copied(name.len()).await;
            }
        }
        _ => return Err(SYNTAX),
    }
    Ok(())
}

/// Writes drawn elements.
async fn write<'e>(
    call: &mut Call<'_>,
    kind: Kind,
    has_records: bool,
    count: usize,
    drawn: impl Iterator<Item = &'e (Vec<u8>, Vec<u8>)>,
) -> Result<(), Fault> {
    let is_nested = has_records && call.reply.is_resp3();
    call.reply.array(if has_records && !is_nested { count * 2 } else { count });
    for (name, record) in drawn {
        if is_nested {
            call.reply.array(2);
        }
        call.reply.bulk(name);
        match kind {
            _ if !has_records => {}
            Kind::SortedSet => call.reply.double(score_of_record(record).unwrap_or_default()),
            _ => call.reply.bulk(record),
        }
        call.limit()?;
        turns::copied(name.len() + record.len()).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Sample, below};

    #[test]
    fn every_element_is_as_likely_as_every_other() {
        const DRAWS: usize = 20_000;
        let mut counts = [0_usize; 10];
        for _ in 0..DRAWS {
            let mut sample = Sample::of(3);
            for element in 0..10_u8 {
                sample.see(&[element], b"");
            }
            assert_eq!(sample.drawn.len(), 3);
            for (name, _) in sample.drawn {
                counts[usize::from(name[0])] += 1;
            }
            assert!(below(1) == 0 && below(7) < 7);
        }
        // Three tenths each; the bounds are more than ten standard deviations away.
        assert!(counts.iter().all(|count| (5200..6800).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_sample_counts_the_bytes_that_it_has() {
        let mut sample = Sample::of(3);
        for length in 0..1000 {
            sample.see(b"name", &vec![0; length]);
            let bytes: usize = sample.drawn.iter().map(|(name, record)| name.len() + record.len()).sum();
            assert_eq!(sample.bytes, bytes);
        }
        assert!(sample.bytes > 3 * 4 + 3, "an element was replaced by a larger one");
    }
}
