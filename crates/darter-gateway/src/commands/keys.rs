//! Commands for keys of any type.

use crate::call::Call;
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{KeyRange, Walked};

/// `DEL key…`, `UNLINK key…`.
pub(super) async fn del(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut removed = 0;
    for key in call.args.from(1) {
        removed += i64::from(call.keys.remove(key).await?);
    }
    call.reply.integer(removed);
    Ok(())
}

/// `EXISTS key…`.
pub(super) async fn exists(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut found = 0;
    for key in call.args.from(1) {
        found += i64::from(call.keys.look(key, |head| head.is_some()).await?);
    }
    call.reply.integer(found);
    Ok(())
}

/// `TYPE key`.
pub(super) async fn kind(call: &mut Call<'_>) -> Result<(), Fault> {
    let kind = call.keys.look(call.args.get(1), |head| head.map(|head| head.kind)).await?;
    call.reply.simple(kind.map_or("none", |kind| kind.name()));
    Ok(())
}

/// Keys that a flush removes at a time.
const FLUSHED: usize = 1000;

/// `FLUSHALL [ASYNC|SYNC]`, `FLUSHDB [ASYNC|SYNC]`.
pub(super) async fn flush(call: &mut Call<'_>) -> Result<(), Fault> {
    let is_way = |way: &[u8]| way.eq_ignore_ascii_case(b"async") || way.eq_ignore_ascii_case(b"sync");
    if call.args.len() > 2 || !call.args.from(1).all(is_way) {
        return Err(SYNTAX);
    }
    if !call.shared.options.allow_flush {
        return Err(Fault::said(
            "ERR FLUSHALL and FLUSHDB are not allowed here; start the gateway with --allow-flush",
        ));
    }
    let mut part = KeyRange::all();
    loop {
        let mut met = Vec::new();
        let walked = call.keys.walk(&mut part, FLUSHED, |key, _| met.push(key.to_vec())).await?;
        for key in met {
            call.keys.remove(&key).await?;
        }
        if walked == Walked::Through {
            break;
        }
    }
    call.reply.ok();
    Ok(())
}
