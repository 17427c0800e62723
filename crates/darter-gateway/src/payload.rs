//! The values of keys as payloads (`rdb`): what `DUMP`, `RESTORE` and programs that move keys share.

use crate::call::{argument_too_long, too_long};
use crate::fault::Fault;
use crate::keyspace::{
    Aggregate, Change, Draft, End, Field, Head, Keyspace, Kind, ListElements, Retries, Walked, is_one_record,
    record_of_score, score_of_record,
};
use crate::rdb::{self, TimedField, Value};
use crate::request::BULK_BYTES_MAX;
use crate::state::{GatewayState, value_bytes_max};
use crate::turns;
use darter::engine::Engine;
use darter::{IndexKind, Store};

/// Elements read between two checks of the payload's length.
const CHUNK: usize = 4096;

/// Bytes of a chunk's record and its place besides the key and the elements, and twice the bytes of
/// the elements' lengths.
const PLACE_BYTES: usize = 256;

/// Fails if a value of `bytes` bytes is too long, before memory is allocated for it.
pub(crate) fn check_length(bytes: usize, most: usize) -> Result<(), Fault> {
    if bytes > BULK_BYTES_MAX {
        return Err(Fault::said("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    if bytes > most { Err(argument_too_long(bytes, most)) } else { Ok(()) }
}

/// The value of a key, as `DUMP` returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dumped {
    /// The reply to `DUMP`.
    pub payload: Vec<u8>,
    /// When the key expires, in ms since the Unix epoch.
    pub expiry: Option<u64>,
}

/// The limits of a pool on values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most bytes of a string.
    value_bytes_max: usize,
    has_transactions: bool,
}

impl Limits {
    /// Returns the limits of the pool of a store.
    pub(crate) fn of(store: &Store) -> Self {
        Self {
            value_bytes_max: value_bytes_max(store).min(BULK_BYTES_MAX),
            has_transactions: store.index().kind() == Some(IndexKind::Quiver),
        }
    }

    /// Returns the limits of the pool of a gateway.
    pub(crate) fn of_gateway(shared: &GatewayState) -> Self {
        Self { value_bytes_max: shared.argument_bytes_max, has_transactions: shared.has_transactions }
    }

    /// Returns the most bytes of an element of a list, or of an entry of a stream: a transaction that moves
    /// it from one chunk to another, or changes its chunk, keeps the old and the new record together,
    /// where one value fits.
    fn element_bytes_max(self, key: &[u8]) -> usize {
        self.value_bytes_max.saturating_sub(key.len() + PLACE_BYTES) / 2
    }

    /// Fails if an element is too long for lists.
    pub(crate) fn check_elements(
        self,
        key: &[u8],
        mut elements: impl Iterator<Item = usize>,
    ) -> Result<(), Fault> {
        let most = self.element_bytes_max(key);
        match elements.find(|&bytes| bytes > most) {
            None => Ok(()),
            Some(bytes) => Err(Fault::said(format!(
                "ERR an element of {bytes} bytes is longer than lists of this pool can hold under this key, {most} bytes; split it, or \
                 create the pool with larger blocks"
            ))),
        }
    }

    /// Fails if an entry is too long for streams.
    pub(crate) fn check_entry(self, key: &[u8], bytes: usize) -> Result<(), Fault> {
        let most = self.element_bytes_max(key);
        if bytes <= most {
            return Ok(());
        }
        Err(Fault::said(format!(
            "ERR an entry of {bytes} bytes is longer than streams of this pool can hold under this key, {most} bytes; split it, \
             or create the pool with larger blocks"
        )))
    }

    /// Fails if the index has no transactions, which a value needs.
    pub(crate) fn supported(self, what: &str) -> Result<(), Fault> {
        if self.has_transactions {
            return Ok(());
        }
        Err(Fault::said(format!("ERR {what} is refused: this pool's index has no transactions")))
    }
}

/// Returns the elements of a key as a payload has them, with up to `most` bytes.
async fn elements(
    keys: &mut Keyspace,
    kind: Kind,
    aggregate: &Aggregate,
    most: usize,
) -> Result<rdb::Elements, Fault> {
    let mut dumped = match kind {
        Kind::Hash => rdb::Elements::of_hash(),
        Kind::SortedSet => rdb::Elements::of_sorted_set(),
        _ => rdb::Elements::of_set(),
    };
    let mut elements = aggregate.elements();
    loop {
        let walked = keys.walk_elements(&mut elements, CHUNK, |name, record| match kind {
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

/// Returns the fields of a hash, with their values and ends.
async fn fields(keys: &mut Keyspace, hash: &Aggregate, most: usize) -> Result<Vec<TimedField>, Fault> {
    let (mut found, mut bytes, mut elements) = (Vec::new(), 0, hash.elements());
    loop {
        let walked = keys.walk_fields(hash, &mut elements, CHUNK, |name, field| {
            bytes += size_of::<TimedField>() + name.len() + field.value.len();
            found.push((name.to_vec(), field.value.to_vec(), field.end));
        });
        let walked = walked.await?;
        if bytes > most {
            return Err(too_long());
        }
        if walked == Walked::Through {
            return Ok(found);
        }
    }
}

/// Returns the elements of a list, or `None` if they have more bytes than `most`.
pub(crate) async fn list_elements(
    keys: &mut Keyspace,
    key: &[u8],
    most: usize,
) -> Result<Option<Vec<Vec<u8>>>, Fault> {
    let (mut found, mut retries) = (Vec::new(), Retries::default());
    while let Some(mut walk) = keys.walk_list(key, |length| (End::Left, 0, length)).await? {
        let mut bytes = 0;
        while let Some(piece) = keys.next_piece(&mut walk).await? {
            for element in piece.elements(End::Left) {
                bytes += size_of::<Vec<u8>>() + element.len();
                found.push(element.to_vec());
            }
            if bytes > most {
                return Ok(None);
            }
            turns::worked().await;
        }
        if keys.walk_stands(&walk).await? {
            break;
        }
        found.clear();
        retries.again().await?;
    }
    Ok(Some(found))
}

/// Returns the payload of a key with this head; `None` if the key has changed.
async fn payload(
    keys: &mut Keyspace,
    key: &[u8],
    record: &[u8],
    most: usize,
) -> Result<Option<Vec<u8>>, Fault> {
    let head = Head::parse(record)?;
    match head.kind {
        Kind::String => Ok(Some(rdb::dumped_string(head.string()?))),
        Kind::List => {
            let found = match list_elements(keys, key, most).await {
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
            let check = |bytes| if bytes > most { Err(too_long()) } else { Ok(()) };
            Ok(match keys.whole_stream(key, check).await {
                Err(fault) if fault.is_wrong_type() => None,
                found => found?.map(|stream| rdb::dumped_stream(&stream)),
            })
        }
        Kind::TimedHash => {
            let Some(hash) = keys.found(key, record, &[Kind::Hash]).await? else { return Ok(None) };
            let dumped = rdb::dumped_fields(&fields(keys, &hash, most).await?);
            Ok(if keys.stands(&hash).await? { dumped } else { None })
        }
        Kind::Hash | Kind::SortedSet | Kind::Set => {
            let Some(aggregate) = keys.found(key, record, &[head.kind]).await? else { return Ok(None) };
            let dumped = elements(keys, head.kind, &aggregate, most).await?.dumped();
            Ok(if keys.stands(&aggregate).await? { dumped } else { None })
        }
    }
}

/// Returns the value of a key; `None` if it is absent. Values of more than
/// about `most` bytes are refused.
pub(crate) async fn dump(keys: &mut Keyspace, key: &[u8], most: usize) -> Result<Option<Dumped>, Fault> {
    let mut retries = Retries::default();
    while let Some((record, _)) = keys.source(key).await? {
        if let Some(payload) = payload(keys, key, &record, most).await? {
            let expiry = Head::parse(&record)?.expiry;
            return Ok(Some(Dumped { payload, expiry }));
        }
        retries.again().await?;
    }
    Ok(None)
}

/// Adds the elements of a value to a draft.
async fn write(keys: &mut Keyspace, draft: &mut Draft, value: Value<'_>) -> Result<(), Fault> {
    match value {
        // They are not drafts of elements.
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
        Value::TimedHash(fields) => {
            for (name, value, end) in fields {
                let field = Field { value: &value, end };
                let record = if draft.kind() == Kind::Hash { value.to_vec() } else { field.record() };
                keys.draft_element(draft, &name, &record).await?;
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

/// Makes a list of some elements the value of a key, if the key may be replaced. Returns whether it did.
pub(crate) async fn set_list(
    keys: &mut Keyspace,
    limits: Limits,
    key: &[u8],
    elements: ListElements<'_>,
    end: Option<u64>,
    may_replace: impl FnMut(Option<&Head<'_>>) -> bool + Send,
) -> Result<bool, Fault> {
    limits.check_elements(key, elements.iter().map(|element| element.len()))?;
    if !is_one_record(&elements) {
        limits.supported("a list that takes several records")?;
    }
    keys.set_list(key, elements, end, may_replace).await
}

/// Sets a key to a value. Returns false if the key exists and may not be replaced.
///
/// # Errors
/// The store's errors, and errors of values that the pool cannot hold. Nothing has changed then.
pub(crate) async fn restore(
    keys: &mut Keyspace,
    limits: Limits,
    key: &[u8],
    mut value: Value<'_>,
    end: Option<u64>,
    replaces: bool,
) -> Result<bool, Fault> {
    let may_replace = |head: Option<&Head<'_>>| replaces || head.is_none();
    let now = keys.now;
    let kind = match &mut value {
        Value::TimedHash(fields) => {
            fields.retain(|(_, _, end)| end.is_none_or(|end| now <= end));
            if fields.is_empty() {
                // All fields have ended, so only an old value ends too.
                if replaces {
                    keys.remove(key).await?;
                    return Ok(true);
                }
                return keys.look(key, |head| head.is_none()).await;
            }
            let are_timed = fields.iter().any(|(_, _, end)| end.is_some());
            if are_timed { Kind::TimedHash } else { Kind::Hash }
        }
        Value::String(value) => {
            check_length(value.len(), limits.value_bytes_max)?;
            let change = keys.change(key, |head, record| {
                if !may_replace(head.as_ref()) {
                    return Ok(Change::Keep(false));
                }
                Head::begin(record, Kind::String, end);
                record.extend_from_slice(value);
                Ok(Change::Put(true))
            });
            return change.await;
        }
        Value::List(elements) => {
            let elements = elements.iter().map(|element| &element[..]).collect();
            return set_list(keys, limits, key, elements, end, may_replace).await;
        }
        Value::Stream(stream) => {
            stream.entries.iter().try_for_each(|(_, body)| limits.check_entry(key, body.len()))?;
            if !stream.is_one_record() {
                limits.supported("a stream that takes several records, or has consumer groups,")?;
            }
            return keys.set_stream(key, stream, end, may_replace).await;
        }
        Value::Hash(_) => Kind::Hash,
        Value::SortedSet(_) => Kind::SortedSet,
        Value::Set(_) => Kind::Set,
    };
    let mut draft = Draft::new(kind, key, end)?;
    if let Err(fault) = write(keys, &mut draft, value).await {
        keys.discard_draft(draft).await?;
        return Err(fault);
    }
    keys.publish_draft(draft, may_replace).await
}
