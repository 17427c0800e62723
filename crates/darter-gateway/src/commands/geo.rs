//! Commands for positions, which the scores of sorted sets encode: `GEOADD`, `GEODIST`, `GEOHASH`,
//! `GEOPOS`. Searches are in `geo_search.rs`.

use super::elements::some;
use super::sorted_sets::{Adding, add_scored};
use crate::call::Call;
use crate::fault::{Fault, SYNTAX};
use crate::geo::{self, Cell, LATITUDE_MAX, LONGITUDE_MAX, Position};
use crate::keyspace::{Kind, score_of_record};
use crate::reply::Reply;
use crate::request::Arguments;
use crate::{score, turns};

/// Parses a number; `error` is the text of the error.
pub(super) fn number(text: &[u8], error: &'static str) -> Result<f64, Fault> {
    score::parse(text).ok_or_else(|| Fault::said(error))
}

/// Parses a longitude and a latitude.
pub(super) fn position(longitude: &[u8], latitude: &[u8]) -> Result<Position, Fault> {
    let no_float = "ERR value is not a valid float";
    let (longitude, latitude) = (number(longitude, no_float)?, number(latitude, no_float)?);
    if longitude.abs() > LONGITUDE_MAX || latitude.abs() > LATITUDE_MAX {
        return Err(Fault::said(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")));
    }
    Ok(Position { longitude, latitude })
}

/// Parses a unit of length. Returns its metres.
pub(super) fn unit(name: &[u8]) -> Result<f64, Fault> {
    match &name.to_ascii_lowercase()[..] {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(Fault::said("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// Writes a position.
pub(super) fn tell_position(reply: &mut Reply<'_>, position: Position) {
    reply.array(2);
    reply.decimal(&geo::text_of_coordinate(position.longitude));
    reply.decimal(&geo::text_of_coordinate(position.latitude));
}

/// Parses the options of `GEOADD`. Returns the position of the first longitude.
fn options(args: &Arguments<'_>) -> (Adding, usize) {
    let (mut options, mut at) = (Adding::default(), 2);
    while at < args.len() {
        match &args.get(at).to_ascii_lowercase()[..] {
            b"nx" => options.is_absent = true,
            b"xx" => options.is_present = true,
            b"ch" => options.tells_changes = true,
            _ => break,
        }
        at += 1;
    }
    (options, at)
}

/// `GEOADD key [NX|XX] [CH] longitude latitude member…`.
pub(super) async fn geoadd(call: &mut Call<'_>) -> Result<(), Fault> {
    let args = call.args;
    let (options, first) = options(&args);
    let words = args.len() - first;
    if words == 0 || !words.is_multiple_of(3) || options.is_absent && options.is_present {
        return Err(SYNTAX);
    }
    let mut scores = Vec::with_capacity(words / 3);
    for at in (first..args.len()).step_by(3) {
        let cell = Cell::of(position(args.get(at), args.get(at + 1))?);
        scores.push(cell.scores().0 as f64);
        turns::worked().await;
    }
    add_scored(call, options, &scores, first + 2, 3).await
}

/// Returns the position in a member's record.
fn position_of_record(record: Option<&[u8]>) -> Option<Position> {
    record.and_then(score_of_record).map(|score| Cell::with_score(score).position())
}

/// `GEODIST key member member [M|KM|FT|MI]`.
pub(super) async fn geodist(call: &mut Call<'_>) -> Result<(), Fault> {
    let Call { args, keys, reply, .. } = call;
    let metres = match args.len() {
        4 => 1.0,
        5 => unit(args.get(4))?,
        _ => return Err(SYNTAX),
    };
    let mut positions = Vec::new();
    if let Some(set) = keys.find(args.get(1), Kind::SortedSet).await? {
        let members = args.from(2).take(2);
        let told = keys.some_elements(&set, members, |record| {
            positions.extend(position_of_record(record));
            Ok(())
        });
        told.await?;
    }
    match positions[..] {
        [one, other] => {
            reply.bulk(geo::text_of_distance(geo::distance(one, other) / metres).as_bytes());
        }
        _ => reply.null(),
    }
    Ok(())
}

/// `GEOHASH key [member…]`.
pub(super) async fn geohash(call: &mut Call<'_>) -> Result<(), Fault> {
    let tell = |reply: &mut Reply<'_>, record: Option<&[u8]>| {
        let score = record.and_then(score_of_record);
        let text = score.map(|score| Cell::with_score(score).text());
        reply.bulk_or_null(text.as_ref().map(<[u8; 11]>::as_slice));
    };
    some(call, Kind::SortedSet, tell).await
}

/// `GEOPOS key [member…]`.
pub(super) async fn geopos(call: &mut Call<'_>) -> Result<(), Fault> {
    let tell = |reply: &mut Reply<'_>, record: Option<&[u8]>| match position_of_record(record) {
        Some(position) => tell_position(reply, position),
        None => reply.null_array(),
    };
    some(call, Kind::SortedSet, tell).await
}
