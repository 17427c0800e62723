//! Unions, intersections and differences of sorted sets and sets: returned, counted or stored. The
//! members of a set have the score 1. To store one is a transaction, unless the sets are large
//! (`transactions.rs`).

use super::ranks;
use super::set_operations::{count_joined, limit, replace};
use crate::call::{Call, too_long};
use crate::fault::{Fault, SYNTAX};
use crate::keyspace::{
    Draft, Join, Joined, Keyspace, Kind, Member, Retries, record_of_score, score_of_record,
};
use crate::score;
use crate::turns;

/// How the scores of a member are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combination {
    Sum,
    Least,
    Greatest,
}

impl Combination {
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            // Opposite infinities.
            Self::Sum if (score + other).is_nan() => 0.0,
            Self::Sum => score + other,
            Self::Least if other < score => other,
            Self::Greatest if other > score => other,
            Self::Least | Self::Greatest => score,
        }
    }
}

/// The options of a command.
struct Options {
    /// By the position of the key.
    weights: Vec<f64>,
    combination: Combination,
    with_scores: bool,
}

impl Options {
    /// Parses the options in the arguments from a position on.
    fn parse(
        call: &Call<'_>,
        mut at: usize,
        keys: usize,
        join: Join,
        is_stored: bool,
    ) -> Result<Self, Fault> {
        let mut options =
            Self { weights: vec![1.0; keys], combination: Combination::Sum, with_scores: false };
        let combines = join != Join::Difference;
        while at < call.args.len() {
            let left = call.args.len() - at;
            match &call.args.get(at).to_ascii_lowercase()[..] {
                b"weights" if combines && left > keys => {
                    for (weight, said) in options.weights.iter_mut().zip(call.args.from(at + 1)) {
                        let none = || Fault::said("ERR weight value is not a float");
                        *weight = score::parse(said).ok_or_else(none)?;
                    }
                    at += keys + 1;
                }
                b"aggregate" if combines && left >= 2 => {
                    options.combination = match &call.args.get(at + 1).to_ascii_lowercase()[..] {
                        b"sum" => Combination::Sum,
                        b"min" => Combination::Least,
                        b"max" => Combination::Greatest,
                        _ => return Err(SYNTAX),
                    };
                    at += 2;
                }
                b"withscores" if !is_stored => {
                    options.with_scores = true;
                    at += 1;
                }
                _ => return Err(SYNTAX),
            }
        }
        Ok(options)
    }

    /// Returns the score of the last member of a join.
    fn score(&self, joined: &Joined, join: Join) -> f64 {
        let mut combined: Option<f64> = None;
        for (position, record) in &joined.records {
            let is_set = joined.kind(*position) == Some(Kind::Set);
            let score = if is_set { 1.0 } else { score_of_record(record).unwrap_or_default() };
            if join == Join::Difference {
                return score;
            }
            let weighted = score * self.weights[*position];
            let is_counted_as_zero = weighted.is_nan() && (combined.is_none() || join == Join::Union);
            let weighted = if is_counted_as_zero { 0.0 } else { weighted };
            combined = Some(combined.map_or(weighted, |combined| self.combination.of(combined, weighted)));
        }
        // The only zero is the positive one.
        combined.unwrap_or_default() + 0.0
    }
}

/// Returns the keys whose number an argument gives.
fn sources<'a>(call: &Call<'a>, at: usize) -> Result<Vec<&'a [u8]>, Fault> {
    let said = call.integer(at)?;
    let count = usize::try_from(said).ok().filter(|&count| count > 0);
    let none = || {
        let name = String::from_utf8_lossy(call.args.get(0)).to_ascii_lowercase();
        Fault::said(format!("ERR at least 1 input key is needed for '{name}' command"))
    };
    let count = count.ok_or_else(none)?;
    if count > call.args.len() - at - 1 {
        return Err(SYNTAX);
    }
    Ok(call.args.from(at + 1).take(count).collect())
}

async fn begin(call: &mut Call<'_>, keys: &[&[u8]], join: Join) -> Result<Joined, Fault> {
    let most = call.shared.options.output_bytes_max;
    Ok(Joined::new(join, call.keys.find_all(keys, &[Kind::Set, Kind::SortedSet], most).await?))
}

/// `ZUNION`, `ZINTER`: `numkeys key… [WEIGHTS weight…] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]`;
/// `ZDIFF numkeys key… [WITHSCORES]`.
pub(super) async fn combine(call: &mut Call<'_>, join: Join) -> Result<(), Fault> {
    let keys = sources(call, 1)?;
    let most = call.shared.options.output_bytes_max;
    let mut retries = Retries::default();
    loop {
        let mut joined = begin(call, &keys, join).await?;
        let options = Options::parse(call, 2 + keys.len(), keys.len(), join, false)?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some(name) = call.keys.next_joined(&mut joined).await? {
            bytes += name.len() + size_of::<Member>();
            if bytes > most {
                return Err(too_long());
            }
            turns::copied(name.len()).await;
            found.push(Member { name, score: options.score(&joined, join) });
        }
        if call.keys.all_stand(&joined).await? {
            found.sort_by(|a, b| a.score.total_cmp(&b.score).then_with(|| a.name.cmp(&b.name)));
            return ranks::write(call, found, options.with_scores).await;
        }
        retries.again().await?;
    }
}

/// `ZINTERCARD numkeys key… [LIMIT limit]`.
pub(super) async fn zintercard(call: &mut Call<'_>) -> Result<(), Fault> {
    let keys = sources(call, 1)?;
    let mut retries = Retries::default();
    loop {
        let joined = begin(call, &keys, Join::Intersection).await?;
        let limit = limit(call, 2 + keys.len())?;
        if let Some(count) = count_joined(call.keys, joined, limit).await? {
            call.reply.count(count);
            return Ok(());
        }
        retries.again().await?;
    }
}

/// Writes the members of a join. Returns whether all keys are still the same.
async fn fill(
    keys: &mut Keyspace,
    joined: &mut Joined,
    draft: &mut Draft,
    score: impl Fn(&Joined) -> f64,
) -> Result<bool, Fault> {
    while let Some(name) = keys.next_joined(joined).await? {
        keys.draft_element(draft, &name, &record_of_score(score(joined))).await?;
        turns::copied(name.len()).await;
    }
    keys.all_stand(joined).await
}

/// `ZUNIONSTORE`, `ZINTERSTORE`: `destination numkeys key… [WEIGHTS weight…] [AGGREGATE
/// SUM|MIN|MAX]`; `ZDIFFSTORE destination numkeys key…`.
pub(super) async fn store(call: &mut Call<'_>, join: Join) -> Result<(), Fault> {
    let keys = sources(call, 2)?;
    let mut retries = Retries::default();
    loop {
        let mut joined = begin(call, &keys, join).await?;
        let options = Options::parse(call, 3 + keys.len(), keys.len(), join, true)?;
        let mut draft = Draft::new(Kind::SortedSet, call.args.get(1), None)?;
        let filled = fill(call.keys, &mut joined, &mut draft, |joined| options.score(joined, join)).await;
        if replace(call, draft, filled).await? {
            return Ok(());
        }
        retries.again().await?;
    }
}
