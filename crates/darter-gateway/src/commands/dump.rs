//! `DUMP` and `RESTORE`: values in the format of Redis's RDB files.

use crate::call::Call;
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::number;
use crate::payload::{self, Limits};
use crate::rdb;

/// `DUMP key`.
pub(super) async fn dump(call: &mut Call<'_>) -> Result<(), Fault> {
    let most = call.shared.options.output_bytes_max;
    match payload::dump(call.keys, call.args.get(1), most).await? {
        Some(dumped) => call.reply.bulk(&dumped.payload),
        None => call.reply.null(),
    }
    call.limit()
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

/// `RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`.
pub(super) async fn restore(call: &mut Call<'_>) -> Result<(), Fault> {
    let options = Options::parse(call)?;
    let (key, payload, limits) = (call.args.get(1), call.args.get(3), Limits::of_gateway(call.shared));
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
    } else if !payload::restore(call.keys, limits, key, value, end, options.replaces).await? {
        return Err(busy());
    }
    call.reply.ok();
    Ok(())
}
