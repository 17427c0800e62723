//! `CONFIG`.

use super::object::{LISTPACK_BYTES_MAX, LISTPACK_FIELDS_MAX, LISTPACK_MEMBERS_MAX};
use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::Fault;
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

/// Parses the most keys that clients track.
fn tracked_keys_max(text: &[u8]) -> Result<usize, Fault> {
    let failed = |why: &str| {
        let argument = "tracking-table-max-keys";
        Fault::said(format!("ERR CONFIG SET failed (possibly related to argument '{argument}') - {why}"))
    };
    let number =
        number::integer(text).ok_or_else(|| failed("argument couldn't be parsed into an integer"))?;
    usize::try_from(number)
        .map_err(|_| failed("argument must be between 0 and 9223372036854775807 inclusive"))
}

/// `CONFIG` and its subcommands.
pub(super) async fn config(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    match &args.get(1).to_ascii_lowercase()[..] {
        b"get" if args.len() < 3 => Err(wrong_arity("config|get")),
        b"get" => {
            let options = &call.shared.options;
            let address = call.client.info.local;
            let settings = [
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
                #[cfg(feature = "scripts")]
                ("lua-time-limit", options.script_time.as_millis().to_string()),
                ("maxclients", options.connections_max.to_string()),
                ("maxmemory", "0".to_owned()),
                ("maxmemory-policy", "noeviction".to_owned()),
                ("notify-keyspace-events", call.shared.notifications.letters()),
                ("port", address.port().to_string()),
                ("proto-max-bulk-len", call.shared.argument_bytes_max.to_string()),
                ("save", String::new()),
                ("slowlog-log-slower-than", options.slow.as_micros().to_string()),
                ("slowlog-max-len", options.slow_entries.to_string()),
                ("timeout", "0".to_owned()),
                ("tracking-table-max-keys", call.shared.tracking.keys_max().to_string()),
                ("zset-max-listpack-entries", LISTPACK_MEMBERS_MAX.to_string()),
                ("zset-max-listpack-value", LISTPACK_BYTES_MAX.to_string()),
                ("zset-max-ziplist-entries", LISTPACK_MEMBERS_MAX.to_string()),
                ("zset-max-ziplist-value", LISTPACK_BYTES_MAX.to_string()),
            ];
            let mut told = settings.map(|setting| (setting, false));
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
        b"set" if args.len() == 4 && args.get(2).eq_ignore_ascii_case(b"notify-keyspace-events") => {
            call.shared.notifications.select(args.get(3))?;
            call.reply.ok();
            Ok(())
        }
        b"set" if args.len() == 4 && args.get(2).eq_ignore_ascii_case(b"tracking-table-max-keys") => {
            call.shared.tracking.set_keys_max(tracked_keys_max(args.get(3))?);
            call.reply.ok();
            Ok(())
        }
        b"set" | b"rewrite" => {
            Err(Fault::said("ERR a gateway is configured by its command line; start it with other options"))
        }
        b"help" => {
            help(
                &mut call.reply,
                &[
                    "CONFIG GET pattern...",
                    "CONFIG RESETSTAT",
                    "CONFIG SET notify-keyspace-events letters",
                    "CONFIG SET tracking-table-max-keys keys",
                ],
            );
            Ok(())
        }
        _ => Err(unknown_subcommand("CONFIG", args.get(1))),
    }
}
