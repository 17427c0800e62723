//! Commands that read elements of lists.

use crate::call::Call;
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{End, Retries};
use crate::number;
use crate::turns;

/// `LRANGE key start stop`.
pub(super) async fn lrange(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, start, stop) = (call.args.get(1), call.integer(2)?, call.integer(3)?);
    let (position, mut retries) = (call.reply.position(), Retries::default());
    let mut count = 0;
    while let Some(mut walk) = call.keys.walk_part(key, start, stop).await? {
        // A walk from the right meets the last elements first.
        let (mut later, mut bytes) = (Vec::new(), 0);
        while let Some(piece) = call.keys.next_piece(&mut walk).await? {
            if walk.from == End::Right {
                bytes += piece.bytes();
                if bytes > call.shared.options.output_bytes_max {
                    return Err(crate::call::too_long());
                }
                later.push(piece);
                continue;
            }
            count += write(call, piece.elements(End::Left))?;
            turns::worked().await;
        }
        while let Some(piece) = later.pop() {
            count += write(call, piece.elements(End::Left))?;
            turns::worked().await;
        }
        if call.keys.walk_stands(&walk).await? {
            break;
        }
        call.reply.take_back(position);
        count = 0;
        retries.again().await?;
    }
    call.reply.array_from(position, count);
    Ok(())
}

/// Writes elements and returns their number.
fn write<'e>(call: &mut Call<'_>, elements: impl Iterator<Item = &'e [u8]>) -> Result<usize, Fault> {
    let mut count = 0;
    for element in elements {
        call.reply.bulk(element);
        count += 1;
    }
    call.limit()?;
    Ok(count)
}

/// `LINDEX key index`.
pub(super) async fn lindex(call: &mut Call<'_>) -> Result<(), Fault> {
    let key = call.args.get(1);
    let at = match call.integer(2) {
        Ok(at) => at,
        // Redis reads the key first.
        Err(fault) if call.keys.list_length(key).await? > 0 => return Err(fault),
        Err(_) => {
            call.reply.null();
            return Ok(());
        }
    };
    let mut retries = Retries::default();
    loop {
        let Some(mut walk) = call.keys.walk_part(key, at, at).await? else {
            call.reply.null();
            return Ok(());
        };
        let piece = call.keys.next_piece(&mut walk).await?;
        if call.keys.walk_stands(&walk).await? {
            let element = piece.as_ref().and_then(|piece| piece.elements(End::Left).next());
            call.reply.bulk_or_null(element);
            return Ok(());
        }
        retries.again().await?;
    }
}

/// The options of `LPOS`.
#[derive(Clone, Copy, Debug)]
struct Search {
    from: End,
    /// Matches to leave out.
    left_out: u64,
    /// The most matches to return; `None` returns one, not as an array.
    count: Option<usize>,
    /// The most elements to compare.
    compared_max: usize,
}

impl Search {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        let mut search = Self { from: End::Left, left_out: 0, count: None, compared_max: usize::MAX };
        let mut options = call.args.from(3);
        while let Some(option) = options.next() {
            let value = options.next().ok_or(SYNTAX)?;
            let count = |name: &str| {
                let count = number::integer(value).and_then(|count| usize::try_from(count).ok());
                let negative = || Fault::said(format!("ERR {name} can't be negative"));
                count.map(|count| if count == 0 { usize::MAX } else { count }).ok_or_else(negative)
            };
            match &option.to_ascii_lowercase()[..] {
                b"rank" => {
                    let rank = number::integer(value).ok_or(NO_INTEGER)?;
                    if rank == 0 {
                        return Err(Fault::said(
                            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to \
                             start from the end of the list",
                        ));
                    }
                    search.from = if rank < 0 { End::Right } else { End::Left };
                    // The lowest number has no counterpart, and counts as -1 in Redis.
                    search.left_out = rank.checked_abs().map_or(0, |rank| rank as u64 - 1);
                }
                b"count" => search.count = Some(count("COUNT")?),
                b"maxlen" => search.compared_max = count("MAXLEN")?,
                _ => return Err(SYNTAX),
            }
        }
        Ok(search)
    }
}

/// `LPOS key element [RANK rank] [COUNT count] [MAXLEN count]`.
pub(super) async fn lpos(call: &mut Call<'_>) -> Result<(), Fault> {
    let search = Search::parse(call)?;
    let (key, wanted) = (call.args.get(1), call.args.get(2));
    let (mut matches, mut retries) = (Vec::new(), Retries::default());
    let choose = |length: usize| (search.from, 0, length.min(search.compared_max));
    while let Some(mut walk) = call.keys.walk_list(key, choose).await? {
        let (mut at, mut left_out) = (0, search.left_out);
        while matches.len() < search.count.unwrap_or(1)
            && let Some(piece) = call.keys.next_piece(&mut walk).await?
        {
            for element in piece.elements(search.from) {
                if element == wanted && matches.len() < search.count.unwrap_or(1) {
                    if left_out > 0 {
                        left_out -= 1;
                    } else {
                        let is_reverse = search.from == End::Right;
                        matches.push(if is_reverse { walk.length.saturating_sub(at + 1) } else { at });
                    }
                }
                at += 1;
            }
            turns::worked().await;
        }
        if call.keys.walk_stands(&walk).await? {
            break;
        }
        matches.clear();
        retries.again().await?;
    }
    if search.count.is_none() {
        match matches.first() {
            Some(&at) => call.reply.count(at),
            None => call.reply.null(),
        }
        return Ok(());
    }
    call.reply.array(matches.len());
    for at in matches {
        call.reply.count(at);
        turns::worked().await;
    }
    Ok(())
}
