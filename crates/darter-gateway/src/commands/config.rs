//! `CONFIG`.

use super::object::{LISTPACK_BYTES_MAX, LISTPACK_FIELDS_MAX, LISTPACK_MEMBERS_MAX};
use crate::call::{Call, help, shown, unknown_subcommand, wrong_arity};
use crate::fault::{Fault, SYNTAX};
use crate::glob::Glob;
use crate::hyperloglog::SPARSE_BYTES;
use crate::keyspace::DATABASES;
use crate::options::GatewayOptions;
use crate::{number, turns};

/// Returns the limits of unread replies and messages, in the form of Redis's option.
fn output_limits(options: &GatewayOptions) -> String {
    let (replies, messages) = (options.output_bytes_max, options.message_bytes_max);
    format!("normal {replies} 0 0 slave 0 0 0 pubsub {messages} 0 0")
}

/// Returns the settings that `CONFIG GET` shows, in order of their names.
fn settings(call: &Call<'_>) -> Vec<(&'static str, String)> {
    let (shared, options) = (&call.shared, &call.shared.options);
    let address = call.client.info.local;
    vec![
        ("appendonly", "no".to_owned()),
        ("bind", address.ip().to_string()),
        #[cfg(feature = "scripts")]
        ("busy-reply-threshold", options.script_time.as_millis().to_string()),
        ("client-output-buffer-limit", output_limits(options)),
        ("client-query-buffer-limit", options.input_bytes_max.to_string()),
        ("databases", DATABASES.to_string()),
        ("hash-max-listpack-entries", LISTPACK_FIELDS_MAX.to_string()),
        ("hash-max-listpack-value", LISTPACK_BYTES_MAX.to_string()),
        ("hash-max-ziplist-entries", LISTPACK_FIELDS_MAX.to_string()),
        ("hash-max-ziplist-value", LISTPACK_BYTES_MAX.to_string()),
        ("hll-sparse-max-bytes", SPARSE_BYTES.to_string()),
        ("latency-monitor-threshold", "0".to_owned()),
        #[cfg(feature = "scripts")]
        ("lua-time-limit", options.script_time.as_millis().to_string()),
        ("maxclients", options.connections_max.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("notify-keyspace-events", shared.notifications.letters()),
        ("port", address.port().to_string()),
        ("proto-max-bulk-len", shared.argument_bytes_max.to_string()),
        ("save", String::new()),
        ("slowlog-log-slower-than", shared.slow.threshold().to_string()),
        ("slowlog-max-len", shared.slow.entries_max().to_string()),
        ("timeout", "0".to_owned()),
        ("tracking-table-max-keys", shared.tracking.keys_max().to_string()),
        ("zset-max-listpack-entries", LISTPACK_MEMBERS_MAX.to_string()),
        ("zset-max-listpack-value", LISTPACK_BYTES_MAX.to_string()),
        ("zset-max-ziplist-entries", LISTPACK_MEMBERS_MAX.to_string()),
        ("zset-max-ziplist-value", LISTPACK_BYTES_MAX.to_string()),
    ]
}

/// A setting that clients change, with its new value.
enum Change<'a> {
    Events(&'a [u8]),
    SlowerThan(i64),
    SlowEntries(usize),
    TrackedKeys(usize),
    /// It has this value.
    None,
}

/// Returns the error of a setting that cannot be changed so.
fn failed(name: &str, why: &str) -> Fault {
    Fault::said(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

/// Parses an integer of at least `least`.
fn integer(name: &str, value: &[u8], least: i64) -> Result<i64, Fault> {
    let number =
        number::integer(value).ok_or_else(|| failed(name, "argument couldn't be parsed into an integer"))?;
    if number < least {
        return Err(failed(name, &format!("argument must be between {least} and {} inclusive", i64::MAX)));
    }
    Ok(number)
}

impl<'a> Change<'a> {
    fn parse(name: &str, value: &'a [u8], settings: &[(&str, String)]) -> Result<Self, Fault> {
        let count = |value| -> Result<usize, Fault> {
            Ok(usize::try_from(integer(name, value, 0)?).unwrap_or(usize::MAX))
        };
        match name {
            "notify-keyspace-events" => Ok(Self::Events(value)),
            "slowlog-log-slower-than" => Ok(Self::SlowerThan(integer(name, value, -1)?)),
            "slowlog-max-len" => Ok(Self::SlowEntries(count(value)?)),
            "tracking-table-max-keys" => Ok(Self::TrackedKeys(count(value)?)),
            _ => match settings.iter().find(|(own, _)| *own == name) {
                None => Err(Fault::said(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
                ))),
                Some((_, own)) if own.as_bytes().eq_ignore_ascii_case(value) => Ok(Self::None),
                Some(_) => Err(failed(
                    name,
                    "a gateway is configured by its command line; start it with other options",
                )),
            },
        }
    }

    fn apply(self, call: &Call<'_>) -> Result<(), Fault> {
        let shared = &call.shared;
        match self {
            Self::Events(letters) => shared.notifications.select(letters)?,
            Self::SlowerThan(micros) => shared.slow.set_threshold(micros),
            Self::SlowEntries(entries) => shared.slow.set_entries_max(entries),
            Self::TrackedKeys(keys) => shared.tracking.set_keys_max(keys),
            Self::None => {}
        }
        Ok(())
    }
}

/// `CONFIG SET name value [name value…]`: all of them, or none. A setting may be given the value that
/// it has.
fn set(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let settings = settings(call);
    let mut changes: Vec<(String, Change<'_>)> = Vec::new();
    let mut words = args.from(2);
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        // No setting has a longer name.
        let name = shown(name, 64).to_ascii_lowercase();
        let change = Change::parse(&name, value, &settings)?;
        if changes.iter().any(|(other, _)| *other == name) {
            return Err(failed(&name, "duplicate parameter"));
        }
        changes.push((name, change));
    }
    // Letters of events are the only values that are not yet checked.
    changes.sort_by_key(|(_, change)| !matches!(change, Change::Events(_)));
    for (_, change) in changes {
        change.apply(call)?;
    }
    call.reply.ok();
    Ok(())
}

/// `CONFIG` and its subcommands.
pub(super) async fn config(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    match &args.get(1).to_ascii_lowercase()[..] {
        b"get" if args.len() < 3 => Err(wrong_arity("config|get")),
        b"get" => {
            let mut told: Vec<_> = settings(call).into_iter().map(|setting| (setting, false)).collect();
            for pattern in args.from(2) {
                let glob = Glob::parse(&pattern.to_ascii_lowercase())?;
                for ((name, _), is_told) in &mut told {
                    *is_told |= glob.matches(name.as_bytes());
                }
                turns::copied(pattern.len()).await;
            }
            call.reply.map(told.iter().filter(|(_, is_told)| *is_told).count());
            for ((name, value), _) in told.iter().filter(|(_, is_told)| *is_told) {
                call.reply.bulk(name.as_bytes());
                call.reply.bulk(value.as_bytes());
            }
            Ok(())
        }
        b"resetstat" if args.len() == 2 => {
            call.shared.reset_statistics();
            call.reply.ok();
            Ok(())
        }
        b"resetstat" => Err(wrong_arity("config|resetstat")),
        b"set" if args.len() < 4 => Err(wrong_arity("config|set")),
        b"set" if args.len() % 2 == 1 => Err(SYNTAX),
        b"set" => set(call),
        b"rewrite" => {
            Err(Fault::said("ERR a gateway is configured by its command line; start it with other options"))
        }
        b"help" => {
            help(
                &mut call.reply,
                &[
                    "CONFIG GET pattern...",
                    "CONFIG RESETSTAT",
                    "CONFIG SET notify-keyspace-events letters",
                    "CONFIG SET slowlog-log-slower-than microseconds",
                    "CONFIG SET slowlog-max-len entries",
                    "CONFIG SET tracking-table-max-keys keys",
                ],
            );
            Ok(())
        }
        _ => Err(unknown_subcommand("CONFIG", args.get(1))),
    }
}
