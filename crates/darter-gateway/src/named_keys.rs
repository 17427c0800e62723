//! The keys of commands whose arguments give the number or the places of the keys, and the keys that
//! a command reads as a whole.

use super::keyspace::{DATABASES, Scoped};
use super::number;
use super::request::Arguments;
use super::table::CommandId;
use std::ops::Range;

/// Returns the positions of the keys after the argument that gives their number; none if the number
/// is not possible.
fn counted(args: &Arguments<'_>, first: usize, at: usize) -> Range<usize> {
    let said = args.from(first + at).next().and_then(number::integer);
    let count = said.and_then(|said| usize::try_from(said).ok()).unwrap_or(0);
    let possible = args.len().saturating_sub(first + at + 1);
    at + 1..at + 1 + if count <= possible { count } else { 0 }
}

/// Returns the position of the argument that gives the number of the keys after it.
pub(super) fn count_at(id: CommandId) -> Option<usize> {
    use CommandId::{
        Blmpop, Bzmpop, Eval, EvalRo, Evalsha, EvalshaRo, Fcall, FcallRo, Lmpop, Sintercard, Zdiff,
        Zdiffstore, Zinter, Zintercard, Zinterstore, Zmpop, Zunion, Zunionstore,
    };
    match id {
        Lmpop | Sintercard | Zdiff | Zinter | Zintercard | Zmpop | Zunion => Some(1),
        Blmpop | Bzmpop | Eval | EvalRo | Evalsha | EvalshaRo | Fcall | FcallRo | Zdiffstore
        | Zinterstore | Zunionstore => Some(2),
        _ => None,
    }
}

/// Returns the positions of the keys whose number an argument gives, or of those that a command only
/// reads, and whose elements may be many, in a request that begins with argument `first`. All its
/// other keys are those of the table, and those after an option such as `STORE`.
pub(super) fn sources(id: CommandId, args: &Arguments<'_>, first: usize) -> Range<usize> {
    use CommandId::{
        Copy, Rename, Renamenx, Sdiffstore, Sinterstore, Sunionstore, Xread, Xreadgroup, Zrangestore,
    };
    match id {
        Copy | Rename | Renamenx => 1..2,
        Zrangestore => 2..3,
        Xread | Xreadgroup => streams(args, first),
        Sdiffstore | Sinterstore | Sunionstore => 2..(args.len() - first).max(2),
        _ => count_at(id).map_or(0..0, |at| counted(args, first, at)),
    }
}

/// Returns the key of the option `STORE` of a request that begins with argument `first`.
fn destination_of_sort(args: &Arguments<'_>, first: usize) -> Option<usize> {
    let (mut at, mut destination) = (first + 2, None);
    while at + 1 < args.len() {
        at += match &args.get(at).to_ascii_lowercase()[..] {
            b"limit" => 3,
            b"by" | b"get" => 2,
            b"store" => {
                destination = Some(at + 1 - first);
                2
            }
            _ => 1,
        };
    }
    destination
}

/// Returns the positions of the destinations that a `GEORADIUS` or `GEORADIUSBYMEMBER` names, whose
/// options begin at position `first`.
fn destinations_of_geo(args: &Arguments<'_>, first: usize) -> impl Iterator<Item = usize> {
    // The last argument has no successor.
    let words = args.from(first).take(args.len().saturating_sub(first + 1));
    [&b"store"[..], b"storedist"].into_iter().filter_map(move |name| {
        let at = words.clone().position(|word| word.eq_ignore_ascii_case(name));
        at.map(|at| first + at + 1)
    })
}

/// Returns the positions of the keys of a read of streams: the first half of what follows the word
/// `STREAMS`.
fn streams(args: &Arguments<'_>, first: usize) -> Range<usize> {
    let word = args.from(first).position(|word| word.eq_ignore_ascii_case(b"streams"));
    word.map_or(0..0, |at| at + 1..at + 1 + (args.len() - first - at - 1) / 2)
}

/// Returns the positions of the keys that follow options such as `STORE`, in a request that begins
/// with argument `first`.
pub(super) fn destinations(id: CommandId, args: &Arguments<'_>, first: usize) -> Vec<usize> {
    let geo = |from| destinations_of_geo(args, first + from).map(|place| place - first).collect();
    match id {
        CommandId::Georadius => geo(6),
        CommandId::Georadiusbymember => geo(5),
        CommandId::Sort => destination_of_sort(args, first).into_iter().collect(),
        CommandId::Xgroup if args.len() > first + 2 => vec![2],
        _ => Vec::new(),
    }
}

/// Returns the key in another database to which a command that begins with the first argument copies
/// or moves a key.
pub(super) fn sent_to(id: CommandId, args: &Arguments<'_>) -> Option<Scoped> {
    let (number, key) = match id {
        CommandId::Copy => {
            let at = args.from(3).position(|option| option.eq_ignore_ascii_case(b"db"))?;
            (args.from(4 + at).next()?, args.get(2))
        }
        CommandId::Move => (args.get(2), args.get(1)),
        _ => return None,
    };
    let database = number::integer(number).and_then(|number| u8::try_from(number).ok());
    Some((database.filter(|&database| database < DATABASES)?, key.to_vec()))
}
