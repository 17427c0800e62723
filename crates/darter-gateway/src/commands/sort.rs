//! `SORT` and `SORT_RO`: the elements of a key in an order that the elements themselves or other keys
//! give.
//!
//! All elements are read into memory, as many bytes as a reply may have. Keys that patterns name are
//! read together.

use super::permission::check_sort;
use crate::call::Call;
use crate::fault::{Fault, NO_INTEGER, SYNTAX, WRONG_TYPE};
use crate::keyspace::{Aggregate, KEY_BYTES, Kind, Retries, TOGETHER_MAX, Walked};
use crate::number;
use crate::payload::{Limits, list_elements, set_list};
use crate::request::Arguments;
use crate::score;
use crate::turns;
use std::cmp::Ordering;

/// Elements read between two checks of their bytes.
const CHUNK: usize = 4096;
/// Elements whose values are read together for the reply.
const TOLD: usize = 64;

/// The options of the command.
#[derive(Debug)]
struct Options<'a> {
    /// The pattern of the keys to sort by; `None` to sort by the elements.
    by: Option<Pattern<'a>>,
    /// Whether the elements stay in the order of their key.
    keeps_order: bool,
    /// What is returned for each element; the element itself if there is none.
    gets: Vec<Pattern<'a>>,
    is_descending: bool,
    is_alphabetic: bool,
    offset: i64,
    count: i64,
    /// The key of the list that gets the result; `None` to return it.
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: &Arguments<'a>, is_read_only: bool) -> Result<Self, Fault> {
        let mut options = Self {
            by: None,
            keeps_order: false,
            gets: Vec::new(),
            is_descending: false,
            is_alphabetic: false,
            offset: 0,
            count: -1,
            store: None,
        };
        let mut words = args.from(2);
        while let Some(word) = words.next() {
            match &word.to_ascii_lowercase()[..] {
                b"asc" => options.is_descending = false,
                b"desc" => options.is_descending = true,
                b"alpha" => options.is_alphabetic = true,
                b"limit" if words.len() >= 2 => {
                    let mut next = || words.next().and_then(number::integer).ok_or(NO_INTEGER);
                    (options.offset, options.count) = (next()?, next()?);
                }
                b"by" => {
                    let pattern = Pattern::parse(words.next().ok_or(SYNTAX)?);
                    options.keeps_order |= !matches!(pattern, Pattern::Key { .. });
                    options.by = Some(pattern);
                }
                b"get" => options.gets.push(Pattern::parse(words.next().ok_or(SYNTAX)?)),
                b"store" if !is_read_only => options.store = Some(words.next().ok_or(SYNTAX)?),
                _ => return Err(SYNTAX),
            }
        }
        Ok(options)
    }

    /// Returns the part of `length` elements that is returned.
    fn window(&self, length: usize) -> std::ops::Range<usize> {
        let start = usize::try_from(self.offset.max(0)).unwrap_or(usize::MAX).min(length);
        let count = usize::try_from(self.count).unwrap_or(length).min(length - start);
        start..start + count
    }
}

/// What a pattern names for an element.
#[derive(Clone, Copy, Debug)]
enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// A pattern without `*`.
    Nothing,
    /// The value of a key, or of a field of a hash.
    Key { before: &'a [u8], behind: &'a [u8], field: Option<&'a [u8]> },
}

impl<'a> Pattern<'a> {
    fn parse(text: &'a [u8]) -> Self {
        if text == b"#" {
            return Self::Element;
        }
        let Some(star) = text.iter().position(|&byte| byte == b'*') else { return Self::Nothing };
        let (before, behind) = (&text[..star], &text[star + 1..]);
        let arrow = behind.windows(2).position(|pair| pair == b"->").filter(|at| at + 2 < behind.len());
        match arrow {
            Some(at) => Self::Key { before, behind: &behind[..at], field: Some(&behind[at + 2..]) },
            None => Self::Key { before, behind, field: None },
        }
    }
}

/// Returns the value of a field, if its key is a hash.
async fn field(call: &mut Call<'_>, key: &[u8], field: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    match call.keys.element_of((key, Kind::Hash), field).await {
        Err(fault) if fault.is_wrong_type() => Ok(None),
        found => found,
    }
}

/// Returns what a pattern names for each of some elements.
async fn look_up(
    call: &mut Call<'_>,
    pattern: Pattern<'_>,
    elements: &[Vec<u8>],
) -> Result<Vec<Option<Vec<u8>>>, Fault> {
    let (before, behind, name) = match pattern {
        Pattern::Element => return Ok(elements.iter().cloned().map(Some).collect()),
        Pattern::Nothing => return Ok(vec![None; elements.len()]),
        Pattern::Key { before, behind, field } => (before, behind, field),
    };
    let keys: Vec<Vec<u8>> = elements.iter().map(|element| [before, element, behind].concat()).collect();
    let mut found = Vec::with_capacity(keys.len());
    while let Some(key) = keys.get(found.len()) {
        if key.len() > KEY_BYTES {
            // No gateway can store it.
            found.push(None);
        } else if let Some(name) = name {
            found.push(field(call, key, name).await?);
        } else {
            let some = keys[found.len()..].iter().map(Vec::as_slice);
            let some = some.take_while(|key| key.len() <= KEY_BYTES).take(TOGETHER_MAX);
            let value = |head: Option<crate::keyspace::Head<'_>>| {
                found.push(head.and_then(|head| head.string().ok()).map(<[u8]>::to_vec));
            };
            call.keys.look_at_first(some, value).await?;
        }
        turns::worked().await;
    }
    Ok(found)
}

fn too_large() -> Fault {
    Fault::said("ERR the elements have more bytes than --output-bytes allows")
}

/// Returns the elements of a key: those of a set in ascending order, those of a list and of a sorted
/// set in their order if that is kept.
async fn elements(
    call: &mut Call<'_>,
    key: &[u8],
    kind: Option<Kind>,
    options: &Options<'_>,
) -> Result<Vec<Vec<u8>>, Fault> {
    if kind == Some(Kind::List) {
        let most = call.shared.options.output_bytes_max;
        let mut elements = list_elements(call.keys, key, most).await?.ok_or_else(too_large)?;
        if options.keeps_order && options.is_descending {
            elements.reverse();
        }
        return Ok(elements);
    }
    let mut retries = Retries::default();
    loop {
        let found = call.keys.find_all(&[key], &[Kind::Set, Kind::SortedSet], usize::MAX).await?;
        let Some(aggregate) = found.into_iter().flatten().next() else { return Ok(Vec::new()) };
        let elements = if aggregate.kind() == Kind::SortedSet && options.keeps_order {
            by_score(call, &aggregate, options.is_descending).await?
        } else {
            by_name(call, &aggregate).await?
        };
        if call.keys.stands(&aggregate).await? {
            return Ok(elements);
        }
        retries.again().await?;
    }
}

async fn by_name(call: &mut Call<'_>, aggregate: &Aggregate) -> Result<Vec<Vec<u8>>, Fault> {
    let most = call.shared.options.output_bytes_max;
    let (mut found, mut bytes, mut left) = (Vec::new(), 0, aggregate.elements());
    loop {
        let walk = call.keys.walk_elements(&mut left, CHUNK, |name, _| {
            bytes += size_of::<Vec<u8>>() + name.len();
            if bytes <= most {
                found.push(name.to_vec());
            }
        });
        let walked = walk.await?;
        if bytes > most {
            return Err(too_large());
        }
        if walked == Walked::Through {
            return Ok(found);
        }
    }
}

async fn by_score(
    call: &mut Call<'_>,
    aggregate: &Aggregate,
    is_reverse: bool,
) -> Result<Vec<Vec<u8>>, Fault> {
    let most = call.shared.options.output_bytes_max;
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut ranks = aggregate.all_ranks(is_reverse, usize::MAX);
    while let Some(member) = call.keys.next_member(&mut ranks).await? {
        bytes += size_of::<Vec<u8>>() + member.name.len();
        if bytes > most {
            return Err(too_large());
        }
        found.push(member.name);
    }
    Ok(found)
}

/// Parses a number as C's `strtod` does. Text without any character is 0, and a number too small for
/// full precision is refused.
fn number_of(text: &[u8]) -> Result<f64, Fault> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let number = if text.is_empty() { Some(0.0) } else { score::parse(text.trim_ascii_start()) };
    number
        .filter(|number| !number.is_subnormal())
        .ok_or_else(|| Fault::said("ERR One or more scores can't be converted into double"))
}

/// What an element is sorted by.
#[derive(Debug, PartialEq)]
enum Weight {
    Number(f64),
    Text(Option<Vec<u8>>),
}

impl Weight {
    fn of(value: Option<Vec<u8>>, is_alphabetic: bool) -> Result<Self, Fault> {
        Ok(match value {
            value if is_alphabetic => Self::Text(value),
            Some(text) => Self::Number(number_of(&text)?),
            None => Self::Number(0.0),
        })
    }

    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one.partial_cmp(other).unwrap_or(Ordering::Equal),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            _ => Ordering::Equal,
        }
    }
}

/// Sorts elements. Those of equal weights are in the order of their bytes.
async fn sorted(
    call: &mut Call<'_>,
    elements: Vec<Vec<u8>>,
    options: &Options<'_>,
) -> Result<Vec<Vec<u8>>, Fault> {
    let most = call.shared.options.output_bytes_max;
    let by = options.by.filter(|_| !options.keeps_order).unwrap_or(Pattern::Element);
    let (mut weighted, mut bytes) = (Vec::with_capacity(elements.len()), 0);
    for some in elements.chunks(TOGETHER_MAX) {
        let values = look_up(call, by, some).await?;
        for (element, value) in some.iter().zip(values) {
            bytes += size_of::<Weight>() + element.len() + value.as_ref().map_or(0, Vec::len);
            if bytes > 2 * most {
                return Err(too_large());
            }
            // Elements that keep their order are those of a set, which has none.
            weighted
                .push((Weight::of(value, options.is_alphabetic || options.keeps_order)?, element.clone()));
        }
    }
    weighted.sort_by(|(weight, element), (other_weight, other)| {
        let order = weight.order(other_weight).then_with(|| element.cmp(other));
        if options.is_descending { order.reverse() } else { order }
    });
    Ok(weighted.into_iter().map(|(_, element)| element).collect())
}

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern…] [ASC|DESC] [ALPHA] [STORE key]`,
/// `SORT_RO` with the same options without `STORE`.
pub(super) async fn sort(call: &mut Call<'_>, is_read_only: bool) -> Result<(), Fault> {
    let args = call.args;
    let options = Options::parse(&args, is_read_only)?;
    if matches!(options.by, Some(Pattern::Key { .. })) {
        check_sort(call, "BY")?;
    }
    if !options.gets.is_empty() {
        check_sort(call, "GET")?;
    }
    let kind = call.keys.look(args.get(1), |head| head.map(|head| head.kind)).await?;
    if kind.is_some_and(|kind| !matches!(kind, Kind::List | Kind::Set | Kind::SortedSet)) {
        return Err(WRONG_TYPE);
    }
    let mut found = elements(call, args.get(1), kind, &options).await?;
    if !(options.keeps_order && matches!(kind, Some(Kind::List | Kind::SortedSet))) {
        found = sorted(call, found, &options).await?;
    }
    let window = options.window(found.len());
    match options.store {
        Some(key) => store(call, key, &found[window], &options).await,
        None => tell(call, &found[window], &options).await,
    }
}

/// Stores what is returned for elements as a list. An empty one removes the key.
async fn store(
    call: &mut Call<'_>,
    key: &[u8],
    elements: &[Vec<u8>],
    options: &Options<'_>,
) -> Result<(), Fault> {
    let most = call.shared.options.output_bytes_max;
    let gets = if options.gets.is_empty() { &[Pattern::Element][..] } else { &options.gets };
    let (mut stored, mut bytes) = (Vec::new(), 0);
    for some in elements.chunks(TOLD) {
        let mut columns = Vec::with_capacity(gets.len());
        for &pattern in gets {
            columns.push(look_up(call, pattern, some).await?.into_iter());
        }
        for column in (0..some.len()).flat_map(|_| 0..gets.len()) {
            let value = columns[column].next().flatten().unwrap_or_default();
            bytes += size_of::<Vec<u8>>() + value.len();
            stored.push(value);
        }
        if bytes > most {
            return Err(too_large());
        }
        turns::worked().await;
    }
    if stored.is_empty() {
        call.keys.remove(key).await?;
    } else {
        let elements = stored.iter().map(Vec::as_slice).collect();
        set_list(call.keys, Limits::of_gateway(call.shared), key, elements, None, |_| true).await?;
    }
    call.reply.count(stored.len());
    Ok(())
}

/// Writes what is returned for elements.
async fn tell(call: &mut Call<'_>, elements: &[Vec<u8>], options: &Options<'_>) -> Result<(), Fault> {
    call.reply.array(elements.len() * options.gets.len().max(1));
    for some in elements.chunks(TOLD) {
        let mut columns = Vec::with_capacity(options.gets.len());
        for &pattern in &options.gets {
            columns.push(look_up(call, pattern, some).await?.into_iter());
        }
        for element in some {
            if columns.is_empty() {
                call.reply.bulk(element);
            }
            for column in &mut columns {
                call.reply.bulk_or_null(column.next().flatten().as_deref());
            }
            call.limit()?;
            turns::copied(element.len()).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_keys_and_fields() {
        let key = |before: &'static [u8], behind: &'static [u8], field: Option<&'static [u8]>| {
            format!("{:?}", Pattern::Key { before, behind, field })
        };
        for (text, expected) in [
            (&b"w_*"[..], key(b"w_", b"", None)),
            (b"*", key(b"", b"", None)),
            (b"a*b*c", key(b"a", b"b*c", None)),
            (b"h*x->f", key(b"h", b"x", Some(b"f"))),
            (b"->*->", key(b"->", b"->", None)),
            (b"*->a->b", key(b"", b"", Some(b"a->b"))),
            (b"#", "Element".to_owned()),
            (b"#x", "Nothing".to_owned()),
            (b"->f", "Nothing".to_owned()),
        ] {
            assert_eq!(format!("{:?}", Pattern::parse(text)), expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn windows_lie_within_the_elements() {
        let window = |offset, count| {
            let options = Options {
                by: None,
                keeps_order: false,
                gets: Vec::new(),
                is_descending: false,
                is_alphabetic: false,
                offset,
                count,
                store: None,
            };
            options.window(5)
        };
        for (offset, count, expected) in [
            (0, -1, 0..5),
            (-3, 2, 0..2),
            (4, 9, 4..5),
            (5, 1, 5..5),
            (i64::MAX, i64::MAX, 5..5),
            (1, 0, 1..1),
            (i64::MIN, i64::MIN, 0..5),
        ] {
            assert_eq!(window(offset, count), expected, "{offset} {count}");
        }
    }
}
