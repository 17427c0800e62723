//! `DUMP` and `RESTORE`: values in the format of Redis's RDB files.

use super::strings::check_length;
use crate::call::{Call, too_long};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::keyspace::{Aggregate, Change, Draft, Head, Keyspace, Kind, Retries, Walked, score_of_record};
use crate::number;
use crate::rdb::{self, Value};
use crate::turns;

/// Elements read between two checks of the reply's length.
const CHUNK: usize = 4096;

/// Returns the elements of a key as a payload has them.
async fn elements(call: &mut Call<'_>, kind: Kind, aggregate: &Aggregate) -> Result<rdb::Elements, Fault> {
    let most = call.shared.options.output_bytes_max;
    let is_hash = kind == Kind::Hash;
    let mut dumped = if is_hash { rdb::Elements::of_hash() } else { rdb::Elements::of_sorted_set() };
    let mut elements = aggregate.elements();
    loop {
        let walked = call.keys.walk_elements(&mut elements, CHUNK, |name, record| {
            if is_hash {
                dumped.push_field(name, record);
            } else if let Some(score) = score_of_record(record) {
                dumped.push_member(name, score);
            }
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

/// `DUMP key`.
pub(super) async fn dump(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut retries = Retries::default();
    while let Some((record, aggregate)) = call.keys.source(call.args.get(1)).await? {
        let head = Head::parse(&record)?;
        let payload = match aggregate {
            None => rdb::dumped_string(head.string()?),
            Some(aggregate) => {
                let elements = elements(call, head.kind, &aggregate).await?;
                match elements.dumped() {
                    Some(payload) if call.keys.stands(&aggregate).await? => payload,
                    _ => {
                        retries.again().await?;
                        continue;
                    }
                }
            }
        };
        call.reply.bulk(&payload);
        return call.limit();
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
        Value::String(_) => {}
        Value::Hash(fields) => {
            for (name, value) in fields {
                keys.draft_field(draft, &name, &value).await?;
                turns::copied(value.len()).await;
            }
        }
        Value::SortedSet(members) => {
            for (name, score) in members {
                keys.draft_score(draft, &name, score).await?;
                turns::worked().await;
            }
        }
    }
    Ok(())
}

/// Sets a key to a value. Returns false if the key exists and may not be replaced.
async fn set(call: &mut Call<'_>, value: Value<'_>, end: Option<u64>, replaces: bool) -> Result<bool, Fault> {
    let Call { args, keys, shared, .. } = call;
    let key = args.get(1);
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
