//! `SLOWLOG`.

#![allow(clippy::unnecessary_wraps)] // all commands have one signature, whether they can fail or not

use crate::call::{Call, unknown_subcommand, wrong_arity};
use crate::fault::Fault;
use crate::number;
use crate::turns;

/// Entries returned by default.
const ENTRIES: i64 = 10;

/// `SLOWLOG` and its subcommands.
pub(super) async fn slowlog(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let log = &call.shared.slow;
    match &args.get(1).to_ascii_lowercase()[..] {
        b"get" if args.len() <= 3 => {
            let wrong = || Fault::said("ERR count should be greater than or equal to -1");
            let count =
                if args.len() == 3 { number::integer(args.get(2)).ok_or_else(wrong)? } else { ENTRIES };
            let count = match count {
                -1 => usize::MAX,
                count => usize::try_from(count).map_err(|_| wrong())?,
            };
            let entries = log.last(count);
            call.reply.array(entries.len());
            for entry in entries {
                call.reply.array(6);
                call.reply.integer(entry.id.cast_signed());
                call.reply.integer(entry.time);
                call.reply.integer(entry.micros.cast_signed());
                call.reply.array(entry.arguments.len());
                for argument in &entry.arguments {
                    call.reply.bulk(argument);
                }
                call.reply.bulk(entry.client.address.to_string().as_bytes());
                call.reply.bulk(entry.name.as_bytes());
                call.limit()?;
                turns::copied(size_of_val(&entry.arguments[..]) * 4).await;
            }
        }
        b"get" => return Err(wrong_arity("slowlog|get")),
        b"len" if args.len() == 2 => call.reply.count(log.count()),
        b"len" => return Err(wrong_arity("slowlog|len")),
        b"reset" if args.len() == 2 => {
            log.reset();
            call.reply.ok();
        }
        b"reset" => return Err(wrong_arity("slowlog|reset")),
        b"help" => {
            let lines = ["SLOWLOG GET [count]", "SLOWLOG LEN", "SLOWLOG RESET"];
            call.reply.array(lines.len());
            for line in lines {
                call.reply.simple(line);
            }
        }
        _ => return Err(unknown_subcommand("SLOWLOG", args.get(1))),
    }
    Ok(())
}
