//! `CONFIG`.

use crate::call::{Call, help, unknown_subcommand, wrong_arity};
use crate::fault::Fault;
use crate::glob;

/// `CONFIG` and its subcommands.
pub(super) fn config(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    match &args.get(1).to_ascii_lowercase()[..] {
        b"get" if args.len() < 3 => Err(wrong_arity("config|get")),
        b"get" => {
            let options = &call.shared.options;
            let address = call.client.info.local;
            let settings = [
                ("appendonly", "no".to_owned()),
                ("bind", address.ip().to_string()),
                ("client-query-buffer-limit", options.input_bytes_max.to_string()),
                ("databases", "1".to_owned()),
                ("maxclients", options.connections_max.to_string()),
                ("maxmemory", "0".to_owned()),
                ("maxmemory-policy", "noeviction".to_owned()),
                ("port", address.port().to_string()),
                ("proto-max-bulk-len", call.shared.argument_bytes_max.to_string()),
                ("save", String::new()),
                ("slowlog-log-slower-than", options.slow.as_micros().to_string()),
                ("slowlog-max-len", options.slow_entries.to_string()),
                ("timeout", "0".to_owned()),
            ];
            let asked: Vec<Vec<u8>> = args.from(2).map(<[u8]>::to_ascii_lowercase).collect();
            let is_asked = |name: &str| asked.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
            let told: Vec<_> = settings.iter().filter(|(name, _)| is_asked(name)).collect();
            call.reply.map(told.len());
            for (name, value) in told {
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
        b"set" | b"rewrite" => {
            Err(Fault::said("ERR a gateway is configured by its command line; start it with other options"))
        }
        b"help" => {
            help(&mut call.reply, &["CONFIG GET pattern...", "CONFIG RESETSTAT"]);
            Ok(())
        }
        _ => Err(unknown_subcommand("CONFIG", args.get(1))),
    }
}
