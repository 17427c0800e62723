//! `DUMP` and `RESTORE`: values in the format of Redis's RDB files.

use super::strings::check_length;
use super::transactions::supported;
use super::{list_reads, lists, streams};
use crate::call::{Call, too_long};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{
    Aggregate, Change, Draft, Head, Keyspace, Kind, Retries, Walked, record_of_score, score_of_record,
};
use crate::number;
use crate::rdb::{self, Value};
use crate::turns;

/// Elements read between two checks of the reply's length.
const CHUNK: usize = 4096;

/// Returns the elements of a key as a payload has them.
async fn elements(call: &mut Call<'_>, kind: Kind, aggregate: &Aggregate) -> Result<rdb::Elements, Fault> {
    let most = call.shared.options.output_bytes_max;
    let mut dumped = match kind {
        Kind::Hash => rdb::Elements::of_hash(),
        Kind::SortedSet => rdb::Elements::of_sorted_set(),
        _ => rdb::Elements::of_set(),
    };
    let mut elements = aggregate.elements();
    loop {
        let walked = call.keys.walk_elements(&mut elements, CHUNK, |name, record| match kind {
            Kind::Hash => dumped.push_field(name, record),
            Kind::SortedSet => dumped.push_member(name, score_of_record(record).unwrap_or_default()),
            _ => dumped.push(name),
        });
        let walked = walked.await?;
        if dumped.bytes() > most {
            return Err(too_long());
        }
        if walked == Walked::Through {
            return Ok(dumped);
        }
    }
}

/// Returns the payload of a key with this head; `None` if the key has changed.
async fn payload(call: &mut Call<'_>, key: &[u8], record: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    let head = Head::parse(record)?;
    match head.kind {
        Kind::String => Ok(Some(rdb::dumped_string(head.string()?))),
        Kind::List => {
            let most = call.shared.options.output_bytes_max;
            let found = match list_reads::all(call, key, most).await {
                Err(fault) if fault.is_wrong_type() => return Ok(None),
                found => found?.ok_or_else(too_long)?,
            };
            let mut dumped = rdb::Elements::of_list();
            for element in found {
                dumped.push(&element);
                turns::copied(element.len()).await;
            }
            Ok(dumped.dumped())
        }
        Kind::Stream => {
            let most = call.shared.options.output_bytes_max;
            let check = |bytes| if bytes > most { Err(too_long()) } else { Ok(()) };
            Ok(match call.keys.whole_stream(key, check).await {
                Err(fault) if fault.is_wrong_type() => None,
                found => found?.map(|stream| rdb::dumped_stream(&stream)),
            })
        }
        Kind::Hash | Kind::SortedSet | Kind::Set => {
            let Some(aggregate) = call.keys.found(key, record, &[head.kind]).await? else { return Ok(None) };
            let dumped = elements(call, head.kind, &aggregate).await?.dumped();
            Ok(if call.keys.stands(&aggregate).await? { dumped } else { None })
        }
    }
}

/// `DUMP key`.
pub(super) async fn dump(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut retries = Retries::default();
    let key = call.args.get(1);
    while let Some((record, _)) = call.keys.source(key).await? {
        if let Some(payload) = payload(call, key, &record).await? {
            call.reply.bulk(&payload);
            return call.limit();
        }
        retries.again().await?;
    }
    call.reply.null();
    Ok(())
}

/// The options of `RESTORE`. A key's idle time and frequency are checked, and not kept.
#[derive(Debug, Default)]
struct Options {
    replaces: bool,
    /// The time to live is a point in time.
    is_time: bool,
}

impl Options {
    fn parse(call: &Call<'_>) -> Result<Self, Fault> {
        let mut options = Self::default();
        let (mut has_idle_time, mut has_frequency) = (false, false);
        let mut words = call.args.from(4);
        while let Some(word) = words.next() {
            let mut number = || number::integer(words.next().ok_or(SYNTAX)?).ok_or(NO_INTEGER);
            match &word.to_ascii_lowercase()[..] {
                b"replace" => options.replaces = true,
                b"absttl" => options.is_time = true,
                b"idletime" if !has_frequency => {
                    if number()? < 0 {
                        return Err(Fault::said("ERR Invalid IDLETIME value, must be >= 0"));
                    }
                    has_idle_time = true;
                }
                b"freq" if !has_idle_time => {
                    if !(0..=255).contains(&number()?) {
                        return Err(Fault::said("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                    }
                    has_frequency = true;
                }
                _ => return Err(SYNTAX),
            }
        }
        Ok(options)
    }

    /// Returns the expiry time; `None` if the key does not expire.
    fn end(&self, call: &Call<'_>) -> Result<Option<u64>, Fault> {
        let ttl = u64::try_from(call.integer(2)?);
        let ttl = ttl.map_err(|_| Fault::said("ERR Invalid TTL value, must be >= 0"))?;
        let end = if self.is_time { ttl } else { call.keys.now.saturating_add(ttl) };
        Ok((ttl > 0).then_some(end))
    }
}

/// The key exists and may not be replaced.
fn busy() -> Fault {
    Fault::said("BUSYKEY Target key name already exists.")
}

/// Adds the elements of a value to a draft.
async fn write(keys: &mut Keyspace, draft: &mut Draft, value: Value<'_>) -> Result<(), Fault> {
    match value {
        // They are not drafts.
        Value::String(_) | Value::List(_) | Value::Stream(_) => {}
        Value::Set(names) => {
            for name in names {
                keys.draft_element(draft, &name, b"").await?;
                turns::copied(name.len()).await;
            }
        }
        Value::Hash(fields) => {
            for (name, value) in fields {
                keys.draft_element(draft, &name, &value).await?;
                turns::copied(value.len()).await;
            }
        }
        Value::SortedSet(members) => {
            for (name, score) in members {
                keys.draft_element(draft, &name, &record_of_score(score)).await?;
                turns::worked().await;
            }
        }
    }
    Ok(())
}

/// Sets a key to a value. Returns false if the key exists and may not be replaced.
async fn set(call: &mut Call<'_>, value: Value<'_>, end: Option<u64>, replaces: bool) -> Result<bool, Fault> {
    let key = call.args.get(1);
    if let Value::List(elements) = &value {
        let elements = elements.iter().map(|element| &element[..]).collect();
        return lists::set(call, key, elements, end, |head| replaces || head.is_none()).await;
    }
    if let Value::Stream(stream) = &value {
        for (_, body) in &stream.entries {
            streams::check_entry(call, key, body)?;
        }
        if !stream.is_one_record() {
            supported(call, "a stream that takes several records, or has consumer groups,")?;
        }
        return call.keys.set_stream(key, stream, end, |head| replaces || head.is_none()).await;
    }
    let Call { keys, shared, .. } = call;
    let kind = match &value {
        Value::String(value) => {
            check_length(value.len(), shared.argument_bytes_max)?;
            let change = keys.change(key, |head, record| {
                if head.is_some() && !replaces {
                    return Ok(Change::Keep(false));
                }
                Head::begin(record, Kind::String, end);
                record.extend_from_slice(value);
                Ok(Change::Put(true))
            });
            return change.await;
        }
        Value::Hash(_) => Kind::Hash,
        Value::SortedSet(_) => Kind::SortedSet,
        Value::Set(_) => Kind::Set,
        Value::List(_) => Kind::List,
        Value::Stream(_) => Kind::Stream,
    };
    let mut draft = Draft::new(kind, key, end)?;
    if let Err(fault) = write(keys, &mut draft, value).await {
        keys.discard_draft(draft).await?;
        return Err(fault);
    }
    keys.publish_draft(draft, |head| replaces || head.is_none()).await
}

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`.
pub(super) async fn restore(call: &mut Call<'_>) -> Result<(), Fault> {
    let options = Options::parse(call)?;
    let (key, payload) = (call.args.get(1), call.args.get(3));
    if !options.replaces && call.keys.look(key, |head| head.is_some()).await? {
        return Err(busy());
    }
    let end = options.end(call)?;
    let body = rdb::verified(payload);
    let body = body.ok_or_else(|| Fault::said("ERR DUMP payload version or checksum are wrong"))?;
    let value = rdb::read(body).ok_or_else(|| Fault::said("ERR Bad data format"))?;
    if end.is_some_and(|end| end <= call.keys.now) {
        // As in Redis, a key that has expired already only replaces the old one.
        if options.replaces {
            call.keys.remove(key).await?;
        }
    } else if !set(call, value, end, options.replaces).await? {
        return Err(busy());
    }
    call.reply.ok();
    Ok(())
}
