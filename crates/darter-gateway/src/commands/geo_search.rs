//! Searches for the members of a sorted set in an area: `GEOSEARCH`, `GEOSEARCHSTORE`, `GEORADIUS`
//! and related commands.

use super::geo::{number, position, tell_position, unit};
use crate::call::{Call, too_long};
use crate::fault::{Fault, NO_INTEGER, SYNTAX};
use crate::geo::{self, Area, Cell, Position, Shape};
use crate::keyspace::{Draft, Kind, Retries, record_of_score, score_of_record};
use crate::turns;
use std::ops::Bound;

/// The form of a command's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `GEORADIUS`: longitude, latitude, radius, unit, and options.
    Position,
    /// `GEORADIUSBYMEMBER`: member, radius, unit, and options.
    Member,
    /// `GEOSEARCH`: all are options.
    Search,
    /// `GEOSEARCHSTORE`: the destination comes first.
    Store,
}

/// A member that was found.
#[derive(Debug)]
struct Found {
    name: Vec<u8>,
    score: f64,
    position: Position,
    /// The distance from the centre in metres.
    distance: f64,
}

/// The order of the members that were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    None,
    Ascending,
    Descending,
}

/// Where to store the result.
#[derive(Clone, Copy, Debug)]
struct Destination<'a> {
    key: &'a [u8],
    /// Whether the scores are distances, not positions.
    has_distances: bool,
}

/// A parsed search.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // switches of the request
struct Search<'a> {
    /// `None` if it is unknown because the key does not exist.
    centre: Option<Position>,
    shape: Option<Shape>,
    /// The metres of the unit.
    unit: f64,
    with_distance: bool,
    with_score: bool,
    with_position: bool,
    from_member: bool,
    from_position: bool,
    is_any: bool,
    count: Option<usize>,
    order: Order,
    destination: Option<Destination<'a>>,
}

/// Parses the options of a search.
struct Parser<'p, 'c> {
    call: &'p mut Call<'c>,
    form: Form,
    may_store: bool,
    /// The position of the source key.
    source: usize,
    /// Whether the source exists.
    exists: bool,
    /// The position of the next argument.
    at: usize,
}

impl<'c> Parser<'_, 'c> {
    /// Returns the next arguments, if there are that many.
    fn take<const COUNT: usize>(&mut self) -> Option<[&'c [u8]; COUNT]> {
        let args = self.call.args;
        let taken =
            (self.at + COUNT <= args.len()).then(|| std::array::from_fn(|n| args.get(self.at + n)))?;
        self.at += COUNT;
        Some(taken)
    }

    /// Returns the position of a member of the source.
    async fn member(&mut self, name: &[u8]) -> Result<Option<Position>, Fault> {
        if !self.exists {
            return Ok(None);
        }
        let source = self.call.args.get(self.source);
        let record = self.call.keys.element_of((source, Kind::SortedSet), name).await?;
        let score = record
            .as_deref()
            .and_then(score_of_record)
            .ok_or_else(|| Fault::said("ERR could not decode requested zset member"))?;
        Ok(Some(Cell::with_score(score).position()))
    }

    fn circle(search: &mut Search<'c>, radius: &[u8], unit_name: &[u8]) -> Result<(), Fault> {
        let radius = number(radius, "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err(Fault::said("ERR radius cannot be negative"));
        }
        (search.shape, search.unit) = (Some(Shape::Circle { radius }), unit(unit_name)?);
        Ok(())
    }

    fn square(search: &mut Search<'c>, [width, height, unit_name]: [&[u8]; 3]) -> Result<(), Fault> {
        let width = number(width, "ERR need numeric width")?;
        let height = number(height, "ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err(Fault::said("ERR height or width cannot be negative"));
        }
        (search.shape, search.unit) = (Some(Shape::Box { width, height }), unit(unit_name)?);
        Ok(())
    }

    /// Parses the arguments before the options.
    async fn begin(&mut self) -> Result<Search<'c>, Fault> {
        let mut search = Search {
            centre: None,
            shape: None,
            unit: 1.0,
            with_distance: false,
            with_score: false,
            with_position: false,
            from_member: false,
            from_position: false,
            is_any: false,
            count: None,
            order: Order::None,
            destination: None,
        };
        let args = self.call.args;
        match self.form {
            Form::Position => {
                search.centre = Some(position(args.get(2), args.get(3))?);
                Self::circle(&mut search, args.get(4), args.get(5))?;
                self.at = 6;
            }
            Form::Member => {
                search.centre = self.member(args.get(2)).await?;
                if self.exists {
                    Self::circle(&mut search, args.get(3), args.get(4))?;
                }
                self.at = 5;
            }
            Form::Search => self.at = 2,
            Form::Store => {
                search.destination = Some(Destination { key: args.get(1), has_distances: false });
                self.at = 3;
            }
        }
        Ok(search)
    }

    /// Parses an option.
    async fn option(&mut self, search: &mut Search<'c>) -> Result<(), Fault> {
        let [word] = self.take().ok_or(SYNTAX)?;
        let is_search = matches!(self.form, Form::Search | Form::Store);
        match &word.to_ascii_lowercase()[..] {
            b"withdist" => search.with_distance = true,
            b"withhash" => search.with_score = true,
            b"withcoord" => search.with_position = true,
            b"any" => search.is_any = true,
            b"asc" => search.order = Order::Ascending,
            b"desc" => search.order = Order::Descending,
            b"count" => {
                let [count] = self.take().ok_or(SYNTAX)?;
                let count = crate::number::integer(count).ok_or(NO_INTEGER)?;
                let count = usize::try_from(count).ok().filter(|&count| count > 0);
                search.count = Some(count.ok_or_else(|| Fault::said("ERR COUNT must be > 0"))?);
            }
            what @ (b"store" | b"storedist") if self.may_store && !is_search => {
                let [key] = self.take().ok_or(SYNTAX)?;
                search.destination = Some(Destination { key, has_distances: what == b"storedist" });
            }
            b"storedist" if self.form == Form::Store => {
                let key = self.call.args.get(1);
                search.destination = Some(Destination { key, has_distances: true });
            }
            b"frommember" if is_search && !search.from_position => {
                let [member] = self.take().ok_or(SYNTAX)?;
                search.centre = self.member(member).await?;
                search.from_member = true;
            }
            b"fromlonlat" if is_search && !search.from_member => {
                let [longitude, latitude] = self.take().ok_or(SYNTAX)?;
                search.centre = Some(position(longitude, latitude)?);
                search.from_position = true;
            }
            b"byradius" if is_search && !matches!(search.shape, Some(Shape::Box { .. })) => {
                let [radius, unit] = self.take().ok_or(SYNTAX)?;
                Self::circle(search, radius, unit)?;
            }
            b"bybox" if is_search && !matches!(search.shape, Some(Shape::Circle { .. })) => {
                Self::square(search, self.take().ok_or(SYNTAX)?)?;
            }
            _ => return Err(SYNTAX),
        }
        Ok(())
    }

    /// Parses a request.
    async fn parse(mut self) -> Result<Search<'c>, Fault> {
        let mut search = self.begin().await?;
        while self.at < self.call.args.len() {
            self.option(&mut search).await?;
            turns::worked().await;
        }
        let tells_more = search.with_distance || search.with_score || search.with_position;
        if search.destination.is_some() && tells_more {
            let name = if self.form == Form::Store { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Fault::said(format!(
                "ERR {name} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if matches!(self.form, Form::Search | Form::Store) {
            let name = crate::call::shown(self.call.args.get(0), 128);
            if !search.from_member && !search.from_position {
                let text = format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}");
                return Err(Fault::said(text));
            }
            if search.shape.is_none() {
                let text = format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}");
                return Err(Fault::said(text));
            }
        }
        if search.is_any && search.count.is_none() {
            return Err(Fault::said("ERR the ANY argument requires COUNT argument"));
        }
        Ok(search)
    }
}

impl Search<'_> {
    /// Brings the members that were found into their order, and cuts them off.
    fn arrange(&self, found: &mut Vec<Found>) {
        let is_sorted = self.count.is_some() && !self.is_any;
        match self.order {
            Order::None if !is_sorted => {}
            Order::None | Order::Ascending => found.sort_by(|a, b| a.distance.total_cmp(&b.distance)),
            Order::Descending => found.sort_by(|a, b| b.distance.total_cmp(&a.distance)),
        }
        found.truncate(self.count.unwrap_or(usize::MAX));
    }
}

/// Returns the members of a key in an area, at most `most` of them.
async fn gather(call: &mut Call<'_>, key: &[u8], area: &Area, most: usize) -> Result<Vec<Found>, Fault> {
    let bytes_max = call.shared.options.output_bytes_max;
    let mut retries = Retries::default();
    while let Some(set) = call.keys.find(key, Kind::SortedSet).await? {
        let (mut found, mut bytes) = (Vec::new(), 0);
        'cells: for cell in area.cells() {
            let (first, end) = cell.scores();
            let (first, end) = (Bound::Included(first as f64), Bound::Excluded(end as f64));
            let mut ranks = set.ranks(first, end, false, usize::MAX);
            while let Some(member) = call.keys.next_member(&mut ranks).await? {
                let position = Cell::with_score(member.score).position();
                let Some(distance) = area.distance_within(position) else { continue };
                bytes += member.name.len() + size_of::<Found>();
                found.push(Found { name: member.name, score: member.score, position, distance });
                if bytes > bytes_max {
                    return Err(too_long());
                }
                if found.len() >= most {
                    break 'cells;
                }
            }
        }
        if call.keys.stands(&set).await? {
            return Ok(found);
        }
        retries.again().await?;
    }
    Ok(Vec::new())
}

/// Replies with members.
async fn tell(call: &mut Call<'_>, search: &Search<'_>, found: Vec<Found>) -> Result<(), Fault> {
    let reply = &mut call.reply;
    let parts = [search.with_distance, search.with_score, search.with_position];
    let parts = parts.into_iter().filter(|&is| is).count();
    reply.array(found.len());
    for Found { name, score, position, distance } in found {
        if parts > 0 {
            reply.array(1 + parts);
        }
        reply.bulk(&name);
        if search.with_distance {
            reply.bulk(geo::text_of_distance(distance / search.unit).as_bytes());
        }
        if search.with_score {
            reply.integer(score as i64);
        }
        if search.with_position {
            tell_position(reply, position);
        }
        turns::worked().await;
    }
    call.limit()
}

/// Stores members in a sorted set, and replies with their number.
async fn store(
    call: &mut Call<'_>,
    destination: Destination<'_>,
    unit: f64,
    found: Vec<Found>,
) -> Result<(), Fault> {
    let Call { keys, reply, .. } = call;
    let mut draft = Draft::new(Kind::SortedSet, destination.key, None)?;
    for Found { name, score, distance, .. } in found {
        let score = if destination.has_distances { distance / unit } else { score };
        if let Err(fault) = keys.draft_element(&mut draft, &name, &record_of_score(score)).await {
            keys.discard_draft(draft).await?;
            return Err(fault);
        }
        turns::worked().await;
    }
    let stored = keys.replace_by(draft).await?;
    reply.count(stored);
    Ok(())
}

/// `GEOSEARCH key options`, `GEOSEARCHSTORE destination key options`, `GEORADIUS key longitude
/// latitude radius unit options`, `GEORADIUSBYMEMBER key member radius unit options`.
pub(super) async fn search(call: &mut Call<'_>, form: Form, may_store: bool) -> Result<(), Fault> {
    let source = if form == Form::Store { 2 } else { 1 };
    let key = call.args.get(source);
    let exists = call.keys.find(key, Kind::SortedSet).await?.is_some()
        && call.keys.look(key, |head| head.is_some()).await?;
    let search = Parser { call: &mut *call, form, may_store, source, exists, at: 0 }.parse().await?;
    let mut found = Vec::new();
    if let (true, Some(centre), Some(shape)) = (exists, search.centre, search.shape) {
        let area = Area { centre, shape, unit: search.unit };
        let most = search.count.filter(|_| search.is_any).unwrap_or(usize::MAX);
        found = gather(call, key, &area, most).await?;
        search.arrange(&mut found);
    }
    match search.destination {
        Some(destination) => store(call, destination, search.unit, found).await,
        None => tell(call, &search, found).await,
    }
}
